"""Export a small streaming decoder with random weights: one step, its states given and taken.

    pip install torch==2.13.0 transformers==5.23.0 onnx onnxscript
    python models/tts-decoder/export.py new.onnx

Codes go through a Qwen3 decoder with a cache, as Qwen3-TTS has it, and through a causal Conv that
keeps the frames before it; ``is_last`` clears what is kept. Before it is written, steps of several
sizes, the first with an empty cache, are held against one run over the whole.

Run with these versions, it gave the operators of model.onnx, each as often; weights differ.
"""

from __future__ import annotations

import sys

import torch
from torch.export import Dim
from transformers import DynamicCache, Qwen3Config, Qwen3Model

CODES, KERNEL, LAYERS = 90, 5, 2
CONFIG = Qwen3Config(
    vocab_size=CODES,
    hidden_size=32,
    num_hidden_layers=LAYERS,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    intermediate_size=64,
    max_position_embeddings=512,
    attn_implementation="sdpa",
)
STATES = [f"{x}_{i}" for i in range(LAYERS) for x in ("key", "value")]


class Step(torch.nn.Module):
    """One step of the decoder, with tensors for its states."""

    def __init__(self):
        super().__init__()
        self.m = Qwen3Model(CONFIG)
        self.conv = torch.nn.Conv1d(32, 32, KERNEL)
        self.head = torch.nn.Linear(32, 12)

    def forward(self, codes, attention_mask, is_last, conv_cache, *past):
        cache = DynamicCache(list(zip(past[::2], past[1::2], strict=True)))
        hidden = self.m(
            input_ids=codes, attention_mask=attention_mask, past_key_values=cache, use_cache=True
        ).last_hidden_state
        frames = torch.cat([conv_cache, hidden.transpose(1, 2)], 2)
        wave = self.head(torch.nn.functional.gelu(self.conv(frames)).transpose(1, 2))
        kept = frames[:, :, -(KERNEL - 1) :]
        kept = torch.where(is_last, torch.zeros_like(kept), kept)
        present = [x for layer in cache.layers for x in (layer.keys, layer.values)]
        return wave.flatten(1), kept, *present


def empty(rows: int) -> list[torch.Tensor]:
    """The states before the first step."""
    return [torch.zeros(rows, 32, KERNEL - 1), *[torch.zeros(rows, 2, 0, 8) for _ in STATES]]


def stepped(model: Step, codes: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    """What comes out if the codes are given in pieces."""
    states, waves, done = empty(codes.shape[0]), [], 0
    for size in sizes:
        done += size
        mask = torch.ones(codes.shape[0], done, dtype=torch.int64)
        part = codes[:, done - size : done]
        wave, *states = model(part, mask, torch.tensor(done == sum(sizes)), *states)
        waves.append(wave)
    return torch.cat(waves, 1)


def export(path: str) -> None:
    torch.manual_seed(0)
    model = Step().eval()
    with torch.no_grad():
        codes = torch.randint(0, CODES, (2, 12))
        pieces, whole = stepped(model, codes, [5, 1, 1, 3, 2]), stepped(model, codes, [12])
        torch.testing.assert_close(pieces, whole, rtol=1e-4, atol=1e-5)
    rows, new, old = 2, 3, 6
    past = [torch.randn(rows, 2, old, 8) for _ in STATES]
    feeds = (
        torch.randint(0, CODES, (rows, new)),
        torch.ones(rows, old + new, dtype=torch.int64),
        torch.tensor(False),
        torch.randn(rows, 32, KERNEL - 1),
        *past,
    )
    two = {0: Dim.AUTO, 1: Dim.AUTO}
    torch.onnx.export(
        model,
        feeds,
        path,
        input_names=["codes", "attention_mask", "is_last", "conv_cache"]
        + [f"past_{x}" for x in STATES],
        output_names=["wave", "new_conv_cache", *(f"present_{x}" for x in STATES)],
        opset_version=18,
        dynamo=True,
        dynamic_shapes={
            "codes": two,
            "attention_mask": two,
            "is_last": {},
            "conv_cache": {0: Dim.AUTO},
            "past": tuple({0: Dim.AUTO, 2: Dim.AUTO} for _ in STATES),
        },
        external_data=False,
    )


if __name__ == "__main__":
    export(sys.argv[1])
