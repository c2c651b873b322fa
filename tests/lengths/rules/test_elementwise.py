"""Rules for element-wise operators."""

from __future__ import annotations

import pytest

from graphfix.lengths.rules.elementwise import _result_length, is_integer_cast
from graphfix.lengths.tail_state import (
    FINITE,
    BatchFactor,
    Tail,
    TensorState,
    TimeFactor,
    size_expr,
)
from tests.lengths.analysed import analysis_of, reasons, state_of
from tests.lengths.sites import site_of


@pytest.mark.parametrize(("dtype", "sign"), [(7, 1), (10, 1), (1, 2), (11, 2), (9, 2)])
def test_a_cast_that_rounds_may_make_zero(dtype: int, sign: int) -> None:
    """0.3 is 0 as an integer, 1e-10 in float16; float64 and booleans keep both apart from 0."""
    body = f"r = Relu (x) p = Add (r, eps) y = Cast <to = {dtype}> (p)"
    state = state_of(analysis_of(body, constants="float eps = {0.00001}"), "y")
    assert state is not None
    assert state.sign == sign


@pytest.mark.parametrize("dtype", [1, 6, 10])
def test_a_cast_of_integers_keeps_their_sign(dtype: int) -> None:
    body = f"a = Abs (two) c = Cast <to = {dtype}> (a) d = Cast <to = 1> (c) y = Mul (x, d)"
    state = state_of(analysis_of(body, constants="int64 two = {2}"), "c")
    assert state is not None
    assert state.sign == 2


def test_the_bias_of_a_gelu_is_data() -> None:
    """A tail of zeros is none behind a bias."""
    constants = "float[4] b = {1, 2, 3, 4}, float nought = {0}"
    body = "y = com.microsoft.FastGelu (x, b)"
    state = state_of(analysis_of(body, constants=constants), "y")
    assert state is not None
    assert not state.tail_along(1).is_zero


def test_a_comparison_with_the_positions_on_its_right() -> None:
    """``T > k`` and ``k < T`` are the same mask: true wherever a frame is."""
    constants = "int64 zero = {0}, int64 one = {1}, int64 at = {1}"
    positions = "s = Shape (x) t = Gather (s, at) k = Range (zero, t, one)"
    for comparison in ("Greater (t, k)", "Less (k, t)"):
        state = state_of(analysis_of(f"{positions} y = {comparison}", constants=constants), "y")
        assert state is not None
        assert state.fill == 1
    state = state_of(analysis_of(f"{positions} y = LessOrEqual (t, k)", constants=constants), "y")
    assert state is not None
    assert state.fill == 0


@pytest.mark.parametrize(
    ("bounds", "value"),
    [("low, high", -3), ("low", 0), (", low", -5), ("high", 0), ("low, low", -5)],
)
def test_a_clip_with_one_bound(bounds: str, value: float) -> None:
    """The bound was taken for the other one, and the missing one for an infinity below."""
    constants = "float low = {-5}, float high = {-3}"
    body = f"m = ReduceMean <axes = [1]> (x) y = Clip (x, {bounds}) z = Add (y, m)"
    state = state_of(analysis_of(body, output="z", constants=constants), "y")
    assert state is not None
    assert state.tail_along(1) == Tail("number", value)


def test_a_bound_is_no_length_of_rows() -> None:
    constants = "int64 at = {1}"
    body = "s = Shape (x) t = Gather (s, at) f = Cast <to = 1> (t) y = Clip (x, f)"
    assert reasons(analysis_of(body, constants=constants)) == [
        "its bound is a size, and each row has a length of its own: fix the batch at 1 "
        "(-p fix-dims:B=1), or export the model for one clip"
    ]


CHUNKS = """s = Shape (x) t = Gather (s, at) k = Range (zero, t, one) c = Div (k, four)
    n = Add (c, one) e = Mul (n, four)"""
NUMBERS = "int64 at = {1}, int64 zero = {0}, int64 one = {1}, int64 four = {4}"


@pytest.mark.parametrize("cut", ["l = Clip (e, , t)", "l = Min (e, t)", "l = Min (t, e)"])
@pytest.mark.parametrize(
    "use",
    [
        "r = Unsqueeze (l, first) y = Less (k, r)",
        "r = Unsqueeze (l, first) w = Expand (r, square) y = Greater (w, k)",
        "r = Cast <to = 6> (l) i = Cast <to = 7> (r) q = Unsqueeze (i, first) y = Less (k, q)",
        "r = Unsqueeze (l, first) i = CastLike (r, t) y = GreaterOrEqual (k, i)",
        "r = Unsqueeze (l, first) y = LessOrEqual (k, r)",
    ],
)
def test_ends_of_chunks_that_are_cut_to_the_length(cut: str, use: str) -> None:
    """Below the length of a clip min(end, T) is end, however long the container is."""
    constants = f"{NUMBERS}, int64[1] first = {{1}}, int64[1] front = {{0}}"
    square = "m = Unsqueeze (t, front) square = Concat <axis = 0> (m, m)"
    body = f"{CHUNKS} {square} {cut} {use} z = Cos (x)"
    analysis = analysis_of(body, output="z, y", constants=constants)
    assert not analysis.refusals
    assert not analysis.repairs
    state = state_of(analysis, "y")
    assert state is not None
    assert len(state.time_axes) == 2
    assert state.capped_at is None


@pytest.mark.parametrize(
    "use",
    [
        "y = Cast <to = 1> (l)",
        "y = Add (l, one)",
        "y = Less (l, four)",
        "o = Add (k, one) r = Unsqueeze (l, first) y = Less (o, r)",  # T itself is not below T
        "y = Identity (l)",
    ],
)
def test_numbers_that_are_cut_to_the_length_are_no_others(use: str) -> None:
    constants = f"{NUMBERS}, int64[1] first = {{1}}"
    analysis = analysis_of(f"{CHUNKS} l = Min (e, t) {use}", output="y", constants=constants)
    assert any("cut to the padded length" in x for x in reasons(analysis))
    # One clip alone has one length, which takes the place of the size.
    model = analysis_of(
        f"{CHUNKS} l = Min (e, t) {use}", inputs="float[1, T, 4] x", constants=constants
    )
    assert not model.refusals


@pytest.mark.parametrize(
    ("node", "steps"),
    [
        ("Add (k, four)", (4, 1)),
        ("Add (four, k)", (4, 1)),
        ("Sub (k, four)", (-4, 1)),
        ("Sub (four, k)", None),
        ("Mul (k, four)", (0, 4)),
        ("Mul (k, k)", None),
        ("Div (k, four)", None),
        ("Neg (k)", None),
        ("Cast <to = 1> (k)", (0, 1)),
    ],
)
def test_positions_with_a_number(node: str, steps: tuple[int, int] | None) -> None:
    body = f"s = Shape (x) t = Gather (s, at) k = Range (zero, t, one) p = {node} y = Cos (p)"
    state = state_of(analysis_of(body, constants=NUMBERS), "p")
    assert state is not None
    assert state.steps == steps


@pytest.mark.parametrize(("number", "steps"), [(2, (3, 1)), (0.5, None)])
def test_positions_step_only_by_whole_numbers(number: float, steps: tuple[int, int] | None) -> None:
    constants = f"{NUMBERS}, float number = {{{number}}}, float first = {{1}}"
    body = """s = Shape (x) t = Gather (s, at) k = Range (zero, t, one) f = Cast <to = 1> (k)
        a = Add (f, first) p = Add (a, number) y = Cos (p)"""
    state = state_of(analysis_of(body, constants=constants), "p")
    assert state is not None
    assert state.steps == steps


@pytest.mark.parametrize(
    ("node", "is_cast"),
    [
        ("y = Cast <to = 6> (n)", True),
        ("y = CastLike (n, k)", True),
        ("y = Cast <to = 1> (n)", False),
        ("y = Cast <to = 7> (x)", False),
        ("y = Neg (n)", False),
        ("y = Identity (n)", False),
    ],
)
def test_a_cast_of_integers_to_integers(node: str, is_cast: bool) -> None:
    inputs = "float[B, T, 4] x, int64[B] n, int32[B] k"
    assert is_integer_cast(site_of(node, inputs=inputs)) == is_cast


ROWS, TIME = ((BatchFactor(size_expr("B")),), (TimeFactor(size_expr("T")),))
LENGTH = TensorState((ROWS,), (None,), length=size_expr("T"))


def number(fill: float | None) -> TensorState:
    return TensorState((), (), fill=fill, fixed=True)


TWO = number(2.0)


@pytest.mark.parametrize(
    ("node", "states", "length"),
    [
        ("y = Identity (n)", [LENGTH], "T"),
        ("y = Cast <to = 6> (n)", [LENGTH], "T"),
        ("y = Neg (n)", [LENGTH], None),
        ("y = Add (n, k)", [LENGTH, TWO], "T + 2"),
        ("y = Add (n, k)", [TWO, LENGTH], "T + 2"),
        ("y = Mul (n, k)", [LENGTH, TWO], "2*T"),
        ("y = Div (n, k)", [LENGTH, TWO], "floor(T/2)"),
        ("y = Add (n, k)", [TWO, TWO], None),
        ("y = Sum (n, k, n)", [LENGTH, TWO, LENGTH], None),
        ("y = Sub (n, k)", [LENGTH, TWO], "T - 2"),
        ("y = Sub (n, k)", [TWO, LENGTH], "2 - T"),
        ("y = Pow (n, k)", [LENGTH, TWO], None),
        ("y = Div (n, k)", [LENGTH, number(0.0)], None),
        ("y = Div (n, k)", [LENGTH, number(-2.0)], None),
        ("y = Div (n, k)", [LENGTH, number(1.0)], "T"),
        ("y = Div (n, k)", [TWO, LENGTH], None),
        ("y = Add (n, k)", [LENGTH, number(2.5)], None),
        ("y = Add (n, k)", [LENGTH, number(None)], None),
        ("y = Add (n, k)", [LENGTH, number(0.0)], "T"),
        # A length is not below 0.
        ("y = Max (n, k)", [LENGTH, number(0.0)], "T"),
        ("y = Max (n, k)", [number(-1.0), LENGTH], "T"),
        ("y = Max (n, k)", [LENGTH, number(1.0)], None),
        ("y = Max (n, k)", [LENGTH, number(None)], None),
        ("y = Max (n, k)", [number(0.0), number(0.0)], None),
        ("y = Add (n, k)", [LENGTH, TensorState((TIME,), (FINITE,), fill=2.0)], None),
    ],
)
def test_lengths_that_are_computed_with(
    node: str, states: list[TensorState], length: str | None
) -> None:
    site = site_of(node, inputs="float[B, T, 4] x, int64[B] n, int64[B] k")
    found = _result_length(site, states)
    assert found == (None if length is None else size_expr(length))
