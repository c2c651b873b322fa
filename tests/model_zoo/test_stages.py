"""The stages of the work on a model: which run, what a failure leaves, what is measured."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import pytest

from graphfix.benchmark.timing import Claim
from graphfix.errors import GraphfixError
from graphfix.model_zoo import clock, stages
from graphfix.model_zoo.recipe import Recipe
from graphfix.model_zoo.stages import STAGES, run_stages
from graphfix.model_zoo.zoo_job import Stage, ZooJob

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """<ir_version: 8, opset_import: ["" : 17]> m (float[B, T] x) => (float[B, T] y)
    { y = Neg (x) }"""
MASKED = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[B, T, S] x, bool[B, T, S] c) => (float[B, T, S] y) <float low = {-inf}>
    { s = Where (c, x, low)  y = Softmax (s) }"""


def job(
    folder: Path, text: str = TEXT, *, after: bool = True, ep: Any = "cpu", **recipe: Any
) -> ZooJob:
    before, repaired = folder / "model.onnx", folder / "model.fixed.onnx"
    ir.save(ir.from_onnx_text(text), before)
    if after:
        ir.save(ir.from_onnx_text(text), repaired)
    return ZooJob(Recipe("m", before, **recipe), ep, repaired)


def stage(name: str, **options: Any) -> Stage:
    def work(_: ZooJob) -> dict[str, Any]:
        if name == "refuses":
            raise GraphfixError("it is no model")
        if name == "fails":
            raise ValueError("what")
        return {"skipped": "nothing to do"} if name == "skips" else {"done": name}

    return Stage(name, work, **options)


@pytest.mark.parametrize(
    ("after", "ep", "expected"),
    [
        (True, "dml", {"plain": None, "after": None, "dml": None}),
        (False, "dml", {"plain": None, "after": "there is no repaired model", "dml": None}),
        (True, "webgpu", {"plain": None, "after": None, "dml": None}),
        (
            True,
            "cpu",
            {"plain": None, "after": None, "dml": "measured on a device only, such as --ep dml"},
        ),
    ],
)
def test_stages_run_where_they_can(
    after: bool, ep: str, expected: dict[str, str | None], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    chosen = (
        stage("plain", needs_after=False),
        stage("after", measures=("nodes",)),
        stage("dml", on_device=True, needs_after=False, measures=("copies",)),
    )
    monkeypatch.setattr(stages, "STAGES", chosen)
    given = job(tmp_path, after=after, ep=ep)
    told: list[str] = []
    given.tell = told.append
    results = run_stages(given)
    assert results is given.results
    assert {name: x.get("skipped") for name, x in results.items()} == expected
    assert told == [name for name, reason in expected.items() if reason is None]
    for name, figure in (("after", "nodes"), ("dml", "copies")):
        reason = expected[name]
        assert ("figures" in results[name]) is (reason is not None)
        if reason is not None:
            assert results[name]["figures"][figure]["why"] == reason


@pytest.mark.parametrize(
    ("name", "key", "reason"),
    [
        ("refuses", "error", "it is no model"),
        ("fails", "error", "unexpected ValueError: what"),
        ("skips", "skipped", "nothing to do"),
    ],
)
def test_a_stage_that_fails_says_why(
    name: str, key: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "STAGES", (stage(name, measures=("ratio",)), stage("next")))
    results = run_stages(job(tmp_path))
    assert results[name][key] == reason
    assert results[name]["figures"]["ratio"]["why"] == reason
    assert 0 <= results[name]["seconds"] < 60
    assert results["next"]["done"] == "next"


def test_which_stages_there_are() -> None:
    named = {x.name: (x.needs_after, x.on_device) for x in STAGES}
    assert named == {
        "repair": (False, False),
        "check": (False, False),
        "plan": (False, False),
        "padding": (True, False),
        "device": (True, True),
        "placement": (True, True),
        "bench": (True, False),
    }


def test_findings_are_counted_before_and_after(tmp_path: Path) -> None:
    found = stages.check_models(job(tmp_path, MASKED, passes="additive-mask"))
    counts = found["before"]["counts"]
    assert (counts["mask-wheres"], counts["dynamic-reshapes"], counts["nodes"]) == (1, 0, 2)
    assert counts["findings"] == sum(found["before"]["left"].values())
    assert len(found["before"]["findings"]) >= counts["findings"]
    assert found["figures"]["nodes"] == {"before": 2, "after": 2, "why": ""}
    (tmp_path / "model.fixed.onnx").unlink()
    alone = stages.check_models(job(tmp_path, MASKED, after=False))
    assert "after" not in alone
    assert alone["figures"]["nodes"]["why"] == "there is no repaired model"


def test_plans_of_both_models(tmp_path: Path) -> None:
    found = stages.plan_models(job(tmp_path))
    assert {*found["figures"]} == {"fused-graphs", "copies", "cpu-nodes"}
    assert all(x["why"] == "" for x in found["figures"].values())
    (tmp_path / "model.fixed.onnx").unlink()
    alone = stages.plan_models(job(tmp_path, after=False))
    assert alone["plan"]["after"] is None
    assert {x["why"] for x in alone["figures"].values()} == {"there is no repaired model"}


def test_padding_is_measured_behind_a_padding_pass(tmp_path: Path) -> None:
    assert stages.measure_padding(job(tmp_path)) == {
        "skipped": "no padding pass was run, see ilens-mask"
    }


RATIO = SimpleNamespace(value=0.5, low=0.4, high=0.6)


@pytest.mark.parametrize(
    ("claim", "error", "value", "why"),
    [
        (SimpleNamespace(ratio=RATIO, why=""), "", 0.5, "the original is what it is of"),
        (SimpleNamespace(ratio=None, why="noise"), "", None, "cannot tell: noise"),
        (None, "", None, "the original is what it is of"),
        (None, "it died", None, "it died"),
    ],
)
def test_a_ratio_is_claimed_or_the_reason_said(
    claim: Any,
    error: str,
    value: float | None,
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: dict[str, Any] = {}
    saved: list[Any] = []
    models: list[dict[str, Any]] = [
        {"ok": True, "setups": {"any": {"copy": {"steady": {"value": 1.0}}}}},
        {"ok": not error, "setups": {}},
    ]

    def bench(paths: list[Path], **options: Any) -> Any:
        asked.update(options, paths=paths)
        return SimpleNamespace(
            models=[
                SimpleNamespace(error="", claim=None),
                SimpleNamespace(error=error, claim=claim),
            ],
            to_json=lambda: {"models": models},
        )

    monkeypatch.setattr(stages.measure, "bench", bench)
    monkeypatch.setattr(clock, "load_todays_ratio", lambda _: None)
    monkeypatch.setattr(clock, "save_ratio", lambda ep, ratio: saved.append((ep, ratio)))
    found = stages.time_models(job(tmp_path, bench={"processes": 3}))
    figure = found["figures"]["ratio"]
    assert (figure["before"], figure["after"], figure["why"]) == (None, value, why)
    assert ("interval" in figure) is (value is not None)
    assert (asked["processes"], asked["copy"], asked["careful"], asked["fixed"]) == (
        3, True, False, False,
    )  # fmt: skip
    assert asked["seconds"] is not None
    assert saved == [("cpu", {"value": 1.0})]
    assert [x["model"] for x in found["models"]] == ["before", "after"]
    assert [x["ok"] for x in found["models"]] == [True, not error]


@pytest.mark.parametrize(
    ("careful", "ep", "copy", "seconds"),
    [(True, "cpu", True, None), (False, "dml", False, None), (False, "cpu", False, 0.02)],
)
def test_the_clock_of_today_saves_a_copy(
    careful: bool,
    ep: str,
    copy: bool,
    seconds: float | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: dict[str, Any] = {}
    claim = Claim(ratio=None, why="noise")

    def bench(_: list[Path], **options: Any) -> Any:
        asked.update(options)
        model = {"ok": True, "setups": {}}
        sides = [SimpleNamespace(error="", claim=None), SimpleNamespace(error="", claim=claim)]
        return SimpleNamespace(models=sides, to_json=lambda: {"models": [model, model]})

    today = {"value": 1.0, "low": 0.9, "high": 1.1}
    monkeypatch.setattr(stages.measure, "bench", bench)
    monkeypatch.setattr(clock, "load_todays_ratio", lambda _: today)
    found = stages.time_models(job(tmp_path, ep=ep, bench={"careful": careful}))
    assert (asked["copy"], asked["seconds"], asked["careful"]) == (copy, seconds, careful)
    assert found["clock"] == (None if careful else today)
