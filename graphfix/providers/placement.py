"""Nodes that a provider takes, and those that it leaves to the CPU, with the reason.

As GetCapability does, of DirectML (providers/dml/.../ExecutionProvider.cpp) and of WebGPU
(providers/webgpu/webgpu_execution_provider.cc): a node is taken if there is a kernel for its
version and types that does not refuse it, and, on DirectML, if it is not one of those that
GetCpuPreferredNodes (framework/fallback_cpu_capability.cc) keeps on the CPU because they only
compute with what is there already. Each graph, also one inside an If or a Loop, is looked at by
itself.
"""

import abc
import heapq
from collections.abc import Mapping
from typing import ClassVar, Generic

import onnx_ir as ir

from graphfix.facts.shapes import Shapes
from graphfix.providers.kernels import (
    K,
    Kernel,
    KernelTable,
    since_version,
    standard_domain,
    unsupported_type,
)

SHAPE_WORK = "computes a shape, from values that are on the CPU"

_SMALL = 100
_HALF = frozenset(
    {ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.FLOAT8E4M3FN}
    | {ir.DataType.FLOAT8E4M3FNUZ, ir.DataType.FLOAT8E5M2, ir.DataType.FLOAT8E5M2FNUZ}
)


class PlacementRules(abc.ABC, Generic[K]):
    """A provider's choice of nodes in a model that ONNX Runtime's optimizer has changed.

    Args:
        opsets: The opset of each domain.
        shapes: Types and shapes of the model's values.

    Attributes:
        label: What the provider is called in a sentence.
        table: Its kernels.
        leaves_shape_work: Whether it leaves to the CPU what only computes with what is there.
    """

    label: ClassVar[str]
    table: KernelTable[K]
    leaves_shape_work: ClassVar[bool] = True

    def __init__(self, opsets: Mapping[str, int], shapes: Shapes) -> None:
        self.opsets = {standard_domain(domain): version for domain, version in opsets.items()}
        self.shapes = shapes

    def kernel_of(self, node: ir.Node) -> K | None:
        """Return the kernel for the node's version and types, which may still refuse it."""
        opset = self._opset_of(node)
        kernel = self.table.kernel_at(node.op_type, node.domain, opset)
        if kernel is None or unsupported_type(node, kernel, opset, self.shapes) is not None:
            return None
        return kernel

    def any_kernel(self, node: ir.Node) -> K | None:
        """Return a kernel of a fused operator, whose version the file does not declare."""
        versions = self.table.versions(node.op_type, node.domain)
        return self.table.kernel_for(node.op_type, node.domain, versions[-1]) if versions else None

    def cpu_nodes(self, graph: ir.Graph) -> dict[ir.Node, str]:
        """Return the nodes of one graph that stay on the CPU, each with the reason."""
        kernels = {node: self.kernel_of(node) for node in graph}
        preferred = (
            _cpu_preferred_nodes(graph, kernels, self.shapes) if self.leaves_shape_work else ()
        )
        reasons = dict.fromkeys(preferred, SHAPE_WORK)
        for node, kernel in kernels.items():
            reason = (
                self._missing_kernel_reason(node)
                if kernel is None
                else self.refusal_of(node, kernel)
            )
            if reason is not None:
                reasons[node] = reason
        return reasons

    @abc.abstractmethod
    def refusal_of(self, node: ir.Node, kernel: K) -> str | None:
        """Return why the provider refuses a node for which it has a kernel, or None."""

    def _opset_of(self, node: ir.Node) -> int:
        """Return the opset of a node's domain; 1 if the model does not say."""
        return self.opsets.get(standard_domain(node.domain), 1)

    def _missing_kernel_reason(self, node: ir.Node) -> str:
        op, domain, opset = node.op_type, node.domain, self._opset_of(node)
        since, table = since_version(op, domain, opset), self.table
        if not table.versions(op, domain) or since is None:
            return f"{self.label} has no kernel for {op}"
        kernel = table.kernel_for(op, domain, since)
        if kernel is not None:
            dtype = unsupported_type(node, kernel, opset, self.shapes)
            return f"{self.label} has no kernel for {op} of {dtype}"
        best = table.newest_opset(op, domain, opset)
        last = f", the last is of opset {best}" if best is not None else ""
        return f"{self.label} has no kernel for {op}-{since}{last}"


def _cpu_preferred_nodes(
    graph: ir.Graph, kernels: Mapping[ir.Node, Kernel | None], shapes: Shapes
) -> set[ir.Node]:
    """Port GetCpuPreferredNodes: the nodes that read CPU outputs of Shape and similar nodes."""
    order = {node: i for i, node in enumerate(graph)}
    nodes = list(order)
    graph_inputs = set(graph.inputs)
    on_cpu: set[ir.Value] = set()
    waiting: list[int] = []

    def push_readers(value: ir.Value) -> None:
        for use in value.uses():
            if use.node in order:
                heapq.heappush(waiting, order[use.node])

    for node, kernel in kernels.items():
        for i in kernel.cpu_outputs if kernel is not None else ():
            if i < len(node.outputs):
                on_cpu.add(node.outputs[i])
                push_readers(node.outputs[i])
    preferred: set[ir.Node] = set()
    popped: set[int] = set()
    while waiting:
        number = heapq.heappop(waiting)
        if number in popped:
            continue
        popped.add(number)
        node = nodes[number]
        kernel = kernels[node]
        if kernel is None or _stays_on_cpu(node, kernel, graph_inputs, on_cpu, shapes):
            if kernel is not None:
                preferred.add(node)
            on_cpu.update(node.outputs)
            for value in node.outputs:
                push_readers(value)
    return preferred


def _stays_on_cpu(
    node: ir.Node,
    kernel: Kernel,
    graph_inputs: set[ir.Value],
    on_cpu: set[ir.Value],
    shapes: Shapes,
) -> bool:
    """Return whether every input is on the CPU, and the kernel does not itself want it there."""
    for i, value in enumerate(node.inputs):
        # What is absent ONNX Runtime looks for among the CPU's tensors, in vain.
        if value is None or shapes.dtype(value) in _HALF:
            return False
        if _is_small(value) or value in graph_inputs:
            continue
        if value not in on_cpu or i in kernel.cpu_inputs:
            return False
    return True


def _is_small(value: ir.Value) -> bool:
    tensor = value.const_value
    return value.is_initializer() and tensor is not None and tensor.size <= _SMALL
