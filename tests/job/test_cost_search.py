"""Which passes of a profile are left out since a run takes more with them; no session is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import onnx_ir as ir
import pytest

from graphfix.core import Change, Match, Pass, Skip
from graphfix.editing.builder import PASS_KEY
from graphfix.editing.exclusions import NO_EXCLUSIONS, WHOLE_PASS, Exclusions
from graphfix.engine import registry
from graphfix.engine.report import CostlyPass, PassReport, Report
from graphfix.errors import ModelError
from graphfix.job import cost_search, planning
from graphfix.job.cost_search import Counts, find_cheaper
from graphfix.job.task import Task

SAVINGS = registry.SAVINGS
TEXT = '<ir_version: 8, opset_import: ["" : 17]> m (float[T] x) => (float[T] y) { y = Neg (x) }'
EMPTY = ir.Model(ir.Graph([], [], nodes=[]), ir_version=8)
ORIGINAL = Counts(10, 5, 1, 8)
# What a run takes with a pass, beside what it takes without.
Costs = Mapping[str, tuple[int, int, int, int]]


@dataclass(frozen=True)
class Named(Pass):
    """A pass that a test names."""

    name: ClassVar[str] = ""

    def sites(self, model: ir.Model) -> Iterator[Match | Skip]:
        return iter(())

    def repair(self, model: ir.Model) -> Iterator[Change | Skip]:
        return iter(())


class Saves(Named):
    name: ClassVar[str] = "saves"


class Repairs(Named):
    name: ClassVar[str] = "repairs"


class SavesMore(Named):
    name: ClassVar[str] = "saves-more"


CHOSEN = (Saves(), Repairs(), SavesMore())
NAMES = frozenset(x.name for x in CHOSEN)


@pytest.fixture(autouse=True)
def savings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "SAVINGS", ("saves", "saves-more"))


def kernels(counts: Counts) -> dict[str, int]:
    device, cpu, copies, recompiled = counts
    return {
        "all": device + cpu, "directml": device, "cpu": cpu, "copies": copies,
        "recompiled": recompiled,
    }  # fmt: skip


def counts_with(ran: list[str], costs: Costs) -> Counts:
    columns = zip(ORIGINAL, *(costs.get(x, (0,) * 4) for x in ran), strict=True)
    return Counts(*map(sum, columns))


class World:
    """Models whose kernels follow from the passes that ran."""

    def __init__(self, costs: Costs, monkeypatch: pytest.MonkeyPatch) -> None:
        self.costs, self.tries = costs, list[list[str]]()
        self.rejected: Callable[[list[str]], bool] = lambda _: False
        monkeypatch.setattr(cost_search, "repair_model", self.repair)
        monkeypatch.setattr(planning, "plan_or_none", self.plan)
        monkeypatch.setattr(planning, "kernels_of_plan", lambda x: kernels(x.counts))

    def repair(self, task: Task, leave: Exclusions) -> tuple[ir.Model, Any]:
        ran = [x.name for x in task.chosen if (x.name, WHOLE_PASS) not in leave.reasons]
        self.tries.append(ran)
        if self.rejected(ran):
            raise ModelError("rejected")
        model = ir.from_onnx_text(TEXT)
        model.graph[0].metadata_props[PASS_KEY] = "saves"
        return model, SimpleNamespace(passes=tuple(map(self.report_of, ran)))

    def report_of(self, name: str) -> PassReport:
        added = ("a",) * max(0, self.costs.get(name, (0,))[0])
        change = Change(name, "at", "t", (), added)
        return PassReport(name, name, "exact", (change,))

    def plan(self, model: ir.Model, provider: str) -> Any:
        assert provider == "dml"
        copied = SimpleNamespace(name="y to DirectML", on="copy")
        computed = SimpleNamespace(name="Neg other", on="cpu")
        counts = counts_with(self.tries[-1], self.costs)
        return SimpleNamespace(counts=counts, steps=[copied, computed])


def search(costs: Costs, monkeypatch: pytest.MonkeyPatch, **facts: Any) -> tuple[Any, World]:
    world = World(costs, monkeypatch)
    task = Task(Path("m.onnx"), CHOSEN, profile_passes=NAMES, counted_on="dml")
    task = replace(task, **facts)
    after = counts_with([x.name for x in CHOSEN], costs)
    both: Any = {"before": kernels(ORIGINAL), "after": kernels(after)}
    change = Change("saves", "at", "t", (), ())
    ran = PassReport("saves", "saves", "exact", (change,))
    report = Report("", (ran,), {}, {}, kernels=both)
    return find_cheaper(
        task, NO_EXCLUSIONS, report, ir.Model(ir.Graph([], [], nodes=[]), ir_version=8)
    ), world


def test_nothing_is_tried_where_nothing_is_above(monkeypatch: pytest.MonkeyPatch) -> None:
    for costs, facts in (
        ({"saves": (-3, 0, 0, 0)}, {}),
        ({"saves": (3, 0, 0, 0)}, {"profile_passes": frozenset[str]()}),
        ({"saves": (3, 0, 0, 0)}, {"counted_on": None}),
        ({"saves": (3, 0, 0, 0)}, {"strict": True}),
    ):
        found, world = search(costs, monkeypatch, **facts)
        assert (found.alternative, found.kept, world.tries) == (None, (), [])


def test_what_only_saves_kernels_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = search({"saves": (2, 0, 1, 1), "repairs": (-1, 0, 0, 0)}, monkeypatch)
    (row,) = found.alternative.culprits.left
    assert (row.by, row.instead, row.costs) == ("saves", "", True)
    assert row.row().text == (
        "saves: with it a run takes 2 more kernels on DirectML, 1 more copy, "
        "1 more kernel recompiled at another length"
    )
    # A second run is to know.
    assert found.alternative.leave.reason_for_pass("saves") == f"with it {row.why}"
    assert found.kept == ()


def test_what_repairs_stays_and_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = search({"repairs": (2, -1, 0, 0)}, monkeypatch)
    assert found.alternative is None
    why = (
        "2 more kernels on DirectML, 1 fewer kernel on the CPU; it repairs what is wrong or fails "
        "there"
    )
    assert found.kept == (CostlyPass("repairs", why),)
    assert found.kept[0].row.text == f"repairs: with it a run takes {why}"


def test_more_steps_in_all_are_no_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fusion that takes a copy, and saves five kernels, stays; and the report says so."""
    found, _ = search({"saves": (-5, 0, 1, -5)}, monkeypatch)
    assert found.alternative is None
    assert [x.by for x in found.kept] == ["saves"]
    assert found.kept[0].why.startswith("5 fewer kernels on DirectML, 1 more copy, ")


def test_what_a_user_names_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = search({"saves": (2, 0, 0, 0)}, monkeypatch, profile_passes=NAMES - {"saves"})
    assert (found.alternative, found.kept) == (None, ())


def test_several_are_left_out_the_one_that_adds_most_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    costs = {"saves": (1, 0, 0, 0), "saves-more": (2, 0, 0, 0)}
    found, world = search(costs, monkeypatch)
    assert [x.by for x in found.alternative.culprits.left] == ["saves-more", "saves"]
    assert found.kept == ()
    assert world.tries == [["saves", "repairs", "saves-more"], ["saves", "repairs"], ["repairs"]]


def test_of_what_is_left_above_the_repair_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = search({"saves": (1, 0, 0, 0), "repairs": (2, 0, 0, 0)}, monkeypatch)
    assert [x.by for x in found.alternative.culprits.left] == ["saves"]
    assert [(x.by, x.why.partition(";")[0]) for x in found.kept] == [
        ("repairs", "2 more kernels on DirectML")
    ]


def test_what_was_kept_is_not_said_where_nothing_is_above_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    costs = {"saves": (2, -4, 1, 0), "saves-more": (1, 0, 1, 0), "repairs": (-3, 0, -1, 0)}
    found, world = search(costs, monkeypatch)
    assert [x.by for x in found.alternative.culprits.left] == ["saves-more"]
    assert world.tries[1] == ["repairs", "saves-more"]  # takes more steps in all
    assert found.kept == ()


def test_a_model_that_is_rejected_without_a_pass_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({"saves": (2, 0, 0, 0)}, monkeypatch)
    world.rejected = lambda ran: "saves" not in ran
    task = Task(Path("m.onnx"), CHOSEN, profile_passes=NAMES, counted_on="dml")
    both: Any = {"before": kernels(ORIGINAL), "after": kernels(Counts(12, 5, 1, 8))}
    report = Report("", (), {}, {}, kernels=both)
    found = find_cheaper(
        task, NO_EXCLUSIONS, report, ir.Model(ir.Graph([], [], nodes=[]), ir_version=8)
    )
    assert (found.alternative, found.kept) == (None, ())


def test_a_search_ends_with_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_search, "TRIES", 1)
    found, world = search({"saves": (2, 0, 0, 0)}, monkeypatch)
    assert (found.alternative, len(world.tries)) == (None, 1)


def test_what_only_saves_kernels_is_in_a_profile() -> None:
    assert set(SAVINGS) <= set(registry.PROFILES["fast"])
