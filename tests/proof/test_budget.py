"""A slow model is verified at fewer and smaller sizes, and what is left untried is said."""

from __future__ import annotations

import time

import onnx_ir as ir
import pytest

from graphfix.feeds.case import Case
from graphfix.proof import budget
from graphfix.proof.budget import Budget, SearchBudget, SpentError
from graphfix.proof.verify import verify
from graphfix.runtime.local_session import Session
from graphfix.runtime.run_errors import OverBudgetError, StoppedError

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[B, T] x, int64[B, T] a) => (float[B, T] y)
    <float[4] t = {1, 2, 3, 4}> { g = Gather (t, a) y = Add (x, g) }"""


class Clock:
    """Seconds that only pass where somebody takes them."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(budget.time, "perf_counter", made)
    return made


def case(size: int) -> Case:
    return Case(f"T={size}", {"T": size}, {"x": ir.tensor([0.0] * size).numpy()})


def test_what_would_take_too_long_is_not_begun(clock: Clock) -> None:
    asked = Budget(60.0)

    def took(seconds: float) -> None:
        clock.now += seconds

    asked.run(case(10), lambda: took(2))
    asked.run(case(40), lambda: took(8))
    with pytest.raises(OverBudgetError):  # 16 s, with 10 s left of a third of a minute
        asked.run(case(80), lambda: took(0))
    asked.run(case(1), lambda: took(0))
    assert str(asked) == "1 more case, such as 'T=80' (over --budget 60)"


def test_a_run_without_an_end_is_the_end_only_where_none_ran_before(clock: Clock) -> None:
    def stopped() -> None:
        raise StoppedError("the model ran for 120 s without an end")

    with pytest.raises(StoppedError, match="it was case 'T=3': give smaller sizes"):
        Budget().run(case(3), stopped)
    asked = Budget()
    asked.run(case(1), lambda: None)
    with pytest.raises(OverBudgetError):
        asked.run(case(3), stopped)
    assert asked.over == ["T=3"]


def test_a_slow_model_is_verified_at_what_fits(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Session.run

    def slow(session: Session, *given: object) -> object:
        clock.now += 4.0
        return run(session, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Session, "run", slow)
    model = ir.from_onnx_text(TEXT)
    found = verify(model, model, budget=60.0)
    assert found.ok
    assert 1 <= len(found.cases) <= 5
    assert any("more cases, such as" in x and "(over --budget 60)" in x for x in found.not_tried)
    assert not found.dropped
    assert not any("reaches an output" in x for x in found.not_tried)
    assert time is budget.time
    assert len(verify(model, model, budget=6000.0).cases) > 10


def test_a_search_ends_with_its_tries_or_its_time_and_says_which(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(budget.time, "monotonic", clock)
    few = SearchBudget(2, 5.0)
    few.take_try()
    few.take_try()
    with pytest.raises(SpentError):
        few.take_try()
    assert (few.tries, few.spent) == (2, "2 tries")
    short = SearchBudget(9, 5.0, 60.0)
    clock.now = 3.0
    assert short.has_time(0.7)
    assert not short.has_time(0.6)
    clock.now = 6.0
    short.take_try()  # one always is
    with pytest.raises(SpentError):
        short.take_try()
    assert (short.tries, short.spent) == (1, "--budget 60")
