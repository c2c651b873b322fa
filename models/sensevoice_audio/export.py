"""Export a small SenseVoice from the waveform on: front end, encoder and CTC head in one graph.

    pip install torch==2.13.0 torchaudio==2.11.0 funasr==1.4.16 transformers==5.23.0 onnx onnxscript
    python models/sensevoice_audio/export.py new.onnx

The encoder and its head are FunASR's. The front end does what FunASR's WavFrontend does with
Kaldi's filter banks, written for export: what Kaldi does to each frame (subtract its mean, take
its first sample as its own predecessor in the pre-emphasis) is done once to the clip. The script
prints how far the features are apart. Nothing in the graph knows a length: padding leaks at every
step.

Run with these versions, it gave the operators of model.onnx, each as often; weights differ.
"""

from __future__ import annotations

import math
import sys

import torch
from funasr.frontends.wav_frontend import WavFrontend, apply_lfr
from funasr.models.sense_voice.model import SenseVoiceSmall
from torchaudio.compliance.kaldi import fbank, get_mel_banks

RATE = 16000
FRAME, SHIFT, FFT = 400, 160, 512
MELS = 24
STACK, STEP = 7, 6
FEATURES = MELS * STACK


class FrontEnd(torch.nn.Module):
    """Waveform ``[batch, samples]`` within -1 and 1 to features ``[batch, frames / 6, 168]``.

    ``samples`` is 400 at least; ``frames / 6`` is rounded up.
    """

    def __init__(self) -> None:
        super().__init__()
        # The lowest and the highest bin are in no filter.
        bins = torch.arange(1, FFT // 2, dtype=torch.float64)[:, None]
        angle = 2 * math.pi / FFT * bins * torch.arange(FRAME)
        dft = torch.cat((torch.cos(angle), -torch.sin(angle)))
        window = torch.hamming_window(FRAME, periodic=False, dtype=torch.float64)
        self.register_buffer("dft", (dft * window)[:, None].float())
        banks, _ = get_mel_banks(MELS, FFT, RATE, 20.0, 0.0, 100.0, -500.0, 1.0)
        self.register_buffer("mel", banks[:, 1:])
        self.register_buffer("shift", torch.randn(FEATURES) - 14)
        self.register_buffer("scale", torch.rand(FEATURES) / 8 + 0.2)

    def emphasize(self, audio: torch.Tensor) -> torch.Tensor:
        audio = audio * 32768
        audio = audio - audio.mean(dim=1, keepdim=True)
        before = torch.cat((audio[:, :1], audio[:, :-1]), dim=1)
        return audio - 0.97 * before

    def forward(self, audio: torch.Tensor) -> torch.Tensor:
        audio = self.emphasize(audio)
        real, imag = torch.conv1d(audio[:, None], self.dft, stride=SHIFT).chunk(2, dim=1)
        mel = self.mel @ (real * real + imag * imag)
        mel = mel.clamp(min=torch.finfo(torch.float32).eps).log()
        # Three copies of the first frame, and of the last as many as the last stack needs.
        first = torch.arange(0, mel.shape[2], STEP)
        side = (STACK - 1) // 2
        mel = torch.nn.functional.pad(mel, (side, side), mode="replicate")
        stacks = mel[:, :, first[:, None] + torch.arange(STACK)]
        features = stacks.permute(0, 2, 3, 1).flatten(2)
        return (features + self.shift) * self.scale


class SenseVoice(torch.nn.Module):
    """``export_forward`` of FunASR's SenseVoice without its lengths, behind the front end."""

    def __init__(self, model: SenseVoiceSmall) -> None:
        super().__init__()
        self.front_end = FrontEnd()
        self.model = model

    def forward(
        self, audio: torch.Tensor, language: torch.Tensor, textnorm: torch.Tensor
    ) -> torch.Tensor:
        speech = self.front_end(audio)
        embed, encoder = self.model.embed, self.model.encoder
        event_emo = embed(torch.tensor([[1, 2]])).repeat(speech.size(0), 1, 1)
        query = (embed(language)[:, None], event_emo, embed(textnorm)[:, None])
        x = torch.cat((*query, speech), dim=1)
        x = encoder.embed(x * encoder.output_size() ** 0.5)
        for layer in (*encoder.encoders0, *encoder.encoders):
            x = layer(x, None)[0]
        x = encoder.after_norm(x)
        for layer in encoder.tp_encoders:
            x = layer(x, None)[0]
        return self.model.ctc.ctc_lo(encoder.tp_norm(x))


def build() -> SenseVoice:
    torch.manual_seed(0)
    model = SenseVoiceSmall(
        encoder="SenseVoiceEncoderSmall",
        encoder_conf={
            "output_size": 16,
            "attention_heads": 2,
            "linear_units": 32,
            "num_blocks": 2,
            "tp_blocks": 1,
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
    return SenseVoice(model).eval()


def compare(front_end: FrontEnd) -> None:
    """Print how far the log-mel features are from those of FunASR's front end."""
    seconds = torch.arange(2 * RATE + 77) / RATE
    voice = sum(torch.sin(2 * math.pi * 140 * k * seconds) / k for k in range(1, 40))
    voice = voice * (1 + torch.sin(2 * math.pi * 3 * seconds)) + 0.05 * torch.randn_like(seconds)
    audio = 0.1 * voice[None] + 0.01
    got = front_end(audio)[0] / front_end.scale - front_end.shift

    theirs = WavFrontend(n_mels=MELS, lfr_m=STACK, lfr_n=STEP, dither=0.0)
    far = (got - theirs(audio, [audio.shape[1]])[0][0]).abs()
    clip = front_end.emphasize(audio)
    kaldi = {"dither": 0.0, "remove_dc_offset": False, "preemphasis_coefficient": 0.0}
    banks = fbank(clip, num_mel_bins=MELS, window_type="hamming", energy_floor=0.0, **kaldi)
    near = (got - apply_lfr(banks, STACK, STEP)).abs()
    print(f"log-mel features apart from WavFrontend: {far.max():.2g}, mean {far.mean():.2g}")
    print(f"with the mean and the pre-emphasis done to the clip there, too: {near.max():.2g}")


def export(path: str) -> None:
    model = build()
    compare(model.front_end)
    inputs = (
        torch.rand(2, 8077) - 0.5,
        torch.tensor([0, 0], dtype=torch.int32),
        torch.tensor([15, 15], dtype=torch.int32),
    )
    torch.onnx.export(
        model,
        inputs,
        path,
        input_names=["audio", "language", "textnorm"],
        output_names=["ctc_logits"],
        dynamic_axes={
            "audio": {0: "batch_size", 1: "samples"},
            "language": {0: "batch_size"},
            "textnorm": {0: "batch_size"},
            "ctc_logits": {0: "batch_size", 1: "logits_length"},
        },
        opset_version=14,
        dynamo=False,
    )


if __name__ == "__main__":
    with torch.no_grad():
        export(sys.argv[1])
