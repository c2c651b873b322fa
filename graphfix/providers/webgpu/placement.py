"""Nodes that WebGPU takes, and those that it leaves to the CPU, with the reason.

``kernels.csv`` has its kernels, as onnxruntime-webgpu itself answers where a node of each version
and type would run (``python -m tests.webgpu.kernels``); its first line names the version.
"""

from dataclasses import dataclass

import onnx_ir as ir

from graphfix.graph.nodes import input_at
from graphfix.providers import kernels, placement
from graphfix.providers.kernels import KernelTable, Row, parse_numbers
from graphfix.providers.table import PROVIDERS


@dataclass(frozen=True)
class Kernel(kernels.Kernel):
    """One kernel of WebGPU's execution provider.

    Attributes:
        refused_inputs: The optional inputs with which a node is left to the CPU.
    """

    refused_inputs: frozenset[int]


def _parse_kernel(row: Row, kernel: kernels.Kernel) -> Kernel:
    return Kernel(**vars(kernel), refused_inputs=parse_numbers(row["refused_inputs"]))


TABLE = KernelTable("graphfix.providers.webgpu", "kernels.csv", _parse_kernel, skip=1)


class PlacementRules(placement.PlacementRules[Kernel]):
    """WebGPU's choice of nodes in a model that ONNX Runtime's optimizer has changed."""

    label = PROVIDERS["webgpu"].label
    table = TABLE
    # Shapes are int64, for which it has hardly a kernel. In profiles of 1.27.0 no node that has one
    # ran on the CPU, whatever computes its inputs.
    leaves_shape_work = False

    def refusal_of(self, node: ir.Node, kernel: Kernel) -> str | None:
        """Return why WebGPU refuses a node for which it has a kernel, or None."""
        refused = [i for i in sorted(kernel.refused_inputs) if input_at(node, i) is not None]
        if not refused:
            return None
        return f"{self.label}'s {node.op_type} refuses input {refused[0]}"
