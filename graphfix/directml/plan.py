"""What ONNX Runtime does with a model on DirectML, predicted without DirectML.

ONNX Runtime's own optimizer is run here, on the CPU: what it folds and fuses before any provider
is asked is the same there. Then come the rules of DirectML's execution provider, each in a file of
its own: which nodes it takes (:mod:`placement`), what it fuses (:mod:`fusing`), what has to be
copied (:mod:`copies`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import onnx_ir as ir

from graphfix.directml import fusing, node_tracing, visit_order
from graphfix.directml.copies import copies
from graphfix.directml.kernel_table import Kernel, kernel_for, versions
from graphfix.directml.placement import Rules
from graphfix.facts.shapes import Shapes, is_named
from graphfix.graph.text import path_of
from graphfix.spec.quoting import quoted
from graphfix.wording import Row, Shown, plural

Where = Literal["fused", "dml", "cpu", "gone"]
"""In a fused graph on DirectML; on DirectML by itself; on the CPU; no longer there in a run."""

WORDS: Mapping[Where, tuple[str, str]] = {
    "fused": ("fused", "green"),
    "dml": ("DirectML", "cyan"),
    "cpu": ("CPU", "yellow"),
    "gone": ("gone", ""),
}
"""What each is called, and its colour."""
_LOST = (
    "{0!r} is an output and feeds a {2}: DirectML makes one of {1} and {2}, loses the output, and "
    "the session cannot be made; the pass keep-output repairs it"
)
_UNNAMED = "the input {!r} has a dim without a name, so no size can be given to it"

CPU_ONLY = (
    *("GemmActivationFusion", "DynamicQuantizeMatMulFusion", "ConvActivationFusion"),
    *("SimplifiedLayerNormFusion", "GatherSliceToSplitFusion", "GatherToSliceFusion"),
    *("BiasSoftmaxFusion", "MatMulNBitsFusion", "QDQS8ToU8Transformer"),
)
"""ONNX Runtime's optimizers that work for the CPU and not for DirectML
(optimizer/graph_transformer_utils.cc, GenerateTransformers)."""


@dataclass(frozen=True)
class PlacedNode:
    """Where one node of the model runs.

    Attributes:
        at: The node's path.
        op: Its operator.
        where: Where it runs.
        why: The reason, or "" for a node in a fused graph.
        step: The number of the step of a run that it is in, from 0; None if it is gone.
    """

    at: str
    op: str
    where: Where
    why: str
    step: int | None


@dataclass(frozen=True)
class Step:
    """One kernel of a run.

    Attributes:
        name: What it is called: the operator and node, or the graph.
        on: ``graph`` for a fused graph, ``dml``, ``cpu``, or ``copy``.
        nodes: How many nodes it computes, as ONNX Runtime counts them after its optimizer.
        remade: Whether it is recompiled in each run at a size other than the first.
    """

    name: str
    on: Literal["graph", "dml", "cpu", "copy"]
    nodes: int
    remade: bool


@dataclass(frozen=True, repr=False)
class Plan(Shown):
    """What is predicted for a model.

    Attributes:
        places: Every node of the model, of the graphs inside it as well, once, in order.
        steps: What a run does, in order; the copies last.
        sizes: The sizes that symbolic dims were given.
        dims: The symbolic dims of the inputs that have no size yet.
        dynamic: Whether the model runs at more than one size.
        notes: What else there is to know.
    """

    places: tuple[PlacedNode, ...]
    steps: tuple[Step, ...]
    sizes: Mapping[str, int] = field(default_factory=dict)
    dims: tuple[str, ...] = ()
    dynamic: bool = False
    notes: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The kernels per run."""
        kernels = f"{self.steps_on('graph', 'dml')} kernels on DirectML"
        return f"{kernels}, {self.remade} recompiled; {self.steps_on('cpu')} on the CPU"

    def rows(self, *, verbose: bool = False) -> list[Row]:
        """Where the nodes are, what a run takes, and what another length costs."""
        found = []
        for where, (word, colour) in WORDS.items():
            if count := self.count(where):
                graphs = self._sizes_of_graphs() if where == "fused" else ""
                found.append(Row(word, f"{plural(count, 'node')}{graphs}", colour))
        found += [Row("a run", self._run()), Row("lengths", self._lengths())]
        return [*found, *(Row("note", x, "yellow") for x in dict.fromkeys(self.notes))]

    def _sizes_of_graphs(self) -> str:
        sizes = sorted((x.nodes for x in self.steps if x.on == "graph"), reverse=True)
        shown = ", ".join(map(str, sizes[:6])) + (", ..." if len(sizes) > 6 else "")
        of = f" of {shown}" if len(sizes) > 1 else ""
        return f" in {plural(len(sizes), 'graph')}{of}"

    def _run(self) -> str:
        parts = [f"{plural(self.steps_on('graph', 'dml'), 'kernel')} on DirectML"]
        if graphs := self.steps_on("graph"):
            parts[0] += f", {graphs} of them {'a fused graph' if graphs == 1 else 'fused graphs'}"
        parts.append(f"{self.steps_on('cpu')} on the CPU")
        parts.append(plural(self.steps_on("copy"), "copy", "copies") + " between them")
        return "; ".join(parts)

    def _lengths(self) -> str:
        names = ", ".join(self.dims)
        named = f"; open: {names} (--dims {quoted(self.dims[0])}=SIZE)" if self.dims else ""
        if self.sizes and not self.dynamic:
            fixed = ", ".join(f"{quoted(name)}={size}" for name, size in self.sizes.items())
            return f"fixed at {fixed}; another length needs another session"
        if not self.dynamic:
            return "all sizes are fixed; another length needs another model"
        if not self.remade:
            return f"no kernel depends on a size that varies{named}"
        return (
            f"{self.remade} of the {self.steps_on('graph', 'dml')} kernels are recompiled in each "
            f"run at another size than the first one{named}"
        )

    def count(self, where: Where) -> int:
        """How many nodes of the model run there."""
        return sum(x.where == where for x in self.places)

    def steps_on(self, *on: str) -> int:
        """How many steps of a run are of these kinds."""
        return sum(x.on in on for x in self.steps)

    @property
    def remade(self) -> int:
        """How many DirectML kernels are recompiled in each run at a size other than the first."""
        return sum(x.remade for x in self.steps)

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON has it."""
        return {
            "sizes": dict(self.sizes),
            "open": list(self.dims),
            "dynamic": self.dynamic,
            "nodes": {x: self.count(x) for x in ("fused", "dml", "cpu", "gone")},
            "run": {
                "dispatches": self.steps_on("graph", "dml"),
                "graphs": self.steps_on("graph"),
                "dml": self.steps_on("dml"),
                "cpu": self.steps_on("cpu"),
                "copies": self.steps_on("copy"),
                "remade": self.remade,
            },
            "notes": list(self.notes),
            "steps": [asdict(x) for x in self.steps],
            "places": [asdict(x) for x in self.places],
        }


def plan(
    model: ir.Model,
    basic: ir.Model,
    extended: ir.Model,
    *,
    sizes: Mapping[str, int] | None = None,
    notes: Sequence[str] = (),
) -> Plan:
    """Predict what ONNX Runtime does with a model on DirectML.

    Args:
        model: The model as it is given to ONNX Runtime.
        basic: What its basic optimizations make of it, with the shapes that it inferred.
        extended: What the extended ones make of it, without those of :data:`CPU_ONLY`.
        sizes: The sizes that symbolic dims were given in both.
        notes: Remarks on how the two were made.
    """
    return _Planner(model, basic, extended).plan(sizes or {}, tuple(notes))


class _Planner:
    """One plan being made."""

    def __init__(self, model: ir.Model, basic: ir.Model, extended: ir.Model) -> None:
        self._model, self._basic, self._final = model, basic, extended
        self._dims = _dims(extended)
        self._cpu: dict[ir.Node, str] = {}
        self._kernels: dict[ir.Node, Kernel] = {}
        self._lost: list[str] = []
        self._apart: dict[ir.Node, str] = {}
        self._step_of: dict[ir.Node, int] = {}
        self._steps: list[Step] = []
        self._place_all()

    def plan(self, sizes: Mapping[str, int], notes: tuple[str, ...]) -> Plan:
        for _, graph in node_tracing.graphs_of(self._final):
            self._run(graph)
        fates = node_tracing.fates(self._model, self._final)
        places = tuple(self._placed(node, fate) for node, fate in fates.items())
        graphs = node_tracing.graphs_of(self._final)
        ways = (x for _, graph in graphs for x in copies(graph, self._kernels))
        copied = [Step(f"{value.name} {way}", "copy", 0, remade=False) for value, way in ways]
        inputs = [x for x in self._final.graph.inputs if not x.is_initializer()]
        dynamic = any(not fusing.is_static(x) for x in inputs)
        for value in inputs:
            if not all(map(is_named, value.shape or ())):
                notes += (_UNNAMED.format(value.name),)
        steps, notes = (*self._steps, *copied), (*notes, *self._lost)
        return Plan(places, steps, dict(sizes), tuple(self._dims), dynamic, notes)

    def _place_all(self) -> None:
        """Providers are asked after the basic optimizations; the extended ones come later."""
        nothing = Shapes({}, {}, {})
        before, after = (Rules(x.graph.opset_imports, nothing) for x in (self._basic, self._final))
        basic = dict(node_tracing.graphs_of(self._basic))
        for path, graph in node_tracing.graphs_of(self._final):
            told = _by_output(basic.get(path), before)
            for node in graph:
                reason = next((told[x.name] for x in node.outputs if x.name in told), None)
                kernel = None if reason else after.kernel(node) or _any_kernel(node)
                if kernel is None:
                    self._cpu[node] = reason or f"DirectML has no kernel for {node.op_type}"
                else:
                    self._kernels[node] = kernel

    def _run(self, graph: ir.Graph) -> None:
        """The steps of one graph."""
        nodes = self._ordered(graph)
        into = fusing.activations(nodes, self._kernels)
        ends = {home: after for after, home in into.items()}
        for after, home in into.items():
            lost = (x.name for x in home.outputs if x.is_graph_output())
            self._lost += [_LOST.format(name, home.op_type, after.op_type) for name in lost]
        heads = [node for node in nodes if node not in into]

        def made(node: ir.Node) -> Sequence[ir.Value]:
            return (ends.get(node) or node).outputs

        op = fusing.control_flow(graph)
        off = None if op is None else fusing.CONTROL_FLOW.format(op=op)
        for node in heads:
            if (kernel := self._kernels.get(node)) is not None:
                reason = off or fusing.unfit(node, kernel, made(node), self._dims)
                if reason is not None:
                    self._apart[node] = reason
        fusible = self._kernels.keys() - self._apart.keys()
        for part in fusing.partitions(heads, lambda x: x in fusible, made):
            number = len(self._steps)
            for node in part.nodes:
                self._step_of[node] = number
                if node in ends:
                    self._step_of[ends[node]] = number
                    if node in self._apart:
                        self._apart[ends[node]] = self._apart[node]
            self._steps.append(self._step(part, made))

    def _ordered(self, graph: ir.Graph) -> list[ir.Node]:
        """The nodes in the order of a run.

        A graph that the optimizer has changed is written out in that order; another as it was.
        """
        if graph is self._final.graph and visit_order.same(graph, self._model.graph):
            return visit_order.visited(graph)
        return list(graph)

    def _step(self, part: fusing.Partition, made: Callable[[ir.Node], Sequence[ir.Value]]) -> Step:
        if part.fuses:
            return Step(f"a graph of {len(part.nodes)} nodes", "graph", len(part.nodes), False)
        node = part.nodes[0]
        kernel = self._kernels.get(node)
        name = f"{node.op_type} {node.name}"
        if kernel is None:
            return Step(name, "cpu", 1, remade=False)
        varies = any(not fusing.is_static(x) for x in (*node.inputs, *made(node)))
        given = (node.inputs[i] for i in kernel.cpu_inputs if i < len(node.inputs))
        varies |= any(x is not None and not x.is_initializer() for x in given)
        # What makes no tensor on the device has no operator there that could be recompiled.
        return Step(name, "dml", 1, remade=varies and not kernel.cpu_outputs)

    def _placed(self, node: ir.Node, fate: node_tracing.Fate) -> PlacedNode:
        at, op = path_of(node), node.op_type
        home = fate.node
        if home is None:
            return PlacedNode(at, op, "gone", fate.how, None)
        step = self._step_of.get(home)
        if home in self._cpu:
            return PlacedNode(at, op, "cpu", self._cpu[home], step)
        if home in self._apart:
            return PlacedNode(at, op, "dml", self._apart[home], step)
        return PlacedNode(at, op, "fused", fate.how, step)


def _by_output(graph: ir.Graph | None, rules: Rules) -> dict[str | None, str]:
    """Why the node that makes a tensor runs on the CPU, by the tensor's name; "" on DirectML."""
    if graph is None:
        return {}
    on_cpu = rules.on_cpu(graph)
    return {x.name: on_cpu.get(node, "") for node in graph for x in node.outputs if x.name}


def _any_kernel(node: ir.Node) -> Kernel | None:
    """Of an operator that a fusion made: its version is not one that the file declares."""
    known = versions(node.op_type, node.domain)
    return kernel_for(node.op_type, node.domain, known[-1]) if known else None


def _dims(model: ir.Model) -> list[str]:
    dims = (x for value in model.graph.inputs for x in value.shape or ())
    return list(dict.fromkeys(str(x) for x in dims if not isinstance(x, int) and is_named(x)))
