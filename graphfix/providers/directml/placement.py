"""Nodes that DirectML takes, and those that it leaves to the CPU, with the reason.

As ExecutionProviderImpl::GetCapability does (providers/dml/.../ExecutionProvider.cpp): a node is
taken if there is a kernel for its version and types that does not refuse it, and if it is not one
of those that GetCpuPreferredNodes (framework/fallback_cpu_capability.cc) keeps on the CPU because
they only compute with what is there already. Each graph, also one inside an If or a Loop, is
looked at by itself.
"""

import heapq
from collections.abc import Iterator, Mapping

import onnx_ir as ir

from graphfix.facts.shapes import Shapes
from graphfix.ops.schemas import schema_of
from graphfix.ops.signatures import op_signature
from graphfix.providers.directml import kernel_table
from graphfix.providers.directml.kernel_table import Kernel, standard_domain
from graphfix.providers.directml.support_queries import refusal_reason

SHAPE_WORK = "computes a shape, from values that are on the CPU"

_SMALL = 100
_HALF = frozenset(
    {ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.FLOAT8E4M3FN}
    | {ir.DataType.FLOAT8E4M3FNUZ, ir.DataType.FLOAT8E5M2, ir.DataType.FLOAT8E5M2FNUZ}
)
# What DirectML has a tensor type for (GetDmlDataTypeFromMlDataTypeNoThrow).
_KNOWN = frozenset(
    ir.DataType[name]
    for name in (
        *("FLOAT", "FLOAT16", "DOUBLE", "BOOL", "INT8", "INT16", "INT32", "INT64", "INT4"),
        *("UINT8", "UINT16", "UINT32", "UINT64", "UINT4"),
    )
)


class PlacementRules:
    """DirectML's choice of nodes in a model that ONNX Runtime's optimizer has changed.

    Args:
        opsets: The opset of each domain.
        shapes: Types and shapes of the model's values.
    """

    def __init__(self, opsets: Mapping[str, int], shapes: Shapes) -> None:
        self.opsets = {standard_domain(domain): version for domain, version in opsets.items()}
        self.shapes = shapes

    def kernel_of(self, node: ir.Node) -> Kernel | None:
        """Return the kernel for the node's version and types, which may still refuse it."""
        kernel = kernel_table.kernel_at(node.op_type, node.domain, self._opset_of(node))
        if kernel is None or self._unsupported_type(node, kernel) is not None:
            return None
        return kernel

    def cpu_nodes(self, graph: ir.Graph) -> dict[ir.Node, str]:
        """Return the nodes of one graph that stay on the CPU, each with the reason."""
        kernels = {node: self.kernel_of(node) for node in graph}
        reasons = dict.fromkeys(_cpu_preferred_nodes(graph, kernels, self.shapes), SHAPE_WORK)
        for node, kernel in kernels.items():
            reason = (
                self._missing_kernel_reason(node)
                if kernel is None
                else self._refused_reason(node, kernel)
            )
            if reason is not None:
                reasons[node] = reason
        return reasons

    def _opset_of(self, node: ir.Node) -> int:
        """Return the opset of a node's domain; 1 if the model does not say."""
        return self.opsets.get(standard_domain(node.domain), 1)

    def _unsupported_type(self, node: ir.Node, kernel: Kernel) -> str | None:
        """Return the type that a kernel is not registered for."""
        schema = schema_of(node.op_type, self._opset_of(node), node.domain)
        if schema is None:
            typed = _contrib_types(node, self.shapes)
            unfit = (x for variable, x in typed if not kernel.accepts_type(variable, x))
        else:
            typed_values = kernel_table.typed_values(node, schema, self.shapes.dtype)
            unfit = (
                x for formal, _, x in typed_values if not kernel.accepts_type(formal.type_str, x)
            )
        return next((x.name.lower() for x in unfit), None)

    def _missing_kernel_reason(self, node: ir.Node) -> str:
        op, domain, opset = node.op_type, node.domain, self._opset_of(node)
        since = kernel_table.since_version(op, domain, opset)
        if not kernel_table.kernel_versions(op, domain) or since is None:
            return f"DirectML has no kernel for {op}"
        kernel = kernel_table.kernel_for(op, domain, since)
        if kernel is not None:
            return f"DirectML has no kernel for {op} of {self._unsupported_type(node, kernel)}"
        best = kernel_table.newest_opset_with_kernel(op, domain, opset)
        last = f", the last is of opset {best}" if best is not None else ""
        return f"DirectML has no kernel for {op}-{since}{last}"

    def _refused_reason(self, node: ir.Node, kernel: Kernel) -> str | None:
        reason = refusal_reason(node, kernel, self.shapes)
        if reason is not None:
            return f"DirectML's {node.op_type} refuses {reason}"
        for value in (*node.inputs, *node.outputs):
            if value is None or not value.name:
                continue
            dtype = self.shapes.dtype(value)
            if dtype is not None and dtype not in _KNOWN:
                return f"DirectML has no tensors of {dtype.name.lower()}"
        return None


def _contrib_types(node: ir.Node, shapes: Shapes) -> Iterator[tuple[str, ir.DataType]]:
    """Yield the type variable and the type of each input and output of com.microsoft's."""
    signature = op_signature(node.op_type, node.domain, 1)
    if signature is None:
        return
    for values, variable_at in (
        (node.inputs, signature.input_variable),
        (node.outputs, signature.output_variable),
    ):
        for i, value in enumerate(values):
            variable, dtype = variable_at(i), shapes.dtype(value)
            if variable is not None and dtype is not None:
                yield variable, dtype


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
