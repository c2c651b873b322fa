"""What a Range counts, and where the index that it makes goes. Nothing here edits."""

from dataclasses import dataclass, replace

import onnx_ir as ir

from graphfix.core import Skip
from graphfix.editing.builder import PASS_KEY
from graphfix.facts.shapes import Dim
from graphfix.facts.view import View
from graphfix.graph.constants import Array, axes_of, const_of, const_tensor, ints_of
from graphfix.graph.nodes import attr_int, is_op, maker_of
from graphfix.graph.walks import reached

INTEGERS = (ir.DataType.INT64, ir.DataType.INT32)
# Shape arithmetic is a handful of nodes deep; what lies deeper is taken as unknown.
_DEPTH = 12
# Each element of these is one of those of the input.
_MOVES = ("Identity", "Gather", "Slice", "Squeeze", "Unsqueeze", "Reshape")


@dataclass(frozen=True)
class Term:
    """``base + offset``: a tensor of one element (None for 0) and a constant."""

    base: ir.Value | None
    offset: int
    dtype: ir.DataType
    dims: tuple[Dim, ...] | None = None


@dataclass(frozen=True)
class Count:
    """The numbers of a Range: ``start + step * i``, for ``i`` below its length.

    The length is ``max(0, (more - less + plus) / |step|)``, cut towards zero.

    Attributes:
        more: The integer that the length grows with.
        less: The integer that it shrinks with.
        plus: The constant part, rounded up.
        step: What each number adds to the one before.
        start: The first number where it is a constant, else the scalar that holds it.
        negative: Whether the length could come out below 0, where Range counts 0.
        dtype: The type of the Range.
    """

    more: Term
    less: Term
    plus: int
    step: int
    start: ir.Value | int
    negative: bool
    dtype: ir.DataType


@dataclass(frozen=True)
class IndexAxis:
    """Where the elements of a 1-D index go: axis ``axis`` of ``rank``, whose other dims are 1."""

    rank: int
    axis: int

    @property
    def ones(self) -> tuple[int, ...]:
        """The axes of length 1."""
        return tuple(x for x in range(self.rank) if x != self.axis)


def is_static(node: ir.Node) -> bool:
    """Whether all that a Range counts is constant: then any runtime folds it away."""
    return all(const_of(x) is not None for x in node.inputs)


def count_of(node: ir.Node, view: View) -> Count | Skip:
    """What ``node``, a Range, counts, or why that cannot be done with a CumSum."""
    start, limit, delta = node.inputs
    step_array = const_of(delta)
    if start is None or limit is None or delta is None:
        return Skip(node, "it lacks an input")
    if step_array is None:
        return Skip(node, f"its step {delta.name!r} is not a constant, so its length is unknown")
    dtype = ir.DataType.from_numpy(step_array.dtype)
    if dtype not in INTEGERS:
        return Skip(node, f"it counts in {dtype.name.lower()}: only int64 and int32 count exactly")
    step = _whole(step_array)
    if not step:
        return Skip(node, f"its step {delta.name!r} is 0, or more than one number")
    first, last = _linear(start, dtype, view), _linear(limit, dtype, view)
    if first is None or last is None:
        return Skip(node, "its start or limit has more than one element")
    begin = first.offset if first.base is None else start
    first, last = _cancel(first, last, view)
    if step < 0:
        first, last = last, first
    plus = last.offset - first.offset + abs(step) - 1
    least = least_of(last.base, view)
    negative = first.base is not None or (
        last.base is not None and (least is None or least + plus < 0)
    )
    if negative and view.opset(node) < 12:
        return Skip(
            node,
            f"its limit {limit.name!r} may lie below its start, where Range is empty; counting "
            "that takes an integer Max, which opset 11 does not have: convert the model to 12",
        )
    return Count(last, first, plus, step, begin, negative, dtype)


def place_of(node: ir.Node, view: View) -> IndexAxis | None:
    """Where a Reshape or Unsqueeze of a 1-D index puts it, if all other dims are 1."""
    if is_op(node, "Unsqueeze"):
        axes = axes_of(node)
        if axes is None:
            return None
        rank = 1 + len(axes)
        rest = set(range(rank)) - {x % rank for x in axes}
        return IndexAxis(rank, rest.pop()) if len(rest) == 1 else None
    target = _target_of(node.inputs[1], view)
    if not target:
        return None
    # T elements fill [1, d, 1] only if d is T, however it is written: as a number, -1, 0 or a dim.
    others = [i for i, dim in enumerate(target) if not (isinstance(dim, int) and dim == 1)]
    return IndexAxis(len(target), (others or [len(target) - 1])[0]) if len(others) <= 1 else None


def _target_of(value: ir.Value | None, view: View) -> tuple[Dim | None, ...] | None:
    """The elements of a shape, None where one is not known; None if their number is not."""
    known = ints_of(value) or view.shapes.data(value)
    if known is not None or value is None:
        return known
    node = value.producer()
    if is_op(node, "Concat"):
        parts = [_target_of(x, view) for x in node.inputs]
        return None if None in parts else tuple(dim for part in parts for dim in part or ())
    return (None,) if view.shapes.dims(value) == (1,) else None


def is_index(node: ir.Node, view: View) -> bool:
    """Whether a Range is an index: what it counts goes on to a Reshape, Unsqueeze or Expand."""
    handed = reached(
        [node.outputs[0]],
        lambda x: (user.outputs[0] for user, _ in x.uses() if x in _carried(user, view)),
    )
    uses = (use for value in handed for use in value.uses())
    return any(i == 0 and is_op(user, "Reshape", "Unsqueeze", "Expand") for user, i in uses)


def source_of(value: ir.Value | None, by: str, view: View) -> ir.Node | None:
    """The Range that a 1-D index comes from, or the CumSum that pass ``by`` made of one."""
    for top in reached([value], lambda x: _carried(x.producer(), view)):
        node = top.producer()
        if is_op(node, "Range"):
            return node
        if is_op(node, "CumSum") and node.metadata_props.get(PASS_KEY) == by:
            return node if _is_flat(node, view) else None
    return None


def _is_flat(node: ir.Node, view: View) -> bool:
    """Whether a CumSum of this pass is 1-D: a shape of more dims is a constant or a Concat."""
    rank = view.shapes.rank(node.outputs[0])
    if rank is not None:
        return rank == 1
    fill = maker_of(node.inputs[0])
    shape = fill.inputs[0] if fill is not None else None
    array = const_of(shape)
    if shape is None or array is not None:
        return array is not None and array.size == 1
    return not is_op(shape.producer(), "Concat")


def _carried(node: ir.Node | None, view: View) -> list[ir.Value]:
    """The operands whose elements, one by one, become those of an element-wise index chain."""
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


def _linear(value: ir.Value, dtype: ir.DataType, view: View) -> Term | None:
    """A start or limit without the constants added to it and the casts around it.

    None if it is a constant, but not one whole number.
    """
    offset = 0
    while (array := const_of(value)) is None:
        node = value.producer()
        inner, added = None, 0
        if is_op(node, "Identity", "Squeeze", "Unsqueeze", "Reshape"):
            inner = node.inputs[0]  # of one element, since what it makes is
        elif is_op(node, "Cast"):
            source = _dtype(node.inputs[0], view)
            if source is not None and source in INTEGERS:
                inner, dtype = node.inputs[0], source
        elif is_op(node, "Add", "Sub"):
            inner, added = _plus_constant(node)
        if inner is None:
            return Term(value, offset, dtype, view.shapes.dims(value))
        value, offset = inner, offset + added
    whole = _whole(array)
    return None if whole is None else Term(None, offset + whole, dtype)


def _plus_constant(node: ir.Node) -> tuple[ir.Value | None, int]:
    """The other operand of an Add or Sub of a whole constant, and what is added to it."""
    a, b = node.inputs
    for constant, other in ((b, a), (a, b))[: 2 if node.op_type == "Add" else 1]:
        array = const_of(constant)
        whole = _whole(array) if array is not None else None
        if whole is not None:
            return other, whole if node.op_type == "Add" else -whole
    return None, 0


def _dtype(value: ir.Value | None, view: View) -> ir.DataType | None:
    """The type of a value, in a function body too where it can be seen from the nodes."""
    while value is not None:
        known, node = view.shapes.dtype(value), value.producer()
        if known is not None or node is None:
            return known
        if is_op(node, "Shape", "Size"):
            return ir.DataType.INT64
        if is_op(node, "Cast"):
            to = attr_int(node, "to", 0)
            return ir.DataType(to) if to else None
        if not is_op(node, *_MOVES, "ReduceMax", "Add", "Sub", "Mul", "Div"):
            return None
        value = node.inputs[0]
    return None


def _cancel(first: Term, last: Term, view: View) -> tuple[Term, Term]:
    """Take from both what they have in common: ``Range(past, past + T)`` counts T."""
    if first.base is None or last.base is None:
        return first, last
    number = view.numbering.of(first.base)
    alone = Term(None, first.offset, first.dtype)
    if view.numbering.of(last.base) == number:
        return alone, Term(None, last.offset, last.dtype)
    adder = last.base.producer()
    if adder is None or not is_op(adder, "Add") or None in adder.inputs:
        return first, last
    terms = [_linear(x, last.dtype, view) for x in adder.inputs if x is not None]
    for past, rest in (terms, terms[::-1]):
        if past is None or rest is None or past.base is None:
            continue
        if view.numbering.of(past.base) == number:
            return alone, replace(rest, offset=last.offset + past.offset + rest.offset)
    return first, last


def least_of(value: ir.Value | None, view: View, depth: int = _DEPTH) -> int | None:
    """The least that an integer tensor can hold, from its being made of dims; None if unknown."""
    array = const_of(value)
    if array is not None and array.dtype.kind in "iu" and array.size:
        return int(array.min())
    node = maker_of(value)
    if node is None or depth == 0:
        return None
    if is_op(node, "Shape", "Size"):
        return 0
    if is_op(node, "Cast") and _dtype(node.inputs[0], view) not in INTEGERS:
        return None
    if is_op(node, *_MOVES, "Cast", "Expand"):
        return least_of(node.inputs[0], view, depth - 1)
    if not is_op(node, "Add", "Sub", "Mul", "Div", "Max", "Min", "Concat"):
        return None
    least = [least_of(x, view, depth - 1) for x in node.inputs]
    known = [x for x in least if x is not None]
    if node.op_type == "Max":
        return max(known, default=None)
    if len(known) < len(least) and node.op_type != "Sub":
        return None
    if node.op_type in ("Min", "Concat"):
        return min(known)
    if node.op_type == "Add":
        return sum(known)
    if node.op_type == "Mul":
        return known[0] * known[1] if min(known) >= 0 else None
    by = ints_of(node.inputs[1])
    if by is None or len(by) != 1 or least[0] is None:
        return None
    if node.op_type == "Sub":
        return least[0] - by[0]
    # Integer Div of ONNX cuts towards zero, and so never falls where its dividend rises.
    return int(least[0] / by[0]) if by[0] > 0 else None


def _whole(array: Array) -> int | None:
    """The one integer that a constant holds."""
    return int(array.reshape(-1)[0]) if array.size == 1 and array.dtype.kind in "iu" else None
