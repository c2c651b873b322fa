"""Prediction, without DirectML, of what ONNX Runtime does with a model on DirectML.

ONNX Runtime's own optimizer is run here, on the CPU: what it folds and fuses before any provider
is asked is the same there. Then come the rules of DirectML's execution provider, each in a file of
its own: which nodes it takes (:mod:`placement`), what it fuses (:mod:`fusing`), what has to be
copied (:mod:`copies`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import onnx_ir as ir

from graphfix.facts.shapes import Shapes, is_known_dim
from graphfix.graph.text import node_label
from graphfix.providers.directml import fusing, node_tracing, visit_order
from graphfix.providers.directml.copies import find_copies
from graphfix.providers.directml.kernel_table import Kernel, kernel_for, kernel_versions
from graphfix.providers.directml.memory import GIB, PeakMemory, peak_memory_of
from graphfix.providers.directml.placement import PlacementRules
from graphfix.spec.quoting import quote_name
from graphfix.wording import Displayable, Row, plural

Where = Literal["fused", "dml", "cpu", "gone"]
"""In a fused graph on DirectML; on DirectML by itself; on the CPU; no longer there in a run."""

WORDS: Mapping[Where, tuple[str, str]] = {
    "fused": ("fused", "green"),
    "dml": ("DirectML", "cyan"),
    "cpu": ("CPU", "yellow"),
    "gone": ("removed", ""),
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
class NodePlacement:
    """Place where one node of the model runs.

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
        recompiled: Whether it is recompiled in each run at a size other than the first.
    """

    name: str
    on: Literal["graph", "dml", "cpu", "copy"]
    nodes: int
    recompiled: bool


@dataclass(frozen=True, repr=False)
class DirectMLPlan(Displayable):
    """Where each node of a model is predicted to run on DirectML, and what is copied.

    Attributes:
        places: Every node of the model, of the graphs inside it as well, once, in order.
        steps: What a run does, in order; the copies last.
        sizes: The sizes that symbolic dims were given.
        dims: The symbolic dims of the inputs that have no size yet.
        dynamic: Whether the model runs at more than one size.
        forced: Those of ``dims`` that can have one size only, and that size.
        notes: What else there is to know.
        memory: The most memory that tensors take at a time, estimated; None with symbolic dims.
    """

    places: tuple[NodePlacement, ...]
    steps: tuple[Step, ...]
    sizes: Mapping[str, int] = field(default_factory=dict)
    dims: tuple[str, ...] = ()
    dynamic: bool = False
    notes: tuple[str, ...] = ()
    forced: Mapping[str, int] = field(default_factory=dict)
    memory: PeakMemory | None = None

    @property
    def line(self) -> str:
        """Return the kernels per run."""
        kernels = f"{self.steps_on('graph', 'dml')} kernels on DirectML"
        return f"{kernels}, {self.recompiled} recompiled; {self.steps_on('cpu')} on the CPU"

    def rows(self, *, verbose: bool = False) -> list[Row]:
        """Return where the nodes are, what a run takes, and what another length costs."""
        lines = []
        for where, (word, colour) in WORDS.items():
            if count := self.count(where):
                graphs = self._describe_graph_sizes() if where == "fused" else ""
                lines.append(Row(word, f"{plural(count, 'node')}{graphs}", colour))
        lines += [Row("a run", self._describe_run()), Row("lengths", self._describe_lengths())]
        return [*lines, *(Row("note", x, "yellow") for x in dict.fromkeys(self.notes))]

    def _describe_graph_sizes(self) -> str:
        sizes = sorted((x.nodes for x in self.steps if x.on == "graph"), reverse=True)
        shown = ", ".join(map(str, sizes[:6])) + (", ..." if len(sizes) > 6 else "")
        of = f" of {shown}" if len(sizes) > 1 else ""
        return f" in {plural(len(sizes), 'graph')}{of}"

    def _describe_run(self) -> str:
        parts = [f"{plural(self.steps_on('graph', 'dml'), 'kernel')} on DirectML"]
        if graphs := self.steps_on("graph"):
            parts[0] += f", {graphs} of them {'a fused graph' if graphs == 1 else 'fused graphs'}"
        parts.append(f"{self.steps_on('cpu')} on the CPU")
        parts.append(plural(self.steps_on("copy"), "copy", "copies") + " between them")
        return "; ".join(parts)

    def _describe_lengths(self) -> str:
        names = ", ".join(self.dims)
        sizes = (f"{quote_name(x)}={self.forced.get(x, 'SIZE')}" for x in self.dims[:1])
        open_dims = f"; open: {names} (--dims {next(sizes)})" if self.dims else ""
        if self.sizes and not self.dynamic:
            fixed = ", ".join(f"{quote_name(name)}={size}" for name, size in self.sizes.items())
            return f"fixed at {fixed}; another length needs another session"
        if not self.dynamic:
            return "all sizes are fixed; another length needs another model"
        if not self.recompiled:
            return f"no kernel depends on a size that varies{open_dims}"
        return (
            f"{self.recompiled} of the {self.steps_on('graph', 'dml')} kernels are recompiled "
            f"in each run at another size than the first one{open_dims}"
        )

    def count(self, where: Where) -> int:
        """Return how many nodes of the model run there."""
        return sum(x.where == where for x in self.places)

    def steps_on(self, *on: str) -> int:
        """Return how many steps of a run are of these kinds."""
        return sum(x.on in on for x in self.steps)

    @property
    def recompiled(self) -> int:
        """Return how many DirectML kernels each run at another size than the first recompiles."""
        return sum(x.recompiled for x in self.steps)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON has it."""
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
                "recompiled": self.recompiled,
            },
            "memory": None if self.memory is None else asdict(self.memory),
            "notes": list(self.notes),
            "steps": [asdict(x) for x in self.steps],
            "places": [asdict(x) for x in self.places],
        }


def predict_plan(
    model: ir.Model,
    basic: ir.Model,
    extended: ir.Model,
    *,
    sizes: Mapping[str, int] | None = None,
    notes: Sequence[str] = (),
) -> DirectMLPlan:
    """Predict what ONNX Runtime does with a model on DirectML.

    Args:
        model: The model as it is given to ONNX Runtime.
        basic: What its basic optimizations make of it, with the shapes that it inferred.
        extended: What the extended ones make of it, without those of :data:`CPU_ONLY`.
        sizes: The sizes that symbolic dims were given in both.
        notes: Remarks on how the two were made.
    """
    return _Planner(model, basic, extended).build_plan(sizes or {}, tuple(notes))


class _Planner:
    """Builds one plan."""

    def __init__(self, model: ir.Model, basic: ir.Model, extended: ir.Model) -> None:
        self._model, self._basic, self._final = model, basic, extended
        self._dims = _symbolic_dims(extended)
        self._cpu: dict[ir.Node, str] = {}
        self._kernels: dict[ir.Node, Kernel] = {}
        self._lost: list[str] = []
        self._unfused: dict[ir.Node, str] = {}
        self._step_of: dict[ir.Node, int] = {}
        self._steps: list[Step] = []
        self._place_all()

    def build_plan(self, sizes: Mapping[str, int], notes: tuple[str, ...]) -> DirectMLPlan:
        for _, graph in node_tracing.graphs_with_paths(self._final):
            self._plan_graph(graph)
        fates = node_tracing.trace_fates(self._model, self._final)
        places = tuple(self._placement_of(node, fate) for node, fate in fates.items())
        graphs = node_tracing.graphs_with_paths(self._final)
        transfers = (x for _, graph in graphs for x in find_copies(graph, self._kernels))
        copied = [
            Step(f"{value.name} {direction}", "copy", 0, recompiled=False)
            for value, direction in transfers
        ]
        inputs = [x for x in self._final.graph.inputs if not x.is_initializer()]
        dynamic = any(not fusing.is_static(x) for x in inputs)
        for value in inputs:
            if not all(map(is_known_dim, value.shape or ())):
                notes += (_UNNAMED.format(value.name),)
        steps, notes = (*self._steps, *copied), (*notes, *self._lost)
        memory = peak_memory_of(self._run_order(self._final.graph), inputs)
        if memory is not None and memory.size >= GIB:
            notes += (memory.note,)
        return DirectMLPlan(
            places, steps, dict(sizes), tuple(self._dims), dynamic, notes, memory=memory
        )

    def _place_all(self) -> None:
        """Place all nodes, as ONNX Runtime does between its basic and extended optimizations."""
        nothing = Shapes({}, {}, {})
        before, after = (
            PlacementRules(x.graph.opset_imports, nothing) for x in (self._basic, self._final)
        )
        basic = dict(node_tracing.graphs_with_paths(self._basic))
        for path, graph in node_tracing.graphs_with_paths(self._final):
            cpu_reasons = _cpu_reason_by_output(basic.get(path), before)
            for node in graph:
                reason = next(
                    (cpu_reasons[x.name] for x in node.outputs if x.name in cpu_reasons), None
                )
                kernel = None if reason else after.kernel_of(node) or _any_kernel(node)
                if kernel is None:
                    self._cpu[node] = reason or f"DirectML has no kernel for {node.op_type}"
                else:
                    self._kernels[node] = kernel

    def _plan_graph(self, graph: ir.Graph) -> None:
        """Append the steps of one graph."""
        nodes = self._run_order(graph)
        fused_into = fusing.fused_activations(nodes, self._kernels)
        activation_of = {home: after for after, home in fused_into.items()}
        for home, after in activation_of.items():
            lost = (x.name for x in home.outputs if x.is_graph_output())
            self._lost += [_LOST.format(name, home.op_type, after.op_type) for name in lost]

        def outputs_of(node: ir.Node) -> Sequence[ir.Value]:
            return activation_of.get(node, node).outputs

        heads = [node for node in nodes if node not in fused_into]
        self._find_obstacles(graph, heads, outputs_of)
        fusible = self._kernels.keys() - self._unfused.keys()
        for part in fusing.build_partitions(heads, lambda x: x in fusible, outputs_of):
            for node in part.nodes:
                self._step_of[node] = len(self._steps)
            self._steps.append(self._make_step(part, outputs_of))
        for home, after in activation_of.items():
            self._step_of[after] = self._step_of[home]
            if home in self._unfused:
                self._unfused[after] = self._unfused[home]

    def _find_obstacles(
        self,
        graph: ir.Graph,
        heads: Sequence[ir.Node],
        outputs_of: Callable[[ir.Node], Sequence[ir.Value]],
    ) -> None:
        """Record why nodes on DirectML cannot be part of a fused graph."""
        op = fusing.control_flow_op(graph)
        control_flow_reason = None if op is None else fusing.CONTROL_FLOW.format(op=op)
        for node in heads:
            kernel = self._kernels.get(node)
            if kernel is None:
                continue
            reason = control_flow_reason or fusing.fusion_obstacle(
                node, kernel, outputs_of(node), self._dims
            )
            if reason is not None:
                self._unfused[node] = reason

    def _run_order(self, graph: ir.Graph) -> list[ir.Node]:
        """Return the nodes in the order of a run.

        A graph that the optimizer has changed is written out in that order; another as it was.
        """
        if graph is self._final.graph and visit_order.have_same_nodes(graph, self._model.graph):
            return visit_order.nodes_in_visit_order(graph)
        return list(graph)

    def _make_step(
        self, part: fusing.Partition, outputs_of: Callable[[ir.Node], Sequence[ir.Value]]
    ) -> Step:
        if part.fuses:
            return Step(f"a graph of {len(part.nodes)} nodes", "graph", len(part.nodes), False)
        node = part.nodes[0]
        kernel = self._kernels.get(node)
        name = f"{node.op_type} {node.name}"
        if kernel is None:
            return Step(name, "cpu", 1, recompiled=False)
        varies = any(not fusing.is_static(x) for x in (*node.inputs, *outputs_of(node)))
        cpu_values = (node.inputs[i] for i in kernel.cpu_inputs if i < len(node.inputs))
        varies |= any(x is not None and not x.is_initializer() for x in cpu_values)
        # What makes no tensor on the device has no operator there that could be recompiled.
        return Step(name, "dml", 1, recompiled=varies and not kernel.cpu_outputs)

    def _placement_of(self, node: ir.Node, fate: node_tracing.Fate) -> NodePlacement:
        at, op = node_label(node), node.op_type
        home = fate.node
        if home is None:
            return NodePlacement(at, op, "gone", fate.how, None)
        step = self._step_of.get(home)
        if home in self._cpu:
            return NodePlacement(at, op, "cpu", self._cpu[home], step)
        if home in self._unfused:
            return NodePlacement(at, op, "dml", self._unfused[home], step)
        return NodePlacement(at, op, "fused", fate.how, step)


def _cpu_reason_by_output(graph: ir.Graph | None, rules: PlacementRules) -> dict[str | None, str]:
    """Return why a tensor's producer runs on the CPU, by the tensor's name; "" on DirectML."""
    if graph is None:
        return {}
    on_cpu = rules.cpu_nodes(graph)
    return {x.name: on_cpu.get(node, "") for node in graph for x in node.outputs if x.name}


def _any_kernel(node: ir.Node) -> Kernel | None:
    """Return a kernel of a fused operator, whose version the file does not declare."""
    registered = kernel_versions(node.op_type, node.domain)
    return kernel_for(node.op_type, node.domain, registered[-1]) if registered else None


def _symbolic_dims(model: ir.Model) -> list[str]:
    dims = (x for value in model.graph.inputs for x in value.shape or ())
    return list(dict.fromkeys(str(x) for x in dims if not isinstance(x, int) and is_known_dim(x)))
