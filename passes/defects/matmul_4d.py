"""matmul-4d: the manual is the docstring of the class."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import Dim, same_dim
from graphfix.facts.symbolic.expressions import multiply_dims
from graphfix.facts.view import View
from graphfix.providers.directml.operator_facts import MATRIX_DIMS

from ..common.fusible import FLOATS
from ..common.reshape_targets import ReshapeTarget, build_reshape, reshape_target_of

# Which factor has a dim: both, of one size; one, and the other is repeated; neither, and it is 1.
_Owner = Literal["both", "first", "second", "neither"]


@dataclass(frozen=True)
class WideSite(Match):
    """A MatMul of more than four dims.

    Attributes:
        groups: Which of the dims before the matrices become one: starts and ends.
        full_factor: The factor that has all of them.
    """

    groups: tuple[tuple[int, int], ...]
    full_factor: ir.Value


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

    Left alone:
        Factors of which now one, now the other is repeated, "four dims are not enough":
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        mix (float[A, B, C, 8, 2] x, float[B, 1, 2, 8] w) => (float[A, B, C, 8, 8] y)
        {
            y = MatMul (x, w)
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
        """Return the site if DirectML refuses the product."""
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
        batch_dims = _leading_dims(a, b)
        owners = [_owner_of_dim(x, y) for x, y in zip(*batch_dims, strict=True)]
        if None in owners:
            at = owners.index(None)
            sizes = f"{batch_dims[0][at]} and {batch_dims[1][at]}"
            return Skip(node, f"its factors have {sizes} at axis {at}, which may differ")
        groups = _group_dims(owners)
        full_factor = _full_factor(node, (len(a), len(b)), owners)
        if len(groups) > MATRIX_DIMS - 2 or full_factor is None:
            return Skip(node, "now one factor is repeated, now the other: four dims are not enough")
        return WideSite(node, groups, full_factor)

    def rewrite(self, match: WideSite, op: Builder) -> ir.Value:
        """Build the same product in at most four dims, and restore its dims."""
        first, second = (x for x in match.node.inputs if x is not None)
        shapes = op.view.shapes
        a, b = (shapes.dims(x) or () for x in (first, second))
        batch_dims = _leading_dims(a, b)
        rows = _reshape_factor(
            first, [*_merge_dims(batch_dims[0], match.groups), *a[-2:]], match.groups, op
        )
        columns = _reshape_factor(
            second, [*_merge_dims(batch_dims[1], match.groups), *b[-2:]], match.groups, op
        )
        product = op.MatMul(rows, columns)
        lead = (shapes.dims(match.full_factor) or ())[:-2]
        merged = [*_merge_dims(lead, match.groups), a[-2], b[-1]]
        target = reshape_target_of(merged, [*lead, a[-2], b[-1]], shapes)
        if isinstance(target, ReshapeTarget):
            return target.build(product, op)
        outer = _gather_sizes(match.full_factor, range(len(lead)), op)
        inner = _gather_sizes(product, range(len(merged) - 2, len(merged)), op)
        return build_reshape(product, op.Concat(outer, inner, axis=0), op)


def _gather_sizes(value: ir.Value, axes: Sequence[int], op: Builder) -> ir.Value:
    """Build the sizes of these axes, int64."""
    return op.Gather(op.Shape(value), np.array(axes, np.int64))


def _leading_dims(a: Sequence[Dim], b: Sequence[Dim]) -> tuple[list[Dim], list[Dim]]:
    """Return the dims before the matrices, as many of each factor: missing ones are 1."""
    first, second = ([*[1] * (max(len(a), len(b)) - len(x)), *x[:-2]] for x in (a, b))
    return first, second


def _owner_of_dim(a: Dim, b: Dim) -> _Owner | None:
    """Return which factor has a dim, or None if the two may differ."""
    if a == 1:
        return "neither" if b == 1 else "second"
    return "first" if b == 1 else "both" if same_dim(a, b) else None


def _full_factor(
    node: ir.Node, ranks: tuple[int, int], owners: Sequence[_Owner | None]
) -> ir.Value | None:
    """Return the factor that has all dims before the matrices, or None if neither has."""
    first, second = node.inputs
    if "second" not in owners and ranks[0] == len(owners) + 2:
        return first
    return second if "first" not in owners and ranks[1] == len(owners) + 2 else None


def _group_dims(kinds: Sequence[_Owner | None]) -> tuple[tuple[int, int], ...]:
    """Return the groups of adjacent dims that the same factors have: starts and ends."""
    starts, last = [0], "neither"
    for i, kind in enumerate(kinds):
        if kind != "neither":
            if last not in ("neither", kind):
                starts.append(i)
            last = kind or last
    return tuple(zip(starts, [*starts[1:], len(kinds)], strict=True))


def _merge_dims(lead: Sequence[Dim], groups: Sequence[tuple[int, int]]) -> list[Dim]:
    """Return the product of the dims in each group."""
    return [reduce(multiply_dims, lead[start:end]) for start, end in groups]


def _reshape_factor(
    value: ir.Value, new_dims: Sequence[Dim], groups: Sequence[tuple[int, int]], op: Builder
) -> ir.Value:
    """Build a factor with ``new_dims``, or return it if it has them."""
    dims = op.view.shapes.dims(value) or ()
    missing = len(new_dims) - len(dims)
    if missing >= 0 and all(map(same_dim, dims, new_dims[missing:])):
        return value
    target = reshape_target_of(dims, new_dims, op.view.shapes)
    if isinstance(target, ReshapeTarget):
        return target.build(value, op)
    absent = groups[-1][1] + 2 - len(dims)  # of the dims before the matrices, at the front
    sizes: list[ir.Value | np.ndarray[tuple[int, ...], np.dtype[np.int64]]] = []
    for (start, end), size in zip(groups, new_dims, strict=False):
        axes = range(max(start - absent, 0), end - absent)
        if isinstance(size, int):
            sizes.append(np.array([size], np.int64))
        else:
            sizes.append(op.ReduceProd(_gather_sizes(value, axes, op)))
    matrix = _gather_sizes(value, range(len(dims) - 2, len(dims)), op)
    return build_reshape(value, op.Concat(*sizes, matrix, axis=0), op)
