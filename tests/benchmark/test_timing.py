"""Ratios over processes, their intervals, and when the clock cannot tell."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphfix.benchmark.timing import Ratio, Timing, compare_timings, time_ratio


def timing(*seconds: float) -> Timing:
    """Processes of one run each."""
    return Timing(tuple((float(x),) for x in seconds))


def known(own: Timing, base: Timing) -> Ratio:
    found = time_ratio(own, base)
    assert found is not None
    return found


def test_a_process_is_one_number_which_a_tenth_of_its_runs_stay_below() -> None:
    runs = tuple(x / 1000 for x in range(1, 102))
    found = Timing((runs, tuple(2 * x for x in runs)))
    assert found.seconds == pytest.approx([0.011, 0.022])
    assert found.median == pytest.approx(0.0165)
    assert found.spread == pytest.approx(0.0055 / 0.0165)
    assert found.runs == 202
    assert found.to_json()["processes"] == 2


def test_what_slows_most_runs_of_a_process_does_not_show() -> None:
    quick = (1.0,) * 4
    assert Timing(((*quick, *(50.0,) * 20),)).seconds == [1.0]


def test_nothing_timed_is_said_as_nothing() -> None:
    assert Timing().to_json() == {"processes": 0, "runs": 0}
    assert time_ratio(Timing(), Timing()) is None
    assert time_ratio(timing(1), timing(1, 2)) is None
    assert time_ratio(timing(1), timing(0)) is None


def test_what_slows_a_whole_turn_does_not_show() -> None:
    noise = np.random.default_rng(0).uniform(1, 20, 30)
    found = known(timing(*(noise * 2.0)), timing(*noise))
    assert (found.value, found.low, found.high) == pytest.approx((2, 2, 2))


@pytest.mark.parametrize(
    ("turns", "rank", "confidence"),
    [(5, 0, 0.9375), (6, 0, 0.96875), (9, 1, 0.9609), (10, 1, 0.9785)],
)
def test_the_interval_is_between_order_statistics(turns: int, rank: int, confidence: float) -> None:
    own = list(range(1, turns + 1))
    found = known(timing(*own), timing(*[1] * turns))
    assert (found.low, found.high) == (own[rank], own[-1 - rank])
    assert found.confidence == pytest.approx(confidence, abs=1e-4)


# How processes of one model differ from each other, as factors.
NOISE = {
    "lognormal": lambda rng, size: rng.lognormal(0, 0.2, size),
    "never faster": lambda rng, size: 1 + rng.exponential(0.3, size),
    "two modes": lambda rng, size: (
        rng.choice([1.0, 1.5], size, p=[0.7, 0.3]) * rng.lognormal(0, 0.02, size)
    ),
    "outliers": lambda rng, size: 1 + 0.05 * np.abs(rng.standard_cauchy(size)),
}


@pytest.mark.parametrize("turns", [6, 9])
@pytest.mark.parametrize("kind", NOISE)
def test_the_interval_holds_the_truth_as_often_as_it_says(kind: str, turns: int) -> None:
    rng = np.random.default_rng(1)
    true, tries, held, confidence = 0.87, 600, 0, 0.0
    for _ in range(tries):
        a, b = NOISE[kind](rng, (2, turns))
        found = known(timing(*(true * b)), timing(*a))
        held, confidence = held + found.contains(true), found.confidence
    # Two standard errors of so many tries are 1.6 %.
    assert held / tries == pytest.approx(confidence, abs=0.02)


def test_a_copy_that_is_1_lets_a_ratio_be_claimed() -> None:
    found = compare_timings(timing(*[2] * 6), timing(*[1] * 6), timing(*[0.9, 1.1] * 3))
    assert found.ratio is not None
    assert found.ratio.value == 2
    assert found.to_json()["value"] == 2


def test_where_the_clock_is_known_to_be_good_no_copy_is_needed() -> None:
    found = compare_timings(timing(*[2] * 6), timing(*[1] * 6), None)
    assert found.ratio is not None
    assert found.ratio.value == 2


def test_where_a_copy_is_not_1_no_ratio_is_claimed() -> None:
    found = compare_timings(timing(*[2] * 6), timing(*[1] * 6), timing(*[1.1, 1.2] * 3))
    assert found.ratio is None
    assert found.why == "a model beside its own copy took 1.150 of the time (1.100 to 1.200)"
    assert found.to_json() == {"value": None, "cannot_tell": found.why}


def test_no_difference_is_claimed_that_a_copy_shows_too() -> None:
    noisy = timing(*[0.4, 0.57, 1.1] * 2)  # its interval holds 1, and 0.5
    found = compare_timings(timing(*[0.5] * 6), timing(*[1] * 6), noisy)
    assert found.ratio is None
    assert found.why.startswith("a model beside its own copy took 0.570 of the time (0.400 to")
    far = compare_timings(timing(*[0.3] * 6), timing(*[1] * 6), noisy)
    assert far.ratio is not None
    assert far.ratio.value == pytest.approx(0.3)
    equal = compare_timings(timing(*[0.9, 1.1] * 3), timing(*[1] * 6), noisy)
    assert equal.ratio is not None  # no difference


@pytest.mark.parametrize(("turns", "told"), [(1, False), (5, False), (6, True)])
def test_too_few_processes_claim_nothing(turns: int, told: bool) -> None:
    one = timing(*[1] * turns)
    found = compare_timings(timing(*[2] * turns), one, one)
    assert (found.ratio is not None) is told
    assert told or found.why.startswith(f"{turns} of the 6 processes")


def test_what_was_not_timed_together_is_not_compared() -> None:
    assert compare_timings(Timing(), timing(1), timing(1)).ratio is None
    assert (
        compare_timings(timing(1), timing(1), Timing()).why
        == "they were not timed in the same turns"
    )


SECONDS = st.floats(1e-6, 1e3)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=15), st.floats(0.01, 100))
def test_a_ratio_lies_in_its_interval_and_scales_with_its_model(
    turns: list[tuple[float, float]], times: float
) -> None:
    own, base = (timing(*side) for side in zip(*turns, strict=True))
    found = known(own, base)
    assert found.low <= found.value <= found.high
    scaled = known(timing(*(times * x for x in own.seconds)), base)
    assert (scaled.value, scaled.low, scaled.high) == pytest.approx(
        (times * found.value, times * found.low, times * found.high)
    )
