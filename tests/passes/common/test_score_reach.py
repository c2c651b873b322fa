"""Which Softmaxes masked scores reach, and along which of their axes."""

from __future__ import annotations

import pytest

from graphfix.facts.view import View
from graphfix.passes.common.score_reach import Reach, may_reach_softmax, reach_of
from tests.passes.models import model


def reach_from(body: str, opset: int = 18) -> Reach:
    text = f"""m (float[B, T, K] x, int64[B, T, K] at, int64[T] rows, float two,
            bool[B, T, K] c)
            => (float[A, C, D] y)
        <int64[1] axis = {{1}}, int64[1] flat = {{-1}}, int64 zero = {{0}}, float half = {{0.5}},
        float minus = {{-0.5}}, float none = {{0}}, float low = {{-1000}}>
        {{ masked = Identity (x) {body} }}"""
    m = model(text, opset, ', "com.microsoft" : 1')
    view, start = View(m), m.graph[0].outputs[0]
    reach = reach_of(start, view, to_bool=False)
    assert may_reach_softmax(start, view) or not reach.softmaxes
    return reach


@pytest.mark.parametrize(
    ("body", "axis"),
    [
        ("y = Softmax (masked)", -1),
        ("y = Softmax <axis = 1> (masked)", -2),
        ("t = Transpose <perm = [0, 2, 1]> (masked) y = Softmax (t)", -2),
        # Without the attribute the axes are reversed.
        ("t = Transpose (masked) y = Softmax (t)", -3),
        ("t = Unsqueeze (masked, axis) y = Softmax <axis = 2> (t)", -2),
        ("t = Unsqueeze (masked, axis) y = Softmax <axis = 1> (t)", 0),
        ("t = GatherElements <axis = 2> (masked, at) y = Softmax (t)", -1),
        ("t = GatherElements <axis = -1> (masked, at) y = Softmax (t)", -1),
        # Along another axis, each element may be of another row.
        ("t = GatherElements <axis = 1> (masked, at) y = Softmax (t)", None),
        ("t = Gather <axis = 1> (masked, rows) y = Softmax (t)", -1),
        ("t = Gather <axis = 2> (masked, rows) y = Softmax (t)", None),
        ("t = Slice (masked, axis, rows) y = Softmax (t)", -1),
        ("t = Flatten <axis = 2> (masked) y = Softmax (t)", -1),
        ("t = Flatten <axis = 1> (masked) y = Softmax (t)", None),
        ("t = Flatten <axis = 2> (masked) y = Softmax <axis = 0> (t)", None),
        ("t = Reshape (masked, flat) y = Softmax (t)", None),
    ],
)
def test_the_axis_is_that_of_the_masked_tensor(body: str, axis: int | None) -> None:
    reach = reach_from(body)
    assert [x for _, x in reach.softmaxes] == [axis]
    assert reach.blocked is None


@pytest.mark.parametrize(
    ("attribute", "axis"),
    [("", None), ("<axis = 1>", None), ("<axis = 2>", -1), ("<axis = -1>", -1)],
)
def test_a_softmax_before_opset_13_takes_all_axes_behind_as_one(
    attribute: str, axis: int | None
) -> None:
    reach = reach_from(f"y = Softmax {attribute} (masked)", opset=11)
    assert [x for _, x in reach.softmaxes] == [axis]


@pytest.mark.parametrize(
    ("body", "scale", "blocked"),
    [
        ("t = Mul (masked, half) y = Softmax (t)", 0.5, None),
        ("t = Div (masked, half) y = Softmax (t)", 1.0, None),
        ("t = Mul (masked, two) y = Softmax (t)", 1.0, "its sign is not known"),
        ("t = Neg (masked) y = Softmax (t)", 1.0, "it also goes to Neg"),
        ("t = Div (half, masked) y = Softmax (t)", 1.0, "it also goes to Div"),
        ("t = Where (c, masked, low) y = Softmax (t)", 1.0, None),
        ("t = Where (c, low, masked) y = Softmax (t)", 1.0, None),
        ("t = Where (c, half, masked) y = Softmax (t)", 1.0, "which chooses between"),
        ("t = Where (c, x, masked) y = Softmax (t)", 1.0, "which chooses between"),
        ("t = Mul (masked, minus) y = Softmax (t)", 1.0, "by -0.5, which is not positive"),
        ("t = Mul (masked, none) y = Softmax (t)", 1.0, "by 0, which is not positive"),
        ("t = Div (masked, minus) y = Softmax (t)", 1.0, "which is not positive"),
        ("t = Sub (masked, x) y = Softmax (t)", 1.0, None),
        ("t = Sub (x, masked) y = Softmax (t)", 1.0, "it also goes to Sub"),
        ("t = Mul (masked, half) y = Softmax (t) u = Mul (t, half) z = Softmax (u)", 0.25, None),
        ("t = Cast <to = 10> (masked) y = Softmax (t)", 1.0, None),
        ("t = Cast <to = 7> (masked) y = Softmax (masked)", 1.0, "makes a number of it"),
        ("t = Cast <to = 9> (masked) y = Softmax (masked)", 1.0, "makes a number of it"),
        ("t = com.microsoft.Gelu (masked) y = Softmax (masked)", 1.0, "which is opaque"),
        ("n = EyeLike (masked) y = Softmax (masked)", 1.0, None),
        ("q, s, z = DynamicQuantizeLinear (masked) t = DequantizeLinear (q, s, z) y = Softmax (t)",
         1.0, "quantised"),
    ],
)  # fmt: skip
def test_what_happens_to_a_low_score_on_the_way(
    body: str, scale: float, blocked: str | None
) -> None:
    reach = reach_from(body)
    assert reach.softmaxes
    assert reach.scale == scale
    assert reach.blocked is None if blocked is None else blocked in (reach.blocked or "")


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin", "LogSoftmax", "Hardmax"])
def test_what_ranks_is_a_near_miss(op: str) -> None:
    reach = reach_from(f"y = {op} <axis = 1> (masked)")
    assert (reach.softmaxes, reach.near_miss) == ([], op)


@pytest.mark.parametrize(
    ("attribute", "opset", "axis"),
    [
        ("", 13, -1),
        ("<axis = -2>", 13, -2),
        ("<axis = 1>", 13, None),  # counted from the front
        ("<axis = -1>", 11, -1),
        ("<axis = -2>", 12, None),
        ("", 12, None),
    ],
)
def test_a_softmax_of_an_unknown_rank(attribute: str, opset: int, axis: int | None) -> None:
    m = model(f"m (float x) => (float y) {{ y = Softmax {attribute} (x) }}", opset)
    m.graph.inputs[0].shape = m.graph.outputs[0].shape = None
    view = View(m)
    reach = reach_of(m.graph.inputs[0], view, to_bool=False)
    assert [x for _, x in reach.softmaxes] == [axis]


def test_a_cast_to_bool_is_harmless_where_nothing_is_hidden() -> None:
    m = model("""m (float[T] x) => (float[T] y, bool[T] z) { y = Softmax (x) c = Cast <to = 9> (x)
        z = Not (c) }""")
    assert reach_of(m.graph.inputs[0], View(m), to_bool=True).blocked is None
    assert reach_of(m.graph.inputs[0], View(m), to_bool=False).blocked


def test_an_output_shows_the_fill() -> None:
    m = model("m (float[T] x) => (float[T] y, float[T] z) { z = Identity (x) y = Softmax (z) }")
    reach = reach_of(m.graph.inputs[0], View(m), to_bool=False)
    assert "'z' is also an output" in (reach.blocked or "")
    reach.block_change("another")
    assert "'z' is also an output" in (reach.blocked or "")


def test_what_may_reach_a_softmax() -> None:
    m = model("""m (float[4, 4] x, float[4] bias) => (float[4, 4] y)
        { a = Add (x, bias) p = MatMul (a, x) y = Softmax (p) }""")
    view = View(m)
    assert not may_reach_softmax(m.graph.inputs[1], view)
    assert may_reach_softmax(m.graph[1].outputs[0], view)
