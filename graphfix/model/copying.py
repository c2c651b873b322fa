"""A copy of a model, or the reason why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphfix.errors import ModelError
from graphfix.model.values import nodes_of

if TYPE_CHECKING:
    import onnx_ir as ir


def copy_of(model: ir.Model) -> ir.Model:
    """A copy that shares the weights.

    Raises:
        ModelError: A node takes a sparse initializer: onnx-ir has no place for it, and no copy.
    """
    for node in nodes_of(model.graph):
        for value in node.inputs:
            if value is None or value.producer() is not None:
                continue
            if not value.is_graph_input() and not value.is_initializer():
                raise ModelError(
                    f"{value.name!r} is a sparse initializer, and a graph that takes one cannot be "
                    "copied to be run: make it dense, or use --no-verify"
                )
    return model.clone()
