"""Tables of cosines and sines that hold each number twice: as two halves, or side by side."""

from collections.abc import Sequence

import onnx_ir as ir

from graphfix.facts.view import View
from graphfix.graph.constants import Array, const_of, scalar_of
from graphfix.graph.nodes import attr_int, is_op, maker_of

from .rotary_halves import along_last

_FAR = 16
# A table of 131,072 places of 128 features is read; larger ones are not.
_TABLE = 1 << 24
_AXES = ("Unsqueeze", "Squeeze")
_ROWS = ("Gather", "Slice")
_POINTWISE = ("Cos", "Sin", "Cast", "Identity", "Neg")


def is_doubled(value: ir.Value, view: View, *, pairs: bool) -> bool:
    """Whether the last axis holds each number twice.

    Args:
        value: A table.
        view: The model around it.
        pairs: Whether the two are neighbours; if not, the second half is the first.
    """
    for _ in range(_FAR):
        table, node = const_of(value, limit=_TABLE), value.producer()
        if table is not None and table.ndim and table.shape[-1] % 2 == 0:
            half = table.shape[-1] // 2
            first, second = (0, 1) if pairs else (slice(half), slice(half, None))
            step = table.reshape(*table.shape[:-1], half, 2) if pairs else table
            return bool((step[..., first] == step[..., second]).all())
        if node is None or node.inputs[0] is None:
            return False
        if pairs and _is_twice_side_by_side(node, view):
            return True
        if is_op(node, "Concat") and not pairs:
            return _is_twice(node, view)
        source = _source(node, value, view)
        if source is None:
            return False
        value = source
    return False


def half_of(
    table: ir.Value, view: View, *, halved: bool
) -> tuple[ir.Value | Array, list[tuple[ir.Node, int]]]:
    """The angles, or what else the first half of a table is computed from.

    Args:
        table: A table whose second half is the first.
        view: The model around it.
        halved: Whether the table is that half already.

    Returns:
        A tensor or a constant of that many features; and what computes the table from it, number by
        number or row by row, the first node first, each with the input that goes on. Axes of 1 that
        come or go on the way are left out. The table and [] if that is not known.
    """
    value, steps = table, list[tuple[ir.Node, int]]()
    for _ in range(_FAR):
        node, constant = value.producer(), const_of(value, limit=_TABLE)
        if is_op(node, "Concat") and not halved and node.inputs[0] is not None:
            if not _is_twice(node, view):
                break
            halved, value = True, node.inputs[0]
            continue
        if constant is not None and steps and not halved:
            return constant[..., : constant.shape[-1] // 2], steps
        source = None
        if node is not None and is_op(node, "Mul", *_AXES, *_ROWS, *_POINTWISE):
            source = _source(node, value, view)
        if source is None or (is_op(node, *_AXES) and rows_of(steps) is not None):
            break
        if node is not None and not is_op(node, *_AXES):
            steps.insert(0, (node, node.inputs.index(source)))
        value = source
    return (value, steps) if halved else (table, [])


def rows_of(steps: Sequence[tuple[ir.Node, int]]) -> ir.Value | None:
    """What the last of the nodes that choose rows of a table makes; None if none does."""
    return next((x.outputs[0] for x, _ in reversed(steps) if is_op(x, *_ROWS)), None)


def _is_twice(concat: ir.Node, view: View) -> bool:
    """Whether a Concat puts a tensor beside itself, along the last axis."""
    numbers = {view.numbering.of(x) for x in concat.inputs if x is not None}
    return len(concat.inputs) == 2 and len(numbers) == 1 and along_last(concat, view)


def _source(node: ir.Node, value: ir.Value, view: View) -> ir.Value | None:
    """What a node takes, number by number, without a change of the last axis."""
    if is_op(node, "Mul"):
        constant = [scalar_of(x) is not None and view.shapes.rank(x) in (0, 1) for x in node.inputs]
        return node.inputs[constant.index(False)] if constant.count(True) == 1 else None
    if is_op(node, *_AXES, *_ROWS, "Expand", "Reshape"):
        dims = [view.shapes.dims(x) for x in (value, node.inputs[0])]
        kept = dims[0] and dims[1] and dims[0][-1] == dims[1][-1]
        if is_op(node, "Gather"):  # rows of a table
            kept = kept and attr_int(node, "axis", 0) == 0 and len(dims[1] or ()) > 1
        return node.inputs[0] if kept else None
    return node.inputs[0] if is_op(node, *_POINTWISE) else None


def _is_twice_side_by_side(node: ir.Node, view: View) -> bool:
    """Whether a Reshape merges a last axis of two equal numbers into the one before it.

    That is what repeat_interleave becomes, by Expand or Tile of an axis of 1, or a Concat of two;
    what works number by number may stand between.
    """
    if not is_op(node, "Reshape", "Flatten") or node.inputs[0] is None:
        return False
    dims, apart = view.shapes.dims(node.outputs[0]), view.shapes.dims(node.inputs[0])
    if not dims or not apart or apart[-1] != 2 or not isinstance(dims[-1], int) or dims[-1] % 2:
        return False
    maker = maker_of(node.inputs[0], *_POINTWISE)
    if is_op(maker, "Concat"):
        return _is_twice(maker, view)
    before = view.shapes.dims(maker.inputs[0]) if is_op(maker, "Expand", "Tile") else None
    return before is not None and before[-1:] == (1,)
