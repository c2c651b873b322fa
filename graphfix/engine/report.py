"""What was done to one model, as data: the terminal, the JSON and the page are made from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from graphfix.core import Change, Finding, Safety, together
from graphfix.version import __version__
from graphfix.wording import Proof, plural

SCHEMA = 1

Kernels = dict[str, dict[str, int] | None]
"""``before`` and ``after``: all kernels per run, those on DirectML and on the CPU, and how many
are recompiled at another length; None for a model that ONNX Runtime does not load."""


class Hazards(TypedDict):
    """Errors and warnings before and after, each error before and each finding after."""

    before: dict[str, int]
    after: dict[str, int]
    had: list[dict[str, str]]
    left: list[dict[str, str]]


@dataclass(frozen=True)
class PassReport:
    """What one pass did: its repairs, its near misses with their reasons, its findings.

    ``advice`` is what to try if the repaired model turns out to compute something else. ``left`` is
    why the pass was not run at all, if it was not.
    """

    name: str
    spec: str
    safety: Safety
    changes: tuple[Change, ...] = ()
    skips: tuple[tuple[str, str], ...] = ()
    findings: tuple[Finding, ...] = ()
    seconds: float = 0.0
    advice: str = ""
    left: str = ""


@dataclass(frozen=True)
class Left:
    """A bad place: what a pass would have repaired wrongly, and what was done about it.

    Attributes:
        by: The pass as ``-p`` takes it.
        at: The paths of the nodes that it leaves alone; none if it was not run at all.
        why: What was found.
        instead: The pass that repairs them in its place, as ``-p`` takes it, or "".
        raised: Whether the pass raised, and what it did was rolled back.
    """

    by: str
    at: tuple[str, ...]
    why: str
    instead: str = ""
    raised: bool = False


@dataclass(frozen=True, repr=False)
class Report(Proof):
    """A run over one model; true if nothing failed.

    Attributes:
        spec: The pipeline as text; ``-p`` takes it.
        passes: What each pass did, in order.
        ops_before: Nodes by operator before.
        ops_after: Nodes by operator after.
        source: The input file, if there was one.
        output: The file that was written, or None.
        verdict: What verification found (:meth:`graphfix.proof.verdict.Verdict.to_json`), or None.
        kernels: The kernels per run on DirectML before and after, as predicted
            (:func:`graphfix.job.planning.kernels`), or None if they were not counted.
        directml: What ``graphfix check`` finds before and after
            (:meth:`graphfix.job.remaining_findings.Checked.to_json`), or None with ``kernels``.
        padded: What the padded check of a model that was told of valid lengths found
            (:meth:`graphfix.probing.padded.PaddedVerdict.to_json`), or None.
        memory: What verification was expected to need, in bytes
            (:meth:`graphfix.runtime.memory_need.Need.to_json`), or None if nothing was run.
        left: The bad places: what was left out, or done in another way, since the verdict failed.
        searched: What came of the search for bad places, in a sentence; "" if there was none.
        met: Whether what was made float16 met its aim in all cases that were searched; None if that
            was not tried.
        endless: Passes that were stopped while they still changed something, as ``-p`` takes them:
            each undoes what another does, or a further run would go on.
    """

    spec: str
    passes: tuple[PassReport, ...]
    ops_before: dict[str, int]
    ops_after: dict[str, int]
    source: str | None = None
    output: str | None = None
    verdict: dict[str, object] | None = field(default=None)
    memory: dict[str, int | None] | None = field(default=None)
    padded: dict[str, object] | None = field(default=None)
    kernels: Kernels | None = field(default=None)
    directml: Hazards | None = field(default=None)
    left: tuple[Left, ...] = ()
    searched: str = ""
    met: bool | None = None
    endless: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether any repair was made."""
        return any(p.changes for p in self.passes)

    @property
    def safety(self) -> Safety:
        """What the passes that changed something promise together."""
        return together(p.safety for p in self.passes if p.changes)

    @property
    def ok(self) -> bool:
        """Whether nothing failed: verified, or not asked to verify."""
        return all(x is None or bool(x["ok"]) for x in (self.verdict, self.padded))

    def __str__(self) -> str:
        made = [f"{len(x.changes)} {x.name}" for x in self.passes if x.changes]
        found = [str(x["summary"]) for x in (self.verdict, self.padded) if x is not None]
        where = [f"{self.source or 'model'} -> {self.output}"] if self.output else []
        return "; ".join([*where, ", ".join(made) or "no automatic repair", *found])

    @property
    def worse(self) -> str:
        """What DirectML would have more of than with the original; "" if nothing."""
        found = []
        if self.directml is not None:
            counted = self.directml
            found.append(("errors", counted["before"]["error"], counted["after"]["error"]))
        before, after = (self.kernels or {}).get("before"), (self.kernels or {}).get("after")
        if before and after:
            found.append(("kernels", before["all"], after["all"]))
        return ", ".join(f"{what} {a} -> {b}" for what, a, b in found if b > a)

    @property
    def on_directml(self) -> str:
        """What ``graphfix check`` says of the result, in a line; "" if it was not asked."""
        if self.directml is None:
            return ""
        found = self.directml
        before = _runs(found["before"], found["had"])
        after = _runs(found["after"], found["left"])
        return f"{after if before == after else f'{before} -> {after}'}, predicted"

    def to_json(self) -> dict[str, object]:
        """The report as plain data; ``schema`` grows when a field changes its meaning."""
        data = {"schema": SCHEMA, "graphfix": __version__, **dataclasses.asdict(self)}
        return {**data, "worse": self.worse}


def _runs(counts: dict[str, int], found: Sequence[dict[str, str]]) -> str:
    """Whether a model runs on DirectML by what was found; with the first error."""
    first = next((x for x in found if x["severity"] == "error"), None)
    if first is None:
        return "runs"
    errors = plural(counts["error"], "error")
    return f"does not run correctly ({errors}: {first['rule']} at {first['at']})"
