"""Rotary position embedding in pieces: ``x * cos + rotate(x) * sin``, of all features or the first.

``rotate`` either negates the second half of the features and puts it first, or it does so with each
pair of neighbours.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.facts.shapes import Dim, all_same, same
from graphfix.facts.view import View
from graphfix.graph.nodes import is_op, maker_of
from graphfix.lengths.dim_nodes import counting

from ...common.reshape_targets import with_axes
from .axis_layout import Layout, size_of
from .rotary_halves import along_last, part_of, turned
from .rotary_tables import half_of, is_doubled, rows_of

# Two products, a sum, two Slices, Neg and Concat become one kernel.
_ROTATES = 6
# What is turned is cut off before, and joined to the rest again.
_CUTS = 3


@dataclass(frozen=True)
class Rotation:
    """What RotaryEmbedding of com.microsoft does, with the angles of one row for each place.

    Attributes:
        source: The tensor that is turned.
        tables: Cosines and sines, of ``turns`` features, which hold each number twice, or of half
            as many where ``halved``; all axes but those of the places and the features are 1, and
            that of the batch where ``rows``.
        ones: Those axes, of either.
        rows: Whether each row of the batch has angles of its own, as positions that are fed do.
        width: How many features a head has.
        turns: How many of them are turned, the first.
        pairs: Whether neighbours are turned together; if not, the halves.
        halved: Whether tables hold each number once.
    """

    source: ir.Value
    tables: tuple[ir.Value, ir.Value]
    ones: tuple[tuple[int, ...], tuple[int, ...]]
    rows: bool
    width: int
    turns: int
    pairs: bool
    halved: bool = False

    @property
    def freed(self) -> int:
        """How many kernels it takes in pieces, less one."""
        return _ROTATES + _CUTS * (self.turns < self.width)

    def build(self, value: ir.Value, heads: int, op: Builder) -> ir.Value:
        """The turned tensor, of one [B, T, H * D] or [B, H, T, D]."""
        cos, sin = (self._half(*x, op) for x in zip(self.tables, self.ones, strict=True))
        # The row that the first place has, in tables made for these places alone; or that of each.
        first = self._places(value, cos, op) if self.rows else np.zeros(1, np.int64)
        given = {"num_heads": heads}
        if self.turns < self.width:
            given["rotary_embedding_dim"] = self.turns
        if self.pairs:
            given["interleaved"] = 1
        return op.make("com.microsoft.RotaryEmbedding", value, first, cos, sin, **given)

    def _half(self, table: ir.Value, ones: Sequence[int], op: Builder) -> ir.Value:
        """[T, turns / 2] of a table; made once for all layers."""

        def build() -> ir.Value:
            if not self.pairs and (made := self._from_source(table, op)) is not None:
                return made
            end, step = (self.turns, 2) if self.pairs else (self.turns // 2, 1)
            given = [0, end, len(ones) + self.rows + 1, *([step] if step > 1 else [])]
            cut = (np.array([x], np.int64) for x in given)
            return self._in_rows(table if self.halved else op.Slice(table, *cut), ones, op)

        return op.once(
            ("rotary", self.pairs, self.halved, op.view.numbering.of(table)), build, table
        )

    def _from_source(self, table: ir.Value, op: Builder) -> ir.Value | None:
        """[T, turns / 2] of a table, made of half of its angles or rows; None if not known."""
        base, steps = half_of(table, op.view, halved=self.halved)
        half = base if isinstance(base, ir.Value) else op.constant(base)
        late = rows_of(steps)  # what chooses rows does so by the axes as they are
        dims = op.view.shapes.dims(late or half) or ()
        ones = [i for i, dim in enumerate(dims[:-1]) if dim == 1]
        if half is table or not (self.rows or len(dims) - len(ones) == 2):
            return None
        if late is None:
            half = op.once(("rows", half), lambda: self._in_rows(half, ones, op), half)
        for node, at in steps:
            half = op.again(node, *(half if i == at else x for i, x in enumerate(node.inputs)))
        return half if late is None else self._in_rows(half, ones, op)

    def _in_rows(self, half: ir.Value, ones: Sequence[int], op: Builder) -> ir.Value:
        """[T, turns / 2] of half a table with these axes of 1; [B * T, ...] of one for each row."""
        if not self.rows and not ones:
            return half

        def view(value: ir.Value, last: int) -> ir.Value:
            if self.rows:
                return op.Reshape(value, np.array([-1, last], np.int64))
            return with_axes("Squeeze", value, ones, op)

        width, mul = self.turns // 2, half.producer()
        for thin, row in (mul.inputs, mul.inputs[::-1]) if is_op(mul, "Mul") else ():
            dims = op.view.shapes.dims(thin)
            if thin is not None and dims and dims[-1] == 1 and op.view.shapes.dims(row) == (width,):
                # Places times frequencies: the view of places goes into the one that made them.
                return op.Mul(view(thin, 1), row)
        return view(half, width)

    def _places(self, value: ir.Value, half: ir.Value, op: Builder) -> ir.Value:
        """0, 1, 2, ... as [B, T], for tables of B * T rows; made once for all layers."""

        def build() -> ir.Value:
            starts, ends, axes = (np.array(x, np.int64) for x in ([0], [1], [0, -2]))
            count = op.Slice(op.Shape(half), starts, ends)
            return op.Reshape(counting(count, op), op.Gather(op.Shape(value), axes))

        return op.once(("places", op.view.numbering.of(self.tables[0])), build, half, value)


def rotation_of(node: ir.Node, layout: Layout, view: View) -> Rotation | None:
    """The rotation whose last node is ``node``; None if it is none.

    Args:
        node: An Add; or the Concat that joins what was turned and what was not.
        layout: What the axes of its output are.
        view: The model around it.
    """
    if not is_op(node, "Add", "Concat") or not layout.axes:
        return None
    width = size_of(layout.axes[-1])
    if not isinstance(width, int) or any(x.role != "feature" for x in layout.axes[-1]):
        return None
    whole, total = (None, node) if is_op(node, "Add") else _first_features(node, width, view)
    dims = view.shapes.dims(total.outputs[0])
    turns = dims[-1] if dims else None
    if not isinstance(turns, int) or turns % 2 or (whole is None and turns != width):
        return None
    one = turned(total, turns, view)
    if one is None or (whole is not None and part_of(one.source, view) != (whole, 0, 1)):
        return None
    source = one.source if whole is None else whole
    if not all_same(view.shapes.dims(source), view.shapes.dims(node.outputs[0])):
        return None
    tables = (one.cos, one.sin)
    size = turns // 2 if one.apart else turns
    cos, sin = (_ones(view.shapes.dims(x), layout, size) for x in tables)
    if cos is None or sin is None or cos[1] != sin[1]:
        return None
    if not one.apart and not all(is_doubled(x, view, pairs=one.pairs) for x in tables):
        return None
    ones = cos[0], sin[0]
    return Rotation(source, tables, ones, cos[1], width, turns, one.pairs, one.apart)


def _first_features(concat: ir.Node, width: int, view: View) -> tuple[ir.Value | None, ir.Node]:
    """(x, what turns its first features), where the others are joined to it as they are.

    (None, the Concat) where they are not.
    """
    first, rest = concat.inputs[0], concat.inputs[-1]
    total, dims = maker_of(first), view.shapes.dims(first)
    if len(concat.inputs) == 2 and rest is not None and is_op(total, "Add", "Concat") and dims:
        part = part_of(rest, view)
        whole = view.shapes.dims(part[0]) if part and along_last(concat, view) else None
        if part and whole and part[1:] == (dims[-1], 1) and whole[-1] == width:
            return part[0], total
    return None, concat


def _ones(
    dims: tuple[Dim, ...] | None, layout: Layout, width: int
) -> tuple[tuple[int, ...], bool] | None:
    """The axes of a table that are 1, and whether the first is the batch.

    None if the others are not the places and the features.
    """
    rank = len(layout.axes)
    if dims is None or len(dims) > rank or dims[-1] != width:
        return None
    ones: list[int] = []
    rows = False
    for i, dim in enumerate(dims[:-1]):
        at = rank - len(dims) + i
        axis = layout.axes[at]
        if {atom.role for atom in axis} & {"query", "key"}:
            if not same(dim, size_of(axis)):
                return None
        elif dim == 1:
            ones.append(i)
        elif at == 0 and same(dim, size_of(axis)):
            rows = True
        else:
            return None
    return (tuple(ones), rows) if len(ones) + rows == len(dims) - 2 else None
