"""Steps of generated graphs that cut frames into windows, or put them together, and back.

As in :mod:`tests.lengths.steps` a step takes and gives [B, T, 4] for some T.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.lengths.graphs import FEATURES, Graph
from tests.lengths.steps import FAR

if TYPE_CHECKING:
    from tests.lengths.steps import Step


def joined(g: Graph, *parts: str) -> str:
    return g.op("Concat", *parts, axis=0)


def chunks_of(g: Graph, size: str, wide: int) -> str:
    """How many chunks there are, the last one begun: in the spellings of exporters."""
    way = g.integer(0, 4)
    if way == 0:
        return g.op("Div", g.op("Add", size, g.ints(wide - 1)), g.ints(wide))
    if way == 1:
        less = g.op("Sub", size, g.ints(1))
        return g.op("Add", g.op("Div", less, g.ints(wide)), g.ints(1))
    if way == 2:
        rest = g.op("Mod", g.op("Neg", size), g.ints(wide))
        return g.op("Div", g.op("Add", size, rest), g.ints(wide))
    part = g.op("Div", g.op("Cast", size, to=1), g.const([float(wide)]))
    if way == 3:
        return g.op("Cast", g.op("Ceil", part), to=7)
    return g.op("Neg", g.op("Cast", g.op("Floor", g.op("Neg", part)), to=7))


def chunks(g: Graph, x: str) -> str:
    """Filled up to whole chunks; something within each; cut to what there was."""
    wide, size = g.integer(2, 4), g.size(x)
    count = chunks_of(g, size, wide)
    whole = g.op("Mul", count, g.ints(wide))
    none = g.ints(0)
    mode = str(g.pick("constant", "constant", "edge", "reflect"))
    more = g.op("Sub", whole, size)
    front = g.pick(0, 0, 0, 1)
    pads = joined(g, none, more if front else none, none, none, none if front else more, none)
    y = g.op("Pad", x, pads, mode=mode)
    if g.pick(0, 1):
        y = g.op("Reshape", y, joined(g, g.ints(0), count, g.ints(wide, FEATURES)))
    else:
        y = g.op("Reshape", y, g.ints(0, -1, wide, FEATURES))
    way = g.integer(0, 4)
    if way == 0:
        y = g.op("Sub", y, g.reduce(str(g.pick("ReduceMean", "ReduceMax")), y, [2], 1))
    elif way == 1:
        y = g.op("Mul", y, g.weights(wide, 1))
    elif way == 2:
        scores = g.op("MatMul", y, g.op("Transpose", y, perm=[0, 1, 3, 2]))
        y = g.op("MatMul", g.op("Softmax", scores, axis=3), y)
    elif way == 3:
        return g.reduce(str(g.pick("ReduceMean", "ReduceMax", "ReduceSum")), y, [2], 0)
    else:
        y = g.op("Transpose", y, perm=[0, 2, 1, 3])
        y = g.reduce("ReduceMean", y, [g.integer(1, 2)], 1)
        y = g.op("Add", y, g.op("Reshape", x, joined(g, g.ints(0), g.ints(1, -1, FEATURES))))
        return g.op("Reshape", y, g.ints(0, -1, FEATURES))
    y = g.op("Reshape", y, g.ints(0, -1, FEATURES))
    return y if g.pick(0, 0, 1) else g.op("Slice", y, g.ints(0), size, g.ints(1))


def each_window(g: Graph, x: str) -> str:
    """Windows with the batch in one axis: recurrences along them and across them, and queries."""
    wide, size, rows = g.integer(2, 4), g.size(x), g.size(x, 0)
    count = chunks_of(g, size, wide)
    whole = g.op("Mul", count, g.ints(wide))
    amounts = joined(g, g.ints(0, 0, 0, 0), g.op("Sub", whole, size), g.ints(0))
    y, many = g.op("Pad", x, amounts), g.op("Mul", rows, count)
    flat = g.op("Reshape", y, joined(g, many, g.ints(wide, FEATURES)))
    way = g.integer(0, 3)
    if way == 0:
        q = g.op("Expand", g.weights(1, 2, FEATURES), joined(g, many, g.ints(2, FEATURES)))
        scores = g.op("MatMul", q, g.turn(flat))
        y = g.op("MatMul", g.op("Softmax", scores, axis=2), flat)
        twice = g.op("Mul", count, g.ints(2))
        return g.op("Reshape", y, joined(g, rows, twice, g.ints(FEATURES)))
    if way == 1:
        y = _recurrence(g, flat)
    elif way == 2:
        four = g.op("Reshape", y, joined(g, rows, count, g.ints(wide, FEATURES)))
        four = g.op("Transpose", four, perm=[0, 2, 1, 3])
        y = _recurrence(g, g.op("Reshape", four, joined(g, g.ints(-1), count, g.ints(FEATURES))))
        back = joined(g, rows, g.ints(wide), count, g.ints(FEATURES))
        y = g.op("Transpose", g.op("Reshape", y, back), perm=[0, 2, 1, 3])
    else:
        zeros = g.op("ConstantOfShape", joined(g, g.ints(1), many, g.ints(FEATURES)))
        y = _recurrence(g, flat, zeros)
    y = g.op("Reshape", y, joined(g, rows, whole, g.ints(FEATURES)))
    return g.op("Slice", y, g.ints(0), size, g.ints(1))


def _recurrence(g: Graph, x: str, start: str = "") -> str:
    """Along the middle axis."""
    name, gates = [("LSTM", 4), ("GRU", 3)][g.integer(0, 1)]
    way = str(g.pick("forward", "reverse", *([] if start else ["bidirectional"])))
    many, hidden = (2, 2) if way == "bidirectional" else (1, FEATURES)
    weights = [g.weights(many, gates * hidden, n) for n in (FEATURES, hidden)]
    given = [g.op("Transpose", x, perm=[1, 0, 2]), *weights, *(["", "", start] if start else [])]
    y = g.op(name, *given, hidden_size=hidden, direction=way)
    y = g.op("Transpose", y, perm=[2, 0, 1, 3])
    return g.op("Reshape", y, g.ints(0, 0, FEATURES))


def subsampled(g: Graph, x: str) -> str:
    """So many frames as one, what is left over dropped; the size is computed."""
    by, size = g.integer(2, 3), g.size(x)
    count = g.op("Div", size, g.ints(by))
    y = g.op("Slice", x, g.ints(0), g.op("Mul", count, g.ints(by)), g.ints(1))
    if g.pick(0, 1):
        y = g.op("Reshape", y, joined(g, g.size(x, 0), count, g.ints(by * FEATURES)))
        return g.op("MatMul", y, g.weights(by * FEATURES, FEATURES))
    shape = joined(g, g.size(x, 0), g.ints(by), count, g.ints(FEATURES))
    if g.pick(0, 1):
        shape = joined(g, g.size(x, 0), count, g.ints(by), g.ints(FEATURES))
        return g.reduce("ReduceSum", g.op("Reshape", y, shape), [2], 0)
    return g.reduce("ReduceSum", g.op("Reshape", y, shape), [1], 0)


def strided(g: Graph, x: str) -> str:
    """Frames stacked by Slices with a step, whose ends are computed."""
    wide, step, size = g.integer(2, 3), g.integer(1, 3), g.size(x)
    count = g.op("Add", g.op("Div", g.op("Sub", size, g.ints(wide)), g.ints(step)), g.ints(1))
    reach = g.op("Mul", count, g.ints(step))
    parts = [
        g.op("Slice", x, g.ints(i), g.op("Add", reach, g.ints(i)), g.ints(1), g.ints(step))
        for i in range(wide)
    ]
    y = g.op("Concat", *parts, axis=2)
    return g.op("MatMul", y, g.weights(wide * FEATURES, FEATURES))


def filled(g: Graph, x: str) -> str:
    """Copies of the first frame before, of the last behind, as many as the length asks for."""
    wide, size, rows = g.integer(2, 4), g.size(x), g.size(x, 0)
    before = g.integer(0, 2)
    whole = g.op("Mul", chunks_of(g, size, wide), g.ints(wide))
    more = g.op("Sub", whole, size)
    last = g.slice(x, -1, FAR) if g.pick(0, 0, 1) == 0 else g.slice(x, 0, 1)
    if g.pick(0, 1):
        behind = g.op("Tile", last, joined(g, g.ints(1), more, g.ints(1)))
    else:
        behind = g.op("Expand", last, joined(g, rows, more, g.ints(FEATURES)))
    front = [g.op("Tile", g.slice(x, 0, 1), g.ints(1, before, 1))] if before else []
    y = g.op("Concat", *front, x, behind, axis=1)
    if before or g.pick(0, 1):
        return y
    y = g.op("Reshape", y, g.ints(0, -1, wide * FEATURES))
    return g.op("MatMul", y, g.weights(wide * FEATURES, FEATURES))


def interleaved(g: Graph, x: str) -> str:
    """Even and odd frames apart, and together again; or one after the other."""
    way = g.integer(0, 2)
    if way == 0:  # upsampling by two projections
        parts = [g.op("MatMul", x, g.weights(FEATURES, FEATURES)) for _ in range(2)]
        y = g.op("Concat", *(g.unsqueeze(p, 2) for p in parts), axis=2)
        return g.op("Reshape", y, g.ints(0, -1, FEATURES))
    if way == 1:
        even, odd = g.slice(x, 0, FAR, 1, 2), g.slice(x, 1, FAR, 1, 2)
        return g.op("Concat", even, odd, axis=1)
    y = g.op("MatMul", x, g.weights(FEATURES, 2 * FEATURES))
    return g.op(
        "Reshape", y, joined(g, g.size(x, 0), g.op("Mul", g.size(x), g.ints(2)), g.ints(FEATURES))
    )


def resized(g: Graph, x: str) -> str:
    """Time, or time and features, resized by one number: by a scale, or to computed sizes."""
    mode = str(g.pick("nearest", "nearest", "linear", "linear", "cubic"))
    scale = float(str(g.pick(2.0, 2.0, 3.0, 5.0, 1.0, 1.5, 0.5, 1 / 3)))
    if g.opset < 11:
        return g.turn(g.op("Resize", g.turn(x), g.const([1, 1, scale]), mode=mode))
    places = ["half_pixel", "asymmetric", "pytorch_half_pixel", "align_corners"]
    places += ["tf_half_pixel_for_nn"] if g.opset < 13 else []
    places += ["half_pixel_symmetric"] if g.opset >= 19 else []
    given: dict[str, object] = {"coordinate_transformation_mode": g.pick(*places), "mode": mode}
    if mode == "nearest":
        roundings = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
        given["nearest_mode"] = g.pick(*roundings)
    image = mode == "cubic" or bool(g.pick(0, 0, 1))
    y = g.unsqueeze(g.turn(x), 1) if image else g.turn(x)
    none = "" if g.opset >= 13 else g.const([])
    if g.pick(0, 1) and scale in (1.0, 2.0, 3.0, 5.0, 0.5):
        more = g.size(x)
        more = g.op("Mul", more, g.ints(int(scale))) if scale >= 1 else g.op("Div", more, g.ints(2))
        rest = [g.ints(1, FEATURES)] if image else [g.ints(FEATURES)]
        y = g.op("Resize", y, none, none, joined(g, g.size(x, 0), *rest, more), **given)
    elif image and g.pick(0, 0, 1):  # time of an image, and the other side
        y = g.op("Resize", y, none, g.const([1, 1, 2, scale]), **given)
        y = g.op("Slice", y, g.ints(1), g.ints(FEATURES + 1), g.ints(2))
    else:
        y = g.op("Resize", y, none, g.const([1] * (3 if image else 2) + [scale]), **given)
    return g.turn(g.squeeze(y, 1) if image else y)


def halves_and_back(g: Graph, x: str) -> str:
    """Down to half of the frames and up again, beside what there was: clips of even length."""
    t = g.turn(x)
    w = g.weights(FEATURES, FEATURES, 3)
    if g.pick(0, 1):
        half = g.op("AveragePool", t, kernel_shape=[2], strides=[2])
    else:
        half = g.op("Conv", t, w, strides=[2], pads=[1, 0])
    if g.pick(0, 1):
        back = g.op("ConvTranspose", half, w, strides=[2], pads=[1, 1], output_padding=[1])
    else:
        none = "" if g.opset >= 13 else g.const([])
        back = g.op("Resize", half, none, g.const([1, 1, 2]))
    if g.pick(0, 1):
        return g.turn(g.op("Add", t, back))
    both = g.op("Concat", t, back, axis=1)
    return g.turn(g.op("Conv", both, g.weights(FEATURES, 2 * FEATURES, 3), pads=[1, 1]))


WINDOWED: dict[str, Step] = {
    f.__name__: f
    for f in (
        *(chunks, each_window, subsampled, strided, filled, interleaved, resized),
        halves_and_back,
    )
}
