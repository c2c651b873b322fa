"""order-weights: which stacked features are joined, that the numbers stay, and what stays."""

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from tests.passes.models import execute, model, ops

HEAD = """(float[B, T, 3] x, float[6, 2] late) => (float[B, T, 2] y)
    <float[6, 2] w = {1, 2, 3, -4, 5, 6, 7, -8, 9, 1, 2, 3}, int64[1] last = {-1},
     int64[1] first = {0}, int64[1] before = {2}, int64[3] size = {0, 0, 6}>"""
STACK = """s = Sin (x) c = Cos (x) s4 = Unsqueeze (s, last) c4 = Unsqueeze (c, last)
    p = Concat <axis = -1> (s4, c4) f = Reshape (p, size) y = MatMul (f, w)"""


def stacked(body: str = STACK, head: str = HEAD) -> ir.Model:
    return model(f"m {head} {{ {body} }}", 17)


@pytest.mark.parametrize("axis", ["-1", "3"])
def test_features_are_put_side_by_side(axis: str) -> None:
    body = STACK.replace("axis = -1", f"axis = {axis}")
    before, after = stacked(body), stacked(body)
    assert graphfix.run(after, "order-weights").changed
    assert ops(after) == ["Sin", "Cos", "Reshape", "Transpose", "Reshape", "Concat", "MatMul"]
    assert not graphfix.run(after, "order-weights").changed
    for batch, time in ((2, 5), (1, 1), (0, 3)):
        x = np.random.default_rng(0).standard_normal((batch, time, 3), np.float32)
        feeds = {"x": x, "late": np.zeros((6, 2), np.float32)}
        (a,), (b,) = (execute(m, feeds) for m in (before, after))
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_three_parts() -> None:
    head = HEAD.replace("float[B, T, 3] x", "float[B, T, 2] x")
    body = STACK.replace("s4 =", "a = Abs (x) a4 = Unsqueeze (a, last) s4 =")
    body = body.replace("(s4, c4)", "(s4, a4, c4)")
    before, after = stacked(body, head), stacked(body, head)
    assert graphfix.run(after, "order-weights").changed
    x = np.random.default_rng(0).standard_normal((2, 4, 2), np.float32)
    feeds = {"x": x, "late": np.zeros((6, 2), np.float32)}
    (a,), (b,) = (execute(m, feeds) for m in (before, after))
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_numbers_are_no_rows() -> None:
    """Two numbers side by side have no features to put beside each other."""
    head = """(float x) => (float[1, 2] y) <float[2, 2] w = {1, 2, 3, 4}, int64[1] last = {0},
        int64[2] size = {1, 2}>"""
    assert not graphfix.run(stacked(STACK, head), "order-weights").changed


@pytest.mark.parametrize(
    ("body", "head"),
    [
        (STACK.replace("(f, w)", "(f, late)"), HEAD),
        (STACK + " z = Neg (f)", HEAD.replace("y)", "y, float[B, T, 6] z)", 1)),
        (STACK + " z = MatMul (f, w)", HEAD.replace("2] y)", "2] y, float[B, T, 2] z)", 1)),
        (STACK + " z = Neg (w)", HEAD.replace("2] y)", "2] y, float[6, 2] z)", 1)),
        (STACK.replace("y = MatMul (f, w)", "t = Relu (f) y = MatMul (t, w)"), HEAD),
        # One part behind the other already, and dims that are merged in another way.
        (STACK.replace(", last)", ", before)").replace("axis = -1", "axis = 2"), HEAD),
        (STACK.replace("(p, size)", "(p, other)"),
         HEAD.replace("float[B, T, 2] y", "float[T, B, 2] y").replace("size = {0, 0, 6}>",
         "size = {0, 0, 6}, int64[3] other = {-1, 4, 6}>")),
        # An axis in front besides, which the product would not have.
        (STACK.replace(", last)", ", ends)").replace("axis = -1", "axis = 4"),
         HEAD.replace("float[B, T, 2] y", "float[1, B, T, 2] y").replace("size = {0, 0, 6}>",
         "size = {0}, int64[2] ends = {0, -1}>").replace("int64[3] size = {0}",
         "int64[4] size = {0, 0, 0, 6}")),
        # Of as many rows as parts, stacked before the rows: the shape is that of a stack behind.
        (STACK.replace(", last)", ", first)").replace("axis = -1", "axis = 0"),
         """(float[2, 2] x) => (float[2, 2] y) <float[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8},
         int64[1] first = {0}, int64[2] size = {2, 4}>"""),
    ],
)  # fmt: skip
def test_what_stays(body: str, head: str) -> None:
    assert not graphfix.run(stacked(body, head), "order-weights").changed
