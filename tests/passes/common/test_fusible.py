"""Readers, weights and constants around a group of nodes."""

import pytest

from graphfix.facts.view import View
from graphfix.passes.common.fusible import (
    is_by_feature,
    is_own_constant,
    is_plain_gemm,
    is_weight,
    lies_along,
    only_user,
    only_varying_input,
    readers_in_graph,
    swaps_last_axes,
    why_used_elsewhere,
)
from tests.passes.models import model

READERS = {
    "one": ("y = Relu (a)", "Relu"),
    "two": ("b = Relu (a) y = Add (a, b)", None),
    "the same twice": ("y = Add (a, a)", "Add"),
    "a body": (
        "y = If (c) <then_branch = g () => (t) { t = Relu (a) }, else_branch = h () => (e) "
        "{ e = Identity (x) }>",
        None,
    ),
}


@pytest.mark.parametrize("case", READERS)
def test_only_user(case: str) -> None:
    steps, expected = READERS[case]
    m = model(f"m (float[4] x, bool c) => (float[4] y) {{ a = Neg (x) {steps} }}")
    user = only_user(m.graph[0])
    assert (None if user is None else user.op_type) == expected


def test_a_value_that_is_an_output_has_no_only_user() -> None:
    m = model("m (float[4] x) => (float[4] a, float[4] y) { a = Neg (x) y = Relu (a) }")
    neg, relu = m.graph
    assert only_user(neg) is None
    assert why_used_elsewhere([neg], relu) == "'a', a part of it, is an output"


def test_why_used_elsewhere() -> None:
    m = model("""m (float[4] x) => (float[4] y, float[4] z) {
        a = Neg (x) b = Relu (a) y = Add (a, b) z = Abs (a) }""")
    neg, relu, add, absolute = m.graph
    assert why_used_elsewhere([relu], add) is None
    reason = why_used_elsewhere([neg, relu], add)
    assert reason is not None
    assert "goes into" in reason
    assert why_used_elsewhere([neg, relu], add, [absolute]) is None


WEIGHTS = """m (float[2, 3] x) => (float[2, N] y) <float[3, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2,
    3}, int64[2] flat = {-1, 4}> {"""


@pytest.mark.parametrize(
    ("steps", "dims", "expected"),
    [
        ("y = MatMul (x, w)", (3, 4), True),
        ("y = MatMul (x, w)", (None, 4), True),
        ("y = MatMul (x, w)", (4, 3), False),
        ("y = MatMul (x, w)", (4,), False),
        ("a = MatMul (x, w) b = MatMul (x, w) y = Add (a, b)", (3, 4), False),
        ("a = Neg (w) b = MatMul (x, w) y = Add (a, b)", (3, 4), True),  # a is a constant
        ("y = MatMul (x, w)", (None, 3), False),
        ("y = MatMul (x, w)", (3, 4, 1), False),
        ("r = Reshape (w, flat) z = MatMul (x, r) a = MatMul (x, w) y = Add (a, z)", (3, 4), True),
    ],
)
def test_weight(steps: str, dims: tuple[int | None, ...], *, expected: bool) -> None:
    m = model(f"{WEIGHTS} {steps} }}")
    assert is_weight(m.graph.initializers["w"], dims, View(m)) == expected
    assert not is_weight(m.graph.inputs[0], (2, 3), View(m))
    assert not is_weight(None, dims, View(m))


def test_own_constant() -> None:
    m = model("""m (float[4] x) => (float[4] y) <float[4] w = {1, 2, 3, 4}, float[4] v = {1, 2, 3,
        4}> { a = Add (x, w) b = Add (a, v) y = Mul (b, v) }""")
    view = View(m)
    assert is_own_constant(None, view)
    assert is_own_constant(m.graph.initializers["w"], view)
    assert not is_own_constant(m.graph.initializers["v"], view)
    assert not is_own_constant(m.graph.inputs[0], view)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("", True),
        ("<transB = 1>", True),
        ("<transA = 0, alpha = 1.0>", True),
        ("<transA = 1>", False),
        ("<alpha = 0.5>", False),
        ("<beta = 2.0>", False),
    ],
)
def test_plain_gemm(attributes: str, *, expected: bool) -> None:
    m = model(
        f"m (float[3, 3] x, float[3] b) => (float[3, 3] y) {{ y = Gemm {attributes} (x, x, b) }}"
    )
    assert is_plain_gemm(m.graph[0]) == expected


def test_a_constant_along_an_axis() -> None:
    m = model("""m (float[B, 3, T] x, float[3, 1] fed) => (float[B, 3, T] y)
        <float[3, 1] along = {1, 2, 3}, float[1, 3, 1] wide = {1, 2, 3}, float[3] last = {1, 2, 3}>
        { a = Add (x, along) b = Add (a, wide) c = Add (b, fed) y = Neg (c) }""")
    view, constants = View(m), m.graph.initializers
    assert lies_along(constants["along"], 3, 1, 3, view)
    assert lies_along(constants["wide"], 3, 1, 3, view)
    assert not lies_along(constants["last"], 3, 1, 3, view)
    assert lies_along(constants["last"], 3, 0, 3, view)
    assert not lies_along(constants["wide"], 3, 1, 2, view)
    assert not lies_along(m.graph.inputs[1], 3, 1, 3, view)


@pytest.mark.parametrize(
    ("steps", "index"),
    [
        ("y = Add (x, w)", 0),
        ("y = Add (w, x)", 1),
        ("y = Add (x, x)", None),
        ("y = Add (w, w)", None),
        ("y = Clip (x, low)", 0),
    ],
)
def test_the_only_input_that_varies(steps: str, index: int | None) -> None:
    m = model(f"m (float[4] x) => (float[4] y) <float[4] w = {{1, 2, 3, 4}}, float low = {{0}}> "
              f"{{ {steps} }}")  # fmt: skip
    assert only_varying_input(m.graph[0], View(m)) == index


@pytest.mark.parametrize(
    ("perm", "expected"),
    [
        ((1, 0), True),
        ((0, 2, 1), True),
        ((0, 1, 3, 2), True),
        ((0, 1), False),
        ((1, 0, 2), False),
        ((2, 1, 0), False),
        ((0,), False),
        ((), False),
    ],
)
def test_swaps_last_axes(perm: tuple[int, ...], *, expected: bool) -> None:
    assert swaps_last_axes(perm) == expected


def test_readers_come_in_order() -> None:
    m = model("""m (float[4] x, bool c) => (float[4] y, float[4] z) { a = Neg (x) b = Abs (x)
        y = If (c) <then_branch = g () => (t) { t = Relu (x) }, else_branch = h () => (e)
        { e = Identity (a) }> z = Add (x, b) }""")
    x = m.graph.inputs[0]
    assert [n.op_type for n in readers_in_graph(m.graph[0], x)] == ["Neg", "Abs", "Add"]
    assert [n.op_type for n in readers_in_graph(m.graph[0], m.graph[1].outputs[0])] == ["Add"]


@pytest.mark.parametrize(
    ("product", "bias", "expected"),
    [
        ("MatMul (x, w)", "vector", True),
        ("MatMul (x, w)", "row", True),
        ("MatMul (x, w)", "deep", False),  # it adds an axis
        ("MatMul (x, w)", "narrow", False),
        ("MatMul (x, w)", "fed", False),
        ("Conv (t, kernel)", "column", False),
        ("InstanceNormalization (t, four, four)", "column", True),
        ("InstanceNormalization (t, four, four)", "vector", False),
    ],
)
def test_one_number_for_each_feature(product: str, bias: str, *, expected: bool) -> None:
    m = model(f"""m (float[2, 5, 3] x, float[2, 4, 4] t, float[4] fed) => (float y)
        <float[3, 4] w = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3}}, float[4] vector = {{1, 2, 3, 4}},
        float[1, 4] row = {{1, 2, 3, 4}}, float[1, 1, 1, 4] deep = {{1, 2, 3, 4}},
        float[1] narrow = {{1}}, float[4, 1] column = {{1, 2, 3, 4}},
        float[4] four = {{1, 1, 1, 1}},
        float[4, 4, 1] kernel = {{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}}>
        {{ p = {product} y = Add (p, {bias}) }}""")
    m.graph.outputs[0].shape = None
    assert is_by_feature(m.graph[1].inputs[1], m.graph[0], View(m)) == expected
