"""Rules for shapes and lengths that DirectML gets wrong, or has to wait for."""

from collections.abc import Iterator
from itertools import zip_longest

import onnx_ir as ir

from graphfix import ops
from graphfix.facts.view import View
from graphfix.graph.nodes import input_at
from graphfix.graph.text import size_text
from graphfix.ops.attention import attention_slots
from graphfix.providers.directml.operator_facts import MAX_DIMS, MOST_DIMS
from graphfix.providers.directml.placement import PlacementRules
from graphfix.rules.rule import Hazard, Rule, is_fixed, is_folded


class ReshapeRank(Rule):
    """Flags a Reshape to more than 8 dims.

    Why:
        Run on onnxruntime-directml 1.24.4: a Reshape to 9 dims fails with 80070057, to 8 it runs.
        DirectML's tensors have 8 dims at most (DML_TENSOR_DIMENSION_COUNT_MAX1).

    Flagged:
        <ir_version: 8, opset_import: ["" : 17]>
        windows (float[2, 64] x) => (float[2, 2, 2, 2, 2, 2, 2, 1, 1] y)
        <int64[9] shape = {2, 2, 2, 2, 2, 2, 2, 1, 1}>
        {
            y = Reshape (x, shape)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        windows (float[2, 64] x) => (float[2, 2, 2, 2, 2, 2, 2, 1] y)
        <int64[8] shape = {2, 2, 2, 2, 2, 2, 2, 1}>
        {
            y = Reshape (x, shape)
        }
    """

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each Reshape to a tensor of too many dims."""
        for node in view.nodes("Reshape"):
            rank = view.shapes.rank(node.outputs[0])
            if rank is not None and rank > MAX_DIMS and not is_folded(node, view):
                message = f"Reshape makes {rank} dims, and DirectML has {MAX_DIMS}: 80070057"
                yield Hazard(node, message, "error")


class KernelRank(Rule):
    """Flags a node with more dims than its DirectML kernel takes.

    Why:
        Run on onnxruntime-directml 1.24.4, 60 operators of 3 to 8 dims: MatMul, FusedMatMul,
        MatMulInteger, QLinearMatMul, DynamicQuantizeMatMul, Trilu and DynamicQuantizeLinear of five
        dims end in 80070057, of four they run; so do Resize and Upsample with five dims that are
        not 1, and Conv and ConvTranspose of six. The others take eight. Microsoft's pages say so of
        DML_GEMM_OPERATOR_DESC and DML_RESAMPLE_OPERATOR_DESC.

    Flagged:
        <ir_version: 8, opset_import: ["" : 17]>
        windows (float[B, 3, 4, 8, 2] q, float[B, 3, 4, 2, 8] k) => (float[B, 3, 4, 8, 8] y)
        {
            y = MatMul (q, k)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        windows (float[B, 4, 8, 2] q, float[B, 4, 2, 8] k) => (float[B, 4, 8, 8] y)
        {
            y = MatMul (q, k)
        }
    """

    matched_by = ("matmul-4d", "resize-4d")

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each node of too many dims that has a kernel on DirectML."""
        rules = PlacementRules(view.model.graph.opset_imports, view.shapes)
        for node in view.nodes(*MOST_DIMS):
            most = MOST_DIMS[ops.qualified_name(node)]
            rank = _counted_dims(node, view)
            if rank > most and rules.kernel_of(node) is not None and not is_folded(node, view):
                # Their kernels count the dims alone that are not 1.
                but = " that are not 1" if node in ops.RESIZES else ""
                message = f"{node.op_type} of {rank} dims{but}, and DirectML takes {most}"
                yield Hazard(node, message, "error")


def _counted_dims(node: ir.Node, view: View) -> int:
    shapes = view.shapes
    if node not in ops.RESIZES:
        return max(shapes.rank(x) or 0 for x in (*node.inputs[:2], node.outputs[0]))
    in_dims, out_dims = (shapes.dims(x[0]) if x else () for x in (node.inputs, node.outputs))
    return sum(a != 1 or b != 1 for a, b in zip_longest(in_dims or (), out_dims or ()))


class SkipBroadcast(Rule):
    """Flags a SkipLayerNormalization whose skip is to be repeated for each row.

    Why:
        Run on onnxruntime-directml 1.24.4: with a skip of [1, T, C] or [T, C] beside an input of
        [B, T, C] the numbers are others wherever B is not 1, by as much as they are large, in
        silence; SkipSimplifiedLayerNormalization is alike. On the CPU the skip is repeated.
        onnxruntime.transformers 1.32 fuses positions so (of Paraformer and Qwen3-ASR, for example).

    Flagged:
        <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        embed (float[B, T, 4] x, float[1, T, 4] places) => (float[B, T, 4] y)
        <float[4] scale = {1, 1, 1, 1}, float[4] bias = {0, 0, 0, 0}>
        {
            y = com.microsoft.SkipLayerNormalization (x, places, scale, bias)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        embed (float[B, T, 4] x, float[1, T, 4] places) => (float[B, T, 4] y)
        <float[4] scale = {1, 1, 1, 1}, float[4] bias = {0, 0, 0, 0}>
        {
            sum = Add (x, places)
            y = LayerNormalization (sum, scale, bias)
        }
    """

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each skip that has a dim of 1, or one less, where the input has more."""
        kinds = ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
        for node in view.nodes(*(f"com.microsoft.{x}" for x in kinds)):
            data, skip = (view.shapes.dims(x) or () for x in node.inputs[:2])
            aligned_skip = (1,) * (len(data) - len(skip)) + skip
            if skip and any(a != 1 and b == 1 for a, b in zip(data, aligned_skip, strict=False)):
                small, large = (", ".join(map(size_text, x)) for x in (skip, data))
                message = (
                    f"DirectML does not repeat its skip of [{small}] for [{large}], in silence"
                )
                yield Hazard(node, f"{message}; Add and LayerNormalization are right", "error")


class LostPast(Rule):
    """Flags a GroupQueryAttention with a past, which DirectML reads in place.

    Why:
        Run on onnxruntime-directml 1.24.4: DirectML writes the new keys and values into the
        present and takes the old ones to be there, so past and present must be one buffer, bound by
        IOBinding. Run with session.run, the past is lost: what lay in memory takes its place, off
        by up to 1.3e4, whether the past grows or has a fixed size. Without a past it is right, and
        so is MultiHeadAttention with one.

    Flagged:
        <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        step (float[B, S, 32] q, float[B, S, 16] k, float[B, S, 16] v, float[B, 2, P, 8] pk,
            float[B, 2, P, 8] pv, int32[B] last, int32 total)
            => (float[B, S, 32] y, float[B, 2, Q, 8] nk, float[B, 2, Q, 8] nv)
        {
            y, nk, nv = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2>
                (q, k, v, pk, pv, last, total)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        step (float[B, S, 32] q, float[B, S, 32] k, float[B, S, 32] v, float[B, 4, P, 8] pk,
            float[B, 4, P, 8] pv)
            => (float[B, S, 32] y, float[B, 4, Q, 8] nk, float[B, 4, Q, 8] nv)
        {
            y, nk, nv = com.microsoft.MultiHeadAttention <num_heads = 4>
                (q, k, v, , , , pk, pv)
        }
    """

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each one that has a past, which may have elements."""
        for node in view.nodes("com.microsoft.GroupQueryAttention"):
            slots = attention_slots(node)
            pasts = [input_at(node, i) for i in slots.pasts] if slots is not None else []
            past = next((x for x in pasts if x is not None), None)
            if past is not None and 0 not in (view.shapes.dims(past) or ()):
                message = f"its past {past.name!r} is lost, unless past and present are one buffer"
                yield Hazard(node, f"{message} (IOBinding)", "error")


class DataDependent(Rule):
    """Flags tensors whose size depends on the values of another.

    Why:
        NonZero, Compress, Unique and NonMaxSuppression, and a Slice whose ends are computed from
        data, make shapes that nobody knows before the run. The count has to come back to the CPU
        first, which waits for all that was queued on the GPU. What follows cannot fuse either, and
        its kernels are recompiled for each result (ORT MLOperatorAuthorImpl.cpp 2511-2691).

    Flagged:
        <ir_version: 8, opset_import: ["" : 17]>
        voiced (float[T, 8] x, bool[T] keep) => (int64[1, N] y)
        {
            y = NonZero (keep)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        voiced (float[T, 8] x, bool[T, 1] keep) => (float[T, 8] y)
        <float none = {0.0}>
        {
            y = Where (keep, x, none)
        }
    """

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each node whose output size, and each Slice whose cut, depends on data."""
        for node in view.nodes(*(ops.COUNTS_CONTENTS - ops.HAS_BODY), "Slice"):
            if is_folded(node, view):
                continue
            if node.op_type != "Slice":
                yield Hazard(node, f"how much {node.op_type} returns depends on the data")
                continue
            ends = [x for x in node.inputs[1:3] if x is not None and not is_fixed(x, view)]
            if unknown := [x.name for x in ends if view.shapes.known_elements(x) is None]:
                names = " and ".join(map(repr, unknown))
                yield Hazard(node, f"where Slice cuts is computed from data, by {names}")
