"""Rules for Gather, Scatter and their kin."""

from __future__ import annotations

from tests.lengths.analysed import analysis_of, leaks

CONSTANTS = "float low = {0}, float high = {3}, float[4] table = {1, 2, 0.5, 1}"
INDEX = "m = Mul (x, x) a = Add (m, table) c = Clip (a, low, high) i = Cast <to = 7> (c)"


def test_an_index_made_of_floats_is_followed_through_a_split() -> None:
    """Behind what is valid a float may be anything, and so may each part of it."""
    body = f"{INDEX} p, q = Split <axis = 2> (i) y = Gather (table, p)"
    analysis = analysis_of(body, constants=CONSTANTS)
    assert not analysis.refusals
    assert "stray index" in leaks(analysis)
