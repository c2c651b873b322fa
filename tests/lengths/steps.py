"""What generated graphs are made of: a step for each family of operators, and ways to end.

A step takes and gives [B, T, 4] for some T; its attributes are chosen at random, and so is the form
that the opset of the graph asks for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import numpy_helper

from tests.lengths.graphs import FEATURES, Graph

if TYPE_CHECKING:
    from collections.abc import Callable

    Step = Callable[[Graph, str], str]

NEWEST = 21
FAR = 2**63 - 1

# --- steps: [B, T, 4] in, [B, T', 4] out ----------------------------------------------------------


def unary(g: Graph, x: str) -> str:
    names = ["Abs", "Relu", "Sigmoid", "Tanh", "Neg", "Exp", "Softplus", "Softsign", "Sign", "Ceil"]
    names += ["Floor", "Elu", "LeakyRelu", "Selu", "Celu", "HardSigmoid", "Cosh", "Sinh", "Erf"]
    names += ["ThresholdedRelu", "Cos", "Sin", "Atan", "Asinh", "Identity", "Round"]
    if g.opset >= 14:
        names += ["HardSwish"]
    if g.opset >= 18:
        names += ["Mish"]
    if g.opset >= 20:
        names += ["Gelu"]
    return g.op(str(g.pick(*names)), x)


def exponent(g: Graph, x: str) -> str:
    """What overflows in the tail where it does not in the clip."""
    peak = g.reduce("ReduceMax", x, [1], 1)
    name, less = str(g.pick("Exp", "Exp", "Cosh", "Sinh")), g.op("Sub", x, peak)
    # An infinity in the clip itself is 0 times that.
    e = g.op(name, less if name == "Exp" else g.op("Max", less, g.const(-80.0)))
    if g.pick(0, 1):
        return g.op("Div", e, g.reduce("ReduceSum", e, [1], 1))
    return e


def power(g: Graph, x: str) -> str:
    by = g.const(g.pick(2.0, 3.0, 0.5, -1.0, 8.0))
    inner = g.op("Abs", x) if g.pick(0, 1) else x
    return g.op("Pow", inner, by)


def log(g: Graph, x: str) -> str:
    above = g.op("Add", g.op("Abs", x), g.const(g.pick(1e-5, 1.0)))
    return g.op(str(g.pick("Log", "Sqrt", "Reciprocal")), above)


def shift(g: Graph, x: str) -> str:
    by = g.pick(g.weights(FEATURES), g.const(g.pick(-120.0, -2e4, 1e4, 1.0, -2000.0)))
    return g.op(str(g.pick("Add", "Sub", "Mul", "Max", "Min")), x, str(by))


def divide(g: Graph, x: str) -> str:
    mean = g.reduce("ReduceMean", g.op("Mul", x, x), [g.integer(1, 2)], 1)
    return g.op("Div", x, g.op("Sqrt", g.op("Add", mean, g.const(1e-5))))


def centre(g: Graph, x: str) -> str:
    name = str(g.pick("ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceL1", "ReduceSum"))
    axes = [[1], [2], [1, 2], [-2]][g.integer(0, 3)]
    return g.op("Sub", x, g.reduce(name, x, axes, 1))


def log_sum(g: Graph, x: str) -> str:
    name = str(g.pick("ReduceLogSumExp", "ReduceSumSquare", "ReduceLogSum"))
    inner = g.op("Abs", x) if name == "ReduceLogSum" else x
    return g.op("Sub", x, g.reduce(name, inner, [1], 1))


def clip(g: Graph, x: str) -> str:
    low = float(str(g.pick(-3e4, -1.0, 0.0)))
    return g.op("Clip", x, g.const(low), g.const(low + float(str(g.pick(1.0, 4e4)))))


def where(g: Graph, x: str) -> str:
    ask = g.op(str(g.pick("Greater", "Less")), x, g.const(g.pick(0.0, -100.0)))
    if g.pick(0, 1):
        return g.op("Where", ask, x, g.const(g.pick(0.0, -1e4, -np.inf, 1.0)))
    return g.op("Mul", x, g.op("Cast", ask, to=1))


def linear(g: Graph, x: str) -> str:
    y = g.op("MatMul", x, g.weights(FEATURES, FEATURES))
    return g.op("Add", y, g.weights(FEATURES)) if g.pick(0, 1) else y


def across(g: Graph, x: str) -> str:
    """Products that sum over time."""
    if g.pick(0, 1) and g.opset >= 12:
        m = g.op("Einsum", x, x, equation="btc,btd->bcd")
        return g.op("Einsum", x, m, equation="btc,bcd->btd")
    return g.op("MatMul", x, g.op("MatMul", g.turn(x), x))


def attend(g: Graph, x: str) -> str:
    scores = g.op("MatMul", g.op("MatMul", x, g.weights(FEATURES, FEATURES)), g.turn(x))
    if g.pick(0, 1):
        scores = g.op("Add", scores, g.const(g.pick(-2e4, -1e6, 1e4)))
    if g.pick(0, 0, 1):
        lower = g.op("Trilu", scores, upper=0) if g.opset >= 14 else scores
        scores = g.op("Mul", lower, g.const(2.0))
    axis = g.integer(1, 2) if g.opset >= 13 else 2
    return g.op("MatMul", g.op("Softmax", scores, axis=axis), x)


def softmax(g: Graph, x: str) -> str:
    axis = g.integer(1, 2)
    if g.opset < 13 and axis == 1:  # over all that follows
        return g.op(str(g.pick("Softmax", "LogSoftmax")), x, axis=1)
    return g.op(str(g.pick("Softmax", "LogSoftmax")), x, axis=axis)


def conv(g: Graph, x: str) -> str:
    kernel, dilation, stride = g.integer(1, 4), g.integer(1, 2), g.integer(1, 3)
    w = g.weights(FEATURES, FEATURES, kernel)
    given = [g.turn(x), w] + ([g.weights(FEATURES)] if g.pick(0, 1) else [])
    auto = g.pick(None, None, "SAME_UPPER", "SAME_LOWER", "VALID")
    if auto is not None:
        y = g.op("Conv", *given, auto_pad=auto, strides=[stride], kernel_shape=[kernel])
    else:
        pads = [g.integer(0, 3), g.integer(0, 3)]
        y = g.op("Conv", *given, pads=pads, strides=[stride], dilations=[dilation])
    return g.turn(y)


def conv_2d(g: Graph, x: str) -> str:
    y = g.op(
        "Conv",
        g.unsqueeze(x, 1),
        g.weights(2, 1, 3, 3),
        pads=[g.integer(0, 2), 1, g.integer(0, 2), 1],
        strides=[g.integer(1, 2), 1],
    )
    return g.op("Add", g.reduce("ReduceMean", y, [1], 0), g.const(1.0))


def conv_transpose(g: Graph, x: str) -> str:
    kernel, stride = g.integer(1, 5), g.integer(1, 3)
    w = g.weights(FEATURES, FEATURES, kernel)
    pads = [g.integer(0, kernel - 1), g.integer(0, kernel - 1)]
    given = {"pads": pads}
    if g.pick(0, 0, 1):
        given = {"auto_pad": g.pick("SAME_UPPER", "SAME_LOWER")}  # type: ignore[dict-item]
    dilation = g.integer(1, 3) if "pads" in given else 1
    extra = g.integer(0, max(stride, dilation) - 1)
    inputs = [g.turn(x), w] + ([g.weights(FEATURES)] if g.pick(0, 1) else [])
    y = g.op(
        "ConvTranspose",
        *inputs,
        strides=[stride],
        dilations=[dilation],
        output_padding=[extra],
        **given,
    )
    return g.turn(y)


def pool(g: Graph, x: str) -> str:
    kernel, stride = g.integer(1, 4), g.integer(1, 3)
    name = str(g.pick("MaxPool", "AveragePool"))
    given: dict[str, object] = {"kernel_shape": [kernel], "strides": [stride]}
    if g.pick(0, 0, 1):
        given["auto_pad"] = g.pick("SAME_UPPER", "SAME_LOWER", "VALID")
    else:
        most = max(kernel - 1, 0)
        given["pads"] = [g.integer(0, most), g.integer(0, most)]
        given["ceil_mode"] = g.integer(0, 1)
    if name == "AveragePool":
        given["count_include_pad"] = g.integer(0, 1)
        if g.opset >= 19:
            given["dilations"] = [g.integer(1, 2)]
    elif "auto_pad" not in given:
        given["dilations"] = [g.integer(1, 2)]
    return g.turn(g.op(name, g.turn(x), **given))


def global_pool(g: Graph, x: str) -> str:
    t = g.turn(x)
    p = g.op("GlobalAveragePool", t)
    return g.turn(g.op("Sub", t, p))


def instance_norm(g: Graph, x: str) -> str:
    b = g.weights(FEATURES)
    return g.turn(g.op("InstanceNormalization", g.turn(x), b, b))


def layer_norm(g: Graph, x: str) -> str:
    if g.opset < 17:
        return divide(g, x)
    axis = g.pick(-1, 2, None)
    b = g.weights(FEATURES)
    outputs = int(str(g.pick(1, 1, 3)))
    y = g.op("LayerNormalization", x, b, b, axis=axis, outputs=outputs)
    if outputs == 3:
        return g.op("Sub", y, g.last(g.integer(1, 2)))
    return y


def layer_norm_over_time(g: Graph, x: str) -> str:
    if g.opset < 17:
        return centre(g, x)
    if g.pick(0, 1):  # over time and features, or over time alone
        return g.op("LayerNormalization", x, g.weights(FEATURES), axis=1)
    return g.turn(g.op("LayerNormalization", g.turn(x), g.const([1.5]), axis=-1))


def rms_norm(g: Graph, x: str) -> str:
    axis = g.pick(1, -1, 2)
    op_type = "SimplifiedLayerNormalization"
    if g.pick(0, 1):
        return g.op(op_type, x, g.weights(FEATURES), axis=axis)
    return g.turn(g.op(op_type, g.turn(x), g.const([1.5]), axis=-1))


def group_norm(g: Graph, x: str) -> str:
    groups = int(str(g.pick(1, 2, 4)))
    if g.opset < 18:
        return instance_norm(g, x)
    size = groups if g.opset < 21 else FEATURES
    scale, bias = g.weights(size), g.weights(size)
    return g.turn(g.op("GroupNormalization", g.turn(x), scale, bias, num_groups=groups))


def batch_norm(g: Graph, x: str) -> str:
    b, v = g.weights(FEATURES), g.const(np.abs(g.rng.standard_normal(FEATURES)) + 0.5)
    return g.turn(g.op("BatchNormalization", g.turn(x), b, b, b, v))


def lrn(g: Graph, x: str) -> str:
    return g.turn(g.op("LRN", g.turn(x), size=3))


def pad(g: Graph, x: str) -> str:
    modes = ["constant", "constant", "edge", "reflect"] + (["wrap"] if g.opset >= 19 else [])
    mode = str(g.pick(*modes))
    low = -2 if mode == "constant" else 0
    begin, end = g.integer(low, 3), g.integer(low, 3)
    pads = g.ints(0, begin, 0, 0, end, 0)
    value = [g.const(g.pick(0.0, 0.0, 1.0, -np.inf))] if mode == "constant" else []
    return g.op("Pad", x, pads, *value, mode=mode)


def cut(g: Graph, x: str) -> str:
    start = int(str(g.pick(0, 1, 2, -3, -1)))
    end = int(str(g.pick(FAR, FAR, -1, -2, 5)))
    return g.slice(x, start, end, 1, int(str(g.pick(1, 1, 2, 3))))


def backwards(g: Graph, x: str) -> str:
    if g.pick(0, 1):
        return g.slice(x, -1, -FAR, 1, -1)
    start, end = int(str(g.pick(-1, -2, 4, FAR))), int(str(g.pick(-FAR, 0, 1, -4)))
    return g.slice(x, start, end, 1, int(str(g.pick(-1, -2))))


def there_and_back(g: Graph, x: str) -> str:
    y = g.slice(x, -1, -FAR, 1, -1)
    y = [linear, sums, unary][g.integer(0, 2)](g, y)
    return g.slice(y, -1, -FAR, 1, -1)


def sums(g: Graph, x: str) -> str:
    axis = g.const(1, np.int64)
    given = {"reverse": g.integer(0, 1), "exclusive": g.integer(0, 1)}
    return g.op("CumSum", x, axis, **given)


def concat(g: Graph, x: str) -> str:
    """Frames before and behind: zeros, edges, a learned one, the clip itself."""
    rows = g.op("Gather", g.op("Shape", x), g.ints(0), axis=0)
    count = g.integer(1, 3)

    def some() -> str:
        way = g.integer(0, 4)
        if way == 0:
            shape = g.op("Concat", rows, g.ints(count, FEATURES), axis=0)
            value = numpy_helper.from_array(np.array([g.pick(0.0, 1.0)], np.float32))
            return g.op("ConstantOfShape", shape, value=value)
        if way == 1:
            shape = g.op("Concat", rows, g.ints(count, FEATURES), axis=0)
            return g.op("Expand", g.weights(1, 1, FEATURES), shape)
        start = int(str(g.pick(0, -1)))
        edge = g.slice(x, start, 1 if start == 0 else FAR)
        if way == 2:
            return g.op("Tile", edge, g.ints(1, count, 1))
        if way == 3:
            shape = g.op("Concat", rows, g.ints(count, FEATURES), axis=0)
            return g.op("Expand", edge, shape)
        return g.slice(x, 0, count) if start == 0 else g.slice(x, -count, FAR)

    which = g.integer(0, 2)
    parts = ([some()] if which != 1 else []) + [x] + ([some()] if which != 0 else [])
    return g.op("Concat", *parts, axis=1)


def stack(g: Graph, x: str) -> str:
    """Frames stacked by slices of a stride, as a low frame rate."""
    if g.pick(0, 1):
        x = g.op("Pad", x, g.ints(0, 1, 0, 0, 1, 0), mode="edge")
        parts = [g.slice(x, i, FAR if i == 2 else i - 2) for i in range(3)]
    else:
        parts = [x, x]
    y = g.op("Concat", *parts, axis=2)
    return g.op("MatMul", y, g.weights(FEATURES * len(parts), FEATURES))


def fold(g: Graph, x: str) -> str:
    """Two frames as one by Reshape: only clips of even length run."""
    y = g.op("Reshape", x, g.ints(0, -1, 2 * FEATURES))
    y = g.op("Relu", y)
    return g.op("Reshape", y, g.ints(0, -1, FEATURES))


def spread(g: Graph, x: str) -> str:
    """Time and features as one axis, and apart again."""
    y = unary(g, g.op("Reshape", x, g.ints(0, -1)))
    return g.op("Reshape", y, g.ints(0, -1, FEATURES))


def recur(g: Graph, x: str) -> str:
    name, gates = [("LSTM", 4), ("GRU", 3), ("RNN", 1)][g.integer(0, 2)]
    direction = str(g.pick("forward", "reverse", "bidirectional"))
    many, hidden = (2, 2) if direction == "bidirectional" else (1, FEATURES)
    w = g.weights(many, gates * hidden, FEATURES)
    r = g.weights(many, gates * hidden, hidden)
    t = g.op("Transpose", x, perm=[1, 0, 2])
    y = g.op(name, t, w, r, hidden_size=hidden, direction=direction, outputs=2)
    state = g.last(1)
    y = g.op("Transpose", y, perm=[2, 0, 1, 3])
    y = g.op("Reshape", y, g.ints(0, 0, FEATURES))
    if g.pick(0, 1):
        s = g.op("Reshape", g.op("Transpose", state, perm=[1, 0, 2]), g.ints(0, 1, FEATURES))
        y = g.op("Add", y, s)
    return y


def positions(g: Graph, x: str) -> str:
    end = g.op("Squeeze", g.size(x))
    kinds = [0, 1, 2] + ([3] if g.opset >= 14 else [])
    kind = int(str(g.pick(*kinds)))
    if kind == 0:
        table = g.weights(64, FEATURES)
        size = g.size(x)
        return g.op("Add", x, g.op("Slice", table, g.ints(0), size, g.ints(0)))
    zero, one = g.const(0, np.int64), g.const(1, np.int64)
    steps = g.op("Cast", g.op("Range", zero, end, one), to=1)
    column = g.op("Reshape", steps, g.ints(1, -1, 1))
    if kind == 1:
        return g.op("Add", x, g.op("Sin", column))
    if kind == 2:  # how far along: a length as data
        return g.op("Mul", x, g.op("Div", column, g.op("Cast", end, to=1)))
    return g.op("Add", x, g.op("Mul", column, g.const(0.1)))


def length(g: Graph, x: str) -> str:
    size = g.op("Cast", g.op("Squeeze", g.size(x)), to=1)
    if g.pick(0, 0, 1):
        return g.op("Mul", x, g.op("Sqrt", size))
    if g.pick(0, 1):
        return g.op("Clip", x, g.const(-1.0), size)
    return g.op("Div", g.op("Mul", x, g.const(3.0)), size)


def trilu(g: Graph, x: str) -> str:
    if g.opset < 14:
        return linear(g, x)
    scores = g.op("MatMul", x, g.turn(x))
    k = g.const(g.integer(-2, 2), np.int64)
    if g.pick(0, 0, 1):
        k = g.op("Sub", g.op("Squeeze", g.size(x)), g.const(2, np.int64))
    return g.op("MatMul", g.op("Trilu", scores, k, upper=g.integer(0, 1)), x)


def gathered(g: Graph, x: str) -> str:
    last = g.op("Gather", x, g.ints(*([-1, -2][: g.integer(1, 2)])), axis=1)
    first = g.op("Gather", x, g.ints(g.integer(0, 3)), axis=1)
    chosen = str(g.pick(last, first))
    return g.op("Sub", x, g.reduce("ReduceMean", chosen, [1], 1))


def scattered(g: Graph, x: str) -> str:
    at = int(str(g.pick(0, 1, -1)))
    if g.pick(0, 1):  # one element of the first row
        return g.op("ScatterND", x, g.const([[0, at, 1]], np.int64), g.const([7.0]))
    rows = g.op("Gather", g.op("Shape", x), g.ints(0), axis=0)
    shape = g.op("Concat", rows, g.ints(1, FEATURES), axis=0)
    index = g.op("Expand", g.const([[[at]]], np.int64), shape)
    updates = g.op("Expand", g.const([[[5.0]]]), shape)
    return g.op("ScatterElements", x, index, updates, axis=1)


def quantized(g: Graph, x: str) -> str:
    scale, kind = g.const(0.05), np.uint8
    point = g.const(g.pick(0, 7, 128), kind)
    t = g.op("Clip", g.op("Mul", x, g.const(0.5)), g.const(-4.0), g.const(4.0))
    q = g.op("QuantizeLinear", t, scale, point)
    way = g.integer(0, 2)
    if way == 0:
        return g.op("DequantizeLinear", q, scale, point)
    other = point if g.pick(0, 0, 1) else g.const(g.pick(0, 3), kind)
    weight = g.rng.integers(0, 255, (FEATURES, FEATURES, 3))
    if way == 1:
        w = g.const(weight[:, :, 0], kind)
        y = g.op("MatMulInteger", q, w, other, g.const(100, kind))
        return g.op("Mul", g.op("Cast", y, to=1), g.const(0.01))
    pads = [g.integer(0, 2), g.integer(0, 2)]
    w = g.const(weight, kind)
    given = [g.turn(q), w] + ([other, g.const(100, kind)] if g.pick(0, 1) else [])
    y = g.op("ConvInteger", *given, pads=pads, kernel_shape=[3])
    return g.op("Mul", g.op("Cast", g.turn(y), to=1), g.const(0.01))


def summed_quantized(g: Graph, x: str) -> str:
    """Integers summed over time."""
    scale, kind = g.const(0.05), np.uint8
    point = g.const(g.pick(0, 7, 128), kind)
    t = g.op("Clip", g.op("Mul", x, g.const(0.5)), g.const(-4.0), g.const(4.0))
    q = g.op("QuantizeLinear", t, scale, point)
    y = g.op("MatMulInteger", g.turn(q), q, point, point)
    m = g.op("Mul", g.op("Cast", y, to=1), g.const(0.001))
    return g.op("MatMul", x, m)


def expand(g: Graph, x: str) -> str:
    """One frame for all, made as long as the clip."""
    one = g.reduce(str(g.pick("ReduceMean", "ReduceMax")), x, [1], 1)
    return g.op("Sub", x, g.op("Expand", one, g.op("Shape", x)))


def repeated(g: Graph, x: str) -> str:
    """Each frame twice."""
    y = g.op("Tile", g.unsqueeze(x, 2), g.ints(1, 1, 2, 1))
    return g.op("Reshape", y, g.ints(0, -1, FEATURES))


def compared(g: Graph, x: str) -> str:
    """A mask out of positions and the length, as exporters make it of what they know."""
    zero, one = g.const(0, np.int64), g.const(1, np.int64)
    end = g.op("Squeeze", g.size(x))
    steps = g.op("Range", zero, end, one)
    limit = end if g.pick(0, 1) else g.op("Sub", end, g.const(g.integer(0, 2), np.int64))
    ask = g.op("Less", steps, limit)
    mask = g.op("Reshape", g.op("Cast", ask, to=1), g.ints(1, -1, 1))
    return g.op("Mul", x, mask)


def dropout(g: Graph, x: str) -> str:
    return g.op("Dropout", x)


def skip_norm(g: Graph, x: str) -> str:
    b = g.weights(FEATURES)
    return g.op("SkipLayerNormalization", x, linear(g, x), b, b, domain="com.microsoft")


def half(g: Graph, x: str) -> str:
    """Weights over time out of float16 scores, as low as they get."""
    if x != "x":
        return linear(g, x)
    # Numbers that float16 has: ONNX Runtime may leave out the Casts.
    scores = g.op(
        "Round", g.op("Mul", g.op("Clip", x, g.const(-3e4), g.const(3e4)), g.const(0.0625))
    )
    scores = g.op("Cast", g.op("Mul", scores, g.const(16.0)), to=10)
    if g.pick(0, 1):
        weights = g.op("Softmax", g.turn(scores), axis=2)
        return g.op("Mul", x, g.turn(g.op("Cast", weights, to=1)))
    peak = g.reduce("ReduceMax", scores, [1], 1)
    return g.op("Sub", x, g.op("Cast", peak, to=1))


def conv_features(g: Graph, x: str) -> str:
    """Batch and time as one axis, and a window that slides over features."""
    y = g.op("Reshape", x, g.ints(-1, 1, FEATURES))
    y = g.op("Conv", y, g.weights(2, 1, 3), pads=[1, 1])
    if g.pick(0, 1):
        y = g.op("InstanceNormalization", y, g.weights(2), g.weights(2))
    y = g.reduce("ReduceSum", y, [1], 0)
    shape = g.op("Concat", g.ints(-1), g.size(x), g.ints(FEATURES), axis=0)
    return g.op("Reshape", y, shape)


def heads(g: Graph, x: str) -> str:
    """Attention with heads in the batch axis."""
    size = g.size(x)
    y = g.op("Reshape", x, g.ints(0, 0, 2, 2))
    y = g.op("Transpose", y, perm=[0, 2, 1, 3])
    flat = g.op("Reshape", y, g.op("Concat", g.ints(-1), size, g.ints(2), axis=0))
    scores = g.op("MatMul", flat, g.op("Transpose", flat, perm=[0, 2, 1]))
    z = g.op("MatMul", g.op("Softmax", scores, axis=2), flat)
    z = g.op("Reshape", z, g.op("Concat", g.ints(-1, 2), size, g.ints(2), axis=0))
    z = g.op("Transpose", z, perm=[0, 2, 1, 3])
    return g.op("Reshape", z, g.ints(0, 0, FEATURES))


def by_size(g: Graph, x: str) -> str:
    """Operators that take a size where others take a number."""
    size = g.size(x)
    half_ = g.op("Div", size, g.ints(2))
    way = g.integer(0, 11)
    scalar = g.op("Squeeze", half_)
    if way == 0:
        return g.op("Sub", x, g.op("Gather", x, half_, axis=1))
    if way == 1:
        return g.op("Slice", x, half_, g.ints(FAR), g.ints(1), g.ints(1))
    if way == 2:
        return g.op("Slice", x, g.ints(0), half_, g.ints(1), g.ints(1))
    if way == 3:
        none = g.ints(0)
        pads = g.op("Concat", none, half_, none, none, none, none, axis=0)
        return g.op("Pad", x, pads)
    if way == 4:
        g.op("TopK", x, half_, axis=1, outputs=2)
        top_ = str(g.nodes[-1].output[0])
        return g.op("Sub", x, g.reduce("ReduceMean", top_, [1], 1))
    if way == 5:
        step = g.op("Range", scalar, g.op("Squeeze", size), g.const(1, np.int64))
        column = g.op("Reshape", g.op("Cast", step, to=1), g.ints(1, -1, 1))
        return g.op("Sub", x, g.reduce("ReduceMean", column, [1], 1))
    if way == 6:
        row = g.op(
            "Tile", g.const([[[1.0, 2.0]]]), g.op("Concat", g.ints(1), half_, g.ints(2), axis=0)
        )
        return g.op("Add", x, g.reduce("ReduceMean", row, [1], 1))
    if way == 7:
        step = g.op("Range", g.op("Squeeze", size), g.const(0, np.int64), g.const(-1, np.int64))
        column = g.op("Reshape", g.op("Cast", step, to=1), g.ints(1, -1, 1))
        return g.op("Mul", x, column)
    if way == 8:
        grid = g.op("Concat", size, size, axis=0)
        eye = g.op("EyeLike", g.op("ConstantOfShape", grid), dtype=1, k=g.integer(-1, 1))
        return g.op("MatMul", eye, x)
    if way == 9:
        steps = g.op("Range", g.const(0, np.int64), g.op("Squeeze", size), g.const(1, np.int64))
        hot = g.op("OneHot", steps, g.op("Squeeze", size), g.const([0.0, 1.0]))
        return g.op("MatMul", hot, x)
    if way == 10:
        weights = g.op("Cast", g.op("Shape", x), to=1)
        weights = g.op("Reshape", g.op("Concat", weights, g.const([1.0]), axis=0), g.ints(4, 1))
        return g.op("Add", x, g.op("MatMul", x, weights))
    last = g.op("Sub", size, g.ints(1))
    steps = g.op("Range", g.const(0, np.int64), g.op("Squeeze", size), g.const(1, np.int64))
    steps = g.op("Add", steps, g.ints(1))
    if g.opset < 12:
        return x
    return g.op("Gather", x, g.op("Min", steps, last), axis=1)


def picked(g: Graph, x: str) -> str:
    """Frames by an index for each element, or for each row."""
    rows = g.op("Gather", g.op("Shape", x), g.ints(0), axis=0)
    way = g.integer(0, 3)
    if way == 0 and g.opset >= 13:
        index = g.op(
            "Expand",
            g.const([[[g.pick(0, 2, -1)]]], np.int64),
            g.op("Concat", rows, g.ints(1, FEATURES), axis=0),
        )
        y = g.op("GatherElements", x, index, axis=1)
        return g.op("Sub", x, y)
    if way == 1 and g.opset >= 12:
        index = g.op(
            "Expand",
            g.const([[g.pick(0, 3, -1)]], np.int64),
            g.op("Concat", rows, g.ints(1), axis=0),
        )
        return g.op("Sub", x, g.unsqueeze(g.op("GatherND", x, index, batch_dims=1), 1))
    if way == 2:  # the loudest frame
        loud = g.reduce("ReduceSum", g.op("Clip", x, g.const(-9.0), g.const(9.0)), [2], 0)
        at = g.op("ArgMax", loud, axis=1, keepdims=1)
        index = g.op(
            "Expand", g.unsqueeze(at, 2), g.op("Concat", rows, g.ints(1, FEATURES), axis=0)
        )
        return g.op("Sub", x, g.op("GatherElements", x, index, axis=1))
    lens = g.op("Expand", g.size(x), rows)
    return g.op("ReverseSequence", x, lens, batch_axis=0, time_axis=1)


def dynamic(g: Graph, x: str) -> str:
    """Quantized by the range that is found."""
    y = g.op("DynamicQuantizeLinear", g.op("Clip", x, g.const(-4.0), g.const(4.0)), outputs=3)
    scale, point = g.last(1), g.last(2)
    if g.pick(0, 1):
        return g.op("DequantizeLinear", y, scale, point)
    w = g.const(g.rng.integers(0, 255, (FEATURES, FEATURES, 3)), np.uint8)
    pads = [g.integer(0, 2), g.integer(0, 2)]
    y = g.op(
        "ConvInteger", g.turn(y), w, point, g.const(100, np.uint8), pads=pads, kernel_shape=[3]
    )
    return g.turn(g.op("Mul", g.op("Cast", y, to=1), g.op("Mul", scale, g.const(0.01))))


def other_kinds(g: Graph, x: str) -> str:
    """Operators that mix along time and may have no rule at all."""
    t = g.turn(x)
    way = g.integer(0, 6)
    if way == 0:
        return g.op("Hardmax", x, axis=1) if g.opset >= 13 else x
    if way == 1:
        return g.turn(g.op("LpPool", t, kernel_shape=[3], pads=[1, 1], p=2))
    if way == 2:
        return g.turn(g.op("MeanVarianceNormalization", t, axes=[0, 2]))
    if way == 3:
        return g.turn(g.squeeze(g.op("DepthToSpace", g.unsqueeze(t, 2), blocksize=1), 2))
    if way == 4:
        return g.turn(g.op("Sub", t, g.op("GlobalLpPool", t, p=2)))
    if way == 5:
        y = g.op("Transpose", x, perm=[1, 0, 2])
        y = g.op("Softmax", y, axis=0) if g.opset >= 13 else y
        return g.op("Transpose", y, perm=[1, 0, 2])
    return g.turn(g.op("LayerNormalization", t, g.const([1.0]), axis=-1)) if g.opset >= 17 else x


def rows_mixed(g: Graph, x: str) -> str:
    """Along the batch, while it still has time."""
    if x != "x":
        return linear(g, x)
    way = g.integer(0, 4)
    if way == 0:
        return g.op("CumSum", x, g.const(0, np.int64))
    if way == 1:
        return g.op("Sub", x, g.reduce("ReduceMax", x, [0], 1))
    if way == 2:
        return g.slice(x, -1, -FAR, 0, -1)
    if way == 3:
        return g.op("Softmax", x, axis=0)
    return g.op("Concat", x, x, axis=0)


STEPS: dict[str, Step] = {
    f.__name__: f
    for f in (
        *(unary, exponent, power, log, shift, divide, centre, log_sum, clip, where, linear, across),
        *(attend, softmax, conv, conv_2d, conv_transpose, pool, global_pool, instance_norm),
        *(layer_norm, layer_norm_over_time, rms_norm, group_norm, batch_norm, lrn, pad),
        *(cut, backwards, there_and_back, sums, concat, stack, fold, spread, recur, positions),
        *(length, trilu, gathered, scattered, quantized, summed_quantized, expand, repeated),
        *(compared, dropout, skip_norm, half, conv_features, heads, by_size, picked, dynamic),
        *(other_kinds, rows_mixed),
    )
}

# --- ends: what is put out -----------------------------------------------------------------------


def as_it_is(g: Graph, x: str) -> str:
    return x


def pooled(g: Graph, x: str) -> str:
    names = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceProd")
    names += ("ReduceLogSumExp", "ReduceSumSquare")
    return g.reduce(str(g.pick(*names)), x, [[1], [1, 2]][g.integer(0, 1)], g.integer(0, 1))


def place(g: Graph, x: str) -> str:
    op_type = str(g.pick("ArgMax", "ArgMin"))
    x = g.op("Clip", x, g.const(-1e20), g.const(1e20))  # an infinity is not hidden
    # Which of several is the largest that are equal except rounding is another in each run.
    x = g.op("Round", g.op("Mul", x, g.const(16.0)))
    last = g.integer(0, 1) if g.opset >= 12 else None
    return g.op(op_type, x, axis=g.integer(1, 2), keepdims=0, select_last_index=last)


def sizes(g: Graph, x: str) -> str:
    return g.op("Shape", x) if g.pick(0, 1) else g.op("Squeeze", g.size(x))


def weighed(g: Graph, x: str) -> str:
    return g.op("Softmax", g.reduce("ReduceMean", x, [2], 0), axis=1)


def whole(g: Graph, x: str) -> str:
    return g.op("Cast", g.op("Clip", x, g.const(-9.0), g.const(9.0)), to=7)


ENDS: dict[str, Step] = {
    f.__name__: f for f in (as_it_is, pooled, place, sizes, weighed, whole, backwards)
}
