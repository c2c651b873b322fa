"""Nodes that DirectML leaves to the CPU, or for which no provider has a kernel."""

from collections.abc import Iterator

import onnx_ir as ir

from graphfix import ops
from graphfix.core import Severity
from graphfix.facts.view import View
from graphfix.graph.walks import all_nodes
from graphfix.ops.schemas import schema_of
from graphfix.providers import kernels
from graphfix.providers.directml import cpu_kernels, kernel_table, support_queries
from graphfix.providers.directml.kernel_table import Kernel
from graphfix.rules.rule import Hazard, Rule, is_folded

# The opset that the pass opset-ceiling takes a model down to.
_CEILING = 21
_KNOWN_DOMAINS = ("", "ai.onnx.ml", "com.microsoft")


class NoKernel(Rule):
    """Flags an operator without a DirectML kernel, or without one in this opset.

    Why:
        DirectML registers its kernels open-ended, and such a kernel matches only the very version
        that it was registered for (ORT framework/kernel_registry.cc, VerifyVersion, line 120). An
        operator that was revised after opset 21 has none there. The node runs on the CPU, with a
        copy between devices on each side. Run on onnxruntime-directml 1.24.4: three encoders at
        opset 23 have 19 to 74 nodes on the CPU and as many copies; at opset 21, 0 to 8 nodes and
        one copy at most.

    Flagged:
        <ir_version: 10, opset_import: ["" : 22]>
        stem (float[B, 4, T] x, float[8, 4, 1] w) => (float[B, 8, T] y)
        {
            y = Conv <kernel_shape = [1]> (x, w)
        }

    Clean:
        <ir_version: 10, opset_import: ["" : 21]>
        stem (float[B, 4, T] x, float[8, 4, 1] w) => (float[B, 8, T] y)
        {
            y = Conv <kernel_shape = [1]> (x, w)
        }
    """

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each node whose operator has no kernel of its version."""
        for node, opset, kernel in _nodes_with_kernels(view):
            if kernel is None:
                newest = kernel_table.newest_opset_with_kernel(node.op_type, node.domain, opset + 1)
                yield _hazard_without_kernel(node, opset, newest, view)


class TypeWithoutKernel(Rule):
    """Flags an element type that DirectML's kernel for the operator does not take.

    Integers that only compute shapes are left out: they are worked out on the CPU anyway.

    Why:
        Each kernel lists the types that it takes (ORT OperatorRegistration.cpp; the table is
        graphfix/providers/directml/ops.csv). Mod has no int64, Range no float16, Equal no bool. The
        node runs on the CPU, with a copy between devices on each side.

    Flagged:
        <ir_version: 8, opset_import: ["" : 17]>
        window (int64[N] ids, int64 size) => (int64[N] y)
        {
            y = Mod (ids, size)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        window (int32[N] ids, int32 size) => (int32[N] y)
        {
            y = Mod (ids, size)
        }
    """

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each node with a type that its kernel does not take."""
        for node, opset, kernel in _nodes_with_kernels(view):
            schema = schema_of(node.op_type, opset, node.domain)
            sizes = any(view.shapes.known_elements(x) is not None for x in node.outputs)
            if kernel is None or schema is None or sizes:
                continue
            for formal, value, dtype in kernels.typed_values(node, schema, view.shapes.dtype):
                if not kernel.accepts_type(formal.type_str, dtype):
                    limitation = f"{node.op_type} takes no {dtype.name.lower()}"
                    fallback, severity = _fallback(node, opset, view)
                    message = f"on DirectML {limitation}, as {value.name!r} is: {fallback}"
                    yield Hazard(node, message, severity)
                    break


class RefusedByKernel(Rule):
    """Flags attributes or inputs that DirectML's kernel for the operator refuses.

    Why:
        Fourteen kernels have a function that looks at the node first (ORT
        OperatorRegistration.cpp, the Query functions; their words are in
        graphfix/providers/directml/ops.csv): Slice runs with 5 inputs at most, Resize not in
        mode=cubic, Scatter only with reduction=none. What is refused runs on the CPU, with a copy
        between devices on each side.

    Flagged:
        <ir_version: 8, opset_import: ["" : 17]>
        larger (float[1, 1, 4, 4] x) => (float[1, 1, 8, 8] y)
        <float[4] scales = {1, 1, 2, 2}>
        {
            y = Resize <mode = "cubic"> (x, , scales)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        larger (float[1, 1, 4, 4] x) => (float[1, 1, 8, 8] y)
        <float[4] scales = {1, 1, 2, 2}>
        {
            y = Resize <mode = "linear"> (x, , scales)
        }
    """

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each node that a Query function refuses."""
        for node, opset, kernel in _nodes_with_kernels(view):
            if kernel is not None and (
                reason := support_queries.refusal_reason(node, kernel, view.shapes)
            ):
                fallback, severity = _fallback(node, opset, view)
                message = f"DirectML refuses {node.op_type} with {reason}: {fallback}"
                yield Hazard(node, message, severity)


class NoCpuKernel(Rule):
    """Flags a node for which the CPU provider has no kernel.

    Why:
        ONNX Runtime then makes no session: "Could not find an implementation for EyeLike(9)". Its
        CPU provider lists the types of each kernel (get_all_opkernel_def of onnxruntime 1.32.0;
        the table is graphfix/providers/directml/cpu_kernels.csv): EyeLike has no bool, Relu no
        int64. DirectML has some that the CPU lacks, and then runs the model.

    Flagged:
        <ir_version: 8, opset_import: ["" : 17]>
        diagonal (float[N, N] x) => (bool[N, N] y)
        {
            y = EyeLike <dtype = 9> (x)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        diagonal (float[N, N] x) => (bool[N, N] y)
        {
            ones = EyeLike <dtype = 1> (x)
            y = Cast <to = 9> (ones)
        }
    """

    providers = ("cpu",)

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each node without a kernel of its version and types."""
        for node in all_nodes(view.model):
            opset = view.opset_of_node(node)
            is_local = node.op_identifier() in view.model.functions
            if not is_local and cpu_kernels.runs_on_cpu(node, opset, view.shapes.dtype) is False:
                yield Hazard(node, _cpu_limitation(node, opset, view), "error")


def _fallback(node: ir.Node, opset: int, view: View) -> tuple[str, Severity]:
    """Return what becomes of a node that DirectML does not run, and how bad that is."""
    if kernels.standard_domain(node.domain) not in _KNOWN_DOMAINS:
        return "it runs where its library of custom operators runs it", "warning"
    if node.domain != "com.microsoft" and schema_of(node.op_type, opset, node.domain) is None:
        return "ONNX has no such operator", "warning"
    if cpu_kernels.runs_on_cpu(node, opset, view.shapes.dtype) is False:
        return f"no provider runs it, as {_cpu_limitation(node, opset, view)}", "error"
    return "it runs on the CPU", "warning"


def _cpu_limitation(node: ir.Node, opset: int, view: View) -> str:
    """Say that the CPU has no kernel for a node, and for which types it has one."""
    types = cpu_kernels.accepted_types(node, opset, view.shapes.dtype)
    wanted = f"; it takes {types}" if types else " in this opset"
    runtime = f"ONNX Runtime {cpu_kernels.version()}"
    return f"the CPU of {runtime} has no kernel for this {node.op_type}{wanted}"


def _hazard_without_kernel(node: ir.Node, opset: int, newest: int | None, view: View) -> Hazard:
    """Return the hazard of a node without a kernel; ``newest`` is the last opset that has one."""
    availability, fix = "in any version", None
    if kernels.standard_domain(node.domain) == "" and newest is not None:
        availability = f"of opset {opset}; the newest opset with one is {newest}"
        fix = "opset-ceiling" if newest >= _CEILING else None
    name = ops.qualified_name(node)
    fallback, severity = _fallback(node, opset, view)
    message = f"DirectML has no kernel for {name} {availability}: {fallback}"
    return Hazard(node, message, severity, fix)


def _nodes_with_kernels(view: View) -> Iterator[tuple[ir.Node, int, Kernel | None]]:
    """Yield each node that runs, its opset, and the kernel of exactly its version."""
    for node in all_nodes(view.model):
        is_local = node.op_identifier() in view.model.functions
        if is_local or node in ops.HAS_BODY or is_folded(node, view):
            continue
        opset = view.opset_of_node(node)
        yield node, opset, kernel_table.kernel_at(node.op_type, node.domain, opset)
