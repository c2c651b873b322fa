"""Which execution provider ran each node, told from ONNX Runtime's profile of one run."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from graphfix.runtime.provider import DML
from graphfix.runtime.python import here
from graphfix.runtime.remote import RemoteSession

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from graphfix.runtime.port import Array

_FUSED = "DmlFusedNode"
_RAN = "_kernel_time"


class Placed(TypedDict):
    """A node that ran: ``on`` is ``dml`` or ``cpu``; a fused graph counts as one node."""

    name: str
    op: str
    on: str


def nodes_of(model: Path, feeds: Mapping[str, Array]) -> list[Placed]:
    """The nodes of a model in the order in which they ran on DirectML.

    Raises:
        ModelError: It does not load there.
        RunError: It does not run there.
    """
    session = RemoteSession(model, here("dml"), profile=True)
    try:
        session.run(feeds)
        return [
            {
                "name": event["name"].removesuffix(_RAN),
                "op": event["args"].get("op_name", ""),
                "on": "dml" if event["args"]["provider"] == DML else "cpu",
            }
            for event in session.profile()
            if event["name"].endswith(_RAN) and event.get("args", {}).get("provider")
        ]
    finally:
        session.close()


def count(nodes: Sequence[Placed]) -> dict[str, int]:
    """Fused graphs, copies between GPU and CPU, and nodes on the CPU."""
    return {
        "fused-graphs": sum(n["op"].startswith(_FUSED) for n in nodes),
        "copies": sum(n["op"].startswith("Memcpy") for n in nodes),
        "cpu-nodes": sum(n["on"] == "cpu" for n in nodes),
    }
