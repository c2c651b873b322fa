"""Cosine and sine tables that hold each number twice: as two halves, or interleaved."""

from collections.abc import Sequence

import onnx_ir as ir

from graphfix.facts.view import View
from graphfix.graph.constants import Array, const_of, scalar_of
from graphfix.graph.nodes import attr_int, is_op, producer_of

from .rotary_halves import is_along_last

_MAX_STEPS = 16
# A table of 131,072 places of 128 features is read; larger ones are not.
_MAX_TABLE = 1 << 24
_AXES = ("Unsqueeze", "Squeeze")
_ROWS = ("Gather", "Slice")
_POINTWISE = ("Cos", "Sin", "Cast", "Identity", "Neg")


def is_doubled(value: ir.Value, view: View, *, interleaved: bool) -> bool:
    """Return whether the last axis of a table holds each number twice.

    Args:
        value: A table.
        view: The model around it.
        interleaved: Whether equal numbers are neighbours; if not, the second half repeats the
            first.
    """
    for _ in range(_MAX_STEPS):
        table, node = const_of(value, limit=_MAX_TABLE), value.producer()
        if table is not None and table.ndim and table.shape[-1] % 2 == 0:
            half = table.shape[-1] // 2
            first, second = (0, 1) if interleaved else (slice(half), slice(half, None))
            step = table.reshape(*table.shape[:-1], half, 2) if interleaved else table
            return bool((step[..., first] == step[..., second]).all())
        if node is None or node.inputs[0] is None:
            return False
        if interleaved and _repeats_interleaved(node, view):
            return True
        if is_op(node, "Concat") and not interleaved:
            return _joins_equal_halves(node, view)
        source = _elementwise_source(node, value, view)
        if source is None:
            return False
        value = source
    return False


def trace_half(
    table: ir.Value, view: View, *, is_half: bool
) -> tuple[ir.Value | Array, list[tuple[ir.Node, int]]]:
    """Trace the first half of a table back to its angles, or to what else it is computed from.

    Args:
        table: A table whose second half repeats the first.
        view: The model around it.
        is_half: Whether the table is that half already.

    Returns:
        A tensor or a constant of half as many features; and the nodes that compute the table from
        it, element by element or row by row, in order, each with the index of the traced input.
        Nodes that add or drop axes of 1 are omitted. The table and [] if no source is found.
    """
    value, steps = table, list[tuple[ir.Node, int]]()
    for _ in range(_MAX_STEPS):
        node, constant = value.producer(), const_of(value, limit=_MAX_TABLE)
        if is_op(node, "Concat") and not is_half and node.inputs[0] is not None:
            if not _joins_equal_halves(node, view):
                break
            is_half, value = True, node.inputs[0]
            continue
        if constant is not None and steps and not is_half:
            return constant[..., : constant.shape[-1] // 2], steps
        source = None
        if node is not None and is_op(node, "Mul", *_AXES, *_ROWS, *_POINTWISE):
            source = _elementwise_source(node, value, view)
        if source is None or (is_op(node, *_AXES) and last_row_selection(steps) is not None):
            break
        if node is not None and not is_op(node, *_AXES):
            steps.insert(0, (node, node.inputs.index(source)))
        value = source
    return (value, steps) if is_half else (table, [])


def last_row_selection(steps: Sequence[tuple[ir.Node, int]]) -> ir.Value | None:
    """Return the output of the last node that selects rows of a table, or None."""
    return next((x.outputs[0] for x, _ in reversed(steps) if is_op(x, *_ROWS)), None)


def _joins_equal_halves(concat: ir.Node, view: View) -> bool:
    """Return whether a Concat joins a tensor with itself along the last axis."""
    numbers = {view.numbering.number_of(x) for x in concat.inputs if x is not None}
    return len(concat.inputs) == 2 and len(numbers) == 1 and is_along_last(concat, view)


def _elementwise_source(node: ir.Node, value: ir.Value, view: View) -> ir.Value | None:
    """Return the input that a node maps element by element, keeping the last axis, or None."""
    if is_op(node, "Mul"):
        constant = [scalar_of(x) is not None and view.shapes.rank(x) in (0, 1) for x in node.inputs]
        return node.inputs[constant.index(False)] if constant.count(True) == 1 else None
    if is_op(node, *_AXES, *_ROWS, "Expand", "Reshape"):
        dims = [view.shapes.dims(x) for x in (value, node.inputs[0])]
        keeps_last = dims[0] and dims[1] and dims[0][-1] == dims[1][-1]
        if is_op(node, "Gather"):  # rows of a table
            keeps_last = keeps_last and attr_int(node, "axis", 0) == 0 and len(dims[1] or ()) > 1
        return node.inputs[0] if keeps_last else None
    return node.inputs[0] if is_op(node, *_POINTWISE) else None


def _repeats_interleaved(node: ir.Node, view: View) -> bool:
    """Return whether a Reshape merges a last axis of two equal numbers into the one before it.

    Exporters write repeat_interleave so: an Expand or Tile of an axis of 1, or a Concat of two
    equal tensors; elementwise operators may lie between.
    """
    if not is_op(node, "Reshape", "Flatten") or node.inputs[0] is None:
        return False
    dims, pair_dims = view.shapes.dims(node.outputs[0]), view.shapes.dims(node.inputs[0])
    if (
        not dims
        or not pair_dims
        or pair_dims[-1] != 2
        or not isinstance(dims[-1], int)
        or dims[-1] % 2
    ):
        return False
    maker = producer_of(node.inputs[0], *_POINTWISE)
    if is_op(maker, "Concat"):
        return _joins_equal_halves(maker, view)
    source_dims = view.shapes.dims(maker.inputs[0]) if is_op(maker, "Expand", "Tile") else None
    return source_dims is not None and source_dims[-1:] == (1,)
