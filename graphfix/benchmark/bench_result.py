"""The result of a benchmark: times, ratios, placement, memory and differences."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from graphfix.benchmark.timing import Claim, Ratio, Timing
from graphfix.proof.compare import OutputDiff
from graphfix.providers.table import PROVIDERS, Ep
from graphfix.runtime.profiling import NodePlacement
from graphfix.wording import Proof

SESSION, FIRST, NEW_LENGTH, STEADY = "session", "first run", "new length", "steady"
MEMORY, OTHER, BACK = "memory", "other shape", "back"
PHASES = (SESSION, FIRST, NEW_LENGTH, STEADY, OTHER, BACK)
"""Making a session; its first run; the first run at another shape; steady runs at the first shape;
runs at the other one, each time; and back."""
FIGURES = (FIRST, NEW_LENGTH, STEADY, MEMORY)
"""The four that users ask for; the last is the peak of each process, in bytes."""
# What JSON says of how an output differs.
_DIFF_FIELDS = ("output", "case", "ok", "max_abs", "reason")
AS_IT_IS = "any shape"
FIXED = "fixed dims"


@dataclass(frozen=True)
class Setup:
    """A way to create the sessions.

    Attributes:
        name: ``"any shape"``, or ``"fixed dims"``, by free-dimension overrides.
        dims: The sizes that it is timed at, by symbolic dim.
        other: Those of the other shape; empty if it takes one shape only.
        fixed: Whether the dims are fixed when the session is made.
    """

    name: str
    dims: dict[str, int]
    other: dict[str, int] = field(default_factory=dict)
    fixed: bool = False


@dataclass(frozen=True)
class Observations:
    """What an untimed run of one model in one setup showed.

    Attributes:
        diffs: How its outputs differ from the first model's on the CPU; the worst of each output
            and shape over all runs.
        placed: Where each node ran.
        read_back: How many bytes the outputs of a run at the first shape have.
    """

    diffs: tuple[OutputDiff, ...] = ()
    placed: NodePlacement = field(default_factory=NodePlacement)
    read_back: int = 0


@dataclass(frozen=True)
class Result:
    """One model in one setup.

    Attributes:
        phases: What was timed, by phase.
        claims: What is said of it beside the first model, by phase, and of its memory; {} for the
            first model.
        copy: How many times as long as itself the first model took, by phase; {} for the others.
        seen: What was seen of it.
        error: Why it could not be timed; empty if it was.
        memory: The peak memory of each process that was timed, in bytes; empty if unavailable.
    """

    phases: Mapping[str, Timing] = field(default_factory=dict)
    claims: Mapping[str, Claim] = field(default_factory=dict)
    copy: Mapping[str, Ratio] = field(default_factory=dict)
    seen: Observations = field(default_factory=Observations)
    error: str = ""
    memory: tuple[float, ...] = ()

    @property
    def failure(self) -> str:
        """Return why it failed, in one sentence: an error or an output that differs; or ""."""
        bad = (f"output {d.output!r} {d.reason}, at {d.case}" for d in self.seen.diffs if not d.ok)
        return self.error or next(bad, "")

    @property
    def peak_memory(self) -> int | None:
        """Return the median of the peak memory of its processes, in bytes; None if unavailable."""
        return int(np.median(self.memory)) if self.memory else None

    def timing_of(self, phase: str) -> Timing:
        """Return the timing of a phase."""
        return self.phases.get(phase, Timing())

    def to_json(self) -> dict[str, object]:
        """Return the result as plain data for JSON."""
        return {
            "ok": not self.failure,
            "error": self.error,
            "phases": {name: self.timing_of(name).to_json() for name in PHASES},
            "ratios": {name: claim.to_json() for name, claim in self.claims.items()},
            "copy": {name: ratio.to_json() for name, ratio in self.copy.items()},
            "placement": self.seen.placed.to_json(),
            "peak_memory_bytes": self.peak_memory,
            "read_back_bytes": self.seen.read_back,
            "outputs": [{x: getattr(d, x) for x in _DIFF_FIELDS} for d in self.seen.diffs],
        }


@dataclass(frozen=True)
class Timed:
    """One model of a benchmark, with its results.

    Attributes:
        model: Its file.
        results: What was found in each setup, by its name.
        notes: What a reader should know, such as that it takes one shape only.
        ep: The execution provider that it ran on.
    """

    model: str
    results: Mapping[str, Result] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    ep: Ep = "cpu"

    @property
    def _first_result(self) -> Result:
        return next(iter(self.results.values()), Result())

    @property
    def phases(self) -> Mapping[str, Timing]:
        """Return the timings by phase, with any shape."""
        return self._first_result.phases

    @property
    def claim(self) -> Claim | None:
        """Return how its steady runs compare with those of the first model, with any shape."""
        return self._first_result.claims.get(STEADY)

    @property
    def diffs(self) -> list[OutputDiff]:
        """Return how its outputs differ from the first model's on the CPU, in all setups."""
        return [d for result in self.results.values() for d in result.seen.diffs]

    @property
    def error(self) -> str:
        """Return why it could not be timed in some setup; empty if it was in all."""
        return next((x.error for x in self.results.values() if x.error), "")

    @property
    def ok(self) -> bool:
        """Return whether it ran in all setups, and agreed with the first model on the CPU."""
        return not any(x.failure for x in self.results.values())

    def to_json(self) -> dict[str, object]:
        """Return the result as plain data for JSON."""
        setups = {name: result.to_json() for name, result in self.results.items()}
        return {
            "model": self.model,
            "ep": self.ep,
            "ok": self.ok,
            "notes": list(self.notes),
            "setups": setups,
        }


@dataclass(frozen=True, repr=False)
class Benchmark(Proof):
    """The result of timing models side by side.

    Attributes:
        ep: The execution provider that all of it ran on; of several the first.
        note: Why it is not the one that was asked for; empty if it is.
        about: Versions, the adapter, the driver, the clock and the machine, of that provider.
        setups: How sessions were made, and at which sizes.
        models: The models; of several providers, each model on each of them.
        also: The other providers, each with what :attr:`about` says of the first.
        missing: The providers that are unavailable here, each with the reason.
    """

    ep: Ep
    note: str
    about: dict[str, str]
    setups: tuple[Setup, ...]
    models: tuple[Timed, ...]
    also: Mapping[Ep, dict[str, str]] = field(default_factory=dict)
    missing: Mapping[Ep, str] = field(default_factory=dict)

    def __str__(self) -> str:
        failed = [self.name_of(x) for x in self.models if not x.ok]
        verdict = f"failed: {', '.join(failed)}" if failed else "all compute the same"
        names = ", ".join(dict.fromkeys(x.model for x in self.models))
        return f"{names} on {', '.join(self.providers)}; {verdict}"

    @property
    def providers(self) -> tuple[Ep, ...]:
        """Return the providers that the models ran on."""
        return (self.ep, *self.also)

    def name_of(self, model: Timed) -> str:
        """Return the file of a model, with its provider if there are several."""
        return f"{model.model} on {PROVIDERS[model.ep].label}" if self.also else model.model

    @property
    def dims(self) -> dict[str, int]:
        """Return the sizes of the first shape."""
        return self.setups[0].dims

    @property
    def other(self) -> dict[str, int]:
        """Return the sizes of the other shape; empty if the model has only one."""
        return self.setups[0].other

    @property
    def ok(self) -> bool:
        """Return whether all models ran, and compute the same."""
        return all(x.ok for x in self.models)

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain data that ``json`` can write."""
        return {
            "schema": 2,
            "ok": self.ok,
            "ep": self.ep,
            "note": self.note,
            "about": self.about,
            "also": dict(self.also),
            "missing": dict(self.missing),
            "dims": self.dims,
            "other": self.other,
            "setups": [asdict(x) for x in self.setups],
            "models": [x.to_json() for x in self.models],
        }
