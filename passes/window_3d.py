"""window-3d: the manual is the docstring of the class."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from graphfix.core import Change, Match, Pass, Safety, Skip
from graphfix.editing.builder import Builder
from graphfix.model.text import path_of
from graphfix.model.view import View

from ._window.attention import WindowSite, in_windows, windows_at
from ._window.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import onnx_ir as ir

_ANCHORS = ("MatMul", "Einsum")


@dataclass(frozen=True)
class Window3d(Pass):
    """An attention whose mask cuts the sequence into windows of one size is computed in windows.

    A sequence [B, T, D] becomes [B * n, W, D], the last window filled up with copies of the last
    row, whose keys are hidden. What is computed of each place alone (products with weights, norms,
    activations, sums) is then computed in windows as well, so that the sequence is cut once, before
    the first attention, and joined once, after the last. Run it after ``directml``, which makes
    addends of masks, and before ``fuse-attention``, which then sees a mask of keys.

    The windows are read from the mask, never from a name. Either the mask is a constant, as
    ``fix-dims`` and ``fold`` leave it. Or it compares the window of the query with that of the key,
    each the place divided by a constant: ``i // W == j // W``, as both exporters write it. Masks of
    keys beside it are kept.

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
        floor is -1e9 (-1e4 in float16). The batch has at least one row, and the sequence, too.
        Places are counted exactly in float32 below 2^20. Refused, with the reason: divided places
        that are compared otherwise (windows that see those before them, or are shifted); addends
        that differ within a window, or are not seen to be masks of keys; keys of earlier runs,
        rotary embeddings, grouped heads; attentions in a branch or the body of a Loop; opsets
        below 13. Left alone: a mask that is neither a constant nor made of divided places, such as
        a band, or one whose width is computed.
    """

    name: ClassVar[str] = "window-3d"
    safety: ClassVar[Safety] = "valid-rows"

    def sites(self, model: ir.Model) -> Iterator[WindowSite | Skip]:
        """Every attention in windows, and every near miss."""
        view = View(model)
        for node in view.nodes(*_ANCHORS):
            found = windows_at(node, view)
            if found is not None:
                yield found

    def message(self, site: Match) -> str:
        """What it is."""
        width = site.cut.width if isinstance(site, WindowSite) else 0
        return f"an attention over the whole sequence, whose mask cuts it into windows of {width}"

    def repair(self, model: ir.Model) -> Iterator[Change | Skip]:
        """Compute every such attention in windows, and what lies between them."""
        view = View(model)
        op = Builder(self.name, view)
        rows = Rows(op)
        for node in list(view.nodes(*_ANCHORS)):
            if node.graph is None:  # went with an earlier repair
                continue
            found = windows_at(node, view)
            if isinstance(found, Skip):
                yield found
            elif found is not None:
                build = partial(in_windows, found, rows, op)
                yield self._commit(found.node, build, rows, op, found.note)
        for node in [*model.graph]:
            if node.graph is not None and rows.can_wait(node):
                yield self._commit(node, partial(rows.put_off, node), rows, op)

    def _commit(
        self,
        node: ir.Node,
        build: Callable[[], ir.Value],
        rows: Rows,
        op: Builder,
        note: str = "",
    ) -> Change:
        at, tensor = path_of(node), node.outputs[0].name or ""
        op.start(node)
        removed, added = op.commit(build())
        swept = rows.sweep()
        kept = tuple(x for x in added if x not in swept)
        return Change(self.name, at, tensor, removed, kept, note)
