"""What the model builder of onnxruntime-genai writes: graphfix keeps it usable."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import graphfix

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("onnxruntime_genai") is None,
        reason="onnxruntime-genai is not installed",
    ),
    pytest.mark.filterwarnings("default"),
]


def _llama(folder: Path) -> None:
    from tokenizers import Tokenizer, models
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = LlamaConfig(vocab_size=128, num_hidden_layers=2, intermediate_size=64, **sizes, **ids)
    LlamaForCausalLM(config).save_pretrained(folder)
    vocab = {text: i for i, text in enumerate(["<pad>", "<s>", "</s>", *map(chr, range(32, 127))])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    named = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named).save_pretrained(folder)


def _tokens(folder: Path) -> list[int]:
    import onnxruntime_genai

    model = onnxruntime_genai.Model(str(folder))
    params = onnxruntime_genai.GeneratorParams(model)
    params.set_search_options(max_length=20, do_sample=False)
    generator = onnxruntime_genai.Generator(model, params)
    generator.append_tokens([5, 20, 31, 44, 7])
    while not generator.is_done():
        generator.generate_next_token()
    return [int(x) for x in generator.get_sequence(0)]


@pytest.mark.parametrize("precision", ["fp32", "int4"])
def test_the_same_tokens_are_generated(precision: str, tmp_path: Path) -> None:
    given, built, fixed = (tmp_path / name for name in ("given", "built", "fixed"))
    _llama(given)
    words = ["-m", "onnxruntime_genai.models.builder", "-i", given, "-o", built, "-p", precision]
    words += ["-e", "cpu", "-c", tmp_path / "cache"]
    subprocess.run([sys.executable, *map(str, words)], check=True, capture_output=True)
    fixed.mkdir()
    for file in built.glob("*.json"):
        shutil.copy2(file, fixed)
    told = json.loads((built / "genai_config.json").read_text(encoding="utf-8"))
    head = told["model"]["decoder"]["head_size"]
    source, target = built / "model.onnx", fixed / "model.onnx"
    assert graphfix.fix(source, "fast", target, dims={"kv_cache_dim": head}).ok
    assert _tokens(built) == _tokens(fixed)
