"""matmul-4d: the manual is the docstring of the class."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.directml.kernel_table import MATRIX_DIMS
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import Dim, same
from graphfix.facts.symbolic.expressions import times
from graphfix.facts.view import View

from ..common.fusible import FLOATS
from ..common.reshape_targets import Target, reshaped, target_of

# Which factor has a dim: both, of one size; one, and the other is repeated; neither, and it is 1.
_Has = Literal["both", "first", "second", "neither"]


@dataclass(frozen=True)
class WideSite(Match):
    """A MatMul of more than four dims.

    Attributes:
        groups: Which of the dims before the matrices become one: starts and ends.
        whole: The factor that has all of them.
    """

    groups: tuple[tuple[int, int], ...]
    whole: ir.Value


@dataclass(frozen=True)
class Matmul4d(NodePass[WideSite]):
    """Reshapes a MatMul of more than four dims to three or four.

    Why:
        Attention in windows or chunks (SNAC, Swin, dual-path models) has [B, W, H, T, D], and
        DirectML multiplies matrices of up to four dims (DML_GEMM_OPERATOR_DESC). Run on
        onnxruntime-directml 1.24.4: a MatMul with a factor of five or six dims ends in 80070057,
        whatever their sizes, also where the other is a plain matrix; in a static model no session
        is made. Of four dims it runs.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        windows (float[B, 3, 4, 8, 2] q, float[B, 3, 4, 2, 8] k) => (float[B, 3, 4, 8, 8] y)
        {
            y = MatMul (q, k)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        windows (float[B, 3, 4, 8, 2] q, float[B, 3, 4, 2, 8] k) => (float[B, 3, 4, 8, 8] y)
        <int64[3] first = {-1, 8, 2}, int64[3] second = {-1, 2, 8},
            int64[5] back = {-1, 3, 4, 8, 8}>
        {
            rows = Reshape (q, first)
            columns = Reshape (k, second)
            product = MatMul (rows, columns)
            y = Reshape (product, back)
        }

    Safety:
        Exact: the same products of matrices. Dims become one only where both factors have them, of
        one size, or one factor has none of them or only 1. Where a size that is not a number may
        be 0, as that of an empty cache, the Reshapes have all sizes computed and allowzero=1; below
        opset 14 there is no allowzero, and such a product of nothing fails. Refused, with the
        reason: sizes that may differ; a vector; a size of 0; more than two turns of which factor is
        repeated, so that four dims are not enough.
    """

    name = "matmul-4d"
    sentence = "a MatMul of more than four dims: DirectML refuses it with 80070057"
    anchors = ("MatMul",)

    def match(self, node: ir.Node, view: View) -> WideSite | Skip | None:
        """A product that DirectML refuses."""
        first, second = node.inputs
        a, b = view.shapes.dims(first), view.shapes.dims(second)
        if first is None or second is None or a is None or b is None:
            return None
        if max(len(a), len(b)) <= MATRIX_DIMS or view.shapes.dtype(first) not in FLOATS:
            return None
        if min(len(a), len(b)) < 2:
            return Skip(node, "one of its factors is a vector")
        if 0 in (*a, *b):
            return Skip(node, "one of its sizes is 0: it is a product of nothing")
        leads = _leads(a, b)
        kinds = [_has(x, y) for x, y in zip(*leads, strict=True)]
        if None in kinds:
            at = kinds.index(None)
            told = f"its factors have {leads[0][at]} and {leads[1][at]} at axis {at}"
            return Skip(node, f"{told}, which may differ")
        groups = _runs(kinds)
        both = ((first, a, "second"), (second, b, "first"))
        whole = next((x for x, y, no in both if no not in kinds and len(y) == len(kinds) + 2), None)
        if len(groups) > MATRIX_DIMS - 2 or whole is None:
            return Skip(node, "now one factor is repeated, now the other: four dims are not enough")
        return WideSite(node, groups, whole)

    def rewrite(self, match: WideSite, op: Builder) -> ir.Value:
        """The same product in four dims, and its dims again."""
        first, second = (x for x in match.node.inputs if x is not None)
        shapes = op.view.shapes
        a, b = (shapes.dims(x) or () for x in (first, second))
        leads = _leads(a, b)
        rows = _narrowed(first, [*_merged(leads[0], match.groups), *a[-2:]], match.groups, op)
        columns = _narrowed(second, [*_merged(leads[1], match.groups), *b[-2:]], match.groups, op)
        product = op.MatMul(rows, columns)
        lead = (shapes.dims(match.whole) or ())[:-2]
        made = [*_merged(lead, match.groups), a[-2], b[-1]]
        found = target_of(made, [*lead, a[-2], b[-1]], shapes)
        if isinstance(found, Target):
            return found.build(product, op)
        outer = _sizes(match.whole, range(len(lead)), op)
        inner = _sizes(product, range(len(made) - 2, len(made)), op)
        return reshaped(product, op.Concat(outer, inner, axis=0), op)


def _sizes(value: ir.Value, axes: Sequence[int], op: Builder) -> ir.Value:
    return op.Gather(op.Shape(value), np.array(axes, np.int64))


def _leads(a: Sequence[Dim], b: Sequence[Dim]) -> tuple[list[Dim], list[Dim]]:
    """The dims before the matrices, as many of each: the missing ones are 1."""
    first, second = ([*[1] * (max(len(a), len(b)) - len(x)), *x[:-2]] for x in (a, b))
    return first, second


def _has(a: Dim, b: Dim) -> _Has | None:
    """Which factor has a dim, or None if the two may differ."""
    if a == 1:
        return "neither" if b == 1 else "second"
    return "first" if b == 1 else "both" if same(a, b) else None


def _runs(kinds: Sequence[_Has | None]) -> tuple[tuple[int, int], ...]:
    """Dims beside each other of which the same factors have some: starts and ends."""
    starts, last = [0], "neither"
    for i, kind in enumerate(kinds):
        if kind != "neither":
            if last not in ("neither", kind):
                starts.append(i)
            last = kind or last
    return tuple(zip(starts, [*starts[1:], len(kinds)], strict=True))


def _merged(lead: Sequence[Dim], groups: Sequence[tuple[int, int]]) -> list[Dim]:
    return [reduce(times, lead[start:end]) for start, end in groups]


def _narrowed(
    value: ir.Value, wanted: Sequence[Dim], groups: Sequence[tuple[int, int]], op: Builder
) -> ir.Value:
    """A factor in the dims that are wanted, if it has not got them."""
    dims = op.view.shapes.dims(value) or ()
    missing = len(wanted) - len(dims)
    if missing >= 0 and all(map(same, dims, wanted[missing:])):
        return value
    found = target_of(dims, wanted, op.view.shapes)
    if isinstance(found, Target):
        return found.build(value, op)
    absent = groups[-1][1] + 2 - len(dims)  # of the dims before the matrices, at the front
    sizes: list[ir.Value | np.ndarray[tuple[int, ...], np.dtype[np.int64]]] = []
    for (start, end), size in zip(groups, wanted, strict=False):
        axes = range(max(start - absent, 0), end - absent)
        if isinstance(size, int):
            sizes.append(np.array([size], np.int64))
        else:
            sizes.append(op.ReduceProd(_sizes(value, axes, op)))
    matrix = _sizes(value, range(len(dims) - 2, len(dims)), op)
    return reshaped(value, op.Concat(*sizes, matrix, axis=0), op)
