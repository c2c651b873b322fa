"""window-3d: the manual is the docstring of the class."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import onnx_ir as ir

from graphfix.build import Builder
from graphfix.core import Change, Match, Pass, Safety, Skip
from graphfix.model.shapes import same
from graphfix.model.text import path_of
from graphfix.model.view import View

from ._attention_site import Attention, attention_at
from ._window_addend import Addend
from ._window_mask import Cut, cut_of, hidden_windows
from ._window_rows import Rows, Windows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ._attention_fit import Fit


@dataclass(frozen=True)
class WindowSite(Match):
    """An attention whose mask cuts its sequence into windows.

    Attributes:
        attention: The attention.
        cut: The windows.
    """

    attention: Attention
    cut: Cut


@dataclass(frozen=True)
class Window3d(Pass):
    """An attention whose mask cuts the sequence into windows of one size is computed in windows.

    A sequence [B, T, D] becomes [B * n, W, D], the last window filled up with copies of the last
    row, whose keys are hidden. What is computed of each place alone (products with weights, norms,
    activations, sums) is then computed in windows as well, so that the sequence is cut once, before
    the first attention, and put together once, after the last. It stands behind ``directml``,
    which makes addends of masks, and before ``fuse-attention``, which then sees a mask of keys.

    That the windows are independent is proved for every length, and by no name: the mask has to be
    a function of the places of query and key alone (counts, sums, divisions by constants,
    comparisons), which then repeats itself and is settled where the two are far apart, so that a
    table of a few periods shows it whole. A mask of keys beside it stays one.

    Why:
        Encoders such as Qwen3-ASR's attend within windows of 8 seconds (104 of its tokens).
        Exporters write that as attention over all T * T scores, most of which a mask then hides,
        and every one of these kernels is made anew at another length. In windows it is T * W
        scores, and within a window every size is a number. Counted by ``plan`` on encoders of two
        layers, both exporters: 108 kernels on DirectML become 111, and 83 become 76; fused, 52
        become 56, and 60 become 59, however many layers there are. So it is in no profile: where
        the clips are no longer than a window it gains nothing.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        attention (float[B, T, 32] x) => (float[B, T, 32] context)
        <int64[4] split = {0, 0, 2, 16}, int64[3] merge = {0, 0, 32}, float scale = {0.25},
         int64 zero = {0}, int64 one = {1}, int64 width = {100}, int64[1] first = {0},
         int64[1] second = {1}, float floor = {-10000.0}>
        {
            time = Shape <start = 1, end = 2> (x)
            length = Squeeze (time)
            place = Range (zero, length, one)
            window = Div (place, width)
            of_query = Unsqueeze (window, second)
            of_key = Unsqueeze (window, first)
            same = Equal (of_query, of_key)
            hidden = Not (same)
            as_float = Cast <to = 1> (hidden)
            addend = Mul (as_float, floor)
            x4 = Reshape (x, split)
            queries = Transpose <perm = [0, 2, 1, 3]> (x4)
            keys = Transpose <perm = [0, 2, 3, 1]> (x4)
            products = MatMul (queries, keys)
            scaled = Mul (products, scale)
            scores = Add (scaled, addend)
            weights = Softmax <axis = -1> (scores)
            heads = MatMul (weights, queries)
            side_by_side = Transpose <perm = [0, 2, 1, 3]> (heads)
            context = Reshape (side_by_side, merge)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        attention (float[B, T, 32] x) => (float[B, T, 32] context)
        <int64[1] first = {0}, int64[1] second = {1}, int64[1] third = {2}, int64[1] less = {99},
         int64[1] width = {100}, int64[4] zeros = {0, 0, 0, 0}, int64[3] cut = {-1, 100, 32},
         int64[4] split = {-1, 100, 2, 16}, float scale = {0.25}, int64[3] three = {0, 0, 0},
         bool no = {0}, int64[4] of_keys = {-1, 1, 1, 100}, float floor = {-10000.0},
         int64[2] rest = {-1, 32}>
        {
            sizes = Shape (x)
            count_of_rows = Slice (sizes, second, third)
            longer = Add (count_of_rows, less)
            count = Div (longer, width)
            filled = Mul (count, width)
            missing = Sub (filled, count_of_rows)
            amounts = Concat <axis = 0> (zeros, missing, first)
            whole = Pad <mode = "edge"> (x, amounts)
            sizes_again = Shape (x)
            batch = Slice (sizes_again, first, second)
            windows = Reshape (whole, cut)
            q4 = Reshape (windows, split)
            q = Transpose <perm = [0, 2, 1, 3]> (q4)
            k4 = Reshape (windows, split)
            k = Transpose <perm = [0, 2, 3, 1]> (k4)
            v4 = Reshape (windows, split)
            v = Transpose <perm = [0, 2, 1, 3]> (v4)
            qk = MatMul (q, k)
            scaled_qk = Mul (qk, scale)
            batch_and_time = Concat <axis = 0> (batch, count_of_rows)
            every = ConstantOfShape <value = bool[1] {1}> (batch_and_time)
            tail = Concat <axis = 0> (three, missing)
            there = Pad (every, tail, no)
            there4 = Reshape (there, of_keys)
            lacking = Not (there4)
            lacks = Cast <to = 1> (lacking)
            floors = Mul (lacks, floor)
            masked = Add (scaled_qk, floors)
            shares = Softmax <axis = -1> (masked)
            contexts = MatMul (shares, v)
            beside = Transpose <perm = [0, 2, 1, 3]> (contexts)
            merged = Reshape (beside, cut)
            shape = Concat <axis = 0> (batch, rest)
            joined = Reshape (merged, shape)
            context = Slice (joined, first, count_of_rows, second)
        }

    Safety:
        Equal to rounding in every row that has a key to look at: the scores that are left out were
        hidden, and a key that is hidden within a window stays so. Where the mask was -inf, the
        floor is -1e9 (-1e4 in float16). The sequence has at least one row. Places are counted
        exactly in float32 below 2^20. Refused, with the reason: windows that overlap (a band),
        that see those before them (chunks with a left context), that are shifted; addends that
        differ within a window; keys of earlier runs, rotary embeddings, grouped heads; attentions
        in a branch or the body of a Loop. Left alone: a mask that is no function of places and
        constants, such as one whose width is computed or one that is written piece by piece.
    """

    name: ClassVar[str] = "window-3d"
    safety: ClassVar[Safety] = "valid-rows"
    keeps_shapes: ClassVar[bool] = True

    def sites(self, model: ir.Model) -> Iterator[WindowSite | Skip]:
        """Every attention in windows, and every near miss."""
        view = View(model)
        for node in view.nodes("MatMul", "Einsum"):
            found = self.match(node, view)
            if found is not None:
                yield found

    def message(self, site: Match) -> str:
        """What it is."""
        width = site.cut.width if isinstance(site, WindowSite) else 0
        return f"an attention over the whole sequence, whose mask cuts it into windows of {width}"

    def match(self, node: ir.Node, view: View) -> WindowSite | Skip | None:
        """An attention, at its second product."""
        found = attention_at(node, view)
        if isinstance(found, str):
            width = hidden_windows(node, view)
            near = f"its mask cuts the sequence into windows of {width}, but {found}"
            return None if width is None else Skip(node, near)
        if found is None:
            return None
        sizes = found.sizes
        if not found.terms or not same(sizes.queries, sizes.keys):
            return None
        cut = cut_of(found.terms, sizes.keys, sizes.batch, view)
        if not isinstance(cut, Cut):
            return None if cut is None else Skip(node, cut)
        why = _obstacle(found, view)
        return WindowSite(found.node, found, cut) if why is None else Skip(node, why)

    def repair(self, model: ir.Model) -> Iterator[Change | Skip]:
        """Compute every such attention in windows, and what lies between them."""
        view = View(model)
        op = Builder(self.name, view)
        rows = Rows(op)
        for node in list(view.nodes("MatMul", "Einsum")):
            if node.graph is None:  # went with an earlier repair
                continue
            found = self.match(node, view)
            if isinstance(found, Skip):
                yield found
            elif found is not None:
                yield self._commit(found.node, partial(_in_windows, found, rows, op), rows, op)
        for node in [*model.graph]:
            if node.graph is not None and rows.can_wait(node):
                yield self._commit(node, rows.put_off, rows, op)

    def _commit(
        self, node: ir.Node, build: Callable[[ir.Node], ir.Value], rows: Rows, op: Builder
    ) -> Change:
        at, tensor = path_of(node), node.outputs[0].name or ""
        op.start(node)
        removed, added = op.commit(build(node))
        swept = rows.sweep()
        return Change(self.name, at, tensor, removed, tuple(x for x in added if x not in swept))


def _obstacle(attention: Attention, view: View) -> str | None:
    """Why an attention cannot be computed in windows."""
    node, sizes = attention.product, attention.sizes
    if node.graph is not view.model.graph:
        return "it is in a branch or the body of a loop"
    if view.opset(node) < 11:
        return f"at opset {view.opset(node)} Pad has no amounts that are computed: convert to 11"
    for fit in attention.operands:
        if fit.place.rotation is not None:
            return "its queries and keys are turned by their places (a rotary embedding)"
        if fit.place.past is not None:
            return "its keys are joined to those of earlier runs"
        if fit.repeats is not None:
            return "its queries share keys (grouped heads)"
        if not isinstance(fit.dims[2], int):
            return f"{fit.dims[2]} features: not a number"
    if view.shapes.dtype(attention.operands[0].place.value) is None:
        return "the type of its queries is not known"
    if not same(sizes.batch, attention.operands[0].dims[0]):
        return "its batch is not that of its queries"
    return None


def _in_windows(site: WindowSite, rows: Rows, op: Builder, _: ir.Node) -> ir.Value:
    """Softmax(Q K / sqrt(D) + addend) V of each window, and the sequence put together again."""
    attention, cut, view = site.attention, site.cut, op.view
    heads, sizes = attention.sizes.heads, attention.sizes
    cuts = [_cut(fit, cut.width, rows, op) for fit in attention.operands]
    entry = cuts[0].entry
    dtype = view.shapes.dtype(attention.operands[0].place.value) or ir.DataType.FLOAT
    op.at(attention.product)
    perms = ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3))
    query, key, value = (
        op.Transpose(op.Reshape(x.value, _split(fit, cut.width, heads)), perm=perm)
        for x, fit, perm in zip(cuts, attention.operands, perms, strict=True)
    )
    scores = op.MatMul(query, key)
    if attention.scale != 1:
        scores = op.Mul(scores, np.array(attention.scale, dtype.numpy()))
    addend = Addend(cut, entry, sizes.batch, dtype, rows, op).build()
    if addend is not None:
        scores = op.Add(scores, addend)
    context = op.MatMul(op.Softmax(scores, axis=-1), value)
    merged = op.Transpose(context, perm=(0, 2, 1, 3))
    width = int(str(attention.operands[2].dims[2]))
    dims = view.shapes.dims(attention.out.value) or ()
    if len(dims) == 2 and sizes.batch == 1 and same(dims[0], sizes.queries) and dims[1] == width:
        windows = Windows(op.Reshape(merged, np.array([-1, width], np.int64)), entry)
        return rows.joined(windows, dims)
    windows = Windows(op.Reshape(merged, np.array([-1, cut.width, width], np.int64)), entry)
    whole = rows.joined(windows, (sizes.batch, sizes.queries, width))
    return attention.out.build(whole, op)


def _cut(fit: Fit, width: int, rows: Rows, op: Builder) -> Windows:
    """Queries, keys or values in windows: [B * n, W, H * D], or [n * W, H * D]."""
    value, dims = fit.place.value, op.view.shapes.dims(fit.place.value) or ()
    if fit.cost == 0:
        return rows.of(value, width)
    flat = len(dims) == 2 and fit.dims[0] == 1 and fit.perm is None
    if flat and same(dims[0], fit.dims[1]) and same(dims[1], fit.dims[2]):
        return rows.of(value, width)
    return rows.of(fit.build(value, op), width, fit.dims)


def _split(fit: Fit, width: int, heads: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array([-1, width, heads, int(str(fit.dims[2])) // heads], np.int64)
