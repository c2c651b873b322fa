"""Leaks that were called safe, or were repaired wrongly: each on a graph of its own."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from tests.lengths.padding import hold

INITIALIZERS = (
    "float eps = {0.00001}, int64[1] one = {1}, int64[1] m1 = {-1}, int64[1] m2 = {-2}, "
    "int64[1] zero1 = {0}, int64 at1 = {1}, int64 two = {2}, "
    "float nought = {0.0}, float three = {3.0}, int64 none = {0}, int64[4] pairs = {0, -1, 2, 4}, "
    "int64[3] whole = {0, -1, 4}, float[2, 1] halves = {1, 0.5}, int64[1] three1 = {3}, "
    "float[1, 2, 1, 1] apart = {1, 0.5}, float[1, 2, 1, 1] deep = {0, 1}, int64[1] pair = {2}, "
    "int64[1] four1 = {4}, int64[1] nine1 = {9}, float[1, 4, 4] w1 = {"
    + ", ".join(str(round((11 * i % 17 - 8) / 20, 2)) for i in range(16))
    + "}, "
    "int64[3] rows = {-1, 1, 4}, int64[2] columns = {4, -1}, "
    "int64[1] far = {9223372036854775807}, "
    "int64[1] back = {-9223372036854775807}, float[4] g = {1, 2, 0.5, 1}, float scale = {0.05}, "
    "uint8 point = {128}, float low = {-20000.0}, float hundredth = {0.01}, float db = {-90.0}, "
    "uint8[4, 4, 3] k8 = {"
    + ", ".join(str(37 * i % 251) for i in range(48))
    + "}, float[4, 4, 3] k = {"
    + ", ".join(str(round((17 * i % 29 - 14) / 20, 2)) for i in range(48))
    + "}, float[4, 4, 2] k2 = {"
    + ", ".join(str(round((13 * i % 23 - 11) / 20, 2)) for i in range(32))
    + "}"
)
C = "c = Transpose <perm = [0, 2, 1]> (x)"
BACK = "y = Transpose <perm = [0, 2, 1]> (r) }"
REPAIRED = {
    "exp less its maximum, normalised by hand": """{ m = ReduceMax <axes = [1]> (x) d = Sub (x, m)
        e = Exp (d) s = ReduceSum (e, one) y = Div (e, s) }""",
    "cosh over time": """{ m = ReduceMax <axes = [1]> (x) d = Sub (x, m) e = Cosh (d)
        i = Reciprocal (e) s = ReduceSum (i, one) t = ReduceSum (e, one) y = Add (s, t) }""",
    "a high power": """{ m = ReduceMax <axes = [1]> (x) d = Sub (x, m) e = Pow (d, two)
        f = Pow (e, two) h = Pow (f, two) n = Neg (h) z = Exp (n) y = ReduceSum (z, one) }""",
    "scores of -20000": """{ s = Add (x, low) p = Softmax <axis = 1> (s) y = Mul (p, x) }""",
    "the largest of what has a bound below": """{ a = Abs (x) n = Neg (a) c = Clip (n, low)
        y = ReduceMax <axes = [1]> (c) }""",
    "root mean square over time": "{ y = SimplifiedLayerNormalization <axis = 1> (x, g) }",
    "a quantized convolution": """{ n = Mul (x, hundredth) q = QuantizeLinear (n, scale, point)
        c = Transpose <perm = [0, 2, 1]> (q) r = ConvInteger <pads = [1, 1]> (c, k8, point, point)
        f = Cast <to = 1> (r) y = Transpose <perm = [0, 2, 1]> (f) }""",
    "a quantized sum over time": """{ n = Mul (x, hundredth) q = QuantizeLinear (n, scale, point)
        c = Transpose <perm = [0, 2, 1]> (q) r = MatMulInteger (c, q, point, point)
        y = Cast <to = 1> (r) }""",
    "the mean and deviation of a LayerNormalization": """{ z, m, i = LayerNormalization (x, g)
        s = Sub (z, m) y = ReduceMean <axes = [1]> (s) }""",
    "entries of a table that numbers choose": """{ m = ReduceMax <axes = [2], keepdims = 0> (x)
        a = Clip (m, nought, three) i = Cast <to = 7> (a) y = Gather (g, i) }""",
    "a mean where batch and features are one axis": """{ c = Transpose <perm = [1, 0, 2]> (x)
        n = Shape (c) t = Gather (n, zero1) s = Concat <axis = 0> (t, m1) f = Reshape (c, s)
        m = ReduceMean <axes = [0]> (f) r = Reshape (m, rows) y = Sub (x, r) }""",
    "a mean where features and batch are one axis": """{ c = Transpose <perm = [1, 2, 0]> (x)
        n = Shape (c) t = Gather (n, zero1) s = Concat <axis = 0> (t, m1) f = Reshape (c, s)
        m = ReduceMean <axes = [0]> (f) r = Reshape (m, columns)
        z = Transpose <perm = [1, 0]> (r) u = Unsqueeze (z, one) y = Sub (x, u) }""",
    "a mask that hides every score": """{ c = Transpose <perm = [0, 2, 1]> (x) s = MatMul (x, c)
        n = Shape (x) t = Gather (n, at1) r = Range (none, t, at1) v = Less (t, r)
        w = Where (v, s, low) p = Softmax <axis = -1> (w) y = MatMul (p, x) }""",
    "numbers put over every score": """{ c = Transpose <perm = [0, 2, 1]> (x) s = MatMul (x, c)
        n = Shape (x) t = Gather (n, at1) r = Range (none, t, at1) v = GreaterOrEqual (t, r)
        w = Where (v, low, s) p = Softmax <axis = -1> (w) y = MatMul (p, x) }""",
    "copies that fill up to a multiple, mirrored, behind a stride": f"""{{ {C}
        d = Conv <strides = [2], pads = [1, 1]> (c, k) n = Shape (d) t = Gather (n, pair)
        a = Add (t, three1) q = Div (a, four1) e = Mul (q, four1) o = Sub (e, t)
        z = Concat <axis = 0> (zero1, zero1, four1, zero1, zero1, o)
        f = Pad <mode = "reflect"> (d, z) r = Conv <strides = [4]> (f, k) {BACK}""",
    "a recurrence that is told the size of all": """{ c = Transpose <perm = [1, 0, 2]> (x)
        n = Shape (x) b = Gather (n, zero1) t = Gather (n, one) e = Expand (t, b)
        l = Cast <to = 6> (e)
        h = RNN <hidden_size = 4, direction = "reverse"> (c, w1, w1, , l)
        f = Squeeze (h, one) y = Transpose <perm = [1, 0, 2]> (f) }""",
}
# As many frames in front as fill up a pair; they are another place in each container.
PAIRS = """n = Shape (x) t = Gather (n, one) d = Add (t, one) h = Div (d, pair)
    e = Mul (h, pair) o = Sub (e, t)
    z = Concat <axis = 0> (zero1, o, zero1, zero1, zero1, zero1) f = Pad (x, z)
    r = Reshape (f, pairs)"""
REFUSED = {
    "pairs of frames that are filled up in front": (
        f"{{ {PAIRS} w = Mul (r, halves) u = Reshape (w, whole) y = Slice (u, zero1, t, one) }}",
        "how much it puts in front depends on the padded length",
    ),
    "the clip twice in one axis": (
        "{ c = Unsqueeze (x, one) d = Mul (c, apart) y = Reshape (d, whole) }",
        "time several times over in one axis",
    ),
    "an element of the clip twice in one axis": (
        """{ c = Unsqueeze (x, one) e = Add (c, deep) u = Reshape (e, whole) n = Shape (x)
        b = Gather (n, zero1) s = Concat <axis = 0> (b, one) i = Expand (nine1, s)
        y = GatherND <batch_dims = 1> (u, i) }""",
        "holds time beside something else",
    ),
    "an output that runs backwards": (
        "{ r = Slice (x, m1, back, one, m1) y = Relu (r) }",
        "runs backwards, its padding in front",
    ),
    "the first of what runs backwards": (
        """{ r = Slice (x, m1, back, one, m1) n = Shape (x)
        b = Gather (n, zero1) s = Concat <axis = 0> (b, one) i = Expand (zero1, s)
        f = GatherND <batch_dims = 1> (r, i) h = Relu (r) y = Mul (f, scale) }""",
        "beside something else, or runs backwards",
    ),
    "same padding with a stride": (
        f"""{{ {C}
        r = Conv <auto_pad = "SAME_UPPER", strides = [2]> (c, k) {BACK}""",
        "how much SAME_UPPER puts in front depends on the padded length",
    ),
    "same padding in front": (
        f"""{{ {C}
        r = Conv <auto_pad = "SAME_LOWER", strides = [3]> (c, k2) {BACK}""",
        "how much SAME_LOWER puts in front depends on the padded length",
    ),
    "backwards, but not all of it": ("{ y = Slice (x, m2, back, one, m1) }", "is not known"),
    "a shape as an output": ("{ y = Shape (x) }", "counts the padding in"),
    "a triangle that depends on the length": (
        """{ c = Transpose <perm = [0, 2, 1]> (x) s = MatMul (x, c) n = Shape (x)
        t = Gather <axis = 0> (n, at1) d = Sub (t, two) u = Trilu (s, d) y = MatMul (u, x) }""",
        "it computes with the padded length",
    ),
    "an index that counts from the end": (
        "{ v = Slice (x, zero1, one, one) y = ScatterElements <axis = 1> (x, last, v1) }",
        "may count from the end",
    ),
    "a sum along the batch": ("{ y = CumSum (x, first) }", "mixes rows of the batch"),
}
EXTRA = ", int64[1, 1, 1] last = {-1}, float[1, 1, 1] v1 = {7}, int64 first = {0}"


def model_of(body: str) -> onnx.ModelProto:
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[B, T, 4] x) => (float[N] y)
        <{INITIALIZERS}{EXTRA}> {body}"""
    model = ir.to_proto(ir.from_onnx_text(text))
    model.graph.output[0].ClearField("type")
    return model


@pytest.mark.parametrize("case", REPAIRED)
def test_it_is_repaired(case: str) -> None:
    model = model_of(REPAIRED[case])
    for seed in range(7):  # levels of clips, and lengths
        found = hold(model, seed, "B")
        assert found.kind == "repaired", found


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused(case: str) -> None:
    body, reason = REFUSED[case]
    found = hold(model_of(body), 0, "B")
    assert found.kind == "refused", found
    assert reason in found.what
