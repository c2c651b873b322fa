"""Statistics over valid frames alone, and lengths as numbers, run on ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.lengths.repairs.statistics import (
    LengthData,
    MaskedGroupNorm,
    MaskedMean,
    MaskedNorm,
    SequenceLens,
)
from graphfix.lengths.tail_state import (
    ANY,
    FINITE,
    Axis,
    BatchFactor,
    OtherFactor,
    Tail,
    TimeFactor,
    size_expr,
    state_with_tail,
)
from tests.lengths.rewritten import (
    Array,
    Site,
    operators,
    repair,
    repaired_input,
    run,
    site_before,
)

B, T = size_expr("B"), size_expr("T")
LENGTHS = (2, 4)
X = (np.arange(1, 41, dtype=np.float32) ** 2).reshape(2, 5, 4)
WITHIN = np.array([[1, 1, 0, 0, 0], [1, 1, 1, 1, 0]], bool)
CLEAN = np.where(WITHIN[:, :, None], X, np.float32(0))
POISONED = np.where(WITHIN[:, :, None], X, np.float32(np.nan))


def feeds(x: Array = X, **more: Array) -> dict[str, Array]:
    return {"x": x, "ilens": np.array(LENGTHS), **more}


# Lengths as numbers


def test_a_size_that_is_a_number_becomes_the_length() -> None:
    constants = "int64 one = {1}"
    body = "s = Shape (x)  t = Gather (s, one)  f = Cast <to = 1> (t)  y = Div (x, f)"
    site = site_before(body, constants=constants)
    change = LengthData(site.node, "length as data", 1, 0, 2)
    result = run(repair(site, change), **feeds())
    np.testing.assert_array_equal(result, X / np.array([2, 4], np.float32)[:, None, None])


# Means


def mean(x: Array, length: int, *, keepdims: bool = True) -> Array:
    return np.asarray(x[:length].mean(0, keepdims=keepdims))


@pytest.mark.parametrize("opset", [11, 13, 17])
@pytest.mark.parametrize("keepdims", [True, False])
def test_a_mean_is_of_what_is_valid(keepdims: bool, opset: int) -> None:
    site = site_before(opset=opset)
    change = MaskedMean(site.node, "mean pollution", (1,), keepdims, site.state())
    result = run(repair(site, change), **feeds(CLEAN))
    alone = [mean(x, n, keepdims=keepdims) for x, n in zip(X, LENGTHS, strict=True)]
    np.testing.assert_allclose(result, alone, rtol=1e-6)


def test_a_mean_of_nothing_is_no_quotient_by_zero() -> None:
    site = site_before()
    change = MaskedMean(site.node, "mean pollution", (1,), True, site.state())
    result = run(repair(site, change), x=np.zeros_like(X), ilens=np.array([0, 1]))
    np.testing.assert_array_equal(result, np.zeros((2, 1, 4)))


def test_a_mean_over_fixed_axes_too_counts_them() -> None:
    site = site_before()
    change = MaskedMean(site.node, "mean pollution", (1, 2), False, site.state())
    result = run(repair(site, change), **feeds(CLEAN))
    np.testing.assert_allclose(result, [X[0, :2].mean(), X[1, :4].mean()], rtol=1e-6)


def test_a_mean_over_an_axis_of_any_size_counts_it() -> None:
    site = site_before(inputs="float[B, T, N] x, int64[B] ilens")
    change = MaskedMean(site.node, "mean pollution", (1, 2), True, site.state())
    result = run(repair(site, change), **feeds(CLEAN))
    np.testing.assert_allclose(result.reshape(2), [X[0, :2].mean(), X[1, :4].mean()], rtol=1e-6)


def test_a_mean_over_an_axis_of_one_does_not() -> None:
    site = site_before(inputs="float[B, T, 1] x, int64[B] ilens")
    change = MaskedMean(site.node, "mean pollution", (1, 2), True, site.state())
    result = run(repair(site, change), **feeds(CLEAN[..., :1]))
    np.testing.assert_allclose(result.reshape(2), [X[0, :2, 0].mean(), X[1, :4, 0].mean()])
    assert operators(site.model).count("Mul") == 0


def test_a_mean_over_two_times_counts_pairs() -> None:
    site = site_before(inputs="float[B, T, T] x, int64[B] ilens")
    pairs = (WITHIN[:, :, None] & WITHIN[:, None]).astype(np.float32)
    change = MaskedMean(site.node, "mean pollution", (1, 2), False, site.state())
    np.testing.assert_array_equal(run(repair(site, change), **feeds(pairs)), [1, 1])


def test_a_mean_over_a_time_that_shares_its_axis() -> None:
    axes: tuple[Axis, ...] = (
        (BatchFactor(B),),
        (TimeFactor(T), OtherFactor(size_expr("2"))),
    )
    site = site_before(inputs="float[B, T, 4] x, int64[B] ilens, float[B, 10] z")
    site.node.replace_input_with(0, site.value("z"))
    change = MaskedMean(site.node, "mean pollution", (1,), False, state_with_tail(axes, FINITE))
    z = WITHIN.repeat(2, 1).astype(np.float32)
    np.testing.assert_array_equal(run(repair(site, change), **feeds(z=z)), [1, 1])


def test_a_mean_without_time_is_an_error() -> None:
    site = site_before()
    change = MaskedMean(site.node, "mean pollution", (2,), True, site.state())
    with pytest.raises(RuntimeError, match="a mean over no time"):
        repair(site, change)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_mean_of_small_numbers_is_summed_in_float32(dtype: str) -> None:
    site = site_before(inputs=f"{dtype}[B, T, 4] x, int64[B] ilens")
    change = MaskedMean(site.node, "mean pollution", (1,), True, site.state())
    repair(site, change)
    assert operators(site.model)[0] == "Cast"
    casts = [x.attributes["to"].as_int() for x in site.model.graph if x.op_type == "Cast"]
    assert casts.count(ir.DataType.FLOAT) == 2
    if dtype == "float16":
        x = np.where(WITHIN[:, :, None], np.float16(60000), np.float16(0))
        result = run(site.model, **feeds(np.broadcast_to(x, (2, 5, 4))))
        np.testing.assert_array_equal(result, np.full((2, 1, 4), 60000, np.float16))


def test_a_mean_of_float32_is_not_cast() -> None:
    site = site_before()
    repair(site, MaskedMean(site.node, "mean pollution", (1,), True, site.state()))
    assert operators(site.model).count("Cast") == 1  # of the number of frames


# Norms


def normed(x: Array, axes: tuple[int, ...], epsilon: float, *, centred: bool = True) -> Array:
    x = x.astype(np.float64)
    if centred:
        x = x - x.mean(axes, keepdims=True)
    return np.asarray(x / np.sqrt((x * x).mean(axes, keepdims=True) + epsilon))


def norm_site(node: str, dtype: str = "float", more: str = "", opset: int = 17) -> Site:
    return site_before(
        node,
        inputs=f"{dtype}[B, 4, T] x, int64[B] ilens{more}",
        constants="float[4] scale = {1, 2, 3, 4}, float[4] bias = {4, 3, 2, 1}",
        axis="x.2",
        opset=opset,
    )


CHANNELS = X.transpose(0, 2, 1)
SCALE = np.array([1, 2, 3, 4])
BIAS = np.array([4, 3, 2, 1])


@pytest.mark.parametrize("tail", [FINITE, ANY])
def test_an_instance_norm_is_over_valid_frames(tail: Tail) -> None:
    site = norm_site("y = InstanceNormalization <epsilon = 0.5> (x, scale, bias)")
    change = MaskedNorm(site.node, "statistics pollution", (2,), site.state(tail=tail), True)
    x = POISONED.transpose(0, 2, 1) if tail is ANY else CHANNELS
    result = run(repair(site, change), **feeds(x))
    for row, length in enumerate(LENGTHS):
        alone = normed(CHANNELS[row, :, :length], (1,), 0.5)
        alone = alone * SCALE[:, None] + BIAS[:, None]
        np.testing.assert_allclose(result[row, :, :length], alone, rtol=1e-5)


@pytest.mark.parametrize("node", ["(x, scale)", "(x, scale, )"])
@pytest.mark.parametrize("centred", [True, False])
def test_a_layer_norm_scales_its_last_axes(node: str, centred: bool) -> None:
    site = site_before(
        f"y = LayerNormalization <axis = 1> {node}", constants="float[4] scale = {1, 2, 3, 4}"
    )
    change = MaskedNorm(
        site.node, "statistics pollution", (1, 2), site.state(), False, centred=centred
    )
    result = run(repair(site, change), **feeds())
    for row, length in enumerate(LENGTHS):
        alone = normed(X[row, :length], (0, 1), 1e-5, centred=centred) * SCALE
        np.testing.assert_allclose(result[row, :length], alone, rtol=1e-5)


def test_a_norm_is_centred_unless_said() -> None:
    site = norm_site("y = InstanceNormalization (x, scale, bias)")
    assert MaskedNorm(site.node, "statistics pollution", (2,), site.state(), True).centred


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_small_numbers_are_squared_in_float32(dtype: str) -> None:
    site = norm_site("y = LayerNormalization (x)", dtype)
    repair(site, MaskedNorm(site.node, "statistics pollution", (2,), site.state(), True))
    if dtype == "bfloat16":  # ONNX Runtime has few kernels of it
        assert operators(site.model)[0] == "Cast"
        return
    half = (CHANNELS / 4).astype(np.float16)  # the square of 400 is not in float16
    result = run(site.model, **feeds(half))
    assert result.dtype == np.float16
    for row, length in enumerate(LENGTHS):
        alone = normed(half[row, :, :length], (1,), 0)
        np.testing.assert_allclose(result[row, :, :length], alone, atol=2e-3)


@pytest.mark.parametrize(
    ("opset", "per_channel", "scale", "bias"),
    [(21, True, [1, 2, 3, 4], [4, 3, 2, 1]), (18, False, [1, 2], [4, 3])],
)
def test_a_group_norm_is_over_valid_frames(
    opset: int, per_channel: bool, scale: list[int], bias: list[int]
) -> None:
    count = len(scale)
    names = {"scale": scale, "bias": bias}
    constants = [f"float[{count}] {k} = {{{', '.join(map(str, x))}}}" for k, x in names.items()]
    site = site_before(
        "y = GroupNormalization <num_groups = 2, epsilon = 0.5> (x, scale, bias)",
        inputs="float[B, 4, T] x, int64[B] ilens",
        constants=", ".join(constants),
        axis="x.2",
        opset=opset,
    )
    change = MaskedGroupNorm(site.node, "statistics pollution", 2, 4, site.state(), per_channel)
    result = run(repair(site, change), **feeds(CHANNELS))
    factors, terms = (np.repeat(x, 4 // count)[:, None] for x in (scale, bias))
    for row, length in enumerate(LENGTHS):
        groups = CHANNELS[row, :, :length].reshape(2, 2, length)
        alone = normed(groups, (1, 2), 0.5).reshape(4, length) * factors + terms
        np.testing.assert_allclose(result[row, :, :length], alone, rtol=1e-5)


@pytest.mark.parametrize("groups", [1, 4])
def test_one_group_and_groups_of_one_channel(groups: int) -> None:
    site = norm_site(f"y = GroupNormalization <num_groups = {groups}> (x, scale, bias)", opset=21)
    change = MaskedGroupNorm(site.node, "statistics pollution", groups, 4, site.state(), True)
    result = run(repair(site, change), **feeds(CHANNELS))
    for row, length in enumerate(LENGTHS):
        parts = CHANNELS[row, :, :length].reshape(groups, -1)
        alone = normed(parts, (1,), 1e-5).reshape(4, length) * SCALE[:, None] + BIAS[:, None]
        np.testing.assert_allclose(result[row, :, :length], alone, rtol=1e-4)


# Recurrent layers

WEIGHTS = {"w": np.zeros((1, 6, 4), np.float32), "r": np.zeros((1, 6, 2), np.float32)}


def test_a_recurrent_layer_is_told_the_lengths() -> None:
    site = site_before(
        "y = GRU <hidden_size = 2> (x, w, r)",
        inputs="float[T, B, 4] x, int64[B] ilens, float[1, 6, 4] w, float[1, 6, 2] r",
        axis="x.0",
    )
    change = SequenceLens(site.node, "recurrence", T, site.state())
    lens = repaired_input(site, change, 4, **feeds(X.transpose(1, 0, 2), **WEIGHTS))
    assert (lens.tolist(), lens.dtype) == ([2, 4], np.int32)
    assert "Expand" not in operators(site.model)


@pytest.mark.parametrize(("layout", "inputs"), [(0, "float[T, 3, 4] x"), (1, "float[3, T, 4] x")])
def test_one_length_is_that_of_all_rows(layout: int, inputs: str) -> None:
    site = site_before(
        f"y = GRU <hidden_size = 2, layout = {layout}> (x, w, r)",
        inputs=f"{inputs}, int64[1] ilens, float[1, 6, 4] w, float[1, 6, 2] r",
        axis=f"x.{layout}",
    )
    axes: tuple[Axis, ...] = ((OtherFactor(size_expr("3")),), (TimeFactor(T),), ())
    state = state_with_tail(axes if layout else (axes[1], axes[0], ()), FINITE)
    change = SequenceLens(site.node, "recurrence", T, state)
    x = np.zeros((3, 5, 4) if layout else (5, 3, 4), np.float32)
    lens = repaired_input(site, change, 4, x=x, ilens=np.array([2]), **WEIGHTS)
    assert lens.tolist() == [2, 2, 2]


@pytest.mark.parametrize("layout", [0, 1])
def test_rows_that_occur_more_than_once_have_lengths_as_often(layout: int) -> None:
    site = site_before(
        f"y = GRU <hidden_size = 2, layout = {layout}> (z, w, r)",
        inputs="float[T, B, 4] x, int64[B] ilens, float[P, Q, 4] z, "
        "float[1, 6, 4] w, float[1, 6, 2] r",
        axis="x.0",
    )
    rows: Axis = (BatchFactor(B), OtherFactor(size_expr("2")))
    time: Axis = (TimeFactor(T),)
    state = state_with_tail((rows, time, ()) if layout else (time, rows, ()), FINITE)
    change = SequenceLens(site.node, "recurrence", T, state)
    z = np.zeros((4, 5, 4) if layout else (5, 4, 4), np.float32)
    lens = repaired_input(site, change, 4, **feeds(X.transpose(1, 0, 2), z=z, **WEIGHTS))
    assert lens.tolist() == [2, 2, 4, 4]
