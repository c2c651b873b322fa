"""Which provider ``"auto"`` takes, by a clock and providers of the test's own: nothing is timed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from graphfix.shipped import provider_choice
from graphfix.shipped.provider_choice import ProviderChoice, measure_providers

CPU, DML, WEBGPU = "CPUExecutionProvider", "DmlExecutionProvider", "WebGpuExecutionProvider"
ONES = (np.ones(3, np.float32),)


class Clock:
    """Time that goes on only as a provider runs."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def opener(self, run: float, *outputs: Any, session: float = 0.0) -> Callable[[], Any]:
        """Return a provider whose session and whose runs take so long."""
        repeated: Iterator[Any] = iter(outputs)
        last = [ONES]

        def run_once() -> Any:
            self.now += run
            last[0] = next(repeated, last[0])
            return last[0]

        def open_session() -> Callable[[], Any]:
            self.now += session
            return run_once

        return open_session


def broken() -> Any:
    raise RuntimeError("no adapter")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock of the test's own; a session is waited for however long that really takes."""

    def call(_: float, work: Callable[[], Any]) -> Any:
        return work()

    monkeypatch.setattr(provider_choice, "_call_within", call)
    return Clock()


def chosen(clock: Clock, *usual: str, **openers: Any) -> ProviderChoice:
    names = {"cpu": CPU, "dml": DML, "webgpu": WEBGPU}
    named = {names[x]: opener for x, opener in openers.items()}
    return measure_providers(named, usual or (DML, CPU), container="m.onnx", clock=clock)


@pytest.mark.parametrize(
    ("cpu", "dml", "provider"),
    [(0.02, 0.01, DML), (0.01, 0.02, CPU), (0.0099, 0.01, DML), (0.01, 0.0099, DML)],
)
def test_the_fastest_is_taken_and_the_usual_one_where_there_is_no_difference(
    cpu: float, dml: float, provider: str, clock: Clock
) -> None:
    choice = chosen(clock, cpu=clock.opener(cpu), dml=clock.opener(dml))
    assert choice.provider == provider
    assert choice.seconds == pytest.approx({CPU: cpu, DML: dml})
    assert not choice.reasons


def test_sessions_and_first_runs_do_not_count(clock: Clock) -> None:
    choice = chosen(clock, cpu=clock.opener(0.01), dml=clock.opener(0.001, session=0.5))
    assert choice.provider == DML
    assert choice.seconds[DML] == pytest.approx(0.001)


def test_all_of_it_takes_two_seconds_at_most(clock: Clock) -> None:
    openers = {x: clock.opener(0.03) for x in ("cpu", "dml", "webgpu")}
    choice = chosen(clock, **openers)
    assert choice.seconds.keys() == {CPU, DML, WEBGPU}
    assert clock.now <= 2


def test_a_cpu_that_takes_more_than_its_share_leaves_the_usual_one(clock: Clock) -> None:
    choice = chosen(clock, cpu=clock.opener(0.6), dml=clock.opener(0.01))
    assert choice.provider == DML
    assert not choice.seconds
    assert choice.reasons == dict.fromkeys([CPU, DML], "not measured within 2 s")
    assert not choice.failed


def test_runs_that_take_too_long_leave_the_others_as_they_were_measured(clock: Clock) -> None:
    openers = {"cpu": clock.opener(0.01), "dml": clock.opener(0.05)}
    choice = chosen(clock, **openers, webgpu=clock.opener(1))
    assert choice.provider == CPU
    assert choice.reasons == {WEBGPU: "not measured within 2 s"}
    # The usual one was not measured: which is faster is not known.
    assert chosen(clock, cpu=clock.opener(0.01), dml=clock.opener(1)).provider == DML


def test_a_session_that_took_long_is_there_and_is_measured(clock: Clock) -> None:
    openers = {"cpu": clock.opener(0.1), "dml": clock.opener(0.001, session=9)}
    choice = chosen(clock, **openers, webgpu=broken)
    assert choice.provider == DML
    assert choice.reasons == {WEBGPU: "not measured within 2 s"}  # and never tried


def test_a_provider_that_fails_is_out(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    choice = chosen(clock, cpu=clock.opener(0.01), dml=broken, webgpu=clock.opener(0.001))
    assert choice.provider == WEBGPU
    assert choice.failed == [DML]
    assert choice.reasons == {DML: "does not run this folder: no adapter"}
    assert "DirectML does not run this folder: no adapter" in caplog.text
    assert chosen(clock, cpu=broken, dml=broken).provider == CPU
    assert chosen(clock, cpu=broken, dml=clock.opener(0.01)).provider == DML


@pytest.mark.parametrize(
    ("outputs", "off"),
    [
        (np.array([1, 1, 1.03], np.float32), "0.03"),
        (np.array([1, 1, np.nan], np.float32), "inf"),
        (np.ones((3, 1), np.float32), "inf"),
    ],
)
def test_a_fast_provider_that_computes_something_else_is_out(
    outputs: Any, off: str, clock: Clock
) -> None:
    dml = clock.opener(0.001, (outputs,))
    choice = chosen(clock, cpu=clock.opener(0.01), dml=dml)
    assert choice.provider == CPU
    assert choice.failed == [DML]
    assert f"something else than the CPU, off by {off} of" in choice.reasons[DML]


@pytest.mark.parametrize(
    ("expected", "outputs"),
    [
        ([1000.0, 1.0], [1001.0, 3.0]),  # of the largest element
        ([np.nan, np.inf], [np.nan, np.inf]),
        ([], []),
    ],
)
def test_rounding_is_no_difference(expected: Any, outputs: Any, clock: Clock) -> None:
    cpu, dml = (np.array(x, np.float32) for x in (expected, outputs))
    best = np.array([0]), np.array([7])  # which of two as good ones is the best
    choice = chosen(
        clock, cpu=clock.opener(0.01, (cpu, best[0])), dml=clock.opener(0.001, (dml, best[1]))
    )
    assert choice.provider == DML


def test_random_outputs_are_not_compared(clock: Clock) -> None:
    cpu = clock.opener(0.01, ONES, (np.zeros(3, np.float32),))
    dml = clock.opener(0.001, (np.full(3, 9, np.float32),))
    assert chosen(clock, cpu=cpu, dml=dml).provider == DML


def test_a_run_that_does_not_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_choice, "_LEAST", 0)
    ready = threading.Event()

    def opener() -> Callable[[], Any]:
        return lambda: (ready.wait(60), ONES)[1]

    try:
        choice = measure_providers({CPU: opener, DML: opener}, [DML, CPU], seconds=0.02)
        assert choice.provider == DML
        assert choice.reasons == dict.fromkeys([CPU, DML], "not measured within 0.02 s")
    finally:
        ready.set()


def test_a_choice_says_what_was_measured(clock: Clock) -> None:
    choice = chosen(clock, cpu=clock.opener(0.01), dml=broken, webgpu=clock.opener(0.0025))
    assert str(choice) == (
        "WebGPU (measured now, a run of m.onnx: CPU 10 ms; WebGPU 2.5 ms; "
        "DirectML: does not run this folder: no adapter)"
    )
    alone = ProviderChoice(CPU)
    assert str(alone) == "CPU: no other provider is here, so nothing was measured"
