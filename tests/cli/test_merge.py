"""graphfix merge: what it prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphfix.cli import main
from tests.job.test_merging import ENCODER, FRONT, saved


@pytest.fixture
def pair(tmp_path: Path) -> list[str]:
    return [
        str(saved(tmp_path / "a.onnx", FRONT)),
        str(saved(tmp_path / "b.onnx", ENCODER.replace("feats", "x"))),
    ]


def test_it_says_what_was_joined(pair, tmp_path, capsys):
    output = tmp_path / "c.onnx"
    assert main(["merge", *pair, "-o", str(output), "--connect", "feats=x"]) == 0
    text = capsys.readouterr().out
    assert "identical in" in text
    assert "second_u" not in text
    assert output.exists()


def test_its_json_is_one_document(pair, tmp_path, capsys):
    output = tmp_path / "c.onnx"
    arguments = ["merge", *pair, "-o", str(output), "--connect", "feats=x", "--json"]
    assert main([*arguments, "--no-verify"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["ok"]
    assert data["verdict"] is None
    assert data["inputs"] == ["audio"]
    assert data["output"] == str(output)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--connect", "feats"], "write OUTPUT=INPUT"),
        (["--connect", "feats=x", "--connect", "feats=y"], "given twice"),
        (["--connect", "feats=y"], "no input 'y'"),
        ([], "--connect OUTPUT=INPUT"),
    ],
)
def test_a_wrong_connection_is_usage(pair, tmp_path, capsys, more, words):
    assert main(["merge", *pair, "-o", str(tmp_path / "c.onnx"), *more]) == 2
    assert words in " ".join(capsys.readouterr().err.split())
