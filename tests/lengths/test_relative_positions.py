"""Relative positions that are read on rows, heads and frames in one axis, as Zipformer has them."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graphfix
from graphfix.facts.shapes import infer
from graphfix.lengths.tail_state import same_size, size_expr
from tests.lengths.padding import hold, session


def _weights(count: int) -> str:
    return ", ".join(f"{np.sin(7.0 * i):.3f}" for i in range(count))


# Frames first; a table of positions cut around its middle; the heads before the batch.
_ATTENTION = f"""<ir_version: 8, opset_import: ["" : 17]>
    m (float[B, T, 4] x) => (float[B, T, 4] y)
    <float[4, 6] wq = {{{_weights(24)}}}, float[4, 6] wk = {{{_weights(24)}}},
     float[79, 6] table = {{{_weights(79 * 6)}}}, int64[1] i0 = {{0}}, int64[1] i1 = {{1}},
     int64[1] i2 = {{2}}, int64[1] i40 = {{40}}, int64[1] i39 = {{39}}, int64 one = {{1}},
     int64 zero = {{0}}, int64 neg = {{-1}}, int64[1] last = {{-1}}, int64[1] heads = {{2}},
     int64[1] dim = {{3}}>
    {{ xt = Transpose <perm = [1, 0, 2]> (x)  s = Shape (xt)  tv = Slice (s, i0, i1, i0)
       bv = Slice (s, i1, i2, i0)  t = Squeeze (tv)  q0 = MatMul (xt, wq)  k0 = MatMul (xt, wk)
       qs = Concat <axis = 0> (tv, bv, heads, dim)  q1 = Reshape (q0, qs)  k1 = Reshape (k0, qs)
       q = Transpose <perm = [2, 1, 0, 3]> (q1)  k = Transpose <perm = [2, 1, 3, 0]> (k1)
       ac = MatMul (q, k)  from = Sub (i40, tv)  to = Add (i39, tv)
       pe = Slice (table, from, to, i0)  pn = Shape <start = 0, end = 1> (pe)
       ps = Concat <axis = 0> (i1, pn, heads, dim)  p1 = Reshape (pe, ps)
       p = Transpose <perm = [2, 0, 3, 1]> (p1)  bd = MatMul (q, p)
       flat = Concat <axis = 0> (last, pn)  b2 = Reshape (bd, flat)  t1 = Sub (t, one)
       times = Mul (heads, bv)  cols = Range (zero, t, one)
       %s
       g = GatherElements <axis = 1> (b2, index)
       %s
       scores = Add (ac, moved)  a = Softmax <axis = -1> (scores)
       xv = Transpose <perm = [1, 0, 2]> (xt)  xv4 = Unsqueeze (xv, i0)  o = MatMul (a, xv4)
       y = ReduceMean <axes = [0], keepdims = 0> (o) }}"""
_DOWN = """rows = Range (t1, neg, neg)  rep = Tile (rows, times)  ru = Unsqueeze (rep, i1)
    index = Add (ru, cols)"""
_UP = """rows = Range (zero, t, one)  rep = Tile (rows, times)  ru = Unsqueeze (rep, i1)
    apart = Sub (cols, ru)  index = Add (apart, t1)"""
# Each position as often as there are heads and rows, one behind the other, and not all in turn.
_EACH = """rows = Range (t1, neg, neg)  rw = Unsqueeze (rows, i1)
    ex = Concat <axis = 0> (i1, {often})  re = Tile (rw, ex)  each = Reshape (re, last)
    rep = {turns}  ru = Unsqueeze (rep, i1)  index = Add (ru, cols)"""
_BACK = "sh = Concat <axis = 0> (heads, bv, tv, tv)  moved = Reshape (g, sh)"
_SWAPPED = """sh = Concat <axis = 0> (bv, heads, tv, tv)  mv = Reshape (g, sh)
    moved = Transpose <perm = [1, 0, 2, 3]> (mv)"""


def attention(index: str, back: str = _BACK) -> onnx.ModelProto:
    return onnx.parser.parse_model(_ATTENTION % (index, back))


@pytest.mark.parametrize("index", [_DOWN, _UP], ids=["down", "up"])
def test_a_clip_in_a_container_is_what_it_is_alone(index: str) -> None:
    before = attention(index)
    after = ir.from_proto(before)
    graphfix.run(after, "ilens-mask")
    alone, padded = session(before), session(ir.to_proto(after))
    rng = np.random.default_rng(2)
    for lengths in ([1], [2, 7], [9, 4, 13]):
        clips = [rng.standard_normal((1, n, 4)).astype(np.float32) for n in lengths]
        for more in (0, 1, 2, 11):
            x = np.full((len(lengths), max(lengths) + more, 4), np.nan, np.float32)
            for row, clip in enumerate(clips):
                x[row, : clip.shape[1]] = clip[0]
            y = padded.run(None, {"x": x, "ilens": np.array(lengths)})[0]
            for row, clip in enumerate(clips):
                wanted = alone.run(None, {"x": clip})[0][0]
                np.testing.assert_allclose(y[row, : lengths[row]], wanted, atol=1e-5)


def test_positions_may_be_projected_as_a_matrix() -> None:
    """A Linear of a table of two dims is a Gemm, which is followed as a MatMul is."""
    text = _ATTENTION % (_DOWN, _BACK)
    gemm = """turn = Transpose <perm = [1, 0]> (pp)  own = Gemm <transA = 1> (turn, square, shift)
        p1 = Reshape (own, ps)"""
    square = f"float[6, 6] square = {{{_weights(36)}}}, float[6] shift = {{{_weights(6)}}}"
    text = text.replace("float[79, 6] table", f"{square}, float[79, 6] table")
    text = text.replace("p1 = Reshape (pe, ps)", "pp = Identity (pe)  " + gemm)
    found = hold(onnx.parser.parse_model(text), 5, "B")
    assert found.kind == "repaired", found.what


@pytest.mark.parametrize(
    ("index", "back"),
    [
        (_EACH.format(often="times", turns="Identity (each)"), _BACK),
        (_EACH.format(often="bv", turns="Tile (each, heads)"), _BACK),
        (_EACH.format(often="heads", turns="Tile (each, bv)"), _BACK),
        (_DOWN, _SWAPPED),
        ("rest = Sub (t1, cols)  " + _DOWN.replace("(ru, cols)", "(ru, rest)"), _BACK),
        ("many = Sub (times, i1)  " + _UP.replace("(apart, t1)", "(apart, many)"), _BACK),
    ],
    ids=["each", "each row", "each head", "heads for rows", "backwards", "by the batch"],
)
def test_an_index_that_mixes_rows_or_leaves_them_out_of_place_is_refused(
    index: str, back: str
) -> None:
    found = hold(attention(index, back), 5, "B")
    assert found.kind == "refused", found.what
    assert "cannot see what padding" in found.what


@pytest.mark.parametrize(
    "node",
    ["GatherElements <axis = 0> (x, first)", "ScatterElements <axis = 0> (x, first, x)"],
)
def test_elements_of_other_rows_are_refused(node: str) -> None:
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        m (float[B, T, 4] x) => (float[B, T, 4] y)
        {{ s = Shape (x)  first = ConstantOfShape <value = int64[1] {{0}}> (s)  y = {node} }}""")
    found = hold(model, 5, "B")
    assert found.kind == "refused", found.what


_TABLE = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[B, T, 4] x) => (float[B, T, 4] y)
    <int64[1] i0 = {0}, int64[1] i1 = {1}, int64[1] i2 = {2}, int64[1] i40 = {40},
     int64[1] i39 = {39}, int64[1] far = {9223372036854775807}, float[79, 4] table = {%s},
     float[79, 1] thin = {%s}, float[79, 4] other = {%s}>
    { s = Shape (x)  t = Slice (s, i1, i2, i0)  less = Sub (t, i1)  from = Sub (i40, t)
      to = Add (i39, t)  odd = Mod (t, i2)
      %s }"""
# Each is in its place at the end, and made of something else at another length.
CHANGED = {
    "a sum over as many as there are frames": """pe = Slice (thin, from, to, i0)
        pn = Shape <start = 0, end = 1> (pe)  wide = Concat <axis = 0> (pn, t)
        a = Expand (pe, wide)  tr = Transpose <perm = [1, 0]> (pe)
        high = Concat <axis = 0> (t, pn)  b = Expand (tr, high)  p = MatMul (a, b)
        half = Slice (p, less, far, i0)  m = Slice (half, less, far, i1)  y = MatMul (m, x)""",
    "other features of it": """pe = Slice (table, from, to, i0)  start = Add (odd, i0)
        end = Add (start, i2)  two = Slice (pe, start, end, i1)  own = Slice (two, less, far, i0)
        four = Concat <axis = 1> (own, own)  y = Add (x, four)""",
    "another of two tables": """a = Slice (table, from, to, i0)  b = Slice (other, from, to, i0)
        a3 = Unsqueeze (a, i0)  b3 = Unsqueeze (b, i0)  both = Concat <axis = 0> (a3, b3)
        after = Add (odd, i1)  one = Slice (both, odd, after, i0)
        own = Slice (one, less, far, i1)  y = Add (x, own)""",
}


@pytest.mark.parametrize("name", CHANGED)
def test_what_is_made_of_something_else_at_another_length_is_refused(name: str) -> None:
    weights = [_weights(79 * 4), _weights(79), ", ".join(f"{0.01 * i:.2f}" for i in range(316))]
    model = onnx.parser.parse_model(_TABLE % (*weights, CHANGED[name]))
    model.graph.output[0].ClearField("type")
    found = hold(model, 3, "B")
    assert found.kind == "refused", found.what


def test_what_is_made_fewer_and_many_again_is_as_long_as_it_was() -> None:
    """Frames by twos, the last one filled up, and back: rounded up, which no sum of sizes says."""
    model = ir.from_onnx_text("""<ir_version: 8, opset_import: ["" : 17]>
        m (float[B, 20, T] x, float[4, 20, 3] w, float[4, 4, 4] v) => (float[S, B, 4] y)
        <int64 one = {1}, int64 two = {2}, int64[1] i0 = {0}, int64[1] i1 = {1}, int64[1] i2 = {2},
         int64[1] i4 = {4}, int64[1] far = {9223372036854775807}>
        { c = Conv <strides = [2]> (x, w)  d = Conv (c, v)  h = Transpose <perm = [2, 0, 1]> (d)
          s = Shape (h)  b = Slice (s, i1, i2, i0)  tv = Slice (s, i0, i1, i0)  t = Squeeze (tv)
          more = Add (t, one)  half = Div (more, two)  full = Mul (half, two)  less = Sub (full, t)
          lv = Unsqueeze (less, i0)  start = Sub (tv, i1)  frame = Slice (h, start, far, i0)
          shape = Concat <axis = 0> (lv, b, i4)  extra = Expand (frame, shape)
          long = Concat <axis = 0> (h, extra)  hv = Unsqueeze (half, i0)
          pairs = Concat <axis = 0> (hv, i2, b, i4)  p = Reshape (long, pairs)
          m = ReduceMean <axes = [1]> (p)  mv = Shape <start = 0, end = 1> (m)
          twice = Concat <axis = 0> (mv, i2, b, i4)  again = Expand (m, twice)
          fv = Mul (mv, i2)  whole = Concat <axis = 0> (fv, b, i4)
          up = Reshape (again, whole)  own = Slice (up, i0, tv, i0)  y = Add (h, own) }""")
    shapes = infer(model, usual=True)
    h = next(x for node in model.graph for x in node.outputs if x.name == "h")
    ours = [size_expr(str(shapes.dims(x)[0])) for x in (h, *model.graph.outputs)]  # type: ignore[index]
    assert same_size(*ours)
