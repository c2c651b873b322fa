"""Rules for what WebGPU refuses when it runs, does not read, or computes wrongly, by survey.csv."""

from collections.abc import Iterator

import onnx_ir as ir

from graphfix.facts.view import View
from graphfix.graph.nodes import attr_int, input_at
from graphfix.ops.attention import attention_slots
from graphfix.providers.webgpu.defects import Verdict, defect_of, load_defects
from graphfix.providers.webgpu.operator_facts import WRONG_OF_MANY_KEYS
from graphfix.rules.rule import Hazard, Rule, is_folded

# A subgroup of a device has this many lanes at least.
_FEWEST_LANES = 4


class RefusedInRun(Rule):
    """Flags a node that WebGPU takes when the session is made, and refuses when it runs.

    Why:
        Run on onnxruntime-webgpu 1.27.0 (survey.csv; the table is
        graphfix/providers/webgpu/defects.csv): such a node is not left to the CPU, as ONNX Runtime
        asks only for its types. Convolutions of three dims in groups, transposed ones of three
        dims, ThresholdedRelu in float16, a Resize with antialias, masks and g_idx of ONNX
        Runtime's own operators end each run with an error; an Attention without a bias ends the
        process.

    Flagged:
        <ir_version: 9, opset_import: ["" : 19]>
        shrink (float[1, 3, H, W] x) => (float[1, 3, U, V] y)
        <float[4] scales = {1.0, 1.0, 0.5, 0.5}>
        {
            y = Resize <mode = "linear", antialias = 1> (x, , scales)
        }

    Clean:
        <ir_version: 9, opset_import: ["" : 19]>
        shrink (float[1, 3, H, W] x) => (float[1, 3, U, V] y)
        <float[4] scales = {1.0, 1.0, 0.5, 0.5}>
        {
            y = Resize <mode = "linear"> (x, , scales)
        }
    """

    providers = ("webgpu",)
    matched_by = ("nbits-inputs",)

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each node that a row of the table is about."""
        yield from _defective(view, ("fails",), "the run fails")
        yield from _defective(view, ("dies",), "the process dies")


class Unread(Rule):
    """Flags an input or attribute that WebGPU does not read, in silence.

    Why:
        Run on onnxruntime-webgpu 1.27.0 (survey.csv; the table is
        graphfix/providers/webgpu/defects.csv): the softcap of a GroupQueryAttention is left out,
        off by 0.2; the fourth input of a FusedConv is not added, off by 2; a ReduceL1, ReduceL2,
        ReduceLogSum or ReduceSumSquare with noop_with_empty_axes and no axes returns its input,
        where ONNX Runtime's CPU takes the absolute value, logarithm or square of each number.

    Flagged:
        <ir_version: 8, opset_import: ["" : 18]>
        sizes (float[N, 4] x) => (float[N, 4] y)
        {
            y = ReduceL2 <noop_with_empty_axes = 1> (x)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 18]>
        sizes (float[N, 4] x) => (float[N, 4] y)
        {
            y = Abs (x)
        }
    """

    providers = ("webgpu",)

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each node that a row of the table is about."""
        yield from _defective(view, ("differs",), "other numbers come out, in silence")


def _defective(view: View, verdicts: tuple[Verdict, ...], outcome: str) -> Iterator[Hazard]:
    for node in view.nodes(*dict.fromkeys(x.operator for x in load_defects())):
        defect = None if is_folded(node, view) else defect_of(node, view.shapes, verdicts)
        if defect is not None:
            yield Hazard(node, f"{node.op_type}: {defect.what} on WebGPU; {outcome}", "error")


class LoneOutputs(Rule):
    """Flags a ConvTranspose in groups of several inputs and one output each.

    Why:
        Run on onnxruntime-webgpu 1.27.0 (survey.csv), of one and two dims: with 4 channels in 2
        groups and one output a group other numbers come out, by 4 to 16, in silence. With several
        outputs a group, or one input a group, as depthwise upsampling has, it is right.

    Flagged:
        <ir_version: 8, opset_import: ["" : 17]>
        up (float[B, 4, T] x, float[4, 1, 4] w) => (float[B, 2, U] y)
        {
            y = ConvTranspose <group = 2, strides = [2]> (x, w)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        up (float[B, 4, T] x, float[4, 1, 4] w) => (float[B, 4, U] y)
        {
            y = ConvTranspose <group = 4, strides = [2]> (x, w)
        }
    """

    providers = ("webgpu",)

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each by the dims of its weights."""
        for node in view.nodes("ConvTranspose"):
            dims, groups = view.shapes.dims(input_at(node, 1)), attr_int(node, "group", 1)
            if not dims or groups == 1 or is_folded(node, view):
                continue
            if dims[1] == 1 and isinstance(dims[0], int) and dims[0] > groups:
                message = f"{dims[0]} channels in {groups} groups of one output each"
                yield Hazard(node, f"{message}: other numbers come out, in silence", "error")


class ManyKeys(Rule):
    """Flags attention of more keys than a subgroup has lanes, which is wrong through Vulkan.

    Why:
        Run on onnxruntime-webgpu 1.27.0 (survey.csv), on Vulkan devices with subgroups of 4, 8 and
        16 lanes: MultiHeadAttention, GroupQueryAttention and ONNX Runtime's Attention of more keys
        than that are off by 0.05 to 0.6, in silence; of fewer, or of one query, they are right.
        Variables that the shader declares in its loop are set to zero once, before the loop.
        Direct3D and Metal were not tried.

    Flagged:
        <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        attend (float[B, S, 32] q, float[B, S, 32] k, float[B, S, 32] v) => (float[B, S, 32] y)
        {
            y = com.microsoft.MultiHeadAttention <num_heads = 4> (q, k, v)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        attend (float[B, 1, 32] q, float[B, S, 32] k, float[B, S, 32] v) => (float[B, 1, 32] y)
        {
            y = com.microsoft.MultiHeadAttention <num_heads = 4> (q, k, v)
        }
    """

    providers = ("webgpu",)

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each that is not known to have few keys; a warning, as devices differ."""
        for node in view.nodes(*WRONG_OF_MANY_KEYS):
            slots = attention_slots(node)
            if slots is None or _length_of(node, slots.query, view) == 1:
                continue
            keys = _length_of(node, slots.key, view)
            has_past = any(input_at(node, i) is not None for i in slots.pasts)
            if keys is None or keys > _FEWEST_LANES or has_past:
                message = f"{node.op_type} of more keys than a subgroup has lanes"
                yield Hazard(node, f"{message} (4 to 16): other numbers through Vulkan")


def _length_of(node: ir.Node, place: int, view: View) -> int | None:
    dims = view.shapes.dims(input_at(node, place))
    return dims[1] if dims and len(dims) > 1 and isinstance(dims[1], int) else None
