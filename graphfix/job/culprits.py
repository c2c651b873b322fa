"""Finds the pass, and the place, that spoils a repaired model, by trying subsets.

The search keeps a set of places that is proved, and adds to it, one pass after another. If a pass
fails, it tries half of its places, and half of those, until it has found each place to blame. Where
a pass names a fallback, that is tried before any of its places is skipped.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from graphfix.core import Check, Pass
from graphfix.editing.exclusions import WHOLE_PASS, Exclusions, Place
from graphfix.engine.fixpoint import spec_of_check
from graphfix.engine.pipeline import Progress
from graphfix.engine.report import FailedRepair, PassReport, Report
from graphfix.proof.budget import SearchBudget, SpentError

Places = frozenset[Place]
Proves = Callable[[Sequence[Check], Exclusions, bool], str]

TRIES = 60
"""How many models are tried at most."""


@dataclass(frozen=True)
class Culprits:
    """The result of a search.

    Attributes:
        stand_ins: What runs instead of a pass, by the spec of that pass.
        exclusions: What is to be skipped, the best first; none if nothing was found.
        left: The culprits, for the report.
        searched: What was done, in a sentence.
    """

    stand_ins: Mapping[str, Check] = field(default_factory=dict)
    exclusions: tuple[Exclusions, ...] = ()
    left: tuple[FailedRepair, ...] = ()
    searched: str = ""

    def replace_passes(self, chosen: Iterable[Check]) -> tuple[Check, ...]:
        """Return the passes to run where ``chosen`` was asked for."""
        return tuple(self.stand_ins.get(spec_of_check(x), x) for x in chosen)

    def add_to_report(self, report: Report) -> Report:
        """Return the report with the result of the search."""
        return replace(report, left=(*report.left, *self.left), searched=self.searched)


class CulpritSearch:
    """Searches for the places that spoil a repaired model.

    Args:
        chosen: The passes.
        pass_reports: What they did when all ran.
        tensors: The tensors of the model before.
        proves: Repairs the model with passes and exclusions; returns why the result fails, or ""
            if it is proved. The last argument is whether a single place is to blame if it fails,
            so that locating the first difference is worth it.
        tell: Called with a short text at each step.
        budget: What may be spent; what is proved by then is kept. By default :data:`TRIES` and the
            usual time.
    """

    def __init__(
        self,
        chosen: Sequence[Check],
        pass_reports: Sequence[PassReport],
        tensors: frozenset[str],
        proves: Proves,
        tell: Progress,
        budget: SearchBudget | None = None,
    ) -> None:
        self._chosen, self._tensors = tuple(chosen), tensors
        self._proves, self._tell = proves, tell
        self._passes = {x.spec(): x for x in chosen if isinstance(x, Pass) and x.is_removable}
        self._stand_ins: dict[str, Pass] = {}
        self._nodes_at: dict[Place, list[str]] = {}
        for report in pass_reports:
            for change in report.changes if report.spec in self._passes else ():
                tensor = (
                    change.tensor
                    if self._passes[report.spec].supports_site_exclusion()
                    else WHOLE_PASS
                )
                nodes = self._nodes_at.setdefault(
                    Exclusions(original_tensors=tensors).place_of(report.spec, tensor), []
                )
                nodes += [] if change.at in nodes else [change.at]
        self._reasons: dict[tuple[Places, tuple[str, ...]], str] = {}
        self._proved: tuple[Places, dict[str, Pass]] = frozenset(), {}
        self._blamed: dict[Place, str] = {}
        self._tried_fallbacks = set[str]()
        self._budget = budget or SearchBudget(TRIES)

    def run(self, reason: str, *, proves_unrepaired: bool) -> Culprits:
        """Search, and return the culprits.

        Args:
            reason: Why the model fails with all repairs, or "" if that is unknown.
            proves_unrepaired: Whether the model has to be proved where nothing is repaired; if it
                is not, no repair is to blame.
        """
        if not self._nodes_at:
            return Culprits()
        everything = list(self._nodes_at)
        if reason:
            self._reasons[frozenset(everything), ()] = reason
        try:
            base = self._find_proved_base(everything, proves_unrepaired=proves_unrepaired)
            if isinstance(base, str):
                return Culprits(searched=base)
            self._add_places(base, [x for x in everything if x not in base])
        except SpentError:
            pass
        return self._build_result(everything)

    # Trying

    def _failure_of(self, places: Collection[Place], *, single: bool = False) -> str:
        """Return why the model fails if only these places are repaired; "" if it is proved."""
        repaired = frozenset(places)
        key = repaired, tuple(x.spec() for x in self._stand_ins.values())
        if key not in self._reasons:
            self._budget.take_try()
            count, all_of_it = len(repaired), len(self._nodes_at)
            tries = self._budget.tries
            self._tell(f"searching: try {tries}, {count} of {all_of_it} places repaired")
            passes = [self._stand_ins.get(spec_of_check(x), x) for x in self._chosen]
            leave = Exclusions(
                only_repaired=self._allowed_tensors(repaired, self._stand_ins),
                original_tensors=self._tensors,
            )
            self._reasons[key] = self._proves(passes, leave, single)
            if not self._reasons[key] and len(repaired) > len(self._proved[0]):
                self._proved = repaired, dict(self._stand_ins)
        return self._reasons[key]

    def _allowed_tensors(
        self, places: Places, stand_ins: Mapping[str, Pass]
    ) -> dict[str, frozenset[str]]:
        """Return which tensors each pass, or its stand-in, repairs."""
        return {
            stand_ins.get(spec, chosen_pass).spec(): frozenset(x for by, x in places if by == spec)
            for spec, chosen_pass in self._passes.items()
        }

    # Finding

    def _find_proved_base(
        self, everything: Sequence[Place], *, proves_unrepaired: bool
    ) -> Places | str:
        """Return proved places to begin with; or why there are none."""
        if not (reason := self._failure_of(())):
            return frozenset()
        if proves_unrepaired:
            return f"no repair is to blame: with none of them {reason}"
        # Without any repair the model may not even run, so leave out one pass at a time.
        for spec in _specs_of(everything):
            remaining = frozenset(x for x in everything if x[0] != spec)
            if not self._failure_of(remaining):
                return remaining
        count = self._budget.tries
        return (
            f"in {count} tries no single pass was found to be to blame: with none of them {reason}"
        )

    def _add_places(self, proved: Places, places: Sequence[Place]) -> Places:
        """Add as many of ``places`` as can be proved to the proved ones."""
        if not places:
            return proved
        candidate = proved | frozenset(places)
        reason = self._failure_of(candidate, single=len(places) == 1)
        if not reason:
            return candidate
        specs = _specs_of(places)
        if len(specs) > 1:
            first = set(specs[: len(specs) // 2])
            halves = [x for x in places if x[0] in first], [x for x in places if x[0] not in first]
        elif self._fallback_helps(specs[0], candidate):
            self._blamed |= dict.fromkeys(places, reason)
            return candidate
        elif len(places) == 1:
            self._blamed[places[0]] = reason
            return proved
        else:
            halves = [*places[: len(places) // 2]], [*places[len(places) // 2 :]]
        return self._add_places(self._add_places(proved, halves[0]), halves[1])

    def _fallback_helps(self, spec: str, places: Places) -> bool:
        """Return whether a fallback of the pass is proved, and use it then; asked once a pass."""
        fallbacks = self._passes[spec].fallbacks() if spec not in self._tried_fallbacks else ()
        self._tried_fallbacks.add(spec)
        for fallback in fallbacks:
            if fallback.spec() not in self._passes:
                self._stand_ins[spec] = fallback
                if not self._failure_of(places):
                    return True
                del self._stand_ins[spec]
        return False

    # Telling

    def _build_result(self, everything: Sequence[Place]) -> Culprits:
        proved, stand_ins = self._proved
        if not proved:
            tries = f"in {self._budget.tries} tries nothing was found that can be repaired"
            return Culprits(searched=tries)
        untried = f"it was not tried: the search ended after {self._budget.spent}"
        reasons = {x: self._blamed.get(x, untried) for x in everything if x not in proved}
        denied = {
            x: f"left as it is, since with this repair {reason}" for x, reason in reasons.items()
        }
        deny = Exclusions(denied, original_tensors=self._tensors)
        only = replace(deny, only_repaired=self._allowed_tensors(proved, stand_ins))
        replaced = {x: reason for x, reason in self._blamed.items() if x[0] in stand_ins}
        culprits = self._group_culprits(
            reasons | replaced, {x: y.spec() for x, y in stand_ins.items()}
        )
        return Culprits(
            stand_ins, (deny, only), culprits, self._search_sentence(len(reasons | replaced))
        )

    def _group_culprits(
        self, reasons: Mapping[Place, str], stand_ins: Mapping[str, str]
    ) -> tuple[FailedRepair, ...]:
        groups: dict[tuple[str, str], list[str]] = {}
        for place, reason in reasons.items():
            spec, tensor = place
            groups.setdefault((spec, reason), []).extend(
                self._nodes_at[place] if tensor != WHOLE_PASS else []
            )
        return tuple(
            FailedRepair(by, tuple(at), reason, stand_ins.get(by, ""))
            for (by, reason), at in groups.items()
        )

    def _search_sentence(self, bad: int) -> str:
        verb, tries = "is" if bad == 1 else "are", self._budget.tries
        return f"{bad} of {len(self._nodes_at)} places {verb} to blame, found in {tries} tries"


def _specs_of(places: Iterable[Place]) -> list[str]:
    return list(dict.fromkeys(spec for spec, _ in places))
