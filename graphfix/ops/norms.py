"""Read what normalizes by statistics."""

from __future__ import annotations

import onnx_ir as ir

from graphfix.graph.nodes import attr_float
from graphfix.ops.op_set import qualified_name

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
