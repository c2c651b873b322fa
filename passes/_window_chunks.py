"""What a Loop does to one chunk after another, done to all of them at once, as windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from graphfix.lengths.arithmetic import Arithmetic, lowers
from graphfix.model.symbolic import expr_of

from ._window_body import PLACES, body_of
from ._window_loop import chunks_of, dims_of
from ._window_rows import Windows

if TYPE_CHECKING:
    from graphfix.build import Builder
    from graphfix.model.shapes import Dim
    from graphfix.model.view import View

    from ._window_body import Body
    from ._window_loop import Chunks, Taken
    from ._window_rows import Entry, Rows


@dataclass(frozen=True)
class Looped:
    """A Loop over chunks that can be computed at once.

    Attributes:
        chunks: The Loop.
        body: What it does to a chunk.
    """

    chunks: Chunks
    body: Body


def looped_at(node: ir.Node, view: View) -> Looped | str | None:
    """The Loop whose chunks a ConcatFromSequence joins; or why it stays one."""
    chunks = chunks_of(node, view)
    if chunks is None or isinstance(chunks, str):
        return chunks
    body = body_of(chunks, view)
    if isinstance(body, str):
        return body
    length = body.made[1]
    if not isinstance(length, int) and not lowers(expr_of(length), PLACES):
        return f"of a chunk of {PLACES} it makes {length}, which no sums and quotients say"
    return Looped(chunks, body)


def at_once(site: Looped, by: str, rows: Rows, op: Builder) -> ir.Value:
    """The body for all chunks, [B * n, W, F], and what it makes put together."""
    chunks, body, width = site.chunks, site.body, site.chunks.width
    graph, told = body.told(by)
    cut = [_cut(taken, width, rows, op) for taken in chunks.taken]
    entry = cut[0].entry
    for own, (value, outer) in enumerate(body.outer.items()):
        value.replace_all_uses_with(
            cut[own].value if own < len(cut) else outer, replace_graph_outputs=True
        )
        if value.is_initializer():
            graph.initializers.pop(value.name or "")
    if told is not None:
        told.replace_all_uses_with(_lengths(entry, rows, op))
    graph.inputs.clear()
    (made,) = op.inline(graph)
    whole = _joined(Windows(made, entry), body.made, rows, op)
    return whole if chunks.axis == 1 else op.Transpose(whole, perm=[0, 2, 1])


def _cut(taken: Taken, width: int, rows: Rows, op: Builder) -> Windows:
    """A sequence in windows, [B * n, W, F]."""
    if taken.axis == 1:
        return rows.of(taken.value, width)
    turned = op.Transpose(taken.value, perm=[0, 2, 1])
    return rows.of(turned, width, dims_of(taken.value, taken.axis, op.view))


def _joined(windows: Windows, made: tuple[Dim, ...], rows: Rows, op: Builder) -> ir.Value:
    """What was made of the chunks one behind the other, as far as the last chunk goes."""
    entry, (_, length, width) = windows.entry, made
    if str(length) == PLACES:
        return rows.joined(windows, (*entry.dims[:2], width))
    batch = rows.size(entry, 0)
    shape = op.Concat(batch, np.array([-1, int(str(width))], np.int64), axis=0)
    value = op.Reshape(windows.value, shape)
    if isinstance(length, int):
        return value
    one, each = np.array([1], np.int64), np.array([entry.width], np.int64)
    before = op.Sub(_count(entry, rows, op), one)
    last = op.Sub(rows.length(entry), op.Mul(before, each))
    opset = op.view.opset(op.site)
    sums = Arithmetic(op, opset, f"of the last of {entry.value.name}", PLACES, lambda: last, last)
    whole = np.array([length.evaluate({PLACES: entry.width})], np.int64)
    total = op.Add(op.Mul(before, whole), sums.of(expr_of(length)))
    return op.Slice(value, np.array([0], np.int64), total, np.array([1], np.int64))


def _count(entry: Entry, rows: Rows, op: Builder) -> ir.Value:
    """How many windows there are, int64[1]."""
    filled = op.Add(rows.length(entry), rows.missing(entry))
    return op.Div(filled, np.array([entry.width], np.int64))


def _lengths(entry: Entry, rows: Rows, op: Builder) -> ir.Value:
    """How many places of each window are of the sequence, int64 [B * n].

    A Loop carries sequences from opset 13 on, so there are no older forms to write.

    Counted, not computed from the length: so ``ilens-mask`` sees that it may be told another.
    """
    batch, length = rows.size(entry, 0), rows.length(entry)
    every = op.make("ConstantOfShape", op.Concat(batch, length, axis=0), value=ir.tensor([1]))
    amounts = op.Concat(np.zeros(3, np.int64), rows.missing(entry), axis=0)
    there = op.Reshape(op.Pad(every, amounts), np.array([-1, entry.width], np.int64))
    return op.ReduceSum(there, np.array([1], np.int64), keepdims=0)
