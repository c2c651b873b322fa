"""Export a small wav2vec 2.0 encoder with random weights, from transformers 5 by torch's dynamo.

The variant with GroupNorm in the first convolution, as wav2vec2-base has it.

    pip install torch==2.13.0 transformers==5.23.0 onnx onnxscript
    python models/wav2vec2/export.py new.onnx

Run with these versions, it gave the operators of model.onnx, each as often; weights differ.
"""

from __future__ import annotations

import sys

import torch
from torch.export import Dim
from transformers import Wav2Vec2Config, Wav2Vec2Model

CONFIG = Wav2Vec2Config(
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    feat_extract_norm="group",
    conv_dim=(16, 16, 16),
    conv_kernel=(10, 3, 3),
    conv_stride=(5, 2, 2),
    num_conv_pos_embeddings=8,
    num_conv_pos_embedding_groups=2,
    apply_spec_augment=False,
    attn_implementation="sdpa",
)


class Wav2Vec2(torch.nn.Module):
    """The model with a tensor for its output."""

    def __init__(self):
        super().__init__()
        self.m = Wav2Vec2Model(CONFIG)

    def forward(self, input_values, attention_mask):
        return self.m(input_values, attention_mask=attention_mask).last_hidden_state


def export(path: str) -> None:
    torch.manual_seed(0)
    mask = torch.ones(2, 800, dtype=torch.int64)
    mask[1, 500:] = 0
    both = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    torch.onnx.export(
        Wav2Vec2().eval(),
        (torch.randn(2, 800) * 0.3, mask),
        path,
        input_names=["input_values", "attention_mask"],
        output_names=["out"],
        opset_version=18,
        dynamo=True,
        dynamic_shapes=(both, both),
        external_data=False,
    )


if __name__ == "__main__":
    export(sys.argv[1])
