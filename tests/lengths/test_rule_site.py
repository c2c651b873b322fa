"""What a rule is told of its node."""

from __future__ import annotations

import pytest

from tests.lengths.analysed import analysis_of, leaks, reasons

CONSTANTS = "int64[1] one = {1}, int64[2] ones = {1, 1}, int64[2] parts = {1, 0}"
ROOT = "s = Shape (x) t = Gather (s, one) f = Cast <to = 1> (t) q = Sqrt (f)"


@pytest.mark.parametrize(
    "moves",
    [
        "y = Div (x, q)",
        "u = Reshape (q, ones) v = Transpose (u) y = Div (x, v)",
        "v = Tile (q, one) y = Div (x, v)",
        "v = Flatten (q) y = Div (x, v)",
    ],
)
def test_a_length_is_followed_wherever_it_is_moved(moves: str) -> None:
    analysis = analysis_of(f"{ROOT} {moves}", constants=CONSTANTS)
    assert not reasons(analysis)
    assert "length as data" in leaks(analysis)
