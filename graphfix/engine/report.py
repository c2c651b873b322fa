"""What was done to one model, as data: the terminal, the JSON and the page are made from it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from graphfix.core import together
from graphfix.version import __version__

if TYPE_CHECKING:
    from graphfix.core import Change, Finding, Safety

SCHEMA = 1

Kernels = dict[str, dict[str, int] | None]
"""``before`` and ``after``: all kernels of a run, those on DirectML and on the CPU, and how many
are made anew at another length; None for a model that ONNX Runtime does not load."""


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
        raised: Whether the pass raised, and what it did was put back.
    """

    by: str
    at: tuple[str, ...]
    why: str
    instead: str = ""
    raised: bool = False


@dataclass(frozen=True)
class Report:
    """A run over one model.

    Attributes:
        spec: The pipeline as text; ``-p`` takes it.
        passes: What each pass did, in order.
        ops_before: Nodes by operator before.
        ops_after: Nodes by operator after.
        source: The input file, if there was one.
        output: The file that was written, or None.
        verdict: What verification found (:meth:`graphfix.proof.verdict.Verdict.to_json`), or None.
        plan: What DirectML does before and after (:func:`graphfix.job.planning.glance`), or None.
        kernels: The kernels of a run on DirectML before and after, as foreseen
            (:func:`graphfix.job.planning.kernels`), or None if they were not counted.
        padded: What the padded check of a model that was told of valid lengths found
            (:meth:`graphfix.probing.padded.PaddedVerdict.to_json`), or None.
        memory: What verification was expected to need, in bytes
            (:meth:`graphfix.runtime.memory_need.Need.to_json`), or None if nothing was run.
        left: The bad places: what was left out, or done in another way, since the verdict failed.
        searched: What came of the search for bad places, in a sentence; "" if there was none.
        elsewhere: Passes that found nothing when their turn came, though they would have before:
            how many of their places each pass before them repaired. Empty if it was not counted.
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
    plan: dict[str, object] | None = field(default=None)
    memory: dict[str, int | None] | None = field(default=None)
    padded: dict[str, object] | None = field(default=None)
    kernels: Kernels | None = field(default=None)
    left: tuple[Left, ...] = ()
    searched: str = ""
    elsewhere: dict[str, dict[str, int]] = field(default_factory=dict)
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

    def to_json(self) -> dict[str, object]:
        """The report as plain data; ``schema`` grows when a field changes its meaning."""
        return {"schema": SCHEMA, "graphfix": __version__, **dataclasses.asdict(self)}
