"""Processes in turn: who runs when, and what a fixed order would do to two equal models."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from graphfix.benchmark.bench_result import STEADY
from graphfix.benchmark.interleave import Course, FailedError, take_turns
from graphfix.benchmark.timing import Ratio, time_ratio


class Machine:
    """Runs nothing, and records who would have run when.

    Args:
        drift: By what share each process is slower than the one before it.
        second: By what factor whoever is not the first of its turn is faster: warm files.
        dies: The members that fail, and at which of their processes.
    """

    def __init__(
        self,
        members: int,
        drift: float = 0.0,
        second: float = 1.0,
        noise: np.random.Generator | None = None,
        dies: dict[str, int] | None = None,
    ) -> None:
        self._members, self._drift, self._second, self._noise = members, drift, second, noise
        self._dies = dies or {}
        self.order: list[str] = []

    def run(self, member: str) -> dict[str, tuple[float, ...]]:
        self.order.append(member)
        if self.order.count(member) == self._dies.get(member):
            raise FailedError(f"{member} died")
        seconds = (1 + self._drift) ** len(self.order)
        if len(self.order) % self._members != 1:
            seconds *= self._second
        if self._noise is not None:
            seconds *= 1 + self._noise.exponential(0.02)
        return {STEADY: (seconds,)}

    @property
    def turns(self) -> list[tuple[str, ...]]:
        step = self._members
        return [tuple(self.order[i : i + step]) for i in range(0, len(self.order), step)]


def test_each_turn_has_one_process_of_each_in_an_order_drawn_anew() -> None:
    machine = Machine(3)
    courses = take_turns(["a", "b", "c"], machine.run, turns=40, seed=0)
    assert all(sorted(turn) == ["a", "b", "c"] for turn in machine.turns)
    assert len(set(machine.turns)) == 6
    assert any(a != b for a, b in pairwise(machine.turns))
    firsts = Counter(turn[0] for turn in machine.turns)
    assert min(firsts.values()) >= 6
    assert [len(x.timing_of(STEADY).processes) for x in courses] == [40, 40, 40]


def test_the_same_seed_draws_the_same_orders_and_another_seed_others() -> None:
    orders = []
    for seed in (0, 0, 1):
        machine = Machine(3)
        take_turns("abc", machine.run, turns=9, seed=seed)
        orders.append(machine.order)
    assert orders[0] == orders[1] != orders[2]


def test_times_go_to_whoever_took_them_in_the_order_of_the_turns() -> None:
    took = {"a": iter([1.0, 2.0, 3.0]), "b": iter([10.0, 20.0, 30.0])}
    a, b = take_turns("ab", lambda x: {STEADY: (next(took[x]),)}, turns=3, seed=3)
    assert a.timing_of(STEADY).seconds == [1, 2, 3]
    assert b.timing_of(STEADY).seconds == [10, 20, 30]
    assert a.timing_of("back").processes == ()


def test_the_same_member_may_take_part_twice() -> None:
    courses = take_turns("aba", Machine(3).run, turns=2, seed=0)
    assert [len(x.stints) for x in courses] == [2, 2, 2]


def test_one_that_dies_is_a_result_and_the_others_go_on() -> None:
    machine = Machine(3, dies={"b": 2})
    a, b, c = take_turns("abc", machine.run, turns=4, seed=0)
    assert b.error == "b died"
    assert b.timing_of(STEADY).processes == ()
    assert machine.order.count("b") == 2
    assert not a.error
    assert len(a.timing_of(STEADY).processes) == len(c.timing_of(STEADY).processes) == 4


def test_an_error_that_is_no_model_s_ends_it_all() -> None:
    def broken(_: str) -> dict[str, tuple[float, ...]]:
        raise OSError("no such Python")

    with pytest.raises(OSError, match="no such Python"):
        take_turns("ab", broken, turns=2, seed=0)


def test_progress_is_told_before_each_process() -> None:
    told: list[str] = []
    take_turns("ab", Machine(2).run, turns=3, seed=0, tell=told.append)
    assert [x.split(",")[0] for x in told] == [f"turn {i} of 3" for i in (1, 1, 2, 2, 3, 3)]
    assert all(x.endswith("s left") for x in told[1:])


def beside(own: Course, base: Course) -> Ratio:
    found = time_ratio(own.timing_of(STEADY), base.timing_of(STEADY))
    assert found is not None
    return found


@pytest.mark.parametrize("what", [{"drift": 0.01}, {"second": 0.95}, {"drift": -0.01}])
def test_a_machine_that_changes_does_not_tell_equal_models_apart(what: dict[str, float]) -> None:
    held, values = 0, []
    for seed in range(200):
        machine = Machine(3, noise=np.random.default_rng(seed), **what)
        a, b, _ = take_turns("abc", machine.run, turns=9, seed=seed)
        found = beside(b, a)
        held += found.contains(1.0)
        values.append(found.value)
    assert held / 200 >= 0.92
    assert np.median(values) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("what", [{"drift": 0.05}, {"second": 0.9}])
def test_a_fixed_order_would_tell_equal_models_apart(what: dict[str, float]) -> None:
    machine = Machine(3, noise=np.random.default_rng(0), **what)
    a, b, _ = zip(*([machine.run(x) for x in "abc"] for _ in range(9)), strict=True)
    assert not beside(Course(b), Course(a)).contains(1.0)
