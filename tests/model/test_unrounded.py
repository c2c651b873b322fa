"""Sizes that come of floats: what they are is not known, that two are the same is."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from graphfix import pipeline
from graphfix.model.shapes import shapes_of

HEAD = "s = Shape (x)  b = Slice (s, i0, i1)  t = Slice (s, i1, i2)  ts = Squeeze (t)"
CEIL = "f = Cast <to = 1> (ts)  q = Div (f, four)  c = Ceil (q)  n = Cast <to = 7> (c)"
AGAIN = "f2 = Cast <to = 1> (t)  q2 = Div (f2, four)  c2 = Ceil (q2)  n2 = Cast <to = 7> (c2)"
SAME = "f2 = Cast <to = 1> (ts)  q2 = Div (f2, four)  c2 = Ceil (q2)  n2 = Cast <to = 7> (c2)"
OTHER = "f2 = Cast <to = 1> (ts)  q2 = Div (f2, four)  c2 = Floor (q2)  n2 = Cast <to = 7> (c2)"
PAD = """m = Mul (n, s4)  p = Sub (m, ts)  pu = Unsqueeze (p, i0)
    pads = Concat <axis = 0> (z3, i0, pu, i0)  xp = Pad (x, pads)"""
CONV = """xt = Transpose <perm = [0, 2, 1]> (xp)  cv = Conv <strides = [4]> (xt, w)
    ct = Transpose <perm = [0, 2, 1]> (cv)"""
BY_SHAPE = """sc = Shape (ct)  bn = Slice (sc, i0, i2)
    tg = Concat <axis = 0> (bn, i2, i2)  y = Reshape (ct, tg)"""


def by(number: str) -> str:
    return f"""nu = Reshape ({number}, i1)  tg = Concat <axis = 0> (b, nu, i2, i2)
        y = Reshape (ct, tg)"""


KNOWN = {
    "the size itself": f"{HEAD} {CEIL} {PAD} {CONV} {BY_SHAPE}",
    "what it was made of": f"{HEAD} {CEIL} {PAD} {CONV} {by('n')}",
    "computed again": f"{HEAD} {CEIL} {PAD} {CONV} {SAME} {by('n2')}",
    "pads that are data": f"""{HEAD} e = ReduceMax <axes = [0, 1, 2], keepdims = 0> (x)
        r = Round (e)  n = Cast <to = 7> (r)  pu = Reshape (n, i1)
        pads = Concat <axis = 0> (z3, i0, pu, i0)  ct = Pad (x, pads)  both = Add (t, pu)
        {by("both")}""",
}
UNKNOWN = {
    "rounded otherwise": f"{HEAD} {CEIL} {PAD} {CONV} {OTHER} {by('n2')}",
    "cut by it": f"{HEAD} {CEIL} nv = Reshape (n, i1)  ct = Slice (x, i0, nv, i1) {by('n')}",
}


def model(body: str) -> ir.Model:
    weights = ", ".join(str((i * 5 % 7 - 3) / 4) for i in range(64))
    proto = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        m (float[B, T, 4] x) => (float[B2, N2, 2, 2] y)
        <int64[1] i0 = {{0}}, int64[1] i1 = {{1}}, int64[1] i2 = {{2}}, float four = {{4.0}},
         int64 s4 = {{4}}, int64[3] z3 = {{0, 0, 0}}, float[4, 4, 4] w = {{{weights}}}>
        {{ {body} }}"""
    )
    return ir.from_proto(proto)


def run(m: ir.Model, x: np.ndarray) -> np.ndarray:
    data = ir.to_proto(m).SerializeToString()
    return ort.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


@pytest.mark.parametrize("body", KNOWN.values(), ids=KNOWN)
def test_a_reshape_by_a_size_of_floats_becomes_a_constant(body: str) -> None:
    before, after = model(body), model(body)
    report = pipeline.run(after, "unflatten-heads")
    assert len(report.passes[0].changes) == 1, report.passes[0].skips
    rng = np.random.default_rng(0)
    for rows, length in ((1, 4), (2, 7), (3, 21), (0, 9), (2, 1)):
        x = rng.uniform(0, 2, (rows, length, 4)).astype(np.float32)
        if rows == 0 and "ReduceMax" in body:
            continue
        np.testing.assert_array_equal(run(after, x), run(before, x))


@pytest.mark.parametrize("body", UNKNOWN.values(), ids=UNKNOWN)
def test_two_that_may_differ_are_two(body: str) -> None:
    report = pipeline.run(model(body), "unflatten-heads")
    assert not report.passes[0].changes
    assert report.passes[0].skips


def test_an_axis_of_one_and_a_size_of_several_are_not_mixed_up() -> None:
    m = model(f"{HEAD} {CEIL} {AGAIN} {PAD} {CONV} {by('n2')}")
    shapes = shapes_of(m)
    made = {x.name: x for node in m.graph for x in node.outputs}
    assert shapes.data(made["n"]) is not None
    assert shapes.rank(made["n"]) == 0
    assert shapes.rank(made["n2"]) == 1


def test_a_number_that_is_a_size_somewhere_is_a_size_everywhere() -> None:
    m = model(f"""{HEAD} {CEIL} {PAD} {CONV} zero = Constant <value = int64 {{0}}> ()
        one = Constant <value = int64 {{1}}> ()  r = Range (zero, n, one)
        g = Gather <axis = 1> (ct, r)
        nu = Reshape (n, i1)  tg = Concat <axis = 0> (b, nu, i2, i2)  y = Reshape (g, tg)""")
    assert len(pipeline.run(m, "unflatten-heads").passes[0].changes) == 1


def test_what_is_added_to_a_size_is_none() -> None:
    """Pads may be below 0, where a Range up to them is empty."""
    m = model(f"""{HEAD} e = ReduceMax <axes = [0, 1, 2], keepdims = 0> (x)
        n = Cast <to = 7> (e)  pu = Reshape (n, i1)
        pads = Concat <axis = 0> (z3, i0, pu, i0)  xp = Pad (x, pads)  all = Shape (xp)
        zero = Constant <value = int64 {{0}}> ()  one = Constant <value = int64 {{1}}> ()
        r = Range (zero, n, one)  y = Reshape (xp, all)""")
    shapes = shapes_of(m)
    made = {x.name: x for node in m.graph for x in node.outputs}
    number = shapes.data(made["n"])
    assert number is not None
    assert shapes.dims(made["r"]) != number
