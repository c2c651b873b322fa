"""Steps of generated graphs that look things up: tables, places along time, distances.

As in :mod:`tests.lengths.steps` a step takes and gives [B, T, 4] for some T. What is right in one
spelling is wrong in the next, which is as often drawn: an index that counts from the end, a table
that is read from the back, a stride of another size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tests.lengths.graphs import FEATURES, Graph
from tests.lengths.steps import FAR

if TYPE_CHECKING:
    from tests.lengths.steps import Step

LONG = 192
"""As many entries as a table has that no clip ends."""


def counted(g: Graph, size: str, start: int = 0, step: int = 1) -> str:
    """start, start + step, ... below a size of one element: int64 [N]."""
    limit = g.op("Squeeze", size)
    return g.op("Range", g.const(start, np.int64), limit, g.const(step, np.int64))


def number(g: Graph, value: int) -> str:
    return g.const(value, np.int64)


def places(g: Graph, x: str) -> str:
    """Places along the time of x, int64 [N]: its own, or others."""
    size = g.size(x)
    last = g.op("Sub", size, g.ints(1))
    way = g.integer(0, 12)
    if way < 3:
        return counted(g, size)
    if way == 3:
        return g.op("Sub", last, counted(g, size))
    if way == 4:
        return counted(g, g.op("Div", size, g.ints(2)))
    if way == 5:
        return counted(g, last)
    if way == 6:
        return g.op("Div", counted(g, size), number(g, 2))
    if way == 7:
        return counted(g, size, 0, 2)
    if way == 8 and g.opset >= 12:
        return g.op("Min", g.op("Add", counted(g, size), number(g, 1)), last)
    if way == 9 and g.opset >= 12:
        return g.op("Max", g.op("Sub", counted(g, size), number(g, 2)), g.ints(0))
    if way == 10:
        return counted(g, size, 1)
    if way == 11:
        ones = g.op("ConstantOfShape", size, value=_one())
        ends = g.op("CumSum", ones, number(g, 0), reverse=g.integer(0, 1))
        return g.op("Sub", ends, number(g, 1))
    ones = g.op("ConstantOfShape", size, value=_one())
    return g.op("Squeeze", g.op("NonZero", ones))


def _one() -> object:
    from onnx import numpy_helper

    return numpy_helper.from_array(np.ones(1, np.int64))


def column(g: Graph, index: str, *shape: int) -> str:
    return g.op("Reshape", index, g.ints(*shape))


def each_in_place(g: Graph, x: str) -> str:
    """``x[b, t]`` for every b and t, or for others: flattened, or by an index of both."""
    rows, size = g.size(x, 0), g.size(x)
    at = places(g, x)
    row = counted(g, rows)
    way = g.integer(0, 4)
    if way == 0:
        stride = g.op("Squeeze", size if g.pick(0, 0, 1) == 0 else g.size(at, 0))
        index = g.op("Add", column(g, g.op("Mul", row, stride), -1, 1), column(g, at, 1, -1))
        return g.op("Gather", column(g, x, -1, FEATURES), index, axis=0)
    if way == 1 and g.opset >= 12:
        index = g.op("Expand", column(g, at, 1, -1, 1), g.op("Concat", rows, g.ints(1, 1), axis=0))
        return g.op("GatherND", x, index, batch_dims=1)
    shape = g.op("Concat", rows, g.size(at, 0), g.ints(1), axis=0)
    b = g.op("Expand", column(g, row, -1, 1, 1), shape)
    t = g.op("Expand", column(g, at, 1, -1, 1), shape)
    if way == 2:  # frames first
        turned = g.op("Transpose", x, perm=[1, 0, 2])
        return g.op("GatherND", turned, g.op("Concat", t, b, axis=-1))
    if way == 3:  # one feature of each
        which = g.const(g.integer(0, 3), np.int64)
        c = g.op("Expand", which, shape)
        y = g.op("GatherND", x, g.op("Concat", b, t, c, axis=-1))
        return g.op("Add", g.unsqueeze(y, 2), g.weights(FEATURES))
    return g.op("GatherND", x, g.op("Concat", b, t, axis=-1))


def frames_at(g: Graph, x: str) -> str:
    """``x[:, places]``, by Gather or element by element."""
    at = places(g, x)
    if g.pick(0, 1):
        return g.op("Gather", x, at, axis=1)
    shape = g.op("Concat", g.size(x, 0), g.size(at, 0), g.ints(FEATURES), axis=0)
    return g.op("GatherElements", x, g.op("Expand", column(g, at, 1, -1, 1), shape), axis=1)


def table(g: Graph, x: str) -> str:
    """Entries of a table at places, added to the frames there."""
    size = g.size(x)
    way = g.integer(0, 5)
    entries = g.weights(LONG, FEATURES)
    if way == 0:
        begin = g.integer(0, 3)
        end = g.op("Add", size, g.ints(begin))
        return g.op("Add", x, g.op("Slice", entries, g.ints(begin), end, g.ints(0)))
    if way == 1:  # the last of them
        begin = g.op("Neg", size)
        return g.op("Add", x, g.op("Slice", entries, begin, g.ints(FAR), g.ints(0)))
    index = g.op("Add", counted(g, size), number(g, g.integer(0, 2)))
    if way == 2:
        index = g.op("Sub", size, g.op("Add", counted(g, size), number(g, 1)))
    elif way == 3:
        op_type, by = [("Div", 3), ("Mod", 5), ("Mul", 2)][g.integer(0, 2)]
        index = g.op(op_type, index, number(g, by))
    elif way == 4 and g.opset >= 12:
        index = g.op("Min", index, number(g, g.integer(2, 9)))
    if g.pick(0, 1):
        return g.op("Add", x, g.op("Gather", entries, index, axis=0))
    return g.op("Add", x, g.op("GatherND", entries, g.unsqueeze(index, 1)))


def codes(g: Graph, x: str) -> str:
    """Entries of a table that what is in the frames chooses."""
    entries = g.weights(LONG, FEATURES)
    finite = g.op("Clip", x, g.const(-9.0), g.const(9.0))
    way = g.integer(0, 2)
    if way == 0:
        return g.op("Gather", entries, g.op("ArgMax", finite, axis=2, keepdims=0), axis=0)
    whole = g.op("Cast", g.reduce("ReduceMax", finite, [2], 0), to=7)
    if way == 1:
        whole = g.op("Abs", whole)
    return g.op("Add", x, g.op("Gather", entries, whole, axis=0))


def padded_table(g: Graph, x: str) -> str:
    """A table of few entries made as long as the clip, and cut to it."""
    many = g.integer(2, 9)
    size = g.size(x)
    entries = g.weights(many, FEATURES)
    if g.opset < 12:
        return g.op("Add", x, g.weights(FEATURES))
    more = g.op("Max", g.op("Sub", size, g.ints(many)), g.ints(0))
    none = g.ints(0)
    front = g.pick(0, 0, 1)
    parts = [more if front else none, none, none if front else more, none]
    value = [g.const(g.pick(0.0, 1.0))] if g.pick(0, 1) else []
    mode = str(g.pick("constant", "constant", "constant", "edge"))
    long = g.op(
        "Pad",
        entries,
        g.op("Concat", *parts, axis=0),
        *(value if mode != "edge" else []),
        mode=mode,
    )
    begin = g.ints(0)
    if g.pick(0, 0, 1):
        begin = g.op("Max", g.op("Sub", g.ints(many), size), g.ints(0))
    end = g.op("Add", begin, size)
    return g.op("Add", x, g.op("Slice", long, begin, end, g.ints(0)))


def distances(g: Graph, x: str) -> str:
    """How far apart two frames are, int64 [T, T]."""
    size = g.size(x)
    i, j = column(g, counted(g, size), -1, 1), column(g, counted(g, size), 1, -1)
    return g.op("Sub", *((i, j) if g.pick(0, 1) else (j, i)))


def weigh(g: Graph, x: str, scores: str) -> str:
    if g.opset < 13:
        return g.op("MatMul", g.op("Softmax", scores, axis=2), x)
    return g.op("MatMul", g.op("Softmax", scores, axis=-1), x)


def near(g: Graph, x: str) -> str:
    """Attention that knows distances: a bias from a table, a slope, a band."""
    scores = g.op("MatMul", x, g.turn(x))
    apart = distances(g, x)
    way = g.integer(0, 4)
    if way == 0:
        return weigh(g, x, g.op("Sub", scores, g.op("Cast", g.op("Abs", apart), to=1)))
    if way == 1 and g.opset >= 12:
        many = g.integer(1, 4)
        index = g.op("Max", g.op("Min", apart, number(g, many)), number(g, -many))
        bias = g.op(
            "Gather", g.weights(2 * many + 1, 1), g.op("Add", index, number(g, many)), axis=0
        )
        return weigh(g, x, g.op("Add", scores, g.squeeze(bias, 2)))
    if way == 2:
        far = g.op("Greater", g.op("Abs", apart), number(g, g.integer(1, 4)))
        return weigh(g, x, g.op("Where", far, g.const(g.pick(-1e4, -np.inf)), scores))
    if way == 3:
        later = g.op("Less", apart, number(g, 0))
        return weigh(g, x, g.op("Where", later, g.const(-1e9), scores))
    half = g.op("Add", apart, number(g, LONG // 2))
    bias = g.op("Gather", g.weights(LONG, 1), half, axis=0)
    return weigh(g, x, g.op("Add", scores, g.squeeze(bias, 2)))


def shifted(g: Graph, x: str) -> str:
    """Relative positions, moved to their places by Pad, Reshape and Slice."""
    size = g.size(x)
    twice = g.op("Sub", g.op("Mul", size, g.ints(2)), g.ints(1))
    middle = LONG // 2
    few = g.integer(1, 4)
    scores = g.op("MatMul", x, g.turn(x))
    rows = g.ints(-1)
    if g.pick(0, 1) and g.opset >= 12:  # few entries, with zeros around them
        more = g.op("Max", g.op("Sub", size, g.ints(few + 1)), g.ints(0))
        begin = g.op("Max", g.op("Sub", g.ints(few + 1), size), g.ints(0))
        none = g.ints(0)
        pads = g.op("Concat", more, none, more, none, axis=0)
        long = g.op("Pad", g.weights(2 * few + 1, FEATURES), pads)
        cut = g.op("Slice", long, begin, g.op("Add", begin, twice), g.ints(0))
    else:
        begin = g.op("Sub", g.ints(middle + 1), size)
        cut = g.op(
            "Slice", g.weights(LONG, FEATURES), begin, g.op("Add", size, g.ints(middle)), g.ints(0)
        )
    own = g.op("MatMul", x, g.op("Transpose", cut, perm=[1, 0]))  # [B, T, 2T - 1]
    if g.pick(0, 1):
        y = g.op("Pad", own, g.ints(0, 0, 0, 0, 0, 1))
        y = g.op(
            "Reshape",
            y,
            g.op("Concat", rows, g.op("Mul", g.op("Mul", size, g.ints(2)), size), axis=0),
        )
        none = g.ints(0)
        y = g.op("Pad", y, g.op("Concat", none, none, none, g.op("Sub", size, g.ints(1)), axis=0))
        y = g.op("Reshape", y, g.op("Concat", rows, g.op("Add", size, g.ints(1)), twice, axis=0))
        y = g.op("Slice", y, g.ints(0), size, g.ints(1))
        y = g.op("Slice", y, g.op("Sub", size, g.ints(1)), g.ints(FAR), g.ints(2))
    else:
        y = g.op("Pad", own, g.ints(0, 0, 1, 0, 0, 0))
        y = g.op("Reshape", y, g.op("Concat", rows, g.op("Mul", size, g.ints(2)), size, axis=0))
        y = g.slice(y, 1, FAR)
        y = g.op("Reshape", y, g.op("Concat", rows, size, twice, axis=0))
        y = g.op("Slice", y, g.ints(0), size, g.ints(2))
    return weigh(g, x, g.op("Add", scores, y))


def windows(g: Graph, x: str) -> str:
    """Overlapping windows by an index of each: ``x[:, i * stride + j]``."""
    wide, stride = g.integer(1, 3), g.integer(1, 3)
    count = g.op(
        "Add", g.op("Div", g.op("Sub", g.size(x), g.ints(wide)), g.ints(stride)), g.ints(1)
    )
    first = g.op("Mul", counted(g, count), number(g, stride))
    index = g.op("Add", column(g, first, -1, 1), g.const([list(range(wide))], np.int64))
    y = g.op("Gather", x, index, axis=1)  # [B, N, wide, 4]
    way = g.integer(0, 2)
    if way == 0:
        return g.reduce(str(g.pick("ReduceMean", "ReduceMax")), y, [2], 0)
    if way == 1:
        y = g.op("Reshape", y, g.ints(0, 0, wide * FEATURES))
        return g.op("MatMul", y, g.weights(wide * FEATURES, FEATURES))
    y = g.op("Mul", y, g.weights(wide, 1))
    return g.op("Reshape", y, g.ints(0, -1, FEATURES))


def picks(g: Graph, x: str) -> str:
    """Single frames: the first, the last, the one in the middle."""
    size, rows = g.size(x), g.size(x, 0)
    last = g.op("Sub", size, g.ints(1))
    way = g.integer(0, 8)
    if way == 0:
        one = g.op("Gather", x, g.const(g.pick(0, 1, -1, -2), np.int64), axis=1)
    elif way == 1:
        one = g.op("Gather", x, g.op("Squeeze", last), axis=1)
    elif way == 2:
        one = g.op("Squeeze", g.op("Slice", x, last, size, g.ints(1)))
        return g.op("Sub", x, g.op("Reshape", one, g.ints(-1, 1, FEATURES)))
    elif way == 3 and g.opset >= 12:
        one = g.op(
            "GatherND",
            x,
            g.op("Expand", last, g.op("Concat", rows, g.ints(1), axis=0)),
            batch_dims=1,
        )
    elif way == 4:
        shape = g.op("Concat", rows, g.ints(1), axis=0)
        index = [column(g, counted(g, rows), -1, 1), g.op("Expand", last, shape)]
        one = g.op("GatherND", x, g.op("Concat", *index, axis=1))
    elif way == 5:
        shape = g.op("Concat", rows, g.ints(1, FEATURES), axis=0)
        y = g.op("GatherElements", x, g.op("Expand", column(g, last, 1, 1, 1), shape), axis=1)
        return g.op("Sub", x, y)
    elif way == 6:
        one = g.op("Gather", x, g.op("Squeeze", g.op("Div", size, g.ints(2))), axis=1)
    elif way == 7:
        turned = g.slice(x, -1, -FAR, 1, -1)
        one = g.op("Gather", turned, g.const(g.pick(0, 1, -1), np.int64), axis=1)
    else:
        turned = g.op("Transpose", x, perm=[1, 0, 2])
        one = g.op("Gather", turned, g.const(g.pick(0, -1), np.int64), axis=0)
    return g.op("Sub", x, g.unsqueeze(one, 1))


LOOKUPS: dict[str, Step] = {
    f.__name__: f
    for f in (
        *(each_in_place, frames_at, table, codes, padded_table, near, shifted, windows, picks),
    )
}
