"""How long models take, in the phases that matter on DirectML.

DirectML builds its operators for the first shape that a session runs at; any other shape pays for
that again at every run. So a session is never warmed up with another length than the one that is
measured, and another length is timed as a phase of its own, several times.

Models side by side are run in turns, one run each: what else the machine does falls on all of them.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from graphfix.errors import FeedError, GraphfixError, ModelError, UsageError
from graphfix.measure import runner
from graphfix.measure.compare import OutputDiff, Tolerance, compare
from graphfix.measure.feeds import Case, make_cases
from graphfix.measure.runtime import RunError, Session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    Array = npt.NDArray[Any]

Wanted = Literal["cpu", "dml", "auto"]

PHASES = ("session", "first run", "steady", "other shape", "back")
_RESAMPLES = 2000


@dataclass
class Timing:
    """How long one phase of one model took, in seconds, run by run."""

    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The median."""
        return float(np.median(self.seconds))

    @property
    def p95(self) -> float:
        """What 95 of 100 runs stay below."""
        return float(np.percentile(self.seconds, 95))

    @property
    def spread(self) -> float:
        """From the first quartile to the third, as a share of the median."""
        low, high = np.percentile(self.seconds, (25, 75))
        return float((high - low) / self.median) if self.median else 0.0

    def to_json(self) -> dict[str, object]:
        """In milliseconds, as plain data."""
        if not self.seconds:
            return {"runs": 0}
        return {
            "runs": len(self.seconds),
            "median_ms": self.median * 1e3,
            "p95_ms": self.p95 * 1e3,
            "spread": self.spread,
            "all_ms": [x * 1e3 for x in self.seconds],
        }


@dataclass
class Timed:
    """One model.

    Attributes:
        model: Its file.
        phases: What was timed, by phase.
        ratio: How many times as long as the first model it takes, of steady runs; None for the
            first.
        interval: Where 95 of 100 such ratios lie, by resampling the runs.
        diffs: How its outputs differ from the first model's on the CPU, at both shapes.
        placement: How many nodes each execution provider ran.
        error: Why it could not be timed; empty if it was.
    """

    model: str
    phases: dict[str, Timing] = field(default_factory=lambda: {x: Timing() for x in PHASES})
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    diffs: list[OutputDiff] = field(default_factory=list)
    placement: dict[str, int] = field(default_factory=dict)
    error: str = ""

    @property
    def ok(self) -> bool:
        """Whether it ran, and computed what the first model does on the CPU."""
        return not self.error and all(x.ok for x in self.diffs)


@dataclass
class Benchmark:
    """What was timed.

    Attributes:
        ep: The execution provider that all of it ran on.
        note: Why it is not the one that was asked for; empty if it is.
        about: Versions and the machine.
        dims: The sizes of the first shape.
        other: The sizes of the other shape; empty if the model has only one.
        models: The models.
    """

    ep: str
    note: str
    about: dict[str, str]
    dims: dict[str, int]
    other: dict[str, int]
    models: list[Timed]

    @property
    def ok(self) -> bool:
        """Whether all models ran, and compute the same."""
        return all(x.ok for x in self.models)

    def to_json(self) -> dict[str, object]:
        """As plain data that ``json`` can write."""
        return {
            "schema": 1,
            "ok": self.ok,
            "ep": self.ep,
            "note": self.note,
            "about": self.about,
            "dims": self.dims,
            "other": self.other,
            "models": [
                {
                    "model": x.model,
                    "ok": x.ok,
                    "error": x.error,
                    "phases": {name: timing.to_json() for name, timing in x.phases.items()},
                    "ratio": x.ratio,
                    "interval": x.interval,
                    "placement": x.placement,
                    "outputs": [
                        {"output": d.output, "ok": d.ok, "max_abs": d.max_abs, "reason": d.reason}
                        for d in x.diffs
                    ],
                }
                for x in self.models
            ],
        }


class _Opened(Protocol):
    """A session that knows how long its last run took."""

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]: ...

    def placement(self) -> dict[str, int]: ...

    def close(self) -> None: ...

    @property
    def open_seconds(self) -> float: ...

    @property
    def run_seconds(self) -> float: ...


class _Here:
    """A session in this process, with the same clock as those in another."""

    def __init__(self, model: str, ep: Literal["cpu", "dml"]) -> None:
        start = time.perf_counter()
        self._session = Session(model, ep=ep)
        self.open_seconds = time.perf_counter() - start
        self.run_seconds = 0.0

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        start = time.perf_counter()
        outputs = self._session.run(feeds)
        self.run_seconds = time.perf_counter() - start
        return outputs

    def placement(self) -> dict[str, int]:
        return {}

    def close(self) -> None:
        self._session.close()


def bench(
    models: Sequence[str | os.PathLike[str]],
    *,
    ep: Wanted = "auto",
    dims: Mapping[str, int] | None = None,
    other: Mapping[str, int] | None = None,
    runs: int = 10,
    tolerance: Tolerance | None = None,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Benchmark:
    """Time models side by side, and compare what they compute meanwhile.

    Args:
        models: Files; the first is what the others are compared with.
        ep: Where: ``"auto"`` is DirectML if there is one, else the CPU, and says so.
        dims: The sizes to time at, by the name of the symbolic dim.
        other: The sizes of another shape; by default three quarters of the longest dim.
        runs: How many steady runs; half as many at the other shape and back.
        tolerance: How far outputs may differ from those of the first model on the CPU.
        seed: The same seed makes the same inputs.
        progress: Called with a short text at each step.

    Raises:
        UsageError: DirectML is asked for and not to be had, or there is nothing to time.
        ModelError: The first model cannot be read.
        FeedError: No inputs could be made at these sizes.
    """
    if not models:
        raise UsageError("name at least one model to time")
    if runs < 1:
        raise UsageError(f"--runs {runs}: at least 1")
    tell = progress or (lambda _: None)
    where, other_python, note = _choose(ep)
    tell("making inputs")
    first, second = _two_cases(models[0], dims, other, seed)
    timed = [Timed(str(x)) for x in models]
    about = {"machine": _machine()}
    with ExitStack() as stack:
        opened: list[tuple[Timed, _Opened]] = []
        for one in timed:
            tell(f"loading {one.model}")
            try:
                session = _open(one.model, where, other_python)
            except ModelError as error:
                one.error = f"does not load: {error}"
                continue
            stack.callback(session.close)
            one.phases["session"].seconds.append(session.open_seconds)
            opened.append((one, session))
            if isinstance(session, runner.RemoteSession):
                about.update({k: str(v) for k, v in session.about.items() if k != "providers"})
        about.setdefault("onnxruntime", _version())
        wanted = _reference(models[0], [x for x in (first, second) if x is not None])
        job = _Rounds(opened, wanted, tolerance or Tolerance())
        tell("first run")
        job.turn(first, "first run")
        for i in range(runs):
            tell(f"steady, {i + 1}/{runs}")
            job.turn(first, "steady")
        for phase, case in (("other shape", second), ("back", first)):
            for i in range(max(2, runs // 2) if second is not None else 0):
                tell(f"{phase}, {i + 1}")
                assert case is not None
                job.turn(case, phase)
    if other_python is not None:
        for one in timed:
            if not one.error:
                tell(f"placing the nodes of {one.model}")
                one.placement = _placement(one.model, other_python, first)
    _ratios(timed, seed)
    return Benchmark(where, note, about, first.dims, {} if second is None else second.dims, timed)


def _choose(ep: Wanted) -> tuple[Literal["cpu", "dml"], runner.Runner | None, str]:
    if ep == "cpu":
        return "cpu", None, ""
    if runner.native():
        return "dml", None, ""
    try:
        return "dml", runner.find(), ""
    except UsageError as error:
        if ep == "dml":
            raise
        return "cpu", None, f"on the CPU, not on DirectML: {error}"


def _open(model: str, where: Literal["cpu", "dml"], other_python: runner.Runner | None) -> _Opened:
    if other_python is None:
        return _Here(model, where)
    if not Path(model).is_file():
        raise ModelError(f"{model}: no such file")
    return runner.RemoteSession(model, other_python)


def _placement(model: str, other_python: runner.Runner, case: Case) -> dict[str, int]:
    """In a session of its own: profiling slows the runs that it sees."""
    try:
        session = runner.RemoteSession(model, other_python, profile=True)
    except GraphfixError:
        return {}
    try:
        session.run(case.feeds)
        return session.placement()
    except RunError:
        return {}
    finally:
        session.close()


def _reference(model: str | os.PathLike[str], cases: Sequence[Case]) -> dict[str, dict[str, Array]]:
    """What the first model computes on the CPU: as exported it may crash on DirectML."""
    with Session(model, optimize=False) as session:
        return {case.name: session.run(case.feeds) for case in cases}


class _Rounds:
    """Models that are run in turns."""

    def __init__(
        self,
        opened: list[tuple[Timed, _Opened]],
        wanted: Mapping[str, dict[str, Array]],
        tolerance: Tolerance,
    ) -> None:
        self._opened, self._wanted, self._tolerance = opened, wanted, tolerance
        self._turn = 0

    def turn(self, case: Case, phase: str) -> None:
        """Run each model once; who begins changes from turn to turn."""
        running = [x for x in self._opened if not x[0].error]
        shift = self._turn % len(running) if running else 0
        self._turn += 1
        outputs: dict[int, dict[str, Array]] = {}
        for one, session in running[shift:] + running[:shift]:
            try:
                outputs[id(one)] = session.run(case.feeds)
            except RunError as error:
                one.error = f"does not run, in phase {phase!r}: {error}"
                continue
            one.phases[phase].seconds.append(session.run_seconds)
        self._compare(outputs, case, running)

    def _compare(
        self,
        outputs: dict[int, dict[str, Array]],
        case: Case,
        running: list[tuple[Timed, _Opened]],
    ) -> None:
        for one, _ in running:
            mine = outputs.get(id(one))
            if mine is None:
                continue
            for name, array in self._wanted[case.name].items():
                if name in mine:
                    diff = compare(name, case.name, array, mine[name], self._tolerance)
                else:
                    diff = OutputDiff(name, case.name, ok=False, reason="is missing")
                self._keep(one, diff)

    @staticmethod
    def _keep(one: Timed, diff: OutputDiff) -> None:
        """The worst of each output and shape is enough."""
        for i, known in enumerate(one.diffs):
            if (known.output, known.case) == (diff.output, diff.case):
                if (not diff.ok, diff.max_abs) > (not known.ok, known.max_abs):
                    one.diffs[i] = diff
                return
        one.diffs.append(diff)


def _two_cases(
    model: str | os.PathLike[str],
    dims: Mapping[str, int] | None,
    other: Mapping[str, int] | None,
    seed: int,
) -> tuple[Case, Case | None]:
    """The inputs to time at, and those of another shape if the model takes one."""
    given = {name: [size] for name, size in (dims or {}).items()}
    cases = make_cases(model, dims=given, seed=seed)
    # One row, as in use, and as long as the model takes it among what was tried.
    first = min(cases, key=lambda c: (_rows(c), c.ragged, -sum(c.dims.values())))
    if other:
        sizes = {**{n: [s] for n, s in first.dims.items()}, **{n: [s] for n, s in other.items()}}
        return first, _exactly(model, sizes, seed)
    shorter = [c for c in cases if _shapes(c) != _shapes(first) and not c.ragged]
    if shorter:
        return first, max(shorter, key=lambda c: (-_rows(c), sum(c.dims.values())))
    if not first.dims:
        return first, None
    longest = max(first.dims, key=lambda n: first.dims[n])
    smaller = max(1, first.dims[longest] * 3 // 4)
    sizes = {**{n: [s] for n, s in first.dims.items()}, longest: [smaller]}
    try:
        second = _exactly(model, sizes, seed)
    except FeedError:
        return first, None  # a model of one size
    return first, second if _shapes(second) != _shapes(first) else None


def _exactly(model: str | os.PathLike[str], sizes: Mapping[str, Sequence[int]], seed: int) -> Case:
    cases = make_cases(model, dims=sizes, seed=seed)
    return min(cases, key=lambda c: (_rows(c), c.ragged))


def _rows(case: Case) -> int:
    return min((x.shape[0] for x in case.feeds.values() if x.ndim), default=1)


def _shapes(case: Case) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in case.feeds.items()}


def _ratios(timed: Sequence[Timed], seed: int) -> None:
    """How long each takes, as a multiple of the first; turns are resampled whole."""
    base = np.asarray(timed[0].phases["steady"].seconds)
    rng = np.random.default_rng(seed)
    for one in timed[1:]:
        own = np.asarray(one.phases["steady"].seconds)
        if one.error or timed[0].error or not len(own) or len(own) != len(base):
            continue
        picks = rng.integers(0, len(base), (_RESAMPLES, len(base)))
        ratios = np.median(own[picks], axis=1) / np.median(base[picks], axis=1)
        low, high = np.percentile(ratios, (2.5, 97.5))
        one.ratio = float(np.median(own) / np.median(base))
        one.interval = (float(low), float(high))


def _version() -> str:
    import onnxruntime

    return str(onnxruntime.__version__)


def _machine() -> str:
    import platform

    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors"
