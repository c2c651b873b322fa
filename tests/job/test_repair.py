"""A pass that raises is left out, and the rest is repaired again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import pytest

from graphfix.editing.exclusions import WHOLE_PASS, Exclusions
from graphfix.engine.report import FailedRepair, Report
from graphfix.errors import PassError
from graphfix.job import repair
from graphfix.job.repair import repair_model

if TYPE_CHECKING:
    from pathlib import Path

TEXT = '<ir_version: 8, opset_import: ["" : 17]> m (float[T] x) => (float[T] y) { y = Neg (x) }'


def task(folder: Path, **facts: Any) -> Any:
    source = folder / "m.onnx"
    ir.save(ir.from_onnx_text(TEXT), source)
    values = {
        "source": source, "exclude": ("a*",), "chosen": (), "strict": False, "check": False,
        "tell": lambda _: None, "dims": None, "feeds": None, "tolerance": None,
        "limit_search": lambda most: most,
    }  # fmt: skip
    return SimpleNamespace(**{**values, **facts})


class Applied:
    """Stands for the passes: raises for the first specs, and keeps what it was given."""

    def __init__(self, *raising: str) -> None:
        self.raising = [*raising]
        self.given: list[tuple[ir.Model, Exclusions, Any]] = []

    def __call__(self, model: ir.Model, _: Any, **options: Any) -> Report:
        self.given.append((model, options["leave"], options["settle"]))
        if self.raising:
            spec = self.raising.pop(0)
            raise PassError(spec, f"{spec} raised")
        return Report("", (), {}, {})


def pass_error(spec: str) -> PassError:
    return PassError(spec, f"{spec} raised")


@pytest.fixture
def applied(monkeypatch: pytest.MonkeyPatch) -> Applied:
    found = Applied("one", "two")
    monkeypatch.setattr(repair.pipeline, "apply_passes", found)
    monkeypatch.setattr(repair.pipeline, "can_drop_pass", lambda *_: True)
    return found


def test_passes_that_raise_are_left_out_one_by_one(applied: Applied, tmp_path: Path) -> None:
    leave = Exclusions(reasons={("three", "t"): "it is wrong"})
    _, report = repair_model(task(tmp_path), leave)
    assert [x.by for x in report.left] == ["one", "two"]
    assert all(isinstance(x, FailedRepair) and x.raised and x.at == () for x in report.left)
    first, second, third = (given[1] for given in applied.given)
    assert [*first.reasons] == [("three", "t")]
    assert ("one", WHOLE_PASS) in second.reasons
    assert {("one", WHOLE_PASS), ("two", WHOLE_PASS), ("three", "t")} == {*third.reasons}
    assert third.node_patterns == ("a*",)
    models = [given[0] for given in applied.given]
    assert len({*map(id, models)}) == 3  # each time as it was read
    assert [given[2] for given in applied.given] == [None] * 3


def test_a_model_that_is_loaded_is_repaired_in_place(applied: Applied, tmp_path: Path) -> None:
    applied.raising = ["one"]
    loaded = ir.from_onnx_text(TEXT)
    model, _ = repair_model(task(tmp_path), loaded=loaded)
    assert applied.given[0][0] is loaded
    assert model is not loaded
    applied.raising, applied.given = [], []
    model, report = repair_model(task(tmp_path), loaded=loaded)
    assert (model, report.left) == (loaded, ())


@pytest.mark.parametrize(("strict", "may_go"), [(True, True), (False, False)])
def test_a_pass_that_must_be_there_raises(
    strict: bool, may_go: bool, applied: Applied, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair.pipeline, "can_drop_pass", lambda *_: may_go)
    with pytest.raises(PassError):
        repair_model(task(tmp_path, strict=strict))
    assert len(applied.given) == 1


@pytest.mark.parametrize("met", [True, False, None])
def test_what_the_search_for_rounding_met_is_in_the_report(
    met: bool | None, applied: Applied, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied.raising = []
    made: list[tuple[Any, ...]] = []

    def calibration(*given: Any) -> Any:
        made.append(given)
        return SimpleNamespace(met=met)

    monkeypatch.setattr(repair, "Calibration", calibration)
    _, report = repair_model(task(tmp_path, check=True), margin=0.25, known={"a": {}})
    assert report.met is met
    assert made[0][5] == 0.25
    assert made[0][-2:] == (repair.TRIES, {"a": {}})
    repair_model(task(tmp_path, check=True))
    assert made[1][5] == repair.MARGINS[0]
    assert made[1][-1] == {}
    assert applied.given[0][2].met is met
