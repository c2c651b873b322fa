"""Export a small SenseVoice with random weights, by the package's own export code.

    pip install torch==2.13.0 torchaudio==2.13.0 funasr==1.4.16 transformers==5.23.0 onnx onnxscript
    python models/sensevoice/export.py new.onnx

Run with these versions, it gave the operators of model.onnx, each as often; weights differ.
"""

from __future__ import annotations

import sys

import torch
from funasr.models.sense_voice.export_meta import export_rebuild_model
from funasr.models.sense_voice.model import SenseVoiceSmall

FEATURES = 24


def export(path: str) -> None:
    torch.manual_seed(0)
    model = SenseVoiceSmall(
        encoder="SenseVoiceEncoderSmall",
        encoder_conf={
            "output_size": 32,
            "attention_heads": 2,
            "linear_units": 64,
            "num_blocks": 3,
            "tp_blocks": 2,
            "kernel_size": 5,
            "sanm_shfit": 0,
            "selfattention_layer_type": "sanm",
        },
        input_size=FEATURES,
        vocab_size=50,
    )
    for weight in model.parameters():
        # The exporter merges equal weights, and a new LayerNorm is equal to every other.
        weight.data += 0.1 * torch.randn_like(weight)
    model = export_rebuild_model(model.eval(), max_seq_len=512, device="cpu")
    inputs = (
        torch.randn(2, 30, FEATURES),
        torch.tensor([17, 30], dtype=torch.int32),
        torch.tensor([0, 0], dtype=torch.int32),
        torch.tensor([15, 15], dtype=torch.int32),
    )
    torch.onnx.export(
        model,
        inputs,
        path,
        input_names=model.export_input_names(),
        output_names=model.export_output_names(),
        dynamic_axes=model.export_dynamic_axes(),
        opset_version=14,
        dynamo=False,
    )


if __name__ == "__main__":
    export(sys.argv[1])
