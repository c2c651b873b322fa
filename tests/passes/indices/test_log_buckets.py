"""log-buckets: what a distance comes to, from a table of all; and what is left alone."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

import graphfix
from tests.passes.models import ops

TABLE = "{" + ", ".join(map(str, range(64))) + "}"
# Buckets of T5: near distances have one each, far ones share one by their logarithm.
CURVE = """n = Abs (d) small = Less (n, eight) c = Cast <to = 1> (n) s = Div (c, eights) l = Log (s)
    p = Div (l, far) t = Mul (p, eights) w = Cast <to = 7> (t) a = Add (w, eight)
    b = LIMITED h = Where (small, n, b)"""
BOTH_WAYS = f"""ahead = Greater (d, none) i = Cast <to = 7> (ahead) o = Mul (i, sixteen)
    {CURVE.replace("LIMITED", "Min (a, last)")} bucket = Add (o, h)"""
BACK = BOTH_WAYS.replace("n = Abs (d)", "m = Min (d, none) n = Neg (m)").replace(
    "bucket = Add (o, h)", "bucket = Identity (h)"
)


def model(
    body: str, out: str = "float[2, S, T] y", table: str = "table", more: str = ""
) -> ir.Model:
    return ir.from_onnx_text(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        bias (int64[S, T] d, float[32, 2] given) => ({out})
        <float[32, 2] table = {TABLE}, int64 eight = {{8}}, float eights = {{8.0}},
         float far = {{2.7725887298583984}}, int64 last = {{15}}, int64 none = {{0}},
         int64 sixteen = {{16}}, int64 beyond = {{1000000}}>
        {{ {body} row = Gather ({table}, bucket) {more}
         y = Transpose <perm = [2, 0, 1]> (row) }}"""
    )


def computed(m: ir.Model, distances: np.ndarray) -> np.ndarray:
    session = ort.InferenceSession(ir.to_proto(m).SerializeToString())
    given = {"d": distances, "given": np.zeros((32, 2), np.float32)}
    names = {x.name for x in session.get_inputs()}
    result: np.ndarray = session.run(["y"], {k: v for k, v in given.items() if k in names})[0]
    return result


NEAR = np.arange(-300, 301).reshape(1, -1)
FAR = np.array([[-(2**40), -131_073, -1025, 1025, 100_000, 2**40]])


@pytest.mark.parametrize("body", [BOTH_WAYS, BACK], ids=["both ways", "back"])
def test_each_distance_has_the_bias_that_it_had(body: str) -> None:
    before, after = model(body), model(body)
    graphfix.run(after, "log-buckets")
    assert "Log" not in ops(after)
    assert ops(after)[-1] == "Gather"  # with the features first
    for distances in (NEAR, FAR):
        np.testing.assert_array_equal(computed(after, distances), computed(before, distances))
    assert not graphfix.run(after, "log-buckets").changed


def test_a_limit_may_be_as_large_as_what_it_limits() -> None:
    full = "z = Shape (a) f = ConstantOfShape <value = int64[1] {15}> (z) b = Min (a, f)"
    body = BOTH_WAYS.replace("b = Min (a, last)", full)
    before, after = model(body), model(body)
    graphfix.run(after, "log-buckets")
    assert "Log" not in ops(after)
    np.testing.assert_array_equal(computed(after, NEAR), computed(before, NEAR))


def test_a_row_that_is_not_turned_stays_as_it_lies() -> None:
    out, more = "float[2, S, T] y, float[S, T, 2] z", "z = Relu (row)"
    before, after = model(BOTH_WAYS, out, more=more), model(BOTH_WAYS, out, more=more)
    graphfix.run(after, "log-buckets")
    assert "Transpose" in ops(after)
    np.testing.assert_array_equal(computed(after, NEAR), computed(before, NEAR))


def test_a_bucket_that_is_clipped_comes_from_a_table_as_well() -> None:
    """DeBERTa gathers scores by it, and has it with two axes in front."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
        bias (int64[S, T] d) => (int64[1, 1, S, T] y)
        <float eights = {8.0}, float sevens = {7.0}, float far = {3.4618220}, int64 eight = {8},
         int64 none = {0}, int64 last = {31}, int64 half = {16}, int64[2] front = {0, 1}>
        { sign = Sign (d) n = Abs (d) small = LessOrEqual (n, eight) c = Cast <to = 1> (n)
          s = Div (c, eights) l = Log (s) p = Div (l, far) t = Mul (p, sevens) w = Ceil (t)
          a = Add (w, eights) g = Cast <to = 1> (sign) o = Mul (a, g) e = Cast <to = 1> (d)
          h = Where (small, e, o) b = Cast <to = 7> (h) u = Unsqueeze (b, front)
          m = Add (u, half) y = Clip (m, none, last) }"""
    before, after = ir.from_onnx_text(text), ir.from_onnx_text(text)
    graphfix.run(after, "log-buckets")
    assert ops(after) == ["Max", "Min", "Add", "Unsqueeze", "Gather"]
    for distances in (NEAR, FAR):
        np.testing.assert_array_equal(computed(after, distances), computed(before, distances))
    assert not graphfix.run(after, "log-buckets").changed


LEFT = {
    "nothing limits it": BOTH_WAYS.replace("b = Min (a, last)", "b = Min (a, a)"),
    "it is a function of two tensors": BOTH_WAYS.replace("Add (o, h)", "Add (h, d)"),
    "it is turned on the way": BOTH_WAYS.replace(
        "bucket = Add (o, h)", "z = Add (o, h) bucket = Transpose <perm = [1, 0]> (z)"
    ),
    "it changes so far out that not all before it is tried": BOTH_WAYS.replace(
        "bucket = Add (o, h)",
        "f = Greater (d, beyond) j = Cast <to = 7> (f) z = Mul (h, none) bucket = Add (z, j)",
    ),
    "there is no Log in it": "m = Max (d, none) bucket = Min (m, last)",
}


@pytest.mark.parametrize("case", LEFT)
def test_what_is_left_alone(case: str) -> None:
    assert not graphfix.run(model(LEFT[case]), "log-buckets").changed


def test_a_table_that_is_given_is_left_alone() -> None:
    assert not graphfix.run(model(BOTH_WAYS, table="given"), "log-buckets").changed
