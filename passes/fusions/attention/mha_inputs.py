"""Inputs of MultiHeadAttention besides queries, keys and values: mask, bias, biases."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.facts.shapes import Dim, same_dim
from graphfix.facts.symbolic.expressions import multiply_dims
from graphfix.facts.view import View
from graphfix.graph.constants import Array
from graphfix.graph.nodes import is_op

from ...common.reshape_targets import with_axes
from .axis_layout import REGROUPS, Atom, Layout, regroup_atoms
from .bit_tensors import Axes, align_axes
from .hiding_addend import KeyMask
from .operand_path import scaling_of
from .scores import Addend

Ints = npt.NDArray[np.int64]
SizeSource = tuple[ir.Value, int]


# Expand, Shape, two Slices and Concat, where a size is not a number.
_EXPAND_COST = 5


@dataclass(frozen=True)
class AttentionSizes:
    """The sizes of an attention.

    Attributes:
        batch: The batch.
        heads: The number of heads.
        queries: How many queries there are.
        keys: How many keys.
        width: H * D of queries and keys.
    """

    batch: Dim
    heads: int
    queries: Dim
    keys: Dim
    width: Dim


@dataclass(frozen=True)
class BiasTerm:
    """A summand of the attention bias.

    Attributes:
        value: The addend, or what it was expanded from.
        dims: Its dims as [B, H, S, T], with 1 where it is the same for all.
        factor: The number that it is multiplied by.
        insert: The axis of size 1 that it lacks; None if it broadcasts as it is.
        heads: How many heads its first axis is split into; 0 if it is not split.
    """

    value: ir.Value
    dims: tuple[Dim, ...]
    factor: float
    insert: int | None = None
    heads: int = 0


def bias_term_of(
    addend: Addend,
    batch: Sequence[Atom],
    head_atoms: Sequence[Atom],
    sizes: AttentionSizes,
    view: View,
) -> BiasTerm | None:
    """Return an addend as a summand of the attention bias, or None if its axes differ.

    Args:
        addend: What is added to the scores.
        batch: The atoms of the batch; empty if the scores merge it with the heads.
        head_atoms: The atoms of the heads.
        sizes: The sizes of the attention.
        view: The model around it.
    """
    value, leading = addend.value, addend.axes[:-2]
    axes = align_axes(value, addend.axes, view)
    roles = [{atom.role for atom in axis} for axis in addend.axes[-2:]]
    if axes is None or roles[0] - {"query"} or roles[1] - {"key"}:
        return None
    is_same_for_all = not any(axes[:-2])
    matches_batch = leading == (tuple(batch), tuple(head_atoms)) or (
        leading == (tuple(batch),) and not head_atoms
    )
    if not is_same_for_all and not matches_batch:
        return _split_batch_term(value, axes, addend.factor, sizes, view)
    while is_op(node := value.producer(), "Expand") and node.inputs[0] is not None:
        if align_axes(node.inputs[0], addend.axes, view) is None:
            break
        value = node.inputs[0]
    dims, factor, maker = view.shapes.dims(value), addend.factor, value.producer()
    if dims is None:
        return None
    # What is multiplied anyway is so once.
    if factor != 1 and maker is not None and (scaled := scaling_of(maker, view)) is not None:
        value, factor = scaled[0], factor * scaled[1]
    padded = [*([1] * (4 - len(dims))), *dims]
    if len(leading) == 1 and len(dims) == 3 and not is_same_for_all:  # [B, S, T] of one head
        return BiasTerm(value, (dims[0], 1, *dims[1:]), factor, insert=1)
    return BiasTerm(value, tuple(padded[-4:]), factor)


def _split_batch_term(
    value: ir.Value, axes: Axes, factor: float, sizes: AttentionSizes, view: View
) -> BiasTerm | None:
    """Return an addend [B * H, S, T] as a term, by what it was merged from, or None."""
    merged = value, view.shapes.dims(value) or ()
    while (node := value.producer()) is not None and is_op(node, "Identity", *REGROUPS):
        source = node.inputs[0]
        dims = view.shapes.dims(source)
        layout = None if dims is None else regroup_atoms(Layout(axes, ()), dims)
        if source is None or dims is None or layout is None:
            break
        value, axes = source, layout.axes
        if len(dims) < 3 or not (same_dim(dims[0], sizes.batch) and dims[1] == sizes.heads):
            continue
        roles = [{atom.role for atom in axis} for axis in axes]
        if any(role - {"batch"} for role in roles[:2]) or roles[-1] - {"key"}:
            return None
        if len(dims) == 3:
            return BiasTerm(value, (*dims[:2], 1, dims[2]), factor, insert=2)
        return (
            BiasTerm(value, dims, factor) if len(dims) == 4 and not roles[2] - {"query"} else None
        )
    value, dims = merged
    if len(dims) != 3 or not same_dim(dims[0], multiply_dims(sizes.batch, sizes.heads)):
        return None
    return BiasTerm(
        value, (sizes.batch, sizes.heads, *dims[1:]), factor, insert=0, heads=sizes.heads
    )


def build_key_padding(
    mask: KeyMask, sizes: AttentionSizes, keys: ir.Value, op: Builder
) -> ir.Value:
    """Build int32 [B, T], 1 for a visible key, once for all attentions with this mask."""
    bit, view = mask.bit, op.view

    def build() -> ir.Value:
        dims = view.shapes.dims(bit.value) or ()
        value = bit.value
        if view.shapes.dtype(value) == ir.DataType.BOOL:
            value = value if mask.visible else op.Not(value)
        elif not mask.visible:
            value = op.Equal(value, np.zeros((), _numpy_dtype(view.shapes.dtype(value))))
        if value is not bit.value or view.shapes.dtype(value) != ir.DataType.INT32:
            value = op.Cast(value, to=ir.DataType.INT32)
        value = to_rank_2(value, bit.axes, op)
        own_dims = [dim for dim in dims if dim != 1]
        target_dims = [dim for dim in (sizes.batch, sizes.keys) if dim != 1]
        if len(own_dims) == len(target_dims) and all(map(same_dim, own_dims, target_dims)):
            return value
        return op.Expand(
            value, _build_shape([[(keys, 0)], [(keys, 1)]], (sizes.batch, sizes.keys), op)
        )

    key = (
        "keys",
        view.numbering.number_of(bit.value),
        mask.visible,
        str(sizes.batch),
        str(sizes.keys),
    )
    return op.build_once(key, build, bit.value)


def build_attention_bias(
    terms: Sequence[BiasTerm],
    sizes: AttentionSizes,
    queries: ir.Value,
    keys: Sequence[SizeSource],
    op: Builder,
) -> ir.Value:
    """Build [B, H, S, T], as DirectML requires, once for all attentions with these terms.

    Args:
        terms: The summands.
        sizes: The sizes of the attention.
        queries: A tensor [B, S, H * D].
        keys: Tensors whose sizes add up to T, each with its axis.
        op: The builder.
    """
    numbers = tuple((op.view.numbering.number_of(x.value), x.factor) for x in terms)
    target = (sizes.batch, sizes.heads, sizes.queries, sizes.keys)

    def build() -> ir.Value:
        (total, rank), *more_terms = [_scale_term(term, op) for term in terms]
        for part, its_rank in more_terms:
            total, rank = op.Add(total, part), max(rank, its_rank)
        missing = _dims_to_expand(terms, sizes)
        if rank == len(target) and all(dim == 1 for dim in missing):
            return total
        return op.Expand(
            total, _build_shape([[(queries, 0)], [], [(queries, 1)], keys], missing, op)
        )

    key = ("bias", numbers, tuple(map(str, target)))
    return op.build_once(key, build, *(term.value for term in terms))


def cost_of_bias(terms: Sequence[BiasTerm], sizes: AttentionSizes) -> int:
    """Return how many kernels it takes to expand the sum of the terms to [B, H, S, T]."""
    missing, parting = _dims_to_expand(terms, sizes), sum(2 for x in terms if x.heads)
    if not terms or all(dim == 1 for dim in missing):
        return parting
    return parting + (1 if all(isinstance(dim, int) for dim in missing) else _EXPAND_COST)


def _dims_to_expand(terms: Sequence[BiasTerm], sizes: AttentionSizes) -> list[Dim]:
    """Return what to expand the sum of the terms to: [B, H, S, T], 1 where it fits already."""
    total: list[Dim] = [1] * 4
    for term in terms:
        total = [b if a == 1 else a for a, b in zip(total, term.dims, strict=True)]
    target = (sizes.batch, sizes.heads, sizes.queries, sizes.keys)
    return [1 if same_dim(a, b) else b for a, b in zip(total, target, strict=True)]


def build_product_shape(product: ir.Node, op: Builder) -> ir.Value:
    """Build the shape of a MatMul result from the shapes of its operands."""
    lhs_shape, rhs_shape = (op.Shape(x) for x in product.inputs)
    rows = op.Slice(lhs_shape, np.array([0], np.int64), np.array([-1], np.int64))
    columns = op.Slice(rhs_shape, np.array([-1], np.int64), np.array([2**31 - 1], np.int64))
    return op.Concat(rows, columns, axis=0)


def concat_biases(
    biases: Sequence[Array | None], widths: Sequence[Dim], dtype: ir.DataType, op: Builder
) -> ir.Value | None:
    """Return the biases of queries, keys and values as one constant vector, or None."""
    if all(bias is None for bias in biases):
        return None
    sizes = [int(str(width)) for width in widths]
    parts = [np.zeros(n) if x is None else x for x, n in zip(biases, sizes, strict=True)]
    return op.constant(np.concatenate(parts).astype(dtype.numpy()))


def _scale_term(term: BiasTerm, op: Builder) -> tuple[ir.Value, int]:
    """Return a term times its factor, broadcastable to [B, H, S, T], and its rank."""
    value, rank = term.value, len(op.view.shapes.dims(term.value) or ())
    if term.insert is not None:
        value, rank = with_axes("Unsqueeze", value, [term.insert], op), rank + 1
    if term.heads:
        value = op.Reshape(value, np.array([-1, term.heads, 0, 0], np.int64))
    if term.factor != 1:
        value = op.Mul(value, np.array(term.factor, _numpy_dtype(op.view.shapes.dtype(term.value))))
    return value, rank


def to_rank_2(value: ir.Value, axes: Axes, op: Builder) -> ir.Value:
    """Build [B, T] or [1, T] from a tensor with these axes, all others of size 1."""
    long_axes = [i for i, axis in enumerate(axes) if axis]
    if (
        len(long_axes) == 1 and long_axes[0] > 0
    ):  # the keys alone: the first axis is the batch, of 1
        long_axes.insert(0, 0)
    value = with_axes("Squeeze", value, [i for i in range(len(axes)) if i not in long_axes], op)
    return value if len(long_axes) == 2 else with_axes("Unsqueeze", value, [0], op)


def _build_shape(
    size_sources: Sequence[Sequence[SizeSource]], dims: Sequence[Dim], op: Builder
) -> ir.Value | Ints:
    """Return a shape: numbers as they are, other dims as sums of sizes of tensors."""
    if all(isinstance(dim, int) for dim in dims):
        return np.array([int(str(dim)) for dim in dims], np.int64)
    parts: list[ir.Value | Ints] = []
    for sources, dim in zip(size_sources, dims, strict=True):
        if isinstance(dim, int):
            parts.append(np.array([dim], np.int64))
            continue
        sizes = [
            op.Slice(op.Shape(value), np.array([axis], np.int64), np.array([axis + 1], np.int64))
            for value, axis in sources
        ]
        parts.append(functools.reduce(op.Add, sizes))
    return op.Concat(*parts, axis=0)


def _numpy_dtype(dtype: ir.DataType | None) -> np.dtype[np.generic]:
    return (dtype or ir.DataType.FLOAT).numpy()
