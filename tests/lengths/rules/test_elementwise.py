"""Rules for element-wise operators."""

from __future__ import annotations

import pytest

from graphfix.lengths.tail_state import Tail
from tests.lengths.analysed import analysis_of, reasons, state_of


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
        "its bound is a size, and each row has a length of its own"
    ]
