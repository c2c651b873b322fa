"""One bad place does not spoil the model: which pass, and at which place, is found by trying.

The search keeps a set of places that together are proved, and adds to it: first whole passes, then,
of a pass that fails, the half of its places, until a single one is to blame. So several bad places
at once are found, each in about as many tries as halving takes. Where a pass names another that may
do in its stead, that is tried before anything is left out.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from graphfix.core import Pass
from graphfix.leaving import WHOLE, Leaving, Place
from graphfix.report import Left
from graphfix.turns import name_of

if TYPE_CHECKING:
    from graphfix.core import Check
    from graphfix.pipeline import Progress
    from graphfix.report import PassReport, Report

    Places = frozenset[Place]
    Proves = Callable[[Sequence[Check], Leaving, bool], str]

TRIES = 60
"""How many models are tried at most."""
SECONDS = 600.0
"""After how long no other is tried."""


@dataclass(frozen=True)
class Found:
    """What came of a search.

    Attributes:
        stand_ins: What runs in the place of a pass, which may be among them, by its spec.
        ways: What is to be left alone, the best way first; none if nothing was found.
        left: The bad places, for the report.
        searched: What was done, in a sentence.
    """

    stand_ins: Mapping[str, tuple[Check, ...]] = field(default_factory=dict)
    ways: tuple[Leaving, ...] = ()
    left: tuple[Left, ...] = ()
    searched: str = ""

    def passes(self, chosen: Iterable[Check]) -> tuple[Check, ...]:
        """What is to run where ``chosen`` was asked for."""
        return tuple(y for x in chosen for y in self.stand_ins.get(name_of(x), (x,)))

    def told(self, report: Report) -> Report:
        """A report that says what was found."""
        left = (*report.left, *self.left)
        return dataclasses.replace(report, left=left, searched=self.searched)


def search(
    chosen: Sequence[Check],
    done: Sequence[PassReport],
    tensors: frozenset[str],
    proves: Proves,
    tell: Progress,
    *,
    why: str,
    alone: bool,
) -> Found:
    """Which places spoil what passes make of a model.

    Args:
        chosen: The passes.
        done: What they did when all ran.
        tensors: The tensors of the model before.
        proves: Repairs the model with passes that leave something alone; why the result fails, or
            "" if it is proved. The last argument is whether a single place is to blame if it fails,
            so that it is worth to look where the two part.
        tell: Called with a short text at each step.
        why: Why the model fails if all of it is done, if that is known.
        alone: Whether the model has to be proved where nothing is repaired; if it is not, it is
            not the repairs that are to blame.
    """
    return _Search(chosen, done, tensors, proves, tell).run(why, alone=alone)


class _SpentError(Exception):
    """No more tries."""


class _Search:
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
        passes = [x for x in chosen if isinstance(x, Pass) and x.dispensable]
        self._passes = {x.spec(): x for x in passes}
        self._others = {
            spec: [x for x in one.instead() if x.spec() not in self._passes]
            for spec, one in self._passes.items()
        }
        self._at: dict[Place, list[str]] = {}
        for report in done:
            for change in report.changes if report.spec in self._passes else ():
                tensor = change.tensor if self._passes[report.spec].chooses() else WHOLE
                place = Leaving(tensors=tensors).place(report.spec, tensor)
                at = self._at.setdefault(place, [])
                at += [] if change.at in at else [change.at]
        self._known: dict[Places, str] = {}
        self._proved: Places = frozenset()
        self._guilty: dict[Place, str] = {}
        self._asked = set[str]()
        self._tries, self._end = 0, time.monotonic() + SECONDS

    def run(self, why: str, *, alone: bool) -> Found:
        """Find them."""
        if not self._at:
            return Found()
        everything = list(self._at)
        if why:
            self._known[frozenset(everything)] = why
        try:
            base = self._base(everything, alone=alone)
            if isinstance(base, str):
                return Found(searched=base)
            self._proved = self._add(base, [x for x in everything if x not in base])
            self._replace_guilty()
        except _SpentError:
            pass
        return self._found(everything)

    # Trying

    def _why(self, places: Collection[Place], *, single: bool = False) -> str:
        """Why the model fails if these places, and no others, are repaired; "" if it is proved."""
        key = frozenset(places)
        if key not in self._known:
            if self._tries >= TRIES or time.monotonic() > self._end:
                raise _SpentError
            self._tries += 1
            count, all_of_it = len(key), len(self._at)
            self._tell(f"searching, try {self._tries}: {count} of {all_of_it} places repaired")
            self._known[key] = self._proves(self._with_others(), self._only(key), single)
            if not self._known[key] and len(key) > len(self._proved):
                self._proved = key
        return self._known[key]

    def _only(self, places: Places) -> Leaving:
        others = [x.spec() for found in self._others.values() for x in found]
        only = {
            spec: frozenset(tensor for by, tensor in places if by == spec)
            for spec in (*self._passes, *others)
        }
        return Leaving(only=only, tensors=self._tensors)

    def _with_others(self) -> list[Check]:
        """The passes, each with those behind it that may stand in for it."""
        found: list[Check] = []
        for one in self._given:
            found.append(one)
            if isinstance(one, Pass):
                found += self._others.get(one.spec(), [])
        return found

    # Finding

    def _base(self, everything: Sequence[Place], *, alone: bool) -> Places | str:
        """Places that are proved, to begin with; or why there are none."""
        if not (why := self._why(())):
            return frozenset()
        if alone:
            return f"no repair is to blame: with none of them {why}"
        # What is repaired elsewhere may be needed for it to run at all: so, all but one pass.
        for spec in self._specs(everything):
            rest = frozenset(x for x in everything if x[0] != spec)
            if not self._why(rest):
                return rest
        count = self._tries
        return f"in {count} tries no single pass was found to be to blame: with none of them {why}"

    def _add(self, kept: Places, places: Sequence[Place]) -> Places:
        """As many of ``places`` as can be, added to ``kept``, which is proved."""
        if not places:
            return kept
        why = self._why({*kept, *places}, single=len(places) == 1)
        if not why:
            return kept | frozenset(places)
        specs = self._specs(places)
        if len(specs) > 1:
            first = set(specs[: len(specs) // 2])
            halves = [x for x in places if x[0] in first], [x for x in places if x[0] not in first]
        else:
            for other in self._in_place_of(specs[0]):
                if not self._why({*kept, *_moved(places, other)}):
                    return self._narrow(kept, places, other, why)
            if len(places) == 1:
                self._guilty[places[0]] = why
                return kept
            halves = [*places[: len(places) // 2]], [*places[len(places) // 2 :]]
        return self._add(self._add(kept, halves[0]), halves[1])

    def _in_place_of(self, spec: str) -> Iterable[str]:
        """What may stand in for a whole pass; each is asked for once."""
        if spec in self._asked:
            return ()
        self._asked.add(spec)
        return [x.spec() for x in self._others.get(spec, ())]

    def _narrow(self, kept: Places, places: Sequence[Place], other: str, why: str) -> Places:
        """The other pass only where it has to be: if both halves need it, everywhere."""
        self._proved = kept | _moved(places, other)
        while len(places) > 1:
            first, last = places[: len(places) // 2], places[len(places) // 2 :]
            if not self._why({*kept, *first, *_moved(last, other)}):
                kept, places = kept | frozenset(first), last
            elif not self._why({*kept, *_moved(first, other), *last}):
                kept, places = kept | frozenset(last), first
            else:
                break
        self._guilty.update(dict.fromkeys(places, why))
        return kept | _moved(places, other)

    def _replace_guilty(self) -> None:
        """What fails in one way may be right in another, if not the whole of its pass is."""
        for spec in self._asked:
            left = [x for x in self._guilty if x[0] == spec]
            for other in [x.spec() for x in self._others[spec]] if left else ():
                for place in left:
                    moved = self._proved | _moved([place], other)
                    if moved not in (self._proved, None) and not self._why(moved):
                        self._proved = moved

    def _specs(self, places: Iterable[Place]) -> list[str]:
        return list(dict.fromkeys(spec for spec, _ in places))

    # Telling

    def _found(self, everything: Sequence[Place]) -> Found:
        kept = self._proved
        if not kept:
            tries = f"in {self._tries} tries nothing was found that can be repaired"
            return Found(searched=tries)
        others = {x.spec(): x for found in self._others.values() for x in found}
        home = {x.spec(): spec for spec, found in self._others.items() for x in found}
        moved = {(home[by], tensor): by for by, tensor in kept if by in others}
        reasons = {
            x: self._guilty.get(x, "it was not tried: the search was given up")
            for x in everything
            if x not in kept
        }
        told = {
            (by, tensor): f"left as it is, since with this repair {why}"
            for (by, tensor), why in reasons.items()
        }
        left, handed = dict[Place, str](), dict[Place, str]()
        stand_ins: dict[str, tuple[Check, ...]] = {}
        for spec, one in self._passes.items():
            used = [others[x] for x in dict.fromkeys(moved[y] for y in moved if y[0] == spec)]
            mine = [x for x in everything if x[0] == spec]
            if used:
                own = (one,) if any(x not in moved for x in mine) else ()
                stand_ins[spec] = (*own, *used)
            for place in mine:
                if place in moved:
                    why = f"with {spec} the model computes something else"
                    handed[place] = f"left to {moved[place]}, since {why}"
                elif place in told:
                    left[place] = told[place]
                    left.update({(x.spec(), place[1]): told[place] for x in used})
        deny = Leaving(left, handed, tensors=self._tensors)
        only = dataclasses.replace(deny, only=self._only(kept).only)
        return Found(stand_ins, (deny, only), self._left(reasons, moved), self._sentence())

    def _left(self, reasons: dict[Place, str], moved: dict[Place, str]) -> tuple[Left, ...]:
        groups: dict[tuple[str, str, str], list[str]] = {}
        for place, why in reasons.items():
            spec, tensor = place
            at = groups.setdefault((spec, why, moved.get(place, "")), [])
            at += self._at[place] if tensor != WHOLE else []
        return tuple(Left(by, tuple(at), why, other) for (by, why, other), at in groups.items())

    def _sentence(self) -> str:
        bad = len([x for x in self._at if x not in self._proved])
        verb = "is" if bad == 1 else "are"
        return f"{bad} of {len(self._at)} places {verb} to blame, found in {self._tries} tries"


def _moved(places: Iterable[Place], other: str) -> Places:
    return frozenset((other, tensor) for _, tensor in places)
