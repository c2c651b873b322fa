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


def test_an_error_is_a_node_or_two_and_its_repair() -> None:
    found = graphfix.reduce(ir.from_onnx_text(RESHAPE), ep="dml")
    # As the last node, it fails with another code.
    assert [x.op_type for x in found.model.graph] == ["Reshape", "Neg"]
    assert found.failure.code == "8007023E"
    assert found.passes == ("reshape-allowzero",)
    assert "onnxruntime" not in found.failure.text
    assert "on DirectML" in found.report.splitlines()[0]
