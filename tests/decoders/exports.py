"""Small real exports of decoders with caches: `python tests/decoders/exports.py OUT [names...]`.

Needs torch, transformers (4.41 or 5), onnx, onnxscript and onnxruntime, which the project itself
does not: run it from an environment of its own. It writes OUT/<name>.onnx, OUT/<name>.json, which
says what the inputs are and how far onnxruntime was from torch, and OUT/INDEX.md, a line for each.
The weights are random (seed 0) and wide enough that a wrong mask or position shows in the logits.
"""

from __future__ import annotations

import inspect
import json
import logging
import math
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
import transformers
from onnx import TensorProto, helper
from torch import nn
from transformers.modeling_outputs import BaseModelOutput

V5 = int(transformers.__version__.split(".")[0]) >= 5
VOCAB, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 101, 64, 2, 4, 2, 16
WINDOW = 6  # smaller than the sizes checked, so that a window counted wrongly shows
EXPORT_DIMS = {"batch": 2, "past": 6, "seq": 3, "enc": 5}
SIZES = {  # what is compared with torch; past 0 is the first call of a generation
    "batch2_past7_seq3": {"batch": 2, "past": 7, "seq": 3, "enc": 9},
    "batch1_past11_seq1": {"batch": 1, "past": 11, "seq": 1, "enc": 4},
    "batch1_past0_seq4": {"batch": 1, "past": 0, "seq": 4, "enc": 4},
}
Shape = list[int | str]


@dataclass
class Free:
    """An input that the caller makes anew for each call; `kind` says how."""

    name: str
    shape: Shape
    kind: str  # ids, mask, positions, flag (0, 1 on the last call), branch (past > 0) or float


@dataclass
class State:
    """An input fed from an output of the call before; without an output it stays as it is."""

    name: str
    shape: Shape
    output: str | None
    axis: int | None = None  # the axis that grows
    window: int | None = None  # where it stops to grow
    counts: bool = False  # an integer: how many entries were seen


@dataclass
class Decoder:
    """A module whose forward takes the free inputs and then the states, all of them flat."""

    module: nn.Module
    free: list[Free]
    states: list[State]
    outputs: list[tuple[str, Shape]]  # those before the states' own
    facts: dict
    rate: int = 1  # entries of the first output (axis 1) for each entry of seq
    one_shot: bool = True  # whether one call over all entries equals a call for each
    parts: tuple[Decoder, ...] = ()  # of a merged decoder: the first call, the calls with pasts

    def names(self) -> list[str]:
        """All outputs, in the order in which the module returns them."""
        return [name for name, _ in self.outputs] + [s.output for s in self.states if s.output]


# --- transformers' caches from flat tensors and back


def cache_of(flat: tuple[torch.Tensor, ...], window: int | None = None):
    """A cache as this transformers wants it, holding the tensors themselves.

    The layers are filled by hand: `update` would join the past to an empty tensor first. Without a
    window all layers are whole, also those that look back no further, as in optimum's exports.
    """
    pairs = list(zip(flat[::2], flat[1::2], strict=True))
    if not V5:
        return tuple(pairs)
    cache = transformers.DynamicCache()
    for keys, values in pairs:
        layer = transformers.cache_utils.DynamicLayer()
        if window:
            layer = transformers.cache_utils.DynamicSlidingWindowLayer(window)
            layer.cumulative_length = keys.shape[2]
        layer.keys, layer.values, layer.is_initialized = keys, values, True
        layer.dtype, layer.device = keys.dtype, keys.device
        cache.layers.append(layer)
    return cache


def flat_of(cache, part: slice = slice(0, 2)) -> tuple[torch.Tensor, ...]:
    """The keys and values of a cache, layer by layer; of 4.41's fours `part` says which pair."""
    if hasattr(cache, "layers"):
        return tuple(t for layer in cache.layers for t in (layer.keys, layer.values))
    return tuple(t for layer in cache for t in layer[part])


class CausalLM(nn.Module):
    """A decoder-only model with flat pasts; `names` are the free inputs in order."""

    window: int | None = None  # where the caches are cut

    def __init__(self, model: nn.Module, names: list[str], pasts: bool = True) -> None:
        super().__init__()
        self.model, self.names, self.pasts = model, names, pasts

    def forward(self, *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        past = cache_of(args[len(self.names) :], self.window) if self.pasts else None
        free = dict(zip(self.names, args, strict=False))
        out = self.model(**free, past_key_values=past, use_cache=True, return_dict=True)
        return (out.logits, *flat_of(past if V5 and self.pasts else out.past_key_values))


def encoder_output(encoded: torch.Tensor) -> BaseModelOutput:
    """What the encoders of all families give; Moonshine's has a mask too."""
    output = BaseModelOutput(encoded)
    output.attention_mask = None
    return output


class Seq2Seq(nn.Module):
    """The decoder of an encoder-decoder model.

    With pasts the cross caches are inputs, as when decoding goes on: the encoder's output is only
    asked whether it is there and how long, so zeros stand for it. Without, it is an input and the
    cross caches come out.
    """

    def __init__(self, model: nn.Module, names: list[str], pasts: bool = True) -> None:
        super().__init__()
        self.model, self.pasts = model, pasts
        keywords = {"input_ids": "decoder_input_ids", "encoder_attention_mask": "attention_mask"}
        self.names = [keywords.get(name, name) for name in names]

    def forward(self, *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        free = dict(zip(self.names, args, strict=False))
        if not self.pasts:
            encoded = free.pop("encoder_hidden_states")
            free["encoder_outputs"] = encoder_output(encoded)
            out = self.model(**free, use_cache=True, return_dict=True)
            past = out.past_key_values
            own = past.self_attention_cache if V5 else past
            cross = past.cross_attention_cache if V5 else past
            return (out.logits, *flat_of(own), *flat_of(cross, slice(2, 4)))
        flat = args[len(self.names) :]
        own, cross = flat[: len(flat) // 2], flat[len(flat) // 2 :]
        if V5:
            past = transformers.EncoderDecoderCache(cache_of(own), cache_of(cross))
        else:
            past = tuple(a + b for a, b in zip(cache_of(own), cache_of(cross), strict=True))
        encoded = encoder_output(cross[0].transpose(1, 2).flatten(2) * 0)
        free |= {"encoder_outputs": encoded, "past_key_values": past}
        out = self.model(**free, use_cache=True, return_dict=True)
        return (out.logits, *flat_of(past.self_attention_cache if V5 else out.past_key_values))


# --- parts of a description

STYLES = {  # names of a past and of what it is fed from
    "optimum": ("past_key_values.{n}.{key}", "present.{n}.{key}"),
    "decoder": ("past_key_values.{n}.decoder.{key}", "present.{n}.decoder.{key}"),
    "encoder": ("past_key_values.{n}.encoder.{key}", "present.{n}.encoder.{key}"),
    "short": ("past_{k}_{n}", "present_{k}_{n}"),
    "long": ("past_{key}_{n}", "new_past_{key}_{n}"),
    "cache": ("cache_{k}.{n}", "cache_{k}.{n}.out"),
}


def pasts(
    style: str, heads: int, dim: int = HEAD_DIM, rows: str = "past", fed: bool = True
) -> list[State]:
    """Caches [batch, heads, rows, dim] that grow, or are held where `rows` is enc."""
    into, out = STYLES[style]
    names = [
        [text.format(n=n, key=key, k=key[0]) for text in (into, out)]
        for n in range(LAYERS)
        for key in ("key", "value")
    ]
    axis = 2 if rows == "past" else None
    shape: Shape = ["batch", heads, rows, dim]
    return [State(name, shape, output if fed else None, axis) for name, output in names]


IDS = Free("input_ids", ["batch", "seq"], "ids")
MASK = Free("attention_mask", ["batch", "past+seq"], "mask")
POSITIONS = Free("position_ids", ["batch", "seq"], "positions")
ENCODER_MASK = Free("encoder_attention_mask", ["batch", "enc"], "mask")
ENCODED = Free("encoder_hidden_states", ["batch", "enc", HIDDEN], "float")
BRANCH = Free("use_cache_branch", [1], "branch")
LOGITS = ("logits", ["batch", "seq", VOCAB])


def widen(model: nn.Module, gain: float = 1.5) -> nn.Module:
    """Weights by fan-in, so that logits vary by more than 1 and no softmax is flat or saturated."""
    generator = torch.Generator().manual_seed(0)
    for name, weight in model.named_parameters():
        if weight.dim() >= 2:
            std = 1.0 if "relative_attention_bias" in name else gain / math.sqrt(weight[0].numel())
            weight.data = torch.randn(weight.shape, generator=generator) * std
        elif "bias" in name.rsplit(".", 1)[-1]:
            weight.data = torch.randn(weight.shape, generator=generator) * 0.1
    return model.eval()


def made(name: str, attention: str, config: dict) -> tuple[nn.Module, dict]:
    """A model of transformers by its class, and what its description says of it."""
    prefix = name.split("For")[0].removesuffix("LMHeadModel").removesuffix("MTModel")
    settings = getattr(transformers, f"{prefix}Config")(vocab_size=VOCAB, **config)
    torch.manual_seed(0)
    make = getattr(transformers, name)._from_config
    try:
        model = make(settings, attn_implementation=attention)
    except ValueError:  # no sdpa for this family
        attention = "eager"
        model = make(settings, attn_implementation=attention)
    facts = {"class": name, "attention": attention, **config}
    facts["layer_types"] = getattr(settings, "layer_types", None)
    return widen(model), facts


def causal(
    name: str, free: list[Free], style: str, heads: int, attention: str = "sdpa", **config
) -> Decoder:
    """A decoder-only model of transformers with its pasts."""
    model, facts = made(name, attention, config)
    module = CausalLM(model, [f.name for f in free])
    return Decoder(module, free, pasts(style, heads), [LOGITS], facts)


def seq2seq(name: str, free: list[Free], dim: int = HEAD_DIM, **config) -> Decoder:
    """The decoder of an encoder-decoder model of transformers, its cross caches held."""
    model, facts = made(name, "sdpa", config)
    module = Seq2Seq(model, [f.name for f in free])
    states = pasts("decoder", HEADS, dim) + pasts("encoder", HEADS, dim, "enc", fed=False)
    return Decoder(module, free, states, [LOGITS], facts)


def merged(later: Decoder) -> Decoder:
    """A decoder with pasts and the same without, in one If on use_cache_branch."""
    held = pasts("encoder", HEADS, rows="enc") if isinstance(later.module, Seq2Seq) else []
    states = [s for s in later.states if s.output] + held
    given = [*later.free, ENCODED] if held else later.free
    module = type(later.module)(later.module.model, [f.name for f in given], False)
    shown = [LOGITS, *((str(s.output), s.shape) for s in states)]
    first = Decoder(module, given, [], shown, {})
    both = Merged(first, later, [i.name for i in [*given, BRANCH, *states]], held)
    return Decoder(both, [*given, BRANCH], states, [LOGITS], later.facts, parts=(first, later))


class Merged(nn.Module):
    """What the merged graph computes: the cross caches come out empty where they were inputs."""

    def __init__(self, first: Decoder, later: Decoder, names: list[str], held: list[State]) -> None:
        super().__init__()
        self.parts, self.names, self.held = (first, later), names, held

    def forward(self, *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        named = dict(zip(self.names, args, strict=True))
        part = self.parts[int(named["use_cache_branch"])]
        got = part.module(*(named[i.name] for i in [*part.free, *part.states]))
        empty = [torch.zeros(0, HEADS, 1, HEAD_DIM)] * len(self.held)
        return (*got, *(() if part is self.parts[0] else empty))


# --- modules of our own


def turned(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """The rotary embedding of x [batch, heads, rows, dim]."""
    half = x.shape[-1] // 2
    angles = positions[:, None].float() * 100.0 ** (-torch.arange(half) / half)
    cos, sin = angles.cos(), angles.sin()
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Layer(nn.Module):
    """A transformer layer whose caller joins keys and values to their caches."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 96), nn.Linear(96, HIDDEN)

    def heads(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Queries, keys and values [batch, heads, rows, dim]."""
        parts = self.qkv(self.before(x)).chunk(3, -1)
        return [t.unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2) for t in parts]

    def forward(self, x, queries, keys, values, seen):
        scores = (queries @ keys.transpose(2, 3)) * HEAD_DIM**-0.5
        scores = scores.masked_fill(~seen, torch.finfo(torch.float32).min)
        x = x + self.out((scores.softmax(-1) @ values).transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.silu(self.up(self.between(x))))


class Codec(nn.Module):
    """Codes [batch, seq, 3] to samples, as a streaming codec decoder is exported.

    A causal convolution, a transformer over the last WINDOW frames, a convolution that sees one
    frame ahead (so each call keeps back a frame unless `is_last`), and an upsampling by RATE.
    """

    RATE, BOOKS = 4, 3

    def __init__(self, counted: bool) -> None:
        super().__init__()
        self.counted = counted
        self.books = nn.ModuleList(nn.Embedding(VOCAB, HIDDEN) for _ in range(self.BOOKS))
        self.pre, self.post = nn.Conv1d(HIDDEN, HIDDEN, 3), nn.Conv1d(HIDDEN, 24, 3)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.rise = nn.ConvTranspose1d(24, 12, self.RATE, self.RATE)
        self.alpha, self.last = nn.Parameter(torch.ones(1, 12, 1)), nn.Conv1d(12, 1, 1)

    def forward(self, *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        codes, is_last, *states = args
        position = states[0] if self.counted else 0
        conv, latent, *caches = states[self.counted :]
        x = sum(book(codes[..., n]) for n, book in enumerate(self.books))
        conv = torch.cat([conv, x.transpose(1, 2)], 2)
        x = self.pre(conv).transpose(1, 2)
        seq, past = x.shape[1], caches[0].shape[2]
        rows, columns = torch.arange(seq)[:, None] + past, torch.arange(past + seq)[None]
        seen = (columns <= rows) & (columns >= rows - WINDOW)
        cut = []
        for n, layer in enumerate(self.layers):
            queries, keys, values = layer.heads(x)
            if self.counted:  # keys are cached turned, by positions that go on counting
                keys = turned(keys, position + torch.arange(seq))
            keys = torch.cat([caches[2 * n], keys], 2)
            values = torch.cat([caches[2 * n + 1], values], 2)
            cut += [keys[:, :, -WINDOW:], values[:, :, -WINDOW:]]
            if not self.counted:  # cached as they are: positions count from the cache's start
                keys = turned(keys, torch.arange(past + seq))
            at = position if self.counted else past
            x = layer(x, turned(queries, at + torch.arange(seq)), keys, values, seen)
        latent = torch.cat([latent, x.transpose(1, 2)], 2)
        y = self.rise(self.post(nn.functional.pad(latent, (0, 1))))
        y = y + (y * self.alpha).sin() ** 2 / (self.alpha + 1e-9)
        wave = self.last(y).squeeze(1).tanh()
        valid = (seq + is_last) * self.RATE
        wave = torch.where(torch.arange((seq + 1) * self.RATE) < valid, wave, 0.0)
        count = (position + seq,) if self.counted else ()
        return (wave, valid, *count, conv[:, :, -2:], latent[:, :, -2:], *cut)


class Encoder(nn.Module):
    """Features [batch, seq, 20] of a chunk to encodings, as a streaming encoder is exported.

    Convolution, LSTM, FSMN memory and attention over the chunk and LEFT entries before it. Those
    are in caches of that size whose valid end `processed_lens` tells, or, stacked, in one cache of
    all layers that grows to that size.
    """

    LEFT = 6

    def __init__(self, stacked: bool) -> None:
        super().__init__()
        self.stacked = stacked
        self.front, self.lstm = nn.Conv1d(20, HIDDEN, 3), nn.LSTM(HIDDEN, HIDDEN, batch_first=True)
        self.memory = nn.Conv1d(HIDDEN, HIDDEN, 5, groups=HIDDEN, bias=False)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(HIDDEN, VOCAB)

    def forward(self, *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        feats, count, frames, h, c, fsmn, *caches = args
        if self.stacked:
            caches = [t for n in range(LAYERS) for t in caches[0][n].chunk(2, -1)]
        frames = torch.cat([frames, feats.transpose(1, 2)], 2)
        x = self.front(frames).relu().transpose(1, 2)
        more, (h, c) = self.lstm(x, (h, c))
        x = x + more
        fsmn = torch.cat([fsmn.squeeze(-1), x.transpose(1, 2)], 2)
        x = x + self.memory(fsmn).transpose(1, 2)
        seq = x.shape[1]
        columns = torch.arange(caches[0].shape[2] + seq)
        seen = (columns >= caches[0].shape[2] - count[:, None])[:, None, None]
        cut = []
        for n, layer in enumerate(self.layers):
            queries, keys, values = layer.heads(x)
            keys = torch.cat([caches[2 * n], keys], 2)
            values = torch.cat([caches[2 * n + 1], values], 2)
            cut += [keys[:, :, -self.LEFT :], values[:, :, -self.LEFT :]]
            x = layer(x, queries, keys, values, seen)
        if self.stacked:
            cut = [torch.stack([torch.cat(cut[2 * n : 2 * n + 2], -1) for n in range(LAYERS)])]
        states = (count + seq, frames[:, :, -2:], h, c, fsmn[:, :, -4:].unsqueeze(-1), *cut)
        return (self.head(x), *states)


# --- the families

SIZE = {"hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
ROTARY = {**SIZE, "intermediate_size": 96, "max_position_embeddings": 256, "pad_token_id": 0}
ROTARY |= {"bos_token_id": 1, "eos_token_id": 2}
GROUPED = {**ROTARY, "num_key_value_heads": KV_HEADS}
GPT2 = {"n_embd": HIDDEN, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 256}
GPT2 |= {"bos_token_id": 1, "eos_token_id": 2}
SIDES = {"d_model": HIDDEN, "encoder_layers": 1, "decoder_layers": LAYERS}
SIDES |= {f"{side}_attention_heads": HEADS for side in ("encoder", "decoder")}
SIDES |= {f"{side}_ffn_dim": 96 for side in ("encoder", "decoder")}
SIDES |= {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "decoder_start_token_id": 1}


def llama() -> Decoder:
    """Mask and positions are inputs."""
    return causal("LlamaForCausalLM", [IDS, MASK, POSITIONS], "short", KV_HEADS, **GROUPED)


def qwen2() -> Decoder:
    """Mask and positions are inputs, biases on queries, keys and values."""
    return causal("Qwen2ForCausalLM", [IDS, MASK, POSITIONS], "optimum", KV_HEADS, **GROUPED)


def qwen3() -> Decoder:
    """Positions come from the size of the cache."""
    config = {**GROUPED, "head_dim": HEAD_DIM}
    return causal("Qwen3ForCausalLM", [IDS, MASK], "optimum", KV_HEADS, **config)


def qwen3_nomask() -> Decoder:
    """Positions and the causal mask come from the size of the cache."""
    config = {**GROUPED, "head_dim": HEAD_DIM}
    return causal("Qwen3ForCausalLM", [IDS], "cache", KV_HEADS, **config)


def gpt2() -> Decoder:
    """Learned positions, counted from the size of the cache.

    In 4.41 the causal mask is sliced [past : past + seq] from a stored triangle.
    """
    return causal("GPT2LMHeadModel", [IDS, MASK], "optimum", HEADS, **GPT2)


def gpt2_nomask() -> Decoder:
    """The same with no mask at all, eager attention."""
    return causal("GPT2LMHeadModel", [IDS], "long", HEADS, "eager", **GPT2)


def gemma2() -> Decoder:
    """Every other layer has a window, all caches are whole; Tanh caps scores and logits.

    Masks are added, two of them, of the type's minimum. Positions come from the size of the cache.
    """
    config = {**GROUPED, "head_dim": HEAD_DIM, "query_pre_attn_scalar": HEAD_DIM}
    config |= {"sliding_window": WINDOW, "attn_logit_softcapping": 5.0}
    return causal("Gemma2ForCausalLM", [IDS, MASK], "optimum", KV_HEADS, "eager", **config)


def mistral() -> Decoder:
    """All layers have a window, key > query - 6, the caches are whole.

    In 4.41 a Trilu whose diagonal is computed, and rotary tables sliced to past + seq.
    """
    config = {**GROUPED, "sliding_window": WINDOW}
    return causal("MistralForCausalLM", [IDS, MASK], "optimum", KV_HEADS, **config)


def mistral_nomask() -> Decoder:
    """The same without a mask input."""
    config = {**GROUPED, "sliding_window": WINDOW}
    return causal("MistralForCausalLM", [IDS, POSITIONS], "optimum", KV_HEADS, **config)


def mistral_cut() -> Decoder:
    """Caches cut to window - 1 rows, as transformers 5 has them by itself; positions are inputs.

    The graph starts its keys at Max(past - 5, 0), which is 0 for all pasts that it gives.
    """
    config = {**GROUPED, "sliding_window": WINDOW}
    decoder = causal("MistralForCausalLM", [IDS, POSITIONS], "optimum", KV_HEADS, **config)
    decoder.module.window = WINDOW
    for state in decoder.states:
        state.window = WINDOW - 1
    return decoder


def gpt_neox() -> Decoder:
    """A quarter of each head is turned, attention and MLP are parallel."""
    return causal("GPTNeoXForCausalLM", [IDS, MASK, POSITIONS], "optimum", HEADS, **ROTARY)


def bloom() -> Decoder:
    """ALiBi: a key's place is the CumSum of the mask: it counts valid entries by itself."""
    config = {"hidden_size": HIDDEN, "n_layer": LAYERS, "n_head": HEADS}
    return causal("BloomForCausalLM", [IDS, MASK], "optimum", HEADS, **config)


def whisper() -> Decoder:
    """Learned positions from the size of the cache; the cross caches are held, without a mask.

    They are read by GatherND or Gather, in 4.41 by a Slice [past : past + seq] of the table.
    """
    config = {"num_mel_bins": 20, "max_source_positions": 32, "max_target_positions": 64}
    return seq2seq("WhisperForConditionalGeneration", [IDS], **SIDES, **config)


def t5() -> Decoder:
    """A relative bias by buckets of key minus query, whose positions are those in the cache.

    In 4.41 it is made for past + seq queries and cut to the last seq; cross attention adds zeros.
    """
    config = {"d_model": HIDDEN, "d_kv": HEAD_DIM, "d_ff": 96, "num_layers": LAYERS}
    config |= {"num_heads": HEADS, "relative_attention_num_buckets": 8}
    config |= {"relative_attention_max_distance": 12, "decoder_start_token_id": 0}
    config |= {"feed_forward_proj": "gated-gelu"}
    return seq2seq("T5ForConditionalGeneration", [IDS, ENCODER_MASK], **config)


def bart() -> Decoder:
    """Learned positions from the size of the cache, plus 2; a mask over the encoder's entries."""
    config = {"max_position_embeddings": 64}
    return seq2seq("BartForConditionalGeneration", [IDS, ENCODER_MASK], **SIDES, **config)


def marian() -> Decoder:
    """Sinusoidal positions from a table, a bias on the logits."""
    config = {"max_position_embeddings": 64, "scale_embedding": True}
    return seq2seq("MarianMTModel", [IDS, ENCODER_MASK], **SIDES, **config)


def moonshine() -> Decoder:
    """Rotary on 10 of a head's 12 entries, heads padded to 16 for the attention and cut after.

    The cross caches have no mask input; one over all of the encoder is computed all the same.
    """
    config = {"hidden_size": 48, "intermediate_size": 96, "pad_head_dim_to_multiple_of": 8}
    config |= {f"{side}_num_attention_heads": HEADS for side in ("encoder", "decoder")}
    config |= {"encoder_num_hidden_layers": 1, "decoder_num_hidden_layers": LAYERS}
    config |= {"max_position_embeddings": 64, "pad_token_id": 0}
    return seq2seq("MoonshineForConditionalGeneration", [IDS], dim=12, **config)


def codec() -> Decoder:
    """Keys are cached unturned, so positions count from the start of a cache cut to its window."""
    return _codec(counted=False)


def codec_counted() -> Decoder:
    """Keys are cached turned, by a count of frames that is a state of its own."""
    return _codec(counted=True)


def _codec(counted: bool) -> Decoder:
    module = widen(Codec(counted), 1.0)
    free = [Free("codes", ["batch", "seq", Codec.BOOKS], "ids"), Free("is_last", [], "flag")]
    states = [State("position", [], "new_position", counts=True)] if counted else []
    states += [State("conv_buffer", ["batch", HIDDEN, 2], "new_conv_buffer")]
    states += [State("latent_buffer", ["batch", HIDDEN, 2], "new_latent_buffer")]
    caches = pasts("long", HEADS)
    for cache in caches:
        cache.window = WINDOW
    outputs: list[tuple[str, Shape]] = [("wave", ["batch", "samples"]), ("valid_samples", [])]
    facts = {"window": WINDOW, "rate": Codec.RATE}
    return Decoder(module, free, states + caches, outputs, facts, rate=Codec.RATE)


def encoder() -> Decoder:
    """Nothing grows: attention's caches have a fixed size and a count of what is valid in them.

    Not causal within a chunk. The dynamo export says that logits have 3 rows, which is wrong.
    """
    caches = pasts("long", HEADS)
    for cache in caches:
        cache.shape, cache.axis = ["batch", HEADS, Encoder.LEFT, HEAD_DIM], None
        cache.window = Encoder.LEFT
    return _encoder(caches, stacked=False)


def encoder_stacked() -> Decoder:
    """One cache of all layers, keys and values side by side, grows to the left context."""
    shape: Shape = [LAYERS, "batch", HEADS, "past", 2 * HEAD_DIM]
    return _encoder([State("att_cache", shape, "new_att_cache", 3, Encoder.LEFT)], stacked=True)


def _encoder(caches: list[State], stacked: bool) -> Decoder:
    states = [State("processed_lens", ["batch"], "new_processed_lens", counts=True)]
    states += [State("cnn_cache", ["batch", 20, 2], "new_cnn_cache")]
    states += [State(n, [1, "batch", HIDDEN], f"new_{n}") for n in ("lstm_h", "lstm_c")]
    states += [State("fsmn_cache", ["batch", HIDDEN, 4, 1], "new_fsmn_cache"), *caches]
    free = [Free("feats", ["batch", "seq", 20], "float")]
    module, facts = widen(Encoder(stacked), 1.0), {"left": Encoder.LEFT}
    return Decoder(module, free, states, [LOGITS], facts, one_shot=False)


def gpt2_merged() -> Decoder:
    """An If on use_cache_branch; the branch without pasts ignores them."""
    return merged(gpt2())


def whisper_merged() -> Decoder:
    """The same with cross caches: they come out of the first call only, then keep what it gave."""
    return merged(whisper())


# --- making inputs, exporting, checking


def sizes(shape: Shape, dims: dict[str, int]) -> list[int]:
    """A shape's numbers; an expression is a sum of dims."""
    return [d if isinstance(d, int) else sum(dims[p] for p in d.split("+")) for d in shape]


def feeds(decoder: Decoder, dims: dict[str, int], seed: int = 1) -> dict[str, np.ndarray]:
    """Valid inputs of these dims, with random states."""
    rng = np.random.default_rng(seed)
    fed: dict[str, np.ndarray] = {}
    for free in decoder.free:
        shape = sizes(free.shape, dims)
        if free.kind == "ids":
            fed[free.name] = rng.integers(3, VOCAB - 1, shape)
        elif free.kind == "mask":
            fed[free.name] = np.ones(shape, np.int64)
        elif free.kind == "positions":
            fed[free.name] = np.broadcast_to(np.arange(shape[-1]) + dims["past"], shape).copy()
        elif free.kind == "flag":
            fed[free.name] = np.full(shape, dims.get("flag", 0), np.int64)
        elif free.kind == "branch":
            fed[free.name] = np.full(shape, dims["past"] > 0)
        else:
            fed[free.name] = rng.standard_normal(shape).astype(np.float32)
    for state in decoder.states:
        past = min(dims["past"], state.window or dims["past"])
        shape = sizes(state.shape, {**dims, "past": past})
        random = rng.standard_normal(shape).astype(np.float32)
        fed[state.name] = np.full(shape, dims["past"]) if state.counts else random
    return fed


def padded(decoder: Decoder, fed: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
    """The same with the first two entries of the first row masked, where there is a mask."""
    masks = [f.name for f in decoder.free if f.kind == "mask"]
    if not masks:
        return None
    fed = {name: value.copy() for name, value in fed.items()}
    for name in masks:
        fed[name][0, :2] = 0
    return fed


def in_torch(decoder: Decoder, fed: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The module's own outputs."""
    with torch.no_grad():
        return [t.numpy() for t in decoder.module.eval()(*map(torch.from_numpy, fed.values()))]


def apart(got: list[np.ndarray], want: list[np.ndarray]) -> float:
    """The worst difference of any output, relative to that output's largest value."""
    worst = 0.0
    for a, b in zip(got, want, strict=True):
        if a.shape != b.shape:
            raise ValueError(f"shapes {a.shape} and {b.shape}")
        if b.size:
            worst = max(worst, float(np.abs(a - b).max()) / max(float(np.abs(b).max()), 1e-9))
    return worst


def export(decoder: Decoder, path: Path, exporter: str, opset: int) -> None:
    """Write the ONNX file with every named dim dynamic."""
    if decoder.parts:
        for part in decoder.parts:
            export(part, path, exporter, opset)
            part.facts["onnx"] = onnx.load(path)
        onnx.save(merge(*(p.facts.pop("onnx") for p in decoder.parts)), path)
        return
    inputs = [*decoder.free, *decoder.states]
    dims = {**EXPORT_DIMS} if decoder.states else {**EXPORT_DIMS, "past": 0}
    fed = feeds(decoder, dims)
    args = tuple(map(torch.from_numpy, fed.values()))
    shapes = {i.name: i.shape for i in inputs} | dict(decoder.outputs)
    for state in decoder.states:
        grown = [f"new_{d}" if i == state.axis else d for i, d in enumerate(state.shape)]
        shapes |= {state.output: grown} if state.output else {}
    named = {n: {i: d for i, d in enumerate(s) if isinstance(d, str)} for n, s in shapes.items()}
    if not decoder.states:  # a first call's mask is as long as its ids
        named = {n: {i: d.removeprefix("past+") for i, d in s.items()} for n, s in named.items()}
    common = {"input_names": list(fed), "output_names": decoder.names(), "opset_version": opset}
    decoder.module.eval()
    if exporter == "ts":
        torch.onnx.export(decoder.module, args, path, dynamo=False, dynamic_axes=named, **common)
        return
    dynamic = (tuple(named[name] or None for name in fed),)
    more = {"dynamo": True, "dynamic_shapes": dynamic, "external_data": False, "verbose": False}
    torch.onnx.export(decoder.module, args, path, **more, **common)


def merge(first: onnx.ModelProto, later: onnx.ModelProto) -> onnx.ModelProto:
    """One model with an If, as optimum makes it.

    Names within the branches stay as they are, equal weights are kept once, outside; an output that
    the later branch lacks comes out of it empty.
    """
    inputs = {i.name: i for model in (first, later) for i in model.graph.input}
    inputs["use_cache_branch"] = helper.make_tensor_value_info("use_cache_branch", 9, [1])
    outputs, weights, branches = list(first.graph.output), {}, []
    taken = {name for m in (later, first) for node in m.graph.node for name in node.output}
    for model in (later, first):
        renamed = {}
        for weight in model.graph.initializer:
            key = (*weight.dims, weight.data_type, onnx.numpy_helper.to_array(weight).tobytes())
            kept, name = weights.setdefault(key, weight), weight.name
            if kept is weight:
                while weight.name in taken:
                    weight.name += "_merged"
                taken.add(weight.name)
            renamed[name] = kept.name
        for node in model.graph.node:
            node.input[:] = [renamed.get(name, name) for name in node.input]
        nodes, own = list(model.graph.node), {o.name: o for o in model.graph.output}
        for output in outputs:
            if output.name not in own:
                like = inputs[output.name.replace("present", "past_key_values")]
                dims = [0, *(max(d.dim_value, 1) for d in like.type.tensor_type.shape.dim[1:])]
                empty = helper.make_tensor("empty", TensorProto.FLOAT, dims, [])
                nodes.append(helper.make_node("Constant", [], [output.name], value=empty))
                own[output.name] = helper.make_tensor_value_info(output.name, 1, dims)
        results = [own[o.name] for o in outputs]
        branches.append(helper.make_graph(nodes, f"branch_{len(branches)}", [], results))
    choice = {"then_branch": branches[0], "else_branch": branches[1]}
    node = helper.make_node("If", ["use_cache_branch"], [o.name for o in outputs], **choice)
    graph = helper.make_graph([node], "merged", list(inputs.values()), outputs)
    graph.initializer.extend(weights.values())
    return helper.make_model(graph, opset_imports=later.opset_import, ir_version=later.ir_version)


Run = Callable[[dict[str, np.ndarray]], list[np.ndarray]]


def steps(decoder: Decoder, run: Run, past: int, count: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """The first output of a call of 4 entries and then `count` single ones, and of one call."""
    dims = {"batch": 2, "past": past, "enc": 9}
    whole = feeds(decoder, {**dims, "seq": 4 + count})
    for state in decoder.states:
        if past == 0 and state.output and state.axis is None and "enc" not in state.shape:
            whole[state.name] = np.zeros_like(whole[state.name])
    fed, parts, done = dict(whole), [], 0
    for seq in [4] + [1] * count:
        now = feeds(decoder, {**dims, "past": past + done, "seq": seq})
        for free in decoder.free:
            if free.kind not in ("ids", "float"):
                fed[free.name] = now[free.name]
            elif "seq" in free.shape:  # the same tokens as in the one call
                axis = free.shape.index("seq")
                fed[free.name] = whole[free.name].take(range(done, done + seq), axis)
        out = dict(zip(decoder.names(), run(fed), strict=True))
        parts.append(out[decoder.outputs[0][0]][:, : seq * decoder.rate])
        # An empty one is a cross cache of a merged decoder, which holds what the first call gave.
        fed |= {s.name: out[s.output] for s in decoder.states if s.output and out[s.output].size}
        done += seq
    return np.concatenate(parts, 1), run(whole)[0][:, : (4 + count) * decoder.rate]


def check(decoder: Decoder, path: Path) -> dict[str, float | str]:
    """How far onnxruntime is from torch at several sizes, and from itself step by step."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    wanted = {i.name for i in session.get_inputs()}  # an exporter drops inputs that nothing uses

    def run(fed: dict[str, np.ndarray]) -> list[np.ndarray]:
        return session.run(decoder.names(), {n: v for n, v in fed.items() if n in wanted})

    found = {}

    def note(name: str, measure: Callable[[], float]) -> None:
        try:
            found[name] = float(f"{measure():.2g}")
        except Exception as error:  # a failure is a finding
            found[name] = " ".join(str(error).split())[:300]

    for name, dims in SIZES.items():
        fed = feeds(decoder, dims)
        note(name, lambda fed=fed: apart(run(fed), in_torch(decoder, fed)))
    if any(f.kind == "flag" for f in decoder.free):
        fed = feeds(decoder, {**SIZES["batch2_past7_seq3"], "flag": 1})
        note("batch2_past7_seq3_flag1", lambda fed=fed: apart(run(fed), in_torch(decoder, fed)))
    fed = padded(decoder, feeds(decoder, SIZES["batch2_past7_seq3"]))
    if fed:
        note("batch2_past7_seq3_padded", lambda: apart(run(fed), in_torch(decoder, fed)))
    past = 0 if isinstance(found["batch1_past0_seq4"], float) else 3
    note(f"steps_from_past{past}_and_torch", lambda: _steps_and_torch(decoder, run, past))
    if decoder.one_shot:
        note(f"steps_from_past{past}_and_one_call", lambda: _steps_and_whole(decoder, run, past))
    out = run(feeds(decoder, SIZES["batch2_past7_seq3"]))[0]
    return found | {"std_of_first_output": float(f"{out.std():.2g}")}


def _steps_and_torch(decoder: Decoder, run: Run, past: int) -> float:
    theirs = steps(decoder, lambda fed: in_torch(decoder, fed), past)[0]
    return apart([steps(decoder, run, past)[0]], [theirs])


def _steps_and_whole(decoder: Decoder, run: Run, past: int) -> float:
    stepped, whole = steps(decoder, run, past)
    return apart([stepped], [whole])


def describe(decoder: Decoder, family: str, path: Path, exporter: str, opset: int) -> dict:
    """What OUT/<name>.json says."""
    graph = onnx.load(path).graph
    graphs = [graph, *(a.g for node in graph.node for a in node.attribute if a.HasField("g"))]
    ops = Counter(node.op_type for g in graphs for node in g.node)
    present = {i.name for i in graph.input}
    every = [*decoder.free, *decoder.states]
    return {
        "family": family,
        "exporter": {"ts": "torchscript", "dy": "dynamo"}[exporter],
        "opset": opset,
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "dtype": "float32",
        "inputs": [asdict(f) for f in decoder.free if f.name in present],
        "states": [asdict(s) for s in decoder.states if s.name in present],
        "dropped_inputs": [i.name for i in every if i.name not in present],
        "outputs": decoder.names(),
        "config": decoder.facts,
        "nodes": sum(ops.values()),
        "ops": dict(sorted(ops.items())),
    }


HEADER = """Worst difference: onnxruntime and torch, relative to each output's largest value, over
calls of several sizes (past 0 too), a padded row where there is a mask, and a call of 4 entries and
10 single ones from empty caches; also against one call over all of them. All pasts may be empty.

Where masks come from: transformers 5 compares Range(past + seq) with Range(seq) + past and reads a
mask input by GatherND at [row, key] (dynamo) or, flattened, by Gather at row * its length + key
(TorchScript); a boolean mask for sdpa brings IsNaN after Softmax. transformers 4.41 makes Trilu
(Llama), Less of Ranges (Mistral, Whisper, BART) or a slice of a stored triangle (GPT-2), and adds
the mask by ScatterND or Where. A first call of merged Whisper, traced, is causal by Trilu.
Past is the Shape of any one of the caches, of keys or values, of the first layer or another.
`present` of merged Whisper's encoder caches is empty from the later branch: keep the first call's.

| name | free inputs | states (some) | worst difference | ops to look at | notes |
|---|---|---|---|---|---|
"""
TELLING = "If Range CumSum Trilu Where Slice ScatterND GatherND Conv ConvTranspose LSTM"


def index(out: Path) -> None:
    """OUT/INDEX.md: a line for each description there."""
    lines = []
    for path in sorted(out.glob("*.json")):
        told = json.loads(path.read_text())
        free = ", ".join(f"{i['name']} {i['shape']}".replace("'", "") for i in told["inputs"])
        kinds = {(s["axis"], *s["shape"], s["window"]): s for s in reversed(told["states"])}
        named = ", ".join(f"{s['name']} -> {s['output']}" for s in reversed(kinds.values()))
        checks = [v for k, v in told["checks"].items() if k != "std_of_first_output"]
        failed = [v[:80] for v in checks if isinstance(v, str)]
        worst = failed[0] if failed else f"{max(checks):.1e}"
        ops = ", ".join(f"{o} {told['ops'][o]}" for o in TELLING.split() if o in told["ops"])
        notes = told["why"].replace("\n", " ")
        cells = [path.stem, free, f"{len(told['states'])}: {named}", worst, ops, notes]
        lines.append("| " + " | ".join(cells) + " |\n")
    (out / "INDEX.md").write_text(HEADER + "".join(lines))


# --- the table: a family, and the opsets of its TorchScript and dynamo exports

FAMILIES: list[tuple[Callable[[], Decoder], int | None, int | None]] = [
    (llama, 14, 18),
    (qwen2, 15, 18),
    (qwen3, 17, 18),
    (qwen3_nomask, 16, 18),
    (gpt2, 15, 18),
    (gpt2_nomask, 14, 18),
    (gpt_neox, 16, 18),
    (bloom, 17, 18),
    (gemma2, 17, 18),
    (mistral, 14, 18),
    (mistral_nomask, 16, 18),
    (mistral_cut, None, 18),  # traced, the start of the window is frozen
    (whisper, 16, 18),
    (t5, 14, 18),
    (bart, 15, 18),
    (marian, 17, 18),
    (moonshine, None, 18),  # traced, a rank is lost
    (codec, 17, 18),
    (codec_counted, 16, 18),
    (encoder, 17, 18),
    (encoder_stacked, 16, None),  # dynamo freezes the rows of what an LSTM gives
    (gpt2_merged, 14, 18),
    (whisper_merged, 16, 18),
]


def main(out: Path, names: list[str]) -> None:
    """Export, check and describe each family with both exporters."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    out.mkdir(parents=True, exist_ok=True)
    every = [(make, e, o) for make, ts, dy in FAMILIES for e, o in (("ts", ts), ("dy", dy))]
    for make, exporter, opset in every:
        name = f"{make.__name__}_{exporter}{opset}"
        name += "" if V5 else "_hf" + "".join(transformers.__version__.split(".")[:2])
        if opset and (not names or {make.__name__, name} & {*names}):
            one(make, out / f"{name}.onnx", exporter, opset)


def one(make: Callable[[], Decoder], path: Path, exporter: str, opset: int) -> None:
    """Export, check and describe one."""
    start = time.monotonic()
    try:
        decoder = make()
        with torch.no_grad():
            export(decoder, path, exporter, opset)
        told = describe(decoder, make.__name__, path, exporter, opset)
        told |= {"why": inspect.getdoc(make), "checks": check(decoder, path)}
        path.with_suffix(".json").write_text(json.dumps(told, indent=1) + "\n")
        index(path.parent)
        print(f"{path.stem} {time.monotonic() - start:.0f} s {told['nodes']} {told['checks']}")
    except Exception:  # the next family is still wanted
        traceback.print_exc(limit=-4)
        print(f"{path.stem} FAILED after {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
