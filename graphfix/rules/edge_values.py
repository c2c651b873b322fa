"""Rules for operators that a provider computes wrong at the edges of a type, by edges.csv.

The table is measured by ``make edges``: each operator at negative, fractional, large, NaN, infinite
and empty inputs, and at integers beyond 32 bits, on DirectML and on the CPU.
"""

from collections.abc import Iterator

import onnx_ir as ir

from graphfix import ops
from graphfix.core import Severity
from graphfix.facts.pads import (
    can_split_pads,
    directml_misreads_pads,
    has_negative_pad,
    may_be_negative,
    pads_of,
)
from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import attr_int, attr_text, producer_of
from graphfix.graph.text import size_text
from graphfix.ops.axes import axis_of
from graphfix.ops.regions import HALF_PIXEL_OPSET, has_least_size
from graphfix.providers.directml import operator_facts as directml
from graphfix.providers.directml.placement import PlacementRules
from graphfix.providers.empty_inputs import find_empty_inputs
from graphfix.providers.table import Ep, predicted_provider
from graphfix.providers.webgpu import operator_facts as webgpu
from graphfix.rules.rule import Hazard, Rule, is_folded

# A NaN of the first input is one in the result.
_LOSES_NAN = {"dml": directml.LOSES_NAN, "webgpu": webgpu.LOSES_NAN}
_OVERFLOWS = {"dml": directml.OVERFLOWS_IN_FLOAT16, "webgpu": webgpu.OVERFLOWS_IN_FLOAT16}
KEEPS_NAN_OF_FIRST_INPUT = ops.MOVES_FIRST_INPUT | ops.CASTS
_WORD = 2**31


class NegativePads(Rule):
    """Flags negative pads, which crop.

    Why:
        Run on onnxruntime-directml 1.24.4 (edges.csv, Pad): with a pad of -1 or -2 in front the
        numbers that come out are others, in silence, in the modes constant and edge, float32 and
        int64; the length is right. With wrap they are where an axis is both cut and padded. What
        only cuts behind came out right, and so did reflect. Before opset 11 ORT's Query function
        refuses them all, and the CPU runs the node rightly. A Slice is right everywhere.

    Flagged:
        <ir_version: 8, opset_import: ["" : 17]>
        crop (float[1, 8] x) => (float[1, 6] y)
        <int64[4] pads = {0, -1, 0, -1}>
        {
            y = Pad (x, pads)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        crop (float[1, 8] x) => (float[1, 6] y)
        <int64[1] start = {1}, int64[1] end = {-1}, int64[1] axis = {1}>
        {
            y = Slice (x, start, end, axis)
        }
    """

    repaired_by = "pad-slice"

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each Pad whose pads are known to go below 0, or do so where a size is small."""
        for node in view.nodes("Pad"):
            pads = pads_of(node, view) or ()
            short = [size_text(x) for x in pads if may_be_negative(x)]
            if not (has_negative_pad(pads) or short) or is_folded(node, view):
                continue
            outcome: tuple[str, Severity] = ("other numbers come out, in silence", "error")
            if view.opset_of_node(node) < 11:
                outcome = ("the CPU runs it", "warning")
            elif not directml_misreads_pads(node, pads):
                outcome = ("these were seen to come out right", "note")
            fix = self.repaired_by if can_split_pads(node, pads, view.opset_of_node(node)) else None
            where = f" where {short[0]} is below 0" if short else ""
            message = f"Pad has negative pads{where}: {outcome[0]}; write a Slice"
            yield Hazard(node, message, outcome[1], fix)


class WideComparison(Rule):
    """Flags a comparison, Max or Min of int64 with a number beyond 32 bits.

    Why:
        Run on onnxruntime-directml 1.24.4 (edges.csv, Less, LessOrEqual, Greater, GreaterOrEqual,
        int64, over32): 5 < 2147483648 is False there. Where the upper halves of two numbers are
        equal, the lower ones are compared as if they had a sign, so that small numbers and those of
        33 bits are the wrong way round. Below 2147483648 all are right. Max and Min choose by the
        same comparison: of 5 and 2147483648 the Max is 5.

    Flagged:
        <ir_version: 8, opset_import: ["" : 17]>
        known (int64[N] ids) => (bool[N] y)
        <int64 most = {2147483648}>
        {
            y = Less (ids, most)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        known (int64[N] ids) => (bool[N] y)
        <int64 most = {2147483647}>
        {
            y = LessOrEqual (ids, most)
        }
    """

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each comparison with a constant beyond 32 bits; of 33, small numbers suffice."""
        for node in view.nodes(*ops.ORDER_COMPARISONS, *ops.named("Max Min")):
            if is_folded(node, view):
                continue
            for value in node.inputs:
                array = const_of(value)
                if array is None or array.dtype.kind not in "iu" or array.size == 0:
                    continue
                far = next((int(x) for x in array.reshape(-1) if not -_WORD <= int(x) < _WORD), 0)
                if far:
                    message = f"{node.op_type} with {far}: DirectML compares int64 beyond 32 bits"
                    severity: Severity = "error" if -2 * _WORD <= far < 2 * _WORD else "warning"
                    yield Hazard(node, f"{message} wrongly, in silence", severity)


class EmptyInput(Rule):
    """Flags a node whose input may be empty where its result is not.

    Why:
        Run on onnxruntime-directml 1.24.4: a kernel with an empty input is not dispatched, so what
        lay in memory comes out, in silence. So it is with Pad, every reduction, ArgMax, MatMul,
        Gemm and Einsum over nothing, padded convolutions and pools, and the last state of an LSTM;
        Concat and Scatter are right. A detector without detections pads its empty list: off by
        12.3. On onnxruntime-webgpu 1.27.0 (survey.csv) MatMul, Einsum, Conv, ReduceMax and
        ReduceMin fail in the run.

    Flagged:
        <ir_version: 8, opset_import: ["" : 17]>
        kept (float[4, N] boxes, bool[N] keep) => (float[4] y)
        {
            found = Compress <axis = 1> (boxes, keep)
            y = ReduceMax <axes = [1], keepdims = 0> (found)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        kept (float[N, 4] boxes, bool[N] keep) => (float[U, 4] y)
        <float[2, 4] rest = {0, 0, 0, 0, 0, 0, 0, 0}>
        {
            found = Compress <axis = 0> (boxes, keep)
            y = Concat <axis = 0> (found, rest)
        }
    """

    providers = ("dml", "webgpu")
    matched_by = ("pad-empty",)

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each node on DirectML whose first input is empty, or may be."""
        yield from self.find_hazards_on(view, "dml")

    def find_hazards_on(self, view: View, ep: Ep) -> Iterator[Hazard]:
        """Flag each node on a provider whose first input is empty, or may be."""
        device = predicted_provider(ep)
        outcome = "WebGPU fails" if device == "webgpu" else "DirectML returns what lay in memory"
        for place in find_empty_inputs(view, ep=device):
            node = place.node
            data = node.inputs[0]
            dims = ", ".join(map(size_text, view.shapes.dims(data) or ()))
            name = data.name if data is not None else ""
            message = f"{node.op_type} of {name!r} [{dims}] without elements: {outcome}"
            severity: Severity = "error" if place.always else "warning"
            yield Hazard(node, message, severity)


class LargeEpsilon(Rule):
    """Flags a MeanVarianceNormalization, to whose variance DirectML adds an epsilon.

    Why:
        Run on onnxruntime-directml 1.24.4: about 1e-5 is added to the variance, where ONNX adds
        1e-9 to the deviation. Of numbers around 1e-4 the result is off by 1.6, of numbers around
        1e-3 by 1.2; where the deviation is 1 or more it is right within 6e-6. In float16 the
        squares pass 65504 as well: numbers around 1000 are wrong.

    Flagged:
        <ir_version: 8, opset_import: ["" : 13]>
        norm (float[B, 4, H, W] x) => (float[B, 4, H, W] y)
        {
            y = MeanVarianceNormalization (x)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        norm (float[B, 4, T] x) => (float[B, 4, T] y)
        <float[4] scale = {1, 1, 1, 1}, float[4] bias = {0, 0, 0, 0}>
        {
            y = InstanceNormalization <epsilon = 1e-12> (x, scale, bias)
        }
    """

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each such norm that has a kernel."""
        rules = PlacementRules(view.model.graph.opset_imports, view.shapes)
        for node in view.nodes("MeanVarianceNormalization"):
            if rules.kernel_of(node) is not None and not is_folded(node, view):
                message = "DirectML adds 1e-5 to the variance: wrong where the deviation is small"
                yield Hazard(node, f"{message}, below 0.01")


class MovedRegions(Rule):
    """Flags a RoiAlign that DirectML computes otherwise.

    Why:
        Run on onnxruntime-directml 1.24.4: before opset 16 every box lies half a cell off, as
        half_pixel says, and ONNX and the CPU have output_half_pixel: other numbers for every box,
        by 0.5 to 1.2. With mode=max it takes the largest of interpolated values, and the CPU the
        largest of weighted corners: other numbers again. With output_half_pixel a box that is
        smaller than a cell is not made one cell large: off by 0.9 to 2.6. With sampling_ratio=0 a
        box of no area, or one beyond the edge, is off by 0.6 to 1.1.

    Flagged:
        <ir_version: 8, opset_import: ["" : 16]>
        crop (float[4, 2, 8, 8] x, float[N, 4] boxes, int64[N] batch) => (float[N, 2, 3, 3] y)
        {
            y = RoiAlign <output_height = 3, output_width = 3, sampling_ratio = 2,
                coordinate_transformation_mode = "output_half_pixel"> (x, boxes, batch)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 16]>
        crop (float[1, 2, 8, 8] x, float[N, 4] boxes, int64[N] batch) => (float[N, 2, 3, 3] y)
        {
            y = RoiAlign <output_height = 3, output_width = 3, sampling_ratio = 2>
                (x, boxes, batch)
        }
    """

    repaired_by = "roi-size"

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each RoiAlign by its opset, its mode, its coordinates and its sampling ratio."""
        rules = PlacementRules(view.model.graph.opset_imports, view.shapes)
        for node in view.nodes("RoiAlign"):
            if rules.kernel_of(node) is None or is_folded(node, view):
                continue
            if attr_text(node, "mode", "avg") == "max":
                yield Hazard(node, "RoiAlign with mode=max: other numbers than the CPU's", "error")
            elif view.opset_of_node(node) < HALF_PIXEL_OPSET:
                message = f"RoiAlign before opset {HALF_PIXEL_OPSET}: each box lies half a cell off"
                yield Hazard(node, f"{message}, in silence", "error")
            elif has_least_size(node, view.opset_of_node(node)):
                message = "RoiAlign with output_half_pixel: boxes below one cell come out wrong"
                yield Hazard(node, message, fix=self.repaired_by)
            elif attr_int(node, "sampling_ratio", 0) == 0:
                message = "RoiAlign with sampling_ratio=0: a box of no area comes out wrong"
                yield Hazard(node, message, "note")


class LoneDft(Rule):
    """Flags a DFT along an axis that is 1, or may be.

    Why:
        Run on onnxruntime-directml 1.24.4: of one element the DFT is that element, and other
        numbers come out, in silence, as if nothing had been written. Of 2 to 64 elements it is
        right. Google's FNet has a DFT along time, so a clip of one token is wrong.

    Flagged:
        <ir_version: 8, opset_import: ["" : 17]>
        mix (float[B, T, 4, 2] x) => (float[B, T, 4, 2] y)
        {
            y = DFT <axis = 1> (x)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        mix (float[B, T, 4, 2] x) => (float[B, T, 4, 2] y)
        {
            y = DFT <axis = 2> (x)
        }
    """

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each DFT along an axis that is not known to have more than one element."""
        for node in view.nodes("DFT"):
            dims = view.shapes.dims(node.inputs[0])
            axis = axis_of(node, len(dims), view.opset_of_node(node)) if dims else None
            size = dims[axis] if dims and axis is not None else None
            if size is not None and (size == 1 or not isinstance(size, int)):
                severity: Severity = "error" if size == 1 else "warning"
                message = (
                    f"a DFT of one element comes out wrong, in silence: {size_text(size)} here"
                )
                yield Hazard(node, message, severity)


class HalfNorm(Rule):
    """Flags a norm in float16 whose squares are computed in float16.

    Why:
        Run on onnxruntime-directml 1.24.4 (edges.csv, LayerNormalization and InstanceNormalization,
        float16, negative): of a row that holds -1000 the numbers are wrong by 1.1, of one that
        holds 60000 by 233. The squares pass 65504, the largest float16; from about 256 on that can
        happen. SimplifiedLayerNormalization and the two with a skip are alike: off by 1.3 to 4.4 of
        numbers around 500 (survey.csv). The CPU computes it in float32. In float32 it is right
        there as well. On onnxruntime-webgpu 1.27.0 InstanceNormalization is off by 1 of a constant
        row, ReduceL2 is infinite from 256 on, as are Asinh and Acosh; LayerNormalization is right.

    Flagged:
        <ir_version: 8, opset_import: ["" : 17]>
        norm (float16[B, 8, T] x, float16[8] scale, float16[8] shift) => (float16[B, 8, T] y)
        {
            y = InstanceNormalization (x, scale, shift)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        norm (float16[B, 8, T] x, float[8] scale, float[8] shift) => (float16[B, 8, T] y)
        {
            wide = Cast <to = 1> (x)
            normed = InstanceNormalization (wide, scale, shift)
            y = Cast <to = 10> (normed)
        }
    """

    providers = ("dml", "webgpu")
    matched_by = ("float-norm",)

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each norm in float16 on DirectML."""
        yield from self.find_hazards_on(view, "dml")

    def find_hazards_on(self, view: View, ep: Ep) -> Iterator[Hazard]:
        """Flag each norm in float16; a warning, since most activations are small."""
        for node in view.nodes(*_OVERFLOWS[predicted_provider(ep)]):
            if view.shapes.dtype(node.inputs[0]) == ir.DataType.FLOAT16:
                message = f"{node.op_type} in float16: wrong where the input reaches about 256"
                yield Hazard(node, message)


class NegativeAsinh(Rule):
    """Flags an Asinh of numbers that may be negative, of which DirectML cancels digits.

    Why:
        Run on onnxruntime-directml 1.24.4 and 1.30.0 (survey.csv): Asinh of -1000 is off by 0.024,
        and of -10000 infinite, in silence: as of log(x + sqrt(x * x + 1)), whose two terms cancel
        below 0. Above 0 it is right. Moonshine's streaming models compress audio with it.

    Flagged:
        <ir_version: 8, opset_import: ["" : 17]>
        compress (float[N] x) => (float[N] y)
        {
            y = Asinh (x)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        compress (float[N] x) => (float[N] y)
        {
            size = Abs (x)
            compressed = Asinh (size)
            sign = Sign (x)
            y = Mul (sign, compressed)
        }
    """

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each whose input no operator keeps from below 0; a warning, as most are small."""
        for node in view.nodes("Asinh"):
            if is_folded(node, view) or ops.NEVER_NEGATIVE.has(producer_of(node.inputs[0])):
                continue
            message = "Asinh of numbers below about -30 is off by 1e-4 and more"
            yield Hazard(node, f"{message}; write Sign(x) * Asinh(Abs(x))")


class ShortIndices(Rule):
    """Flags a GatherElements whose indices are shorter than its data along another axis.

    Why:
        Run on onnxruntime-directml 1.24.4 (survey.csv): it ends in 80070057 where indices and data
        differ along any axis but the one that is gathered along; ONNX lets indices be shorter
        there, and takes the first elements. ScatterElements with such indices is right.

    Flagged:
        <ir_version: 8, opset_import: ["" : 17]>
        pick (float[N, 4] x, int64[N, 1] at) => (float[N, 1] y)
        {
            y = GatherElements <axis = 0> (x, at)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        pick (float[N, 4] x, int64[N, 1] at) => (float[N, 1] y)
        <int64[1] zero = {0}, int64[1] one = {1}>
        {
            first = Slice (x, zero, one, one)
            y = GatherElements <axis = 0> (first, at)
        }
    """

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each whose known sizes differ; sizes that follow the inputs are not compared."""
        for node in view.nodes("GatherElements"):
            data, indices = (view.shapes.dims(x) for x in node.inputs[:2])
            if data is None or indices is None or len(data) != len(indices):
                continue
            axis = axis_of(node, len(data), view.opset_of_node(node))
            for i, (size, short) in enumerate(zip(data, indices, strict=True)):
                known = isinstance(size, int) and isinstance(short, int)
                if i != axis and known and size != short and not is_folded(node, view):
                    message = f"its indices are {short} long along axis {i}, its data {size}"
                    yield Hazard(node, f"{message}: 80070057; write a Slice of the data", "error")
                    break


class LostNan(Rule):
    """Flags a NaN test behind an operator that turns NaN into a number.

    Why:
        Run on onnxruntime-directml 1.24.4 (edges.csv and survey.csv, nan): Relu of NaN is 0, Max
        and Min of NaN and 2 are 2, Clip, Sign, Atan, Celu and HardSigmoid make a number of it, and
        ReduceMax and ReduceMin leave it out; on the CPU all of them are NaN. A guard behind them
        never sees it. On onnxruntime-webgpu 1.27.0 Relu, Clip, HardSigmoid and Softmax do so.

    Flagged:
        <ir_version: 8, opset_import: ["" : 17]>
        guard (float[N] x) => (bool[N] y)
        {
            top = Relu (x)
            y = IsNaN (top)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        guard (float[N] x, float[N] z) => (bool[N] y)
        {
            a = IsNaN (x)
            b = IsNaN (z)
            y = Or (a, b)
        }
    """

    providers = ("dml", "webgpu")

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each IsNaN behind an operator that loses NaN on DirectML."""
        yield from self.find_hazards_on(view, "dml")

    def find_hazards_on(self, view: View, ep: Ep) -> Iterator[Hazard]:
        """Flag each IsNaN right behind an operator that loses NaN, Casts and moves aside."""
        loses_nan = _LOSES_NAN[predicted_provider(ep)]
        for node in view.nodes("IsNaN"):
            maker = producer_of(node.inputs[0], *KEEPS_NAN_OF_FIRST_INPUT)
            if loses_nan.has(maker) and not is_folded(node, view):
                yield Hazard(node, f"{maker.op_type} makes a number of NaN: this never is True")
