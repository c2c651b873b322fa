"""What the inputs of a model are called."""

from __future__ import annotations

import onnx_ir as ir

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
