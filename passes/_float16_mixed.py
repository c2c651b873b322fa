"""What a model that computes in float16 has in float32 itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from graphfix.model.narrow import KEPT
from graphfix.model.values import is_op

from ._float16_constants import has_weights, is_constant

if TYPE_CHECKING:
    from ._float16_stay import Stay


def mixed(stay: Stay) -> None:
    """Let stay what starts with a Cast to float32 and has no weights: it was meant to."""
    halves = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
    roots: dict[ir.Node, ir.Node] = {}
    for node in stay.nodes:
        if is_op(node, "Cast") and stay.types.of(node.inputs[0]) in halves:
            if stay.types.is_float(node.outputs[0]):
                roots[node] = node
            continue
        given = [x for x in node.inputs if stay.types.is_float(x) and not is_constant(x)]
        makers = [x.producer() for x in given if x is not None]
        if makers and all(x in roots for x in makers) and not is_op(node, "Cast", "Shape", "Size"):
            first = _root(roots, makers[0])
            roots[node] = first
            for maker in makers[1:]:
                roots[_root(roots, maker)] = first
    heavy = {_root(roots, x) for x in roots if has_weights(x) and KEPT not in x.metadata_props}
    for node in roots:
        if _root(roots, node) not in heavy:
            stay.add(node, "the model itself has it in float32")


def _root(roots: dict[ir.Node, ir.Node], node: ir.Node | None) -> ir.Node:
    assert node is not None
    while roots[node] is not node:
        node = roots[node]
    return node
