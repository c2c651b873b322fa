"""A Loop that takes a sequence chunk by chunk, and what is made of each is put together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from graphfix.model.shapes import same
from graphfix.model.values import attr_int, bodies_of, const_of, is_op, scalar_of

if TYPE_CHECKING:
    from graphfix.model.shapes import Dim
    from graphfix.model.view import View


@dataclass(frozen=True)
class Taken:
    """A sequence that the Loop takes in chunks.

    Attributes:
        value: The sequence, [B, T, F], or [B, F, T].
        axis: Which axis is T.
        items: What is a chunk of it in the body; the last one is shorter.
    """

    value: ir.Value
    axis: int
    items: tuple[ir.Value, ...]


@dataclass(frozen=True)
class Chunks:
    """A Loop over the chunks of a sequence.

    Attributes:
        loop: The Loop.
        body: Its body.
        width: How many places a chunk has.
        taken: The sequences, of the same length.
        made: What the body makes of a chunk.
        axis: The axis along which that is joined, 1 or 2.
    """

    loop: ir.Node
    body: ir.Graph
    width: int
    taken: tuple[Taken, ...]
    made: ir.Value
    axis: int


@dataclass(frozen=True)
class _Chunk:
    """A chunk in the body: of which sequence, along which axis, how long, and what it is."""

    value: ir.Value
    axis: int
    width: int
    item: ir.Value


_NOT_THREE = "a sequence that it cuts into chunks is not [batch, time, features], or two differ"
_WHOLE = (ir.DataType.INT64, ir.DataType.INT32)
_OF_PLACES = ("Add", "Mul", "Unsqueeze", "Reshape", "Identity", "Cast")
_FAR = 2**31 - 1


def chunks_of(node: ir.Node, view: View) -> Chunks | str | None:
    """What a ConcatFromSequence joins, if a Loop makes it of chunks of one size.

    Returns:
        Why it is another Loop; None if there is none.
    """
    loop = _maker(node.inputs[0])
    if not is_op(loop, "Loop"):
        return None
    (body,) = bodies_of(loop)
    counted = _sources(body, view)
    if isinstance(counted, str):
        return counted
    if not counted:
        return None
    if loop.graph is not view.model.graph or node.graph is not view.model.graph:
        return "the Loop over its chunks is itself in a branch or the body of a loop"
    if len(loop.outputs) != 1 or len(body.inputs) != 3:
        return "the Loop hands more than what it makes from chunk to chunk"
    if not is_op(_maker(loop.inputs[2]), "SequenceEmpty") or len(loop.outputs[0].uses()) > 1:
        return "what the Loop makes of its chunks is not joined alone"
    axis = _of_three(attr_int(node, "axis", 0))
    if attr_int(node, "new_axis", 0) or axis is None:
        return "what the Loop makes of its chunks is not joined along time"
    made = _appended(body)
    if made is None or not (_holds(loop.inputs[1]) and _goes_on(body)):
        return "the Loop over its chunks may end early, or does not append what it makes"
    widths = {x.width for x in counted}
    if len(widths) > 1:
        return f"it takes chunks of different sizes at once: {sorted(widths)}"
    taken: dict[tuple[ir.Value, int], tuple[ir.Value, ...]] = {}
    for x in counted:
        key = (x.value, x.axis)
        taken[key] = (*taken.get(key, ()), x.item)
    sizes = [dims_of(*key, view) for key in taken]
    lengths = [x[1] for x in sizes if x is not None]
    if len(lengths) < len(sizes) or not all(same(x, lengths[0]) for x in lengths):
        return _NOT_THREE
    (width,) = widths
    if not _takes_all(loop.inputs[0], lengths[0], width, view):
        return "the Loop is not seen to take every chunk"
    parts = tuple(Taken(value, at, items) for (value, at), items in taken.items())
    return Chunks(loop, body, width, parts, made, axis)


def dims_of(value: ir.Value, axis: int, view: View) -> tuple[Dim, Dim, Dim] | None:
    """Batch, time and features of a sequence."""
    dims = view.usual.dims(value)
    if dims is None or len(dims) != 3 or not isinstance(dims[3 - axis], int):
        return None
    return dims[0], dims[axis], dims[3 - axis]


def _maker(value: ir.Value | None) -> ir.Node | None:
    return value.producer() if value is not None else None


def _sources(body: ir.Graph, view: View) -> list[_Chunk] | str:
    """Each chunk in the body."""
    counter = body.inputs[0]
    readers = _readers(counter)
    found = [_item(x) if is_op(x, "SequenceAt") else _slice(x, counter, view) for x in readers]
    chunks = [x for x in found if isinstance(x, _Chunk)]
    if any(_line(x.inputs[1], counter) != (1, 0) for x in readers if is_op(x, "SequenceAt")):
        return "the Loop takes its chunks in another order, or those beside them too"
    if chunks and len(chunks) < len(found):
        return "the Loop computes with the number of the chunk"
    return chunks or next((x for x in found if isinstance(x, str)), chunks)


def _readers(counter: ir.Value) -> list[ir.Node]:
    """What reads the number of a chunk; of numbers that a Slice takes, the Slice."""
    pending: list[ir.Value] = [counter]
    found: dict[ir.Node, None] = {}
    while pending:
        for use in pending.pop().uses():
            node: ir.Node = use.node
            if is_op(node, *_OF_PLACES):
                pending.append(node.outputs[0])
            else:
                found[node] = None
    return list(found)


def _item(node: ir.Node) -> _Chunk | str | None:
    """``SequenceAt (SplitToSequence (x, W), i)``."""
    split = _maker(node.inputs[0])
    if not is_op(split, "SplitToSequence") or len(split.inputs) < 2 or split.inputs[0] is None:
        return None
    width = _width_of(split)
    if width is None:
        return "its chunks are not of one size that is a number (x.split(100) writes such)"
    axis = _of_three(attr_int(split, "axis", 0))
    return _NOT_THREE if axis is None else _Chunk(split.inputs[0], axis, width, node.outputs[0])


def _width_of(split: ir.Node) -> int | None:
    """The one size that a SplitToSequence cuts to."""
    size = const_of(split.inputs[1]) if len(split.inputs) > 1 else None
    return int(size) if size is not None and not size.ndim and int(size) > 0 else None


def _slice(node: ir.Node, counter: ir.Value, view: View) -> _Chunk | None:
    """``Slice (x, i * W, i * W + W)`` along time."""
    axis = _of_three(_axis_of(node, view)) if is_op(node, "Slice") else None
    if axis is None:
        return None
    start, end = _line(node.inputs[1], counter), _line(node.inputs[2], counter)
    if start is None or end is None or start[1] or start[0] < 1 or end != (start[0], start[0]):
        return None
    value = node.inputs[0]
    while value is not None and _is_whole(above := value.producer(), view):
        value = above.inputs[0] if above is not None else None
    return None if value is None else _Chunk(value, axis, start[0], node.outputs[0])


def _axis_of(node: ir.Node, view: View) -> Dim | None:
    """The one axis that a Slice of step 1 cuts."""
    axes, steps = (view.shapes.data(x) for x in (*node.inputs, None)[3:5])
    if axes is None or len(axes) != 1 or (len(node.inputs) > 4 and steps != (1,)):
        return None
    return axes[0]


def _of_three(axis: Dim | None) -> int | None:
    """1 or 2, as an axis of three that is not that of the batch."""
    return axis % 3 if isinstance(axis, int) and axis in (-2, -1, 1, 2) else None


def _is_whole(node: ir.Node | None, view: View) -> bool:
    """Whether a Slice takes all, as ``x[:]`` does."""
    if not is_op(node, "Slice") or len(node.inputs) < 4 or _axis_of(node, view) is None:
        return False
    start, end = (view.shapes.data(x) for x in node.inputs[1:3])
    return start == (0,) and end is not None and isinstance(end[0], int) and end[0] >= _FAR


def _line(value: ir.Value | None, counter: ir.Value) -> tuple[int, int] | None:
    """``a * i + b`` as (a, b)."""
    if value is None:
        return None
    if value is counter:
        return 1, 0
    number = scalar_of(value)
    if number is not None:
        return (0, int(number)) if number == int(number) else None
    node = value.producer()
    if is_op(node, "Unsqueeze", "Reshape", "Identity"):
        return _line(node.inputs[0], counter)
    if is_op(node, "Cast"):
        return _line(node.inputs[0], counter) if attr_int(node, "to", 0) in _WHOLE else None
    if not is_op(node, "Add", "Mul") or len(node.inputs) != 2:
        return None
    a, b = (_line(x, counter) for x in node.inputs)
    if a is None or b is None:
        return None
    if is_op(node, "Add"):
        return a[0] + b[0], a[1] + b[1]
    if a[0]:
        a, b = b, a
    return None if a[0] else (a[1] * b[0], a[1] * b[1])


def _takes_all(trips: ir.Value | None, length: Dim, width: int, view: View) -> bool:
    """Whether there are as many rounds as chunks."""
    node = _maker(trips)
    if is_op(node, "SequenceLength"):
        split = _maker(node.inputs[0])
        if not is_op(split, "SplitToSequence") or _width_of(split) != width:
            return False
        dims, axis = view.usual.dims(split.inputs[0]), attr_int(split, "axis", 0)
        return dims is not None and same(dims[axis], length)
    data = view.usual.data(trips)
    if data is None or len(data) != 1:
        return False
    return same(data[0], (length + (width - 1)) // width)


def _appended(body: ir.Graph) -> ir.Value | None:
    """What a round adds to the sequence that it was given."""
    node, carried = body.outputs[1].producer(), body.inputs[2]
    if not is_op(node, "SequenceInsert") or len(carried.uses()) != 1:
        return None
    at_end = len(node.inputs) < 3 or node.inputs[2] is None
    return node.inputs[1] if node.inputs[0] is carried and at_end else None


def _goes_on(body: ir.Graph) -> bool:
    value = body.outputs[0]
    while is_op(node := value.producer(), "Identity", "Cast") and node.inputs[0] is not None:
        value = node.inputs[0]
    return value is body.inputs[1] or bool(scalar_of(value))


def _holds(value: ir.Value | None) -> bool:
    while is_op(node := _maker(value), "Identity", "Cast"):
        value = node.inputs[0]
    return value is None or bool(scalar_of(value))
