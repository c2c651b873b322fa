"""Steps of generated graphs that lay frames out again: edges, orders of axes, positions, masks.

As in :mod:`tests.lengths.steps` a step takes and gives [B, T, 4] for some T.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tests.lengths.graphs import FEATURES, Graph
from tests.lengths.lookups import column, counted, number, weigh
from tests.lengths.steps import FAR, unary
from tests.lengths.windowed import joined

if TYPE_CHECKING:
    from tests.lengths.steps import Step


def one_axis(g: Graph, x: str) -> str:
    """Batch and time as one axis, or time and features, and something over it."""
    way = g.integer(0, 5)
    shape = g.op("Shape", x)
    if way < 3:
        flat = g.op("Reshape", x, g.ints(-1, FEATURES))
        if way == 0:
            return g.op("Reshape", unary(g, flat), shape)
        if way == 1:
            y = g.op("Gemm", flat, g.weights(FEATURES, FEATURES), g.weights(FEATURES))
            return g.op("Reshape", y, shape)
        return g.op("Sub", x, g.reduce("ReduceMean", flat, [0], 0))
    if way == 3:
        flat = g.op("Flatten", x, axis=g.integer(1, 2))
        return g.op("Reshape", unary(g, flat), shape)
    if way == 4:
        turned = g.op("Transpose", x, perm=[1, 0, 2])
        flat = g.op("Reshape", turned, joined(g, g.size(x), g.ints(-1)))
        y = g.op("Sub", flat, g.reduce("ReduceMean", flat, [g.integer(0, 1)], 1))
        back = joined(g, g.size(x), g.ints(-1, FEATURES))
        return g.op("Transpose", g.op("Reshape", y, back), perm=[1, 0, 2])
    turned = g.op("Transpose", x, perm=[1, 0, 2])
    y = g.op("Reshape", turned, g.ints(-1, FEATURES))
    y = g.op("Reshape", unary(g, y), joined(g, g.size(x), g.size(x, 0), g.ints(FEATURES)))
    return g.op("Transpose", y, perm=[1, 0, 2])


def swapped(g: Graph, x: str) -> str:
    """Something along an axis of [T, B, 4] or [4, T, B]."""
    perm = [[1, 0, 2], [2, 1, 0], [1, 2, 0]][g.integer(0, 2)]
    back = [perm.index(i) for i in range(3)]
    y, axis = g.op("Transpose", x, perm=perm), g.integer(0, 2)
    way = g.integer(0, 3)
    if way == 0:
        names = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceL2")
        y = g.op("Sub", y, g.reduce(str(g.pick(*names)), y, [axis], 1))
    elif way == 1:
        given = {"reverse": g.integer(0, 1), "exclusive": g.integer(0, 1)}
        y = g.op("CumSum", y, number(g, axis), **given)
    elif way == 2:
        y = g.op("Softmax", y, axis=axis)
    else:
        one = g.op("Gather", y, g.ints(int(str(g.pick(0, -1)))), axis=axis)
        y = g.op("Sub", y, one)
    return g.op("Transpose", y, perm=back)


def cumulative(g: Graph, x: str) -> str:
    """The mean of all frames so far, or of all that follow."""
    given = {"reverse": g.integer(0, 1)}
    total = g.op("CumSum", x, number(g, 1), **given)
    ones = g.op("ConstantOfShape", g.size(x), value=_float_one())
    if g.pick(0, 1):
        ones = g.op("CumSum", ones, number(g, 0), **given)
        return g.op("Div", total, column(g, ones, 1, -1, 1))
    many = g.reduce("ReduceSum", ones, [0], 0)
    return g.op("Div", total, many)


def _float_one() -> object:
    from onnx import numpy_helper

    return numpy_helper.from_array(np.ones(1, np.float32))


def differences(g: Graph, x: str) -> str:
    """Of frames to their neighbours, with a frame rolled back at either side."""
    by = g.integer(1, 2)
    y = g.op("Sub", g.slice(x, by, FAR), g.slice(x, 0, -by))
    way = g.integer(0, 4)
    if way == 0:
        return y
    if way == 1:
        return g.op("Concat", g.slice(x, 0, by), y, axis=1)
    if way == 2:
        return g.op("Concat", y, g.slice(x, -by, FAR), axis=1)
    if way == 3:
        return g.op("Pad", y, g.ints(0, by, 0, 0, 0, 0))
    return g.op("Pad", y, g.ints(0, 0, 0, 0, by, 0))


def both_ways(g: Graph, x: str) -> str:
    """A GRU forwards, and one over the clip turned around by Slices."""

    def over(y: str) -> str:
        t = g.op("Transpose", y, perm=[1, 0, 2])
        w, r = g.weights(1, 6, FEATURES), g.weights(1, 6, 2)
        y = g.op("GRU", t, w, r, hidden_size=2)
        return g.op("Transpose", g.squeeze(y, 1), perm=[1, 0, 2])

    back = g.slice(over(g.slice(x, -1, -FAR, 1, -1)), -1, -FAR, 1, -1)
    return g.op("Concat", over(x), back, axis=2)


def told(g: Graph, x: str) -> str:
    """A recurrence that is told how long each row is: the size of all of them, or less."""
    name, gates = [("LSTM", 4), ("GRU", 3), ("RNN", 1)][g.integer(0, 2)]
    size, rows = g.size(x), g.size(x, 0)
    if g.pick(0, 0, 1):
        size = g.op("Sub", size, g.ints(1))
    lens = g.op("Cast", g.op("Expand", size, rows), to=6)
    direction = str(g.pick("forward", "reverse"))
    w, r = g.weights(1, gates * FEATURES, FEATURES), g.weights(1, gates * FEATURES, FEATURES)
    t = g.op("Transpose", x, perm=[1, 0, 2])
    y = g.op(name, t, w, r, "", lens, hidden_size=FEATURES, direction=direction)
    return g.op("Transpose", g.squeeze(y, 1), perm=[1, 0, 2])


def started(g: Graph, x: str) -> str:
    """A recurrence with a first state; what is put out is its last one, for all frames."""
    rows = g.size(x, 0)
    state = g.op("ConstantOfShape", joined(g, g.ints(1), rows, g.ints(FEATURES)))
    w, r = g.weights(1, 3 * FEATURES, FEATURES), g.weights(1, 3 * FEATURES, FEATURES)
    t = g.op("Transpose", x, perm=[1, 0, 2])
    direction = str(g.pick("forward", "reverse"))
    given = [t, w, r, "", "", state]
    y = g.op("GRU", *given, hidden_size=FEATURES, direction=direction, outputs=2)
    if g.pick(0, 1):
        return g.op("Add", x, g.op("Transpose", g.last(1), perm=[1, 0, 2]))
    last = g.op("Gather", y, number(g, -1 if direction == "forward" else 0), axis=0)
    return g.op("Add", x, g.op("Transpose", last, perm=[1, 0, 2]))


def attention(g: Graph, x: str) -> str:
    """Heads in one node, with or without a mask of what comes later."""
    w = [g.op("MatMul", x, g.weights(FEATURES, FEATURES)) for _ in range(3)]
    given = {"num_heads": 2, "domain": "com.microsoft"}
    if g.pick(0, 1):
        given["unidirectional"] = 1
    if g.pick(0, 0, 1):
        i, j = column(g, counted(g, g.size(x)), -1, 1), column(g, counted(g, g.size(x)), 1, -1)
        apart = g.op("Cast", g.op("Sub", i, j), to=1)
        bias = g.op(
            "Reshape",
            g.op("Neg", g.op("Abs", apart)),
            joined(g, g.ints(1, 1), g.size(x), g.size(x)),
        )
        return g.op("MultiHeadAttention", *w, "", "", bias, **given)
    return g.op("MultiHeadAttention", *w, **given)


def rotated(g: Graph, x: str) -> str:
    """Rotary embeddings: halves of the features, turned by an angle for each position."""
    at = g.op("Cast", counted(g, g.size(x)), to=1)
    angle = g.op("Mul", column(g, at, 1, -1, 1), g.const([[[1.0, 0.1]]]))
    angle = g.op("Concat", angle, angle, axis=2)
    cos, sin = g.op("Cos", angle), g.op("Sin", angle)
    half = g.op("Concat", g.op("Neg", g.slice(x, 2, 4, 2)), g.slice(x, 0, 2, 2), axis=2)
    y = g.op("Add", g.op("Mul", x, cos), g.op("Mul", half, sin))
    return weigh(g, x, g.op("MatMul", y, g.turn(y)))


def kept(g: Graph, x: str) -> str:
    """A mask of frames that follows from the length alone."""
    size = g.size(x)
    at = counted(g, size)
    way = g.integer(0, 5)
    if way == 0:
        limit = g.op("Div", size, g.ints(2))
    elif way == 1:
        limit = g.op("Sub", size, g.ints(g.integer(0, 2)))
    elif way == 2:
        limit = g.ints(g.integer(2, 9))
    elif way == 3 and g.opset >= 12:
        limit = g.op("Min", size, g.ints(g.integer(4, 9)))
    else:
        limit = size
    if g.opset < 12:
        ask = g.op("Less", at, limit)
    else:
        ask = g.op(str(g.pick("Less", "LessOrEqual", "Greater", "GreaterOrEqual")), at, limit)
    if g.pick(0, 1):
        return g.op("Where", column(g, ask, 1, -1, 1), x, g.const(g.pick(0.0, 1.0)))
    scores = g.op("MatMul", x, g.turn(x))
    low = g.const(g.pick(-1e4, -1e9))
    return weigh(g, x, g.op("Where", column(g, ask, 1, 1, -1), scores, low))


def in_chunks(g: Graph, x: str) -> str:
    """Attention within chunks of frames, whose ends are cut to the length of the clip."""
    size, wide = g.size(x), g.integer(2, 5)
    length = g.op("Squeeze", size)
    chunk = g.op("Div", counted(g, size), g.ints(wide))
    start = g.op("Mul", chunk, g.ints(wide))
    end = g.op("Mul", g.op("Add", chunk, g.ints(1)), g.ints(wide))
    limit = str(g.pick(length, length, g.op("Sub", length, g.const(1, np.int64))))
    least = g.op("Clip", end, "", limit) if g.opset >= 12 else length
    end = str(g.pick(least, g.op("Min", end, limit) if g.opset >= 12 else length))
    at = column(g, counted(g, size), 1, -1)
    if g.pick(0, 0, 1) and g.opset >= 12:
        return g.op("Add", x, g.op("Cast", column(g, end, 1, -1, 1), to=1))
    if g.opset < 12:
        end = g.op("Expand", end, size)
    start, end = column(g, start, -1, 1), column(g, end, -1, 1)
    if g.pick(0, 1):
        end = g.op("Expand", end, g.op("Concat", size, size, axis=0))
    ask = str(g.pick("Less", "LessOrEqual")) if g.opset >= 12 else "Less"
    behind = g.op(ask, at, end)
    mask = g.op("And", g.op("Not", g.op("Less", at, start)), behind)
    scores = g.op("MatMul", x, g.turn(x))
    low = g.const(g.pick(-1e4, -1e9))
    return weigh(g, x, g.op("Where", g.unsqueeze(mask, 0), scores, low))


def sequenced(g: Graph, x: str) -> str:
    """Features as a sequence of parts, as torch's exporter writes a split before it optimizes."""
    axis = g.pick(2, -1, 2, 1)
    if g.pick(0, 1):
        parts = g.op("SplitToSequence", x, number(g, 2), axis=axis)
        y = [g.op("SequenceAt", parts, number(g, i)) for i in (1, 0)]
        return g.op("Concat", *y, axis=axis)
    if g.pick(0, 1):
        parts = g.op("SplitToSequence", x, g.ints(1, 3), axis=axis)
        return g.op("Mul", x, g.op("SequenceAt", parts, number(g, int(str(g.pick(0, -2))))))
    parts = g.op("SplitToSequence", x, axis=axis, keepdims=g.integer(0, 1))
    part = g.op("SequenceAt", parts, number(g, 2))
    return g.op(
        "Add", x, g.op("ReduceMax", part, keepdims=0) if axis == 1 else column(g, part, 0, -1, 1)
    )


LAYOUTS: dict[str, Step] = {
    f.__name__: f
    for f in (
        one_axis,
        swapped,
        cumulative,
        differences,
        both_ways,
        told,
        started,
        attention,
        rotated,
        kept,
        in_chunks,
        sequenced,
    )
}
