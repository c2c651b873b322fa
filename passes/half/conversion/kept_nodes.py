"""What is known of the nodes that stay in float32 while they are gathered."""

from dataclasses import dataclass, field
from functools import cached_property

import onnx_ir as ir

from graphfix.facts.view import View
from graphfix.graph.walks import nodes_of

from .value_types import Types


@dataclass
class Stay:
    """The nodes of a model that stay in float32, as far as they are known.

    Attributes:
        view: The model.
        types: The types of its values.
        reasons: Why a node stays.
        masks: Constants that hide scores and are lower than float16 goes.
        floors: Inputs that hide scores, and may be lower than that.
        unfit: Constants that become float16 though some of their numbers are lost, and how many.
    """

    view: View
    types: Types
    reasons: dict[ir.Node, str] = field(default_factory=dict, kw_only=True)
    masks: dict[ir.Value, float] = field(default_factory=dict, kw_only=True)
    floors: set[ir.Value] = field(default_factory=set, kw_only=True)
    unfit: list[tuple[ir.Value, str]] = field(default_factory=list, kw_only=True)

    @cached_property
    def nodes(self) -> list[ir.Node]:
        """Every node, each after what it takes."""
        return list(nodes_of(self.view.model.graph))

    def add(self, node: ir.Node | None, reason: str) -> None:
        """Let a node stay; the first reason that was given stays."""
        if node is not None and self.touches(node):
            self.reasons.setdefault(node, reason)

    def touches(self, node: ir.Node) -> bool:
        """Whether a node takes or makes float32."""
        return any(map(self.types.is_float, (*node.inputs, *node.outputs)))

    def all_wide(self, value: ir.Value) -> bool:
        """Whether whatever takes a value stays in float32."""
        return not value.is_graph_output() and all(x.node in self.reasons for x in value.uses())
