"""What a Range counts, and which tensors are made of its index; reads only."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import onnx_ir as ir

from graphfix import ops
from graphfix.core import Skip
from graphfix.editing.builder import PASS_KEY
from graphfix.facts.intervals import interval_of
from graphfix.facts.shapes import Dim
from graphfix.facts.view import View
from graphfix.graph.constants import Array, const_of, const_tensor, ints_of
from graphfix.graph.nodes import attr_int, is_op, producer_of
from graphfix.graph.walks import reachable_from
from graphfix.ops.operands import read_ints

INTEGERS = (ir.DataType.INT64, ir.DataType.INT32)
# What may be added to a size without leaving the type.
_MOST_COUNTED = {ir.DataType.INT64: 1 << 62, ir.DataType.INT32: 1 << 30}
# Shape arithmetic is a handful of nodes deep; what lies deeper is taken as unknown.
_MAX_DEPTH = 12


@dataclass(frozen=True)
class LinearTerm:
    """``base + offset``: a tensor of one element (None for 0) and a constant."""

    base: ir.Value | None
    offset: int
    dtype: ir.DataType
    dims: tuple[Dim, ...] | None = None


@dataclass(frozen=True)
class RangeCount:
    """The numbers of a Range: ``start + step * i``, for ``i`` below its length.

    The length is ``max(0, (minuend - subtrahend + plus) / |step|)``, cut towards zero.

    Attributes:
        minuend: The integer that the length grows with.
        subtrahend: The integer that it shrinks with.
        plus: The constant part, rounded up.
        step: The difference of neighbouring numbers.
        start: The first number where it is a constant, else the scalar that holds it.
        may_be_negative: Whether the length could come out below 0, where Range is empty.
        dtype: The type of the Range.
    """

    minuend: LinearTerm
    subtrahend: LinearTerm
    plus: int
    step: int
    start: ir.Value | int
    may_be_negative: bool
    dtype: ir.DataType


@dataclass(frozen=True)
class IndexAxis:
    """The axis that holds a 1-D index: ``axis`` of ``rank``, whose other dims are 1."""

    rank: int
    axis: int

    @property
    def unit_axes(self) -> tuple[int, ...]:
        """Return the axes of length 1."""
        return tuple(x for x in range(self.rank) if x != self.axis)


def is_static(node: ir.Node) -> bool:
    """Return whether all inputs of a Range are constant: any runtime folds it then."""
    return all(const_of(x) is not None for x in node.inputs)


def range_count_of(node: ir.Node, view: View) -> RangeCount | Skip:
    """Return what a Range counts, or a Skip if a CumSum cannot count it."""
    start, limit, delta = node.inputs
    if start is None or limit is None or delta is None:
        return Skip(node, "it lacks an input")
    step_and_dtype = _step_of(delta)
    if isinstance(step_and_dtype, str):
        return Skip(node, step_and_dtype)
    step, dtype = step_and_dtype
    first, last = _linear_term(start, dtype, view), _linear_term(limit, dtype, view)
    if first is None or last is None:
        return Skip(node, "its start or limit has more than one element")
    first_number = first.offset if first.base is None else start
    first, last = _cancel_common(first, last, view)
    if step < 0:
        first, last = last, first
    plus = last.offset - first.offset + abs(step) - 1
    if max(abs(plus), abs(step)) > _MOST_COUNTED[dtype]:
        return Skip(node, f"it counts in steps of {step}: its length would be out of range")
    may_be_negative = _may_be_negative(first, last, plus, view)
    if may_be_negative and view.opset_of_node(node) < 12:
        return Skip(
            node,
            f"its limit {limit.name!r} may lie below its start, where Range is empty; counting "
            "that takes an integer Max, which opset 11 does not have: convert the model to 12",
        )
    return RangeCount(last, first, plus, step, first_number, may_be_negative, dtype)


def _step_of(delta: ir.Value) -> tuple[int, ir.DataType] | str:
    """Return the constant step of a Range and its type, or why it cannot be counted."""
    array = const_of(delta)
    if array is None:
        return f"its step {delta.name!r} is not a constant, so its length is unknown"
    dtype = ir.DataType.from_numpy(array.dtype)
    if dtype not in INTEGERS:
        return f"it counts in {dtype.name.lower()}: only int64 and int32 count exactly"
    step = _integer_of(array)
    return (step, dtype) if step else f"its step {delta.name!r} is 0, or more than one number"


def _may_be_negative(first: LinearTerm, last: LinearTerm, plus: int, view: View) -> bool:
    """Return whether ``last - first``, rounded up by ``plus``, may come out below 0."""
    if first.base is not None:
        return True
    return last.base is not None and interval_of(last.base, view).low + plus < 0


def index_axis_of(node: ir.Node, view: View) -> IndexAxis | None:
    """Return where a Reshape or Unsqueeze of a 1-D index puts it, if all other dims are 1."""
    if is_op(node, "Unsqueeze"):
        axes = read_ints(node, 1, "axes")
        if axes is None:
            return None
        rank = 1 + len(axes)
        free_axes = set(range(rank)) - {x % rank for x in axes}
        return IndexAxis(rank, free_axes.pop()) if len(free_axes) == 1 else None
    target = _shape_elements(node.inputs[1], view)
    if not target:
        return None
    # T elements fill [1, d, 1] only if d is T, however it is written: as a number, -1, 0 or a dim.
    long_axes = [i for i, dim in enumerate(target) if not (isinstance(dim, int) and dim == 1)]
    if len(long_axes) > 1:
        return None
    return IndexAxis(len(target), (long_axes or [len(target) - 1])[0])


def _shape_elements(value: ir.Value | None, view: View) -> tuple[Dim | None, ...] | None:
    """Return the elements of a shape, None for unknown ones; None if its length is unknown."""
    elements = ints_of(value) or view.shapes.known_elements(value)
    if elements is not None or value is None:
        return elements
    node = value.producer()
    if is_op(node, "Concat"):
        parts = [_shape_elements(x, view) for x in node.inputs]
        return None if None in parts else tuple(dim for part in parts for dim in part or ())
    return (None,) if view.shapes.dims(value) == (1,) else None


def is_index_range(node: ir.Node, view: View) -> bool:
    """Return whether numbers of a Range go on to a Reshape, Unsqueeze or Expand."""

    def results(numbers: ir.Value) -> Iterator[ir.Value]:
        users = (user for user, _ in numbers.uses())
        return (x.outputs[0] for x in users if numbers in _elementwise_operands(x, view))

    uses = (use for value in reachable_from([node.outputs[0]], results) for use in value.uses())
    return any(i == 0 and is_op(user, "Reshape", "Unsqueeze", "Expand") for user, i in uses)


def range_source_of(value: ir.Value | None, by: str, view: View) -> ir.Node | None:
    """Return the Range that a 1-D index comes from, or the CumSum pass ``by`` made of it."""
    for top in reachable_from([value], lambda x: _elementwise_operands(x.producer(), view)):
        node = top.producer()
        if is_op(node, "Range"):
            return node
        if is_op(node, "CumSum") and node.metadata_props.get(PASS_KEY) == by:
            return node if _is_flat(node, view) else None
    return None


def _is_flat(node: ir.Node, view: View) -> bool:
    """Return whether a CumSum of this pass is 1-D: other shapes are constants or Concats."""
    rank = view.shapes.rank(node.outputs[0])
    if rank is not None:
        return rank == 1
    fill = producer_of(node.inputs[0])
    shape = fill.inputs[0] if fill is not None else None
    array = const_of(shape)
    if shape is None or array is not None:
        return array is not None and array.size == 1
    return not is_op(shape.producer(), "Concat")


def _elementwise_operands(node: ir.Node | None, view: View) -> list[ir.Value]:
    """Return the operands whose elements an index chain passes on one by one."""
    if is_op(node, "Cast", "Identity"):
        return [x for x in node.inputs if x is not None]
    if not is_op(node, "Add", "Sub", "Mul"):
        return []
    many = [x for x in node.inputs if x is not None and not _is_single(x, view)]
    return many if len(many) == 1 else []


def _is_single(value: ir.Value, view: View) -> bool:
    tensor = const_tensor(value)  # a bias, say, of which nothing need be read
    if tensor is not None:
        return tensor.size == 1 and len(tensor.shape) <= 1
    return view.shapes.dims(value) in ((), (1,))


def _linear_term(value: ir.Value, dtype: ir.DataType, view: View) -> LinearTerm | None:
    """Return a start or limit without the constants added to it and the casts around it.

    Return None if it is a constant, but not one integer.
    """
    offset = 0
    while (array := const_of(value)) is None:
        node = value.producer()
        operand, addend = None, 0
        if is_op(node, "Identity", "Squeeze", "Unsqueeze", "Reshape"):
            operand = node.inputs[0]  # of one element, since what it makes is
        elif is_op(node, "Cast"):
            source = _dtype_of(node.inputs[0], view)
            if source is not None and source in INTEGERS:
                operand, dtype = node.inputs[0], source
        elif is_op(node, "Add", "Sub"):
            operand, addend = _split_constant(node)
        if operand is None:
            return LinearTerm(value, offset, dtype, view.shapes.dims(value))
        value, offset = operand, offset + addend
    integer = _integer_of(array)
    return None if integer is None else LinearTerm(None, offset + integer, dtype)


def _split_constant(node: ir.Node) -> tuple[ir.Value | None, int]:
    """Return the other operand of an Add or Sub of an integer, and what is added to it."""
    a, b = node.inputs
    for constant, operand in ((b, a), (a, b))[: 2 if node.op_type == "Add" else 1]:
        array = const_of(constant)
        integer = _integer_of(array) if array is not None else None
        if integer is not None:
            return operand, integer if node.op_type == "Add" else -integer
    return None, 0


def _dtype_of(value: ir.Value | None, view: View) -> ir.DataType | None:
    """Return the type of a value, also in a function body if its nodes show it, or None."""
    while value is not None:
        dtype, node = view.shapes.dtype(value), value.producer()
        if dtype is not None or node is None:
            return dtype
        if node in ops.MEASURES:
            return ir.DataType.INT64
        if is_op(node, "Cast"):
            to = attr_int(node, "to", 0)
            return ir.DataType(to) if to else None
        if node not in ops.KEEPS_TYPE or value is not node.outputs[0]:
            return None
        value = node.inputs[0]
    return None


def _cancel_common(
    first: LinearTerm, last: LinearTerm, view: View
) -> tuple[LinearTerm, LinearTerm]:
    """Remove what both have in common: ``Range(past, past + T)`` counts T."""
    if first.base is None or last.base is None:
        return first, last
    number = view.numbering.number_of(first.base)
    first_constant = LinearTerm(None, first.offset, first.dtype)
    if view.numbering.number_of(last.base) == number:
        return first_constant, LinearTerm(None, last.offset, last.dtype)
    adder = last.base.producer()
    if adder is None or not is_op(adder, "Add") or None in adder.inputs:
        return first, last
    terms = [_linear_term(x, last.dtype, view) for x in adder.inputs if x is not None]
    for past, remainder in (terms, terms[::-1]):
        if past is None or remainder is None or past.base is None:
            continue
        if view.numbering.number_of(past.base) == number:
            return first_constant, replace(
                remainder, offset=last.offset + past.offset + remainder.offset
            )
    return first, last


def _integer_of(array: Array) -> int | None:
    """Return the one integer that a constant holds, or None."""
    return int(array.reshape(-1)[0]) if array.size == 1 and array.dtype.kind in "iu" else None
