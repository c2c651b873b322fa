"""A row of the zoo on the real DirectML: what crashed, what runs, and where each node ran."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from graphfix.model_zoo import model_process, stages
from graphfix.model_zoo.model_process import Request
from graphfix.model_zoo.recipe import Recipe

RESHAPE = """<ir_version: 8, opset_import: ["": 18]>
g (float[T, 8] x) => (float[N, 4] y) <int64[2] s = {-1, 4}> {
    a = Relu (x)  b = Reshape <allowzero = 1> (a, s)  y = Tanh (b) }"""


def test_what_crashed_runs_and_is_placed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = tuple(x for x in stages.STAGES if x.name != "bench")  # it has its own tests
    monkeypatch.setattr(stages, "STAGES", short)
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(RESHAPE), path)
    recipe = Recipe("reshape", path, gates={"crashes": 0, "cpu-nodes": 0}, dims={"T": [2]})
    row = model_process.run_request(Request(recipe, "dml", "k"))
    assert row["ok"], row["reason"]
    assert row["figures"]["crashes"] == {"before": 1, "after": 0, "why": ""}
    assert "8007" in row["stages"]["device"]["before"]["reason"]
    assert "8007" in row["figures"]["copies"]["why"]
    assert row["figures"]["worst"]["after"] < 1e-5
    ran = [(node["op"], node["on"]) for node in row["stages"]["placement"]["after"]["nodes"]]
    assert ran
    assert {on for _, on in ran} == {"dml"}
