"""What a report says of its proof."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest

import graphfix

SUM = """<ir_version: 8, opset_import: ["" : 17]>
m (%s[B, T] x) => (%s[B, T] y) <int64 axis = {1}> { s = %s  y = Identity (s) }"""


@pytest.mark.parametrize(
    ("dtype", "body", "said"),
    [
        ("float16", "CumSum (x, axis)", True),
        ("float16", "LpNormalization (x)", True),
        ("float", "CumSum (x, axis)", False),
        ("float16", "Softmax (x)", False),
    ],
)
def test_float16_that_directml_adds_up_otherwise_is_said(
    dtype: str, body: str, said: bool, tmp_path: Path
) -> None:
    path = tmp_path / "m.onnx"
    ir.save(ir.from_onnx_text(SUM % (dtype, dtype, body)), path)
    report = graphfix.fix(path, "fold", tmp_path / "fixed.onnx")
    assert report.verdict.ok
    operator = body.split()[0]
    notes = [x for x in report.verdict.notes if "verify with --ep dml" in x]
    assert bool(notes) == said
    assert all(operator in x for x in notes)
