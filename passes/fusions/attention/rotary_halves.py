"""What a rotary embedding rotates: halves of the features, or pairs of neighbours."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.facts.shapes import same_dims
from graphfix.facts.view import View
from graphfix.graph.constants import ints_of
from graphfix.graph.nodes import attr_int, input_at, is_op, producer_of

Part = tuple["ir.Value", int, int]
Places = tuple[tuple[int, int], tuple[int, int]]


@dataclass(frozen=True)
class RotaryParts:
    """The operands of ``source * cos + rotate(source) * sin``.

    Attributes:
        source: The tensor that is rotated.
        cos: What it is multiplied by.
        sin: What its rotation is multiplied by.
        interleaved: Whether neighbours are rotated together; if not, the halves.
        half_tables: Whether the halves are rotated separately and then joined, with tables of
            half the features.
    """

    source: ir.Value
    cos: ir.Value
    sin: ir.Value
    interleaved: bool
    half_tables: bool = False


def match_rotation(node: ir.Node, width: int, view: View) -> RotaryParts | None:
    """Return the rotation of ``width`` features that an Add or a Concat computes, or None."""
    if is_op(node, "Concat"):
        return _match_concat(node, width, view)
    a, b = (producer_of(x) for x in node.inputs)
    return _match_sum(a, b, width, view) or _match_sum(b, a, width, view)


def _match_sum(a: ir.Node | None, b: ir.Node | None, width: int, view: View) -> RotaryParts | None:
    """Return two addends as ``x * cos`` and ``rotate(x) * sin``, or None."""
    if not is_op(a, "Mul") or not is_op(b, "Mul"):
        return None
    for rotated_value, sin in (b.inputs, b.inputs[::-1]):
        for interleaved, find_source in (
            (False, _source_of_rotated_halves),
            (True, _source_of_rotated_pairs),
        ):
            source = None if rotated_value is None else find_source(rotated_value, width, view)
            if source is None or sin is None:
                continue
            for x, cos in (a.inputs, a.inputs[::-1]):
                if x is source and cos is not None:
                    return RotaryParts(source, cos, sin, interleaved)
    return None


def _match_concat(concat: ir.Node, width: int, view: View) -> RotaryParts | None:
    """Match ``a * cos - b * sin`` beside ``b * cos + a * sin``, for halves a and b of x."""
    if len(concat.inputs) != 2 or not is_along_last(concat, view):
        return None
    minus, plus = (producer_of(x) for x in concat.inputs)
    if not is_op(minus, "Sub") or not is_op(plus, "Add"):
        return None
    products = [producer_of(x) for x in (*minus.inputs, *plus.inputs)]
    first, second, *cross_terms = (None if x is None else x.inputs for x in products)
    if not all(is_op(x, "Mul") for x in products) or first is None or second is None:
        return None
    for (a, cos), (b, sin) in itertools.product((first, first[::-1]), (second, second[::-1])):
        if a is None or b is None or cos is None or sin is None:
            continue
        expected = ({b, cos}, {a, sin})
        if [set(x or ()) for x in cross_terms] not in ([*expected], [*expected[::-1]]):
            continue
        source = _common_source(a, b, ((0, 1), (width // 2, 1)), view)
        if source is not None:
            return RotaryParts(source, cos, sin, interleaved=False, half_tables=True)
    return None


def last_axis_cut(value: ir.Value, view: View) -> Part | None:
    """Return (x, start, step) if ``value`` is cut from the last axis of x, or None."""
    node, dims = value.producer(), view.shapes.dims(value)
    source = node.inputs[0] if node is not None and node.inputs else None
    source_dims = view.shapes.dims(source)
    if (
        node is None
        or source is None
        or not dims
        or not source_dims
        or len(dims) != len(source_dims)
    ):
        return None
    size, length = dims[-1], source_dims[-1]
    if not isinstance(size, int) or not isinstance(length, int):
        return None
    if is_op(node, "Split"):
        if not is_along_last(node, view):
            return None
        before = node.outputs[: list(node.outputs).index(value)]
        sizes = [view.shapes.dims(x) for x in before]
        numbers = [x[-1] for x in sizes if x and isinstance(x[-1], int)]
        return (source, sum(numbers), 1) if len(numbers) == len(before) else None
    if (
        not is_op(node, "Slice")
        or len(node.inputs) < 4
        or not same_dims(dims[:-1], source_dims[:-1])
    ):
        return None
    start = _constant_integer(node.inputs[1], view)
    step_input = input_at(node, 4)
    step = 1 if step_input is None else _constant_integer(step_input, view)
    if ints_of(node.inputs[3]) not in ((-1,), (len(source_dims) - 1,)) or start is None:
        return None
    if step is None or step < 1:
        return None
    start += length * (start < 0)
    # Where it ends follows from how long it is, except a step.
    return (source, start, step) if start >= 0 and start + (size - 1) * step < length else None


def is_along_last(node: ir.Node, view: View) -> bool:
    """Return whether a Concat or Split works along the last axis."""
    rank = view.shapes.rank(node.inputs[0])
    return rank is not None and attr_int(node, "axis", 0) in (-1, rank - 1)


def _source_of_rotated_halves(value: ir.Value, width: int, view: View) -> ir.Value | None:
    """Return x if ``value`` is the negated second half of its features, then the first."""
    node = value.producer()
    if not is_op(node, "Concat") or len(node.inputs) != 2 or not is_along_last(node, view):
        return None
    return _source_of_parts(node.inputs, ((width // 2, 1), (0, 1)), width, view)


def _source_of_rotated_pairs(value: ir.Value, width: int, view: View) -> ir.Value | None:
    """Return x if ``value`` swaps each pair of its features and negates the first of them."""
    node = value.producer()
    joined = node.inputs[0] if is_op(node, "Reshape", "Flatten") else None
    concat = producer_of(joined)
    dims, pair_dims = view.shapes.dims(value), view.shapes.dims(joined)
    if not is_op(concat, "Concat") or len(concat.inputs) != 2 or not is_along_last(concat, view):
        return None
    if dims is None or pair_dims is None or pair_dims[-2:] != (width // 2, 2):
        return None
    if not same_dims(dims[:-1], pair_dims[:-2]):
        return None
    inner = [_source_without_last_unit_axis(x, view) or x for x in concat.inputs]
    return _source_of_parts(inner, ((1, 2), (0, 2)), width, view)


def _source_of_parts(
    parts: Sequence[ir.Value | None], places: Places, width: int, view: View
) -> ir.Value | None:
    """Return x if these are two halves of its features, the first of them negated."""
    node, plain = producer_of(parts[0]), parts[1]
    if not is_op(node, "Neg") or node.inputs[0] is None or plain is None:
        return None
    source = _common_source(node.inputs[0], plain, places, view)
    dims = view.shapes.dims(source)
    return source if dims and dims[-1] == width else None


def _common_source(a: ir.Value, b: ir.Value, places: Places, view: View) -> ir.Value | None:
    """Return the tensor that both are a half of, starting and stepping as in ``places``."""
    first, second = _half_cut(a, view), _half_cut(b, view)
    if first is None or second is None or first[0] is not second[0]:
        return None
    return first[0] if (first[1:], second[1:]) == places else None


def _half_cut(value: ir.Value, view: View) -> Part | None:
    """Return (x, start, step) if ``value`` is half of the last axis of x, or None.

    It is cut from x, or from the pairs that a Reshape makes of neighbours, [.., D / 2, 2].
    """
    squeeze = producer_of(value)
    cut = squeeze.inputs[0] if is_op(squeeze, "Squeeze") else value
    part = None if cut is None else last_axis_cut(cut, view)
    part_dims, dims, own_dims = (
        view.shapes.dims(x) for x in (part[0] if part else None, cut, value)
    )
    if part is None or not part_dims or not dims or not own_dims:
        return None
    joined = producer_of(part[0])
    flat_source = joined.inputs[0] if is_op(joined, "Reshape") else None
    flat_dims = view.shapes.dims(flat_source)
    if (
        flat_source
        and flat_dims
        and (dims[-1], part_dims[-1]) == (1, 2)
        and same_dims(flat_dims[:-1], part_dims[:-2])
    ):
        return (flat_source, part[1], 2) if cut is value or same_dims(dims[:-1], own_dims) else None
    return part if cut is value and part_dims[-1] == 2 * dims[-1] else None


def _source_without_last_unit_axis(value: ir.Value | None, view: View) -> ir.Value | None:
    """Return x if ``value`` is x with an axis of 1 appended, or None."""
    node = producer_of(value)
    if not is_op(node, "Unsqueeze", "Reshape") or node.inputs[0] is None:
        return None
    dims, inner = view.shapes.dims(value), view.shapes.dims(node.inputs[0])
    return node.inputs[0] if dims and dims[-1] == 1 and same_dims(dims[:-1], inner) else None


def _constant_integer(value: ir.Value | None, view: View) -> int | None:
    data = view.shapes.known_elements(value)
    return data[0] if data is not None and len(data) == 1 and isinstance(data[0], int) else None
