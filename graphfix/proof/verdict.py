"""The verdict of a verification, in words and as plain data."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphfix.facts.forced_sizes import ForcedSize, forced_row
from graphfix.feeds.case import DroppedCase
from graphfix.json_types import to_plain_record
from graphfix.proof.compare import OutputDiff
from graphfix.proof.first_difference import Divergence
from graphfix.spec.quoting import quote_name
from graphfix.wording import Proof, Row, plural

_SIZES = re.compile(r" \d+( to \d+)?$")
# So many things that were not tried are named where details are not asked for.
_MOST_UNTRIED = 6


@dataclass(frozen=True, repr=False)
class Verdict(Proof):
    """The result of a verification; false if that is bad.

    Attributes:
        ok: Whether every output of every case is within the tolerance.
        cases: The difference of each output, by case.
        dropped: Cases that the original cannot run, with ONNX Runtime's reason.
        dims: The size of each symbolic dim of the inputs, by case.
        reason: Why it failed other than by a difference in a case: the repaired model does not load
            or run, its interface differs, or an output was never finite.
        covered: Sizes that were tried, and conditions on the inputs that some case met.
        not_tried: Larger sizes, and conditions that no case met.
        notes: Sentences for the reader, such as which rows were excluded from the comparison.
        allowance: How it came about that a quantized model may differ by more than the tolerance;
            "" if it was held to that.
        first_divergence: The first tensor that differs, if one does and it was searched.
        forced: The dims of the inputs that a weight gives one size only, by name.
    """

    ok: bool
    cases: dict[str, tuple[OutputDiff, ...]]
    dropped: tuple[DroppedCase, ...] = ()
    reason: str = ""
    notes: tuple[str, ...] = ()
    allowance: str = ""
    first_divergence: Divergence | None = None
    dims: dict[str, dict[str, int]] = field(default_factory=dict)
    covered: tuple[str, ...] = ()
    not_tried: tuple[str, ...] = ()
    forced: Mapping[str, ForcedSize] = field(default_factory=dict)

    @property
    def worst(self) -> OutputDiff | None:
        """Return the output furthest from the original, failed ones first; None without any."""
        diffs = [d for output_diffs in self.cases.values() for d in output_diffs]
        return max(diffs, key=lambda d: (not d.ok, d.excess_ratio, d.max_abs), default=None)

    @property
    def failed(self) -> list[str]:
        """Return the cases in which an output differs by more than is allowed."""
        return [name for name, diffs in self.cases.items() if not all(d.ok for d in diffs)]

    def to_json(self) -> dict[str, object]:
        """Return the verdict as plain data for ``json``; NaN and infinity become text."""
        data = {
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
            "allowance": self.allowance,
            "covered": self.covered,
            "not_tried": self.not_tried,
            "forced": self.forced,
        }
        return to_plain_record(data)

    @property
    def headline(self) -> str:
        """Return the answer in one phrase."""
        return "Computes the same" if self.ok else "Does not compute the same"

    @property
    def sizes(self) -> list[str]:
        """Return the entries of ``covered`` that are sizes of dims."""
        dims = {quote_name(name) for case_dims in self.dims.values() for name in case_dims}
        return [x for x in self.covered if _SIZES.sub("", x) in dims]

    def rows(self, *, verbose: bool = False) -> list[Row]:
        """Return the largest difference, the cases that were not run, and the notes, as rows."""
        sizes = self.sizes if self.ok else ()
        tried = f" ({', '.join(sizes)})" if sizes else ""
        summary, more = str(self).rstrip("."), "" if verbose else " (-v)"
        rows = [Row("numbers", summary + tried, "green" if self.ok else "red")]
        rows += forced_row(self.forced, verbose=verbose)
        if self.allowance:
            rows.append(Row("allowed", self.allowance))
        if self.not_tried:
            rows.append(Row("not tried", self._untried_text(verbose=verbose)))
        if self.dropped:
            count = plural(len(self.dropped), "case")
            rows.append(Row("dropped", f"{count} that the original cannot run{more}"))
        rows += [Row("note", x) for x in self.notes[: None if verbose else 1]]
        if len(self.notes) > 1 and not verbose:
            rows.append(Row("", f"{len(self.notes) - 1} more with -v"))
        return rows

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
        excluded = self._excluded_text()
        if worst.max_abs == 0:
            return f"identical in {plural(count, 'case')}{excluded}."
        text = f"the same in {plural(count, 'case')}: "
        if (half := self._float16_text()) is not None:
            return f"{text}{half}{excluded}."
        return f"{text}{worst.difference_text}, in case {worst.case!r}{excluded}."

    def _untried_text(self, *, verbose: bool) -> str:
        """Return what was not tried, sizes first; a few of many entries unless ``verbose``."""
        shown = self.not_tried if verbose else self.not_tried[:_MOST_UNTRIED]
        text = ", ".join(shown) + (" (--dims)" if any(self.dims.values()) else "")
        hidden = len(self.not_tried) - len(shown)
        return f"{text}; {hidden} more with -v" if hidden else text

    def _excluded_text(self) -> str:
        """Return what differs and was left out, as text to append; "" if nothing was.

        Example: ``; left out: padded rows of 'y', which differ by up to 1.5``.
        """
        worst: dict[str, OutputDiff] = {}
        for diff in (d for output_diffs in self.cases.values() for d in output_diffs):
            if diff.excluded and (
                diff.excluded not in worst or diff.excluded_abs > worst[diff.excluded].excluded_abs
            ):
                worst[diff.excluded] = diff
        texts = (
            f"{kind} of {diff.output!r}, which differ"
            + (f" by up to {diff.excluded_abs:.3g}" if diff.excluded_abs else "")
            for kind, diff in worst.items()
        )
        text = ", and ".join(texts)
        return text and f"; left out: {text}"

    def _float16_text(self) -> str | None:
        """Return the error of float16 in words, or None where the gate is not that of float16."""
        diffs = [d for output_diffs in self.cases.values() for d in output_diffs]
        parts = _float_agreement(diffs)
        integer_diffs = [d for d in diffs if not d.allowed and d.compared]
        if integer_diffs and (parts or any(d.differing for d in integer_diffs)):
            same = min(1 - d.differing / d.compared for d in integer_diffs)
            parts.append(f"whole numbers are the same in {same:.2%} at least")
        return "; ".join(parts) or None


def _float_agreement(diffs: Sequence[OutputDiff]) -> list[str]:
    """Return how well floats agree, in words; nothing if no top-1 agreement was measured."""
    agreements = [d.top for d in diffs if not math.isnan(d.top)]
    floats = [d for d in diffs if d.scale and math.isfinite(d.cosine)]
    if not agreements or not floats:
        return []
    worst = max(floats, key=lambda d: d.max_abs / d.scale)
    return [
        f"at most {worst.max_abs / worst.scale:.2g} of the largest element off, in output "
        f"{worst.output!r} of case {worst.case!r}",
        f"cosine {min(d.cosine for d in floats):.6f}",
        f"top-1 agrees in {min(agreements):.2%} at least",
    ]
