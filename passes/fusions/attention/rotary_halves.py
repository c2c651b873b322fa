"""What a rotary embedding turns: halves of the features, or pairs of neighbours."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.facts.shapes import all_same
from graphfix.facts.view import View
from graphfix.graph.constants import ints_of
from graphfix.graph.nodes import attr_int, input_at, is_op, maker_of

Part = tuple["ir.Value", int, int]
Places = tuple[tuple[int, int], tuple[int, int]]


@dataclass(frozen=True)
class Turned:
    """``source * cos + rotate(source) * sin``.

    Attributes:
        source: What is turned.
        cos: What it is multiplied by.
        sin: What its rotation is multiplied by.
        pairs: Whether neighbours are turned together; if not, the halves.
        apart: Whether the halves are turned apart and then joined, by tables of half the features.
    """

    source: ir.Value
    cos: ir.Value
    sin: ir.Value
    pairs: bool
    apart: bool = False


def turned(node: ir.Node, width: int, view: View) -> Turned | None:
    """What an Add or a Concat makes, if that turns ``width`` features."""
    if is_op(node, "Concat"):
        return _joined(node, width, view)
    a, b = (maker_of(x) for x in node.inputs)
    return _summed(a, b, width, view) or _summed(b, a, width, view)


def _summed(a: ir.Node | None, b: ir.Node | None, width: int, view: View) -> Turned | None:
    """Two addends as ``x * cos`` and ``rotate(x) * sin``; None if they are no such."""
    if not is_op(a, "Mul") or not is_op(b, "Mul"):
        return None
    for moved, sin in (b.inputs, b.inputs[::-1]):
        for pairs, rotated in ((False, _rotated_halves), (True, _rotated_pairs)):
            source = None if moved is None else rotated(moved, width, view)
            if source is None or sin is None:
                continue
            for x, cos in (a.inputs, a.inputs[::-1]):
                if x is source and cos is not None:
                    return Turned(source, cos, sin, pairs)
    return None


def _joined(concat: ir.Node, width: int, view: View) -> Turned | None:
    """``a * cos - b * sin`` and ``b * cos + a * sin`` of the halves a and b of x, side by side."""
    if len(concat.inputs) != 2 or not along_last(concat, view):
        return None
    minus, plus = (maker_of(x) for x in concat.inputs)
    if not is_op(minus, "Sub") or not is_op(plus, "Add"):
        return None
    products = [maker_of(x) for x in (*minus.inputs, *plus.inputs)]
    first, second, *others = (None if x is None else x.inputs for x in products)
    if not all(is_op(x, "Mul") for x in products) or first is None or second is None:
        return None
    for (a, cos), (b, sin) in itertools.product((first, first[::-1]), (second, second[::-1])):
        if a is None or b is None or cos is None or sin is None:
            continue
        wanted = ({b, cos}, {a, sin})
        if [set(x or ()) for x in others] not in ([*wanted], [*wanted[::-1]]):
            continue
        source = _whole_of(a, b, ((0, 1), (width // 2, 1)), view)
        if source is not None:
            return Turned(source, cos, sin, pairs=False, apart=True)
    return None


def part_of(value: ir.Value, view: View) -> Part | None:
    """(x, start, step) where ``value`` is cut from the last axis of x, to its end or as it says."""
    node, dims = value.producer(), view.shapes.dims(value)
    source = node.inputs[0] if node is not None and node.inputs else None
    whole = view.shapes.dims(source)
    if node is None or source is None or not dims or not whole or len(dims) != len(whole):
        return None
    size, length = dims[-1], whole[-1]
    if not isinstance(size, int) or not isinstance(length, int):
        return None
    if is_op(node, "Split"):
        if not along_last(node, view):
            return None
        before = node.outputs[: list(node.outputs).index(value)]
        sizes = [view.shapes.dims(x) for x in before]
        numbers = [x[-1] for x in sizes if x and isinstance(x[-1], int)]
        return (source, sum(numbers), 1) if len(numbers) == len(before) else None
    if not is_op(node, "Slice") or len(node.inputs) < 4 or not all_same(dims[:-1], whole[:-1]):
        return None
    start = _number(node.inputs[1], view)
    given = input_at(node, 4)
    step = 1 if given is None else _number(given, view)
    if ints_of(node.inputs[3]) not in ((-1,), (len(whole) - 1,)) or start is None:
        return None
    if step is None or step < 1:
        return None
    start += length * (start < 0)
    # Where it ends follows from how long it is, except a step.
    return (source, start, step) if start >= 0 and start + (size - 1) * step < length else None


def along_last(node: ir.Node, view: View) -> bool:
    """Whether a Concat or Split goes along the last axis."""
    rank = view.shapes.rank(node.inputs[0])
    return rank is not None and attr_int(node, "axis", 0) in (-1, rank - 1)


def _rotated_halves(value: ir.Value, width: int, view: View) -> ir.Value | None:
    """x, if ``value`` is the second half of its features, negated, and then the first."""
    node = value.producer()
    if not is_op(node, "Concat") or len(node.inputs) != 2 or not along_last(node, view):
        return None
    return _both(node.inputs, ((width // 2, 1), (0, 1)), width, view)


def _rotated_pairs(value: ir.Value, width: int, view: View) -> ir.Value | None:
    """x, if in each pair of ``value`` the second is negated and comes first."""
    node = value.producer()
    joined = node.inputs[0] if is_op(node, "Reshape", "Flatten") else None
    concat = maker_of(joined)
    dims, apart = view.shapes.dims(value), view.shapes.dims(joined)
    if not is_op(concat, "Concat") or len(concat.inputs) != 2 or not along_last(concat, view):
        return None
    if dims is None or apart is None or apart[-2:] != (width // 2, 2):
        return None
    if not all_same(dims[:-1], apart[:-2]):
        return None
    inner = [_with_a_last_axis(x, view) or x for x in concat.inputs]
    return _both(inner, ((1, 2), (0, 2)), width, view)


def _both(
    parts: Sequence[ir.Value | None], places: Places, width: int, view: View
) -> ir.Value | None:
    """x, if these are two parts of it, each of half its features, the first of them negated."""
    node, plain = maker_of(parts[0]), parts[1]
    if not is_op(node, "Neg") or node.inputs[0] is None or plain is None:
        return None
    source = _whole_of(node.inputs[0], plain, places, view)
    dims = view.shapes.dims(source)
    return source if dims and dims[-1] == width else None


def _whole_of(a: ir.Value, b: ir.Value, places: Places, view: View) -> ir.Value | None:
    """What both are a half of, if ``places`` says where each of them begins, and by what step."""
    first, second = _half(a, view), _half(b, view)
    if first is None or second is None or first[0] is not second[0]:
        return None
    return first[0] if (first[1:], second[1:]) == places else None


def _half(value: ir.Value, view: View) -> Part | None:
    """(x, start, step) where ``value`` is half of the last axis of x.

    It is cut from x, or from the pairs that a Reshape makes of neighbours, [.., D / 2, 2].
    """
    squeeze = maker_of(value)
    cut = squeeze.inputs[0] if is_op(squeeze, "Squeeze") else value
    part = None if cut is None else part_of(cut, view)
    apart, dims, own = (view.shapes.dims(x) for x in (part[0] if part else None, cut, value))
    if part is None or not apart or not dims or not own:
        return None
    joined = maker_of(part[0])
    given = joined.inputs[0] if is_op(joined, "Reshape") else None
    whole = view.shapes.dims(given)
    if given and whole and (dims[-1], apart[-1]) == (1, 2) and all_same(whole[:-1], apart[:-2]):
        return (given, part[1], 2) if cut is value or all_same(dims[:-1], own) else None
    return part if cut is value and apart[-1] == 2 * dims[-1] else None


def _with_a_last_axis(value: ir.Value | None, view: View) -> ir.Value | None:
    """x, if ``value`` is x with an axis of 1 behind its last."""
    node = maker_of(value)
    if not is_op(node, "Unsqueeze", "Reshape") or node.inputs[0] is None:
        return None
    dims, inner = view.shapes.dims(value), view.shapes.dims(node.inputs[0])
    return node.inputs[0] if dims and dims[-1] == 1 and all_same(dims[:-1], inner) else None


def _number(value: ir.Value | None, view: View) -> int | None:
    data = view.shapes.data(value)
    return data[0] if data is not None and len(data) == 1 and isinstance(data[0], int) else None
