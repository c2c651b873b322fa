"""Nodes that run on the CPU, or wait for it, where the model runs with CUDA."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from graphfix.cuda import facts
from graphfix.directml.facts import schema_of, since_version, typed

from .base import Hazard, Provider, Rule, is_fixed, is_folded, no_kernel, nodes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from graphfix.cuda.facts import Kernel
    from graphfix.model.view import View


class NoCudaKernel(Rule):
    """CUDA has no kernel for the operator, or none for it in the model's opset.

    What only computes shapes is left out: it is worked out on the CPU anyway.

    Why:
        A kernel that ONNX Runtime registers without a last version matches only the very version
        that it was registered for (ORT framework/kernel_registry.cc, VerifyVersion). LSTM, GRU,
        ConvTranspose, MaxPool, Sin, Cos and Round were revised in opset 22, and CUDA's kernels stop
        at 21; those of Pad stop at 18 (docs/OperatorKernels.md; the table is graphfix/cuda/ops.csv,
        its source in graphfix/cuda/facts.py). The node runs on the CPU, with a copy between devices
        on each side, which waits for what was queued on the GPU.

    Flagged:
        <ir_version: 10, opset_import: ["" : 22]>
        wave (float[B, T] x) => (float[B, T] y)
        {
            y = Sin (x)
        }

    Clean:
        <ir_version: 10, opset_import: ["" : 21]>
        wave (float[B, T] x) => (float[B, T] y)
        {
            y = Sin (x)
        }
    """

    name: ClassVar[str] = "cuda-no-kernel"
    providers: ClassVar[tuple[Provider, ...]] = ("cuda",)

    def hazards(self, view: View) -> Iterator[Hazard]:
        """Each node whose operator has no kernel of its version."""
        for node, opset, kernel in _kernels(view):
            if kernel is None:
                newest = facts.newest_opset_with_kernel(node.op_type, node.domain, opset + 1)
                yield no_kernel("CUDA", node, opset, newest)


class CudaType(Rule):
    """CUDA has a kernel for the operator, but not for one of its element types.

    Integers that only compute shapes are left out: they are worked out on the CPU anyway.

    Why:
        Each kernel is registered for some types (ORT docs/OperatorKernels.md; the table is
        graphfix/cuda/ops.csv): Where takes no bool, Clip no int32, Tile no bool, MatMulInteger no
        uint8. The node runs on the CPU, with a copy between devices on each side; if the CPU has no
        such kernel either, as for a Where of bool, ONNX Runtime refuses the model.

    Flagged:
        <ir_version: 8, opset_import: ["" : 17]>
        clip (int32[N] ids) => (int32[N] y)
        <int32 least = {0}, int32 most = {99}>
        {
            y = Clip (ids, least, most)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        clip (int32[N] ids) => (int32[N] y)
        <int32 least = {0}, int32 most = {99}>
        {
            above = Max (ids, least)
            y = Min (above, most)
        }
    """

    name: ClassVar[str] = "cuda-type"
    providers: ClassVar[tuple[Provider, ...]] = ("cuda",)

    def hazards(self, view: View) -> Iterator[Hazard]:
        """Each node with a type that its kernel does not take."""
        for node, opset, kernel in _kernels(view):
            schema = schema_of(node.op_type, node.domain, opset)
            if kernel is None or schema is None:
                continue
            for constraint, value, dtype in typed(node, schema, view.shapes.dtype):
                if not kernel.takes(constraint, dtype):
                    what = f"{node.op_type} takes no {dtype.name.lower()}"
                    message = (
                        f"with CUDA {what}, as {value.name!r} is: it runs on the CPU, if there"
                    )
                    yield Hazard(node, message)
                    break


class CudaRefuses(Rule):
    """CUDA leaves the node to the CPU for its attributes, though it has a kernel for it.

    Why:
        ORT providers/cuda/cuda_execution_provider.cc, GetCapability: an LSTM, GRU or RNN with other
        activations than the usual, with clip or activation_alpha, with input_forget=1, peepholes or
        an explicit linear_before_reset=0; a ConvTranspose with auto_pad=SAME or whose pads differ
        before and behind; ArgMax and ArgMin with select_last_index=1; a Cast to string. cuDNN has
        none of them. The node runs on the CPU, with a copy between devices on each side.

    Flagged:
        <ir_version: 8, opset_import: ["" : 17]>
        upsample (float[B, 4, T] x, float[4, 3, 4] w) => (float[B, 3, U] y)
        {
            y = ConvTranspose <strides = [2], pads = [1, 2]> (x, w)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        upsample (float[B, 4, T] x, float[4, 3, 4] w) => (float[B, 3, V] y)
        <int64[1] zero = {0}, int64[1] end = {-1}, int64[1] axis = {2}>
        {
            longer = ConvTranspose <strides = [2], pads = [1, 1]> (x, w)
            y = Slice (longer, zero, end, axis)
        }
    """

    name: ClassVar[str] = "cuda-refuses"
    providers: ClassVar[tuple[Provider, ...]] = ("cuda",)

    def hazards(self, view: View) -> Iterator[Hazard]:
        """Each node that GetCapability leaves out."""
        for node, _, kernel in _kernels(view):
            if kernel is not None and (why := facts.refusal(node)):
                message = f"CUDA refuses {node.op_type} with {why}: it runs on the CPU"
                yield Hazard(node, message)


class CudaBranch(Rule):
    """An If whose condition is computed, or a Loop: the CPU decides, and waits for the GPU.

    Why:
        CUDA runs If and Loop, but their kernels read the condition on the CPU (ORT
        providers/cuda/controlflow/if.cc and loop.cc, InputMemoryType OrtMemTypeCPUInput): it is
        copied there, after all that was queued on the GPU, and for a Loop once more in each
        iteration. A graph with control flow can also not be captured as a CUDA graph
        (enable_cuda_graph; ORT session/inference_session.cc).

    Flagged:
        <ir_version: 8, opset_import: ["" : 17]>
        branch (float[4] x) => (float[4] y)
        <float zero = {0.0}>
        {
            top = ReduceMax <keepdims = 0> (x)
            flag = Greater (top, zero)
            y = If (flag) <
                then_branch = yes () => (float[4] a) { a = Relu (x) },
                else_branch = no () => (float[4] b) { b = Neg (x) }
            >
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        branch (float[4] x) => (float[4] y)
        <float zero = {0.0}>
        {
            top = ReduceMax <keepdims = 0> (x)
            flag = Greater (top, zero)
            a = Relu (x)
            b = Neg (x)
            y = Where (flag, a, b)
        }
    """

    name: ClassVar[str] = "cuda-branch"
    providers: ClassVar[tuple[Provider, ...]] = ("cuda",)

    def hazards(self, view: View) -> Iterator[Hazard]:
        """Each Loop, and each If with a condition that is computed from data."""
        for node in view.nodes("If", "Loop"):
            if node.op_type == "Loop":
                yield Hazard(node, "Loop asks the CPU in each iteration, which waits for the GPU")
                continue
            flag = node.inputs[0]
            computed = flag is not None and flag.producer() is not None and not is_fixed(flag, view)
            if computed and flag is not None and not _is_shape_work(flag, view):
                yield Hazard(node, f"If reads {flag.name!r} on the CPU, which waits for the GPU")


def _kernels(view: View) -> Iterator[tuple[ir.Node, int, Kernel | None]]:
    """Each node that runs with CUDA, its opset, and the kernel for it."""
    for node in nodes_of(view):
        if is_folded(node, view) or node.op_identifier() in view.model.functions:
            continue
        if any(_is_shape_work(x, view) for x in node.outputs):
            continue
        opset = view.opset(node)
        since = since_version(node.op_type, node.domain, opset)
        found = None if since is None else facts.kernel_for(node.op_type, node.domain, since)
        yield node, opset, found


def _is_shape_work(value: ir.Value, view: View) -> bool:
    return view.shapes.data(value) is not None
