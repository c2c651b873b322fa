"""What was done to one model, as data for the terminal, the JSON and the page."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TypedDict

from graphfix.core import Change, Finding, Safety, weakest_promise
from graphfix.probing.padded import PaddedVerdict
from graphfix.proof.verdict import Verdict
from graphfix.providers.table import PROVIDERS, DeviceEp
from graphfix.version import __version__
from graphfix.wording import Proof, Row, kernels_text, plural, reason_lines, row_lines, wrap_text

SCHEMA = 1
# Two passes that undo each other would never end; this many rounds are enough for a chain.
ROUNDS = 5

Kernels = dict[str, dict[str, int] | None]
"""``before`` and ``after``: all kernels per run, those on the provider and on the CPU, the copies
between them, and how many are recompiled at another length; None for a model that ONNX Runtime
does not load."""


class Hazards(TypedDict):
    """Errors and warnings before and after, each error before and each finding after."""

    before: dict[str, int]
    after: dict[str, int]
    had: list[dict[str, str]]
    left: list[dict[str, str]]


@dataclass(frozen=True)
class PassReport:
    """What one pass did: its repairs, its near misses with their reasons, its findings.

    ``advice`` is what to try if the repaired model computes something else. ``left`` is the reason
    why the pass was not run at all, or empty.
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
class FailedRepair:
    """A repair that was wrong at some sites, and what was done instead.

    Attributes:
        by: The pass as ``-p`` takes it.
        at: The paths of the nodes that it skips; empty if it was not run at all.
        why: What was wrong.
        instead: The pass that repairs them in its place, as ``-p`` takes it, or "".
        raised: Whether the pass raised, and was rolled back.
        costs: Whether nothing was wrong, but a run takes more kernels with the pass.
    """

    by: str
    at: tuple[str, ...]
    why: str
    instead: str = ""
    raised: bool = False
    costs: bool = False

    def row(self, *, verbose: bool = False) -> Row:
        """Return a row that says what was skipped or done in another way, and why."""
        shown = self.at if verbose else self.at[:2]
        more = f" and {len(self.at) - len(shown)} more (-v)" if len(self.at) > len(shown) else ""
        places = f" at {', '.join(shown)}{more}" if shown else ""
        if self.instead:
            return Row("instead", f"{self.instead}{places}: with {self.by} {self.why}", "yellow")
        if self.raised:
            return Row("left out", f"{self.why}; what it did was rolled back", "yellow")
        return Row("left out", f"{self.by}{places}: with it {self.why}", "yellow")


@dataclass(frozen=True)
class CostlyPass:
    """A pass with which a run takes more than with the original, and which stays.

    Attributes:
        by: The pass as ``-p`` takes it.
        why: What a run takes with it, and why it stays.
    """

    by: str
    why: str

    @property
    def row(self) -> Row:
        """Return a row that says what the pass costs."""
        return Row("kept", f"{self.by}: with it a run takes {self.why}")


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
        verdict: What verification found, or None.
        ep: The provider that is predicted: DirectML unless the model was proved on another that
            graphfix knows.
        provider: What it is called, with its version if one was named.
        kernels: The kernels per run there before and after, as predicted
            (:func:`graphfix.job.planning.count_kernels`), or None if they were not counted.
        hazards: What ``graphfix check`` finds before and after, as
            :meth:`graphfix.job.remaining_findings.HazardComparison.to_json` has it, or None if
            kernels were not counted.
        padded: The result of the padded check, of a model that got an input of lengths, or None.
        memory: What verification was expected to need, in bytes
            (:meth:`graphfix.runtime.memory_need.MemoryNeed.to_json`), or None if nothing was run.
        left: The bad places: repairs that were skipped or replaced because the verdict failed, or
            because a run takes more kernels with them.
        kept: The passes that raise a count of kernels above the original's, and stay.
        searched: The result of the search for bad places, in a sentence; "" if there was none.
        met: Whether the float16 result met its gate in all cases of its search; None without one.
        endless: Passes that were stopped while they still changed something, as ``-p`` takes them:
            each undoes what another does, or a further run would go on.
    """

    spec: str
    passes: tuple[PassReport, ...]
    ops_before: dict[str, int]
    ops_after: dict[str, int]
    source: str | None = None
    output: str | None = None
    verdict: Verdict | None = field(default=None)
    memory: dict[str, int | None] | None = field(default=None)
    padded: PaddedVerdict | None = field(default=None)
    ep: DeviceEp = "dml"
    provider: str = PROVIDERS["dml"].label
    kernels: Kernels | None = field(default=None)
    hazards: Hazards | None = field(default=None)
    left: tuple[FailedRepair, ...] = ()
    kept: tuple[CostlyPass, ...] = ()
    searched: str = ""
    met: bool | None = None
    endless: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Return whether any repair was made."""
        return any(p.changes for p in self.passes)

    @property
    def safety(self) -> Safety:
        """Return the weakest promise among the passes that changed something."""
        return weakest_promise(p.safety for p in self.passes if p.changes)

    @property
    def ok(self) -> bool:
        """Return whether nothing failed: verified, or not asked to verify."""
        return all(x is None or x.ok for x in (self.verdict, self.padded))

    @property
    def title(self) -> str:
        """Return which model was repaired, and what became of it."""
        if self.source is None:
            return "a model in memory"
        same = "" if self.changed else " (an identical graph)"
        nothing = "nothing, a dry run" if self.verdict is None else "nothing was written"
        return f"{self.source} -> {f'{self.output}{same}' if self.output else nothing}"

    @property
    def answer(self) -> str:
        """Return whether the repair is right, in a few words."""
        if self.verdict is None:
            return "Not verified" if self.changed else "No automatic repair"
        if not self.ok:
            fault = "is not safe to pad" if self.verdict else "does not compute the same"
            return f"Failed: the repaired model {fault}"
        if "top-1" in str(self.verdict):
            return "Rounded to float16, within what that pass promises"
        if not all(x.costs for x in self.left):
            return "Repaired except bad places, and it computes the same"
        return "Repaired, and it computes the same" if self.changed else "No automatic repair"

    @property
    def line(self) -> str:
        """Return the answer and the title in one line."""
        return f"{self.answer}: {self.title}"

    @property
    def near_misses(self) -> list[tuple[str, str]]:
        """Return skipped places and why, if nothing else was done or the pass has advice."""
        return [x for y in self.passes if not self.changed or y.advice for x in y.skips]

    def rows(self, *, verbose: bool = False) -> list[Row]:
        """Return rows on the provider, kernels, numbers, repairs, and skipped places."""
        rows = self._provider_rows()
        if self.verdict is not None:
            rows += self.verdict.rows(verbose=verbose)
        elif self.output is not None:
            rows.append(Row("numbers", "not compared, as asked (--no-verify)", "yellow"))
        if self.padded is not None:
            rows.append(Row("padded", str(self.padded), "green" if self.padded else "red"))
        rows.append(self._repairs_row())
        rows += [x.row(verbose=verbose) for x in self.left]
        rows += [x.row for x in self.kept]
        if self.searched:
            rows.append(Row("searched", self.searched))
        rows += endless_rows(self.endless)
        skip_count = sum(len(x.skips) for x in self.passes)
        if skip_count and not verbose:
            more = "" if len(self.near_misses) == skip_count else " (-v lists each with its reason)"
            rows.append(Row("skipped", f"{plural(skip_count, 'place')}{more}"))
        return rows

    def _provider_rows(self) -> list[Row]:
        """Return what is predicted for the provider; first what is worse than in the original."""
        rows = []
        if self.worse:
            text = f"on {self.provider} than the original, predicted: {self.worse}"
            rows.append(Row("worse", text, "yellow"))
        if self.hazards is not None:
            failing, label = self.hazards["after"]["error"], PROVIDERS[self.ep].label
            version = self.provider.removeprefix(label)
            text = self.on_provider + (f" for{version}" if version else "")
            rows.append(Row(label, text, "red" if failing else ""))
        if self.kernels is not None:
            before, after = (self.kernels[x] or {} for x in ("before", "after"))
            last = "recompiled" if PROVIDERS[self.ep].recompiles else "copies"
            rows.append(Row("kernels", kernels_text(before, after, PROVIDERS[self.ep].label, last)))
        return rows

    def _repairs_row(self) -> Row:
        """Return how many repairs each pass made."""
        counts: Counter[str] = Counter()
        for report in self.passes:
            counts[report.name] += len(report.changes)
        if not counts.total():
            return Row("repairs", "none needed", "green")
        by_pass = ", ".join(f"{n} {name}" for name, n in counts.most_common() if n)
        return Row("repairs", f"{counts.total()}: {by_pass}")

    def __str__(self) -> str:
        lines = [line for row in self.rows() for line in row_lines(row)]
        return "\n".join([*wrap_text(self.title), *lines, *self.skipped()])

    def skipped(self) -> Iterable[str]:
        """Return the commonest reasons of :attr:`near_misses`, as lines."""
        return reason_lines(self.near_misses, every=False, indent=" " * 12, most=3, alike=True)

    @property
    def worse(self) -> str:
        """Return what the provider has more of than with the original, or an empty string.

        More kernels are not worse than an error: an original with one does not run right.
        """
        counts = []
        repairs_error = False
        if self.hazards is not None:
            errors = (self.hazards["before"]["error"], self.hazards["after"]["error"])
            counts.append(("errors", *errors))
            repairs_error = errors[1] < errors[0]
        before, after = (self.kernels or {}).get("before"), (self.kernels or {}).get("after")
        if before and after and not repairs_error:
            counts.append(("kernels", before["all"], after["all"]))
            counts.append(("recompiled per new length", before["recompiled"], after["recompiled"]))
        return ", ".join(f"{kind} {a} -> {b}" for kind, a, b in counts if b > a)

    @property
    def on_provider(self) -> str:
        """Return what ``graphfix check`` says of the result, or an empty string if not asked."""
        if self.hazards is None:
            return ""
        before = _hazards_text(self.hazards["before"], self.hazards["had"])
        after = _hazards_text(self.hazards["after"], self.hazards["left"])
        return f"{after if before == after else f'{before} -> {after}'}, predicted"

    def to_json(self) -> dict[str, object]:
        """Return the report as plain data; ``schema`` grows when a field changes its meaning."""
        proofs = {"verdict": self.verdict, "padded": self.padded}
        bare = replace(self, verdict=None, padded=None)
        data = {"schema": SCHEMA, "graphfix": __version__, **asdict(bare)}
        data |= {name: None if x is None else x.to_json() for name, x in proofs.items()}
        return {**data, "answer": self.answer, "worse": self.worse}


def endless_rows(passes: Iterable[str]) -> list[Row]:
    """Return a row that names the passes that were stopped, or none."""
    if not (names := list(dict.fromkeys(passes))):
        return []
    text = f"{' and '.join(names)} still changed something after {ROUNDS} rounds and were "
    text += "stopped: if they undo each other, leave one of them out; else run again"
    return [Row("unsettled", text, "yellow")]


def _hazards_text(counts: dict[str, int], findings: Sequence[dict[str, str]]) -> str:
    """Return whether a model runs on the provider, by its findings, with the first error."""
    first = next((x for x in findings if x["severity"] == "error"), None)
    if first is None:
        return "runs"
    errors = plural(counts["error"], "error")
    return f"does not run correctly ({errors}: {first['rule']} at {first['at']})"
