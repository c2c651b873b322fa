"""Read the axis or the axes of an operator, with the default of its opset."""

from __future__ import annotations

import onnx_ir as ir

from graphfix.graph.constants import ints_of
from graphfix.graph.nodes import attr_int, attr_ints, input_at
from graphfix.ops.op_set import qualified_name
from graphfix.ops.operands import Read, is_given, normalize_axes, read_operand
from graphfix.ops.table import row_of

_FLATTENS_BEFORE = 13  # Softmax, LogSoftmax, Hardmax
_DEFAULTS = {
    "ArgMax": 0,
    "ArgMin": 0,
    "Concat": 1,  # required since opset 4
    "DequantizeLinear": 1,
    "Flatten": 1,
    "Gather": 0,
    "GatherElements": 0,
    "LayerNormalization": -1,
    "LpNormalization": -1,
    "OneHot": -1,
    "QuantizeLinear": 1,
    "RMSNormalization": -1,
    "Scatter": 0,
    "ScatterElements": 0,
    "SimplifiedLayerNormalization": -1,
    "Split": 0,
    "SplitToSequence": 0,
    "TensorScatter": -2,
    "TopK": -1,
    "com.microsoft.DequantizeLinear": 1,
    "com.microsoft.QuantizeLinear": 1,
}


def written_axis(node: ir.Node, opset: int) -> int | None:
    """Return the axis attribute of an operator, or its default at this opset, as it is written.

    Negative axes stay negative. None for an operator without an axis, and for a Compress or Unique
    that flattens.
    """
    operator = qualified_name(node)
    row = row_of(operator, opset)
    if row is not None and row.kind == "softmax":
        return attr_int(node, "axis", 1 if opset < _FLATTENS_BEFORE else -1)
    if operator == "DFT":
        return _dft_axis(node, opset)
    if operator in ("CumSum", "CumProd"):
        axes = ints_of(input_at(node, 1))
        return axes[0] if axes else None
    default = _DEFAULTS.get(operator)
    if default is None:
        return attr_int(node, "axis", 0) if "axis" in node.attributes else None
    return attr_int(node, "axis", default)


def axis_of(node: ir.Node, rank: int, opset: int) -> int | None:
    """Return the one axis of an operator, counted from the front.

    Args:
        node: A Concat, Split, Gather, Softmax, ArgMax, LayerNormalization, ...
        rank: Of its first input, or of the output of a OneHot.
        opset: The version of the standard opset at the node.

    Returns:
        None if the operator has no axis, if it is not constant, or lies outside of the rank. The
        axis of a Flatten, and of what flattens (Softmax before opset 13), may be the rank itself.
    """
    axis = written_axis(node, opset)
    if axis is None:
        return None
    row = row_of(qualified_name(node), opset)
    flattens = node.op_type == "Flatten" or (row is not None and row.mixes == "axis_to_end")
    if flattens and axis == rank:
        return rank
    axes = normalize_axes((axis,), rank)
    return axes[0] if axes else None


def squeezed_axes(node: ir.Node, rank: int, read: Read[int] = ints_of) -> tuple[int, ...] | None:
    """Return the axes that a Squeeze removes or an Unsqueeze adds, counted from the front.

    Args:
        node: A Squeeze or Unsqueeze, with an attribute or (since opset 13) an input.
        rank: Of the tensor that has these axes: the input of a Squeeze, the output of an Unsqueeze.
        read: Reads the input.

    Returns:
        None if they are not constant, or if a Squeeze without axes removes every dim of 1.
    """
    axes = read_operand(node, 1, "axes", read)
    return None if axes is None else normalize_axes(axes, rank)


def reduced_axes(
    node: ir.Node, rank: int, opset: int, read: Read[int] = ints_of
) -> tuple[int, ...] | None:
    """Return the axes that a reduction combines, counted from the front, each once.

    Args:
        node: A Reduce*, ArgMax or ArgMin; its axes are an attribute or an input.
        rank: Of its first input.
        opset: The version of the standard opset at the node.
        read: Reads the input.

    Returns:
        None if they are known only in a run. Without axes, all of them, or none with
        ``noop_with_empty_axes``; a ReduceL2 over no axes still takes the absolute value.
    """
    if node.op_type in ("ArgMax", "ArgMin"):
        axis = axis_of(node, rank, opset)
        return None if axis is None else (axis,)
    axes = read_operand(node, 1, "axes", read)
    if axes is None and is_given(node, 1, "axes"):
        return None
    if not axes:
        return () if attr_int(node, "noop_with_empty_axes", 0) else tuple(range(rank))
    return normalize_axes(axes, rank)


def keeps_dims(node: ir.Node) -> bool:
    """Return whether a reduction leaves a dim of 1 in the place of each axis."""
    return bool(attr_int(node, "keepdims", 1))


def permutation_of(node: ir.Node, rank: int) -> tuple[int, ...]:
    """Return the permutation of a Transpose: axis ``i`` of the result is ``perm[i]`` of the input.

    Without the attribute the axes are reversed. Nothing of one that does not fit the rank, 0 where
    that is unknown: such a node fails in a run, if it ever runs.
    """
    perm = attr_ints(node, "perm") or tuple(reversed(range(rank)))
    fits = sorted(perm) == list(range(rank or len(perm)))
    return perm if fits else ()


def inverse_permutation(perm: tuple[int, ...]) -> tuple[int, ...]:
    """Return the permutation that undoes another."""
    return tuple(perm.index(axis) for axis in range(len(perm)))


def mixed_axes(node: ir.Node, rank: int, opset: int) -> tuple[int, ...] | None:
    """Return the axes along which an element of the result depends on more than its own place.

    Of an operator whose result has the shape of its first input, or of a reduction. Outside of
    these axes it computes the same at each place: the batch of a Softmax or a LayerNormalization.

    Args:
        node: The node.
        rank: Of its first input.
        opset: The version of the standard opset at the node.

    Returns:
        None if the table does not know, or the axes are not constant; () for what works element by
        element.
    """
    row = row_of(qualified_name(node), opset)
    if row is None:
        return None
    if row.kind in ("unary", "broadcast", "one_way", "scale") or node.op_type == "Identity":
        return ()
    if row.mixes == "axes":
        return _normalized_axes(node, rank, opset)
    if row.mixes in ("axis", "axis_input", "axis_to_end"):
        axis = axis_of(node, rank, opset)
        if axis is None:
            return None
        return tuple(range(axis, rank)) if row.mixes == "axis_to_end" else (axis,)
    fixed = {"last": (rank - 1,), "space": tuple(range(2, rank)), "channels": (1,)}
    # The channels of a group are mixed, those of others are not: no axis is free of it.
    return fixed.get(row.mixes, tuple(range(1, rank)) if row.mixes == "groups" else None)


def _normalized_axes(node: ir.Node, rank: int, opset: int) -> tuple[int, ...] | None:
    if node.op_type == "MeanVarianceNormalization":
        return normalize_axes(attr_ints(node, "axes") or (0, 2, 3), rank)
    return reduced_axes(node, rank, opset)


def _dft_axis(node: ir.Node, opset: int) -> int | None:
    """Return the axis of a DFT: an attribute until opset 19, an input since."""
    if input_at(node, 2) is not None:
        axes = ints_of(node.inputs[2])
        return axes[0] if axes else None
    return attr_int(node, "axis", 1 if opset < 20 else -2)
