"""Prediction of what ONNX Runtime does with a model on a provider, without the provider.

ONNX Runtime's own optimizer is run on the CPU: what it folds and fuses before any provider is asked
is the same there. Then come the provider's rules: which nodes it takes (:mod:`placement`), and what
has to be copied (:mod:`copies`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Generic, Literal

import onnx_ir as ir

from graphfix.facts.shapes import Shapes, is_known_dim
from graphfix.graph.dims import is_static
from graphfix.graph.text import node_label
from graphfix.providers import node_tracing, visit_order
from graphfix.providers.copies import find_copies
from graphfix.providers.kernels import K
from graphfix.providers.memory import GIB, PeakMemory, peak_memory_of
from graphfix.providers.placement import PlacementRules
from graphfix.providers.read_back import read_back_text
from graphfix.providers.table import PROVIDERS, DeviceEp
from graphfix.spec.quoting import quote_name
from graphfix.wording import Displayable, Row, plural

Where = Literal["fused", "dml", "webgpu", "cpu", "gone"]
"""In a fused graph on DirectML; by itself on DirectML or WebGPU; on the CPU; no longer there."""

WORDS: Mapping[Where, tuple[str, str]] = {
    "fused": ("fused", "green"),
    "dml": (PROVIDERS["dml"].label, "cyan"),
    "webgpu": (PROVIDERS["webgpu"].label, "cyan"),
    "cpu": ("CPU", "yellow"),
    "gone": ("removed", ""),
}
"""What each is called, and its colour."""
_UNNAMED = "the input {!r} has a dim without a name, so no size can be given to it"


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
        on: ``graph`` for a fused graph, ``dml``, ``webgpu``, ``cpu``, or ``copy``.
        nodes: How many nodes it computes, as ONNX Runtime counts them after its optimizer.
        recompiled: Whether it is recompiled in each run at a size other than the first.
    """

    name: str
    on: Literal["graph", "dml", "webgpu", "cpu", "copy"]
    nodes: int
    recompiled: bool


@dataclass(frozen=True, repr=False)
class ProviderPlan(Displayable):
    """Where each node of a model is predicted to run on a provider, and what is copied.

    Attributes:
        places: Every node of the model, of the graphs inside it as well, once, in order.
        steps: What a run does, in order; the copies last.
        sizes: The sizes that symbolic dims were given.
        dims: The symbolic dims of the inputs that have no size yet.
        dynamic: Whether the model runs at more than one size.
        forced: Those of ``dims`` that can have one size only, and that size.
        notes: What else there is to know.
        memory: The most memory that tensors take at a time, estimated; None with symbolic dims.
        ep: The provider.
        read_back: How many bytes the outputs of a run have; None if a size is not known.
    """

    places: tuple[NodePlacement, ...]
    steps: tuple[Step, ...]
    sizes: Mapping[str, int] = field(default_factory=dict)
    dims: tuple[str, ...] = ()
    dynamic: bool = False
    notes: tuple[str, ...] = ()
    forced: Mapping[str, int] = field(default_factory=dict)
    memory: PeakMemory | None = None
    ep: DeviceEp = "dml"
    read_back: int | None = None

    @property
    def on_device(self) -> int:
        """Return how many kernels run on the provider."""
        return self.steps_on("graph", self.ep)

    @property
    def line(self) -> str:
        """Return the kernels per run."""
        kernels = f"{self.on_device} kernels on {PROVIDERS[self.ep].label}"
        return f"{kernels}, {self.recompiled} recompiled; {self.steps_on('cpu')} on the CPU"

    def rows(self, *, verbose: bool = False) -> list[Row]:
        """Return where the nodes are, what a run takes, and what another length costs."""
        lines = []
        for where, (word, colour) in WORDS.items():
            if count := self.count(where):
                graphs = self._describe_graph_sizes() if where == "fused" else ""
                lines.append(Row(word, f"{plural(count, 'node')}{graphs}", colour))
        lines.append(Row("a run", self._describe_run()))
        if self.read_back is not None:
            lines.append(Row("outputs", f"{read_back_text(self.read_back)} to read back"))
        if PROVIDERS[self.ep].recompiles:  # of others it is not known what another length costs
            lines.append(Row("lengths", self._describe_lengths()))
        if self.memory is not None and self.memory.size < GIB:  # else a note says it
            lines.append(Row("memory", self.memory.line))
        return [*lines, *(Row("note", x, "yellow") for x in dict.fromkeys(self.notes))]

    def _describe_graph_sizes(self) -> str:
        sizes = sorted((x.nodes for x in self.steps if x.on == "graph"), reverse=True)
        shown = ", ".join(map(str, sizes[:6])) + (", ..." if len(sizes) > 6 else "")
        of = f" of {shown}" if len(sizes) > 1 else ""
        return f" in {plural(len(sizes), 'graph')}{of}"

    def _describe_run(self) -> str:
        parts = [f"{plural(self.on_device, 'kernel')} on {PROVIDERS[self.ep].label}"]
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
            f"{self.recompiled} of the {self.on_device} kernels are recompiled "
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
        """Return how many kernels each run at another size than the first recompiles."""
        return sum(x.recompiled for x in self.steps)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON has it."""
        return {
            "ep": self.ep,
            "sizes": dict(self.sizes),
            "open": list(self.dims),
            "dynamic": self.dynamic,
            "nodes": {x: self.count(x) for x in ("fused", self.ep, "cpu", "gone")},
            "run": {
                "dispatches": self.on_device,
                "graphs": self.steps_on("graph"),
                self.ep: self.steps_on(self.ep),
                "cpu": self.steps_on("cpu"),
                "copies": self.steps_on("copy"),
                "recompiled": self.recompiled,
            },
            "read_back_bytes": self.read_back,
            "memory": None if self.memory is None else asdict(self.memory),
            "notes": list(self.notes),
            "steps": [asdict(x) for x in self.steps],
            "places": [asdict(x) for x in self.places],
        }


class Planner(Generic[K]):
    """Builds a plan: each node that the provider takes is a kernel of its own.

    Args:
        model: The model as it is given to ONNX Runtime.
        basic: What its basic optimizations make of it, with the shapes that it inferred.
        extended: What the extended ones make of it, without those that only the CPU has.

    Attributes:
        ep: The provider.
        rules: Its choice of nodes.
        foreign: ONNX Runtime's optimizers that work for the CPU and not for the provider
            (optimizer/graph_transformer_utils.cc, GenerateTransformers).
    """

    ep: ClassVar[DeviceEp]
    rules: type[PlacementRules[K]]
    foreign: ClassVar[tuple[str, ...]]

    def __init__(self, model: ir.Model, basic: ir.Model, extended: ir.Model) -> None:
        self.model, self.basic, self.final = model, basic, extended
        self.dims = _symbolic_dims(extended)
        self.cpu: dict[ir.Node, str] = {}
        self.kernels: dict[ir.Node, K] = {}
        self.notes: list[str] = []
        self.step_of: dict[ir.Node, int] = {}
        self.steps: list[Step] = []
        self._place_all()

    def build_plan(self, sizes: Mapping[str, int], notes: Sequence[str]) -> ProviderPlan:
        """Return the plan.

        Args:
            sizes: The sizes that symbolic dims were given in both optimized models.
            notes: Remarks on how the two were made.
        """
        for _, graph in node_tracing.graphs_with_paths(self.final):
            self.plan_graph(graph)
        fates = node_tracing.trace_fates(self.model, self.final)
        places = tuple(self.placement_of(node, fate) for node, fate in fates.items())
        graphs = node_tracing.graphs_with_paths(self.final)
        transfers = (x for _, graph in graphs for x in find_copies(graph, self.kernels))
        copied = [
            Step(
                f"{value.name} to {PROVIDERS[self.ep if to_device else 'cpu'].label}",
                "copy",
                0,
                recompiled=False,
            )
            for value, to_device in transfers
        ]
        inputs = [x for x in self.final.graph.inputs if not x.is_initializer()]
        dynamic = any(not is_static(x) for x in inputs)
        unnamed = [
            _UNNAMED.format(value.name)
            for value in inputs
            if not all(map(is_known_dim, value.shape or ()))
        ]
        all_notes = (*notes, *unnamed, *self.notes)
        memory = peak_memory_of(self.run_order(self.final.graph), inputs)
        if memory is not None and memory.size >= GIB:
            all_notes += (memory.note,)
        return ProviderPlan(
            places,
            (*self.steps, *copied),
            dict(sizes),
            tuple(self.dims),
            dynamic,
            all_notes,
            memory=memory,
            ep=self.ep,
        )

    def plan_graph(self, graph: ir.Graph) -> None:
        """Append the steps of one graph."""
        for node in self.run_order(graph):
            self.step_of[node] = len(self.steps)
            on = "cpu" if node in self.cpu else self.ep
            self.steps.append(Step(f"{node.op_type} {node.name}", on, 1, recompiled=False))

    def placement_of(self, node: ir.Node, fate: node_tracing.Fate) -> NodePlacement:
        """Return where a node of the model runs."""
        at, op, home = node_label(node), node.op_type, fate.node
        if home is None:
            return NodePlacement(at, op, "gone", fate.how, None)
        if home in self.cpu:
            return NodePlacement(at, op, "cpu", self.cpu[home], self.step_of.get(home))
        return NodePlacement(at, op, self.ep, fate.how, self.step_of.get(home))

    def run_order(self, graph: ir.Graph) -> list[ir.Node]:
        """Return the nodes in the order of a run.

        A graph that the optimizer has changed is written out in that order; another as it was.
        """
        if graph is self.final.graph and visit_order.have_same_nodes(graph, self.model.graph):
            return visit_order.nodes_in_visit_order(graph)
        return list(graph)

    def _place_all(self) -> None:
        """Place all nodes, as ONNX Runtime does between its basic and extended optimizations."""
        nothing = Shapes({}, {}, {})
        before, after = (
            self.rules(x.graph.opset_imports, nothing) for x in (self.basic, self.final)
        )
        basic = dict(node_tracing.graphs_with_paths(self.basic))
        for path, graph in node_tracing.graphs_with_paths(self.final):
            cpu_reasons = _cpu_reason_by_output(basic.get(path), before)
            for node in graph:
                reason = next(
                    (cpu_reasons[x.name] for x in node.outputs if x.name in cpu_reasons), None
                )
                kernel = None if reason else after.kernel_of(node) or after.any_kernel(node)
                if kernel is None:
                    self.cpu[node] = reason or f"{after.label} has no kernel for {node.op_type}"
                else:
                    self.kernels[node] = kernel


def _cpu_reason_by_output(
    graph: ir.Graph | None, rules: PlacementRules[K]
) -> dict[str | None, str]:
    """Return why a tensor's producer runs on the CPU, by the tensor's name; "" on the provider."""
    if graph is None:
        return {}
    on_cpu = rules.cpu_nodes(graph)
    return {x.name: on_cpu.get(node, "") for node in graph for x in node.outputs if x.name}


def _symbolic_dims(model: ir.Model) -> list[str]:
    dims = (x for value in model.graph.inputs for x in value.shape or ())
    return list(dict.fromkeys(str(x) for x in dims if not isinstance(x, int) and is_known_dim(x)))
