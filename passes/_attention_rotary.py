"""Rotary position embedding in pieces: ``x * cos + rotate_half(x) * sin``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from graphfix.model.shapes import same
from graphfix.model.values import attr_int, ints_of, is_op, scalar_of

from ._attention_layout import Layout, size_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from graphfix.build import Builder
    from graphfix.model.view import View

_FAR = 16
_POINTWISE = ("Cos", "Sin", "Cast", "Identity", "Neg")


@dataclass(frozen=True)
class Rotation:
    """What RotaryEmbedding of com.microsoft does, with the angles of one row for each place.

    Attributes:
        source: The tensor that is turned.
        tables: Cosines and sines, whose second half is their first; all axes but those of the
            places and the features are 1.
        ones: Those axes.
        width: How many features a head has.
    """

    source: ir.Value
    tables: tuple[ir.Value, ir.Value]
    ones: tuple[int, ...]
    width: int

    def build(self, value: ir.Value, heads: int, op: Builder) -> ir.Value:
        """The turned tensor, of one [B, T, H * D]."""
        cos, sin = (self._half(table, op) for table in self.tables)
        # The row that the first place has, in tables made for these places alone.
        first = np.zeros(1, np.int64)
        return op.make("com.microsoft.RotaryEmbedding", value, first, cos, sin, num_heads=heads)

    def _half(self, table: ir.Value, op: Builder) -> ir.Value:
        """[T, D / 2] of a table; made once for all layers."""

        def build() -> ir.Value:
            ends = (np.array([x], np.int64) for x in (0, self.width // 2, len(self.ones) + 1))
            half = op.Slice(table, *ends)
            if not self.ones:
                return half
            if op.view.opset(op.site) < 13:
                return op.Squeeze(half, axes=list(self.ones))
            return op.Squeeze(half, np.array(self.ones, np.int64))

        return op.once(("rotary", op.view.numbering.of(table)), build, table)


def rotation_of(node: ir.Node, layout: Layout, view: View) -> Rotation | None:
    """The rotation whose last node is ``node``; None if it is none.

    Args:
        node: An Add.
        layout: What the axes of its output are.
        view: The model around it.
    """
    if not is_op(node, "Add") or not layout.axes:
        return None
    width = size_of(layout.axes[-1])
    if not isinstance(width, int) or width % 2:
        return None
    if any(atom.role != "feature" for atom in layout.axes[-1]):
        return None
    for first, second in (node.inputs, node.inputs[::-1]):
        found = _turned(first, second, width, view)
        if found is None:
            continue
        source, cos, sin = found
        dims = [view.shapes.dims(x) for x in (source, node.outputs[0], cos, sin)]
        if dims[0] is None or dims[1] is None or dims[2] is None or dims[3] is None:
            return None
        if len(dims[0]) != len(dims[1]) or not all(map(same, dims[0], dims[1])):
            return None
        ones = [_ones(x, layout, width) for x in dims[2:] if x is not None]
        if (
            ones[0] is None
            or ones[0] != ones[1]
            or not all(_is_doubled(x, view) for x in (cos, sin))
        ):
            return None
        return Rotation(source, (cos, sin), ones[0], width)
    return None


def _ones(dims: tuple[object, ...], layout: Layout, width: int) -> tuple[int, ...] | None:
    """The axes of a table that are 1, if the others are the places and the features."""
    rank = len(layout.axes)
    if len(dims) > rank or dims[-1] != width:
        return None
    ones: list[int] = []
    for i, dim in enumerate(dims[:-1]):
        axis = layout.axes[rank - len(dims) + i]
        roles = {atom.role for atom in axis}
        if roles & {"query", "key"}:
            if not same(dim, size_of(axis)):  # type: ignore[arg-type]
                return None
        elif dim != 1:
            return None
        else:
            ones.append(i)
    return tuple(ones) if len(ones) == len(dims) - 2 else None


def _turned(
    first: ir.Value | None, second: ir.Value | None, width: int, view: View
) -> tuple[ir.Value, ir.Value, ir.Value] | None:
    """(x, cos, sin) of ``x * cos`` and ``rotate_half(x) * sin``."""
    a, b = (x.producer() if x is not None else None for x in (first, second))
    if not is_op(a, "Mul") or not is_op(b, "Mul"):
        return None
    for half, sin in (b.inputs, b.inputs[::-1]):
        source = None if half is None else _rotated_half(half, width, view)
        if source is None or sin is None:
            continue
        for x, cos in (a.inputs, a.inputs[::-1]):
            if x is source and cos is not None:
                return source, cos, sin
    return None


def _rotated_half(value: ir.Value, width: int, view: View) -> ir.Value | None:
    """x, if ``value`` is the second half of its features, negated, and then the first."""
    node = value.producer()
    rank = view.shapes.rank(value)
    if not is_op(node, "Concat") or len(node.inputs) != 2 or rank is None:
        return None
    if attr_int(node, "axis", 0) not in (-1, rank - 1):
        return None
    negated = node.inputs[0].producer() if node.inputs[0] is not None else None
    if not is_op(negated, "Neg") or negated.inputs[0] is None or node.inputs[1] is None:
        return None
    second, first = (_half(x, width, rank, view) for x in (negated.inputs[0], node.inputs[1]))
    if first is None or second is None or first[0] is not second[0]:
        return None
    return first[0] if (first[1], second[1]) == (0, 1) else None


def _half(value: ir.Value, width: int, rank: int, view: View) -> tuple[ir.Value, int] | None:
    """(x, 0) for the first half of its features, (x, 1) for the second."""
    node, dims = value.producer(), view.shapes.dims(value)
    if node is None or dims is None or dims[-1] != width // 2 or node.inputs[0] is None:
        return None
    source = node.inputs[0]
    whole = view.shapes.dims(source)
    if whole is None or len(whole) != rank or whole[-1] != width:
        return None
    if is_op(node, "Split"):
        if attr_int(node, "axis", 0) not in (-1, rank - 1) or len(node.outputs) != 2:
            return None
        return source, list(node.outputs).index(value)
    if (
        not is_op(node, "Slice")
        or len(node.inputs) < 4
        or not all(same(a, b) for a, b in zip(dims[:-1], whole[:-1], strict=True))
    ):
        return None
    axes, start = ints_of(node.inputs[3]), _ints(node.inputs[1], view)
    steps = ints_of(node.inputs[4]) if len(node.inputs) > 4 else (1,)
    if axes not in ((-1,), (rank - 1,)) or steps not in ((1,), None) or start is None:
        return None
    if len(node.inputs) > 4 and node.inputs[4] is not None and steps != (1,):
        return None
    # Half as long as the whole: where it starts says which half it is.
    return (
        (source, 0) if start == 0 else (source, 1) if start in (width // 2, -width // 2) else None
    )


def _ints(value: ir.Value | None, view: View) -> int | None:
    data = view.shapes.data(value)
    return data[0] if data is not None and len(data) == 1 and isinstance(data[0], int) else None


def _is_doubled(value: ir.Value, view: View) -> bool:
    """Whether the second half of the last axis is the first."""
    for _ in range(_FAR):
        node = value.producer()
        if node is None or node.inputs[0] is None:
            return False
        dims = [view.shapes.dims(x) for x in (value, node.inputs[0])]
        if is_op(node, "Concat"):
            axis, rank = attr_int(node, "axis", 0), view.shapes.rank(value)
            numbers = {view.numbering.of(x) for x in node.inputs if x is not None}
            return len(node.inputs) == 2 and len(numbers) == 1 and axis in (-1, (rank or 0) - 1)
        if is_op(node, "Mul"):
            constant = [scalar_of(x) is not None for x in node.inputs]
            if constant.count(True) != 1:
                return False
            source = node.inputs[constant.index(False)]
        elif is_op(node, "Unsqueeze", "Squeeze", "Expand", "Reshape"):
            if dims[0] is None or dims[1] is None or dims[0][-1] != dims[1][-1]:
                return False
            source = node.inputs[0]
        elif is_op(node, *_POINTWISE):
            source = node.inputs[0]
        else:
            return False
        if source is None:
            return False
        value = source
    return False
