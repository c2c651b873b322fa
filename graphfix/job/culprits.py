"""One bad place does not spoil the model: which pass, and at which place, is found by trying.

The search keeps a set of places that together are proved, and adds to it: first whole passes, then,
of a pass that fails, the half of its places, until a single one is to blame. So several bad places
at once are found, each in about as many tries as halving takes. Where a pass names another that may
do in its stead, that is tried before any of its places is left out.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from graphfix.core import Check, Pass
from graphfix.editing.exclusions import WHOLE, Leaving, Place
from graphfix.engine.fixpoint import name_of
from graphfix.engine.pipeline import Progress
from graphfix.engine.report import Left, PassReport, Report

Places = frozenset[Place]
Proves = Callable[[Sequence[Check], Leaving, bool], str]

TRIES = 60
"""How many models are tried at most."""
SECONDS = 600.0
"""After how long no other is tried."""


@dataclass(frozen=True)
class BadPlaces:
    """What came of a search.

    Attributes:
        stand_ins: What runs instead of a pass, by the spec of that pass.
        ways: What is to be skipped, the best way first; none if nothing was found.
        left: The bad places, for the report.
        searched: What was done, in a sentence.
    """

    stand_ins: Mapping[str, Check] = field(default_factory=dict)
    ways: tuple[Leaving, ...] = ()
    left: tuple[Left, ...] = ()
    searched: str = ""

    def passes(self, chosen: Iterable[Check]) -> tuple[Check, ...]:
        """What is to run where ``chosen`` was asked for."""
        return tuple(self.stand_ins.get(name_of(x), x) for x in chosen)

    def told(self, report: Report) -> Report:
        """A report that says what was found."""
        return replace(report, left=(*report.left, *self.left), searched=self.searched)


class _SpentError(Exception):
    """No more tries."""


class Search:
    """Which places spoil what passes make of a model.

    Args:
        chosen: The passes.
        done: What they did when all ran.
        tensors: The tensors of the model before.
        proves: Repairs the model with passes that leave something alone; why the result fails, or
            "" if it is proved. The last argument is whether a single place is to blame if it fails,
            so that it is worth to look where the two part.
        tell: Called with a short text at each step.
    """

    def __init__(
        self,
        chosen: Sequence[Check],
        done: Sequence[PassReport],
        tensors: frozenset[str],
        proves: Proves,
        tell: Progress,
    ) -> None:
        self._given, self._tensors = tuple(chosen), tensors
        self._proves, self._tell = proves, tell
        self._passes = {x.spec(): x for x in chosen if isinstance(x, Pass) and x.dispensable}
        self._stand_ins: dict[str, Pass] = {}
        self._at: dict[Place, list[str]] = {}
        for report in done:
            for change in report.changes if report.spec in self._passes else ():
                tensor = change.tensor if self._passes[report.spec].chooses() else WHOLE
                at = self._at.setdefault(Leaving(tensors=tensors).place(report.spec, tensor), [])
                at += [] if change.at in at else [change.at]
        self._known: dict[tuple[Places, tuple[str, ...]], str] = {}
        self._proved: tuple[Places, dict[str, Pass]] = frozenset(), {}
        self._blamed: dict[Place, str] = {}
        self._asked = set[str]()
        self._tries, self._end = 0, time.monotonic() + SECONDS

    def run(self, why: str, *, alone: bool) -> BadPlaces:
        """Find them.

        Args:
            why: Why the model fails if all of it is done, if that is known.
            alone: Whether the model has to be proved where nothing is repaired; if it is not, it is
                not the repairs that are to blame.
        """
        if not self._at:
            return BadPlaces()
        everything = list(self._at)
        if why:
            self._known[frozenset(everything), ()] = why
        try:
            base = self._base(everything, alone=alone)
            if isinstance(base, str):
                return BadPlaces(searched=base)
            self._add(base, [x for x in everything if x not in base])
        except _SpentError:
            pass
        return self._found(everything)

    # Trying

    def _why(self, places: Collection[Place], *, single: bool = False) -> str:
        """Why the model fails if these places, and no others, are repaired; "" if it is proved."""
        repaired = frozenset(places)
        key = repaired, tuple(x.spec() for x in self._stand_ins.values())
        if key not in self._known:
            if self._tries >= TRIES or time.monotonic() > self._end:
                raise _SpentError
            self._tries += 1
            count, all_of_it = len(repaired), len(self._at)
            self._tell(f"searching: try {self._tries}, {count} of {all_of_it} places repaired")
            passes = [self._stand_ins.get(name_of(x), x) for x in self._given]
            leave = Leaving(only=self._only(repaired, self._stand_ins), tensors=self._tensors)
            self._known[key] = self._proves(passes, leave, single)
            if not self._known[key] and len(repaired) > len(self._proved[0]):
                self._proved = repaired, dict(self._stand_ins)
        return self._known[key]

    def _only(self, places: Places, stand_ins: Mapping[str, Pass]) -> dict[str, frozenset[str]]:
        """Which tensors each pass, or what stands in for it, repairs."""
        return {
            stand_ins.get(spec, one).spec(): frozenset(x for by, x in places if by == spec)
            for spec, one in self._passes.items()
        }

    # Finding

    def _base(self, everything: Sequence[Place], *, alone: bool) -> Places | str:
        """Places that are proved, to begin with; or why there are none."""
        if not (why := self._why(())):
            return frozenset()
        if alone:
            return f"no repair is to blame: with none of them {why}"
        # What is repaired elsewhere may be needed for it to run at all: so, all but one pass.
        for spec in _specs(everything):
            rest = frozenset(x for x in everything if x[0] != spec)
            if not self._why(rest):
                return rest
        count = self._tries
        return f"in {count} tries no single pass was found to be to blame: with none of them {why}"

    def _add(self, kept: Places, places: Sequence[Place]) -> Places:
        """As many of ``places`` as can be, added to ``kept``, which is proved."""
        if not places:
            return kept
        together = kept | frozenset(places)
        why = self._why(together, single=len(places) == 1)
        if not why:
            return together
        specs = _specs(places)
        if len(specs) > 1:
            first = set(specs[: len(specs) // 2])
            halves = [x for x in places if x[0] in first], [x for x in places if x[0] not in first]
        elif self._is_right_with_another(specs[0], together):
            self._blamed |= dict.fromkeys(places, why)
            return together
        elif len(places) == 1:
            self._blamed[places[0]] = why
            return kept
        else:
            halves = [*places[: len(places) // 2]], [*places[len(places) // 2 :]]
        return self._add(self._add(kept, halves[0]), halves[1])

    def _is_right_with_another(self, spec: str, places: Places) -> bool:
        """Whether what a pass names does in its stead, from now on; each pass is asked once."""
        others = self._passes[spec].instead() if spec not in self._asked else ()
        self._asked.add(spec)
        for other in others:
            if other.spec() not in self._passes:
                self._stand_ins[spec] = other
                if not self._why(places):
                    return True
                del self._stand_ins[spec]
        return False

    # Telling

    def _found(self, everything: Sequence[Place]) -> BadPlaces:
        kept, stand_ins = self._proved
        if not kept:
            tries = f"in {self._tries} tries nothing was found that can be repaired"
            return BadPlaces(searched=tries)
        untried = "it was not tried: the search was given up"
        reasons = {x: self._blamed.get(x, untried) for x in everything if x not in kept}
        left = {x: f"left as it is, since with this repair {why}" for x, why in reasons.items()}
        deny = Leaving(left, tensors=self._tensors)
        only = replace(deny, only=self._only(kept, stand_ins))
        replaced = {x: why for x, why in self._blamed.items() if x[0] in stand_ins}
        told = self._left(reasons | replaced, {x: y.spec() for x, y in stand_ins.items()})
        return BadPlaces(stand_ins, (deny, only), told, self._sentence(len(reasons | replaced)))

    def _left(self, reasons: Mapping[Place, str], stand_ins: Mapping[str, str]) -> tuple[Left, ...]:
        groups: dict[tuple[str, str], list[str]] = {}
        for place, why in reasons.items():
            spec, tensor = place
            groups.setdefault((spec, why), []).extend(self._at[place] if tensor != WHOLE else [])
        return tuple(
            Left(by, tuple(at), why, stand_ins.get(by, "")) for (by, why), at in groups.items()
        )

    def _sentence(self, bad: int) -> str:
        verb = "is" if bad == 1 else "are"
        return f"{bad} of {len(self._at)} places {verb} to blame, found in {self._tries} tries"


def _specs(places: Iterable[Place]) -> list[str]:
    return list(dict.fromkeys(spec for spec, _ in places))
