"""What was done to one model, as data: the terminal, the JSON and the page are made from it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TypedDict

from graphfix.core import Change, Finding, Safety, together
from graphfix.probing.padded import PaddedVerdict
from graphfix.proof.verdict import Verdict
from graphfix.version import __version__
from graphfix.wording import Proof, Row, plural, reasons, row_lines, wrapped

SCHEMA = 1
# Two passes that undo each other would take turns forever; so many are enough for a chain.
ROUNDS = 5

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

    def row(self, *, verbose: bool = False) -> Row:
        """What was left out, or done in another way, and why."""
        shown = self.at if verbose else self.at[:2]
        more = f" and {len(self.at) - len(shown)} more (-v)" if len(self.at) > len(shown) else ""
        places = f" at {', '.join(shown)}{more}" if shown else ""
        if self.instead:
            return Row("instead", f"{self.instead}{places}: with {self.by} {self.why}", "yellow")
        if self.raised:
            return Row("left out", f"{self.why}; what it did was rolled back", "yellow")
        return Row("left out", f"{self.by}{places}: with it {self.why}", "yellow")


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
        kernels: The kernels per run on DirectML before and after, as predicted
            (:func:`graphfix.job.planning.kernels`), or None if they were not counted.
        directml: What ``graphfix check`` finds before and after
            (:meth:`graphfix.job.remaining_findings.Checked.to_json`), or None with ``kernels``.
        padded: What the padded check of a model that was told of valid lengths found, or None.
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
    verdict: Verdict | None = field(default=None)
    memory: dict[str, int | None] | None = field(default=None)
    padded: PaddedVerdict | None = field(default=None)
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
        return all(x is None or x.ok for x in (self.verdict, self.padded))

    @property
    def title(self) -> str:
        """Which model, and what became of it."""
        if self.source is None:
            return "a model in memory"
        same = "" if self.changed else " (an identical graph)"
        nothing = "nothing, a dry run" if self.verdict is None else "nothing was written"
        return f"{self.source} -> {f'{self.output}{same}' if self.output else nothing}"

    @property
    def answer(self) -> str:
        """Whether it is right, in a few words."""
        if self.verdict is None:
            return "Not verified" if self.changed else "No automatic repair"
        if not self.ok:
            fault = "is not safe to pad" if self.verdict else "does not compute the same"
            return f"Failed: the repaired model {fault}"
        if "top-1" in str(self.verdict):
            return "Rounded to float16, within what that pass promises"
        if self.left:
            return "Repaired except bad places, and it computes the same"
        return "Repaired, and it computes the same" if self.changed else "No automatic repair"

    @property
    def line(self) -> str:
        """Whether it is right, and what became of which model."""
        return f"{self.answer}: {self.title}"

    @property
    def near_misses(self) -> list[tuple[str, str]]:
        """Places that were skipped, and why: if nothing else was done, or a pass rounds."""
        return [x for y in self.passes if not self.changed or y.advice for x in y.skips]

    def rows(self, *, verbose: bool = False) -> list[Row]:
        """What DirectML does, kernels, numbers, repairs, and what was skipped."""
        found = []
        if self.worse:
            text = f"on DirectML than the original, predicted: {self.worse}"
            found.append(Row("worse", text, "yellow"))
        if self.directml is not None:
            failing = self.directml["after"]["error"]
            found.append(Row("DirectML", self.on_directml, "red" if failing else ""))
        if self.kernels is not None:
            found.append(Row("kernels", _kernels(self.kernels, verbose=verbose)))
        if self.verdict is not None:
            found += self.verdict.rows(verbose=verbose)
        elif self.output is not None:
            found.append(Row("numbers", "not compared, as asked (--no-verify)", "yellow"))
        if self.padded is not None:
            found.append(Row("padded", str(self.padded), "green" if self.padded else "red"))
        made: Counter[str] = Counter()
        for one in self.passes:
            made[one.name] += len(one.changes)
        told = ", ".join(f"{n} {name}" for name, n in made.most_common() if n)
        text = f"{made.total()}: {told}" if told else "none needed"
        found.append(Row("repairs", text, "" if told else "green"))
        found += [x.row(verbose=verbose) for x in self.left]
        if self.searched:
            found.append(Row("searched", self.searched))
        found += endless_row(self.endless)
        if (count := sum(len(x.skips) for x in self.passes)) and not verbose:
            more = "" if len(self.near_misses) == count else " (-v lists each with its reason)"
            found.append(Row("skipped", f"{plural(count, 'place')}{more}"))
        return found

    def __str__(self) -> str:
        found = [line for row in self.rows() for line in row_lines(row)]
        return "\n".join([*wrapped(self.title), *found, *self.skipped()])

    def skipped(self) -> Iterable[str]:
        """The commonest reasons of :attr:`near_misses`, as lines."""
        return reasons(self.near_misses, every=False, indent=" " * 12, most=3, alike=True)

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
        before = _runs(self.directml["before"], self.directml["had"])
        after = _runs(self.directml["after"], self.directml["left"])
        return f"{after if before == after else f'{before} -> {after}'}, predicted"

    def to_json(self) -> dict[str, object]:
        """The report as plain data; ``schema`` grows when a field changes its meaning."""
        proofs = {"verdict": self.verdict, "padded": self.padded}
        bare = replace(self, verdict=None, padded=None)
        data = {"schema": SCHEMA, "graphfix": __version__, **asdict(bare)}
        data |= {name: None if x is None else x.to_json() for name, x in proofs.items()}
        return {**data, "answer": self.answer, "worse": self.worse}


def endless_row(passes: Iterable[str]) -> list[Row]:
    """Which passes were stopped in the middle of it, if any were."""
    if not (names := list(dict.fromkeys(passes))):
        return []
    text = f"{' and '.join(names)} still changed something after {ROUNDS} rounds and were "
    text += "stopped: if they undo each other, leave one of them out; else run again"
    return [Row("unsettled", text, "yellow")]


def _kernels(counted: Kernels, *, verbose: bool) -> str:
    """``181 -> 145 per run, recompiled at a new length 160 -> 142``."""
    before, after = counted["before"] or {}, counted["after"] or {}

    def pair(key: str) -> str:
        return f"{before.get(key, '?')} -> {after.get(key, '?')}"

    where = f" ({pair('directml')} on DirectML, {pair('cpu')} on the CPU)" if verbose else ""
    return f"{pair('all')} per run{where}, recompiled at a new length {pair('remade')}"


def _runs(counts: dict[str, int], found: Sequence[dict[str, str]]) -> str:
    """Whether a model runs on DirectML by what was found; with the first error."""
    first = next((x for x in found if x["severity"] == "error"), None)
    if first is None:
        return "runs"
    errors = plural(counts["error"], "error")
    return f"does not run correctly ({errors}: {first['rule']} at {first['at']})"
