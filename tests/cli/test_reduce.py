"""``graphfix reduce``: what it prints and writes, and when it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
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


def test_the_original_s_part_is_written_too(capsys: pytest.CaptureFixture[str]) -> None:
    ir.save(ir.from_onnx_text(CHAIN.replace("Add", "Sub")), "wrong.onnx")
    assert main(["reduce", "wrong.onnx", "--ep", "cpu", "--original", "fine.onnx"]) == 0
    out = capsys.readouterr().out
    assert "nodes     4 -> 1, Sub" in out
    assert "original  wrong.small.original.onnx" in out
    assert "repairs" not in out
    assert Path("wrong.small.original.onnx").exists()
    Path("small.original.onnx").write_bytes(Path("fine.onnx").read_bytes())
    words = ["reduce", "wrong.onnx", "--ep", "cpu", "--original", "small.original.onnx"]
    assert main([*words, "-o", "small.onnx"]) == 2
    assert "small.original.onnx" in capsys.readouterr().err


def test_a_model_that_does_not_fail_is_no_result(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reduce", "fine.onnx", "--ep", "cpu"]) == 2
    assert "the model does not fail on the CPU" in capsys.readouterr().err
    assert not list(Path().glob("*.small.*"))


@pytest.mark.parametrize(
    ("output", "says"),
    [
        ("killed.onnx", "killed.onnx is the input itself"),
        ("feeds.onnx", "feeds.npz is read for this work"),
        ("small.npz", "name a file.onnx"),
        ("small.md", "name a file.onnx"),
        ("-", "only graphfix run writes to stdout"),
    ],
)
def test_what_is_read_is_not_overwritten(
    output: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez("feeds.npz", x=np.ones((2, 4), np.float32))
    before = {x.name: x.read_bytes() for x in Path().iterdir()}
    words = ["reduce", "killed.onnx", "--ep", "cpu", "--feeds", "feeds.npz", "-o", output]
    assert main(words) == 2
    assert says in capsys.readouterr().err
    assert {x.name: x.read_bytes() for x in Path().iterdir()} == before


def test_a_folder_that_is_not_there_is_refused_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reduce", "killed.onnx", "--ep", "cpu", "-o", "none/one.onnx"]) == 2
    assert "there is no folder none" in capsys.readouterr().err
