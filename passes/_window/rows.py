"""Sequences as windows, and back: [B, T, F] is [B * n, W, F] between."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from .place_local import carried

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from graphfix.editing.builder import Builder
    from graphfix.model.shapes import Dim

    Size = ir.Value | npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Entry:
    """A sequence that was cut.

    Attributes:
        value: The sequence, [B, T, F], or [T, F] if that is the layout of its model.
        dims: Its dims.
        width: W.
    """

    value: ir.Value
    dims: tuple[Dim, ...]
    width: int

    @property
    def missing(self) -> int | None:
        """How many places the last window lacks; None if that is known only at run time."""
        length = self.dims[-2]
        return -length % self.width if isinstance(length, int) else None


@dataclass(frozen=True, eq=False)
class Windows:
    """A sequence in windows.

    Attributes:
        value: [B * n, W, F], with the last row of the sequence again and again at the end; for
            [T, F] it is [n * W, F].
        entry: What it was cut from, or has the length of.
    """

    value: ir.Value
    entry: Entry


class Rows:
    """Sequences that are known in windows as well, for the repair of one model.

    What is computed of each place alone is computed in windows, too: ``f(windows(x))`` is
    ``windows(f(x))``. So a sequence is cut once, before the first attention, and put together
    again after the last.
    """

    def __init__(self, op: Builder) -> None:
        self._op = op
        self._known: dict[ir.Value, Windows] = {}
        self._entries: dict[tuple[ir.Value, int], Windows] = {}
        self._sizes: dict[tuple[Entry, str], ir.Value] = {}
        self._heads: dict[Entry, ir.Node] = {}
        self._instead: dict[ir.Value, ir.Value] = {}

    def of(self, value: ir.Value, width: int, dims: tuple[Dim, ...] | None = None) -> Windows:
        """``value`` in windows of ``width``.

        Args:
            value: [B, T, F] or [T, F].
            width: W.
            dims: Its dims, if it has just been made.
        """
        value = self._instead.get(value, value)
        known = self._known.get(value)
        if known is not None and known.entry.width == width:
            return known
        node = value.producer()
        if node is not None and dims is None and self._follows(node, width):
            return self._computed(node, width)
        found = self._entries.get((value, width))
        if found is None:
            found = self._entries[value, width] = self._cut(value, width, dims)
        return found

    def behind(self, value: ir.Value | None) -> Windows | None:
        """The windows that a sequence, or the only one it is computed from, was joined of."""
        while value is not None:
            if value in self._known:
                return self._known[value]
            node = value.producer()
            sources = [] if node is None else [node.inputs[i] for i in carried(node, self._op.view)]
            value = sources[0] if len(set(sources)) == 1 else None
        return None

    def joined(self, windows: Windows, dims: Sequence[Dim]) -> ir.Value:
        """The sequence of ``dims`` that windows are cut from."""
        op, value, entry = self._op, windows.value, windows.entry
        if len(dims) == 3:
            batch, width = dims[0], np.array([-1, int(str(dims[2]))], np.int64)
            if isinstance(batch, int):
                value = op.Reshape(value, np.array([batch, *width], np.int64))
            else:
                value = op.Reshape(value, op.Concat(self.size(entry, 0), width, axis=0))
        if entry.missing != 0:
            axis = np.array([len(dims) - 2], np.int64)
            value = op.Slice(value, np.array([0], np.int64), self.length(entry), axis)
        self._known[value] = windows
        return value

    def length(self, entry: Entry) -> Size:
        """T as int64[1]."""
        length = entry.dims[-2]
        if isinstance(length, int):
            return np.array([length], np.int64)
        return self.size(entry, len(entry.dims) - 2)

    def size(self, entry: Entry, axis: int) -> ir.Value:
        """One of the sizes of a sequence as int64[1]; made where the sequence is cut."""
        return self._once(
            entry,
            f"axis {axis}",
            lambda: self._op.Slice(
                self._op.Shape(entry.value),
                np.array([axis], np.int64),
                np.array([axis + 1], np.int64),
            ),
        )

    def missing(self, entry: Entry) -> Size:
        """How many places the last window lacks, as int64[1]."""
        if entry.missing is not None:
            return np.array([entry.missing], np.int64)
        op, width = self._op, np.array([entry.width], np.int64)
        length = self.size(entry, len(entry.dims) - 2)

        def build() -> ir.Value:
            windows = op.Div(op.Add(length, width - 1), width)
            return op.Sub(op.Mul(windows, width), length)

        return self._once(entry, "missing", build)

    def can_wait(self, node: ir.Node) -> bool:
        """Whether what a node reads was put together several times, from windows of one width."""
        found = {self.behind(node.inputs[i]) for i in carried(node, self._op.view)}
        widths = {None if x is None else x.entry.width for x in found}
        return len(found) > 1 and len(widths) == 1 and None not in widths

    def put_off(self, node: ir.Node) -> ir.Value:
        """What the site makes of such sequences, which are put together only then."""
        dims = self._op.view.shapes.dims(node.outputs[0]) or ()
        behind = self.behind(node.inputs[carried(node, self._op.view)[0]])
        if behind is None:
            raise ValueError(f"{node.name} does not read what was put together")
        return self.joined(self._again(node, behind.entry.width), dims)

    def sweep(self) -> set[str]:
        """Remove what was put together and is read by nobody any more; return that as text."""
        gone: set[str] = set()
        for value in [*self._known][::-1]:
            if not value.uses() and not value.is_graph_output():
                del self._known[value]
                gone.update(self._op.drop(value))
        return gone

    def _once(self, entry: Entry, what: str, build: Callable[[], ir.Value]) -> ir.Value:
        found = self._sizes.get((entry, what))
        if found is None or not _is_there(found):
            with self._op.placed(self._head(entry)):
                found = self._sizes[entry, what] = build()
        return found

    def _head(self, entry: Entry) -> ir.Node:
        """What cuts a sequence: its sizes are there before it."""
        head = self._heads.get(entry)
        return head if head is not None and head.graph is not None else self._behind(entry.value)

    def _follows(self, node: ir.Node, width: int) -> bool:
        """Whether to compute what a node makes in windows, rather than to cut it."""
        sources = {node.inputs[i] for i in carried(node, self._op.view)}
        return len(sources) == 1 or any(self._holds(x, width) for x in sources)

    def _holds(self, value: ir.Value | None, width: int) -> bool:
        """Whether a sequence is computed from one that was put together from windows."""
        pending, seen = [value], {value}
        while pending:
            top = pending.pop()
            known = self._known.get(top) if top is not None else None
            if known is not None and known.entry.width == width:
                return True
            node = top.producer() if top is not None else None
            if node is None:
                continue
            new = {node.inputs[i] for i in carried(node, self._op.view)} - seen
            seen |= new
            pending += new
        return False

    def _computed(self, node: ir.Node, width: int) -> Windows:
        """What a node makes, computed in windows; who reads the sequence has it put together."""
        op, old = self._op, node.outputs[0]
        dims = op.view.shapes.dims(old) or ()
        windows = self._again(node, width)
        with op.placed(node):
            whole = self.joined(windows, dims)
        op.replace(old, whole)
        self._instead[old] = whole  # who found the old one before may ask for it still
        op.drop(old)
        return windows

    def _again(self, node: ir.Node, width: int) -> Windows:
        """What a node makes, from windows."""
        op = self._op
        rows = {i: self.of(x, width) for i in carried(node, op.view) if (x := node.inputs[i])}
        inputs = [rows[i].value if i in rows else x for i, x in enumerate(node.inputs)]
        with op.placed(node):
            return Windows(op.again(node, *inputs), next(iter(rows.values())).entry)

    def _cut(self, value: ir.Value, width: int, dims: tuple[Dim, ...] | None) -> Windows:
        """A sequence cut where it is made."""
        op = self._op
        dims = dims or op.view.shapes.dims(value) or ()
        entry = Entry(value, dims, width)
        self._heads[entry] = place = self._behind(value)
        with op.placed(place):
            made = self._padded(entry)
            if len(dims) == 3:
                made = op.Reshape(made, np.array([-1, width, int(str(dims[2]))], np.int64))
        head = made.producer()
        if head is not None and made is not value:  # it stays, what stood behind the value may go
            self._heads[entry] = head
        return Windows(made, entry)

    def _padded(self, entry: Entry) -> ir.Value:
        """The sequence with its last row again and again, up to a multiple of the width."""
        op, zeros = self._op, np.zeros(2 * len(entry.dims) - 2, np.int64)
        if entry.missing == 0:
            return entry.value
        if entry.missing is not None:
            amounts = op.constant(np.array([*zeros, entry.missing, 0], np.int64))
        else:
            amounts = op.Concat(zeros, self.missing(entry), zeros[:1], axis=0)
        return op.Pad(entry.value, amounts, mode="edge")

    def _behind(self, value: ir.Value) -> ir.Node:
        """The node behind that which makes ``value``."""
        node, graph = value.producer(), self._op.site.graph
        if graph is None:
            raise RuntimeError("Builder.start was not called")
        if node is None or node.graph is not graph:
            return graph[0]
        return next(after for before, after in pairwise(graph) if before is node)


def _is_there(value: ir.Value) -> bool:
    node = value.producer()
    return node is not None and node.graph is not None
