"""Prediction, without WebGPU, of what ONNX Runtime does with a model on WebGPU."""

import onnx_ir as ir

from graphfix.graph.nodes import is_op
from graphfix.providers.plan import Planner
from graphfix.providers.webgpu.placement import Kernel, PlacementRules

_LAYOUT = (
    "ONNX Runtime computes convolutions with channels last on WebGPU; what it adds for that, such "
    "as Transposes, is not predicted"
)


class WebGPUPlanner(Planner[Kernel]):
    """Builds a plan for WebGPU, which fuses no nodes itself."""

    ep, rules = "webgpu", PlacementRules
    # Compared with profiles of onnxruntime-webgpu 1.27.0.
    foreign = (
        *("GemmActivationFusion", "DynamicQuantizeMatMulFusion", "MatMulNBitsFusion"),
        *("GatherSliceToSplitFusion", "GatherToSliceFusion", "BiasSoftmaxFusion"),
        *("MatMulScaleFusion", "MatmulTransposeFusion", "QDQS8ToU8Transformer"),
        *("SimplifiedLayerNormFusion", "LayerNormFusionL2", "GeluFusionL2"),
    )

    def plan_graph(self, graph: ir.Graph) -> None:
        """Append the steps of one graph."""
        super().plan_graph(graph)
        convolves = any(is_op(x, "Conv", "ConvTranspose") for x in graph if x in self.kernels)
        if convolves and _LAYOUT not in self.notes:
            self.notes.append(_LAYOUT)
