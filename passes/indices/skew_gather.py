"""skew-gather: the manual is the docstring of the class."""

from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from graphfix.core import NodePass, Skip
from graphfix.editing.builder import PASS_KEY, Builder
from graphfix.facts.pad_cuts import PaddedRows
from graphfix.facts.shifted_rows import ShiftedRows, linear_coefficients
from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import is_op, producer_of

from .sites.skew_index import Positions
from .sites.skew_sites import MAX_TABLE_SIZE, SkewSite, skew_site_of, unskew_site_of

_MIN_OPSET = 12
_ASSUMPTION = "takes it that no clip is longer than the table of positions"


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

    Left alone:
        A single shift without a table, "the only one":
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        shift (float[B, T, T] p) => (float[B, T, T] y)
        <int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2},
         int64[1] end = {9223372036854775807}>
        {
            n = Shape <start = 0, end = 1> (p)
            t = Shape <start = 1, end = 2> (p)
            again = Slice (p, one, end, two)
            x = Concat <axis = -1> (p, again)
            column = Concat <axis = 0> (n, t, one)
            zeros = ConstantOfShape (column)
            longer = Concat <axis = -1> (zeros, x)
            twice = Add (t, t)
            sizes = Concat <axis = 0> (n, twice, t)
            turned = Reshape (longer, sizes)
            rest = Slice (turned, one, end, one)
            shape = Shape (x)
            back = Reshape (rest, shape)
            y = Slice (back, zero, t, two)
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
        table with an infinity or a NaN that may meet such a zero, a single skew without a table,
        which would take more kernels than before, and what is moved back to its distances for
        another use than a table.
    """

    sentence = "each row is moved by one more than the last, with Pads and Reshapes"
    anchors = ("Slice", "MatMul")

    def match(self, node: ir.Node, view: View) -> SkewSite | Skip | None:
        """Return the site of a skew, or of a product of one with rows of a table."""
        if view.in_function(node):
            return None
        site = _find_skew(node, view) if is_op(node, "Slice") else unskew_site_of(node, view)
        if site is None or isinstance(site, Skip):
            return site
        if view.opset_of_node(node) < _MIN_OPSET:
            return Skip(node, f"its indices take opset {_MIN_OPSET}: convert the model to it")
        if site.table is None and not _shares_indices(node, view):
            return Skip(node, "it is the only one, and its indices take as many kernels")
        return site

    def rewrite(self, match: SkewSite, op: Builder) -> ir.Value:
        """Build a GatherElements with an index that all layers share."""
        if match.table is None:
            return _gather_skewed(match.shifted, op)
        if match.multiplier is not None:
            return _gather_products(match, match.multiplier, match.table, op)
        return _multiply_band(match.shifted, match.table, match.first, op)


def _shares_indices(node: ir.Node, view: View) -> bool:
    """Return whether another skew exists or was repaired, so that indices are shared."""
    if any(x.metadata_props.get(PASS_KEY) == SkewGather.name for x in view.nodes("GatherElements")):
        return True
    slices = (x for x in view.nodes("Slice") if x is not node and not view.in_function(x))
    return any(_find_skew(x, view) is not None for x in slices)


def _find_skew(node: ir.Node, view: View) -> SkewSite | None:
    """Return a skew at every length, or at those that a table of positions covers.

    The second has a note that says so.
    """
    site = skew_site_of(node, view)
    if site is not None or not is_op(producer_of(node.inputs[0]), "Reshape"):
        return site
    site = skew_site_of(node, view.with_usual_shapes)
    return None if site is None else replace(site, note=_ASSUMPTION)


def _gather_skewed(shifted_rows: ShiftedRows, op: Builder) -> ir.Value:
    """Build ``x[i, direction * i + j + shift]``."""
    dims = op.view.shapes.dims(shifted_rows.source) or ()
    at = Positions(shifted_rows.source, dims, op)
    factor, number = linear_coefficients(shifted_rows.shift, shifted_rows.rows) or (0, 0)

    def build_places() -> ir.Value:
        """Build ``direction * i + j + shift``."""
        if (shifted_rows.direction, factor) == (-1, 1):
            return _add_number(at.diagonal_index(), number + 1, op)
        distances = at.skewed_index(shifted_rows.direction)
        if not factor:
            return _add_number(distances, number, op)
        first = at.row_count()
        if factor != 1:
            first = op.Mul(first, np.array([factor], np.int64))
        return op.Add(distances, _add_number(first, number, op))

    index = at.expand_to_batch(("picked", shifted_rows.direction, factor, number), build_places)
    return op.GatherElements(shifted_rows.source, index, axis=len(dims) - 1)


def _add_number(index: ir.Value, number: int, op: Builder) -> ir.Value:
    return op.Add(index, np.array(number, np.int64)) if number else index


def _gather_products(match: SkewSite, lhs: ir.Value, table: PaddedRows, op: Builder) -> ir.Value:
    """Build ``lhs[i] . table[j - i + first]``, or 0 where the table has no such row.

    It multiplies all rows of the table, and a row of zeros at each end. The rows are rolled so that
    distance -1 is the last one, which the index -1 selects.
    """
    dims = op.view.shapes.dims(match.shifted.source) or ()
    array = const_of(table.table, MAX_TABLE_SIZE)
    assert array is not None
    around = [(int(axis == table.axis),) * 2 for axis in range(array.ndim)]
    rows = np.roll(np.pad(array, around), -match.first - 1, axis=table.axis)
    rhs = np.ascontiguousarray(rows.transpose(table.order))
    if op.view.shapes.rank(lhs) == len(dims) and rhs.size == rhs.shape[-1] * rhs.shape[-2]:
        rhs = rhs.reshape(rhs.shape[-2:])
    products = op.MatMul(lhs, rhs)
    at = Positions(products, dims, op)
    low, high = -match.first - 1, table.count - match.first
    ends = (np.array(low, np.int64), np.array(high, np.int64))
    index = at.expand_to_batch(("near", low, high), lambda: op.Clip(at.skewed_index(-1), *ends))
    return op.GatherElements(products, index, axis=len(dims) - 1)


def _multiply_band(
    shifted_rows: ShiftedRows, table: PaddedRows, first: int, op: Builder
) -> ir.Value:
    """Build the sum of ``x[i, i + w + first] * table[w]`` over w, where x is 0 outside."""
    dims = op.view.shapes.dims(shifted_rows.source) or ()
    front, back = max(0, -first), max(0, table.count - 1 + first)
    value, rhs = shifted_rows.source, table.table
    if front or back:
        zeros = [0] * (len(dims) - 1)
        value = op.Pad(value, np.array([*zeros, front, *zeros, back], np.int64))
    if list(table.order) != sorted(table.order):
        array = const_of(rhs, MAX_TABLE_SIZE)
        assert array is not None
        rhs = op.constant(np.ascontiguousarray(array.transpose(table.order)))
    at = Positions(shifted_rows.source, dims, op)
    places = np.arange(table.count, dtype=np.int64) + first + front
    index = at.expand_to_batch(
        ("band", first, front, table.count), lambda: op.Add(at.row_index(), places)
    )
    return op.MatMul(op.GatherElements(value, index, axis=len(dims) - 1), rhs)
