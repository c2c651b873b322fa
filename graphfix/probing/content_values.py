"""Which values of a graph carry content, not only sizes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphfix.model.values import captured, is_op

if TYPE_CHECKING:
    import onnx_ir as ir


def carrying(model: ir.Model, but: frozenset[str] = frozenset()) -> frozenset[ir.Value]:
    """The values that are computed from the contents of inputs, not only from their sizes.

    Args:
        model: The model.
        but: Inputs whose contents are no content, such as lengths as a share of the size.
    """
    found = {v for v in model.graph.inputs if v.name not in but and not v.is_initializer()}
    for node in model.graph:
        if is_op(node, "Shape", "Size"):
            continue
        if any(v in found for v in (*node.inputs, *captured(node)) if v is not None):
            found.update(node.outputs)
    return frozenset(found)
