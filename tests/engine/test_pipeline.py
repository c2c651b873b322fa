"""A run over a model in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

import graphfix
from graphfix.feeds.signature import Signature

WHISPER = Path(__file__).parents[2] / "models" / "whisper" / "model.onnx"


@pytest.mark.parametrize("spec", ["fast", "opset-ceiling"])
def test_the_default_domain_has_two_names_in_memory_too(spec: str) -> None:
    usual, spelt = graphfix.load(WHISPER), graphfix.load(WHISPER)
    spelt.opset_imports["own"] = 1
    spelt.opset_imports["ai.onnx"] = spelt.opset_imports.pop("")
    names = list(spelt.opset_imports)
    assert graphfix.check(spelt) == graphfix.check(usual)
    assert list(spelt.opset_imports) == names
    assert graphfix.verify(spelt, usual).covered == graphfix.verify(usual, spelt).covered
    assert Signature(spelt).output_dims() == Signature(usual).output_dims()
    after = graphfix.run(spelt, spec).ops_after
    assert after == graphfix.run(usual, spec).ops_after
    assert [x for x in spelt.opset_imports if x != "com.microsoft"] == names
