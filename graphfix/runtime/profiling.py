"""Placement of nodes: which execution provider ran each, from ONNX Runtime's profile."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_KERNEL = "_kernel_time"
# ONNX Runtime's names: what it puts between providers, and what DirectML makes of many nodes.
_COPIES = ("MemcpyFromHost", "MemcpyToHost")
_FUSED = ("DmlFusedNode", "DmlRuntimeFusedNode")


@dataclass(frozen=True)
class PlacedNode:
    """A node as it ran.

    Attributes:
        name: Its name after ONNX Runtime's own optimizations.
        op: Its operator; ``DmlFusedNode_0_1`` is a graph that DirectML compiled as one.
        provider: The execution provider that ran it.
    """

    name: str
    op: str
    provider: str


@dataclass(frozen=True)
class NodePlacement:
    """The nodes of a model, in the order in which they first ran."""

    nodes: tuple[PlacedNode, ...] = ()

    @property
    def provider_counts(self) -> dict[str, int]:
        """Return how many nodes each provider ran, without copies; a fused graph counts as one."""
        return dict(sorted(Counter(x.provider for x in self.nodes if x.op not in _COPIES).items()))

    @property
    def fused_count(self) -> int:
        """Return how many graphs DirectML compiled as one operator each."""
        return sum(x.op.startswith(_FUSED) for x in self.nodes)

    @property
    def copy_count(self) -> int:
        """Return how many copies between CPU and device memory each run makes."""
        return sum(x.op in _COPIES for x in self.nodes)

    def to_json(self) -> dict[str, object]:
        """Return the placement as plain data."""
        return {
            "counts": self.provider_counts,
            "fused_graphs": self.fused_count,
            "copies": self.copy_count,
            "nodes": [{"name": x.name, "op": x.op, "provider": x.provider} for x in self.nodes],
        }


def read_placement(events: Iterable[Mapping[str, Any]]) -> NodePlacement:
    """Return which provider ran each node, from the events of a session's profile."""
    nodes: dict[str, PlacedNode] = {}
    for event in events:
        detail = event.get("args", {})
        if event["name"].endswith(_KERNEL) and detail.get("provider"):
            name = event["name"].removesuffix(_KERNEL)
            nodes.setdefault(name, PlacedNode(name, detail["op_name"], detail["provider"]))
    return NodePlacement(tuple(nodes.values()))
