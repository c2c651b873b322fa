"""On the real DirectML: the smallest model that still fails, and what repairs it."""

from __future__ import annotations

import onnx_ir as ir

import graphfix

HEAD = '<ir_version: 8, opset_import: ["": 18]>\n'
RESHAPE = (
    HEAD
    + """g (float[T, 8] x) => (float[N, 4] y) <int64[2] target = {-1, 4}> {
    a = Relu (x)  b = Abs (a)  [view] c = Reshape <allowzero = 1> (b, target)  y = Neg (c) }"""
)


def test_an_error_is_one_node_and_its_repair() -> None:
    found = graphfix.reduce(ir.from_onnx_text(RESHAPE), ep="dml")
    assert [x.name for x in found.model.graph] == ["view"]
    assert found.failure.code in ("8007023E", "80070057")
    assert found.passes == ("reshape-allowzero",)
    assert "onnxruntime" not in found.failure.text
    assert "on DirectML" in found.report.splitlines()[0]
