"""A folder that optimum has exported: the model is repaired, and the folder still loads."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

import graphfix

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("optimum") is None, reason="optimum-onnx is not installed"
    ),
    pytest.mark.filterwarnings("default"),
]


def test_optimum_loads_the_folder_of_the_repaired_model(tmp_path: Path) -> None:
    import torch
    from optimum.exporters.onnx import main_export
    from optimum.onnxruntime import ORTModelForCausalLM
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = LlamaConfig(vocab_size=100, num_hidden_layers=2, intermediate_size=64, **sizes)
    given, export, fixed = (tmp_path / name for name in ("given", "export", "fixed"))
    LlamaForCausalLM(config).save_pretrained(given)
    main_export(str(given), export, task="text-generation-with-past", local_files_only=True)
    fixed.mkdir()
    for file in export.glob("*.json"):
        shutil.copy2(file, fixed)
    assert graphfix.fix(export / "model.onnx", "fast", fixed / "model.onnx").ok

    ids = torch.tensor([[2, 7, 8, 9, 3]])
    told = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 8, "do_sample": False}
    before, after = (
        ORTModelForCausalLM.from_pretrained(x).generate(ids, **told) for x in (export, fixed)
    )
    assert before.tolist() == after.tolist()
