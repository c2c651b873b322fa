"""Read what normalizes by statistics."""

from __future__ import annotations

import onnx_ir as ir

from graphfix.graph.nodes import attr_float, attr_int, input_at, is_op
from graphfix.ops.axes import mixed_axes
from graphfix.ops.op_set import OpSet, qualified_name
from graphfix.ops.traits import NORMS

_EPSILON = 1e-5
_OTHER_EPSILONS = {
    "com.microsoft.SkipLayerNormalization": 1e-12,
    "com.microsoft.SkipSimplifiedLayerNormalization": 1e-12,
    "com.microsoft.EmbedLayerNormalization": 1e-12,
}


def epsilon_of(node: ir.Node) -> float:
    """Return what a norm adds to the variance, or to the mean square.

    The axes that it normalizes are ``mixed_axes`` of the node.
    """
    return attr_float(node, "epsilon", _OTHER_EPSILONS.get(qualified_name(node), _EPSILON))


_PER_GROUP_BEFORE = 21
_SCALE_AT_2 = OpSet(
    ["com.microsoft.SkipLayerNormalization", "com.microsoft.SkipSimplifiedLayerNormalization"]
)


def scale_of(node: ir.Node) -> ir.Value | None:
    """Return the scale of a norm or a BatchNormalization; None if it has none."""
    return input_at(node, 2 if node in _SCALE_AT_2 else 1)


def scaled_axes(node: ir.Node, rank: int, opset: int) -> tuple[int, ...] | None:
    """Return the axes of the data that the scale of a norm is as long as.

    Args:
        node: A norm, or a BatchNormalization.
        rank: Of its first input.
        opset: The version of the standard opset at the node.

    Returns:
        None if it has no scale, or one for each group of channels.
    """
    if scale_of(node) is None or rank < 2:
        return None
    if is_op(node, "BatchNormalization", "InstanceNormalization"):
        return (1,)
    if is_op(node, "GroupNormalization"):
        return None if opset < _PER_GROUP_BEFORE else (1,)
    if node.op_type in ("GroupNorm", "SkipGroupNorm"):
        return (rank - 1 if attr_int(node, "channels_last", 1) else 1,)
    if node not in NORMS or qualified_name(node) == "com.microsoft.EmbedLayerNormalization":
        return None
    return mixed_axes(node, rank, opset)
