"""Export a small Qwen3-ASR audio encoder with random weights, for a batch of padded clips.

The package's own forward cuts the clips into windows and joins them to one row, with a loop over
the batch that no exporter can follow. This one runs the package's sub-modules on a padded batch,
in the plainest way: positions by arange, a mask from the lengths, heads by view, masked_fill.

    pip install torch==2.13.0 qwen-asr==0.0.6 transformers==4.57.6 onnx onnxscript
    python models/qwen3-asr/export.py new.onnx

Run with these versions, it gave the operators of model.onnx, each as often; weights differ.
"""

from __future__ import annotations

import sys

import torch
from qwen_asr.core.transformers_backend.configuration_qwen3_asr import Qwen3ASRAudioEncoderConfig
from qwen_asr.core.transformers_backend.modeling_qwen3_asr import Qwen3ASRAudioEncoder
from torch.export import Dim
from torch.nn.functional import gelu

CONFIG = Qwen3ASRAudioEncoderConfig(
    num_mel_bins=16,
    d_model=32,
    encoder_layers=2,
    encoder_attention_heads=2,
    encoder_ffn_dim=64,
    max_source_positions=60,
    downsample_hidden_size=8,
    output_dim=48,
)


class Encoder(torch.nn.Module):
    """The encoder for a batch of padded clips."""

    def __init__(self):
        super().__init__()
        self.m = Qwen3ASRAudioEncoder(CONFIG)

    def forward(self, mel, mel_lens):
        x = mel.unsqueeze(1)
        for conv in (self.m.conv2d1, self.m.conv2d2, self.m.conv2d3):
            x = gelu(conv(x))
            mel_lens = (mel_lens - 1) // 2 + 1
        batch, channels, bins, time = x.shape
        x = self.m.conv_out(x.permute(0, 3, 1, 2).reshape(batch, time, channels * bins))
        index = torch.arange(time)
        x = x + torch.nn.functional.embedding(
            index, self.m.positional_embedding.positional_embedding
        ).unsqueeze(0)
        hidden = index[None, :] >= mel_lens[:, None]
        for layer in self.m.layers:
            x = self.layer(layer, x, hidden)
        x = self.m.ln_post(x)
        return self.m.proj2(gelu(self.m.proj1(x)))

    def layer(self, layer, x, hidden):
        x = x + self.attention(layer.self_attn, layer.self_attn_layer_norm(x), hidden)
        return x + layer.fc2(gelu(layer.fc1(layer.final_layer_norm(x))))

    def attention(self, attention, x, hidden):
        batch, time, width = x.shape
        heads = attention.num_heads
        q, k, v = (
            project(x).view(batch, time, heads, width // heads).transpose(1, 2)
            for project in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        scores = torch.matmul(q, k.transpose(2, 3)) * attention.scaling
        scores = scores.masked_fill(hidden[:, None, None, :], float("-inf"))
        context = torch.matmul(torch.softmax(scores, -1), v)
        return attention.out_proj(context.transpose(1, 2).reshape(batch, time, width))


def export(path: str) -> None:
    torch.manual_seed(0)
    torch.onnx.export(
        Encoder().eval(),
        (torch.randn(2, 16, 136), torch.tensor([136, 88])),
        path,
        input_names=["mel", "mel_lens"],
        output_names=["out"],
        opset_version=18,
        dynamo=True,
        dynamic_shapes=({0: Dim.DYNAMIC, 2: Dim.DYNAMIC}, {0: Dim.DYNAMIC}),
        external_data=False,
    )


if __name__ == "__main__":
    export(sys.argv[1])
