"""What a model's results must meet, judged on results written down here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphfix.model_zoo.figures import make_figure
from graphfix.model_zoo.gates import judge_gates
from graphfix.model_zoo.recipe import Recipe


def judged(
    stages: dict[str, Any] | None = None,
    figures: dict[str, Any] | None = None,
    ep: Any = "cpu",
    **expected: Any,
) -> list[tuple[str, bool | None, str]]:
    recipe = Recipe("m", Path("m.onnx"), **expected)
    results = judge_gates(recipe, ep, {"repair": {}, **(stages or {})}, figures or {})
    return [(x["gate"], x["ok"], x["text"]) for x in results]


@pytest.mark.parametrize(
    ("value", "interval", "ok", "text"),
    [
        (2.0, None, True, "nodes: 2, at most 2 is allowed"),
        (3.0, None, False, "nodes: 3, at most 2 is allowed"),
        (3.0, (2.0, 4.0), True, "nodes: 3 (2 to 4), at most 2 is allowed"),
        (3.0, (2.5, 4.0), False, "nodes: 3 (2.5 to 4), at most 2 is allowed"),
        (1.0, (1.0, 1.0), True, "nodes: 1, at most 2 is allowed"),
        (None, None, None, "nodes: not known, too noisy"),
    ],
)
def test_a_figure_is_at_most_what_its_gate_allows(
    value: float | None, interval: tuple[float, float] | None, ok: bool | None, text: str
) -> None:
    figure: dict[str, Any] = {**make_figure(9, value, "too noisy")}
    if interval is not None:
        figure["interval"] = interval
    assert judged(figures={"nodes": figure}, gates={"nodes": 2.0}) == [("nodes", ok, text)]


def test_an_error_is_said_once_with_the_stages_that_met_it() -> None:
    stages = {
        "repair": {"error": "it is no model"},
        "check": {"error": "it is no model"},
        "bench": {"error": "no clock"},
        "plan": {"error": ""},
    }
    assert judged(stages) == [
        ("repair", False, "repair, check: it is no model"),
        ("bench", False, "bench: no clock"),
    ]


@pytest.mark.parametrize("ok", [True, False])
@pytest.mark.parametrize(
    ("stage", "part", "gate", "where"),
    [
        ("repair", "verdict", "verified", "on the CPU"),
        ("device", "after", "device", "on DirectML"),
        ("padding", "after", "padded", "in containers"),
    ],
)
def test_a_verdict_is_a_gate(stage: str, part: str, gate: str, where: str, ok: bool) -> None:
    verdict = {"ok": ok, "summary": "the same"}
    assert judged({stage: {part: verdict}}, ep="dml") == [(gate, ok, f"{where}: the same")]
    elsewhere = where.replace("DirectML", "WebGPU")
    assert judged({stage: {part: verdict}}, ep="webgpu") == [(gate, ok, f"{elsewhere}: the same")]
    assert judged({stage: {part: None}}) == judged() == []


@pytest.mark.parametrize(
    ("ep", "ok", "error", "outputs", "text"),
    [
        ("cpu", True, "", [True], "while timed on the CPU: the outputs are the same"),
        ("dml", True, "", [True], "while timed on DirectML: the outputs are the same"),
        ("cpu", False, "", [True, False], "while timed on the CPU: an output is 1 off"),
        ("cpu", False, "it died", [], "while timed on the CPU: it died"),
    ],
)
def test_the_outputs_of_a_timing_are_a_gate(
    ep: str, ok: bool, error: str, outputs: list[bool], text: str
) -> None:
    found = [{"ok": x, "reason": "" if x else "is 1 off"} for x in outputs]
    models = [{"ok": False}, {"ok": ok, "error": error, "outputs": found}]
    assert judged({"bench": {"models": models}}, ep=ep) == [("bench", ok, text)]


PASSES = [
    {"name": "a", "changes": [1, 2], "skips": []},
    {"name": "b", "changes": [], "skips": [3]},
]


@pytest.mark.parametrize(
    ("expected", "gate", "ok", "text"),
    [
        ({"repairs": {"a": 2}}, "repairs", True, "repairs: as expected"),
        ({"repairs": {"a": 2, "b": 0}}, "repairs", True, "repairs: as expected"),
        ({"repairs": {}}, "repairs", False, "repairs: a: 2 instead of 0"),
        (
            {"repairs": {"c": 1, "a": 1}},
            "repairs",
            False,
            "repairs: a: 2 instead of 1; c: 0 instead of 1",
        ),
        ({"near_misses": {"b": 1}}, "near-misses", True, "near-misses: as expected"),
        ({"near_misses": {}}, "near-misses", False, "near-misses: b: 1 instead of 0"),
        ({"findings": {"r": 4}}, "findings", True, "findings: as expected"),
        ({"findings": {"r": 5}}, "findings", False, "findings: r: 4 instead of 5"),
    ],
)
def test_counts_are_those_that_the_recipe_expects(
    expected: dict[str, Any], gate: str, ok: bool, text: str
) -> None:
    stages = {"repair": {"passes": PASSES}, "check": {"after": {"left": {"r": 4}}}}
    assert judged(stages, **expected) == [(f"expect.{gate}", ok, text)]


def test_nothing_is_expected_of_what_was_not_done() -> None:
    assert judged(repairs={"a": 1}, findings={"r": 1}) == []
    assert judged({"repair": {"passes": []}}, findings={"r": 1}) == []
    assert judged({"repair": {"passes": PASSES}}) == []
