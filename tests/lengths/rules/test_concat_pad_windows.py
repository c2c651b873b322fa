"""A time axis put together by Concat: windows that overlap, copies of the edges before frames.

Both exporters' forms: TorchScript tiles the edges, dynamo expands them.
"""

from __future__ import annotations

import zlib

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graphfix
from tests.lengths.padding import hold, session

# Halves of a window side by side: windows of four frames, two apart.
WINDOWS = """s = Shape (x)  bb = Slice (s, i0, i1, i0)  t = Slice (s, i1, i2, i0)
    n = Div (t, i2)  even = Mul (n, i2)  cut = Slice (x, i0, even, i1)
    target = Concat <axis = 0> (bb, n, i8)  h = Reshape (cut, target)
    a = Slice (h, i0, last, i1)  b = Slice (h, i1, far, i1)
    w = Concat <axis = 2> (a, b)"""
LFR = """s = Shape (x)  t = Slice (s, i1, i2, i0)  up = Add (t, i2)  n = Div (up, i3)
    m = Mul (n, i3)  first = Slice (x, i0, i1, i1)  final = Slice (x, last, far, i1)
    {edges}
    p = Concat <axis = 1> (left, x, right)
    m1 = Add (m, i1)  m2 = Add (m, i2)
    f0 = Slice (p, i0, m, i1, i3)  f1 = Slice (p, i1, m1, i1, i3)  f2 = Slice (p, i2, m2, i1, i3)
    w = Concat <axis = 2> (f0, f1, f2)"""
TILE = "left = Tile (first, one_one)  right = Tile (final, one_four)"
EXPAND = """bb = Slice (s, i0, i1, i0)  l_size = Concat <axis = 0> (bb, i1, i4)
    r_size = Concat <axis = 0> (bb, i4, i4)
    left = Expand (first, l_size)  right = Expand (final, r_size)"""
EXPAND_ONES = "left = Expand (first, e_one)  right = Expand (final, e_four)"
# Frames cut into windows of three, the last one filled up with copies.
FILLED = """s = Shape (x)  t = Slice (s, i1, i2, i0)  up = Add (t, i2)  n = Div (up, i3)
    m = Mul (n, i3)  less = Sub (m, t)  amounts = Concat <axis = 0> (i0, i0, i0, i0, less, i0)
    p = Pad <mode = "{mode}"> (x, amounts)  h = Reshape (p, threes)
    lowest = ReduceMin <axes = [1]> (h)  c = Sub (h, lowest)
    bb = Slice (s, i0, i1, i0)  target = Concat <axis = 0> (bb, last, i4)
    w = Reshape (c, target)"""
# The convolutions of a conformer, as FastSpeech2 has them: pointwise, a gate, depthwise, pointwise.
CONFORMER = """xt = Transpose <perm = [0, 2, 1]> (x)  p1 = Conv <dilations = [1]> (xt, wide)
    gate, value = Split <axis = 1> (p1, fours)  open = Sigmoid (gate)  h = Mul (value, open)
    d = Conv <dilations = [1], group = 4, kernel_shape = [3], pads = [1, 1]> (h, deep)
    p2 = Conv <dilations = [2], pads = [2, 2]> (d, full)  w = Transpose <perm = [0, 2, 1]> (p2)"""
# Frames side by side by Slices with a step, whose ends are below 0 for the shortest clips.
STACK = """{ends}
    f0 = Slice ({x}, i0, e0, i1, {by})  f1 = Slice ({x}, i1, e1, i1, {by})
    f2 = Slice ({x}, i2, e2, i1, {by})  w = Concat <axis = 2> (f0, f1, f2)"""
SCALARS = """s = Shape (x)  t = Gather <axis = 0> (s, one)  less = Sub (t, {less})
    n0 = Div (less, two)  n1 = Cast <to = 7> (n0)  n = Add (n1, {more})  m = Mul (n, two)
    m1 = Add (m, one)  m2 = Add (m, two)
    e0 = {vector} (m, {by})  e1 = {vector} (m1, {by})  e2 = {vector} (m2, {by})"""
TORCHSCRIPT = SCALARS.replace("{vector}", "Unsqueeze").replace("{by}", "i0")
DYNAMO = SCALARS.replace("{vector}", "Reshape").replace("{by}", "last")
LESS = """t = Shape <start = 1, end = 2> (x)  e0 = Sub (t, i2)  e1 = Sub (t, i1)
    e2 = Identity (far)"""
HALF = """t = Shape <start = 1, end = 2> (x)  h = Div (t, i2)  n = Sub (h, i1)  e0 = Mul (n, i2)
    e1 = Add (e0, i1)  e2 = Add (e0, i2)"""
CEIL = """t = Shape <start = 1, end = 2> (x)  tf = Cast <to = 1> (t)  q = Div (tf, thrice)
    c = Ceil (q)  n = Cast <to = 7> (c)  e0 = Mul (n, i3)  e1 = Add (e0, i1)  e2 = Add (e0, i2)
    first = Slice (x, i0, i1, i1)  final = Slice (x, last, far, i1)
    left = Tile (first, one_one)  right = Tile (final, one_four)
    p = Concat <axis = 1> (left, x, right)"""
STACKS = {
    "windows by TorchScript": (TORCHSCRIPT.format(less="four", more="zero"), "x", "i2"),
    "windows by dynamo": (DYNAMO.format(less="four", more="zero"), "x", "i2"),
    "one window more": (DYNAMO.format(less="four", more="one"), "x", "i2"),
    "half as many, less one": (HALF, "x", "i2"),
    "less than the clip": (LESS, "x", "i2"),
    "less than the clip, by threes": (LESS, "x", "i3"),
    "rounded up, behind edges": (CEIL, "p", "i3"),
}
ENDS = {
    "mean": "y = ReduceMean <axes = [1]> (w)",
    "attention": """wt = Transpose <perm = [0, 2, 1]> (w)  sc = MatMul (w, wt)
        pr = Softmax <axis = 2> (sc)  y = MatMul (pr, w)""",
}
BODIES = {
    "windows": WINDOWS,
    "tiled edges": LFR.format(edges=TILE),
    "expanded edges": LFR.format(edges=EXPAND),
    "edges expanded by ones": LFR.format(edges=EXPAND_ONES),
    "a conformer's convolutions": CONFORMER,
    "filled up by the edge": FILLED.format(mode="edge"),
    "filled up by a mirror": FILLED.format(mode="reflect"),
}


BODIES |= {k: STACK.format(ends=e, x=x, by=by) for k, (e, x, by) in STACKS.items()}


def _weights(count: int) -> str:
    return ", ".join(f"{np.sin(7.0 * i):.3f}" for i in range(count))


def model(body: str, opset: int = 17) -> onnx.ModelProto:
    text = f"""<ir_version: 8, opset_import: ["" : {opset}]>
        m (float[B, T, 4] x) => (float[] y)
        <int64[1] i0 = {{0}}, int64[1] i1 = {{1}}, int64[1] i2 = {{2}}, int64[1] i3 = {{3}},
         int64[1] i4 = {{4}}, int64[1] i8 = {{8}}, int64[1] last = {{-1}},
         int64[1] far = {{9223372036854775807}}, int64[3] one_one = {{1, 1, 1}},
         int64[3] one_four = {{1, 4, 1}}, int64[3] e_one = {{1, 1, 1}},
         int64[3] e_four = {{1, 4, 1}}, int64[3] threes = {{-1, 3, 4}},
         int64 zero = {{0}}, int64 one = {{1}}, float thrice = {{3.0}},
         int64 two = {{2}}, int64 four = {{4}}, int64[1] i16 = {{16}},
         int64[2] fours = {{4, 4}}, float[8, 4, 1] wide = {{{_weights(32)}}},
         float[4, 1, 3] deep = {{{_weights(12)}}}, float[4, 4, 3] full = {{{_weights(48)}}}>
        {{ {body} }}"""
    made = onnx.parser.parse_model(text)
    made.graph.output[0].ClearField("type")
    return made


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_padding_stays_out(body: str, end: str) -> None:
    whole = f"{body} {end}"
    found = hold(model(whole), zlib.crc32(whole.encode()), "B")
    assert found.kind == "repaired", found.what


def test_padding_of_no_number_changes_nothing_at_any_length() -> None:
    """Every clip that has a window, in containers of every size; the shortest have none."""
    for name in ("windows by TorchScript", "windows by dynamo"):
        before = model(f"{BODIES[name]} y = ReduceMean <axes = [1]> (w)")
        after = ir.from_proto(before)
        graphfix.run(after, "ilens-mask")
        alone, padded = session(before), session(ir.to_proto(after))
        rng = np.random.default_rng(3)
        for length in range(6, 14):
            clip = rng.standard_normal((1, length, 4)).astype(np.float32)
            wanted = alone.run(None, {"x": clip})[0]
            for more in range(7):
                x = np.full((1, length + more, 4), np.nan, np.float32)
                x[:, :length] = clip
                found = padded.run(None, {"x": x, "ilens": np.array([length])})[0]
                np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_clip_with_no_window_in_it_gives_none_as_before(length: int) -> None:
    before = model(f"{WINDOWS} {ENDS['attention']}")
    after = ir.from_proto(before)
    graphfix.run(after, "ilens-mask")
    x = np.ones((2, length, 4), np.float32)
    alone = session(before).run(None, {"x": x})[0]
    assert alone.shape == (2, max(length // 2 - 1, 0), 16)
    feeds = {"x": x, "ilens": np.array([length, length])}
    np.testing.assert_array_equal(session(ir.to_proto(after)).run(None, feeds)[0], alone)


# Windows by a table of places; how many there are is cut towards 0, which is not rounding down.
TABLE = """s = Shape (x)  t1 = Slice (s, i1, i2, i0)  t = Squeeze (t1)  less = Sub (t, four)
    {count}  n = Add (n0, one)  at = Range (zero, n, one)  by = Mul (at, two)
    from = Unsqueeze (by, i1)  within = Range (zero, four, one)  places = Add (from, within)
    g = Gather <axis = 1> (x, places)  bb = Slice (s, i0, i1, i0)
    target = Concat <axis = 0> (bb, last, i16)  w = Reshape (g, target)"""
COUNTS = {
    "cut towards 0": ("n0 = Div (less, two)", "repaired"),
    "rounded down by TorchScript": (
        """q = Div (less, two)  low = Less (less, zero)  neg = Less (two, zero)
        apart = Xor (low, neg)  rest = Mod (less, two)  no = Equal (rest, zero)  some = Not (no)
        both = And (apart, some)  off = Cast <to = 7> (both)  n0 = Sub (q, off)""",
        "repaired",
    ),
    "rounded down by dynamo": (
        """q = Div (less, two)  low = Less (less, zero)  above = Greater (two, zero)
        apart = Equal (low, above)  rest = Mod (less, two)  some = Cast <to = 9> (rest)
        both = And (apart, some)  off = Cast <to = 7> (both)  n0 = Sub (q, off)""",
        "repaired",
    ),
    "rounded otherwise": (
        """q = Div (less, two)  low = Less (less, zero)  rest = Mod (less, two)
        some = Cast <to = 9> (rest)  both = Or (low, some)  off = Cast <to = 7> (both)
        n0 = Sub (q, off)""",
        "refused",
    ),
    "of a square root": (
        "lf = Cast <to = 1> (less)  root = Sqrt (lf)  n0 = Cast <to = 7> (root)",
        "refused",
    ),
}


@pytest.mark.parametrize("name", COUNTS)
def test_windows_by_a_table_are_repaired_or_refused(name: str) -> None:
    """A table whose length is not known in terms of the clip's is never taken for one without."""
    count, kind = COUNTS[name]
    body = TABLE.format(count=count)
    found = hold(model(f"{body} {ENDS['attention']}"), zlib.crc32(body.encode()), "B")
    assert found.kind == kind, found.what
