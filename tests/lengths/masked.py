"""Steps of generated graphs that use a mask input: 1 for what is valid, then 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.lengths.graphs import FEATURES, Graph
from tests.lengths.lookups import LONG, column, counted, number, weigh
from tests.lengths.windowed import joined

if TYPE_CHECKING:
    from tests.lengths.steps import Step


def mask_of(g: Graph, x: str) -> str:
    """The mask as it is, or as exporters hand it on: int64 [B, T]."""
    mask = g.mask()
    rows, size = g.size(x, 0), g.size(x)
    way = g.integer(0, 5)
    if way == 0:
        return g.op("Cast", g.op("Cast", mask, to=9), to=7)
    if way == 1:
        return g.op("Reshape", mask, joined(g, rows, size))
    if way == 2:
        return g.op("Expand", mask, joined(g, rows, size))
    if way == 3:
        shape = joined(g, rows, size, g.ints(1))
        b = g.op("Expand", column(g, counted(g, rows), -1, 1, 1), shape)
        t = g.op("Expand", column(g, counted(g, size), 1, -1, 1), shape)
        return g.op("GatherND", mask, g.op("Concat", b, t, axis=-1))
    if way == 4:
        stride = g.op("Mul", counted(g, rows), g.op("Squeeze", g.size(mask)))
        index = g.op("Add", column(g, stride, -1, 1), column(g, counted(g, size), 1, -1))
        return g.op("Gather", g.op("Reshape", mask, g.ints(-1)), index, axis=0)
    return mask


def kept(g: Graph, mask: str, *shape: int) -> str:
    """Whether a place is valid, bool."""
    way = g.integer(0, 2)
    if way == 0:
        asked = g.op("Cast", mask, to=9)
    elif way == 1:
        asked = g.op("Greater", mask, number(g, 0))
    else:
        asked = g.op("Not", g.op("Equal", mask, number(g, 0)))
    return g.op("Reshape", asked, g.ints(*shape))


def hidden(g: Graph, x: str) -> str:
    """Scores of what is no content, by Where, by a sum, by the least of both."""
    scores = g.op("MatMul", x, g.turn(x))
    mask = mask_of(g, x)
    low = float(str(g.pick(-1e4, -1e9, -3.4e38)))
    way = g.integer(0, 3)
    if way == 0:
        return weigh(g, x, g.op("Where", kept(g, mask, 0, 1, -1), scores, g.const(low)))
    if way == 1:
        shown = g.op("Cast", column(g, mask, 0, 1, -1), to=1)
        addend = g.op("Mul", g.op("Sub", g.const(1.0), shown), g.const(low))
        return weigh(g, x, g.op("Add", scores, addend))
    addend = g.op("Where", kept(g, mask, 0, 1, -1), g.const(0.0), g.const(low))
    if way == 2:
        return weigh(g, x, g.op("Add", scores, addend))
    own, other = kept(g, mask, 0, 1, -1), kept(g, mask, 0, -1, 1)
    return weigh(g, x, g.op("Where", g.op("And", own, other), scores, g.const(low)))


def zeroed(g: Graph, x: str) -> str:
    mask = mask_of(g, x)
    if g.pick(0, 1):
        return g.op("Mul", x, g.op("Cast", column(g, mask, 0, -1, 1), to=1))
    return g.op("Where", kept(g, mask, 0, -1, 1), x, g.const(g.pick(0.0, 1.0, -1e4)))


def mean(g: Graph, x: str) -> str:
    """The mean of what the mask keeps."""
    shown = g.op("Cast", column(g, mask_of(g, x), 0, -1, 1), to=1)
    total = g.reduce("ReduceSum", g.op("Mul", x, shown), [1], 1)
    many = g.reduce("ReduceSum", shown, [1], 1)
    if g.pick(0, 1):
        many = g.op("Clip", many, g.const(1e-9))
    return g.op("Sub", x, g.op("Div", total, many))


def positions(g: Graph, x: str) -> str:
    """Positions of a running count of the mask, looked up in a table."""
    mask = mask_of(g, x)
    at = g.op("CumSum", mask, number(g, 1))
    way = g.integer(0, 2)
    if way == 0:
        at = g.op("Sub", at, number(g, 1))
    elif way == 1:
        at = g.op("Add", g.op("Mul", at, mask), number(g, 1))
    return g.op("Add", x, g.op("Gather", g.weights(LONG, FEATURES), at, axis=0))


def last_kept(g: Graph, x: str) -> str:
    """The frame at the count of the mask."""
    many = g.reduce("ReduceSum", mask_of(g, x), [1], 0)
    at = g.op("Sub", many, number(g, 1))
    rows = g.size(x, 0)
    if g.pick(0, 1) and g.opset >= 12:
        one = g.op("GatherND", x, column(g, at, -1, 1), batch_dims=1)
    else:
        index = g.op("Concat", column(g, counted(g, rows), -1, 1), column(g, at, -1, 1), axis=1)
        one = g.op("GatherND", x, index)
    return g.op("Sub", x, g.unsqueeze(one, 1))


def counted_frames(g: Graph, x: str) -> str:
    """The count of the mask through the arithmetic of a convolution, compared with its frames."""
    kernel, stride = g.integer(1, 3), g.integer(1, 3)
    w = g.weights(FEATURES, FEATURES, kernel)
    h = g.turn(g.op("Conv", g.turn(x), w, strides=[stride], kernel_shape=[kernel]))
    many = g.reduce("ReduceSum", mask_of(g, x), [1], 0)
    less = g.op("Sub", many, number(g, kernel))
    wrong = g.pick(0, 0, 0, 1)
    frames = g.op("Add", g.op("Div", less, number(g, stride)), number(g, 0 if wrong else 1))
    at = counted(g, g.size(h))
    keep = g.op("Less", column(g, at, 1, -1), column(g, frames, -1, 1))
    if g.pick(0, 1):
        return g.op("Where", g.unsqueeze(keep, 2), h, g.const(0.0))
    scores = g.op("MatMul", h, g.turn(h))
    return weigh(g, h, g.op("Where", g.unsqueeze(keep, 1), scores, g.const(-1e4)))


def every_second(g: Graph, x: str) -> str:
    """A mask cut or pooled as its frames are."""
    h = g.slice(x, 0, 2**63 - 1, 1, 2)
    if g.pick(0, 1):
        mask = g.slice(mask_of(g, x), 0, 2**63 - 1, 1, 2)
    else:
        shown = g.op("Cast", column(g, mask_of(g, x), 0, 1, -1), to=1)
        shown = g.op("MaxPool", shown, kernel_shape=[1], strides=[2])
        mask = g.op("Cast", g.squeeze(shown, 1), to=7)
    scores = g.op("MatMul", h, g.turn(h))
    return weigh(g, h, g.op("Where", kept(g, mask, 0, 1, -1), scores, g.const(-1e4)))


def recurrence(g: Graph, x: str) -> str:
    """A recurrence that is told the count of the mask."""
    many = g.op("Cast", g.reduce("ReduceSum", mask_of(g, x), [1], 0), to=6)
    w, r = g.weights(1, 3 * FEATURES, FEATURES), g.weights(1, 3 * FEATURES, FEATURES)
    direction = str(g.pick("forward", "reverse"))
    t = g.op("Transpose", x, perm=[1, 0, 2])
    y = g.op("GRU", t, w, r, "", many, hidden_size=FEATURES, direction=direction)
    return g.op("Transpose", g.squeeze(y, 1), perm=[1, 0, 2])


def longest(g: Graph, x: str) -> str:
    """A mask as long as the longest row, of the counts of all."""
    many = g.reduce("ReduceSum", mask_of(g, x), [1], 0)
    most = g.reduce("ReduceMax", many, [0], 0)
    if g.pick(0, 1):
        most = g.op("Squeeze", g.size(x))
    at = g.op("Range", number(g, 0), most, number(g, 1))
    keep = g.op("Less", column(g, at, 1, -1), column(g, many, -1, 1))
    scores = g.op("MatMul", x, g.turn(x))
    return weigh(g, x, g.op("Where", g.unsqueeze(keep, 1), scores, g.const(-1e4)))


def where_kept(g: Graph, x: str) -> str:
    """Numbers put where the mask is 0, or 1."""
    mask = kept(g, mask_of(g, x), 0, -1)
    if g.pick(0, 1):
        mask = g.op("Not", mask)
    at = g.op("Transpose", g.op("NonZero", mask), perm=[1, 0])
    many = g.op("Slice", g.op("Shape", at), g.ints(0), g.ints(1), g.ints(0))
    new = g.op("Expand", g.const(g.pick(0.0, 1.0)), joined(g, many, g.ints(FEATURES)))
    return g.op("ScatterND", x, at, new)


MASKED: dict[str, Step] = {
    f"mask_{f.__name__}": f
    for f in (
        *(hidden, zeroed, mean, positions, last_kept, counted_frames, every_second, recurrence),
        *(longest, where_kept),
    )
}
"""Steps that take the mask of x itself, and so come first."""
