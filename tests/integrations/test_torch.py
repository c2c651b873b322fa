"""What torch.onnx.export returns is a model, and so is what graphfix makes of it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import onnx
import pytest

import graphfix
from tests.integrations import page

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.filterwarnings("default"),
]


def test_an_onnx_program_is_taken() -> None:
    import torch

    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = torch.nn.MultiheadAttention(16, 2, batch_first=True)
            self.norm = torch.nn.LayerNorm(16)

        def forward(self, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
            made, _ = self.attention(x, x, x, key_padding_mask=hidden, need_weights=False)
            return self.norm(x + made)

    dims = {0: "B", 1: "T"}
    program = torch.onnx.export(
        Attention().eval(),
        (torch.randn(2, 9, 16), torch.zeros(2, 9, dtype=torch.bool)),
        dynamo=True,
        dynamic_shapes={"x": dims, "hidden": dims},
        verbose=False,
    )
    fixed = graphfix.fix(program, "fast")
    assert isinstance(fixed, onnx.ModelProto)
    assert len(fixed.graph.node) < len(program.model_proto.graph.node)
    assert graphfix.verify(program, fixed, safety="valid-rows")  # where a row is hidden whole


def test_the_program_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(page.marked("torch"), "program.py", "exec"), {})
    kinds = {node.op_type for node in onnx.load("model.onnx").graph.node}
    assert "MultiHeadAttention" in kinds or "Attention" in kinds
