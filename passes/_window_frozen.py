"""Chunks that a trace has counted: there were so many then, and no other number runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphfix.model.values import attr_int, attr_ints, const_of, ints_of, is_op

if TYPE_CHECKING:
    import onnx_ir as ir

    from graphfix.model.view import View

_HOW = "export it with torch.jit.script, or pad the sequence and reshape it to windows in the model"
_FAR = 5000


def frozen_at(node: ir.Node, view: View) -> str | None:
    """What a trace has made of ``x.split(100, 1)``, if that is what a node is.

    dynamo takes each chunk by its number, TorchScript writes how long each was.
    """
    if is_op(node, "SplitToSequence"):
        readers = [use.node for use in node.outputs[0].uses()]
        numbers = [const_of(x.inputs[1]) if is_op(x, "SequenceAt") else None for x in readers]
        if not numbers or any(x is None for x in numbers):
            return None
        return f"the trace has counted {len(numbers)} chunks, and no other number runs: {_HOW}"
    sizes = ints_of(node.inputs[1]) if len(node.inputs) > 1 else None
    dims = view.shapes.dims(node.inputs[0])
    if sizes is None or dims is None or len(sizes) < 2 or sizes[-1] > sizes[0]:
        return None
    length = dims[attr_int(node, "axis", 0)]
    if isinstance(length, int) or length.value is None or len({*sizes[:-1]}) > 1:
        return None
    return (
        f"the trace has cut {length} into chunks of {sizes[0]}, {len(sizes)} of them, and only "
        f"{length} = {sum(sizes)} runs: {_HOW}"
    )


def sliced_at(node: ir.Node, view: View) -> str | None:
    """What a trace has made of ``[x[:, i : i + 100] for i in range(0, T, 100)]``.

    Told at the first of the Slices, whose bounds are the numbers of the trace: they run at every
    length, and leave out what is behind the last.
    """
    first, dims = _bounds(node), view.shapes.dims(node.inputs[0])
    if first is None or dims is None or first[1] != 0 or first[2] < 2 or node.inputs[0] is None:
        return None
    axis, _, width = first
    length = dims[axis]
    if isinstance(length, int):
        return None
    parts = {0: node}
    ends = {0: width}
    for other in (use.node for use in node.inputs[0].uses() if is_op(use.node, "Slice")):
        found = _bounds(other)
        if found is not None and found[0] % len(dims) == axis % len(dims):
            parts.setdefault(found[1], other)
            ends.setdefault(found[1], found[2])
    count = 1
    while ends.get((count - 1) * width) == count * width and count * width in parts:
        count += 1
    chunks = [parts[i * width] for i in range(count)]
    last = ends[(count - 1) * width]
    if count < 2 or not (count - 1) * width < last <= count * width or not _are_joined(chunks):
        return None
    return (
        f"the trace has cut {length} into {count} chunks of {width} by Slices, and what is behind "
        f"{last} is left out in each run: {_HOW}"
    )


def _bounds(node: ir.Node) -> tuple[int, int, int] | None:
    """The axis that a Slice cuts, from where and to where, if these are numbers of the file."""
    if len(node.inputs) > 2:
        given = [None if x is None else ints_of(x) for x in node.inputs[1:]]
        usual: list[tuple[int, ...] | None] = [None, None, (0,), (1,)]
        starts, ends, axes, steps = given + usual[len(given) :]
    else:
        starts, ends, axes = (attr_ints(node, x) for x in ("starts", "ends", "axes"))
        axes, steps = axes or (0,), (1,)
    if any(x is None or len(x) != 1 for x in (starts, ends, axes)) or steps != (1,):
        return None
    if starts is None or ends is None or axes is None or starts[0] < 0 or ends[0] < 0:
        return None
    return axes[0], starts[0], ends[0]


def _are_joined(chunks: list[ir.Node]) -> bool:
    """Whether what is made of each comes together in one Concat of as many."""
    joins = [nodes_behind(x, "Concat") for x in chunks]
    return any(len(x.inputs) >= len(chunks) for x in set.intersection(*joins))


def nodes_behind(node: ir.Node, *op_types: str) -> set[ir.Node]:
    """The nodes of these types that what a node makes goes into."""
    found: set[ir.Node] = set()
    pending, seen = [node], {node}
    while pending and len(seen) < _FAR:
        for value in pending.pop().outputs:
            new = {use.node for use in value.uses()} - seen
            found |= {x for x in new if is_op(x, *op_types)}
            seen |= new
            pending += new
    return found
