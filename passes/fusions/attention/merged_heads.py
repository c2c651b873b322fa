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

from .axis_layout import Atom, Layout, size_of
from .operand_path import TracedTensor

# One is what a Transpose costs, or a Reshape; a repetition is Reshape, Expand, Reshape.
_REPEAT_COST = 3
Cheap = TypeVar("Cheap", "MergePlan", "SplitPlan")


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


def cheapest_plan(plans: Iterable[Cheap]) -> Cheap | None:
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
    inverse_perm = None if plan.perm is None else tuple(int(i) for i in np.argsort(plan.perm))
    return SplitPlan(
        plan.tensor.value, None if plan.shape is None else shape, inverse_perm, plan.saved_kernels
    )


def _merge_plan(tensor: TracedTensor, heads: int, view: View, *, grouped: bool) -> MergePlan | None:
    layout, dims = tensor.layout, view.shapes.dims(tensor.value)
    start = heads_start(layout.batch_atoms, heads)
    if dims is None or start is None:
        return None
    batch, head_atoms = layout.batch_atoms[:start], layout.batch_atoms[start:]
    if layout.repeated.intersection(batch):
        return None
    own_heads = tuple(atom for atom in head_atoms if atom not in layout.repeated)
    if grouped and (own_heads == head_atoms or head_atoms[: len(own_heads)] != own_heads):
        return None
    if tensor.past is not None and tensor.past.heads != (size_of(own_heads) if grouped else heads):
        return None
    time, feature = layout.atoms_with_roles("query", "key"), layout.atoms_with_roles("feature")
    target_axes = (batch, time, (*own_heads, *feature))
    flat = [atom for axis in target_axes for atom in axis]
    if len(flat) != len(layout.flat_atoms):
        return None
    perm = _perm_for_order(layout, flat)
    if perm is None:
        return None
    permuted_dims = [dims[i] for i in perm]
    sizes = (size_of(batch), size_of(time), multiply_dims(size_of(own_heads), size_of(feature)))
    needs_shape = tuple(layout.axes[i] for i in perm) != target_axes
    shape = constant_shape(permuted_dims, sizes, view) if needs_shape else None
    if needs_shape and shape is None:
        return None
    repeats = None
    if layout.repeated and not grouped:
        repeats = _repeat_shapes(head_atoms, layout.repeated, sizes, size_of(feature))
        if repeats is None:
            return None
    if tensor.rotation is not None and not isinstance(sizes[2], int):
        return None
    rows = [shift.as_row(target_axes[2], tensor.factor) for shift in tensor.shifts]
    biases = [row for row in rows if row is not None]
    if len(biases) < len(rows) or (rows and layout.repeated and not grouped):
        return None
    is_moved = list(perm) != sorted(perm)
    bias = functools.reduce(np.add, biases) if biases else None
    return MergePlan(tensor, sizes, tuple(perm) if is_moved else None, shape, repeats, bias)


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
    head_atoms: Sequence[Atom], repeated: frozenset[Atom], sizes: tuple[Dim, Dim, Dim], feature: Dim
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
