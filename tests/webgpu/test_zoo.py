"""A row of the zoo on WebGPU: it runs, agrees, and each node is where it is counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx

from graphfix.model_zoo import model_process, stages
from graphfix.model_zoo.model_process import Request
from graphfix.model_zoo.recipe import Recipe

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

TEXT = """<ir_version: 8, opset_import: ["": 18]>
g (float[T, 8] x) => (float[T, 8] y, int64[2] n) { y = Relu (x)  a = Tanh (y)  n = Shape (a) }"""


def test_a_model_runs_and_is_placed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = tuple(x for x in stages.STAGES if x.name != "bench")  # it has its own tests
    monkeypatch.setattr(stages, "STAGES", short)
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(TEXT), path)
    recipe = Recipe("m", path, passes="fast", gates={"crashes": 0}, dims={"T": [2]})
    row = model_process.run_request(Request(recipe, "webgpu", "k"))
    assert row["ok"], row["reason"]
    assert row["figures"]["crashes"] == {"before": 0, "after": 0, "why": ""}
    assert "fuse-attention" not in row["stages"]["repair"]["spec"]
    assert "on WebGPU: " in next(x["text"] for x in row["gates"] if x["gate"] == "device")
    ran = {node["op"]: node["on"] for node in row["stages"]["placement"]["after"]["nodes"]}
    assert ran["Relu"] == "webgpu"
