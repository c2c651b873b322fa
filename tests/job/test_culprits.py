"""The search for the places that spoil a model, with a proof that is made up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pytest

from graphfix.core import Change, Match, NodePass, Safety
from graphfix.editing.exclusions import WHOLE_PASS
from graphfix.engine.report import FailedRepair, PassReport, Report
from graphfix.job.culprits import Culprits, CulpritSearch
from graphfix.proof.budget import SearchBudget

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import onnx_ir as ir

    from graphfix.core import Check
    from graphfix.editing.builder import Builder
    from graphfix.editing.exclusions import Exclusions, Place
    from graphfix.facts.view import View


@dataclass(frozen=True)
class Swap(NodePass[Match]):
    """A pass that nobody runs here: the proof is made up."""

    safety: ClassVar[Safety] = "exact"
    anchors: ClassVar[tuple[str, ...]] = ("Relu",)

    n: int = 0

    def match(self, node: ir.Node, view: View) -> Match | None:
        return None

    def rewrite(self, match: Match, op: Builder) -> ir.Value:
        raise NotImplementedError


@dataclass(frozen=True)
class Gentle(Swap):
    """One that may be done otherwise: with n, and with n and one more."""

    def fallbacks(self) -> Iterator[Gentle]:
        if self.n < 10:
            yield from (Gentle(10), Gentle(11))


@dataclass(frozen=True)
class AllOrNothing(Swap):
    """One that cannot leave out a place."""

    def supports_site_exclusion(self) -> bool:
        return False


TENSORS = [f"t{i}" for i in range(8)]


class Case:
    """A search over passes that each changed some tensors, of which some are bad."""

    def __init__(
        self,
        changed: dict[Swap, Sequence[str]],
        bad: Sequence[tuple[str, str]],
        *,
        needed: Sequence[tuple[str, str]] = (),
        most: int = 60,
    ) -> None:
        self.bad, self.needed = {*bad}, {*needed}
        self.tried: list[tuple[set[Place], bool]] = []
        self.told: list[str] = []
        self.search = CulpritSearch(
            [*changed],
            [
                PassReport(
                    x.name,
                    x.spec(),
                    "exact",
                    tuple(Change(x.name, f"at {t}", t, (), ()) for t in tensors),
                )
                for x, tensors in changed.items()
            ],
            frozenset(TENSORS),
            self.prove,
            self.told.append,
            SearchBudget(most, seconds=600),
        )

    def prove(self, passes: Sequence[Check], leave: Exclusions, single: bool) -> str:
        specs = [x.spec() for x in passes]  # type: ignore[attr-defined]
        repaired = {(by, t) for by, ts in leave.only_repaired.items() for t in ts if by in specs}
        self.tried.append((repaired, single))
        if not self.needed <= repaired:
            return "it does not run"
        return "y differs" if self.bad & repaired else ""

    def run(self, *, proves_unrepaired: bool = True) -> Culprits:
        return self.search.run("y differs", proves_unrepaired=proves_unrepaired)


def test_one_bad_place_is_found_by_halving() -> None:
    case = Case({Swap(): TENSORS[:4]}, [("swap", "t2")])
    found = case.run()
    assert found.left == (FailedRepair("swap", ("at t2",), "y differs"),)
    assert found.searched == "1 of 4 places is to blame, found in 4 tries"
    pairs = [({t for _, t in places}, single) for places, single in case.tried]
    assert pairs == [
        (set(), False),
        ({"t0", "t1"}, False),
        ({"t0", "t1", "t2"}, True),
        ({"t0", "t1", "t3"}, True),
    ]
    assert case.told[0] == "searching: try 1, 0 of 4 places repaired"
    deny, only = found.exclusions
    reason = "left as it is, since with this repair y differs"
    assert deny.reasons == only.reasons == {("swap", "t2"): reason}
    assert deny.only_repaired == {}
    assert only.only_repaired == {"swap": {"t0", "t1", "t3"}}
    assert deny.original_tensors == only.original_tensors == frozenset(TENSORS)


def test_bad_places_of_several_passes() -> None:
    bad = [("swap", "t1"), ("swap:n=1", "t4"), ("swap:n=1", "t5")]
    found = Case({Swap(): TENSORS[:3], Swap(1): TENSORS[3:6], Swap(2): TENSORS[6:]}, bad).run()
    assert found.left == (
        FailedRepair("swap", ("at t1",), "y differs"),
        FailedRepair("swap:n=1", ("at t4", "at t5"), "y differs"),
    )
    assert found.searched.startswith("3 of 8 places are to blame, found in ")
    assert found.exclusions[1].only_repaired == {
        "swap": {"t0", "t2"},
        "swap:n=1": {"t3"},
        "swap:n=2": {"t6", "t7"},
    }


def test_a_pass_that_was_not_at_fault_is_not_halved() -> None:
    case = Case({Swap(): TENSORS[:4], Swap(1): TENSORS[4:]}, [("swap:n=1", "t7")])
    case.run()
    good = {("swap", t) for t in TENSORS[:4]}
    assert (good, False) in case.tried
    assert all(not places or good <= places for places, _ in case.tried)


def test_where_nothing_was_changed_nothing_is_searched() -> None:
    case = Case({Swap(): []}, [])
    assert case.run() == Culprits()
    assert case.tried == []
    assert case.run().add_to_report(Report("", (), {}, {})).searched == ""


def test_a_model_that_fails_without_repairs_blames_none() -> None:
    found = Case({Swap(): TENSORS[:2]}, [], needed=[("none", "t0")]).run()
    assert found == Culprits(searched="no repair is to blame: with none of them it does not run")


def test_a_model_that_needs_repairs_is_searched_from_all_but_one_pass() -> None:
    changed = {Swap(): TENSORS[:2], Swap(1): TENSORS[2:4], Swap(2): TENSORS[4:5]}
    case = Case(changed, [("swap:n=1", "t2")], needed=[("swap", "t0")])
    found = case.run(proves_unrepaired=False)
    assert found.left == (FailedRepair("swap:n=1", ("at t2",), "y differs"),)
    assert found.exclusions[1].only_repaired["swap:n=1"] == {"t3"}
    without = [{t for _, t in places} for places, _ in case.tried][1:3]
    assert without == [{"t2", "t3", "t4"}, {"t0", "t1", "t4"}]
    needed = [("swap", "t0"), ("swap:n=1", "t2")]
    found = Case(changed, [("swap:n=1", "t2")], needed=needed).run(proves_unrepaired=False)
    assert found == Culprits(
        searched="in 4 tries no single pass was found to be to blame: "
        "with none of them it does not run"
    )


def test_what_is_proved_when_the_budget_ends_is_kept() -> None:
    bad = [("swap", "t5"), ("swap", "t6")]
    found = Case({Swap(): TENSORS}, bad, most=2).run()
    assert found.exclusions[1].only_repaired == {"swap": {"t0", "t1", "t2", "t3"}}
    assert found.left == (
        FailedRepair(
            "swap",
            ("at t4", "at t5", "at t6", "at t7"),
            "it was not tried: the search ended after 2 tries",
        ),
    )
    assert found.searched == "4 of 8 places are to blame, found in 2 tries"
    found = Case({Swap(): TENSORS}, bad, most=1).run()
    assert found == Culprits(searched="in 1 tries nothing was found that can be repaired")


def test_a_fallback_is_tried_before_a_place_is_left_out() -> None:
    bad = [("gentle", "t1"), ("gentle:n=10", "t1")]
    case = Case({Gentle(): TENSORS[:2], Swap(): TENSORS[2:3]}, bad)
    found = case.run()
    assert {x: y.spec() for x, y in found.stand_ins.items()} == {"gentle": "gentle:n=11"}
    assert found.left == (FailedRepair("gentle", ("at t0", "at t1"), "y differs", "gentle:n=11"),)
    assert found.exclusions[1].only_repaired == {
        "gentle:n=11": {"t0", "t1"},
        "swap": {"t2"},
    }
    assert found.exclusions[0].reasons == {}
    assert [x.spec() for x in found.replace_passes([Swap(), Gentle()])] == ["swap", "gentle:n=11"]
    assert found.searched.startswith("2 of 3 places are to blame")


def test_a_fallback_that_fails_too_is_asked_once() -> None:
    bad = [(f"gentle{x}", t) for x in ("", ":n=10", ":n=11") for t in ("t1", "t3")]
    case = Case({Gentle(): TENSORS[:4]}, bad)
    found = case.run()
    assert found.stand_ins == {}
    assert found.left == (FailedRepair("gentle", ("at t1", "at t3"), "y differs"),)
    by_fallback = [x for x, _ in case.tried if any(spec == "gentle:n=10" for spec, _ in x)]
    assert len(by_fallback) == 1


def test_a_fallback_that_runs_anyway_is_none() -> None:
    bad = [("gentle", "t1"), ("gentle:n=10", "t1")]
    case = Case({Gentle(): TENSORS[:2], Gentle(11): TENSORS[2:3]}, bad)
    assert case.run().left == (FailedRepair("gentle", ("at t1",), "y differs"),)


def test_a_pass_without_places_goes_as_a_whole() -> None:
    bad = [("all-or-nothing", WHOLE_PASS)]
    found = Case({AllOrNothing(): TENSORS[:3], Swap(): TENSORS[3:5]}, bad).run()
    assert found.left == (FailedRepair("all-or-nothing", (), "y differs"),)
    assert found.exclusions[1].only_repaired == {"all-or-nothing": set(), "swap": {"t3", "t4"}}


def test_places_that_a_pass_made_are_one() -> None:
    tensors = ["t0", "new1", "new2", "new2"]
    found = Case({Swap(): tensors}, [("swap", "t0")]).run()
    assert found.left == (FailedRepair("swap", ("at t0",), "y differs"),)
    assert found.searched.startswith("1 of 2 places")
    good = next(iter(found.exclusions[1].only_repaired["swap"]))
    found = Case({Swap(): tensors}, [("swap", good)]).run()
    assert found.left == (FailedRepair("swap", ("at new1", "at new2"), "y differs"),)


def test_the_report_gets_what_was_found() -> None:
    first = FailedRepair("fold", (), "it raised", raised=True)
    report = Report("swap", (), {}, {}, left=(first,))
    found = Case({Swap(): TENSORS[:2]}, [("swap", "t0")]).run()
    whole = found.add_to_report(report)
    assert whole.left == (first, *found.left)
    assert whole.searched == found.searched


@pytest.mark.parametrize("reason", ["", "y differs"])
def test_without_a_reason_all_repairs_are_tried_as_well(reason: str) -> None:
    case = Case({Swap(): TENSORS[:2]}, [("swap", "t0")])
    case.search.run(reason, proves_unrepaired=True)
    every = {("swap", "t0"), ("swap", "t1")}
    assert ((every, False) in case.tried) is (not reason)
