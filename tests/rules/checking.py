"""What the tests of rules share: the findings of ``check`` in a model of ONNX text."""

from __future__ import annotations

import onnx_ir as ir

import graphfix
from graphfix.core import Finding


def findings(text: str, checks: str | None = None, ep: str = "dml") -> list[Finding]:
    return graphfix.check(ir.from_onnx_text(text), checks, ep=ep)


def severities(text: str, check: str, ep: str = "dml") -> list[str]:
    return [x.severity for x in findings(text, check, ep)]


def graph(body: str, opset: int = 18) -> str:
    return f'<ir_version: 8, opset_import: ["" : {opset}]> m {body}'
