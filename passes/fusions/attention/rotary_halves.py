"""The features that a rotary embedding rotates: halves, or pairs of neighbours."""

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.facts.shapes import same_dims
from graphfix.facts.view import View
from graphfix.graph.nodes import is_op, producer_of
from graphfix.ops.axes import axis_of
from graphfix.ops.slices import read_cuts

from ...common.pattern import shared

Part = tuple[ir.Value, int, int]
"""A tensor, and where a cut of its last axis begins, and its step."""
Place = tuple[int, int]
"""Start and step of a cut."""
Places = tuple[Place, Place]
"""Those of two halves."""

_SUM = shared.Add(shared.Mul("x", "cos"), shared.Mul("rotated", "sin"))
_JOINED_HALVES = shared.Concat(
    shared.Sub(shared.Mul("a", "cos"), shared.Mul("b", "sin")),
    shared.Add(shared.Mul("b", "cos"), shared.Mul("a", "sin")),
)


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
    return _match_sum(node, width, view)


def _match_sum(total: ir.Node, width: int, view: View) -> RotaryParts | None:
    """Match ``x * cos + rotate(x) * sin``."""
    for terms in _SUM.matches(total):
        x, cos, rotated, sin = (terms[name] for name in ("x", "cos", "rotated", "sin"))
        if _source_of_rotated_halves(rotated, width, view) is x:
            return RotaryParts(x, cos, sin, interleaved=False)
        if _source_of_rotated_pairs(rotated, width, view) is x:
            return RotaryParts(x, cos, sin, interleaved=True)
    return None


def _match_concat(concat: ir.Node, width: int, view: View) -> RotaryParts | None:
    """Match ``a * cos - b * sin`` beside ``b * cos + a * sin``, for halves a and b of x."""
    if not is_along_last(concat, view):
        return None
    for parts in _JOINED_HALVES.matches(concat):
        source = _common_source(parts["a"], parts["b"], ((0, 1), (width // 2, 1)), view)
        if source is not None:
            cos, sin = parts["cos"], parts["sin"]
            return RotaryParts(source, cos, sin, interleaved=False, half_tables=True)
    return None


def last_axis_cut(value: ir.Value, view: View) -> Part | None:
    """Return (x, start, step) if ``value`` is cut from the last axis of x, or None."""
    node, dims = value.producer(), view.shapes.dims(value)
    if node is None or not is_op(node, "Split", "Slice") or node.inputs[0] is None or not dims:
        return None
    source = node.inputs[0]
    source_dims = view.shapes.dims(source)
    if not source_dims or len(dims) != len(source_dims):
        return None
    size, length = dims[-1], source_dims[-1]
    if not isinstance(size, int) or not isinstance(length, int):
        return None
    if is_op(node, "Split"):
        place = _place_in_split(value, node, view)
    else:
        place = _place_of_slice(node, length, len(dims), view)
    # The size of the cut tells where it ends.
    return None if place is None else (source, *place)


def _place_in_split(value: ir.Value, split: ir.Node, view: View) -> Place | None:
    """Return where a part of a Split of the last axis begins, and its step of 1, or None."""
    if not is_along_last(split, view):
        return None
    before = split.outputs[: split.outputs.index(value)]
    dims = [view.shapes.dims(x) for x in before]
    sizes = [x[-1] for x in dims if x and isinstance(x[-1], int)]
    return (sum(sizes), 1) if len(sizes) == len(before) else None


def _place_of_slice(node: ir.Node, length: int, rank: int, view: View) -> Place | None:
    """Return where a Slice of the last axis alone begins, and its step, or None if unknown."""
    cuts = read_cuts(node, rank, view.shapes.known_elements)
    if cuts is None or cuts.keys() != {rank - 1}:
        return None
    start, _, step = cuts[rank - 1]
    if not isinstance(start, int) or not isinstance(step, int) or step < 1:
        return None
    begin = start + length * (start < 0)
    return None if begin < 0 else (begin, step)


def is_along_last(node: ir.Node, view: View) -> bool:
    """Return whether a Concat or Split works along the last axis."""
    rank = view.shapes.rank(node.inputs[0])
    return rank is not None and axis_of(node, rank, view.opset_of_node(node)) == rank - 1


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
    dims, own_dims = view.shapes.dims(cut), view.shapes.dims(value)
    if part is None or not dims or not own_dims:
        return None
    length = (view.shapes.dims(part[0]) or (None,))[-1]
    flat_source = _flat_source_of_pairs(part[0], view)
    if flat_source is not None and (dims[-1], length) == (1, 2):
        is_kept = cut is value or same_dims(dims[:-1], own_dims)
        return (flat_source, part[1], 2) if is_kept else None
    return part if cut is value and length == 2 * dims[-1] else None


def _flat_source_of_pairs(pairs: ir.Value, view: View) -> ir.Value | None:
    """Return the tensor [.., D] that a Reshape makes [.., D / 2, 2] of, or None."""
    reshape = pairs.producer()
    source = reshape.inputs[0] if is_op(reshape, "Reshape") else None
    dims, pair_dims = view.shapes.dims(source), view.shapes.dims(pairs)
    if not dims or not pair_dims or not same_dims(dims[:-1], pair_dims[:-2]):
        return None
    return source


def _source_without_last_unit_axis(value: ir.Value | None, view: View) -> ir.Value | None:
    """Return x if ``value`` is x with an axis of 1 appended, or None."""
    node = producer_of(value)
    if not is_op(node, "Unsqueeze", "Reshape") or node.inputs[0] is None:
        return None
    dims, inner = view.shapes.dims(value), view.shapes.dims(node.inputs[0])
    return node.inputs[0] if dims and dims[-1] == 1 and same_dims(dims[:-1], inner) else None
