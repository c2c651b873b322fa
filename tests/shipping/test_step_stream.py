"""How many entries each timed step adds, if the user does not say, and what both sides run."""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from graphfix.errors import UsageError
from graphfix.feeds.states import StatePair
from graphfix.runtime.process import Runner
from graphfix.shipped.manifest import (
    Axis,
    Cache,
    Container,
    InputPort,
    Manifest,
    Port,
    StateLink,
    Streaming,
)
from graphfix.shipping import shipped_plan, step_stream
from graphfix.shipping.step_stream import TimedSteps, choose_counts
from graphfix.shipping.stream_cost import StreamCost

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZES = ((1, 64), (16, 64), (1, 256), (16, 256))


def manifest(*, grows: bool = True, rolls: bool = False, joins: bool = True) -> Manifest:
    sizes = ({"S": new, "past": past} for new, past in SIZES)
    return Manifest(
        axis=Axis("S", "x", 0),
        batch=None,
        lengths=None,
        inputs=(InputPort("x", "tensor(float)", ("S",), None),),
        outputs=(Port("y", "tensor(float)", ("S",), None),),
        containers=tuple(Container(f"{i}.onnx", x) for i, x in enumerate(sizes)),
        stream=Streaming((Cache("past", "", grows),), (), rolls=rolls, joins=joins),
    )


def test_a_prompt_and_single_entries_until_the_caches_are_full() -> None:
    assert choose_counts(manifest(), None, 5) == (37, 1, 1, 1, 1, 1)
    assert choose_counts(manifest(), None, 1000) == (37,) + (1,) * (256 - 37)


def test_caches_that_roll_are_never_full() -> None:
    assert choose_counts(manifest(rolls=True), None, 1000) == (37,) + (1,) * 1000
    assert choose_counts(manifest(rolls=True), (300,), 0) == (300,)


def test_steps_that_cannot_be_split_are_containers() -> None:
    assert choose_counts(manifest(joins=False), None, 2) == (16, 1, 1)


def test_a_model_without_caches_that_grow_begins_with_a_container() -> None:
    assert choose_counts(manifest(grows=False), None, 2) == (16, 1, 1)
    assert choose_counts(manifest(grows=False), (300,), 0) == (300,)


def test_a_prompt_fills_half_of_small_caches() -> None:
    small = manifest()
    containers = tuple(
        dataclasses.replace(x, sizes={**x.sizes, "past": 10}) for x in small.containers
    )
    small = dataclasses.replace(small, containers=containers)
    assert choose_counts(small, None, 100) == (5, 1, 1, 1, 1, 1)


@pytest.mark.parametrize("counts", [(), (0,), (256, 1)])
def test_other_counts_are_an_error(counts: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="all together 256 at most, as the caches hold"):
        choose_counts(manifest(), counts, 0)


# The steps on both sides

Y = np.ones((2, 3), np.float32)


def timed(
    monkeypatch: pytest.MonkeyPatch, first: object = None, **changes: Any
) -> tuple[TimedSteps, list[Any]]:
    """Return the steps of a manifest, and what its plan was asked with."""
    asked: list[Any] = []
    plan = SimpleNamespace(first=first)

    def choose_plan(*args: Any) -> Any:
        asked.extend(args)
        return plan, {"k": Y}, "past"

    @contextmanager
    def opened(source: Path) -> Iterator[Any]:
        yield SimpleNamespace(run=None)

    class Sequences:
        def __init__(self, *args: Any) -> None:
            asked.append(args[2])

        def run_sequence(self, name: str, counts: Any) -> Any:
            return SimpleNamespace(feeds=tuple({"x": np.full(n, n, np.float32)} for n in counts))

        def initial_feeds(self) -> dict[str, Any]:
            return {"past": Y}

    monkeypatch.setattr(shipped_plan, "choose_running_plan", choose_plan)
    monkeypatch.setattr(step_stream, "open_original", opened)
    monkeypatch.setattr(step_stream, "SequenceRunner", Sequences)
    monkeypatch.setattr(shipped_plan, "fix_and_fold_inputs", lambda model, spec: (model, spec))
    monkeypatch.setattr(shipped_plan.io, "load", lambda path: "model")
    base = manifest()
    assert base.stream is not None
    links = (StateLink("past", "present", 0),)
    stream = dataclasses.replace(base.stream, states=links)
    whole = dataclasses.replace(base, stream=stream, **changes)
    return TimedSteps(Path("m.onnx"), whole, (2, 1), 7), asked


def test_the_plan_is_asked_for_by_the_names_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    _, asked = timed(monkeypatch)
    source, model, spec, cache, states, new, seed = asked
    assert (source, model) == (Path("m.onnx"), ("model", ""))
    assert spec.sizes == {"S": (1, 16)}
    assert (cache, states, new, seed) == ([64, 256], [StatePair("past", "present")], "S", 7)
    provenance = {"names": {"S": ["steps", "S"]}, "passes": "fast"}
    _, asked = timed(monkeypatch, provenance=provenance)
    assert asked[1] == ("model", "fast")
    assert asked[2].sizes == {"steps": (1, 16)}
    assert asked[5] == "steps"


@pytest.mark.parametrize("first", [None, SimpleNamespace(gives={"cross": "present_cross"})])
def test_the_original_is_fed_its_states(first: object, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[dict[str, Any]] = []
    traffic: list[Any] = []

    class OneSession:
        open_seconds, run_seconds = 3.0, 0.5

        def __init__(self, runs: Path, runner: Any) -> None:
            assert runner.sessions == 1

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None: ...

        def run(self, feeds: dict[str, Any], *, bind: bool) -> dict[str, Any]:
            assert bind
            runs.append(dict(feeds))
            return {"present": np.full(4, len(runs), np.float32), "present_cross": Y}

    monkeypatch.setattr(step_stream, "RemoteSession", OneSession)
    monkeypatch.setattr(
        step_stream.stream_cost, "record_traffic", lambda *args: traffic.append(args[2])
    )
    monkeypatch.setattr(step_stream.stream_cost, "cost_of_original", lambda *_: StreamCost(9))
    steps, _ = timed(monkeypatch, first)
    work = steps.original_workload(Path("m.onnx"), Runner(("python",)))
    assert work.cost.launched == 9
    phases = work.run({})
    assert sorted(sum(phases.values(), ())) == [0.5, 1.0, 3.0]
    one, two = runs
    assert {*one} == {"past", "x", "k"}
    np.testing.assert_array_equal(one["past"], Y)
    np.testing.assert_array_equal(two["past"], np.ones(4))
    assert ("cross" in two) == (first is not None)
    # Bytes of float32: what went in and what came back, in both steps.
    sizes = [x.nbytes for feeds in runs for x in feeds.values()]
    assert traffic == [sum(sizes) + 2 * (4 * 4 + Y.nbytes)]
