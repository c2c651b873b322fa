"""Rotary position embedding in pieces: ``x * cos + rotate(x) * sin``, of all features or the first.

``rotate`` either negates the second half of the features and puts it first, or it does so with each
pair of neighbours.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.facts.shapes import Dim, same_dim, same_dims
from graphfix.facts.view import View
from graphfix.graph.nodes import is_op, producer_of
from graphfix.lengths.dim_nodes import build_ones

from ...common.reshape_targets import with_axes
from .axis_layout import Layout, size_of
from .rotary_halves import RotaryParts, is_along_last, last_axis_cut, match_rotation
from .rotary_tables import is_doubled, last_row_selection, trace_half

# Two products, a sum, two Slices, Neg and Concat become one kernel.
_ROTATION_KERNELS = 6
# A Slice or Split of the rotated features, and a Concat with the others.
_PARTIAL_KERNELS = 3


@dataclass(frozen=True)
class Rotation:
    """A rotary embedding that com.microsoft.RotaryEmbedding computes.

    Attributes:
        source: The tensor that is rotated.
        tables: Cosines and sines of ``rotary_dim`` features, each number twice, or of half as
            many if ``half_tables``; all axes are 1 except positions, features and, if ``per_row``,
            the batch.
        unit_axes: The axes of size 1 of either table.
        per_row: Whether each row of the batch has its own angles, as fed positions do.
        width: The features of a head.
        rotary_dim: How many of them, the first ones, are rotated.
        interleaved: Whether neighbours are rotated together; if not, the halves.
        half_tables: Whether the tables hold each number once.
    """

    source: ir.Value
    tables: tuple[ir.Value, ir.Value]
    unit_axes: tuple[tuple[int, ...], tuple[int, ...]]
    per_row: bool
    width: int
    rotary_dim: int
    interleaved: bool
    half_tables: bool = False

    @property
    def saved_kernels(self) -> int:
        """Return how many kernels one fused operator saves."""
        return _ROTATION_KERNELS + _PARTIAL_KERNELS * (self.rotary_dim < self.width)

    def build(self, value: ir.Value, heads: int, op: Builder) -> ir.Value:
        """Build the rotated tensor from one [B, T, H * D] or [B, H, T, D]."""
        cos, sin = (self._half_table(*x, op) for x in zip(self.tables, self.unit_axes, strict=True))
        # A table of these positions alone is read from row 0 on, others at a row for each position.
        positions = self._positions(value, op) if self.per_row else np.zeros(1, np.int64)
        attributes = {"num_heads": heads}
        if self.rotary_dim < self.width:
            attributes["rotary_embedding_dim"] = self.rotary_dim
        if self.interleaved:
            attributes["interleaved"] = 1
        return op.make("com.microsoft.RotaryEmbedding", value, positions, cos, sin, **attributes)

    def _half_table(self, table: ir.Value, unit_axes: Sequence[int], op: Builder) -> ir.Value:
        """Build [T, rotary_dim / 2] of a table, once for all layers."""

        def build() -> ir.Value:
            if not self.interleaved and (half := self._half_from_source(table, op)) is not None:
                return half
            end, step = (self.rotary_dim, 2) if self.interleaved else (self.rotary_dim // 2, 1)
            bounds = [0, end, len(unit_axes) + self.per_row + 1, *([step] if step > 1 else [])]
            cut = (np.array([x], np.int64) for x in bounds)
            return self._as_rows(
                table if self.half_tables else op.Slice(table, *cut), unit_axes, op
            )

        return op.build_once(
            ("rotary", self.interleaved, self.half_tables, op.view.numbering.number_of(table)),
            build,
            table,
        )

    def _half_from_source(self, table: ir.Value, op: Builder) -> ir.Value | None:
        """Build [T, rotary_dim / 2] from half of the angles of a table, or return None."""
        base, steps = trace_half(table, op.view, is_half=self.half_tables)
        half = base if isinstance(base, ir.Value) else op.constant(base)
        # Row selections count the axes of the table as it is: axes of 1 go after them.
        row_selection = last_row_selection(steps)
        dims = op.view.shapes.dims(row_selection or half) or ()
        unit_axes = [i for i, dim in enumerate(dims[:-1]) if dim == 1]
        if half is table or not (self.per_row or len(dims) - len(unit_axes) == 2):
            return None
        if row_selection is None:
            half = op.build_once(("rows", half), lambda: self._as_rows(half, unit_axes, op), half)
        for node, at in steps:
            half = op.clone_node(node, *(half if i == at else x for i, x in enumerate(node.inputs)))
        return half if row_selection is None else self._as_rows(half, unit_axes, op)

    def _as_rows(self, half: ir.Value, unit_axes: Sequence[int], op: Builder) -> ir.Value:
        """Build [T, rotary_dim / 2] from half a table with axes of 1, or [B * T, ..] if per row."""
        if not self.per_row and not unit_axes:
            return half

        def reshape_half(value: ir.Value, last: int) -> ir.Value:
            if self.per_row:
                return op.Reshape(value, np.array([-1, last], np.int64))
            return with_axes("Squeeze", value, unit_axes, op)

        width, mul = self.rotary_dim // 2, half.producer()
        for thin, row in (mul.inputs, mul.inputs[::-1]) if is_op(mul, "Mul") else ():
            dims = op.view.shapes.dims(thin)
            if thin is not None and dims and dims[-1] == 1 and op.view.shapes.dims(row) == (width,):
                # Positions times frequencies: reshape the positions, where another Reshape may be.
                return op.Mul(reshape_half(thin, 1), row)
        return reshape_half(half, width)

    def _positions(self, value: ir.Value, op: Builder) -> ir.Value:
        """Build 0, 1, 2, ... as [B, T] for tables of B * T rows, once for all layers."""

        def build() -> ir.Value:
            sizes = op.Gather(op.Shape(value), np.array([0, -2], np.int64), axis=0)
            # In a row of all places: a Reshape reads a size of 0 as that of the same axis.
            row = op.Reshape(build_ones(sizes, op), np.array([1, -1], np.int64))
            count = op.CumSum(row, np.array(1, np.int64), exclusive=1)
            return op.Reshape(count, sizes)

        return op.build_once(("places", op.view.numbering.number_of(self.tables[0])), build, value)


def rotation_of(node: ir.Node, layout: Layout, view: View) -> Rotation | None:
    """Return the rotation whose last node is ``node``, or None.

    Args:
        node: An Add, or the Concat that joins rotated and unrotated features.
        layout: The roles of the axes of its output.
        view: The model around it.
    """
    width = _head_width(layout)
    if not is_op(node, "Add", "Concat") or width is None:
        return None
    whole_source: ir.Value | None = None
    total = node
    if is_op(node, "Concat"):
        whole_source, total = _partial_rotation(node, width, view)
    dims = view.shapes.dims(total.outputs[0])
    rotary_dim = dims[-1] if dims else None
    if not isinstance(rotary_dim, int) or rotary_dim % 2:
        return None
    parts = match_rotation(total, rotary_dim, view)
    if parts is None:
        return None
    if whole_source is None:
        source, fits = parts.source, rotary_dim == width
    else:
        source, fits = whole_source, last_axis_cut(parts.source, view) == (whole_source, 0, 1)
    if not fits or not same_dims(view.shapes.dims(source), view.shapes.dims(node.outputs[0])):
        return None
    table_axes = _axes_of_tables(parts, rotary_dim, layout, view)
    if table_axes is None:
        return None
    unit_axes, per_row = table_axes
    tables, interleaved = (parts.cos, parts.sin), parts.interleaved
    return Rotation(
        source, tables, unit_axes, per_row, width, rotary_dim, interleaved, parts.half_tables
    )


def _head_width(layout: Layout) -> int | None:
    """Return how many features the last axis holds, or None if it holds anything else."""
    last_axis = layout.axes[-1] if layout.axes else ()
    width = size_of(last_axis)
    is_features = bool(layout.axes) and all(atom.role == "feature" for atom in last_axis)
    return width if is_features and isinstance(width, int) else None


def _axes_of_tables(
    parts: RotaryParts, rotary_dim: int, layout: Layout, view: View
) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], bool] | None:
    """Return the axes of 1 of cosines and sines, and whether rows have angles of their own.

    Return None if RotaryEmbedding does not take these tables: they must hold each number twice, or
    be halves.
    """
    size = rotary_dim // 2 if parts.half_tables else rotary_dim
    cos, sin = (_unit_axes_of(view.shapes.dims(x), layout, size) for x in (parts.cos, parts.sin))
    if cos is None or sin is None or cos[1] != sin[1]:
        return None
    if not parts.half_tables and not all(
        is_doubled(x, view, interleaved=parts.interleaved) for x in (parts.cos, parts.sin)
    ):
        return None
    return (cos[0], sin[0]), cos[1]


def _partial_rotation(concat: ir.Node, width: int, view: View) -> tuple[ir.Value | None, ir.Node]:
    """Return (x, the node that rotates its first features) if a Concat joins the others to it.

    Return (None, the Concat) otherwise.
    """
    first, tail = concat.inputs[0], concat.inputs[-1]
    total, dims = producer_of(first), view.shapes.dims(first)
    if len(concat.inputs) == 2 and tail is not None and is_op(total, "Add", "Concat") and dims:
        part = last_axis_cut(tail, view)
        source_dims = view.shapes.dims(part[0]) if part and is_along_last(concat, view) else None
        if part and source_dims and part[1:] == (dims[-1], 1) and source_dims[-1] == width:
            return part[0], total
    return None, concat


def _unit_axes_of(
    dims: tuple[Dim, ...] | None, layout: Layout, width: int
) -> tuple[tuple[int, ...], bool] | None:
    """Return the axes of a table that are 1, and whether its first axis is the batch.

    Return None if the other axes are not positions and features.
    """
    rank = len(layout.axes)
    if dims is None or len(dims) > rank or dims[-1] != width:
        return None
    unit_axes: list[int] = []
    per_row = False
    for i, dim in enumerate(dims[:-1]):
        at = rank - len(dims) + i
        axis = layout.axes[at]
        if {atom.role for atom in axis} & {"query", "key"}:
            if not same_dim(dim, size_of(axis)):
                return None
        elif dim == 1:
            unit_axes.append(i)
        elif at == 0 and same_dim(dim, size_of(axis)):
            per_row = True
        else:
            return None
    return (tuple(unit_axes), per_row) if len(unit_axes) + per_row == len(dims) - 2 else None
