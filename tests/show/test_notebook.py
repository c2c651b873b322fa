"""Results where a user looks at them from Python: printed, in a notebook, as JSON."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graphfix
from graphfix.cli import main
from graphfix.engine import registry
from graphfix.proof.verdict import Verdict
from graphfix.spec.manual import manual_of

MASKED = manual_of(registry.pass_class("additive-mask")).before
EVIL = "<script>alert(1)</script>"


class Cells(HTMLParser):
    """The text of each element, by its tag."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self.tags: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.tags.pop() == tag

    def handle_data(self, data: str) -> None:
        self.found.append((self.tags[-1], data))


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    ir.save(ir.from_onnx_text(MASKED), "m.onnx")
    return Path("m.onnx")


def cells(result: Any) -> list[str]:
    return [text for _, text in Cells(result._repr_html_()).found]


def test_a_report_is_printed_as_by_the_command_line(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(file), "-p", "additive-mask"]) == 0
    wanted = capsys.readouterr().out
    print(graphfix.repair_file(file, passes="additive-mask"))
    assert capsys.readouterr().out == wanted
    assert "repairs   2: 2 additive-mask" in wanted


def test_the_verdict_of_a_report_is_the_verdict_of_a_proof(file: Path) -> None:
    report = graphfix.fix(file)
    assert isinstance(report.verdict, graphfix.Verdict)
    assert report.verdict.worst.max_abs <= 1e-6
    assert report.to_json()["verdict"] == report.verdict.to_json()


def test_a_report_in_a_notebook_answers_first(file: Path) -> None:
    found = cells(graphfix.fix(file, "additive-mask"))
    assert found[0] == "Repaired, and it computes the same: m.onnx -> m.fixed.onnx"
    assert {"DirectML", "kernels", "numbers", "repairs"} <= set(found)
    assert found[found.index("repairs") + 1] == "2: 2 additive-mask"


def test_a_verdict_in_a_notebook(file: Path) -> None:
    verdict = graphfix.verify(file, file)
    found = cells(verdict)
    assert found[:2] == ["Computes the same", "numbers"]
    assert "identical" in found[2]
    assert "identical" in repr(verdict)


def test_what_check_finds_is_a_list_and_a_table(file: Path) -> None:
    found = graphfix.check(file)
    assert isinstance(found, list)
    assert repr(found) == "<Findings: 3 warnings, 1 note>"
    assert cells(found)[:2] == ["3 warnings, 1 note", "warning"]
    assert "; repair with -p additive-mask; " in cells(found)[2]
    assert found.to_json()["findings"][0] == found[0].to_json()
    assert repr(graphfix.check(file, "cumsum-index")) == "<Findings: no hazard>"


def test_a_plan_is_printed_and_a_table(file: Path) -> None:
    plan = graphfix.plan(file)
    assert "\n  a run     5 kernels on DirectML" in str(plan)
    assert {"a run", "lengths"} <= set(cells(plan))


def test_a_table_is_small_and_needs_no_other_file(file: Path) -> None:
    for result in (graphfix.fix(file), graphfix.check(file), graphfix.plan(file)):
        text = result._repr_html_()
        assert len(text) < 10_000
        assert not [x for x in ("<script", "<link", "http", "url(") if x in text]
        assert "background" not in text  # it has the colours of the notebook, dark or light


def test_a_name_is_no_markup() -> None:
    text = Verdict(False, {}, reason=EVIL, notes=(EVIL,))._repr_html_()
    assert "<script" not in text
    assert EVIL in [x for _, x in Cells(text).found]


def test_everything_is_json(file: Path) -> None:
    results = (
        graphfix.fix(file),
        graphfix.verify(file, file),
        graphfix.check(file),
        graphfix.check(file)[0],
        graphfix.plan(file),
        graphfix.padded(file, dims={"T": 4}, container=8),
        graphfix.bench([file], ep="cpu", processes=1, runs=1, seconds=0.0),
    )
    for result in results:
        json.dumps(result.to_json())
    assert onnx.load("m.fixed.onnx").graph.node
    assert np.isfinite(results[1].worst.max_abs)
