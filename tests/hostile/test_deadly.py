"""A model that ends the process that runs it, through every verb: a sentence, and nothing left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import pytest

from graphfix.cli import main

if TYPE_CHECKING:
    from pathlib import Path

# The smallest integer divided by -1: 1 << 63 is no int64, and the processor says so.
DEADLY = """<ir_version: 9, opset_import: ["" : 17]>
    m (float[1, T, 4] x) => (float[1, T, 4] y)
    <int64 low = {-9223372036854775808}, int64 five = {5}> {
    four = Shape <start = 2, end = 3> (x)  minus = Sub (four, five)  d = Div (low, minus)
    s = ReduceMax <keepdims = 0> (d)  f = Cast <to = 1> (s)  y = Mul (x, f) }"""
VERBS = {
    "run": ["--dims", "T=3"],
    "fix-dims": [],
    "verify": ["m.onnx", "--dims", "T=3"],
    "padded": ["--dim", "T=4"],
    "bench": ["m.onnx", "--ep", "cpu"],
    "ship": ["-o", "folder", "--container", "T=8"],
}


@pytest.mark.parametrize("verb", VERBS)
def test_it_ends_in_a_sentence(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(onnx.parser.parse_model(DEADLY), tmp_path / "m.onnx")
    monkeypatch.chdir(tmp_path)
    words = [verb, "m.onnx", *VERBS[verb]]
    if verb == "fix-dims":
        words = ["run", "m.onnx", "-p", "fix-dims:T=8"]
    assert main(words) == 2
    told = capsys.readouterr().err
    assert "the process died while running the model" in told
    assert told.count("graphfix: error:") == 1
    assert "warning" not in told
    assert [x.name for x in tmp_path.iterdir()] == ["m.onnx"]


def test_what_would_end_it_is_not_computed_beforehand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(onnx.parser.parse_model(DEADLY), tmp_path / "m.onnx")
    assert main(["run", str(tmp_path / "m.onnx"), "-p", "fold", "--no-verify"]) == 0
    made = onnx.load(tmp_path / "m.fixed.onnx")
    assert "Div" in [node.op_type for node in made.graph.node]
    assert "warning" not in capsys.readouterr().err
