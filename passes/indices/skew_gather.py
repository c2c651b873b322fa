"""skew-gather: the manual is the docstring of the class."""

from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from graphfix.core import NodePass, Skip
from graphfix.editing.builder import PASS_KEY, Builder
from graphfix.facts.pad_cuts import Rows
from graphfix.facts.shifted_rows import Moved, line_of
from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import is_op, maker_of

from .sites.skew_index import Positions
from .sites.skew_sites import LARGEST, SkewSite, skewed, turned_back

_OPSET = 12
_RESTS = "takes it that no clip is longer than the table of positions"


@dataclass(frozen=True)
class SkewGather(NodePass[SkewSite]):
    """Replaces the pad-and-reshape relative shift with a GatherElements.

    Attention with relative positions has a score for each distance and needs one for each key:
    ``y[i, j] = x[i, j - i + T - 1]``. PyTorch code writes that "skew" as Pad, Reshape, Pad, Reshape
    and Slices (VITS, back and forth, with a table of few learned distances and zeros around it), or
    as Concat, Reshape, Slice, Reshape and Slice (Transformer-XL, Conformer).

    Why:
        The Reshapes are to sizes such as [T + 1, 2 * T - 1], which no constant says, and each takes
        a kernel to copy what is twice as wide as the scores. Each layer pads the table
        by T - 5, in places a number below 0, which DirectML's Pad computes wrongly (pad-slice,
        at the cost of more kernels). As planned, with the profile directml, the zoo's text encoder
        of a VITS in two layers takes 134 kernels on DirectML for 152 without this pass (144 as
        exported) in TorchScript's export, and 123 for 140 in dynamo's; both run there and agree. A
        FastSpeech2 Conformer of two layers takes 136 for 143 (140 as exported); with the profile
        fast, 77 for 86, it was run there and agrees (2.6e-6).

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        keys (float[N, T, 2] q) => (float[N, T, T] y)
        <float[1, 3, 2] table = {1, 2, 3, 4, 5, 6}, int64[1] zero = {0}, int64[1] one = {1},
         int64[1] two = {2}, int64[6] behind = {0, 0, 0, 0, 0, 1}, int64[2] line = {0, -1},
         int64[1] end = {9223372036854775807}>
        {
            n = Shape <start = 0, end = 1> (q)
            t = Shape <start = 1, end = 2> (q)
            around = Sub (t, two)
            pads = Concat <axis = 0> (zero, around, zero, zero, around, zero)
            rows = Pad (table, pads)
            columns = Transpose <perm = [0, 2, 1]> (rows)
            x = MatMul (q, columns)
            longer = Pad (x, behind)
            flat = Reshape (longer, line)
            less = Sub (t, one)
            few = Concat <axis = 0> (zero, zero, zero, less)
            filled = Pad (flat, few)
            more = Add (t, one)
            wide = Add (t, less)
            sizes = Concat <axis = 0> (n, more, wide)
            turned = Reshape (filled, sizes)
            top = Slice (turned, zero, t, one)
            y = Slice (top, less, end, two)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        keys (float[N, T, 2] q) => (float[N, T, T] y)
        <float[2, 5] near = {3, 5, 0, 0, 1, 4, 6, 0, 0, 2}, int64 axis = {0}, int64[1] one = {1},
         int64 low = {-2}, int64 high = {2}, int64[1] zero = {0}, int64[2] ones = {1, 1}>
        {
            products = MatMul (q, near)
            length = Shape <start = 1, end = 2> (products)
            steps = ConstantOfShape <value = int64[1] {1}> (length)
            j = CumSum <exclusive = 1> (steps, axis)
            i = Unsqueeze (j, one)
            apart = Sub (j, i)
            at = Clip (apart, low, high)
            shape = Shape (products)
            lead = Slice (shape, zero, one, zero)
            all = Concat <axis = 0> (lead, ones)
            index = Expand (at, all)
            y = GatherElements <axis = 2> (products, index)
        }

    Safety:
        Exact: each element is a copy, proved from the symbolic shapes, pads and starts for every T
        but 0. Where positions are cut from a table in the file, as FastSpeech 2 and fairseq's
        Conformer cut 2 * T - 1 of them, it holds for every T that the table has positions for, and
        the report says so: the model before fails beyond it, or computes something else. What one
        row takes from the next must be padding, and is 0 where it is read. Where what is moved
        comes of a MatMul with a constant table with zeros around it, all rows of the table are
        multiplied, once, and zeros are looked up where there is none; where it goes into one, the
        columns that the table has are picked before: what was multiplied with a zero is left out,
        and a NaN or an infinity there no longer shows. Indices are made of T once for all layers.
        Skipped: a T that is a number, local functions, and, with the reason, opsets below 12, a
        single skew without a table, which would take more kernels than before, and what is moved
        back to its distances for another use than a table.
    """

    sentence = "each row is moved by one more than the last, with Pads and Reshapes"
    anchors = ("Slice", "MatMul")

    def match(self, node: ir.Node, view: View) -> SkewSite | Skip | None:
        """The last Slice of a skew, or the MatMul of one with rows of a table."""
        if view.in_function(node):
            return None
        found = _skew(node, view) if is_op(node, "Slice") else turned_back(node, view)
        if found is None or isinstance(found, Skip):
            return found
        if view.opset(node) < _OPSET:
            return Skip(node, f"its indices take opset {_OPSET}: convert the model to it")
        if found.table is None and not _has_company(node, view):
            return Skip(node, "it is the only one, and its indices take as many kernels")
        return found

    def rewrite(self, match: SkewSite, op: Builder) -> ir.Value:
        """A GatherElements, with an index that all layers share."""
        if match.table is None:
            return _picked(match.moved, op)
        if match.given is not None:
            return _near(match, match.given, match.table, op)
        return _band(match.moved, match.table, match.first, op)


def _has_company(node: ir.Node, view: View) -> bool:
    """Whether another skew is left or was repaired, so that the indices are shared."""
    if any(x.metadata_props.get(PASS_KEY) == SkewGather.name for x in view.nodes("GatherElements")):
        return True
    others = (x for x in view.nodes("Slice") if x is not node and not view.in_function(x))
    return any(_skew(x, view) is not None for x in others)


def _skew(node: ir.Node, view: View) -> SkewSite | None:
    """A skew at every length; or at those that a table of positions covers, which is then noted."""
    found = skewed(node, view)
    if found is not None or not is_op(maker_of(node.inputs[0]), "Reshape"):
        return found
    found = skewed(node, view.in_usual_runs)
    return None if found is None else replace(found, note=_RESTS)


def _picked(moved: Moved, op: Builder) -> ir.Value:
    """``x[i, turn * i + j + shift]``."""
    dims = op.view.shapes.dims(moved.source) or ()
    at = Positions(moved.source, dims, op)
    factor, number = line_of(moved.shift, moved.rows) or (0, 0)

    def places() -> ir.Value:
        apart = at.apart(moved.turn)
        if not factor:
            return op.Add(apart, np.array(number, np.int64)) if number else apart
        first = at.length()
        if factor != 1:
            first = op.Mul(first, np.array([factor], np.int64))
        if number:
            first = op.Add(first, np.array([number], np.int64))
        return op.Add(apart, first)

    index = at.spread(("picked", moved.turn, factor, number), places)
    return op.GatherElements(moved.source, index, axis=len(dims) - 1)


def _near(match: SkewSite, given: ir.Value, table: Rows, op: Builder) -> ir.Value:
    """``given[i] . table[j - i + first]``, or 0 where the table has no such row.

    Multiplied are all rows of the table and one of zeros at each end, so ordered that the row of
    distance -1 is the last one, which the index -1 stands for.
    """
    dims = op.view.shapes.dims(match.moved.source) or ()
    array = const_of(table.table, LARGEST)
    assert array is not None
    around = [(int(axis == table.axis),) * 2 for axis in range(array.ndim)]
    rows = np.roll(np.pad(array, around), -match.first - 1, axis=table.axis)
    right = np.ascontiguousarray(rows.transpose(table.order))
    if op.view.shapes.rank(given) == len(dims) and right.size == right.shape[-1] * right.shape[-2]:
        right = right.reshape(right.shape[-2:])
    products = op.MatMul(given, right)
    at = Positions(products, dims, op)
    low, high = -match.first - 1, table.count - match.first
    ends = (np.array(low, np.int64), np.array(high, np.int64))
    index = at.spread(("near", low, high), lambda: op.Clip(at.apart(-1), *ends))
    return op.GatherElements(products, index, axis=len(dims) - 1)


def _band(moved: Moved, table: Rows, first: int, op: Builder) -> ir.Value:
    """The sum of ``x[i, i + w + first] * table[w]`` over w, x being 0 outside."""
    dims = op.view.shapes.dims(moved.source) or ()
    front, back = max(0, -first), max(0, table.count - 1 + first)
    value, right = moved.source, table.table
    if front or back:
        none = [0] * (len(dims) - 1)
        value = op.Pad(value, np.array([*none, front, *none, back], np.int64))
    if list(table.order) != sorted(table.order):
        array = const_of(right, LARGEST)
        assert array is not None
        right = op.constant(np.ascontiguousarray(array.transpose(table.order)))
    at = Positions(moved.source, dims, op)
    places = np.arange(table.count, dtype=np.int64) + first + front
    index = at.spread(("band", first, front, table.count), lambda: op.Add(at.down(), places))
    return op.MatMul(op.GatherElements(value, index, axis=len(dims) - 1), right)
