"""Frames in windows, with queries for each; and recurrences over what is no time."""

from __future__ import annotations

import zlib

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graphfix
from graphfix.errors import PaddingError
from tests.lengths.padding import hold, session


def _weights(count: int) -> str:
    return ", ".join(f"{np.sin(5.0 * i):.3f}" for i in range(count))


_HEAD = f"""<ir_version: 8, opset_import: ["" : 17]>
    m (float[B, T, 4] x) => (float[] y)
    <int64[1] i0 = {{0}}, int64[1] i1 = {{1}}, int64[1] i2 = {{2}}, int64[1] i3 = {{3}},
     int64[1] i4 = {{4}}, int64[1] back = {{-2}}, int64[1] last = {{-1}}, int64 one = {{1}},
     int64[1] far = {{9223372036854775807}}, int64[4] fours = {{0, 0, -1, 4}},
     int64[3] flat = {{0, 0, -1}}, int64[3] alone = {{-1, 4, 4}}, int64[4] eights = {{0, 0, -1, 8}},
     int64[3] queried = {{1, 2, 4}}, float[1, 2, 4] query = {{{_weights(8)}}}, float[4, 4] wk =
     {{{_weights(16)}}}, float[1, 12, 4] w = {{{_weights(48)}}}, float[1, 12, 4] r =
     {{{_weights(48)}}}, float[2, 6, 4] w2 = {{{_weights(48)}}}, float[2, 6, 2] r2 =
     {{{_weights(24)}}}, float low = {{-10000.0}}, float full = {{1.0}}>
    {{ %s }}"""
# Windows of four frames, the last one filled up with zeros, and two queries for each.
_QUERIES = """s = Shape (x)  b = Slice (s, i0, i1, i0)  t = Slice (s, i1, i2, i0)  up = Add (t, i3)
    n = Div (up, i4)  whole = Mul (n, i4)  less = Sub (whole, t)
    {fill}
    hs = Concat <axis = 0> (many, i4, i4)  h = Reshape (p, hs)
    qs = Concat <axis = 0> (many, i2, i4)  q = {query}
    k = MatMul (h, wk)  kt = Transpose <perm = [0, 2, 1]> (k)  sc = MatMul (q, kt)
    {hide}
    a = Softmax <axis = -1> (own)  v = MatMul (a, h)  nq = Mul (n, i2)
    ys = Concat <axis = 0> (b, nq, i4)  y = Reshape (v, ys)"""
_ZEROS = """amounts = Concat <axis = 0> (i0, i0, i0, i0, less, i0)
    p = Pad (x, amounts)  many = Mul (b, n)"""
_CUT = "p = Slice (x, i0, whole, i1)  many = Mul (b, n)"
_EXPANDED = "Expand (query, qs)"
_SHOWN = "own = Identity (sc)"
# What is filled up is hidden from the queries: ones for the frames, padded as they are.
_HIDDEN = """os = Concat <axis = 0> (b, t)  ones = ConstantOfShape <value = float[1] {1.0}> (os)
    short = Concat <axis = 0> (i0, i0, i0, less)  kept = Pad (ones, short)
    ks = Concat <axis = 0> (many, i1, i4)  k3 = Reshape (kept, ks)  gone = Sub (full, k3)
    add = Mul (gone, low)  own = Add (sc, add)"""


def queries(fill: str = _ZEROS, query: str = _EXPANDED, hide: str = _SHOWN) -> str:
    return _QUERIES.format(fill=fill, query=query, hide=hide)


GRAPHS = {
    "queries": queries(),
    "queries of what is hidden": queries(hide=_HIDDEN),
    "queries of whole windows": queries(fill=_CUT).replace("Add (t, i3)", "Identity (t)"),
}


def model(body: str, more: str = "") -> onnx.ModelProto:
    text = _HEAD % body
    made = onnx.parser.parse_model(text.replace("4] x)", f"4] x, {more})", 1) if more else text)
    made.graph.output[0].ClearField("type")
    return made


@pytest.mark.parametrize("body", GRAPHS.values(), ids=GRAPHS)
def test_padding_stays_out(body: str) -> None:
    before = model(body)
    after = ir.from_proto(before)
    graphfix.run(after, "ilens-mask")
    alone, padded = session(before), session(ir.to_proto(after))
    names = {x.name for x in padded.get_inputs()}  # what only drops frames needs no lengths
    rng = np.random.default_rng(2)
    least = 4 if _CUT in body else 3  # which has no whole window
    for lengths in ([5], [4, 9], [7, least, 10]):
        clips = [rng.standard_normal((1, n, 4)).astype(np.float32) for n in lengths]
        wanted = [alone.run(None, {"x": clip})[0] for clip in clips]
        for more in (0, 1, 2, 3, 4, 13):
            x = np.full((len(lengths), max(lengths) + more, 4), np.nan, np.float32)
            for row, clip in enumerate(clips):
                x[row, : clip.shape[1]] = clip[0]
            feeds = {"x": x, "ilens": np.array(lengths)}
            y = padded.run(None, {k: v for k, v in feeds.items() if k in names})[0]
            for row, own in enumerate(wanted):
                np.testing.assert_allclose(y[row, : own.shape[1]], own[0], rtol=1e-4, atol=1e-5)


REFUSED = {
    "windows filled up by a one": (
        queries(fill=_ZEROS.replace("Pad (x, amounts)", "Pad (x, amounts, full)")),
        "",
    ),
    "windows of all frames of the batch": (
        queries(
            fill="""bt = Mul (b, t)  rows = Concat <axis = 0> (bt, i4)  one_row = Reshape (x, rows)
            u = Add (bt, i3)  many = Div (u, i4)  all = Mul (many, i4)  rest = Sub (all, bt)
            am = Concat <axis = 0> (i0, i0, rest, i0)  p = Pad (one_row, am)"""
        ).replace("ys = Concat <axis = 0> (b, nq, i4)", "ys = Concat <axis = 0> (last, i2, i4)"),
        "",
    ),
    "windows before rows": (
        queries().replace(
            "h = Reshape (p, hs)",
            """h4s = Concat <axis = 0> (b, n, i4, i4)  h4 = Reshape (p, h4s)
            ht = Transpose <perm = [1, 0, 2, 3]> (h4)  h = Reshape (ht, hs)""",
        ),
        "",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_mixes_is_refused(name: str) -> None:
    body, told = REFUSED[name]
    found = hold(model(body), zlib.crc32(body.encode()), "B")
    assert found.kind == "refused", found.what
    assert told in found.what


ANOTHER = {
    "others beside the rows": (
        "float[K, 1, 4] z",
        """u = Unsqueeze (x, i1)  v = Add (u, z)  s = Shape (v)  b = Slice (s, i0, i1, i0)
        k = Slice (s, i1, i2, i0)  t = Slice (s, i2, i3, i0)  bk = Mul (b, k)
        fs = Concat <axis = 0> (bk, t, i4)  f = Reshape (v, fs)
        g = Transpose <perm = [1, 0, 2]> (f)  y = GRU <hidden_size = 4> (g, w, r)""",
        "beside the batch",
    ),
}


@pytest.mark.parametrize("name", ANOTHER)
def test_what_comes_from_another_input_is_refused(name: str) -> None:
    more, body, told = ANOTHER[name]
    made = model(body, more)
    with pytest.raises(PaddingError, match=told):
        graphfix.run(ir.from_proto(made), "ilens-mask:axis=x.1")


def test_a_recurrence_with_frames_in_its_batch_is_refused() -> None:
    """Each frame for itself, as the windows of dual-path models are."""
    body = """u = Unsqueeze (x, i0)  s = Concat <axis = 0> (i1, last, i4)
        f = Reshape (u, s)  y = GRU <hidden_size = 4> (f, w, r)"""
    found = hold(model(body), 3, "B")
    assert found.kind == "refused", found.what
    assert "GRU" in found.what


def test_an_lstm_along_frames_with_frames_in_its_batch_is_refused() -> None:
    """Every pair of frames: two times at once."""
    body = """t = Shape <start = 1, end = 2> (x)  xt = Transpose <perm = [1, 0, 2]> (x)
        u = Unsqueeze (xt, i0)  v = Unsqueeze (xt, i1)  pairs = Add (u, v)
        s = Concat <axis = 0> (t, last, i4)  f = Reshape (pairs, s)
        g = GRU <hidden_size = 4> (f, w, r)  y = ReduceMean <axes = [1]> (g)"""
    found = hold(model(body), 3, "B")
    assert found.kind == "refused", found.what
