"""What ran where: which execution provider ran each node, from ONNX Runtime's profile."""

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
class Placed:
    """The nodes of a model, in the order in which they first ran."""

    nodes: tuple[PlacedNode, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """How many nodes each provider ran, copies left out; a fused graph counts as one."""
        return dict(sorted(Counter(x.provider for x in self.nodes if x.op not in _COPIES).items()))

    @property
    def fused(self) -> int:
        """How many graphs DirectML compiled as one operator each."""
        return sum(x.op.startswith(_FUSED) for x in self.nodes)

    @property
    def copies(self) -> int:
        """How many copies between the CPU's memory and the device's there are in each run."""
        return sum(x.op in _COPIES for x in self.nodes)

    def to_json(self) -> dict[str, object]:
        """As plain data."""
        return {
            "counts": self.counts,
            "fused_graphs": self.fused,
            "copies": self.copies,
            "nodes": [{"name": x.name, "op": x.op, "provider": x.provider} for x in self.nodes],
        }


def placed(events: Iterable[Mapping[str, Any]]) -> Placed:
    """Which provider ran each node, from the events of a session's profile."""
    seen: dict[str, PlacedNode] = {}
    for event in events:
        detail = event.get("args", {})
        if event["name"].endswith(_KERNEL) and detail.get("provider"):
            name = event["name"].removesuffix(_KERNEL)
            seen.setdefault(name, PlacedNode(name, detail["op_name"], detail["provider"]))
    return Placed(tuple(seen.values()))
