"""The record of nodes that stay in float32 while they are collected."""

from dataclasses import dataclass, field
from functools import cached_property

import onnx_ir as ir

from graphfix.facts.view import View
from graphfix.graph.walks import nodes_of

from .value_types import ElementTypes


@dataclass
class KeptNodes:
    """The nodes of a model known so far to stay in float32.

    Attributes:
        view: The model.
        types: The element types of its values.
        reasons: Why a node stays.
        masks: Constants that hide scores and exceed float16, each with the floor they get.
        floors: Inputs that hide scores and may exceed float16.
        unfit: Constants that become float16 although some elements are lost, and how many.
    """

    view: View
    types: ElementTypes
    reasons: dict[ir.Node, str] = field(default_factory=dict, kw_only=True)
    masks: dict[ir.Value, float] = field(default_factory=dict, kw_only=True)
    floors: set[ir.Value] = field(default_factory=set, kw_only=True)
    unfit: list[tuple[ir.Value, str]] = field(default_factory=list, kw_only=True)

    @cached_property
    def nodes(self) -> list[ir.Node]:
        """Return every node, each after its producers."""
        return list(nodes_of(self.view.model.graph))

    def keep_node(self, node: ir.Node | None, reason: str) -> None:
        """Let a node stay in float32; the first reason counts."""
        if node is not None and self.uses_float32(node):
            self.reasons.setdefault(node, reason)

    def uses_float32(self, node: ir.Node) -> bool:
        """Return whether an input or output of a node is float32."""
        return any(map(self.types.is_float, (*node.inputs, *node.outputs)))

    def has_only_kept_readers(self, value: ir.Value) -> bool:
        """Return whether all readers of a value stay in float32."""
        return not value.is_graph_output() and all(x.node in self.reasons for x in value.uses())
