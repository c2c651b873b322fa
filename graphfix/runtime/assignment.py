"""Where ONNX Runtime really puts each node: from the log of a session on DirectML, and its graph.

Two sessions are made, and nothing is run, so a model that crashes in its first run still tells.
The first has DirectML's graph fusion turned off: it writes the graph that is left once the
optimizer is through, and logs the provider of each node. The second fuses: what its log no longer
names has gone into a ``DmlFusedNode``.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir

from graphfix.errors import ModelError
from graphfix.runtime.process import Runner
from graphfix.runtime.provider import DML
from graphfix.runtime.python import here
from graphfix.runtime.remote import RemoteSession
from graphfix.runtime.scratch import Folder

if TYPE_CHECKING:
    from collections.abc import Mapping

FUSED = "DmlFusedNode"
_NO_FUSION = {"ep.dml.disable_graph_fusion": "1"}
# A node that DirectML has no kernel for and that nothing touches: with all nodes on one provider,
# ONNX Runtime's log names none of them.
_PROBE = "graphfix.probe"
_GROUP = re.compile(r"Node\(s\) placed on \[(\w+)\]")
_ALL = re.compile(r"All nodes placed on \[(\w+)\]")
_NODE = re.compile(r"\] {3}(\w+) \((.*)\)\s*$")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

Nodes = Counter[tuple[str, str]]
"""How often an (operator, name) occurs."""


@dataclass(frozen=True)
class Placement:
    """What the session logs say.

    Attributes:
        model: The graph after ONNX Runtime's optimizer, before DirectML's graph fusion.
        provider: The provider of each of its nodes, by name.
        copies: How many copies between devices were put in, with fusion.
        graphs: The names of the fused graphs.
        fused: The names of the nodes that went into them.
        kernels: How many nodes are left, with fusion, copies among them.
        error: Why the session could not be made after all, or "".
    """

    model: ir.Model
    provider: Mapping[str, str]
    copies: int
    graphs: tuple[str, ...]
    fused: frozenset[str]
    kernels: int
    error: str = ""


def placement(model: ir.Model, *, sizes: Mapping[str, int] | None = None) -> Placement:
    """Ask DirectML where it puts the nodes of a model.

    Args:
        model: The model; it is not changed.
        sizes: Sizes for symbolic dims, as ONNX Runtime's free-dimension overrides.

    Raises:
        ModelError: ONNX Runtime rejects the model before it places a node.
        UsageError: DirectML is unavailable here.
    """
    other = here("dml")
    with Folder() as scratch:
        folder = scratch.path
        ir.save(_named(model), folder / "model.onnx", external_data="model.data")
        apart, error = _session(other, folder, "apart", sizes)
        if not apart or not (folder / "apart.onnx").is_file():
            raise ModelError(error or "the log of the session names no node")
        together, later = _session(other, folder, "together", sizes)
        graph = ir.load(folder / "apart.onnx")
    left = {name for group in together.values() for _, name in group}
    provider = {name: ep for ep, group in apart.items() for _, name in group}
    if len(apart) == 1:
        provider = {node.name or "": ep for ep in apart for node in graph.graph.all_nodes()}
    everything = [key for group in together.values() for key in group.elements()]
    return Placement(
        model=graph,
        provider=provider,
        copies=sum(op.startswith("Memcpy") for op, _ in everything),
        graphs=tuple(name for op, name in everything if op.startswith(FUSED)),
        fused=frozenset(name for name, ep in provider.items() if ep == DML) - left,
        kernels=(len(everything) or len(provider)) - 1,
        error=error or later,
    )


def _session(
    other: Runner, folder: Path, name: str, sizes: Mapping[str, int] | None
) -> tuple[dict[str, Nodes], str]:
    log, fuses = folder / f"{name}.log", name == "together"
    error = ""
    try:
        RemoteSession(
            folder / "model.onnx",
            other,
            free_dims=sizes,
            config={} if fuses else _NO_FUSION,
            log=log,
            optimized=None if fuses else folder / f"{name}.onnx",
        ).close()
    except ModelError as failed:
        error = str(failed)
    return (parse(log.read_bytes()) if log.is_file() else {}), error


def parse(log: bytes) -> dict[str, Nodes]:
    """The nodes of each provider as a verbose log lists them, the probe left out."""
    # Windows writes UTF-16, but line ends as if it were not.
    text = _COLOUR.sub("", log.replace(b"\0", b"").decode("utf-8", "replace"))
    found: dict[str, Nodes] = {}
    group = None
    for line in text.splitlines():
        if "VerifyEachNodeIsAssignedToAnEp" not in line:
            continue
        if head := _ALL.search(line):
            # With the probe on the CPU, that is where all of them are; none is named.
            found.setdefault(head[1], Counter())
        elif head := _GROUP.search(line):
            group = found.setdefault(head[1], Counter())
        elif group is not None and (node := _NODE.search(line)):
            group[node[1], node[2]] += 1
    return found


def _named(model: ir.Model) -> ir.Model:
    """A copy in which every node has a name of its own, and with the probe."""
    copy = model.clone()
    taken: set[str] = set()
    for i, node in enumerate(copy.graph.all_nodes()):
        if not node.name or node.name in taken or not node.name.isascii():
            node.name = f"graphfix.{i}"
        taken.add(node.name)
    probe = _probe(copy.graph.opset_imports.get("", 1))
    copy.graph.inputs.extend(x for x in probe.inputs if x is not None)
    copy.graph.append(probe)
    copy.graph.outputs.append(probe.outputs[0])
    return copy


def _probe(opset: int) -> ir.Node:
    """A node for the CPU: DirectML has no kernel for it, and it is not folded."""
    given = ir.Value(
        name=f"{_PROBE}.in", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([1])
    )
    if opset >= 11:
        node = ir.Node("", "Unique", [given], name=_PROBE)
    else:
        node = ir.Node("", "RandomNormal", [], [ir.AttrInt64s("shape", [1])], name=_PROBE)
    node.outputs[0].name, node.outputs[0].type = _PROBE, given.type
    return node
