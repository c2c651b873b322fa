"""Advice on two models that are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir


def rounding_advice(before: ir.Model, after: ir.Model) -> str:
    """Return how to allow the rounding of another tool, or ""."""
    from graphfix.proof.compare import computes_in_half

    if computes_in_half(before) or not computes_in_half(after):
        return ""
    return "; it computes in float16: --rtol 0.01 allows what that rounds"
