"""What verification found, in words and as plain data."""

import math
import re
from dataclasses import dataclass, field

from graphfix.feeds.case import Dropped
from graphfix.json_types import record
from graphfix.proof.compare import OutputDiff
from graphfix.proof.first_difference import Divergence
from graphfix.spec.quoting import quoted
from graphfix.wording import Proof, Row, plural

_SIZES = re.compile(r" \d+( to \d+)?$")


@dataclass(frozen=True, repr=False)
class Verdict(Proof):
    """What verification found; false if that is bad.

    Attributes:
        ok: Whether every output of every case is within the tolerance.
        cases: The difference of each output, by case.
        dropped: Cases that the original cannot run, with ONNX Runtime's reason.
        dims: The size of each symbolic dim of the inputs, by case.
        reason: Why it is bad besides what differs in a case: the repaired model does not load or
            run, its interface is another, or an output was never known.
        covered: Sizes that were tried, and conditions on the inputs that held in some case.
        not_tried: What was not tried: larger sizes, conditions that held in no case.
        notes: What a reader should know: rows excluded from the comparison, and the like.
        first_divergence: Where the two part, if they do and it was searched.
    """

    ok: bool
    cases: dict[str, tuple[OutputDiff, ...]]
    dropped: tuple[Dropped, ...] = ()
    reason: str = ""
    notes: tuple[str, ...] = ()
    first_divergence: Divergence | None = None
    dims: dict[str, dict[str, int]] = field(default_factory=dict)
    covered: tuple[str, ...] = ()
    not_tried: tuple[str, ...] = ()

    @property
    def worst(self) -> OutputDiff | None:
        """The output that is furthest from the original, failed ones first; None without any."""
        diffs = [d for found in self.cases.values() for d in found]
        return max(diffs, key=lambda d: (not d.ok, d.badness, d.max_abs), default=None)

    @property
    def failed(self) -> list[str]:
        """The cases in which an output differs by more than is allowed."""
        return [name for name, diffs in self.cases.items() if not all(d.ok for d in diffs)]

    def to_json(self) -> dict[str, object]:
        """The verdict as plain data that ``json`` can write; NaN and infinity become text."""
        found = {
            "ok": self.ok,
            "summary": str(self),
            "reason": self.reason,
            "worst": self.worst,
            "first_divergence": self.first_divergence,
            "cases": [
                {"name": name, "dims": self.dims.get(name, {}), "outputs": diffs}
                for name, diffs in self.cases.items()
            ],
            "dropped": [{"name": x.name, "reason": x.reason} for x in self.dropped],
            "notes": self.notes,
            "covered": self.covered,
            "not_tried": self.not_tried,
        }
        return record(found)

    @property
    def headline(self) -> str:
        """The answer."""
        return "Computes the same" if self.ok else "Does not compute the same"

    @property
    def sizes(self) -> list[str]:
        """What of ``covered`` are sizes of dims."""
        dims = {quoted(name) for found in self.dims.values() for name in found}
        return [x for x in self.covered if _SIZES.sub("", x) in dims]

    def rows(self, *, verbose: bool = False) -> list[Row]:
        """What was compared, the worst of it, and what was not tried."""
        sizes = self.sizes if self.ok else ()
        tried = f" ({', '.join(sizes)})" if sizes else ""
        summary, more = str(self).rstrip("."), "" if verbose else " (-v)"
        found = [Row("numbers", summary + tried, "green" if self.ok else "red")]
        if self.not_tried:
            found.append(Row("not tried", f"{', '.join(self.not_tried)} (--dims)"))
        if self.dropped:
            count = plural(len(self.dropped), "case")
            found.append(Row("dropped", f"{count} that the original cannot run{more}"))
        found += [Row("note", x) for x in self.notes[: None if verbose else 1]]
        if len(self.notes) > 1 and not verbose:
            found.append(Row("", f"{len(self.notes) - 1} more with -v"))
        return found

    def __str__(self) -> str:
        if self.reason:
            return self.reason
        worst = self.worst
        if worst is None:
            return "nothing was compared"
        if not self.ok:
            where = "" if self.first_divergence is None else f" {self.first_divergence}"
            return f"output {worst.output!r} {worst.reason}, in case {worst.case!r}.{where}"
        count = len(self.cases)
        if worst.max_abs == 0:
            return f"identical in {plural(count, 'case')}."
        text = f"the same in {plural(count, 'case')}: "
        if (half := self._half()) is not None:
            return text + half
        return f"{text}{worst.told}, in case {worst.case!r}."

    def _half(self) -> str | None:
        """What float16 costs, where the gate is that of float16."""
        diffs = [d for found in self.cases.values() for d in found]
        tops = [d.top for d in diffs if not math.isnan(d.top)]
        floats = [d for d in diffs if d.scale and math.isfinite(d.cosine)]
        whole = [d for d in diffs if not d.allowed and d.compared]
        told = []
        if tops and floats:
            worst = max(floats, key=lambda d: d.max_abs / d.scale)
            told = [
                f"at most {worst.max_abs / worst.scale:.2g} of the largest element off, in output "
                f"{worst.output!r} of case {worst.case!r}",
                f"cosine {min(d.cosine for d in floats):.6f}",
                f"top-1 agrees in {min(tops):.2%} at least",
            ]
        if whole and (told or any(d.differing for d in whole)):
            same = min(1 - d.differing / d.compared for d in whole)
            told.append(f"whole numbers are the same in {same:.2%} at least")
        return f"{'; '.join(told)}." if told else None
