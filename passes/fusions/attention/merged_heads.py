"""How tensors become [B, T, H * D], which MultiHeadAttention takes, and are made from it."""

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.facts.shapes import Dim, same
from graphfix.facts.symbolic.expressions import quotient, times
from graphfix.facts.view import View
from graphfix.graph.constants import Array

from .axis_layout import Atom, Layout, size_of
from .operand_path import TracedTensor

# One is what a Transpose costs, or a Reshape; a repetition is Reshape, Expand, Reshape.
_REPEATS = 3
Cheap = TypeVar("Cheap", "Fit", "Undone")


@dataclass(frozen=True)
class Fit:
    """How a tensor becomes [B, T, H * D], or how it is made from that.

    Attributes:
        place: The tensor.
        dims: [B, T, H * D]; of grouped heads, those that there are.
        perm: The Transpose that comes first, if one is needed.
        shape: The Reshape after it, if one is needed.
        repeats: For grouped heads: the shape that sets the repeated ones apart, how often each axis
            is repeated, and the shape with all heads.
        bias: What is added to that, [H * D], if anything is.
    """

    place: TracedTensor
    dims: tuple[Dim, Dim, Dim]
    perm: tuple[int, ...] | None
    shape: tuple[int, ...] | None
    repeats: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None = None
    bias: Array | None = None

    @property
    def cost(self) -> int:
        """How many kernels it takes."""
        cost = (self.perm is not None) + (self.shape is not None)
        return cost + _REPEATS * (self.repeats is not None)

    @property
    def freed(self) -> int:
        """How many kernels it leaves behind."""
        return self.place.freed

    def build(self, value: ir.Value, op: Builder) -> ir.Value:
        """[B, T, H * D] from the tensor."""
        if self.perm is not None:
            value = op.Transpose(value, perm=self.perm)
        if self.shape is not None:
            value = op.Reshape(value, np.array(self.shape, np.int64))
        if (rotation := self.place.rotation) is not None:
            value = rotation.build(value, int(str(self.dims[2])) // rotation.width, op)
        if self.repeats is not None:
            apart, often, together = (np.array(x, np.int64) for x in self.repeats)
            value = op.Reshape(op.Expand(op.Reshape(value, apart), often), together)
        return value


@dataclass(frozen=True)
class Undone:
    """How a tensor is made from [B, T, H * D].

    Attributes:
        value: The tensor.
        shape: The Reshape that comes first, if one is needed.
        perm: The Transpose after it, if one is needed.
        freed: How many kernels of the model it leaves behind.
    """

    value: ir.Value
    shape: tuple[int, ...] | None
    perm: tuple[int, ...] | None
    freed: int

    @property
    def cost(self) -> int:
        """How many kernels it takes."""
        return (self.perm is not None) + (self.shape is not None)

    def build(self, value: ir.Value, op: Builder) -> ir.Value:
        """The tensor from [B, T, H * D]."""
        if self.shape is not None:
            value = op.Reshape(value, np.array(self.shape, np.int64))
        return value if self.perm is None else op.Transpose(value, perm=self.perm)


@dataclass(frozen=True)
class Groups:
    """Heads of queries that share one of keys: they become more queries of that head.

    Attributes:
        heads: How many heads keys and values have.
        each: How many heads of queries share one of them; 1 if they are as many.
        features: How long one head is.
    """

    heads: int
    each: int = 1
    features: int = 0

    @property
    def cost(self) -> int:
        """How many kernels it takes to lay out queries and result."""
        return 6 if self.each > 1 else 0

    def queries(self, value: ir.Value, op: Builder) -> ir.Value:
        """[B, G * S, K * D] of [B, S, K * G * D]."""
        if self.each == 1:
            return value
        apart = op.Reshape(value, np.array([0, 0, self.heads, self.each, self.features], np.int64))
        turned = op.Transpose(apart, perm=[0, 3, 1, 2, 4])
        return op.Reshape(turned, np.array([0, -1, self.heads * self.features], np.int64))

    def undone(self, value: ir.Value, op: Builder) -> ir.Value:
        """[B, S, K * G * D] of [B, G * S, K * D]."""
        if self.each == 1:
            return value
        apart = op.Reshape(value, np.array([0, self.each, -1, self.heads, self.features], np.int64))
        return op.Reshape(op.Transpose(apart, perm=[0, 2, 3, 1, 4]), np.array([0, 0, -1], np.int64))

    def bias(self, value: ir.Value, op: Builder) -> ir.Value:
        """[B, K, G * S, T] of [B, K, S, T], which is the same for all heads."""
        if self.each == 1:
            return value
        return op.once(("groups", value), lambda: op.Concat(*[value] * self.each, axis=2), value)


def fits_of(
    places: Sequence[TracedTensor], heads: int, view: View, *, grouped: bool = False
) -> Iterator[Fit]:
    """How each of these tensors becomes [B, T, heads * D], where it can.

    Args:
        places: The tensors.
        heads: How many heads there are.
        view: The model around them.
        grouped: Whether heads that share one are left as that one, and none else are wanted.
    """
    found = (_fit(place, heads, view, grouped=grouped) for place in places)
    return (fit for fit in found if fit is not None)


def best(ways: Iterable[Cheap]) -> Cheap | None:
    """The cheapest, with what it leaves behind; of equals the last, which leaves the most."""
    return min(reversed(list(ways)), key=lambda way: way.cost - way.freed, default=None)


def undone(fit: Fit, view: View) -> Undone | None:
    """The other way: how the tensor of ``fit`` is made from [B, T, H * D]."""
    dims = view.shapes.dims(fit.place.value)
    if dims is None or fit.repeats is not None:
        return None
    perm = range(len(dims)) if fit.perm is None else fit.perm
    split = constant_shape(fit.dims, [dims[i] for i in perm], view)
    if fit.shape is not None and split is None:
        return None
    back = None if fit.perm is None else tuple(int(i) for i in np.argsort(fit.perm))
    return Undone(fit.place.value, None if fit.shape is None else split, back, fit.freed)


def _fit(place: TracedTensor, heads: int, view: View, *, grouped: bool) -> Fit | None:
    layout, dims = place.layout, view.shapes.dims(place.value)
    start = first_head(layout.batch, heads)
    if dims is None or start is None:
        return None
    batch, own = layout.batch[:start], layout.batch[start:]
    if layout.repeated.intersection(batch):
        return None
    there = tuple(atom for atom in own if atom not in layout.repeated)
    if grouped and (there == own or own[: len(there)] != there):
        return None
    if place.past is not None and place.past.heads != (size_of(there) if grouped else heads):
        return None
    time, feature = layout.of("query", "key"), layout.of("feature")
    wanted = (batch, time, (*there, *feature))
    flat = [atom for axis in wanted for atom in axis]
    if len(flat) != len(layout.flat):
        return None
    perm = _perm(layout, flat)
    if perm is None:
        return None
    moved = [dims[i] for i in perm]
    sizes = (size_of(batch), size_of(time), times(size_of(there), size_of(feature)))
    needs_shape = tuple(layout.axes[i] for i in perm) != wanted
    shape = constant_shape(moved, sizes, view) if needs_shape else None
    if needs_shape and shape is None:
        return None
    repeats = None
    if layout.repeated and not grouped:
        repeats = _repeats(own, layout.repeated, sizes, size_of(feature))
        if repeats is None:
            return None
    if place.rotation is not None and not isinstance(sizes[2], int):
        return None
    rows = [shift.row(wanted[2], place.factor) for shift in place.shifts]
    biases = [row for row in rows if row is not None]
    if len(biases) < len(rows) or (rows and layout.repeated and not grouped):
        return None
    is_moved = list(perm) != sorted(perm)
    bias = functools.reduce(np.add, biases) if biases else None
    return Fit(place, sizes, tuple(perm) if is_moved else None, shape, repeats, bias)


def first_head(batch: Sequence[Atom], heads: int) -> int | None:
    """Where the heads begin among the atoms of the batch, so that they are that many."""
    start, left = len(batch), heads
    while left > 1 and start > 0:
        rest = quotient(left, batch[start - 1].size)
        if not isinstance(rest, int):
            return None
        start, left = start - 1, rest
    return start if left == 1 else None


def _perm(layout: Layout, flat: Sequence[Atom]) -> list[int] | None:
    """The order of the axes in which their atoms lie as in ``flat``."""
    places = {atom: i for i, atom in enumerate(flat)}
    keys: list[tuple[int, int]] = []
    last = -1
    for i, axis in enumerate(layout.axes):
        last = places[axis[0]] if axis else last
        keys.append((last, i))
    perm = [i for _, i in sorted(keys)]
    return perm if [atom for i in perm for atom in layout.axes[i]] == list(flat) else None


def _repeats(
    own: Sequence[Atom], repeated: frozenset[Atom], sizes: tuple[Dim, Dim, Dim], feature: Dim
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None:
    """Shapes that repeat grouped heads within [B, T, H * D]."""
    if not isinstance(feature, int) or not isinstance(size_of(own), int):
        return None
    apart = [1 if atom in repeated else int(str(atom.size)) for atom in own]
    often = [int(str(atom.size)) if atom in repeated else 1 for atom in own]
    every = int(np.prod([a * b for a, b in zip(apart, often, strict=True)])) * feature
    return (0, 0, *apart, feature), (1, 1, *often, 1), (0, 0, every)


def constant_shape(
    source: Sequence[Dim], wanted: Sequence[Dim], view: View
) -> tuple[int, ...] | None:
    """The constant that reshapes ``source`` to ``wanted``, with 0 where a size stays in place."""
    shape: list[int] = []
    copied: list[Dim] = []
    for i, dim in enumerate(wanted):
        if isinstance(dim, int):
            shape.append(dim)
        elif i < len(source) and same(source[i], dim):
            shape.append(0)
            copied.append(dim)
        else:
            shape.append(-1)
    unclear = any(not view.shapes.never_empty(dim) for dim in copied)
    return None if shape.count(-1) > 1 or (-1 in shape and unclear) else tuple(shape)
