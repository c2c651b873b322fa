"""``graphfix reduce``: what it prints and writes, and when it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import onnx_ir as ir
import pytest

from graphfix.cli import main
from tests.reducing.test_reduction import CHAIN, KILLED


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ir.save(ir.from_onnx_text(KILLED), "killed.onnx")
    ir.save(ir.from_onnx_text(CHAIN), "fine.onnx")


def test_three_files_are_written_beside_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reduce", "killed.onnx", "--ep", "cpu"]) == 0
    out = capsys.readouterr().out
    assert "killed.onnx -> killed.small.onnx" in out
    assert "nodes     10 -> 1, Div" in out
    assert "repairs   no pass of graphfix does" in out
    assert {x.name for x in Path().iterdir()} == {
        *("killed.onnx", "fine.onnx"),
        *("killed.small.onnx", "killed.small.npz", "killed.small.md"),
    }


def test_json_names_the_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reduce", "killed.onnx", "--ep", "cpu", "-o", "one.onnx", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["files"] == ["one.onnx", "one.npz", "one.md"]
    assert data["failure"]["kind"] == "dies"


def test_a_model_that_does_not_fail_is_no_result(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reduce", "fine.onnx", "--ep", "cpu"]) == 2
    assert "the model does not fail on the CPU" in capsys.readouterr().err
    assert not list(Path().glob("*.small.*"))


def test_a_folder_that_is_not_there_is_refused_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reduce", "killed.onnx", "--ep", "cpu", "-o", "none/one.onnx"]) == 2
    assert "there is no folder none" in capsys.readouterr().err
