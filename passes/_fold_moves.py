"""Views and Transposes in a row that together are one Transpose, or give back what they are given.

torch writes the keys of an attention as ``[B, H, T, D]``, ``[B * H, T, D]``, turned, and
``[B, H, D, T]``: two shapes to compute, where a Transpose needs none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphfix.model.values import is_op

from ._attention_layout import Atom, Layout, after
from ._fold_look import VIEWS, Found, alone, nothing

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from ._fold_look import Look

MOVES = frozenset({*VIEWS, "Transpose"})
"""The operators that :func:`moved` looks at."""
_LONGEST = 8


def moved(node: ir.Node, look: Look) -> Found | None:
    """The longest row that ends with ``node`` and is one Transpose."""
    if not is_op(node, *MOVES):
        return None
    row, found = [node], None
    while len(row) < _LONGEST and (source := row[-1].inputs[0]) is not None:
        above = alone(source, *MOVES)
        if above is None or above.inputs[0] is None:
            break
        row.append(above)
        perm = _perm(row, look) if len({is_op(x, "Transpose") for x in row}) == 2 else None
        if perm is not None:
            found = above.inputs[0], perm
    if found is None:
        return None
    start, perm = found
    if perm == tuple(range(len(perm))):
        return nothing(start, node)
    return Found(
        f"from {start.name!r} on, it is one Transpose",
        lambda op: [op.Transpose(start, perm=list(perm))],
    )


def _perm(row: Sequence[ir.Node], look: Look) -> tuple[int, ...] | None:
    """Which axis of what is given each axis of the result is; the last of a row comes first."""
    tensors = [row[-1].inputs[0], *(x.outputs[0] for x in row)]
    given = look.view.shapes.dims(tensors[0])
    if given is None or any(look.dims(x) is None for x in tensors):
        return None
    axes = tuple(() if dim == 1 else (Atom("feature", dim),) for dim in given)
    layout: Layout | None = Layout(axes, tuple(atom for axis in axes for atom in axis))
    for node in reversed(row):
        layout = None if layout is None else after(node, layout, look.view)
    if layout is None or len(layout.axes) != len(axes):
        return None
    ones = iter([i for i, axis in enumerate(axes) if not axis])
    places: dict[tuple[Atom, ...], int] = {axis: i for i, axis in enumerate(axes) if axis}
    perm = [places.get(axis) if axis else next(ones, None) for axis in layout.axes]
    whole = tuple(x for x in perm if x is not None)
    return whole if len(whole) == len(axes) else None
