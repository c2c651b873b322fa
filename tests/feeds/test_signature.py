"""What the inputs of a model are called."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.facts.shapes import Shapes, shapes_of
from graphfix.feeds import signature
from graphfix.feeds.signature import Signature

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'


def test_t_and_b_stand_for_the_dim_that_grows_and_the_batch() -> None:
    text = "m (float[s7, s9, 4] x, int64[s7, s9] mask) => (float[s7, s9, 4] y)"
    found = Signature(ir.from_onnx_text(f"{HEAD} {text} {{ y = Relu (x) }}"))
    assert found.user_name(found.symbol_of("T")) == "s9"
    assert found.user_name(found.symbol_of("B")) == "s7"
    two = "m (float[s7, s9, 4] x, float[s8, 4] z) => (float[s7, s9, 4] y, float[s8, 4] w)"
    both = Signature(ir.from_onnx_text(f"{HEAD} {two} {{ y = Relu (x) w = Relu (z) }}"))
    assert both.symbol_of("T") is None  # which of two is not said


def test_dims_are_tied_otherwise_without_another_inference(monkeypatch: pytest.MonkeyPatch) -> None:
    inferred: list[object] = []

    def infer(model: ir.Model) -> Shapes:
        inferred.append(model)
        return shapes_of(model)

    monkeypatch.setattr(signature, "shapes_of", infer)
    text = "m (float[B, S] x, float[B, T] z) => (float[B, S] y, float[B, T] w)"
    graph = ir.from_onnx_text(f"{HEAD} {text} {{ y = Relu (x) w = Relu (z) }}")
    first = Signature(graph)
    for tie in ("one-time", "rows"):
        other, apart = first.with_tie(tie), Signature(graph, tie)
        assert (other.groups, other.tie) == (apart.groups, tie)
        assert (len(first.groups), first.tie) == (3, "graph")
        assert len(other.groups) < 3
    assert len(inferred) == 3  # by the first, and by the two that were made anew


def test_scales_that_an_output_continues_are_no_mask() -> None:
    """They are multiplied with a quantized cache, as a mask is, and one is as long as the other."""
    text = """m (float[B, 2, S, 8] new, int8[B, 2, P, 8] past_q, float[B, 2, P, 1] past_s) =>
        (int8[B, 2, Q, 8] present_q, float[B, 2, Q, 1] present_s, float[B, 2, Q, 8] y)
        <int64[1] last = {3}, int64[1] one = {1}, int64[1] nought = {0}> {
        first = Slice (new, nought, one, last) code = Cast <to = 3> (new)
        present_q = Concat <axis = 2> (past_q, code) present_s = Concat <axis = 2> (past_s, first)
        large = Cast <to = 1> (present_q) y = Mul (large, present_s) }"""
    found = Signature(ir.from_onnx_text(f"{HEAD} {text}"))
    assert [x.role.kind for x in found.inputs] == ["data"] * 3
    assert found.past == {"P"}
