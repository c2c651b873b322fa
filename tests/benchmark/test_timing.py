"""Ratios of two models' times, and their intervals."""

from __future__ import annotations

import numpy as np
import pytest

from graphfix.benchmark.timing import Timing, ratio


def test_a_timing_is_its_median_p95_and_quartiles() -> None:
    timing = Timing([x / 1000 for x in range(1, 101)])
    assert timing.median == pytest.approx(0.0505)
    assert timing.p95 == pytest.approx(0.09505)
    assert timing.spread == pytest.approx(49.5 / 50.5)
    assert Timing().to_json() == {"runs": 0}


def test_what_slows_a_whole_turn_does_not_show() -> None:
    noise = np.random.default_rng(0).uniform(1, 20, 30)
    found = ratio(list(noise * 2.0), list(noise))
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((2, 2, 2))


@pytest.mark.parametrize(
    ("turns", "rank", "confidence"),
    [(5, 0, 0.9375), (6, 0, 0.96875), (9, 1, 0.9609), (10, 1, 0.9785)],
)
def test_the_interval_is_between_order_statistics(turns: int, rank: int, confidence: float) -> None:
    own = list(range(1, turns + 1))
    found = ratio([float(x) for x in own], [1.0] * turns)
    assert found is not None
    assert (found.low, found.high) == (own[rank], own[-1 - rank])
    assert found.confidence == pytest.approx(confidence, abs=1e-4)


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(2000):
        found = ratio(list(rng.lognormal(0, 1, 12)), [1.0] * 12)
        assert found is not None
        held += found.low <= 1 <= found.high
    assert held / 2000 == pytest.approx(found.confidence, abs=0.01)


def test_turns_that_are_not_pairs_have_no_ratio() -> None:
    assert ratio([], []) is None
    assert ratio([1.0], [1.0, 2.0]) is None
    assert ratio([1.0], [0.0]) is None
