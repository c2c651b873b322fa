"""Axes as they are written, with the default of each opset, and where they mix."""

from __future__ import annotations

import onnx_ir as ir
import pytest

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
from tests.ops.nodes import node_in_text, nodes_in


def with_constant(numbers: str, text: str) -> ir.Node:
    """Return a node whose input k holds these numbers."""
    return nodes_in(
        f"""<ir_version: 8, opset_import: ["" : 21]> m (float x, int64 w) => (float y)
        {{ k = Constant <value_ints = [{numbers}]> () y = {text} }}"""
    )[-1]


@pytest.mark.parametrize(
    ("text", "opset", "axis"),
    [
        ("Softmax (x)", 12, 1),
        ("Softmax (x)", 13, -1),
        ("LogSoftmax <axis = 2> (x)", 12, 2),
        ("Hardmax (x)", 11, 1),
        ("ArgMax (x)", 13, 0),
        ("ArgMin (x)", 13, 0),
        ("Concat (x, w)", 3, 1),
        ("Concat <axis = -2> (x, w)", 13, -2),
        ("DequantizeLinear (x, w)", 13, 1),
        ("QuantizeLinear (x, w)", 13, 1),
        ("com.microsoft.DequantizeLinear (x, w)", 13, 1),
        ("com.microsoft.QuantizeLinear (x, w)", 13, 1),
        ("Flatten (x)", 13, 1),
        ("Gather (x, w)", 13, 0),
        ("GatherElements (x, w)", 13, 0),
        ("LayerNormalization (x, w)", 17, -1),
        ("LpNormalization (x)", 13, -1),
        ("OneHot (x, w, v)", 13, -1),
        ("RMSNormalization (x, w)", 23, -1),
        ("SimplifiedLayerNormalization (x, w)", 17, -1),
        ("Scatter (x, w, v)", 10, 0),
        ("ScatterElements (x, w, v)", 13, 0),
        ("Split (x)", 13, 0),
        ("SplitToSequence (x)", 13, 0),
        ("TensorScatter (x, w)", 24, -2),
        ("TopK (x, w)", 13, -1),
        ("Compress (x, w)", 13, None),
        ("Compress <axis = 2> (x, w)", 13, 2),
        ("Unique <axis = 0> (x)", 13, 0),
        ("Relu (x)", 13, None),
        ("DFT (x)", 17, 1),
        ("DFT (x)", 19, 1),
        ("DFT (x)", 20, -2),
        ("DFT <axis = 2> (x)", 17, 2),
        ("DFT (x, w, v)", 20, None),
        ("CumSum (x, w)", 14, None),
    ],
)
def test_an_axis_as_it_is_written(text: str, opset: int, axis: int | None) -> None:
    assert written_axis(node_in_text(text), opset) == axis


def test_axes_that_are_inputs() -> None:
    assert written_axis(with_constant("2", "CumSum (x, k)"), 14) == 2
    assert written_axis(with_constant("-1", "DFT (x, w, k)"), 20) == -1
    assert written_axis(with_constant("-1", "DFT (x, , k)"), 20) == -1
    assert written_axis(with_constant("2", "CumProd (x, k)"), 26) in (2, None)


@pytest.mark.parametrize(
    ("text", "opset", "axis"),
    [
        ("Softmax (x)", 13, 2),
        ("Softmax <axis = -3> (x)", 13, 0),
        ("Softmax <axis = -4> (x)", 13, None),
        ("Softmax <axis = 3> (x)", 13, None),
        ("Softmax <axis = 3> (x)", 12, 3),
        ("Softmax <axis = 4> (x)", 12, None),
        ("Flatten <axis = 3> (x)", 13, 3),
        ("Flatten <axis = 4> (x)", 13, None),
        ("Flatten <axis = 0> (x)", 13, 0),
        ("Concat <axis = 3> (x, w)", 13, None),
        ("Relu (x)", 13, None),
    ],
)
def test_an_axis_counted_from_the_front(text: str, opset: int, axis: int | None) -> None:
    assert axis_of(node_in_text(text), 3, opset) == axis


@pytest.mark.parametrize(
    ("text", "opset", "axes"),
    [
        ("ReduceSum <axes = [1, -1]> (x)", 11, (1, 2)),
        ("ReduceMax <axes = [3]> (x)", 13, None),
        ("ReduceMax (x)", 13, (0, 1, 2)),
        ("ReduceSum (x)", 13, (0, 1, 2)),
        ("ReduceSum <noop_with_empty_axes = 1> (x)", 13, ()),
        ("ReduceSum (x, w)", 13, None),
        ("ArgMax <axis = -1> (x)", 13, (2,)),
        ("ArgMin <axis = 3> (x)", 13, None),
    ],
)
def test_axes_of_a_reduction(text: str, opset: int, axes: tuple[int, ...] | None) -> None:
    assert reduced_axes(node_in_text(text), 3, opset) == axes


def test_axes_of_a_reduction_that_are_an_input() -> None:
    assert reduced_axes(with_constant("-1, 0", "ReduceSum (x, k)"), 3, 13) == (2, 0)
    empty = nodes_in(
        """<ir_version: 8, opset_import: ["" : 21]> m (float x) => (float y)
        { k = Constant <value = int64[0] {}> () y = ReduceSum (x, k)
          z = ReduceSum <noop_with_empty_axes = 1> (x, k) }"""
    )
    assert [reduced_axes(x, 3, 13) for x in empty[1:]] == [(0, 1, 2), ()]
    assert keeps_dims(node_in_text("ReduceSum (x)"))
    assert not keeps_dims(node_in_text("ReduceSum <keepdims = 0> (x)"))


def test_axes_that_are_squeezed() -> None:
    assert squeezed_axes(node_in_text("Squeeze <axes = [-1, 0]> (x)"), 3) == (2, 0)
    assert squeezed_axes(node_in_text("Squeeze (x)"), 3) is None
    assert squeezed_axes(node_in_text("Unsqueeze <axes = [3]> (x)"), 3) is None
    assert squeezed_axes(with_constant("-2", "Unsqueeze (x, k)"), 4) == (2,)
    assert squeezed_axes(node_in_text("Unsqueeze (x, w)"), 4) is None
    assert squeezed_axes(node_in_text("Unsqueeze (x, w)"), 4, lambda _: [1]) == (1,)


@pytest.mark.parametrize(
    ("text", "rank", "perm"),
    [
        ("Transpose (x)", 3, (2, 1, 0)),
        ("Transpose (x)", 0, ()),
        ("Transpose <perm = [1, 2, 0]> (x)", 3, (1, 2, 0)),
        ("Transpose <perm = [1, 2, 0]> (x)", 0, (1, 2, 0)),
        ("Transpose <perm = [1, 0]> (x)", 3, ()),
        ("Transpose <perm = [1, 1, 0]> (x)", 3, ()),
        ("Transpose <perm = [1, 2, 3]> (x)", 0, ()),
    ],
)
def test_a_permutation(text: str, rank: int, perm: tuple[int, ...]) -> None:
    assert permutation_of(node_in_text(text), rank) == perm


def test_a_permutation_is_undone_by_its_inverse() -> None:
    assert inverse_permutation((1, 2, 0)) == (2, 0, 1)
    assert inverse_permutation(()) == ()


@pytest.mark.parametrize(
    ("text", "opset", "axes"),
    [
        ("Relu (x)", 13, ()),
        ("Add (x, w)", 13, ()),
        ("Identity (x)", 13, ()),
        ("PRelu (x, w)", 13, ()),
        ("Softmax <axis = 1> (x)", 13, (1,)),
        ("Softmax <axis = 1> (x)", 12, (1, 2, 3)),
        ("Softmax <axis = 4> (x)", 13, None),
        ("LayerNormalization <axis = 2> (x, w)", 17, (2, 3)),
        ("ReduceSum <axes = [1, 2]> (x)", 11, (1, 2)),
        ("ReduceSum (x, w)", 13, None),
        ("MeanVarianceNormalization (x)", 13, (0, 2, 3)),
        ("MeanVarianceNormalization <axes = [-1]> (x)", 13, (3,)),
        ("MeanVarianceNormalization <axes = [4]> (x)", 13, None),
        ("InstanceNormalization (x, w, v)", 13, (2, 3)),
        ("GroupNormalization (x, w, v)", 21, (1, 2, 3)),
        ("LRN <size = 3> (x)", 13, (1,)),
        ("ArgMax <axis = 2> (x)", 13, (2,)),
        ("CumSum (x, w)", 14, None),
        ("com.microsoft.SkipLayerNormalization (x, w, v)", 17, (3,)),
        ("my.Own (x)", 17, None),
        ("Conv (x, w)", 17, None),
    ],
)
def test_axes_along_which_elements_depend_on_others(
    text: str, opset: int, axes: tuple[int, ...] | None
) -> None:
    assert mixed_axes(node_in_text(text), 4, opset) == axes
