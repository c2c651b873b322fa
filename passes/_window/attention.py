"""An attention whose mask cuts its sequence into windows, computed in windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, Skip
from graphfix.model.shapes import same

from .._attention.site import Attention, attention_at, note_of
from .addend import addend_of
from .block_mask import Cut, cut_of, hidden_windows
from .rows import Rows, Windows

if TYPE_CHECKING:
    from graphfix.editing.builder import Builder
    from graphfix.model.view import View

    from .._attention.merged_heads import Fit


@dataclass(frozen=True)
class WindowSite(Match):
    """An attention whose mask cuts its sequence into windows.

    Attributes:
        attention: The attention.
        cut: The windows.
    """

    attention: Attention
    cut: Cut


def windows_at(node: ir.Node, view: View) -> WindowSite | Skip | None:
    """An attention, at its second product, whose mask cuts windows."""
    found = attention_at(node, view)
    if isinstance(found, Skip):
        width = hidden_windows(node, view)
        near = f"its mask cuts the sequence into windows of {width}, but {found.reason}"
        return None if width is None else Skip(node, near)
    if found is None or not found.terms or not same(found.sizes.queries, found.sizes.keys):
        return None
    cut = cut_of(found, view)
    if isinstance(cut, Cut) and isinstance(found.sizes.keys, int):
        cut = cut if cut.width < found.sizes.keys else None  # one window is no window
    if not isinstance(cut, Cut):
        return cut
    why = _obstacle(found, view)
    if why is not None:
        return Skip(node, why)
    return WindowSite(found.node, found, cut, note=note_of([mask.bit for mask in cut.keys]))


def _obstacle(attention: Attention, view: View) -> str | None:
    """Why an attention cannot be computed in windows."""
    node, sizes = attention.product, attention.sizes
    if node.graph is not view.model.graph:
        return "it is in a branch or the body of a loop"
    if view.opset(node) < 13:
        return f"at opset {view.opset(node)} Pad takes no booleans: convert the model to 13"
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


def in_windows(site: WindowSite, rows: Rows, op: Builder) -> ir.Value:
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
    addend = addend_of(cut, entry, sizes.batch, dtype, rows, op)
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
