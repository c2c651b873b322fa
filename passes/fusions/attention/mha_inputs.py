"""What MultiHeadAttention takes beside queries, keys and values: a mask, a bias, biases."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.facts.shapes import Dim, same
from graphfix.facts.symbolic.expressions import times
from graphfix.facts.view import View
from graphfix.graph.constants import Array
from graphfix.graph.nodes import is_op

from ...common.reshape_targets import with_axes
from .axis_layout import REGROUPS, Atom, Layout, regrouped
from .bit_tensors import Axes, aligned
from .hiding_addend import KeyMask
from .operand_path import scaling_of
from .scores import Addend

Ints = npt.NDArray[np.int64]
Measure = tuple[ir.Value, int]


# Expand, Shape, two Slices and Concat, where a size is not a number.
_EXPANDS = 5


@dataclass(frozen=True)
class Sizes:
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
class Term:
    """A part of the attention bias.

    Attributes:
        value: It, or what it was expanded from.
        dims: Its dims as [B, H, S, T], with 1 where it is the same for all.
        factor: What it is multiplied by.
        insert: The axis of 1 that it lacks; None if it broadcasts as it is.
        heads: How many heads its first axis is to be parted into; 0 if it is not.
    """

    value: ir.Value
    dims: tuple[Dim, ...]
    factor: float
    insert: int | None = None
    heads: int = 0


def term_of(
    addend: Addend, batch: Sequence[Atom], own: Sequence[Atom], sizes: Sizes, view: View
) -> Term | None:
    """An addend as a part of the attention bias; None if its axes lie otherwise.

    Args:
        addend: What is added to the scores.
        batch: The atoms of the batch; empty if the scores do not tell it from the heads.
        own: The atoms of the heads.
        sizes: The sizes.
        view: The model around it.
    """
    value, leading = addend.value, addend.axes[:-2]
    axes = aligned(value, addend.axes, view)
    roles = [{atom.role for atom in axis} for axis in addend.axes[-2:]]
    if axes is None or roles[0] - {"query"} or roles[1] - {"key"}:
        return None
    alike = not any(axes[:-2])
    told_apart = leading == (tuple(batch), tuple(own)) or (leading == (tuple(batch),) and not own)
    if not alike and not told_apart:
        return _parted(value, axes, addend.factor, sizes, view)
    while is_op(node := value.producer(), "Expand") and node.inputs[0] is not None:
        if aligned(node.inputs[0], addend.axes, view) is None:
            break
        value = node.inputs[0]
    dims, factor, maker = view.shapes.dims(value), addend.factor, value.producer()
    if dims is None:
        return None
    # What is multiplied anyway is so once.
    if factor != 1 and maker is not None and (scaled := scaling_of(maker, view)) is not None:
        value, factor = scaled[0], factor * scaled[1]
    padded = [*([1] * (4 - len(dims))), *dims]
    if len(leading) == 1 and len(dims) == 3 and not alike:  # [B, S, T] of one head
        return Term(value, (dims[0], 1, *dims[1:]), factor, insert=1)
    return Term(value, tuple(padded[-4:]), factor)


def _parted(value: ir.Value, axes: Axes, factor: float, sizes: Sizes, view: View) -> Term | None:
    """An addend [B * H, S, T]: what tells the batch from the heads, if it was made of that."""
    merged = value, view.shapes.dims(value) or ()
    while (node := value.producer()) is not None and is_op(node, "Identity", *REGROUPS):
        source = node.inputs[0]
        dims = view.shapes.dims(source)
        moved = None if dims is None else regrouped(Layout(axes, ()), dims)
        if source is None or dims is None or moved is None:
            break
        value, axes = source, moved.axes
        if len(dims) < 3 or not (same(dims[0], sizes.batch) and dims[1] == sizes.heads):
            continue
        roles = [{atom.role for atom in axis} for axis in axes]
        if any(role - {"batch"} for role in roles[:2]) or roles[-1] - {"key"}:
            return None
        if len(dims) == 3:
            return Term(value, (*dims[:2], 1, dims[2]), factor, insert=2)
        return Term(value, dims, factor) if len(dims) == 4 and not roles[2] - {"query"} else None
    value, dims = merged
    if len(dims) != 3 or not same(dims[0], times(sizes.batch, sizes.heads)):
        return None
    return Term(value, (sizes.batch, sizes.heads, *dims[1:]), factor, insert=0, heads=sizes.heads)


def key_padding_of(mask: KeyMask, sizes: Sizes, keys: ir.Value, op: Builder) -> ir.Value:
    """int32 [B, T], 1 where a key is seen; made once for all attentions with this mask."""
    bit, view = mask.bit, op.view

    def build() -> ir.Value:
        dims = view.shapes.dims(bit.value) or ()
        value = bit.value
        if view.shapes.dtype(value) == ir.DataType.BOOL:
            value = value if mask.visible else op.Not(value)
        elif not mask.visible:
            value = op.Equal(value, np.zeros((), _numpy(view.shapes.dtype(value))))
        if value is not bit.value or view.shapes.dtype(value) != ir.DataType.INT32:
            value = op.Cast(value, to=ir.DataType.INT32)
        value = as_rank_2(value, bit.axes, op)
        known = [dim for dim in dims if dim != 1]
        wanted = [dim for dim in (sizes.batch, sizes.keys) if dim != 1]
        if len(known) == len(wanted) and all(map(same, known, wanted)):
            return value
        return op.Expand(value, _sizes([[(keys, 0)], [(keys, 1)]], (sizes.batch, sizes.keys), op))

    key = ("keys", view.numbering.of(bit.value), mask.visible, str(sizes.batch), str(sizes.keys))
    return op.once(key, build, bit.value)


def bias_of_terms(
    terms: Sequence[Term], sizes: Sizes, queries: ir.Value, keys: Sequence[Measure], op: Builder
) -> ir.Value:
    """[B, H, S, T], as DirectML demands it; made once for all attentions with these addends.

    Args:
        terms: What is added up.
        sizes: The sizes.
        queries: [B, S, H * D].
        keys: Tensors that have T together, each with its axis.
        op: The builder.
    """
    numbers = tuple((op.view.numbering.of(x.value), x.factor) for x in terms)
    wanted = (sizes.batch, sizes.heads, sizes.queries, sizes.keys)

    def build() -> ir.Value:
        (total, rank), *others = [_scaled(term, op) for term in terms]
        for part, its_rank in others:
            total, rank = op.Add(total, part), max(rank, its_rank)
        missing = _missing(terms, sizes)
        if rank == len(wanted) and all(dim == 1 for dim in missing):
            return total
        return op.Expand(total, _sizes([[(queries, 0)], [], [(queries, 1)], keys], missing, op))

    key = ("bias", numbers, tuple(map(str, wanted)))
    return op.once(key, build, *(term.value for term in terms))


def cost_of_bias(terms: Sequence[Term], sizes: Sizes) -> int:
    """How many kernels it takes to expand the sum of the terms to [B, H, S, T]."""
    missing, parting = _missing(terms, sizes), sum(2 for x in terms if x.heads)
    if not terms or all(dim == 1 for dim in missing):
        return parting
    return parting + (1 if all(isinstance(dim, int) for dim in missing) else _EXPANDS)


def _missing(terms: Sequence[Term], sizes: Sizes) -> list[Dim]:
    """What the sum of the terms is expanded by: [B, H, S, T], with 1 where it has that size."""
    total: list[Dim] = [1] * 4
    for term in terms:
        total = [b if a == 1 else a for a, b in zip(total, term.dims, strict=True)]
    wanted = (sizes.batch, sizes.heads, sizes.queries, sizes.keys)
    return [1 if same(a, b) else b for a, b in zip(total, wanted, strict=True)]


def size_of_product(product: ir.Node, op: Builder) -> ir.Value:
    """The size of a MatMul, inferred from its operands."""
    left, right = (op.Shape(x) for x in product.inputs)
    rows = op.Slice(left, np.array([0], np.int64), np.array([-1], np.int64))
    columns = op.Slice(right, np.array([-1], np.int64), np.array([2**31 - 1], np.int64))
    return op.Concat(rows, columns, axis=0)


def joined_biases(
    biases: Sequence[Array | None], widths: Sequence[Dim], dtype: ir.DataType, op: Builder
) -> ir.Value | None:
    """The biases of queries, keys and values one behind the other, as a constant."""
    if all(bias is None for bias in biases):
        return None
    sizes = [int(str(width)) for width in widths]
    parts = [np.zeros(n) if x is None else x for x, n in zip(biases, sizes, strict=True)]
    return op.constant(np.concatenate(parts).astype(dtype.numpy()))


def _scaled(term: Term, op: Builder) -> tuple[ir.Value, int]:
    """A term times its factor, with its rank; it broadcasts to [B, H, S, T]."""
    value, rank = term.value, len(op.view.shapes.dims(term.value) or ())
    if term.insert is not None:
        value, rank = with_axes("Unsqueeze", value, [term.insert], op), rank + 1
    if term.heads:
        value = op.Reshape(value, np.array([-1, term.heads, 0, 0], np.int64))
    if term.factor != 1:
        value = op.Mul(value, np.array(term.factor, _numpy(op.view.shapes.dtype(term.value))))
    return value, rank


def as_rank_2(value: ir.Value, axes: Axes, op: Builder) -> ir.Value:
    """[B, T] or [1, T] of a tensor with these axes, of which all others are 1."""
    kept = [i for i, axis in enumerate(axes) if axis]
    if len(kept) == 1 and kept[0] > 0:  # the keys alone: the first axis is the batch, of 1
        kept.insert(0, 0)
    value = with_axes("Squeeze", value, [i for i in range(len(axes)) if i not in kept], op)
    return value if len(kept) == 2 else with_axes("Unsqueeze", value, [0], op)


def _sizes(
    places: Sequence[Sequence[Measure]], wanted: Sequence[Dim], op: Builder
) -> ir.Value | Ints:
    """A shape: numbers as they are, other sizes as the sum of those that some tensors have."""
    if all(isinstance(dim, int) for dim in wanted):
        return np.array([int(str(dim)) for dim in wanted], np.int64)
    parts: list[ir.Value | Ints] = []
    for measures, dim in zip(places, wanted, strict=True):
        if isinstance(dim, int):
            parts.append(np.array([dim], np.int64))
            continue
        sizes = [
            op.Slice(op.Shape(value), np.array([axis], np.int64), np.array([axis + 1], np.int64))
            for value, axis in measures
        ]
        parts.append(functools.reduce(op.Add, sizes))
    return op.Concat(*parts, axis=0)


def _numpy(dtype: ir.DataType | None) -> np.dtype[np.generic]:
    return (dtype or ir.DataType.FLOAT).numpy()
