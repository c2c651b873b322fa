"""Export a small SANM encoder, as Paraformer has it, with random weights.

    pip install torch==2.13.0 torchaudio==2.13.0 funasr==1.4.16 transformers==5.23.0 onnx onnxscript
    python models/paraformer/export.py new.onnx

Run with these versions, it gave the operators of model.onnx, each as often; weights differ.
"""

from __future__ import annotations

import sys

import torch
from funasr.models.sanm.encoder import SANMEncoder, SANMEncoderExport
from torch.export import Dim

FEATURES = 24


class Encoder(torch.nn.Module):
    """The encoder in the form that the package exports."""

    def __init__(self):
        super().__init__()
        encoder = SANMEncoder(
            input_size=FEATURES,
            output_size=32,
            attention_heads=2,
            linear_units=64,
            num_blocks=3,
            input_layer="pe",
            kernel_size=5,
            sanm_shfit=0,
            selfattention_layer_type="sanm",
        )
        self.m = SANMEncoderExport(encoder, max_seq_len=512, feats_dim=FEATURES)

    def forward(self, speech, speech_lengths):
        return self.m(speech, speech_lengths)


def export(path: str) -> None:
    torch.manual_seed(0)
    torch.onnx.export(
        Encoder().eval(),
        (torch.randn(2, 30, FEATURES), torch.tensor([17, 30], dtype=torch.int32)),
        path,
        input_names=["speech", "speech_lengths"],
        output_names=["enc", "enc_len"],
        opset_version=18,
        dynamo=True,
        dynamic_shapes=({0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, {0: Dim.DYNAMIC}),
        external_data=False,
    )


if __name__ == "__main__":
    export(sys.argv[1])
