"""window-3d: the manual is the docstring of the class."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import onnx_ir as ir

from graphfix.build import Builder
from graphfix.core import Change, Match, Pass, Safety, Skip
from graphfix.model.text import path_of
from graphfix.model.view import View

from ._window_attention import WindowSite, in_windows, windows_at
from ._window_chunks import Looped, at_once, looped_at
from ._window_frozen import frozen_at, sliced_at
from ._window_pack import Packed, packed_at, staying_at, unpacked
from ._window_rows import Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_FOUND: dict[str, Callable[[ir.Node, View], Looped | Packed | str | None]] = {
    "ConcatFromSequence": looped_at,
    "NonZero": staying_at,
    "ScatterND": packed_at,
    "SplitToSequence": frozen_at,
    "Slice": sliced_at,
    "Split": frozen_at,
}
_ANCHORS = ("MatMul", "Einsum", *_FOUND)


@dataclass(frozen=True)
class ChunkSite(Match):
    """Chunks or rows that are taken apart at run time, and put together again.

    Attributes:
        parts: A Loop over chunks, or rows that a mask picks.
    """

    parts: Looped | Packed


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

    Windows that are cut at run time become such as well. A Loop over the chunks of a sequence, as
    TorchScript writes `for chunk in x.split(100, 1)` and `for i in range(0, T, 100)`, with its
    SplitToSequence, SequenceAt and ConcatFromSequence, or its Slices, is done for all chunks at
    once: the body is followed as `ilens-mask` follows a model, and where it mixes places (a
    Softmax, a mean, a Conv) what fills the last chunk up is hidden from them. Rows that a mask
    picks (`x[mask]`: NonZero and GatherND or Gather), that are computed each alone and put back by
    a ScatterND, are computed where they are, and a Where takes those that the mask picks.

    Why:
        Encoders such as Qwen3-ASR's attend within windows of 8 seconds (104 of its tokens).
        Exporters write that as attention over all T * T scores, most of which a mask then hides,
        and every one of these kernels is made anew at another length. In windows it is T * W
        scores, and within a window every size is a number. Counted by ``plan`` on encoders of two
        layers, both exporters: 108 kernels on DirectML become 111, and 83 become 76; fused, 52
        become 56, and 60 become 59, however many layers there are. So it is in no profile: where
        the clips are no longer than a window it gains nothing. A Loop, sequences and NonZero are
        no kernels of DirectML: they run on the CPU, and a Loop in a graph turns its fusion off
        (ONNX Runtime, GraphPartitioner.cpp).

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
        floor is -1e9 (-1e4 in float16). The batch has at least one row, and the sequence, too.
        Places are counted exactly in float32 below 2^20. Refused, with the reason: windows that
        overlap (a band), that see those before them (chunks with a left context), that are shifted;
        addends that differ within a window; keys of earlier runs, rotary embeddings, grouped heads;
        attentions in a branch or the body of a Loop; Loops that hand anything on from chunk to
        chunk, that take them in another order or one beside another, read more than the last row at
        the end of each, that may end early, that mix the rows of a batch, whose chunks are of a
        size that is computed, or whose sequences are not [batch, time, features] (or with time
        last); as many chunks as a trace has counted, also where they are Slices between the numbers
        of the trace, which leave out what is behind the last; packed rows that look at each other,
        as in an attention with `cu_seqlens`, or that are never put back. Left alone: a mask that is
        no function of places and constants, such as one whose width is computed or one that is
        written piece by piece.
    """

    name: ClassVar[str] = "window-3d"
    safety: ClassVar[Safety] = "valid-rows"
    # What a Loop joined had no shape, and has one now.
    keeps_shapes: ClassVar[bool] = False

    def sites(self, model: ir.Model) -> Iterator[WindowSite | ChunkSite | Skip]:
        """Every attention in windows, and every near miss."""
        view = View(model)
        for node in view.nodes(*_ANCHORS):
            found = self.match(node, view)
            if found is not None:
                yield found

    def message(self, site: Match) -> str:
        """What it is."""
        if isinstance(site, ChunkSite) and isinstance(site.parts, Looped):
            return f"a Loop over the chunks of {site.parts.chunks.width} of a sequence"
        if isinstance(site, ChunkSite):
            return "rows that a mask picks are computed apart: as many as there are in a run"
        width = site.cut.width if isinstance(site, WindowSite) else 0
        return f"an attention over the whole sequence, whose mask cuts it into windows of {width}"

    def match(self, node: ir.Node, view: View) -> WindowSite | ChunkSite | Skip | None:
        """An attention at its second product, a Loop where it ends, rows where they go back."""
        if node.op_type in ("MatMul", "Einsum"):
            return windows_at(node, view)
        found = _FOUND[node.op_type](node, view)
        if isinstance(found, str):
            return Skip(node, found)
        return None if found is None else ChunkSite(node, found)

    def repair(self, model: ir.Model) -> Iterator[Change | Skip]:
        """Compute every such attention in windows, and what lies between them."""
        view = View(model)
        op = Builder(self.name, view)
        rows = Rows(op)
        for node in list(view.nodes(*_ANCHORS)):
            if node.graph is None:  # went with an earlier repair
                continue
            found = self.match(node, view)
            if isinstance(found, Skip):
                yield found
            elif found is not None:
                yield self._commit(found.node, partial(self._built, found, rows, op), rows, op)
        for node in [*model.graph]:
            if node.graph is not None and rows.can_wait(node):
                yield self._commit(node, rows.put_off, rows, op)

    def _built(
        self, site: WindowSite | ChunkSite, rows: Rows, op: Builder, node: ir.Node
    ) -> ir.Value:
        if isinstance(site, WindowSite):
            return in_windows(site, rows, op, node)
        if isinstance(site.parts, Looped):
            return at_once(site.parts, self.name, rows, op)
        return unpacked(site.parts, op)

    def _commit(
        self, node: ir.Node, build: Callable[[ir.Node], ir.Value], rows: Rows, op: Builder
    ) -> Change:
        at, tensor = path_of(node), node.outputs[0].name or ""
        op.start(node)
        removed, added = op.commit(build(node))
        swept = rows.sweep()
        return Change(self.name, at, tensor, removed, tuple(x for x in added if x not in swept))
