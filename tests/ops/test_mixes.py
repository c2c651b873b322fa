"""Which places an element of the result depends on, and the laws of what combines places."""

import numpy as np
import pytest

from graphfix import ops
from graphfix.ops.axes import mixed_axes
from graphfix.ops.table import operators_with, rows
from tests.ops.nodes import node_of
from tests.ops.samples import UNTESTED, Array, Sample, floats, ints, samples_of

SCANS = ops.named("CumSum CumProd")
NORMALIZES = ops.SOFTMAXES | ops.NORMS | ops.named("LRN")
MIXED = ops.REDUCES | NORMALIZES | ops.GLOBAL_POOLS | ops.RANKS | SCANS
QUANTIZED = ops.COMPUTES_QUANTIZED


def _touched(sample: Sample) -> list[tuple[tuple[int, ...], Array]]:
    """Return, for each element of the first input, where the result changes if it does."""
    data, before = sample.inputs[0], sample.run()[0]
    touched = []
    for place in np.ndindex(data.shape):
        changed = data.copy()
        changed[place] += 0.37
        after = sample.with_inputs({0: changed}).run()[0]
        touched.append((place, np.argwhere(before != after)))
    return touched


def _kept_axes(sample: Sample, axes: tuple[int, ...]) -> list[int | None]:
    """Return which axis of the input each axis of the result is."""
    rank = sample.inputs[0].ndim
    if sample.run()[0].ndim == rank:
        return list(range(rank))
    return [axis for axis in range(rank) if axis not in axes]


@pytest.mark.parametrize("operator", sorted(MIXED - UNTESTED))
def test_places_are_mixed_along_these_axes_alone(operator: str) -> None:
    """Both ways: nothing else is mixed, and of these axes all are."""
    assert samples_of(operator)
    for sample in samples_of(operator):
        rank = sample.inputs[0].ndim
        axes = mixed_axes(node_of(sample), rank, sample.opset)
        assert axes is not None, sample
        seen: set[int] = set()
        for place, places in _touched(sample):
            kept = _kept_axes(sample, axes)
            for other in places:
                seen |= {x for x, i in zip(kept, other, strict=True) if i != place[x]}
        groups = operator == "GroupNormalization"
        hard = operator == "Hardmax"  # it depends on the largest alone
        if not hard:
            assert seen <= {*axes}, (str(sample), axes)
        wide = {x for x in axes if sample.inputs[0].shape[x] > 1}
        if sample.first().ndim == rank and sample.first().shape == sample.inputs[0].shape:
            assert hard or seen >= wide, (str(sample), axes)
        assert groups or len(axes) <= rank


@pytest.mark.parametrize("operator", sorted(ops.ELEMENTWISE))
def test_what_works_element_by_element_mixes_nothing(operator: str) -> None:
    for sample in samples_of(operator):
        assert mixed_axes(node_of(sample), sample.inputs[0].ndim, sample.opset) == ()


def test_no_other_row_says_what_it_mixes() -> None:
    more = ops.named("com.microsoft.EmbedLayerNormalization") | {"RotaryEmbedding"}
    more |= {"com.microsoft.RotaryEmbedding"}
    assert {row.operator for row in rows() if row.mixes} <= MIXED | more


def test_traits_of_reductions_are_of_reductions() -> None:
    for trait in ("ignores_zeros", "extreme"):
        assert operators_with(trait) <= ops.REDUCES


def test_normalizing_batches_mixes_nothing() -> None:
    (sample, *_) = samples_of("BatchNormalization")
    assert mixed_axes(node_of(sample), 3, sample.opset) == ()
    assert all((places == place).all() for place, places in _touched(sample))


REDUCES = sorted(ops.REDUCES)


def _along_last(operator: str, x: Array) -> Array:
    sample = Sample(operator, 18, (x, ints(-1)), {"keepdims": 0})
    if operator == "ReduceSum":
        sample = Sample(operator, 13, (x, ints(-1)), {"keepdims": 0})
    with np.errstate(all="ignore"):
        return sample.first()


@pytest.mark.parametrize("operator", REDUCES)
def test_only_sums_reduce_past_zeros(operator: str) -> None:
    alike = []
    for sign in (1, -1):
        x = sign * floats(3, 4, low=0.5)
        if operator == "ReduceLogSum":
            x = abs(x)
        padded = np.pad(x, ((0, 0), (0, 2)))
        alike.append(np.allclose(_along_last(operator, x), _along_last(operator, padded)))
    assert all(alike) == (operator in ops.REDUCES_PAST_ZEROS)


@pytest.mark.parametrize("operator", REDUCES)
def test_only_extremes_are_elements(operator: str) -> None:
    x = floats(3, 4, low=0.5)
    elements = bool(np.isin(_along_last(operator, x), x).all())
    assert elements == (operator in ops.REDUCES_TO_EXTREME)


@pytest.mark.parametrize("operator", REDUCES)
def test_signs_of_reductions(operator: str) -> None:
    x = floats(3, 4, low=-2, high=2)
    never = not (_along_last(operator, -abs(x)) < 0).any() and operator != "ReduceProd"
    never = never and not (_along_last(operator, x[:, :3]) < 0).any()
    if "Log" not in operator:
        assert never == (operator in ops.NEVER_NEGATIVE)
    kept = not (_along_last(operator, abs(x) / 9) < 0).any()
    assert kept == (operator in ops.KEEPS_NONNEGATIVE) or operator == "ReduceLogSumExp"
    zeros = not _along_last(operator, np.zeros_like(x)).any()
    assert zeros == (operator in ops.ZERO_TO_ZERO)


ADDS_BIAS = ops.CONVOLVES | ops.named("Gemm LayerNormalization InstanceNormalization")
COMBINES = NORMALIZES | ops.PRODUCTS | ops.POOLS | ops.GLOBAL_POOLS | SCANS


@pytest.mark.parametrize("operator", sorted(COMBINES - UNTESTED - QUANTIZED - ADDS_BIAS))
def test_zeros_give_zeros(operator: str) -> None:
    for sample in samples_of(operator):
        data = {i: np.zeros_like(sample.inputs[i]) for i in sample.data}
        made = sample.with_inputs(data).first()
        mixed = sample.inputs[0].shape[-1] > 1 and made.shape[-1] > 1
        zeros = not made.any()
        if operator in ops.ZERO_TO_ZERO:
            assert zeros
        elif mixed and operator != "MeanVarianceNormalization":
            assert not zeros


OTHERS = (ops.KEEPS_NONNEGATIVE | ops.NEVER_NEGATIVE) - ops.ELEMENTWISE - ops.REDUCES


@pytest.mark.parametrize("operator", sorted(OTHERS - UNTESTED))
def test_signs_of_what_combines_places(operator: str) -> None:
    assert samples_of(operator)
    for sample in samples_of(operator):
        positive = sample.with_inputs({i: abs(sample.inputs[i]) for i in sample.data})
        assert not (positive.run()[-1] < 0).any()
        assert not (sample.run()[-1] < 0).any() or operator not in ops.NEVER_NEGATIVE


def test_zeros_of_other_kinds() -> None:
    more = ops.ZERO_TO_ZERO - ops.ELEMENTWISE - ops.REDUCES - COMBINES
    assert more == ops.named("Col2Im Trilu")
    for operator in more:
        for sample in samples_of(operator):
            assert not sample.with_inputs({0: np.zeros_like(sample.inputs[0])}).first().any()


def test_what_adds_a_bias_is_not_said_to_keep_zeros() -> None:
    assert not ADDS_BIAS & ops.ZERO_TO_ZERO


@pytest.mark.parametrize("operator", sorted(ops.SOFTMAXES - UNTESTED))
def test_a_softmax_is_of_differences(operator: str) -> None:
    for sample in samples_of(operator):
        moved = sample.with_inputs({0: sample.inputs[0] + np.float32(3)})
        np.testing.assert_allclose(moved.first(), sample.first(), 1e-4, 1e-5)
        made = sample.with_inputs({0: 100 * sample.inputs[0]}).first()
        assert (operator in ops.BOUNDED_BY_ONE.at(sample.opset)) == bool(
            (abs(made) <= 1 + 1e-6).all()
        ) or (sample.inputs[0].size == 1 or sample.first().shape[-1] == 1)
        if sample.first().shape[-1] > 1 and "Log" not in operator:
            assert operator in ops.NEVER_NEGATIVE.at(sample.opset)
            assert not (made < 0).any()
        assert np.isfinite(made).all()
        assert made.dtype == sample.inputs[0].dtype
        assert operator in ops.KEEPS_TYPE.at(sample.opset)
        assert operator in (ops.KEEPS_FINITE | ops.named("Hardmax")).at(sample.opset)


@pytest.mark.parametrize("operator", sorted((ops.SOFTMAXES | ops.REDUCES) - UNTESTED))
def test_nan_reaches_what_it_is_combined_into(operator: str) -> None:
    """ReduceMax and ReduceMin of ONNX Runtime lose one that is not the first of its row."""
    kept = []
    for sample in samples_of(operator):
        for place in (0, -1):
            x = sample.inputs[0].copy()
            x.reshape(-1)[place] = np.nan
            kept.append(bool(np.isnan(sample.with_inputs({0: x}).first().reshape(-1)[place])))
    always = all(operator in ops.KEEPS_NAN.at(x.opset) for x in samples_of(operator))
    assert all(kept) == always


@pytest.mark.parametrize("operator", sorted(ops.NORMS - UNTESTED))
def test_a_norm_takes_the_size_away(operator: str) -> None:
    for sample in samples_of(operator):
        big = {i: 1000 * sample.inputs[i] for i in sample.data}
        bigger = {i: 8000 * sample.inputs[i] for i in sample.data}
        first, second = sample.with_inputs(big).first(), sample.with_inputs(bigger).first()
        np.testing.assert_allclose(first, second, 1e-3, 1e-4, err_msg=str(sample))


@pytest.mark.parametrize("operator", sorted((ops.PRODUCTS | ops.CONVOLVES) - QUANTIZED - UNTESTED))
def test_products_add_up(operator: str) -> None:
    assert samples_of(operator)
    for sample in samples_of(operator):
        for i in sample.data:
            x = sample.inputs[i]
            parts = (sample.with_inputs({i: y}).first() for y in (x * 0.25, x * 0.75))
            np.testing.assert_allclose(sum(parts), sample.first(), 1e-4, 1e-4, err_msg=str(sample))
            doubled = sample.with_inputs({i: x[::-1].copy()})
            assert not np.allclose(doubled.first(), 0)


@pytest.mark.parametrize("operator", sorted((ops.POOLS | ops.GLOBAL_POOLS) - UNTESTED))
def test_pools_keep_channels_apart(operator: str) -> None:
    for sample in samples_of(operator):
        x = sample.inputs[0]
        turned = sample.with_inputs({0: x[:, ::-1].copy()}).first()
        np.testing.assert_allclose(turned, sample.first()[:, ::-1], 1e-6)
        doubled = sample.with_inputs({0: x * 2}).first()
        np.testing.assert_allclose(doubled, 2 * sample.first(), 1e-5)


@pytest.mark.parametrize("operator", sorted(ops.RANKS))
def test_ranks_follow_from_the_order_alone(operator: str) -> None:
    assert samples_of(operator)
    for sample in samples_of(operator):
        curved = sample.with_inputs({0: np.exp(sample.inputs[0]) * 3})
        places = sample.run()[-1]
        assert places.dtype == np.int64
        np.testing.assert_array_equal(curved.run()[-1], places)


@pytest.mark.parametrize("operator", sorted(ops.RECURRENT - QUANTIZED))
def test_what_is_recurrent_does_not_look_ahead(operator: str) -> None:
    gates = {"GRU": 3, "LSTM": 4, "RNN": 1}[operator]
    inputs = (floats(4, 1, 2), floats(1, 3 * gates, 2, seed=1), floats(1, 3 * gates, 3, seed=2))
    sample = Sample(operator, 14, inputs, {"hidden_size": 3})
    later = inputs[0].copy()
    later[2] += 1
    before, after = sample.first(), sample.with_inputs({0: later}).first()
    np.testing.assert_array_equal(before[:2], after[:2])
    assert (before[2] != after[2]).any()
    assert (before[3] != after[3]).any()


@pytest.mark.parametrize("operator", sorted(ops.SCATTERS - {"TensorScatter"}))
def test_a_scatter_leaves_other_places_alone(operator: str) -> None:
    data, where = np.zeros((4, 2), np.float32), ints(1, 3)
    places = where.reshape(2, 1)
    opset = 10 if operator == "Scatter" else 16
    updates = np.ones((2, 2) if operator == "ScatterND" else (2, 1), np.float32)
    made = Sample(operator, opset, (data, places, updates)).first()
    assert made.shape == data.shape
    assert not made[[0, 2]].any()
    assert made[[1, 3]].any()


@pytest.mark.parametrize("operator", sorted(ops.RESAMPLES))
def test_resampling_keeps_what_is_the_same_everywhere(operator: str) -> None:
    x, scales = np.full((1, 1, 3, 3), 7, np.float32), np.array([1, 1, 2, 2], np.float32)
    if operator == "GridSample":
        grid = floats(1, 2, 2, 2, low=-0.5, high=0.5)
        sample = Sample(operator, 16, (x, grid), {"align_corners": 1})
    elif operator == "Upsample":
        sample = Sample(operator, 9, (x, scales), {"mode": "linear"})
    else:
        sample = Sample(operator, 13, (x, None, scales), {"mode": "linear"})
    np.testing.assert_allclose(sample.first(), 7, 1e-6)
