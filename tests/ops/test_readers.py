"""The other typed readers, against what ONNX Runtime computes."""

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnxruntime.capi import onnxruntime_pybind11_state as state

from graphfix import ops
from graphfix.graph.constants import ints_of
from graphfix.ops.attention import _SLOTS, attention_slots
from graphfix.ops.norms import epsilon_of, scaled_axes
from graphfix.ops.operands import is_given, normalize_axes, read_ints
from graphfix.ops.pads import pad_fill, pad_mode, pads_by_axis
from graphfix.ops.products import (
    read_fused_matmul,
    read_gemm,
    read_matmul_nbits,
    rounds_data,
    summed_axes,
)
from graphfix.ops.recurrent import feature_axis_of_weight
from graphfix.ops.reshapes import copies_zeros, reshape_target, reshaped_dims
from graphfix.ops.resizes import read_resize, scales_input
from graphfix.ops.splits import split_sizes
from graphfix.ops.windows import channel_axis_of_weight, window_of
from tests.ops.nodes import node_of, nodes_in
from tests.ops.samples import Array, Sample, floats, ints, labels, samples_of

# --- Pad ------------------------------------------------------------------------------------------

_PADS = [
    Sample("Pad", 9, (labels(2, 3),), {"pads": [1, 0, 0, 2], "value": 5.0}),
    Sample("Pad", 9, (labels(2, 3),), {"pads": [0, 1, 0, 1], "mode": "reflect"}),
    Sample("Pad", 11, (labels(2, 3), ints(1, 0, 0, 2))),
    Sample("Pad", 13, (labels(2, 3), ints(1, -1, 0, 2), np.array(4, np.float32))),
    Sample("Pad", 13, (labels(2, 3), ints(0, 1, 1, 0)), {"mode": "edge"}),
    Sample("Pad", 18, (labels(2, 3), ints(1, 2), None, ints(-1))),
    Sample("Pad", 19, (labels(2, 3), ints(1, 1, 0, 0), None, ints(1, 0)), {"mode": "wrap"}),
]


def _pad(x: Array, pads: dict[int, tuple[int, int]], mode: str, fill: float) -> Array:
    widths = [pads.get(axis, (0, 0)) for axis in range(x.ndim)]
    cut = x[tuple(slice(max(0, -a), x.shape[i] - max(0, -b)) for i, (a, b) in enumerate(widths))]
    grown = [(max(0, a), max(0, b)) for a, b in widths]
    if mode == "constant":
        return np.pad(cut, grown, constant_values=fill)
    return np.pad(cut, grown, mode=mode)  # type: ignore[call-overload]


@pytest.mark.parametrize("sample", _PADS, ids=str)
def test_a_pad_puts_this_around(sample: Sample) -> None:
    node = node_of(sample)
    pads, fill = pads_by_axis(node, 2, ints_of), pad_fill(node)
    assert pads is not None
    assert fill is not None
    padded = _pad(sample.inputs[0], pads, pad_mode(node), fill)
    np.testing.assert_array_equal(padded, sample.first())


def test_pads_that_are_computed_are_read_by_the_caller() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]>
    pad (float[2, 3] x, int64[4] pads, float fill, int64[2] axes) => (float[N, M] y) {
        a = Pad (x, pads, fill)
        y = Pad (x, pads, fill, axes)
    }"""
    node, other = nodes_in(text)
    assert pads_by_axis(node, 2, ints_of) is None
    assert pad_fill(node) is None
    assert pads_by_axis(node, 2, lambda _: ("a", 0, "b", 0)) == {0: ("a", "b"), 1: (0, 0)}
    assert pads_by_axis(node, 3, lambda _: ("a", 0, "b", 0)) is None
    assert pads_by_axis(other, 2, lambda _: ("a", 0, "b", 0)) is None


# --- Split, Reshape -------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", samples_of("Split"), ids=str)
def test_parts_of_a_split_are_that_long(sample: Sample) -> None:
    node, x = node_of(sample), sample.inputs[0]
    axis = int(sample.attributes.get("axis", 0))  # type: ignore[call-overload]
    sizes = tuple(part.shape[axis] for part in sample.run())
    assert split_sizes(node, x.shape[axis], ints_of) == sizes
    given_sizes = is_given(node, 1, "split")
    assert split_sizes(node, None, ints_of) == (sizes if given_sizes else None)


def test_a_split_that_does_not_come_out_even_is_not_known() -> None:
    sample = Sample("Split", 13, (labels(5),), outputs=2)
    assert split_sizes(node_of(sample), 5, ints_of) is None
    with pytest.raises(Exception, match="plit"):
        sample.run()


@pytest.mark.parametrize("sample", samples_of("Reshape"), ids=str)
def test_a_reshape_gives_this_shape(sample: Sample) -> None:
    node = node_of(sample)
    target = reshape_target(node, ints_of)
    assert target is not None
    assert reshaped_dims(node, sample.inputs[0].shape, target) == sample.first().shape
    assert copies_zeros(node) == ("allowzero" not in sample.attributes)


@settings(max_examples=80, deadline=None)
@given(
    dims=st.lists(st.integers(0, 3), max_size=3),
    target=st.lists(st.sampled_from([-1, 0, 1, 2, 3, 4, 6]), min_size=1, max_size=3),
    allowzero=st.booleans(),
)
def test_a_reshape_that_is_refused_has_no_shape(
    dims: list[int], target: list[int], allowzero: bool
) -> None:
    attributes: dict[str, object] = {"allowzero": 1} if allowzero else {}
    sample = Sample("Reshape", 14, (labels(*dims), ints(*target)), attributes)
    shape = reshaped_dims(node_of(sample), dims, target)
    try:
        made = sample.first().shape
    except Exception:
        made = None
    if 0 in dims and -1 in target and shape is None:
        return  # ONNX leaves it open, ONNX Runtime takes one of many
    assert shape == made


# --- Windows --------------------------------------------------------------------------------------

_WINDOWS = [
    Sample("Conv", 11, (floats(1, 2, 9), floats(4, 1, 3)), {"group": 2, "pads": [1, 2]}),
    Sample("Conv", 11, (floats(1, 2, 9), floats(4, 2, 3)), {"dilations": [2], "strides": [2]}),
    Sample("Conv", 11, (floats(1, 1, 9, 8), floats(1, 1, 3, 2)), {"auto_pad": "SAME_UPPER"}),
    Sample("Conv", 11, (floats(1, 1, 9), floats(1, 1, 4)), {"auto_pad": "SAME_LOWER"}),
    Sample("Conv", 11, (floats(1, 1, 9), floats(1, 1, 4)), {"auto_pad": "VALID", "strides": [2]}),
    Sample("MaxPool", 12, (floats(1, 1, 9),), {"kernel_shape": [3], "strides": [2]}),
    Sample("AveragePool", 19, (floats(1, 1, 9),), {"kernel_shape": [2], "dilations": [3]}),
    Sample("LpPool", 18, (floats(1, 1, 9),), {"kernel_shape": [2], "pads": [1, 0]}),
]


@pytest.mark.parametrize("sample", _WINDOWS, ids=str)
def test_a_window_slides_like_this(sample: Sample) -> None:
    weight = sample.inputs[1] if len(sample.inputs) > 1 else None
    node = node_of(sample)
    window = window_of(node)
    assert window is not None
    spatial = sample.inputs[0].shape[2:]
    pads = window.pads_for(spatial)
    sizes = tuple(
        (size + sum(pad) - reach) // stride + 1
        for size, pad, reach, stride in zip(
            spatial, pads, window.reach, window.strides, strict=True
        )
    )
    assert sizes == sample.first().shape[2:]
    assert window.group == sample.attributes.get("group", 1)
    assert weight is None or window.kernel == weight.shape[2:]


def test_same_pads_lie_where_onnx_runtime_puts_them() -> None:
    ramp = np.arange(1, 6, dtype=np.float32).reshape(1, 1, 5)
    pick = np.array([[[1, 0, 0, 0]]], np.float32)
    for auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        sample = Sample("Conv", 11, (ramp, pick), {"auto_pad": auto_pad})
        window = window_of(node_of(sample))
        assert window is not None
        ((before, _),) = window.pads_for((5,))
        assert sample.first()[0, 0].tolist() == [*[0.0] * before, *ramp[0, 0, : 5 - before]]


def test_a_kernel_that_is_not_known_is_none() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    slide (float[1, 2, N] x, float[4, 2, K] w) => (float[1, 4, M] y) { y = Conv (x, w) }"""
    (node,) = nodes_in(text)
    assert window_of(node) is None
    window = window_of(node, (8, 4, 3, 5))
    assert window is not None
    assert window.kernel == (3, 5)


def test_a_transposed_convolution_is_read() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    slide (float[1, 2, 5] x, float[2, 4, 3] w) => (float[1, 4, M] y) {
        y = ConvTranspose <strides = [2], output_padding = [1], pads = [1, 0]> (x, w)
    }"""
    (node,) = nodes_in(text)
    window = window_of(node)
    assert window is not None
    assert (window.kernel, window.strides, window.output_padding) == ((3,), (2,), (1,))
    assert (window.before, window.after, window.output_shape) == ((1,), (0,), None)


# --- Resize ---------------------------------------------------------------------------------------

_TWICE = np.array([1, 2], np.float32)
_RESIZES = [
    Sample("Upsample", 7, (labels(2, 3),), {"scales": [1.0, 2.0]}),
    Sample("Upsample", 9, (labels(2, 3), _TWICE)),
    Sample("Resize", 10, (labels(2, 3), _TWICE)),
    Sample("Resize", 11, (labels(2, 3), floats(0), _TWICE)),
    Sample("Resize", 13, (labels(2, 3), None, _TWICE), {"mode": "linear"}),
    Sample("Resize", 18, (labels(2, 3), None, None, ints(4, 3))),
    Sample("Resize", 18, (labels(2, 3), None, None, ints(5)), {"axes": [-1]}),
    Sample("Resize", 18, (labels(2, 3), None, np.array([1.5], np.float32)), {"axes": [1]}),
]


@pytest.mark.parametrize("sample", _RESIZES, ids=str)
def test_a_resize_gives_this_shape(sample: Sample) -> None:
    resize = read_resize(node_of(sample), 2, sample.opset)
    assert resize is not None
    assert resize.resized_dims(sample.inputs[0].shape) == sample.first().shape
    assert resize.mode == sample.attributes.get("mode", "nearest")
    old = sample.operator == "Upsample" or sample.opset < 11
    assert resize.coordinates == ("asymmetric" if old else "half_pixel")
    index = scales_input(node_of(sample), sample.opset)
    assert (index is None) == ("scales" in sample.attributes)


def test_a_resize_that_keeps_the_aspect_has_no_known_shape() -> None:
    attributes: dict[str, object] = {"keep_aspect_ratio_policy": "not_larger"}
    sample = Sample("Resize", 18, (labels(2, 3), None, None, ints(4, 3)), attributes)
    resize = read_resize(node_of(sample), 2, 18)
    assert resize is not None
    assert resize.resized_dims((2, 3)) is None


_PLACES = ["half_pixel", "asymmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn"]
_ROUNDINGS = ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]


def _resized_ramp(scale: float, opset: int, attributes: dict[str, object]) -> tuple[Array, Any]:
    """Return 0, 1, 2, ... resized along the last axis, and how the Resize reads."""
    ramp = np.arange(8, dtype=np.float32).reshape(1, 1, 8)
    sample = Sample(
        "Resize", opset, (ramp, floats(0), np.array([1, 1, scale], np.float32)), attributes
    )
    resize = read_resize(node_of(sample), 3, opset)
    assert resize is not None
    assert resize.scale_along(2) == np.float32(scale)
    return sample.first().reshape(-1), resize


@pytest.mark.parametrize("coordinates", _PLACES)
@pytest.mark.parametrize("scale", [2.0, 3.0, 0.5, 1.5])
def test_an_element_of_a_resize_is_at_this_place(coordinates: str, scale: float) -> None:
    attributes: dict[str, object] = {
        "coordinate_transformation_mode": coordinates,
        "mode": "linear",
    }
    result, resize = _resized_ramp(scale, 11, attributes)
    places = resize.places(np.arange(len(result), dtype=np.float64), scale)
    assert places is not None
    np.testing.assert_allclose(result, np.clip(places, 0, 7), atol=1e-5)
    first, last = resize.neighbours(places)
    assert (first <= places).all()
    assert (last >= places).all()


@pytest.mark.parametrize("coordinates", _PLACES)
@pytest.mark.parametrize("rounding", _ROUNDINGS)
@pytest.mark.parametrize("scale", [2.0, 4.0, 0.5])
def test_a_resize_takes_this_neighbour(coordinates: str, rounding: str, scale: float) -> None:
    attributes: dict[str, object] = {
        "coordinate_transformation_mode": coordinates,
        "nearest_mode": rounding,
    }
    result, resize = _resized_ramp(scale, 11, attributes)
    places = resize.places(np.arange(len(result), dtype=np.float64), scale)
    assert places is not None
    first, last = resize.neighbours(places)
    np.testing.assert_array_equal(result, np.clip(first, 0, 7))
    np.testing.assert_array_equal(first, last)


def test_a_grid_that_sizes_stretch_has_no_known_places() -> None:
    attributes: dict[str, object] = {"coordinate_transformation_mode": "align_corners"}
    _, resize = _resized_ramp(2.0, 13, attributes)
    assert resize.places(np.zeros(1), 2.0) is None
    by_size = Sample("Resize", 18, (labels(2, 3), None, None, ints(5)), {"axes": [-1]})
    resize = read_resize(node_of(by_size), 2, 18)
    assert resize is not None
    assert resize.scale_along(1) is None


# --- Products -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("trans_a", "trans_b"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_a_gemm_is_this_formula(trans_a: int, trans_b: int) -> None:
    a, b = floats(*(3, 2) if trans_a else (2, 3)), floats(*(4, 3) if trans_b else (3, 4))
    attributes: dict[str, object] = {
        "transA": trans_a,
        "transB": trans_b,
        "alpha": 2.0,
        "beta": 0.5,
    }
    sample = Sample("Gemm", 13, (a, b, floats(4, seed=3)), attributes)
    gemm = read_gemm(node_of(sample))
    left, right = (a.T if gemm.trans_a else a), (b.T if gemm.trans_b else b)
    assert gemm.bias is not None
    expected = gemm.alpha * left @ right + gemm.beta * sample.inputs[2]
    np.testing.assert_allclose(sample.first(), expected, 1e-5)
    plain = read_gemm(node_of(Sample("Gemm", 13, (a, b))))
    assert (plain.alpha, plain.beta, plain.trans_a, plain.bias) == (1, 1, False, None)


@pytest.mark.parametrize("trans", [0, 1])
def test_a_fused_product_is_this_formula(trans: int) -> None:
    a, b = floats(2, 3), floats(*(4, 3) if trans else (3, 4), seed=2)
    attributes: dict[str, object] = {"transB": trans, "alpha": 2.0}
    sample = Sample("com.microsoft.FusedMatMul", 17, (a, b), attributes, (0, 1))
    fused = read_fused_matmul(node_of(sample))
    expected = fused.alpha * a @ (b.T if fused.trans_b else b)
    np.testing.assert_allclose(sample.first(), expected, 1e-5)
    assert not any((fused.trans_a, fused.trans_batch_a, fused.trans_batch_b))


def test_a_product_with_few_bits_is_this_formula() -> None:
    (sample,) = samples_of("com.microsoft.MatMulNBits")
    spec = read_matmul_nbits(node_of(sample))
    assert (spec.k, spec.n, spec.bits, spec.block_size) == (16, 2, 4, 16)
    assert spec.zero_points is spec.group_index is spec.bias is None
    packed, scales = sample.inputs[1], sample.inputs[2]
    halves = np.stack([packed & 15, packed >> 4], -1).reshape(spec.n, spec.k).astype(np.float32)
    weight = (halves - 8) * scales[:, None]
    np.testing.assert_allclose(sample.first(), sample.inputs[0] @ weight.T, 1e-4, 1e-4)


@pytest.mark.parametrize(
    ("level", "rounds"), [("", False), ("0", False), ("1", False), ("4", True)]
)
def test_a_product_of_few_bits_may_round_its_data(level: str, rounds: bool) -> None:
    accuracy = f", accuracy_level = {level}" if level else ""
    (node,) = nodes_in(
        f"""<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> g (float[B, 32] x) =>
        (float[B, 2] y) {{ y = com.microsoft.MatMulNBits <K = 32, N = 2, bits = 4, block_size = 32
        {accuracy}> (x, w, s) }}"""
    )
    assert rounds_data(node) is rounds


def test_what_rounds_its_data_is_told_by_the_operator() -> None:
    one, other = nodes_in(
        """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> g (float[B, 4] x) =>
        (float[B, 4] y) { c = com.microsoft.DynamicQuantizeMatMul (x, w, s) y = MatMul (c, v) }"""
    )
    assert rounds_data(one)
    assert not rounds_data(other)


# --- Attention, norms, operands -------------------------------------------------------------------

_NAMES = {
    "query": {"query", "input", "Q"},
    "key": {"key", "input", "K"},
    "value": {"value", "input", "V"},
    "weights": {"weights", "weight"},
    "bias": {"bias"},
    "mask": {"mask_index", "key_padding_mask", "seqlens_k"},
    "addend": {"attention_bias", "attn_mask"},
    "past_key": {"past_key"},
    "past_value": {"past_value"},
    "past": {"past"},
}
_SCHEMAS = {
    (f"{x.domain}." if x.domain else "") + x.name: x
    for x in sorted(state.get_all_operator_schema(), key=lambda x: x.since_version)
}


@pytest.mark.parametrize("operator", sorted(_SLOTS))
def test_inputs_of_attention_are_called_so(operator: str) -> None:
    slots, names = _SLOTS[operator], [x.name for x in _SCHEMAS[operator].inputs]
    for role, allowed in _NAMES.items():
        index = getattr(slots, role)
        if index is None:
            assert role in ("query", "key", "value") or not allowed & {*names}, role
        else:
            assert names[index] in allowed
    assert {names[i] for i in slots.pasts} == {x for x in names if x.startswith("past")} - {
        "past_sequence_length"
    }


def test_every_attention_is_read() -> None:
    assert _SLOTS.keys() == ops.ATTENTIONS - {"LinearAttention"}


def test_an_addend_is_found_by_the_operator() -> None:
    values = [ir.Value(name=f"x{i}") for i in range(7)]
    theirs = attention_slots(ir.Node("com.microsoft", "MultiHeadAttention", values))
    own = attention_slots(ir.Node("", "Attention", values[:4]))
    assert theirs is not None
    assert own is not None
    assert (theirs.addend, own.addend) == (5, 3)
    assert attention_slots(ir.Node("", "MatMul", values[:2])) is None


@pytest.mark.parametrize("operator", sorted(ops.NORMS))
def test_epsilon_is_the_default_of_the_schema(operator: str) -> None:
    schema = _SCHEMAS[operator]
    domain, _, op_type = operator.rpartition(".")
    found = epsilon_of(ir.Node(domain, op_type, [ir.Value(name="x")]))
    if "epsilon" in schema.attributes:
        default = schema.attributes["epsilon"]._default_value
        assert found == pytest.approx(_float_of(default))


def _float_of(serialized: bytes) -> float:
    import onnx

    return onnx.AttributeProto.FromString(serialized).f


def test_axes_are_counted_from_the_front() -> None:
    assert normalize_axes((-1, 0), 3) == (2, 0)
    assert normalize_axes((3,), 3) is None
    assert normalize_axes((-4,), 3) is None


def test_an_input_comes_before_an_attribute() -> None:
    (sample, *_) = (x for x in samples_of("Squeeze") if x.opset >= 13)
    assert read_ints(node_of(sample), 1, "axes") == (0, 2)
    assert is_given(node_of(sample), 1, "axes")
    assert not is_given(node_of(Sample("Squeeze", 13, (labels(1, 2),))), 1, "axes")


# --- The axes of a weight -------------------------------------------------------------------------


def _node(text: str) -> ir.Node:
    """Return a node in text, with inputs x, w and v."""
    (node,) = nodes_in(
        f"""<ir_version: 8, opset_import: ["" : 21, "com.microsoft" : 1]>
        m (float x, float w, float v) => (float y) {{ y = {text} }}"""
    )
    return node


@pytest.mark.parametrize(
    ("text", "ranks", "axes"),
    [
        ("MatMul (x, w)", (3, 2), (2, 0)),
        ("MatMul (x, w)", (1, 4), (0, 2)),
        ("MatMul (x, w)", (2, 1), (1, 0)),
        ("Gemm <transA = 1, transB = 1> (x, w)", (2, 2), (0, 1)),
        ("com.microsoft.FusedMatMul <transB = 1> (x, w)", (3, 3), (2, 2)),
        ("com.microsoft.FusedMatMul <transA = 1, transBatchA = 1> (x, w)", (3, 3), (0, 1)),
        ('Einsum <equation = "ab,bc->ac"> (x, w)', (2, 2), None),
        ("Add (x, w)", (2, 2), None),
        ("MatMul (x, w)", (0, 2), None),
    ],
)
def test_the_axes_that_a_product_sums_over(
    text: str, ranks: tuple[int, int], axes: tuple[int, int] | None
) -> None:
    assert summed_axes(_node(text), *ranks) == axes


@pytest.mark.parametrize(
    ("text", "axes"),
    [
        ("LayerNormalization (x, w)", (2,)),
        ("LayerNormalization <axis = 1> (x, w)", (1, 2)),
        ("com.microsoft.SkipLayerNormalization (x, x, w)", (2,)),
        ("InstanceNormalization (x, w, v)", (1,)),
        ("GroupNormalization <num_groups = 2> (x, w, v)", (1,)),
        ("LpNormalization (x)", None),
        ("MeanVarianceNormalization (x)", None),
    ],
)
def test_the_axes_that_a_scale_lies_along(text: str, axes: tuple[int, ...] | None) -> None:
    assert scaled_axes(_node(text), 3, 21) == axes


def test_the_channels_and_features_of_a_weight():
    assert channel_axis_of_weight(_node("Conv <group = 2> (x, w)")) == (1, 2)
    assert channel_axis_of_weight(_node("ConvTranspose <group = 2> (x, w)")) == (0, 1)
    assert feature_axis_of_weight(_node("GRU <hidden_size = 4> (x, w, v)")) == 2
    assert feature_axis_of_weight(_node("com.microsoft.DynamicQuantizeLSTM (x, w, v)")) == 1
