"""Export a small Qwen3 with random weights as a decoder: its caches are inputs and outputs.

    pip install torch==2.13.0 transformers==5.24.0 onnx
    python models/qwen3-decoder/export.py new.onnx

The language model of Qwen3-ASR is such a decoder. Before it is written, a prompt and steps of one
token are held against one run over the whole.
"""

from __future__ import annotations

import sys

import torch
from transformers import DynamicCache, Qwen3Config, Qwen3ForCausalLM

LAYERS, TOKENS = 2, 100
CONFIG = Qwen3Config(
    vocab_size=TOKENS,
    hidden_size=32,
    num_hidden_layers=LAYERS,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    intermediate_size=64,
    max_position_embeddings=512,
    attn_implementation="eager",
)
STATES = [f"{i}.{kind}" for i in range(LAYERS) for kind in ("key", "value")]


class Step(torch.nn.Module):
    """One step, with tensors for its caches."""

    def __init__(self):
        super().__init__()
        self.m = Qwen3ForCausalLM(CONFIG)

    def forward(self, input_ids, attention_mask, *past):
        cache = DynamicCache(list(zip(past[::2], past[1::2], strict=True)))
        made = self.m(
            input_ids=input_ids,
            attention_mask=attention_mask,
            past_key_values=cache,
            use_cache=True,
        )
        return made.logits, *[x for one in cache.layers for x in (one.keys, one.values)]


def stepped(model: Step, ids: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    """The logits of tokens that are given in pieces."""
    states, made, done = [torch.zeros(len(ids), 2, 0, 8) for _ in STATES], [], 0
    for size in sizes:
        done += size
        mask = torch.ones(len(ids), done, dtype=torch.int64)
        logits, *states = model(ids[:, done - size : done], mask, *states)
        made.append(logits)
    return torch.cat(made, 1)


def export(path: str) -> None:
    torch.manual_seed(0)
    model = Step().eval()
    with torch.no_grad():
        ids = torch.randint(0, TOKENS, (2, 9))
        torch.testing.assert_close(stepped(model, ids, [6, 1, 1, 1]), stepped(model, ids, [9]))
    given = (ids[:, :3], torch.ones(2, 8, dtype=torch.int64))
    past = [torch.randn(2, 2, 5, 8) for _ in STATES]
    grown = {0: "batch", 2: "past"}
    names = [f"past_key_values.{x}" for x in STATES]
    torch.onnx.export(
        model,
        (*given, *past),
        path,
        input_names=["input_ids", "attention_mask", *names],
        output_names=["logits", *[f"present.{x}" for x in STATES]],
        dynamic_axes={
            "input_ids": {0: "batch", 1: "seq"},
            "attention_mask": {0: "batch", 1: "past+seq"},
            **dict.fromkeys(names, grown),
        },
        opset_version=17,
        dynamo=False,
    )


if __name__ == "__main__":
    export(sys.argv[1])
