"""A folder that optimum has exported: the model is repaired, and the folder still loads."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from tests.integrations import page

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("optimum") is None, reason="optimum-onnx is not installed"
    ),
    pytest.mark.filterwarnings("default"),
]


def test_optimum_loads_the_folder_of_the_repaired_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from optimum.onnxruntime import ORTModelForCausalLM

    monkeypatch.chdir(tmp_path)
    page.llama(tmp_path / "llama")
    printed = page.run_commands_of("optimum-cli")
    counts = re.search(r"kernels +(\d+) -> (\d+) on DirectML, (\d+) -> (\d+) on the CPU", printed)
    assert counts is not None
    before, after, cpu_before, cpu_after = map(int, counts.groups())
    assert (before + cpu_before, after + cpu_after) == (294, 85)
    assert Path("fixed/tokenizer.json").is_file()
    ids = torch.tensor([[2, 7, 8, 9, 3]])
    told = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 8, "do_sample": False}
    before, after = (
        ORTModelForCausalLM.from_pretrained(x).generate(ids, **told) for x in ("export", "fixed")
    )
    assert before.tolist() == after.tolist()
