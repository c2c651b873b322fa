"""Small real exports of decoders with caches: ``python tests/exports/decoders.py OUT [NAME ...]``.

Needs torch, transformers (4.41 or 5), onnx, onnxscript and onnxruntime, which the project itself
does not: run it from an environment of its own. It writes OUT/NAME_EXPORTER.onnx and says how far
ONNX Runtime is from torch. Weights are random, and so wide that a wrong mask or position shows.
"""

from __future__ import annotations

import logging
import math
import sys
import traceback
import warnings
from dataclasses import dataclass
from functools import partial
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
VOCAB, HIDDEN, LAYERS, HEADS, HEAD_DIM, WINDOW = 101, 64, 2, 4, 16, 6
EXPORTED = {"batch": 2, "past": 6, "seq": 3, "enc": 5}
CHECKED = (
    {"batch": 2, "past": 7, "seq": 3, "enc": 9},
    {"batch": 1, "past": 11, "seq": 1, "enc": 4},
    {"batch": 1, "past": 0, "seq": 4, "enc": 4},
)
SHAPES = {
    "input_ids": ["batch", "seq"],
    "attention_mask": ["batch", "past+seq"],
    "position_ids": ["batch", "seq"],
    "encoder_attention_mask": ["batch", "enc"],
    "encoder_hidden_states": ["batch", "enc", HIDDEN],
    "logits": ["batch", "seq", VOCAB],
}
STYLES = {  # what a past is called, and the output that it is fed from
    "optimum": ("past_key_values.{n}.{key}", "present.{n}.{key}"),
    "decoder": ("past_key_values.{n}.decoder.{key}", "present.{n}.decoder.{key}"),
    "encoder": ("past_key_values.{n}.encoder.{key}", "present.{n}.encoder.{key}"),
    "short": ("past_{k}_{n}", "present_{k}_{n}"),
    "long": ("past_{key}_{n}", "new_past_{key}_{n}"),
    "cache": ("cache_{k}.{n}", "cache_{k}.{n}.out"),
}


@dataclass
class Decoder:
    """A module that takes and gives flat tensors, each with its shape."""

    module: nn.Module
    inputs: dict[str, list]
    outputs: dict[str, list]
    window: int | None = None  # where its caches stop to grow
    parts: tuple[Decoder, ...] = ()  # of a merged one: the first call, and those with pasts


# transformers' models with flat pasts


def cache_of(flat, window=None):
    """A cache that holds the tensors themselves: ``update`` would join them to an empty one."""
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


def flat_of(cache, part=slice(0, 2)):
    """Keys and values layer by layer; of 4.41's fours ``part`` says which pair."""
    if hasattr(cache, "layers"):
        return tuple(t for layer in cache.layers for t in (layer.keys, layer.values))
    return tuple(t for layer in cache for t in layer[part])


WORDS = {"input_ids": "decoder_input_ids", "encoder_attention_mask": "attention_mask"}


class Flat(nn.Module):
    """A model of transformers; ``names`` are its inputs besides the pasts, in order.

    Of an encoder-decoder, its decoder. With pasts the encoder's output is only asked how long it
    is, so zeros stand for it; without, it is an input and the cross caches come out.
    """

    def __init__(self, model, names, cross, window=None):
        super().__init__()
        self.model, self.names, self.cross, self.window = model, names, cross, window

    def forward(self, *args):
        free, flat = dict(zip(self.names, args, strict=False)), args[len(self.names) :]
        half = len(flat) // 2 if self.cross else len(flat)
        past = cache_of(flat[:half], self.window) if flat else None
        if self.cross:
            free = {WORDS.get(k, k): x for k, x in free.items()}
            encoded = free.pop("encoder_hidden_states", None)
            if flat:
                encoded, other = flat[half].transpose(1, 2).flatten(2) * 0, cache_of(flat[half:])
                past = (
                    transformers.EncoderDecoderCache(past, other)
                    if V5
                    else tuple(a + b for a, b in zip(past, other, strict=True))
                )
            free["encoder_outputs"] = BaseModelOutput(encoded)
            free["encoder_outputs"].attention_mask = None
        out = self.model(**free, past_key_values=past, use_cache=True, return_dict=True)
        kept = out.past_key_values
        if not self.cross:
            return (out.logits, *flat_of(kept))
        own, other = (kept.self_attention_cache, kept.cross_attention_cache) if V5 else (kept, kept)
        return (out.logits, *flat_of(own), *(() if flat else flat_of(other, slice(2, 4))))


def widen(model, gain=1.5):
    """Weights by fan-in: logits vary by more than 1, and no softmax is flat or saturated."""
    random = torch.Generator().manual_seed(0)
    for name, weight in model.named_parameters():
        if weight.dim() >= 2:
            std = 1.0 if "relative_attention_bias" in name else gain / math.sqrt(weight[0].numel())
            if name.endswith("Attention.q.weight"):  # T5 divides no scores: its queries are small
                std /= math.sqrt(HEAD_DIM)
            weight.data = torch.randn(weight.shape, generator=random) * std
        elif "bias" in name.rsplit(".", 1)[-1]:
            weight.data = torch.randn(weight.shape, generator=random) * 0.1
    return model.eval()


def pasts(style, heads=HEADS, dim=HEAD_DIM, rows="past"):
    """Inputs and outputs for caches [batch, heads, rows, dim]; with "enc" these do not grow."""
    each = [(n, key) for n in range(LAYERS) for key in ("key", "value")]
    shape = ["batch", heads, rows, dim]
    grown = ["batch", heads, "enc" if rows == "enc" else f"new_{rows}", dim]
    names = [[x.format(n=n, key=key, k=key[0]) for n, key in each] for x in STYLES[style]]
    return dict.fromkeys(names[0], shape), dict.fromkeys(names[1], grown)


def flat(of, free, style, *, window=None, merge=False, attention="sdpa", **config) -> Decoder:
    """A model of transformers by its class; ``free`` are its inputs besides the pasts."""
    prefix = of.split("For")[0].removesuffix("LMHeadModel").removesuffix("MTModel")
    settings = getattr(transformers, f"{prefix}Config")(vocab_size=VOCAB, **SIZES | config)
    create = getattr(transformers, of)._from_config
    try:
        model = widen(create(settings, attn_implementation=attention))
    except ValueError:  # no sdpa for this family
        model = widen(create(settings, attn_implementation="eager"))
    cross, names = style == "decoder", free.split()
    heads = config.get("num_key_value_heads", HEADS)
    dim = config.get("hidden_size", HIDDEN) // HEADS
    into, out = pasts(style, heads, dim)
    held, made = pasts("encoder", heads, dim, "enc") if cross else ({}, {})
    inputs = {x: SHAPES[x] for x in names} | into | held
    outputs = {"logits": SHAPES["logits"]} | out
    module = Flat(model, names, cross, window).eval()
    later = Decoder(module, inputs, outputs, window and window - 1)
    if not merge:
        return later
    names = names + ["encoder_hidden_states"] * cross
    given = {x: ["seq" if d == "past+seq" else d for d in SHAPES[x]] for x in names}
    first = Decoder(Flat(model, names, cross).eval(), given, outputs | made)
    every = {x: SHAPES[x] for x in names} | {"use_cache_branch": [1]} | into | held
    return Decoder(module, every, first.outputs, parts=(first, later))


# Modules of our own


def turned(x, positions):
    """The rotary embedding of x [batch, heads, rows, dim]."""
    half = x.shape[-1] // 2
    angles = positions[:, None].float() * 100.0 ** (-torch.arange(half) / half)
    cos, sin, a, b = angles.cos(), angles.sin(), x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Layer(nn.Module):
    """A transformer layer whose caller joins keys and values to their caches."""

    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 96), nn.Linear(96, HIDDEN)

    def forward(self, x, keys, values, seen, now=None, turn=""):
        """What comes out, and the caches; ``turn`` says whether these or all keys are turned."""
        parts = self.qkv(self.before(x)).chunk(3, -1)
        q, k, v = (t.unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2) for t in parts)
        q, k = turned(q, now) if turn else q, turned(k, now) if turn == "cached" else k
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        kept = (keys[:, :, -WINDOW:], values[:, :, -WINDOW:])
        keys = turned(keys, torch.arange(keys.shape[2])) if turn == "all" else keys
        scores = (q @ keys.transpose(2, 3)) * HEAD_DIM**-0.5
        scores = scores.masked_fill(~seen, torch.finfo(torch.float32).min)
        x = x + self.out((scores.softmax(-1) @ values).transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.silu(self.up(self.between(x)))), kept


class Codec(nn.Module):
    """Codes [batch, seq, 3] to samples, as a streaming codec decoder is exported.

    A causal convolution, a transformer over the last WINDOW frames, a convolution that sees one
    frame ahead (each call keeps back a frame unless ``is_last``), an upsampling by RATE. Keys are
    cached turned, by a count that is a state; or unturned, and positions start with the cache.
    """

    RATE = 4

    def __init__(self, counted):
        super().__init__()
        self.counted = counted
        self.books = nn.ModuleList(nn.Embedding(VOCAB, HIDDEN) for _ in range(3))
        self.pre, self.post = nn.Conv1d(HIDDEN, HIDDEN, 3), nn.Conv1d(HIDDEN, 24, 3)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.rise, self.last = nn.ConvTranspose1d(24, 12, self.RATE, self.RATE), nn.Conv1d(12, 1, 1)

    def forward(self, *args):
        codes, is_last, *states = args
        position = states[0] if self.counted else 0
        conv, latent, *caches = states[self.counted :]
        new = sum(book(codes[..., n]) for n, book in enumerate(self.books)).transpose(1, 2)
        conv = torch.cat([conv, new], 2)
        x = self.pre(conv).transpose(1, 2)
        seq, past, cut = x.shape[1], caches[0].shape[2], []
        rows, columns = torch.arange(seq)[:, None] + past, torch.arange(past + seq)[None]
        seen = (columns <= rows) & (columns >= rows - WINDOW)
        now = torch.arange(seq) + (position if self.counted else past)
        for n, layer in enumerate(self.layers):
            here = (*caches[2 * n : 2 * n + 2], seen, now, "cached" if self.counted else "all")
            x, kept = layer(x, *here)
            cut += kept
        latent = torch.cat([latent, x.transpose(1, 2)], 2)
        y = self.rise(self.post(nn.functional.pad(latent, (0, 1))))
        wave = self.last(y + y.sin() ** 2).squeeze(1).tanh()
        valid = (seq + is_last) * self.RATE
        wave = torch.where(torch.arange((seq + 1) * self.RATE) < valid, wave, 0.0)
        count = (position + seq,) if self.counted else ()
        return (wave, valid, *count, conv[:, :, -2:], latent[:, :, -2:], *cut)

    def decoder(self) -> Decoder:
        into, out = pasts("long")
        states = {"position": []} if self.counted else {}
        states |= {x: ["batch", HIDDEN, 2] for x in ("conv_buffer", "latent_buffer")}
        inputs = {"codes": ["batch", "seq", 3], "is_last": [], **states, **into}
        outputs = {"wave": ["batch", "samples"], "valid_samples": []}
        outputs |= {f"new_{k}": x for k, x in states.items()} | out
        return Decoder(widen(self, 1.0).eval(), inputs, outputs, WINDOW)


class Encoder(nn.Module):
    """Features [batch, seq, 20] of a chunk to encodings, as a streaming encoder is exported.

    Convolution, LSTM, FSMN memory and attention over the chunk and WINDOW entries before it. Those
    are in caches of that size whose valid end ``processed_lens`` tells, or, stacked, in one cache
    of all layers that grows to that size.
    """

    def __init__(self, stacked):
        super().__init__()
        self.stacked = stacked
        self.front, self.lstm = nn.Conv1d(20, HIDDEN, 3), nn.LSTM(HIDDEN, HIDDEN, batch_first=True)
        self.memory = nn.Conv1d(HIDDEN, HIDDEN, 5, groups=HIDDEN, bias=False)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(HIDDEN, VOCAB)

    def forward(self, *args):
        feats, count, frames, h, c, fsmn, *caches = args
        if self.stacked:
            caches = [t for n in range(LAYERS) for t in caches[0][n].chunk(2, -1)]
        frames = torch.cat([frames, feats.transpose(1, 2)], 2)
        x = self.front(frames).relu().transpose(1, 2)
        more, (h, c) = self.lstm(x, (h, c))
        x = x + more
        fsmn = torch.cat([fsmn.squeeze(-1), x.transpose(1, 2)], 2)
        x = x + self.memory(fsmn).transpose(1, 2)
        seq, past, cut = x.shape[1], caches[0].shape[2], []
        seen = (torch.arange(past + seq) >= past - count[:, None])[:, None, None]
        for n, layer in enumerate(self.layers):
            x, kept = layer(x, *caches[2 * n : 2 * n + 2], seen)
            cut += kept
        if self.stacked:
            cut = [torch.stack([torch.cat(cut[2 * n : 2 * n + 2], -1) for n in range(LAYERS)])]
        states = (count + seq, frames[:, :, -2:], h, c, fsmn[:, :, -4:].unsqueeze(-1))
        return (self.head(x), *states, *cut)

    def decoder(self) -> Decoder:
        into, out = pasts("long", rows=WINDOW)
        out = {x: ["batch", HEADS, WINDOW, HEAD_DIM] for x in out}
        if self.stacked:
            into = {"att_cache": [LAYERS, "batch", HEADS, "past", 2 * HEAD_DIM]}
            out = {"new_att_cache": [LAYERS, "batch", HEADS, "new_past", 2 * HEAD_DIM]}
        states = {"processed_lens": ["batch"], "cnn_cache": ["batch", 20, 2]}
        states |= {x: [1, "batch", HIDDEN] for x in ("lstm_h", "lstm_c")}
        states |= {"fsmn_cache": ["batch", HIDDEN, 4, 1]}
        inputs = {"feats": ["batch", "seq", 20]} | states | into
        outputs = {"logits": SHAPES["logits"]} | {f"new_{k}": x for k, x in states.items()} | out
        return Decoder(widen(self, 1.0).eval(), inputs, outputs, WINDOW)


# What any of the configs calls its sizes: each takes its own words of it.
SIZES = {
    word: size
    for size, words in (
        (HIDDEN, "hidden_size d_model n_embd"),
        (LAYERS, "num_hidden_layers num_layers n_layer decoder_layers decoder_num_hidden_layers"),
        (1, "encoder_layers encoder_num_hidden_layers bos_token_id decoder_start_token_id"),
        (HEADS, "num_attention_heads num_heads n_head encoder_attention_heads"),
        (HEADS, "decoder_attention_heads encoder_num_attention_heads decoder_num_attention_heads"),
        (96, "intermediate_size d_ff encoder_ffn_dim decoder_ffn_dim"),
        (256, "max_position_embeddings max_target_positions max_source_positions"),
        (2, "eos_token_id"),
        (0, "pad_token_id"),
    )
    for word in words.split()
}
GROUPED = {"num_key_value_heads": 2}
HEADED = GROUPED | {"head_dim": HEAD_DIM}
SLIDING = GROUPED | {"sliding_window": WINDOW}
CAPPED = (
    HEADED
    | SLIDING
    | {"attention": "eager"}
    | {"query_pre_attn_scalar": 16, "attn_logit_softcapping": 5.0}
)
BUCKETS = {"d_kv": HEAD_DIM, "feed_forward_proj": "gated-gelu"}
BUCKETS |= {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 12}
PADDED = {"hidden_size": 48, "pad_head_dim_to_multiple_of": 8}

ALL, MASKED = "input_ids attention_mask position_ids", "input_ids attention_mask"
PLACED, CROSS = "input_ids position_ids", "input_ids encoder_attention_mask"
LLAMA, QWEN2, QWEN3 = "LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"
GPT2, NEOX, BLOOM = "GPT2LMHeadModel", "GPTNeoXForCausalLM", "BloomForCausalLM"
GEMMA2, MISTRAL, MARIAN = "Gemma2ForCausalLM", "MistralForCausalLM", "MarianMTModel"
WHISPER, BART, T5, MOONSHINE = (
    f"{x}ForConditionalGeneration" for x in ("Whisper", "Bart", "T5", "Moonshine")
)
FAMILIES = {  # the opsets of the exports by TorchScript and dynamo, None where one cannot
    "llama": (14, 18, partial(flat, LLAMA, ALL, "short", **GROUPED)),
    "qwen2": (15, 18, partial(flat, QWEN2, ALL, "optimum", **GROUPED)),
    "qwen3": (17, 18, partial(flat, QWEN3, MASKED, "optimum", **HEADED)),
    "qwen3_nomask": (16, 18, partial(flat, QWEN3, "input_ids", "cache", **HEADED)),
    "gpt2": (15, 18, partial(flat, GPT2, MASKED, "optimum")),
    "gpt2_nomask": (14, 18, partial(flat, GPT2, "input_ids", "long", attention="eager")),
    "gpt_neox": (16, 18, partial(flat, NEOX, ALL, "optimum")),
    "bloom": (17, 18, partial(flat, BLOOM, MASKED, "optimum")),  # places by CumSum
    # A window in every other layer, and in every one; all caches are whole.
    "gemma2": (17, 18, partial(flat, GEMMA2, MASKED, "optimum", **CAPPED)),
    "mistral": (14, 18, partial(flat, MISTRAL, MASKED, "optimum", **SLIDING)),
    "mistral_nomask": (16, 18, partial(flat, MISTRAL, PLACED, "optimum", **SLIDING)),
    # Caches are cut to the window less 1; traced, where that starts is frozen.
    "mistral_cut": (None, 18, partial(flat, MISTRAL, PLACED, "optimum", window=WINDOW, **SLIDING)),
    "whisper": (16, 18, partial(flat, WHISPER, "input_ids", "decoder", num_mel_bins=20)),
    "t5": (14, 18, partial(flat, T5, CROSS, "decoder", **BUCKETS)),  # a relative bias
    "bart": (15, 18, partial(flat, BART, CROSS, "decoder")),
    "marian": (17, 18, partial(flat, MARIAN, CROSS, "decoder", scale_embedding=True)),
    # Traced, a rank is lost.
    "moonshine": (None, 18, partial(flat, MOONSHINE, "input_ids", "decoder", **PADDED)),
    "codec": (17, 18, lambda: Codec(False).decoder()),
    "codec_counted": (16, 18, lambda: Codec(True).decoder()),
    "encoder": (17, 18, lambda: Encoder(False).decoder()),
    "encoder_stacked": (16, None, lambda: Encoder(True).decoder()),  # dynamo freezes LSTM's rows
    "gpt2_merged": (14, 18, partial(flat, GPT2, MASKED, "optimum", merge=True)),
    "t5_merged": (14, 18, partial(flat, T5, CROSS, "decoder", merge=True, **BUCKETS)),
    "whisper_merged": (
        *(16, 18),
        partial(flat, WHISPER, "input_ids", "decoder", num_mel_bins=20, merge=True),
    ),
}


# Inputs, files, and what ONNX Runtime makes of them


def feeds(decoder: Decoder, dims: dict[str, int]) -> dict[str, np.ndarray]:
    """Inputs of these dims, with random states."""
    random, fed = np.random.default_rng(1), {}
    for name, shape in decoder.inputs.items():
        cut = {**dims, "past": min(dims["past"], decoder.window or dims["past"])}
        sizes = [d if isinstance(d, int) else sum(cut[p] for p in d.split("+")) for d in shape]
        if name in ("input_ids", "codes"):
            fed[name] = random.integers(3, VOCAB - 1, sizes)
        elif name == "position_ids":
            fed[name] = np.broadcast_to(np.arange(sizes[-1]) + dims["past"], sizes).copy()
        elif name in ("position", "processed_lens"):
            fed[name] = np.full(sizes, dims["past"])
        elif name == "use_cache_branch":
            fed[name] = np.full(sizes, dims["past"] > 0)
        elif "mask" in name or name == "is_last":
            fed[name] = np.full(sizes, int("mask" in name))
        else:
            fed[name] = random.standard_normal(sizes).astype(np.float32)
    return fed


def export(decoder: Decoder, path: Path, exporter: str, opset: int) -> None:
    """Write the file, every named dim dynamic."""
    if decoder.parts:
        models = []
        for part in decoder.parts:
            export(part, path, exporter, opset)
            models.append(onnx.load(path))
        onnx.save(merged(*models), path)
        return
    grows = any("past" in x for x in decoder.inputs.values())
    fed = feeds(decoder, EXPORTED if grows else {**EXPORTED, "past": 0})
    shapes = decoder.inputs | decoder.outputs
    named = {n: {i: d for i, d in enumerate(s) if isinstance(d, str)} for n, s in shapes.items()}
    if exporter == "ts":
        more = {"dynamo": False, "dynamic_axes": named}
    else:
        dynamic = (tuple(named[name] or None for name in fed),)
        more = {"dynamo": True, "dynamic_shapes": dynamic, "external_data": False, "verbose": False}
    more |= {"input_names": [*fed], "output_names": [*decoder.outputs], "opset_version": opset}
    torch.onnx.export(decoder.module, tuple(map(torch.from_numpy, fed.values())), path, **more)


def merged(first: onnx.ModelProto, later: onnx.ModelProto) -> onnx.ModelProto:
    """One model with an If, as optimum makes it: equal weights are kept once, outside.

    An output that the later branch lacks, a cross cache, comes out of it empty.
    """
    inputs = {i.name: i for model in (first, later) for i in model.graph.input}
    inputs["use_cache_branch"] = helper.make_tensor_value_info("use_cache_branch", 9, [1])
    outputs, weights, branches = list(first.graph.output), {}, []
    for place, model in enumerate((later, first)):
        renamed = {}
        for weight in model.graph.initializer:
            key = (*weight.dims, weight.data_type, onnx.numpy_helper.to_array(weight).tobytes())
            name, weight.name = weight.name, f"{weight.name}_merged_{place}"
            renamed[name] = weights.setdefault(key, weight).name
        for node in model.graph.node:
            node.input[:] = [renamed.get(name, name) for name in node.input]
        nodes, own = list(model.graph.node), {o.name: o for o in model.graph.output}
        for name in (o.name for o in outputs if o.name not in own):
            shape = inputs[name.replace("present", "past_key_values")].type.tensor_type.shape
            dims = [0, *(max(d.dim_value, 1) for d in shape.dim[1:])]
            empty = helper.make_tensor("empty", TensorProto.FLOAT, dims, [])
            nodes.append(helper.make_node("Constant", [], [name], value=empty))
            own[name] = helper.make_tensor_value_info(name, 1, dims)
        given = [own[o.name] for o in outputs]
        branches.append(helper.make_graph(nodes, f"branch_{place}", [], given))
    choice = {"then_branch": branches[0], "else_branch": branches[1]}
    node = helper.make_node("If", ["use_cache_branch"], [o.name for o in outputs], **choice)
    graph = helper.make_graph([node], "merged", [*inputs.values()], outputs, [*weights.values()])
    return helper.make_model(graph, opset_imports=later.opset_import, ir_version=later.ir_version)


def apart(decoder: Decoder, path: Path, dims: dict[str, int]) -> float:
    """How far ONNX Runtime is from torch, relative to the largest value of an output."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
    fed = feeds(decoder, dims)
    part = decoder.parts[dims["past"] > 0] if decoder.parts else decoder
    with torch.no_grad():
        theirs = part.module(*(torch.from_numpy(fed[x]) for x in part.inputs))
    known = {x.name for x in session.get_inputs()}  # an exporter drops inputs that nothing uses
    ours = session.run([*part.outputs], {k: x for k, x in fed.items() if k in known})
    worst = 0.0
    for a, b in zip(ours, (x.numpy() for x in theirs), strict=True):
        if a.shape != b.shape:
            raise ValueError(f"shapes {a.shape} and {b.shape}")
        worst = max(worst, np.abs(a - b).max(initial=0) / max(np.abs(b).max(initial=0), 1e-9))
    return worst


def main(out: Path, names: list[str]) -> None:
    """Export and check each family with both exporters."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    out.mkdir(parents=True, exist_ok=True)
    every = [
        (k, e, o, make)
        for k, (ts, dy, make) in FAMILIES.items()
        for e, o in (("ts", ts), ("dy", dy))
    ]
    for name, exporter, opset, make in every:
        path = out / f"{name}_{exporter}{opset}.onnx"
        if opset is None or (names and not {name, path.stem} & {*names}):
            continue
        try:
            decoder = make()
            with torch.no_grad():
                export(decoder, path, exporter, opset)
            print(path.stem, *(f"{apart(decoder, path, x):.1e}" for x in CHECKED), flush=True)
        except Exception:  # the next is still wanted
            traceback.print_exc(limit=-4)
            print(f"{path.stem} FAILED", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
