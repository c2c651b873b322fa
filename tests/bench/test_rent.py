"""Each fusion pays its rent: two families have 5 % more kernels on DirectML without it.

The files in ``families/`` are exports of ``bench/families``, without the numbers of their weights;
``make rent`` measures all of them. A new fusion is entered in ``PAYS`` with two that it pays for.
"""

from __future__ import annotations

import functools
from pathlib import Path

import onnx_ir as ir
import pytest

import graphfix
from bench import skeleton
from graphfix.engine import pipeline, registry
from graphfix.job import planning

FAMILIES = Path(__file__).parent / "families"
SHARE = 0.05
PAYS = {
    "stack-tables": ("musicgen-decoder.dy", "qwen3-tts-talker.dy"),
    "gemm-matmul": ("cosyvoice-tokenizer.dy", "cross-attention-dit.dy"),
    "split-packed": ("cosyvoice-tokenizer.dy", "cross-attention-dit.dy"),
    "fuse-residual": ("fsmn-vad.dy", "fun-asr-nano-encoder.dy"),
    "fuse-rotary": ("llama-step.dy", "gemma2.dy"),
    "unpad-heads": ("moonshine-decoder.dy", "moonshine-encoder.dy"),
    "fuse-attention": ("cosyvoice-tokenizer.dy", "cross-attention-dit.dy"),
    "group-heads": ("gpt-neox.dy", "deberta.ts"),
    "turn-back": ("cosyvoice-tokenizer.dy", "cross-attention-dit.dy"),
    "join-conditions": ("styletts2-prosody.dy", "mmdit.dy"),
    "fuse-projections": ("cosyvoice-tokenizer.dy", "cross-attention-dit.dy"),
    "join-products": ("deberta.ts", "clap-audio.dy"),
    "fuse-gelu": ("cosyvoice-tokenizer.dy", "clap-audio.dy"),
    "fuse-softplus": ("zipvoice.dy", "zipformer.dy"),
    "fuse-snake": ("dac-decoder.ts", "xcodec-decoder.dy"),
    "scale-weights": ("vocos.ts", "fastspeech2-decoder.dy"),
    "merge-biases": ("zipvoice.dy", "zipformer.dy"),
    "fuse-spectrum": ("silero-vad.ts", "gru-vad.ts"),
    "split-gate": ("voice-converter.dy", "fastspeech2-decoder.dy"),
    "fuse-norm": ("cosyvoice-tokenizer.dy", "deberta.ts"),
    "fuse-affine": ("conv-tasnet.dy", "wavtokenizer.dy"),
    "fuse-matmul": ("deberta.ts", "vocos.ts"),
    "mask-select": ("t5-encoder.dy", "gpt-neox.dy"),
    "log-buckets": ("t5-encoder.dy", "flan-t5-encoder.dy"),
}


@functools.cache
def kernels_without(name: str, export: str) -> int:
    model = ir.from_proto(skeleton.load_skeleton(FAMILIES / f"{export}.onnx"))
    graphfix.run(model, [x for x in pipeline.parse_passes("fast") if x.name != name])
    return planning.kernels_per_run(model)["directml"]


def test_every_fusion_is_entered() -> None:
    assert set(PAYS) >= set(registry.FUSIONS)


@pytest.mark.parametrize("name", PAYS)
def test_a_fusion_takes_its_share_of_two_families(name: str) -> None:
    exports = PAYS[name]
    assert len({x.rsplit(".", 1)[0] for x in exports}) == 2
    for export in exports:
        without = kernels_without(name, export)
        assert without - kernels_without("", export) >= SHARE * without, export


def test_every_file_is_small_and_used() -> None:
    assert {x.stem for x in FAMILIES.glob("*.onnx")} == {x for pair in PAYS.values() for x in pair}
    assert all(x.stat().st_size < 100_000 for x in FAMILIES.glob("*.onnx"))
