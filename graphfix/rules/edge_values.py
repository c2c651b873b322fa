"""Rules for what DirectML silently computes wrong at the edges of a type, by edges.csv.

The table is measured by ``make edges``: each operator at negative, fractional, large, NaN, infinite
and empty inputs, and at integers beyond 32 bits, on DirectML and on the CPU.
"""

from collections.abc import Iterator

import onnx_ir as ir

from graphfix.core import Severity
from graphfix.directml.placement import PlacementRules
from graphfix.facts.pads import (
    can_split_pads,
    directml_misreads_pads,
    has_negative_pad,
    may_be_negative,
    pads_of,
)
from graphfix.facts.view import View
from graphfix.graph.constants import const_of, ints_of
from graphfix.graph.nodes import attr_int, input_at, is_op, producer_of
from graphfix.graph.text import size_text
from graphfix.rules.rule import Hazard, Rule, is_folded

_COMPARISONS = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual")
_REDUCTIONS = tuple(f"Reduce{x}" for x in ("LogSum", "LogSumExp", "Max", "Min", "Prod", "Sum"))
_NAN_LOSERS = frozenset({"Clip", "Relu", "Max", "Min", "ReduceMax", "ReduceMin", "Sign"})
_LAYOUT = ("Reshape", "Transpose", "Unsqueeze", "Squeeze")
_NORMS = ("LayerNormalization", "InstanceNormalization")
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
    """Flags a comparison of int64 with a number beyond 32 bits.

    Why:
        Run on onnxruntime-directml 1.24.4 (edges.csv, Less, LessOrEqual, Greater, GreaterOrEqual,
        int64, over32): 5 < 2147483648 is False there. The lower halves of the numbers are compared
        as if they had a sign. Below 2147483648 all are right.

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
        """Flag each comparison with a constant beyond 32 bits."""
        for node in view.nodes(*_COMPARISONS):
            if is_folded(node, view):
                continue
            for value in node.inputs:
                array = const_of(value)
                if array is None or array.dtype.kind not in "iu" or array.size == 0:
                    continue
                far = next((int(x) for x in array.reshape(-1) if not -_WORD <= int(x) < _WORD), 0)
                if far:
                    message = f"{node.op_type} with {far}: DirectML compares int64 beyond 32 bits"
                    yield Hazard(node, f"{message} wrongly, in silence", "error")


class EmptyReduction(Rule):
    """Flags a sum, product, maximum or minimum over no elements.

    Why:
        Run on onnxruntime-directml 1.24.4 (edges.csv, ReduceSum and ReduceProd, empty): over an
        axis of size 0 an int32 comes out as 2147483647 and a product as 1e-07, what happened to lie
        in memory; ONNX says 0 and 1. ONNX's own tests of ReduceMax, ReduceMin, ReduceLogSum and
        ReduceLogSumExp got 0 there, and infinities on the CPU.

    Flagged:
        <ir_version: 8, opset_import: ["" : 17]>
        total (int64[2, 0] x) => (int64[2] y)
        <int64[1] axis = {1}>
        {
            y = ReduceSum <keepdims = 0> (x, axis)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        total (int64[2, 3] x) => (int64[2] y)
        <int64[1] axis = {1}>
        {
            y = ReduceSum <keepdims = 0> (x, axis)
        }
    """

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each reduction of a tensor that is known to be empty to one that is not."""
        rules = PlacementRules(view.model.graph.opset_imports, view.shapes)
        for node in view.nodes(*_REDUCTIONS):
            dims, out_dims = (view.shapes.dims(x) for x in (node.inputs[0], node.outputs[0]))
            if dims is None or 0 not in dims or (out_dims is not None and 0 in out_dims):
                continue
            if rules.kernel_of(node) is not None and not is_folded(node, view):
                message = f"{node.op_type} over nothing: what comes out is what lay in memory"
                yield Hazard(node, message, "error")


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
            axis_input, dims = input_at(node, 2), view.shapes.dims(node.inputs[0])
            usual = attr_int(node, "axis", 1 if view.opset_of_node(node) < 20 else -2)
            axis = (usual,) if axis_input is None else ints_of(axis_input)
            size = dims[axis[0]] if dims and axis else 2
            if size == 1 or not isinstance(size, int):
                severity: Severity = "error" if size == 1 else "warning"
                message = (
                    f"a DFT of one element comes out wrong, in silence: {size_text(size)} here"
                )
                yield Hazard(node, message, severity)


class HalfNorm(Rule):
    """Flags a LayerNormalization or InstanceNormalization in float16.

    Why:
        Run on onnxruntime-directml 1.24.4 (edges.csv, LayerNormalization and InstanceNormalization,
        float16, negative): of a row that holds -1000 the numbers are wrong by 1.1, of one that
        holds 60000 by 233. The squares pass 65504, the largest float16; from about 256 on that can
        happen. The CPU computes it in float32. In float32 it is right there as well.

    Flagged:
        <ir_version: 8, opset_import: ["" : 17]>
        norm (float16[B, 8] x, float16[8] scale) => (float16[B, 8] y)
        {
            y = LayerNormalization (x, scale)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        norm (float16[B, 8] x, float[8] scale) => (float16[B, 8] y)
        {
            wide = Cast <to = 1> (x)
            normed = LayerNormalization (wide, scale)
            y = Cast <to = 10> (normed)
        }
    """

    repaired_by = "float-norm"

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each norm in float16; a warning, since most activations are small."""
        for node in view.nodes(*_NORMS):
            if view.shapes.dtype(node.inputs[0]) == ir.DataType.FLOAT16:
                message = f"{node.op_type} in float16: wrong where the input reaches about 256"
                yield Hazard(node, message, fix=self.repaired_by)


class LostNan(Rule):
    """Flags a NaN test behind an operator that turns NaN into a number on DirectML.

    Why:
        Run on onnxruntime-directml 1.24.4 (edges.csv, nan): Relu of NaN is 0, Max and Min of NaN
        and 2 are 2, Clip and Sign make a number of it, and ReduceMax and ReduceMin leave it out; on
        the CPU all of them are NaN. A guard behind them never sees it.

    Flagged:
        <ir_version: 8, opset_import: ["" : 17]>
        guard (float[N] x, float[N] z) => (bool[N] y)
        {
            top = Max (x, z)
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

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each IsNaN right behind an operator that loses NaN, Casts and layout aside."""
        for node in view.nodes("IsNaN"):
            maker = producer_of(node.inputs[0], "Cast", "Identity", *_LAYOUT)
            if is_op(maker, *_NAN_LOSERS) and not is_folded(node, view):
                yield Hazard(node, f"{maker.op_type} makes a number of NaN: this never is True")
