"""DirectML's fusions: activations into the operator before them, and nodes into whole graphs.

The first is DmlOperatorFusionTransformer (GraphTransformer.cpp, OperatorUtility.cpp), the second
DmlGraphFusionTransformer with its partitions (GraphPartitioner.cpp), both in providers/dml.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.dims import is_static
from graphfix.graph.nodes import input_at, is_op, producer_of, use_count
from graphfix.graph.walks import bodies_of
from graphfix.ops import qualified_name
from graphfix.providers.directml.kernel_table import Kernel
from graphfix.providers.directml.operator_facts import ACTIVATIONS_TAKEN
from graphfix.providers.directml.placement import PlacementRules

OPEN = "a dim is symbolic"
CONTROL_FLOW = "with {op} in the graph, nothing of it is fused"


def fused_activations(
    nodes: Sequence[ir.Node],
    on_dml: Collection[ir.Node],
    operator_of: Callable[[ir.Node], str] = qualified_name,
) -> dict[ir.Node, ir.Node]:
    """Return the node that each activation goes into: its producer, without other readers.

    A Softmax goes into a FusedMatMul (optimizer/matmul_activation_fusion.cc, for DirectML only).

    Args:
        nodes: The nodes of a graph.
        on_dml: Those that DirectML takes.
        operator_of: The operator that a node will be by then, as :func:`qualified_name` spells it.
    """
    fused_into: dict[ir.Node, ir.Node] = {}
    for node in nodes:
        activations = ACTIVATIONS_TAKEN.get(operator_of(node))
        if activations is None or node not in on_dml:
            continue
        reader = _only_reader(node)
        if reader is None or reader not in on_dml or reader not in activations:
            continue
        takes_all = not is_op(node, "Sum") or len(node.inputs) == 2
        if takes_all and reader.graph is node.graph and len(reader.inputs) == 1:
            fused_into[reader] = node
    return fused_into


def _only_reader(node: ir.Node) -> ir.Node | None:
    """Return the node that reads what ``node`` makes, if it is read once in all."""
    uses = [use for value in node.outputs for use in value.uses()]
    return uses[0].node if len(uses) == 1 else None


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
    """Return the operator that the optimizer turns a node into before DirectML fuses anything.

    A bias goes into a Conv (ConvAddFusion, ConvMulFusion) and makes a Gemm of a MatMul of rank 2
    (MatMulAddFusion).
    """
    for i, value in enumerate(node.inputs if is_op(node, "Add", "Mul") else ()):
        producer, operand = producer_of(value), node.inputs[1 - i]
        if value is None or use_count(value) > 1 or value.is_graph_output():
            continue
        if is_op(producer, "Conv") and const_of(operand) is not None:
            return "Conv"
        if is_op(node, "Add") and _is_plain_product(producer, view):
            return "Gemm"
    return qualified_name(node)


def _is_plain_product(node: ir.Node | None, view: View) -> bool:
    """Return whether a node is a MatMul of two matrices."""
    return is_op(node, "MatMul") and all(view.shapes.rank(x) == 2 for x in node.inputs)


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
    outputs_of: Callable[[ir.Node], Sequence[ir.Value]],
) -> list[Partition]:
    """Port BuildPartitions: grow nodes into graphs along their inputs.

    A node joins the graphs that its inputs come from and merges them, unless they are final; a
    graph is final once something that cannot be in a graph has used it.

    Args:
        nodes: The nodes of the graph in the order of a run.
        fuses: Whether a node may be in a DirectML graph.
        outputs_of: The outputs of a node, or of the activation that goes into it.
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
        for value in outputs_of(node):
            made_by[value] = home
    return [part for part in parts if part.merged is None]


def fusion_obstacle(
    node: ir.Node, kernel: Kernel, outputs: Sequence[ir.Value], dims: Collection[str]
) -> str | None:
    """Return why a node on DirectML cannot be in a graph of several, or None.

    Args:
        node: The node.
        kernel: Its kernel.
        outputs: Its outputs, or those of the activation that goes into it.
        dims: The symbolic dims of the model's inputs, which a user may fix.
    """
    if not kernel.fuses:
        return f"{node.op_type} cannot be part of a fused graph"
    cpu_values = [x for i in sorted(kernel.cpu_inputs) if (x := input_at(node, i)) is not None]
    if not all(x.is_initializer() for x in cpu_values):
        return "an input that the CPU reads is computed, not constant"
    values = [x for x in (*node.inputs, *outputs) if x is not None and x.name]
    if (reason := _open_size_reason(values, dims)) is not None:
        return reason
    if any(0 in (x.shape or ()) for x in values if x not in cpu_values):
        return "a tensor is empty"
    if kernel.inputs_to_fuse not in (None, len(node.inputs)):
        return f"{node.op_type} has {len(node.inputs)} inputs, not {kernel.inputs_to_fuse}"
    return None


def _open_size_reason(values: Sequence[ir.Value], dims: Collection[str]) -> str | None:
    """Return which kind of size is not known when the session is made, or None."""
    if all(map(is_static, values)):
        return None
    sizes = {str(dim) for x in values for dim in x.shape or ()}
    return OPEN if sizes & set(dims) else "a size is known only in a run"


def control_flow_op(graph: ir.Graph) -> str | None:
    """Return the operator with a graph of its own that keeps its graph from being fused, if any."""
    return next((node.op_type for node in graph if bodies_of(node)), None)
