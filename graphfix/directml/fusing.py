"""DirectML's fusions: activations into the operator before them, and nodes into whole graphs.

The first is DmlOperatorFusionTransformer (GraphTransformer.cpp, OperatorUtility.cpp), the second
DmlGraphFusionTransformer with its partitions (GraphPartitioner.cpp), both in providers/dml.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from graphfix.directml.kernel_table import Kernel
from graphfix.directml.placement import PlacementRules
from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import input_at, is_op, producer_of
from graphfix.graph.walks import bodies_of

OPEN = "a dim is symbolic"
CONTROL_FLOW = "with {op} in the graph, nothing of it is fused"

_SIMPLE = frozenset(
    {"Sigmoid", "HardSigmoid", "Tanh", "ScaledTanh", "Relu", "LeakyRelu", "ThresholdedRelu", "Elu"}
    | {"Selu", "Softsign", "Softplus", "ParametricSoftplus", "Dropout"}
)
_RELU = frozenset({"Relu", "LeakyRelu"})
# With the activations that each takes.
_FUSABLE = {
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm", "MatMul"), _SIMPLE),
    **dict.fromkeys(("BatchNormalization", "InstanceNormalization"), _SIMPLE),
    "MeanVarianceNormalization": _SIMPLE,
    **dict.fromkeys(("Add", "Sum"), _RELU),
    "FusedMatMul": frozenset({"Softmax"}),
}


def fused_activations(
    nodes: Sequence[ir.Node],
    on_dml: Collection[ir.Node],
    kind: Callable[[ir.Node], str] = lambda node: node.op_type,
) -> dict[ir.Node, ir.Node]:
    """Return the node that each activation goes into: its producer, without other readers.

    A Softmax goes into a FusedMatMul (optimizer/matmul_activation_fusion.cc, for DirectML only).

    Args:
        nodes: The nodes of a graph.
        on_dml: Those that DirectML takes.
        kind: The operator that a node will be by then.
    """
    fused_into: dict[ir.Node, ir.Node] = {}
    for node in nodes:
        fusable = _FUSABLE.get(kind(node), frozenset()) if node in on_dml else frozenset()
        if not fusable:
            continue
        uses = [use for value in node.outputs for use in value.uses()]
        if len(uses) != 1:
            continue
        after = uses[0].node
        if (
            after in on_dml
            and after.graph is node.graph
            and len(after.inputs) == 1
            and after.op_type in fusable
            and (node.op_type != "Sum" or len(node.inputs) == 2)
        ):
            fused_into[after] = node
    return fused_into


@dataclass(frozen=True)
class LostOutput:
    """An output that fusing loses, so that no session can be made on DirectML.

    Attributes:
        value: The output.
        home: The node that makes it.
        after: The activation that goes into that node: what is fused returns only this one's.
    """

    value: ir.Value
    home: ir.Node
    after: ir.Node


def find_lost_outputs(view: View) -> Iterator[LostOutput]:
    """Find the outputs of the main graph that fusing loses, in their order.

    In the branches of an If nothing is lost: run, a session is made there.
    """
    homes = [x.producer() for x in view.model.graph.outputs]
    for after, home in _activations_into(view, [x for x in homes if x is not None]).items():
        yield from (LostOutput(x, home, after) for x in home.outputs if x.is_graph_output())


def gemms_without_bias(view: View) -> Iterator[tuple[ir.Node, ir.Node]]:
    """Yield each Gemm of the main graph without a C, with the activation that goes into it.

    The operator that the two become, DmlFusedGemm, must have a C, and no session can be made.
    """
    bare = [x for x in view.nodes("Gemm") if len(x.inputs) < 3 or x.inputs[2] is None]
    yield from ((home, after) for after, home in _activations_into(view, bare).items())


def _activations_into(view: View, homes: Sequence[ir.Node]) -> dict[ir.Node, ir.Node]:
    """Return the activation that goes into each of these nodes of the main graph, if one does."""
    graph = view.model.graph
    rules = PlacementRules(graph.opset_imports, view.shapes)
    users = [use.node for home in homes for value in home.outputs for use in value.uses()]
    parties = dict.fromkeys(x for x in (*homes, *users) if x.graph is graph)
    on_dml = frozenset(x for x in parties if rules.kernel_of(x) is not None)
    return fused_activations(homes, on_dml, lambda node: _optimized_op_type(node, view))


def _optimized_op_type(node: ir.Node, view: View) -> str:
    """Return what the optimizer makes of a sum or product before DirectML fuses anything.

    A bias goes into a Conv (ConvAddFusion, ConvMulFusion) and makes a Gemm of a MatMul of rank 2
    (MatMulAddFusion).
    """
    for i, value in enumerate(node.inputs if is_op(node, "Add", "Mul") else ()):
        producer, operand = producer_of(value), node.inputs[1 - i]
        if value is None or len(value.uses()) > 1 or value.is_graph_output():
            continue
        if is_op(producer, "Conv") and const_of(operand) is not None:
            return "Conv"
        flat = (
            all(view.shapes.rank(x) == 2 for x in producer.inputs)
            if producer is not None
            else False
        )
        if is_op(node, "Add") and is_op(producer, "MatMul") and flat:
            return "Gemm"
    return node.op_type


@dataclass(eq=False)
class Partition:
    """Nodes that may become one DirectML graph.

    Attributes:
        nodes: Its nodes.
        fuses: Whether it is a DirectML graph; else it is one node by itself.
        final: Whether it takes no more nodes.
    """

    nodes: list[ir.Node]
    fuses: bool
    final: bool
    merged: Partition | None = field(default=None, repr=False)

    def root(self) -> Partition:
        """Return the partition that this one has been merged into."""
        root = self
        while root.merged is not None:
            root = root.merged
        return root


def build_partitions(
    nodes: Sequence[ir.Node],
    fuses: Callable[[ir.Node], bool],
    ends: Callable[[ir.Node], Sequence[ir.Value]],
) -> list[Partition]:
    """Port BuildPartitions: grow nodes into graphs along their inputs.

    A node joins the graphs that its inputs come from and merges them, unless they are final; a
    graph is final once something that cannot be in a graph has used it.

    Args:
        nodes: The nodes of the graph in the order of a run.
        fuses: Whether a node may be in a DirectML graph.
        ends: What a node makes; of a node with its activation, what the activation makes.
    """
    parts: list[Partition] = []
    made_by: dict[ir.Value, Partition] = {}
    for node in nodes:
        before = [made_by[x].root() for x in node.inputs if x is not None and x in made_by]
        if not fuses(node):
            for part in before:
                part.final = True
            home = Partition([node], fuses=False, final=True)
            parts.append(home)
        else:
            joined = [part for part in before if not part.final]
            if not joined:
                joined = [Partition([], fuses=True, final=False)]
                parts += joined
            home = joined[0]
            home.nodes.append(node)
            for part in joined[1:]:
                if part.root() is not home:
                    home.nodes[:0] = part.nodes
                    part.merged = home
        for value in ends(node):
            made_by[value] = home
    return [part for part in parts if part.merged is None]


def fusion_obstacle(
    node: ir.Node, kernel: Kernel, outputs: Sequence[ir.Value], dims: Collection[str]
) -> str | None:
    """Return why a node on DirectML cannot be in a graph of several, or None.

    Args:
        node: The node.
        kernel: Its kernel.
        outputs: What it makes; of a node with its activation, what the activation makes.
        dims: The symbolic dims of the model's inputs, which a user may fix.
    """
    if not kernel.fuses:
        return f"{node.op_type} cannot be part of a fused graph"
    for i in sorted(kernel.cpu_inputs):
        value = input_at(node, i)
        if value is not None and not value.is_initializer():
            return "an input that the CPU reads is computed, not constant"
    values = [x for x in (*node.inputs, *outputs) if x is not None and x.name]
    if any(not is_static(x) for x in values):
        sizes = {str(dim) for x in values for dim in x.shape or ()}
        return OPEN if sizes & set(dims) else "a size is known only in a run"
    read = [node.inputs[i] for i in kernel.cpu_inputs if i < len(node.inputs)]
    if any(0 in (x.shape or ()) for x in values if x not in read):
        return "a tensor is empty"
    if kernel.inputs_to_fuse is not None and len(node.inputs) != kernel.inputs_to_fuse:
        return f"{node.op_type} has {len(node.inputs)} inputs, not {kernel.inputs_to_fuse}"
    return None


def is_static(value: ir.Value | None) -> bool:
    """Return whether every size of a value is known when the session is made."""
    if value is None or not value.name:
        return True
    return value.shape is not None and all(isinstance(x, int) for x in value.shape)


def control_flow_op(graph: ir.Graph) -> str | None:
    """Return the operator with a graph of its own that keeps its graph from being fused, if any."""
    return next((node.op_type for node in graph if bodies_of(node)), None)
