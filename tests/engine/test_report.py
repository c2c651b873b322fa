"""What was done to a model, in words and as data."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from graphfix.core import Change
from graphfix.engine.report import (
    SCHEMA,
    FailedRepair,
    Hazards,
    PassReport,
    Report,
    endless_rows,
)

if TYPE_CHECKING:
    from graphfix.engine.report import Kernels

CHANGE = Change("p", "/net/Relu", "y", ("y = Relu (x)",), ("y = Abs (x)",))
SKIPS = (("/net/a", "almost"), ("/net/b", "almost"))


def report(*passes: PassReport) -> Report:
    return Report("p", passes, {"Relu": 1}, {"Abs": 1})


IDLE = PassReport("p", "p", "exact")
BUSY = PassReport("p", "p", "conditional", (CHANGE, CHANGE))
NEAR = PassReport("q", "q", "exact", (), SKIPS)


def texts(of: Report, label: str, *, verbose: bool = False) -> list[str]:
    return [row.text for row in of.rows(verbose=verbose) if row.label == label]


@pytest.mark.parametrize(
    ("failed", "label", "text"),
    [
        (FailedRepair("p", (), "it failed"), "left out", "p: with it it failed"),
        (FailedRepair("p", ("a", "b"), "it failed"), "left out", "p at a, b: with it it failed"),
        (
            FailedRepair("p", ("a", "b", "c"), "it failed"),
            "left out",
            "p at a, b and 1 more (-v): with it it failed",
        ),
        (FailedRepair("p", ("a",), "it failed", "q"), "instead", "q at a: with p it failed"),
        (
            FailedRepair("p", (), "a run takes 2 copies", costs=True),
            "left out",
            "p: with it a run takes 2 copies",
        ),
        (
            FailedRepair("p", (), "it raised", raised=True),
            "left out",
            "it raised; what it did was rolled back",
        ),
    ],
)
def test_a_failed_repair(failed: FailedRepair, label: str, text: str) -> None:
    row = failed.row()
    assert (row.label, row.text) == (label, text)
    assert "more" not in failed.row(verbose=True).text


def test_what_changed() -> None:
    assert not report(IDLE, NEAR).changed
    assert report(IDLE, BUSY).changed
    assert report(IDLE, BUSY).safety == "conditional"
    assert report(replace(BUSY, changes=()), IDLE).safety == "exact"
    assert report(BUSY).ok
    assert texts(report(IDLE), "repairs") == ["none needed"]
    assert texts(report(BUSY, replace(BUSY, name="r"), BUSY, IDLE), "repairs") == ["6: 4 p, 2 r"]


def test_titles_and_answers() -> None:
    memory = report(BUSY)
    assert (memory.title, memory.answer) == ("a model in memory", "Not verified")
    assert memory.line == "Not verified: a model in memory"
    written = replace(memory, source="a.onnx", output="b.onnx")
    assert written.title == "a.onnx -> b.onnx"
    assert replace(written, passes=(IDLE,)).title == "a.onnx -> b.onnx (an identical graph)"
    assert replace(written, output=None).title == "a.onnx -> nothing, a dry run"
    assert report(IDLE).answer == "No automatic repair"
    assert texts(written, "numbers") == ["not compared, as asked (--no-verify)"]
    assert texts(memory, "numbers") == []
    assert texts(memory, "padded") == []


def test_near_misses() -> None:
    assert report(NEAR).near_misses == [*SKIPS]
    assert report(NEAR, BUSY).near_misses == []
    assert report(replace(NEAR, advice="try"), BUSY).near_misses == [*SKIPS]
    assert texts(report(NEAR), "skipped") == ["2 places"]
    assert texts(report(NEAR, BUSY), "skipped") == ["2 places (-v lists each with its reason)"]
    assert texts(report(NEAR), "skipped", verbose=True) == []
    assert texts(report(BUSY), "skipped") == []
    assert "almost" in str(report(NEAR))


def hazards(before: int, after: int) -> Hazards:
    def errors(count: int) -> list[dict[str, str]]:
        warning = {"rule": "w", "at": "/w", "severity": "warning"}
        return [warning, *[{"rule": "e", "at": "/e", "severity": "error"}] * count]

    return {
        "before": {"error": before, "warning": 1},
        "after": {"error": after, "warning": 1},
        "had": errors(before),
        "left": errors(after),
    }


FAILS = "does not run correctly ({}: e at /e)"


@pytest.mark.parametrize(
    ("before", "after", "text", "worse"),
    [
        (0, 0, "runs", ""),
        (1, 0, f"{FAILS.format('1 error')} -> runs", ""),
        (1, 1, FAILS.format("1 error"), ""),
        (0, 2, f"runs -> {FAILS.format('2 errors')}", "errors 0 -> 2"),
    ],
)
def test_what_directml_does_with_it(before: int, after: int, text: str, worse: str) -> None:
    found = replace(report(BUSY), hazards=hazards(before, after))
    assert found.on_provider == f"{text}, predicted"
    assert found.worse == worse
    assert len(texts(found, "worse")) == bool(worse)
    (row,) = [x for x in found.rows() if x.label == "DirectML"]
    assert (row.text, row.colour == "red") == (f"{text}, predicted", bool(after))
    assert report(BUSY).on_provider == ""


def test_kernels() -> None:
    before = {"all": 9, "directml": 7, "cpu": 2, "recompiled": 4}
    kernels: Kernels = {"before": before, "after": {**before, "all": 10}}
    found = replace(report(BUSY), kernels=kernels)
    text = "7 -> 7 on DirectML, 2 -> 2 on the CPU; 4 -> 4 recompiled per new length"
    assert texts(found, "kernels") == [text]
    assert found.worse == "kernels 9 -> 10"
    errors = {"before": {"error": 1, "warning": 0}, "after": {"error": 0, "warning": 0}}
    mended = replace(found, hazards={**errors, "had": [], "left": []})
    assert mended.worse == ""
    recompiled = replace(found, kernels={"before": before, "after": {**before, "recompiled": 5}})
    assert recompiled.worse == "recompiled per new length 4 -> 5"
    same = replace(found, kernels={"before": before, "after": before})
    assert same.worse == ""
    unknown = replace(found, kernels={"before": None, "after": before})
    text = "? -> 7 on DirectML, ? -> 2 on the CPU; ? -> 4 recompiled per new length"
    assert texts(unknown, "kernels") == [text]
    assert unknown.worse == ""
    assert texts(report(BUSY), "kernels") == []


def test_passes_that_do_not_end() -> None:
    assert endless_rows([]) == []
    (row,) = endless_rows(["p", "q", "p"])
    assert row.label == "unsettled"
    assert row.text.startswith("p and q still changed something after 5 rounds")
    assert texts(replace(report(BUSY), endless=("p",)), "unsettled")
    assert texts(replace(report(BUSY), searched="3 runs"), "searched") == ["3 runs"]
    assert texts(report(BUSY), "searched") == []
    left = (FailedRepair("p", ("a", "b", "c"), "it failed"),)
    assert "1 more" in texts(replace(report(BUSY), left=left), "left out")[0]
    assert "more" not in texts(replace(report(BUSY), left=left), "left out", verbose=True)[0]


def test_plain_data() -> None:
    data = json.loads(json.dumps(report(BUSY).to_json()))
    assert data["schema"] == SCHEMA == 1
    assert data["passes"][0]["seconds"] == 0
    assert (data["answer"], data["worse"], data["verdict"]) == ("Not verified", "", None)
    assert data["passes"][0]["changes"][0]["added"] == ["y = Abs (x)"]
