"""The readers of axes compute with numpy what ONNX Runtime computes, at several opsets."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from graphfix import ops
from graphfix.graph.constants import ints_of
from graphfix.ops.axes import (
    axis_of,
    inverse_permutation,
    keeps_dims,
    mixed_axes,
    permutation_of,
    reduced_axes,
    squeezed_axes,
    written_axis,
)
from graphfix.ops.table import row_of
from tests.ops.nodes import node_of, nodes_in
from tests.ops.samples import Sample, floats, ints, labels, samples_of

_REDUCE = {
    "ReduceL1": lambda x, **axes: np.abs(x).sum(**axes),
    "ReduceL2": lambda x, **axes: np.sqrt((x * x).sum(**axes)),
    "ReduceLogSum": lambda x, **axes: np.log(x.sum(**axes)),
    "ReduceLogSumExp": lambda x, **axes: np.log(np.exp(x).sum(**axes)),
    "ReduceMax": np.max,
    "ReduceMean": np.mean,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
    "ReduceSum": np.sum,
    "ReduceSumSquare": lambda x, **axes: (x * x).sum(**axes),
}


@pytest.mark.parametrize("operator", sorted(ops.REDUCES))
def test_a_reduction_is_over_these_axes(operator: str) -> None:
    for sample in samples_of(operator):
        node, x = node_of(sample), sample.inputs[0]
        axes = reduced_axes(node, x.ndim, sample.opset)
        assert axes is not None
        expected = _REDUCE[operator](x, axis=axes, keepdims=keeps_dims(node))
        np.testing.assert_allclose(sample.first(), expected, 1e-4, err_msg=str(sample))


@pytest.mark.parametrize("operator", ["ArgMax", "ArgMin"])
def test_a_rank_is_along_this_axis(operator: str) -> None:
    function = np.argmax if operator == "ArgMax" else np.argmin
    for sample in samples_of(operator):
        node = node_of(sample)
        axes = reduced_axes(node, 2, sample.opset)
        assert axes is not None
        expected = function(sample.inputs[0], axis=axes[0], keepdims=keeps_dims(node))
        np.testing.assert_array_equal(sample.first(), expected)


def test_axes_that_are_computed_are_not_known() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]>
    sum (float[2, 3] x, int64[1] axes) => (float[2, 1] y) { y = ReduceSum (x, axes) }"""
    (node,) = nodes_in(text)
    assert reduced_axes(node, 2, 18) is None
    assert reduced_axes(node, 2, 18, lambda _: (1,)) == (1,)
    assert mixed_axes(node, 2, 18) is None


@pytest.mark.parametrize("sample", samples_of("Squeeze"), ids=str)
def test_squeezed_axes_are_those(sample: Sample) -> None:
    x = sample.inputs[0]
    axes = squeezed_axes(node_of(sample), x.ndim)
    np.testing.assert_array_equal(np.squeeze(x, axes), sample.first())
    assert (axes is None) == (len(sample.inputs) == 1 and not sample.attributes)


@pytest.mark.parametrize("sample", samples_of("Unsqueeze"), ids=str)
def test_unsqueezed_axes_are_those_of_the_result(sample: Sample) -> None:
    rank = sample.first().ndim
    axes = squeezed_axes(node_of(sample), rank, ints_of)
    assert axes is not None
    np.testing.assert_array_equal(np.expand_dims(sample.inputs[0], axes), sample.first())


@pytest.mark.parametrize("sample", samples_of("Transpose"), ids=str)
def test_a_transpose_is_this_permutation(sample: Sample) -> None:
    x = sample.inputs[0]
    perm = permutation_of(node_of(sample), x.ndim)
    np.testing.assert_array_equal(np.transpose(x, perm), sample.first())
    back = inverse_permutation(perm)
    np.testing.assert_array_equal(np.transpose(sample.first(), back), x)


@pytest.mark.parametrize(
    ("perm", "rank", "axes"),
    [
        ((1, 0), 2, (1, 0)),
        ((1, 0), 0, (1, 0)),  # of unknown rank
        ((1, 0), 3, ()),
        ((0, 0, 1), 3, ()),
        ((0, 2, 3), 0, ()),
        (None, 3, (2, 1, 0)),
        (None, 0, ()),
    ],
)
def test_a_permutation_fits_the_rank_or_is_none(
    perm: tuple[int, ...] | None, rank: int, axes: tuple[int, ...]
) -> None:
    node = ir.node("Transpose", [], {} if perm is None else {"perm": perm})
    assert permutation_of(node, rank) == axes


@pytest.mark.parametrize("operator", ["Gather", "GatherElements", "Concat", "Split", "TopK"])
def test_one_axis_is_that(operator: str) -> None:
    for sample in samples_of(operator):
        x = sample.inputs[0]
        axis = axis_of(node_of(sample), x.ndim, sample.opset)
        assert axis is not None
        if operator == "Gather":
            expected = np.take(x, sample.inputs[1], axis)
        elif operator == "GatherElements":
            where = sample.inputs[1]
            other = [np.arange(size) for size in where.shape]
            places = list(np.meshgrid(*other, indexing="ij"))
            places[axis] = where
            expected = x[tuple(places)]
        elif operator == "TopK":
            expected = -np.sort(-x, axis)[:, :2]
        else:
            made = sample.run()
            parts = made if operator == "Split" else sample.inputs
            whole = x if operator == "Split" else made[0]
            np.testing.assert_array_equal(np.concatenate(parts, axis), whole)
            continue
        np.testing.assert_array_equal(sample.run()[0], expected, str(sample))


_AXES = [
    (Sample("LayerNormalization", 17, (floats(2, 3), floats(3))), 1),
    (Sample("Flatten", 13, (labels(2, 3),)), 1),
    (Sample("Flatten", 13, (labels(2, 3),), {"axis": 2}), 2),
    (Sample("OneHot", 13, (ints(1, 2), ints(3), floats(2))), 1),
    (Sample("DFT", 17, (floats(1, 8, 1),)), 1),
    (Sample("DFT", 20, (floats(1, 8, 4, 1),)), 2),
    (Sample("DFT", 20, (floats(1, 8, 4, 1), None, np.array(1, np.int64))), 1),
    (Sample("CumSum", 13, (floats(2, 3), np.array(-1, np.int64))), 1),
    (Sample("DequantizeLinear", 13, (ints(1, 2), floats(2))), None),
    (Sample("DequantizeLinear", 13, (labels(2, 2), floats(2))), 1),
    (Sample("Compress", 11, (ints(1, 2), ints(1, 0))), None),
    (Sample("Compress", 11, (labels(2, 2), ints(1, 0)), {"axis": -1}), 1),
    (Sample("MatMul", 13, (floats(2, 3), floats(3, 2))), None),
]


@pytest.mark.parametrize(("sample", "axis"), _AXES, ids=lambda x: str(x))
def test_each_operator_has_its_default(sample: Sample, axis: int | None) -> None:
    rank = sample.inputs[0].ndim + (sample.operator == "OneHot")
    assert axis_of(node_of(sample), rank, sample.opset) == axis


def test_defaults_are_those_of_the_schemas() -> None:
    """Every operator with an attribute called axis, at every version of it."""
    import onnx.defs

    wrong = []
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain or schema.deprecated or "axis" not in schema.attributes:
            continue
        default = schema.attributes["axis"].default_value
        if not default.HasField("i") or schema.name in _BROADCAST_AXIS:
            continue
        sample = Sample(schema.name, schema.since_version, (floats(2, 3),))
        found = written_axis(node_of(sample), schema.since_version)
        if found != default.i:
            wrong.append((schema.name, schema.since_version, default.i, found))
    assert not wrong


# Before opset 7 an axis said where the second input begins; sequences have no rank.
_BROADCAST_AXIS = {"ConcatFromSequence", "SplitToSequence"}


def test_axes_that_are_not_written_are_those_of_onnx() -> None:
    """The default of each operator of ONNX that has one, at its newest version."""
    seen = 0
    for schema in onnx.defs.get_all_schemas():
        attribute = schema.attributes.get("axis")
        if schema.domain or attribute is None or not attribute.default_value.name:
            continue
        node = ir.Node("", schema.name, [None] * 3)
        opset = onnx.defs.onnx_opset_version()
        if row_of(schema.name, opset) is None or schema.name == "DFT":
            continue
        assert written_axis(node, opset) == attribute.default_value.i, schema.name
        seen += 1
    assert seen > 15
