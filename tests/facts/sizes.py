"""Steps of generated graphs that compute with sizes: they take and give [B, T, 4] for some T."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tests.lengths.graphs import FEATURES, Graph

if TYPE_CHECKING:
    from collections.abc import Callable

    Step = Callable[[Graph, str], str]


def _number(g: Graph, x: str, depth: int = 3) -> str:
    """An int64 [1] made of sizes and numbers."""
    if depth == 0 or g.rng.random() < 0.25:
        leaf = int(str(g.pick(0, 1, 2)))
        return g.size(x, g.integer(0, 2)) if leaf else g.ints(g.integer(-3, 6))
    name = str(
        g.pick("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Where", "Neg", "Abs", "Cast")
    )
    if name in ("Max", "Min") and g.opset < 12:
        name = "Add"
    a = _number(g, x, depth - 1)
    if name == "Neg":
        return g.op("Neg", a)
    if name == "Abs":
        return g.op("Abs", a)
    if name == "Cast":
        return g.op("Cast", g.op("Cast", a, to=int(str(g.pick(1, 6, 9)))), to=7)
    b = (
        g.ints(int(str(g.pick(1, 2, 3, 7, -2))))
        if name in ("Div", "Mod")
        else _number(g, x, depth - 1)
    )
    if name == "Where":
        ask = g.op(str(g.pick("Less", "Greater", "Equal")), a, b)
        return g.op("Where", ask, a, g.ints(g.integer(-2, 5)))
    return g.op(name, a, b)


def arithmetic(g: Graph, x: str) -> str:
    """Numbers out of sizes, put out beside the frames."""
    g.outputs.append(_number(g, x))
    return x


def rounded(g: Graph, x: str) -> str:
    """A size through floats: divided, rounded, made whole again."""
    size = g.op("Cast", g.size(x), to=1)
    way = g.pick("Div", "Mul")
    part = g.op(str(way), size, g.const([g.pick(2.0, 3.0, 4.0, 0.5, 160.0, 1.5)]))
    whole = g.op(str(g.pick("Ceil", "Floor", "Round")), part) if g.pick(0, 1, 1) else part
    count = g.op("Cast", whole, to=7)
    if g.pick(0, 1):
        g.outputs.append(g.op("Mul", count, g.ints(2)))
        return x
    more = g.op("Sub", g.op("Mul", count, g.ints(3)), g.size(x))
    none, spare = g.ints(0), g.op("Abs", more)
    pads = g.op("Concat", none, none, none, none, spare, none, axis=0)
    return g.op("Pad", x, pads)


def filled_up(g: Graph, x: str) -> str:
    """As many frames behind as make a multiple of w, and all as windows of w."""
    w = g.integer(2, 5)
    size = g.size(x)
    way = g.integer(0, 2)
    if way == 0:
        spare = g.op("Mod", g.op("Neg", size), g.ints(w))
    elif way == 1:
        rest = g.op("Mod", size, g.ints(w))
        spare = g.op("Mod", g.op("Sub", g.ints(w), rest), g.ints(w))
    else:
        count = g.op("Div", g.op("Add", size, g.ints(w - 1)), g.ints(w))
        spare = g.op("Sub", g.op("Mul", count, g.ints(w)), size)
    none = g.ints(0)
    pads = g.op("Concat", none, none, none, none, spare, none, axis=0)
    y = g.op("Pad", x, pads)
    y = g.op("Reshape", y, g.ints(0, -1, w, FEATURES))
    return g.op("Reshape", y, g.ints(0, -1, FEATURES))


def sliced(g: Graph, x: str) -> str:
    """Cut at sizes that are computed."""
    size = g.size(x)
    half = g.op("Div", size, g.ints(g.integer(1, 3)))
    start = str(g.pick(g.ints(g.integer(-4, 4)), half, g.op("Sub", size, g.ints(2))))
    end = str(g.pick(g.ints(2**63 - 1), size, g.op("Add", half, g.ints(2)), g.ints(-1)))
    step = g.ints(int(str(g.pick(1, 1, 2, 3, -1))))
    return g.op("Slice", x, start, end, g.ints(1), step)


def dealt(g: Graph, x: str) -> str:
    """Heads out of features, by a shape put together."""
    size = g.op("Shape", x)
    front = g.op("Slice", size, g.ints(0), g.ints(2), g.ints(0))
    y = g.op("Reshape", x, g.op("Concat", front, g.ints(2, -1), axis=0))
    y = g.op("Transpose", y, perm=[0, 2, 1, 3])
    y = g.op("Transpose", y, perm=[0, 2, 1, 3])
    return g.op("Reshape", y, g.op("Concat", front, g.ints(FEATURES), axis=0))


def parted(g: Graph, x: str) -> str:
    """Features in parts, and together again; the size of a part as a number."""
    if g.opset >= 13:
        g.op("Split", x, g.ints(1, 3), axis=2, outputs=2)
    else:
        g.op("Split", x, axis=2, split=[1, 3], outputs=2)
    a, b = g.last(0), g.last(1)
    g.outputs.append(g.op("Size", a))
    return g.op("Concat", b, a, axis=2)


def ranged(g: Graph, x: str) -> str:
    """Positions from, to and by computed numbers."""
    zero = g.const([], np.int64)
    size = g.op("Reshape", g.size(x), zero)
    start, step = g.const(g.integer(-2, 3), np.int64), g.const(g.pick(1, 2, 3, -1), np.int64)
    if g.pick(0, 1):
        start, size = size, start
    r = g.op("Range", start, size, step)
    g.outputs.append(g.op("Shape", r))
    return x


def expanded(g: Graph, x: str) -> str:
    """The Where of TorchScript's Expand."""
    size = g.op("Shape", x)
    wanted = g.op("Concat", g.ints(-1), g.size(x), g.ints(FEATURES), axis=0)
    ask = g.op("Equal", wanted, g.ints(-1))
    shape = g.op("Where", ask, size, wanted)
    return g.op("Add", x, g.op("Expand", g.weights(1, 1, FEATURES), shape))


def spectrum(g: Graph, x: str) -> str:
    """The first feature as a signal, cut into frames."""
    if g.opset < 17:
        return x
    signal = g.op("Pad", g.slice(x, 0, 1, 2), g.ints(0, 8, 0, 0, 8, 0))
    step = g.const(g.integer(1, 5), np.int64)
    window = g.integer(2, 8)
    given = [g.const(np.ones(window))] if g.pick(0, 1) else ["", g.const(window, np.int64)]
    y = g.op("STFT", signal, step, *given, onesided=g.integer(0, 1))
    magnitude = g.reduce("ReduceL2", y, [3], 0)
    mean = g.reduce("ReduceMean", magnitude, [2], 1)
    return g.op("Add", mean, g.weights(FEATURES))


def window_2d(g: Graph, x: str) -> str:
    """Time among two spatial axes."""
    t = g.unsqueeze(x, 1)
    name = str(g.pick("MaxPool", "AveragePool"))
    kernel, stride = [g.integer(1, 4), 1], [g.integer(1, 3), 1]
    auto = g.pick(None, None, "SAME_UPPER", "SAME_LOWER", "VALID")
    given: dict[str, object] = {"kernel_shape": kernel, "strides": stride, "auto_pad": auto}
    if auto is None:
        most = kernel[0] - 1
        given["pads"] = [g.integer(0, most), 0, g.integer(0, most), 0]
    given["ceil_mode"] = g.integer(0, 1)
    return g.squeeze(g.op(name, t, **given), 1)


def chosen(g: Graph, x: str) -> str:
    """Sizes picked out, turned, summed up and multiplied."""
    size = g.op("Shape", x)
    way = g.integer(0, 4)
    if way == 0:
        y = g.op("Gather", size, g.ints(2, -2), axis=0)
    elif way == 1:
        y = g.op("ReduceProd", size, keepdims=g.integer(0, 1)) if g.opset < 18 else g.op("Size", x)
    elif way == 2:
        y = g.op("Slice", size, g.ints(-1), g.ints(-FAR), g.ints(0), g.ints(-1))
    elif way == 3:
        y = g.op("Concat", g.ints(5), size, axis=0)
    else:
        y = g.op("Expand", g.size(x), g.ints(3))
    g.outputs.append(y)
    return x


FAR = 2**63 - 1
SIZES: dict[str, Step] = {
    f.__name__: f
    for f in (
        *(arithmetic, rounded, filled_up, sliced, dealt, parted, ranged, expanded, spectrum),
        *(window_2d, chosen),
    )
}
