"""Which numbers hide a score."""

import math

import pytest

from graphfix.facts.hidden_scores import hides_score


@pytest.mark.parametrize("number", [-1e3, -1e4, -65504.0, -3.4e38, -math.inf])
def test_what_exporters_write_hides(number: float) -> None:
    assert hides_score(number)


@pytest.mark.parametrize("number", [-999.0, 0.0, 1e4, math.inf, math.nan])
def test_scores_do_not(number: float) -> None:
    assert not hides_score(number)
