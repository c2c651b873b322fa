"""Conversion of tensors to and from [B, T, H * D], the layout of MultiHeadAttention."""

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.facts.shapes import Dim, same_dim
from graphfix.facts.symbolic.expressions import divide_dims, multiply_dims
from graphfix.facts.view import View
from graphfix.graph.constants import Array
from graphfix.ops.axes import inverse_permutation

from .axis_layout import Atom, Layout, size_of
from .operand_path import TracedTensor

# Kernels: a repetition is Reshape, Expand, Reshape; a Transpose or a Reshape counts 1.
_REPEAT_COST = 3
Plan = TypeVar("Plan", "MergePlan", "SplitPlan")


@dataclass(frozen=True)
class MergePlan:
    """How a tensor is converted to [B, T, H * D].

    Attributes:
        tensor: The tensor.
        dims: [B, T, H * D]; for grouped heads, H counts those that exist.
        perm: The Transpose that comes first, if one is needed.
        shape: The Reshape after it, if one is needed.
        repeats: For grouped heads: the shape that splits off the repeated axes, how often each
            axis is repeated, and the shape with all heads.
        bias: What is added after the merge, [H * D], or None.
    """

    tensor: TracedTensor
    dims: tuple[Dim, Dim, Dim]
    perm: tuple[int, ...] | None
    shape: tuple[int, ...] | None
    repeats: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None = None
    bias: Array | None = None

    @property
    def cost(self) -> int:
        """Return how many kernels it takes."""
        cost = (self.perm is not None) + (self.shape is not None)
        return cost + _REPEAT_COST * (self.repeats is not None)

    @property
    def saved_kernels(self) -> int:
        """Return how many kernels of the model become unused."""
        return self.tensor.freed

    def build(self, value: ir.Value, op: Builder) -> ir.Value:
        """Build [B, T, H * D] from the tensor."""
        if self.perm is not None:
            value = op.Transpose(value, perm=self.perm)
        if self.shape is not None:
            value = op.Reshape(value, np.array(self.shape, np.int64))
        if (rotation := self.tensor.rotation) is not None:
            value = rotation.build(value, int(str(self.dims[2])) // rotation.width, op)
        if self.repeats is not None:
            split_shape, counts, merged_shape = (np.array(x, np.int64) for x in self.repeats)
            value = op.Reshape(op.Expand(op.Reshape(value, split_shape), counts), merged_shape)
        return value


@dataclass(frozen=True)
class SplitPlan:
    """How a tensor is made from [B, T, H * D].

    Attributes:
        value: The tensor.
        shape: The Reshape that comes first, if one is needed.
        perm: The Transpose after it, if one is needed.
        saved_kernels: How many kernels of the model become unused.
    """

    value: ir.Value
    shape: tuple[int, ...] | None
    perm: tuple[int, ...] | None
    saved_kernels: int

    @property
    def cost(self) -> int:
        """Return how many kernels it takes."""
        return (self.perm is not None) + (self.shape is not None)

    def build(self, value: ir.Value, op: Builder) -> ir.Value:
        """Build the tensor from [B, T, H * D]."""
        if self.shape is not None:
            value = op.Reshape(value, np.array(self.shape, np.int64))
        return value if self.perm is None else op.Transpose(value, perm=self.perm)


@dataclass(frozen=True)
class HeadGroups:
    """Query heads that share a key head and are laid out as more queries of that head.

    Attributes:
        heads: How many heads keys and values have.
        group_size: How many query heads share one of them; 1 if there are as many.
        head_size: The features of one head.
    """

    heads: int
    group_size: int = 1
    head_size: int = 0

    @property
    def cost(self) -> int:
        """Return how many kernels it takes to lay out queries and result."""
        return 6 if self.group_size > 1 else 0

    def group_queries(self, value: ir.Value, op: Builder) -> ir.Value:
        """Build [B, G * S, K * D] from queries [B, S, K * G * D]."""
        if self.group_size == 1:
            return value
        split = op.Reshape(
            value, np.array([0, 0, self.heads, self.group_size, self.head_size], np.int64)
        )
        grouped = op.Transpose(split, perm=[0, 3, 1, 2, 4])
        return op.Reshape(grouped, np.array([0, -1, self.heads * self.head_size], np.int64))

    def ungroup_result(self, value: ir.Value, op: Builder) -> ir.Value:
        """Build [B, S, K * G * D] from a result [B, G * S, K * D]."""
        if self.group_size == 1:
            return value
        split = op.Reshape(
            value, np.array([0, self.group_size, -1, self.heads, self.head_size], np.int64)
        )
        return op.Reshape(op.Transpose(split, perm=[0, 2, 3, 1, 4]), np.array([0, 0, -1], np.int64))

    def repeat_bias(self, value: ir.Value, op: Builder) -> ir.Value:
        """Build [B, K, G * S, T] from a bias [B, K, S, T] that is the same for all heads."""
        if self.group_size == 1:
            return value
        return op.build_once(
            ("groups", value), lambda: op.Concat(*[value] * self.group_size, axis=2), value
        )


def merge_plans(
    tensors: Sequence[TracedTensor], heads: int, view: View, *, grouped: bool = False
) -> Iterator[MergePlan]:
    """Yield how each of these tensors becomes [B, T, heads * D], where it can.

    Args:
        tensors: The tensors.
        heads: The number of heads.
        view: The model around them.
        grouped: Whether to require heads that are shared and to leave them unrepeated.
    """
    plans = (_merge_plan(tensor, heads, view, grouped=grouped) for tensor in tensors)
    return (plan for plan in plans if plan is not None)


def cheapest_plan(plans: Iterable[Plan]) -> Plan | None:
    """Return the plan with the least cost after savings, the last among equals, or None."""
    return min(reversed(list(plans)), key=lambda plan: plan.cost - plan.saved_kernels, default=None)


def invert_plan(plan: MergePlan, view: View) -> SplitPlan | None:
    """Return how the plan's tensor is made from [B, T, H * D], or None."""
    dims = view.shapes.dims(plan.tensor.value)
    if dims is None or plan.repeats is not None:
        return None
    perm = range(len(dims)) if plan.perm is None else plan.perm
    shape = constant_shape(plan.dims, [dims[i] for i in perm], view)
    if plan.shape is not None and shape is None:
        return None
    inverse_perm = None if plan.perm is None else inverse_permutation(plan.perm)
    return SplitPlan(
        plan.tensor.value, None if plan.shape is None else shape, inverse_perm, plan.saved_kernels
    )


@dataclass(frozen=True)
class _MergedAxes:
    """The atoms of [B, T, H * D].

    Attributes:
        batch: The atoms of the batch.
        heads: All atoms of the heads, also those that the tensor lacks and is repeated along.
        own_heads: Those that it has.
        time: The atoms of queries or keys.
        features: The atoms of the features of a head.
    """

    batch: tuple[Atom, ...]
    heads: tuple[Atom, ...]
    own_heads: tuple[Atom, ...]
    time: tuple[Atom, ...]
    features: tuple[Atom, ...]

    @property
    def axes(self) -> tuple[tuple[Atom, ...], ...]:
        """Return the atoms of each axis, of the heads only those that the tensor has."""
        return self.batch, self.time, (*self.own_heads, *self.features)

    @property
    def dims(self) -> tuple[Dim, Dim, Dim]:
        """Return the sizes of the axes."""
        width = multiply_dims(size_of(self.own_heads), size_of(self.features))
        return size_of(self.batch), size_of(self.time), width


def _merged_axes(tensor: TracedTensor, heads: int, *, grouped: bool) -> _MergedAxes | None:
    """Return which atoms of a tensor become batch, time, heads and features, or None.

    The arguments are those of :func:`merge_plans`.
    """
    layout = tensor.layout
    start = heads_start(layout.batch_atoms, heads)
    if start is None or layout.repeated.intersection(layout.batch_atoms[:start]):
        return None
    batch, all_heads = layout.batch_atoms[:start], layout.batch_atoms[start:]
    own_heads = tuple(atom for atom in all_heads if atom not in layout.repeated)
    if grouped and (own_heads == all_heads or all_heads[: len(own_heads)] != own_heads):
        return None
    if tensor.past is not None and tensor.past.heads != (size_of(own_heads) if grouped else heads):
        return None
    time, features = layout.atoms_with_roles("query", "key"), layout.atoms_with_roles("feature")
    merged = _MergedAxes(batch, all_heads, own_heads, time, features)
    return merged if sum(map(len, merged.axes)) == len(layout.flat_atoms) else None


def _merge_plan(tensor: TracedTensor, heads: int, view: View, *, grouped: bool) -> MergePlan | None:
    """Return how a tensor becomes [B, T, heads * D], or None; see :func:`merge_plans`."""
    layout, dims = tensor.layout, view.shapes.dims(tensor.value)
    merged = _merged_axes(tensor, heads, grouped=grouped)
    if dims is None or merged is None:
        return None
    moves = _moves_to(merged, tensor, dims, view)
    biases = _bias_rows(tensor, merged.axes[2])
    if moves is None or biases is None:
        return None
    is_repeated, repeats = bool(layout.repeated) and not grouped, None
    if is_repeated:
        repeats = _repeat_shapes(merged.heads, layout.repeated, size_of(merged.features))
        if repeats is None or biases:
            return None
    bias = functools.reduce(np.add, biases) if biases else None
    return MergePlan(tensor, merged.dims, *moves, repeats, bias)


def _moves_to(
    merged: _MergedAxes, tensor: TracedTensor, dims: Sequence[Dim], view: View
) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None] | None:
    """Return the Transpose and the Reshape that lay out a tensor as [B, T, H * D].

    Either is None where it is not needed; None for both if there is no such Transpose, or the
    Reshape has no constant target.
    """
    perm = _perm_for_order(tensor.layout, [atom for axis in merged.axes for atom in axis])
    if perm is None or (tensor.rotation is not None and not isinstance(merged.dims[2], int)):
        return None
    transpose = tuple(perm) if perm != sorted(perm) else None
    if tuple(tensor.layout.axes[i] for i in perm) == merged.axes:
        return transpose, None
    shape = constant_shape([dims[i] for i in perm], merged.dims, view)
    return None if shape is None else (transpose, shape)


def _bias_rows(tensor: TracedTensor, atoms: Sequence[Atom]) -> list[Array] | None:
    """Return the constants added on the path as [H * D] each, or None if one is no such row."""
    rows = [shift.as_row(atoms, tensor.factor) for shift in tensor.shifts]
    known_rows = [row for row in rows if row is not None]
    return known_rows if len(known_rows) == len(rows) else None


def heads_start(batch: Sequence[Atom], heads: int) -> int | None:
    """Return the index of the first batch atom such that the rest are ``heads``, or None."""
    start, remaining = len(batch), heads
    while remaining > 1 and start > 0:
        next_remaining = divide_dims(remaining, batch[start - 1].size)
        if not isinstance(next_remaining, int):
            return None
        start, remaining = start - 1, next_remaining
    return start if remaining == 1 else None


def _perm_for_order(layout: Layout, flat: Sequence[Atom]) -> list[int] | None:
    """Return the order of the axes in which their atoms lie as in ``flat``, or None."""
    places = {atom: i for i, atom in enumerate(flat)}
    keys: list[tuple[int, int]] = []
    last = -1
    for i, axis in enumerate(layout.axes):
        last = places[axis[0]] if axis else last
        keys.append((last, i))
    perm = [i for _, i in sorted(keys)]
    return perm if [atom for i in perm for atom in layout.axes[i]] == list(flat) else None


def _repeat_shapes(
    head_atoms: Sequence[Atom], repeated: frozenset[Atom], feature: Dim
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None:
    """Return the shapes that repeat grouped heads within [B, T, H * D], or None."""
    if not isinstance(feature, int) or not isinstance(size_of(head_atoms), int):
        return None
    split_shape = [1 if atom in repeated else int(str(atom.size)) for atom in head_atoms]
    counts = [int(str(atom.size)) if atom in repeated else 1 for atom in head_atoms]
    merged_size = int(np.prod([a * b for a, b in zip(split_shape, counts, strict=True)])) * feature
    return (0, 0, *split_shape, feature), (1, 1, *counts, 1), (0, 0, merged_size)


def constant_shape(
    source: Sequence[Dim], target: Sequence[Dim], view: View
) -> tuple[int, ...] | None:
    """Return a constant that reshapes ``source`` to ``target``, 0 copying a size, or None."""
    shape: list[int] = []
    copied: list[Dim] = []
    for i, dim in enumerate(target):
        if isinstance(dim, int):
            shape.append(dim)
        elif i < len(source) and same_dim(source[i], dim):
            shape.append(0)
            copied.append(dim)
        else:
            shape.append(-1)
    unclear = any(not view.shapes.is_never_empty(dim) for dim in copied)
    return None if shape.count(-1) > 1 or (-1 in shape and unclear) else tuple(shape)
