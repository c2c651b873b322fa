"""Prediction, without DirectML, of what ONNX Runtime does with a model on DirectML.

Besides what every provider does (:mod:`graphfix.providers.plan`), DirectML fuses nodes
(:mod:`fusing`).
"""

from collections.abc import Callable, Sequence

import onnx_ir as ir

from graphfix.graph.dims import is_static
from graphfix.graph.text import node_label
from graphfix.providers.directml import fusing
from graphfix.providers.directml.kernel_table import Kernel
from graphfix.providers.directml.placement import PlacementRules
from graphfix.providers.node_tracing import Fate
from graphfix.providers.plan import NodePlacement, Planner, Step

_LOST = (
    "{0!r} is an output and feeds a {2}: DirectML makes one of {1} and {2}, loses the output, and "
    "the session cannot be made; the pass keep-output repairs it"
)


class DirectMLPlanner(Planner[Kernel]):
    """Builds a plan for DirectML."""

    ep, rules = "dml", PlacementRules
    foreign = (
        *("GemmActivationFusion", "DynamicQuantizeMatMulFusion", "ConvActivationFusion"),
        *("SimplifiedLayerNormFusion", "GatherSliceToSplitFusion", "GatherToSliceFusion"),
        *("BiasSoftmaxFusion", "MatMulNBitsFusion", "QDQS8ToU8Transformer"),
    )

    def __init__(self, model: ir.Model, basic: ir.Model, extended: ir.Model) -> None:
        super().__init__(model, basic, extended)
        self._unfused: dict[ir.Node, str] = {}

    def placement_of(self, node: ir.Node, fate: Fate) -> NodePlacement:
        """Return where a node of the model runs."""
        place = super().placement_of(node, fate)
        if place.where != "dml":
            return place
        assert fate.node is not None
        if (reason := self._unfused.get(fate.node)) is not None:
            return NodePlacement(node_label(node), node.op_type, "dml", reason, place.step)
        return NodePlacement(node_label(node), node.op_type, "fused", fate.how, place.step)

    def plan_graph(self, graph: ir.Graph) -> None:
        """Append the steps of one graph."""
        nodes = self.run_order(graph)
        fused_into = fusing.fused_activations(nodes, self.kernels)
        activation_of = {home: after for after, home in fused_into.items()}
        for home, after in activation_of.items():
            lost = (x.name for x in home.outputs if x.is_graph_output())
            self.notes += [_LOST.format(name, home.op_type, after.op_type) for name in lost]

        def outputs_of(node: ir.Node) -> Sequence[ir.Value]:
            return activation_of.get(node, node).outputs

        heads = [node for node in nodes if node not in fused_into]
        self._find_obstacles(graph, heads, outputs_of)
        fusible = self.kernels.keys() - self._unfused.keys()
        for part in fusing.build_partitions(heads, lambda x: x in fusible, outputs_of):
            for node in part.nodes:
                self.step_of[node] = len(self.steps)
            self.steps.append(self._make_step(part, outputs_of))
        for home, after in activation_of.items():
            self.step_of[after] = self.step_of[home]
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
            kernel = self.kernels.get(node)
            if kernel is None:
                continue
            reason = control_flow_reason or fusing.fusion_obstacle(
                node, kernel, outputs_of(node), self.dims
            )
            if reason is not None:
                self._unfused[node] = reason

    def _make_step(
        self, part: fusing.Partition, outputs_of: Callable[[ir.Node], Sequence[ir.Value]]
    ) -> Step:
        if part.fuses:
            return Step(f"a graph of {len(part.nodes)} nodes", "graph", len(part.nodes), False)
        node = part.nodes[0]
        kernel = self.kernels.get(node)
        name = f"{node.op_type} {node.name}"
        if kernel is None:
            return Step(name, "cpu", 1, recompiled=False)
        varies = any(not is_static(x) for x in (*node.inputs, *outputs_of(node)))
        cpu_values = (node.inputs[i] for i in kernel.cpu_inputs if i < len(node.inputs))
        varies |= any(x is not None and not x.is_initializer() for x in cpu_values)
        # What makes no tensor on the device has no operator there that could be recompiled.
        return Step(name, "dml", 1, recompiled=varies and not kernel.cpu_outputs)
