"""Export a small Whisper encoder with random weights, for clips of any length.

The package's own forward takes 30 s and nothing else. This one runs the package's layers on mel
frames of any number, and looks the positions up for as many frames as there are.

    pip install torch==2.13.0 transformers==5.23.0 onnx onnxscript
    python models/whisper/export.py new.onnx

Run with these versions, it gave the operators of model.onnx, each as often; weights differ.
"""

from __future__ import annotations

import sys

import torch
from torch.export import Dim
from torch.nn.functional import gelu
from transformers import WhisperConfig
from transformers.models.whisper.modeling_whisper import WhisperEncoder

CONFIG = WhisperConfig(
    num_mel_bins=8,
    d_model=32,
    encoder_layers=2,
    encoder_attention_heads=2,
    encoder_ffn_dim=64,
    max_source_positions=100,
    attn_implementation="eager",
)


class Whisper(torch.nn.Module):
    """The encoder for clips of any length."""

    def __init__(self):
        super().__init__()
        self.m = WhisperEncoder(CONFIG)

    def forward(self, mel):
        x = gelu(self.m.conv1(mel))
        x = gelu(self.m.conv2(x)).permute(0, 2, 1)
        x = x + self.m.embed_positions(torch.arange(x.shape[1]))[None]
        for layer in self.m.layers:
            x = layer(x, None)
            x = x[0] if isinstance(x, tuple) else x
        return self.m.layer_norm(x)


def export(path: str) -> None:
    torch.manual_seed(0)
    torch.onnx.export(
        Whisper().eval(),
        (torch.randn(2, 8, 60),),
        path,
        input_names=["mel"],
        output_names=["out"],
        opset_version=18,
        dynamo=True,
        dynamic_shapes=({0: Dim.DYNAMIC, 2: Dim.DYNAMIC},),
        external_data=False,
    )


if __name__ == "__main__":
    export(sys.argv[1])
