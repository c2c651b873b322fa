"""What a stream costs: counted, timed in turns with stand-ins, and as plain data."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from graphfix.errors import FeedError, ModelError
from graphfix.runtime.run_errors import RunError
from graphfix.shipping import stream_cost
from graphfix.shipping.stream_cost import (
    StreamBenchmark,
    StreamCost,
    StreamSide,
    Workload,
    cost_of_containers,
    cost_of_original,
    first_phase,
    phase_times,
    record_traffic,
    time_sides,
    total_phase,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_phases_of_a_stream() -> None:
    assert (first_phase("clip"), total_phase("step")) == ("first clip", "all steps")
    assert phase_times("step", 2.0, [0.5, 0.25]) == {
        "making sessions": (2.0,),
        "first step": (0.5,),
        "all steps": (0.75,),
    }


def test_the_cost_of_the_original(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = {"dispatches": 10, "cpu": 2, "copies": 3, "recompiled": 4}
    monkeypatch.setattr(stream_cost.planning, "plan_summary", lambda _: {"run": run})
    assert cost_of_original(tmp_path, 5, 2) == StreamCost(50, 8, 10, 0, 15, None)
    monkeypatch.setattr(stream_cost.planning, "plan_summary", lambda _: None)
    assert cost_of_original(tmp_path, 5, 2) == StreamCost()


def container(**kernels: int) -> Any:
    return SimpleNamespace(kernels={"after": kernels} if kernels else {})


def test_the_cost_of_containers() -> None:
    one = container(dispatches=10, cpu=1, copies=2)
    assert cost_of_containers([one, one]) == StreamCost(20, 0, 2, 0, 4, None)
    assert cost_of_containers([one, container()]) == StreamCost()
    assert cost_of_containers([]) == StreamCost(0, 0, 0, 0, 0, None)


@pytest.mark.parametrize(
    ("before", "now", "after"), [(None, 5, 5), (7, 5, 7), (3, 5, 5), (3, 0, 3), (None, 0, None)]
)
def test_the_peak_of_memory_is_the_most_of_all(
    before: int | None, now: int, after: int | None
) -> None:
    record = {} if before is None else {"peak": before}
    session: Any = SimpleNamespace(peak_memory=lambda: now)
    record_traffic(record, session, 99)
    assert (record.get("peak"), record["moved"]) == (after, 99)


def workload(seconds: float, error: Exception | None = None, **record: int) -> Workload:
    def run(into: dict[str, int]) -> Any:
        if error is not None:
            raise error
        into.update(record)
        return phase_times("clip", seconds, [seconds, seconds])

    return Workload(StreamCost(launched=3), run)


def test_both_sides_are_timed_in_turns_with_a_copy() -> None:
    told: list[str] = []
    members = {"model.onnx": workload(2.0, moved=5), "folder": workload(1.0, moved=7, peak=8)}
    (original, shipped), claims = time_sides("clip", members, processes=6, seed=0, tell=told.append)
    assert (original.name, shipped.name) == ("model.onnx", "folder")
    assert (original.count, shipped.count) == (
        StreamCost(launched=3, moved=5), StreamCost(launched=3, moved=7, peak=8),
    )  # fmt: skip
    assert {*claims} == {"making sessions", "first clip", "all clips"} == {*shipped.phases}
    ratio = claims["all clips"].ratio
    assert ratio is not None
    assert ratio.value == pytest.approx(0.5)
    assert len(told) == 18


@pytest.mark.parametrize("error", [ModelError("no"), RunError("no"), FeedError("no")])
def test_a_side_that_does_not_run_is_said(error: Exception) -> None:
    members = {"model.onnx": workload(1.0, error), "folder": workload(1.0)}
    (original, shipped), claims = time_sides(
        "clip", members, processes=2, seed=0, tell=lambda _: None
    )
    assert (original.error, shipped.error) == ("does not run: no", "")
    assert (original.phases, claims) == ({}, {})


@pytest.mark.parametrize(
    ("errors", "same", "ok"),
    [
        (("", ""), True, True),
        (("", ""), False, False),
        (("", "died"), True, False),
        (("died", ""), True, False),
    ],
)
def test_the_result_is_ok_if_both_ran_to_the_end_alike(
    errors: tuple[str, str], same: bool, ok: bool
) -> None:
    first, second = (StreamSide(x or "well", StreamCost(), {}, x) for x in errors)
    proof: Any = SimpleNamespace(ok=same, to_json=lambda: {"ok": same})
    found = StreamBenchmark("cpu", "", (3, 4), "step", first, second, {}, proof, ("n",))
    data = found.to_json()
    assert (found.ok, data["ok"], data["outputs"]) == (ok, ok, {"ok": same})
    assert (data["lengths"], data["notes"], data["schema"]) == ([3, 4], ["n"], 1)
    assert data["original"] == {
        "name": errors[0] or "well", "launched": None, "recompiled": None, "on_cpu": None,
        "moved": 0, "copies": None, "peak": None, "phases": {}, "error": errors[0],
    }  # fmt: skip


def test_an_original_that_does_not_run_is_repaired_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Session:
        def __init__(self, model: Path, runner: Any) -> None:
            self.runner = runner

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            return None

        def run(self, feeds: Any) -> None:
            if feeds:
                raise RunError("80070057")

    @stream_cost.dataclass(frozen=True)
    class Runner:
        sessions: int = 4

    saved: list[Path] = []
    monkeypatch.setattr(stream_cost, "RemoteSession", Session)
    monkeypatch.setattr(stream_cost.io, "load", lambda _: "model")
    monkeypatch.setattr(stream_cost.io, "save", lambda _, path: saved.append(path))
    monkeypatch.setattr(stream_cost.pipeline, "run", lambda *_: None)
    source = tmp_path / "m.onnx"
    runner: Any = Runner()
    with ExitStack() as stack:
        assert stream_cost.runnable_original(source, {}, runner, stack) == (source, "")
        feeds: Any = {"x": 1}
        path, reason = stream_cost.runnable_original(source, feeds, runner, stack)
        assert (path.name, reason) == ("m.onnx", "80070057")
        assert path.parent != tmp_path
        assert saved == [path]
