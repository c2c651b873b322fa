"""Small streams as people write them, as ONNX text, with what each step is fed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from graphfix.shipping.build import ship
from graphfix.shipping.container_spec import parse_containers
from graphfix.shipping.verify_folder import FolderProof, verify_folder
from tests.passes.cached import FORMS, table
from tests.shipping.conftest import saved

if TYPE_CHECKING:
    from pathlib import Path

    from graphfix.providers.table import Ep

HEADER = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>\n'
Feeds = dict[str, Any]
RANDOM = np.random.default_rng(7)


@dataclass(frozen=True)
class Example:
    """A model that continues states, and its use.

    Attributes:
        text: The graph.
        containers: The sizes of its dims, without those of caches.
        states: The output that each state takes.
        counts: How many entries each step adds.
        feed: Returns what a step is fed, from the entries before it and those it adds.
        cache: The size of its caches, if they have to be told.
    """

    text: str
    containers: Sequence[str]
    states: dict[str, str]
    counts: Sequence[int]
    feed: Callable[[int, int], Feeds]
    cache: Sequence[int] = ()


def frames(*shape: int) -> np.ndarray[Any, Any]:
    """Return random frames."""
    return RANDOM.standard_normal(shape).astype(np.float32)


# As onnxruntime-genai's builder writes it: packed, with a mask that is only counted.
GROUPED = f"""genai (int64[B, S] input_ids, int64[B, T] attention_mask,
    float[B, 1, P, D] past_key, float[B, 1, P, D] past_value) => (float[B, S, 32] logits,
    float[B, 1, T, D] present_key, float[B, 1, T, D] present_value)
    <{table("letters", 9, 32)}, {table("wqkv", 32, 64)}, {table("cos", 64, 8)},
     {table("sines", 64, 8)}, int64[1] one_1 = {{1}}, int64 one = {{1}}> {{
    x = Gather (letters, input_ids) qkv = MatMul (x, wqkv)
    ones = ReduceSum (attention_mask, one_1) last = Sub (ones, one_1) at = Cast <to = 6> (last)
    size = Shape (attention_mask) all = Gather (size, one) total = Cast <to = 6> (all)
    logits, present_key, present_value = com.microsoft.GroupQueryAttention
        <num_heads = 2, kv_num_heads = 1, do_rotary = 1>
        (qkv, , , past_key, past_value, at, total, cos, sines) }}"""


# Past and present in one buffer of 48 entries: what is valid, the mask alone says.
BUFFERED = GROUPED.replace("1, P, D]", "1, 48, 16]").replace("1, T, D]", "1, 48, 16]")
# Caches that hold a window, whose size the host of the model chooses.
WINDOWED = (
    GROUPED.replace("1, P, D]", "1, W, 16]")
    .replace("1, T, D]", "1, W, 16]")
    .replace("do_rotary = 1", "do_rotary = 1, local_window_size = 8, sliding_window_cache = 1")
)

# A Conv that halves the frames, so that half as many entries are added.
HALVED = f"""halved (float[1, 4, S] frames, float[1, 4, 2] conv_pad, float[1, P, 4] past_key)
    => (float[1, U, 4] y, float[1, 4, 2] conv_pad_next, float[1, Q, 4] present_key)
    <{table("w", 4, 4, 4)}, int64[1] back = {{-2}}, int64[1] end = {{9223372036854775807}},
     int64[1] two = {{2}}> {{
    all = Concat <axis = 2> (conv_pad, frames) half = Conv <strides = [2]> (all, w)
    conv_pad_next = Slice (all, back, end, two) x = Transpose <perm = [0, 2, 1]> (half)
    present_key = Concat <axis = 1> (past_key, x)
    turned = Transpose <perm = [0, 2, 1]> (present_key) scores = MatMul (x, turned)
    weights = Softmax (scores) y = MatMul (weights, present_key) }}"""


def wenet_layer(i: int) -> str:
    """One layer of a chunk encoder: keys and values of one stacked cache, and positions."""
    return f"""k_{i} = MatMul (x_{i}, wk) past_{i} = Slice (att_cache, at_{i}, at_{i + 1}, at_0)
    pair_{i} = Concat <axis = -1> (k_{i}, x_{i}) row_{i} = Unsqueeze (pair_{i}, at_0)
    all_{i} = Concat <axis = 2> (past_{i}, row_{i})
    keys_{i}, values_{i} = Split <axis = -1> (all_{i})
    turned_{i} = Transpose <perm = [0, 1, 3, 2]> (keys_{i}) s_{i} = MatMul (x_{i}, turned_{i})
    near_{i} = MatMul (x_{i}, placed) b_{i} = Add (s_{i}, near_{i}) w_{i} = Softmax (b_{i})
    y_{i} = MatMul (w_{i}, values_{i}) z_{i} = Squeeze (y_{i}, at_0) x_{i + 1} = Tanh (z_{i})"""


# WeNet's caches of all layers in one tensor that grows, and an offset into a table.
WENET = f"""wenet (float[1, S, 4] chunk, int64 offset, float[2, 1, P, 8] att_cache)
    => (float[1, S, 4] output, float[2, 1, Q, 8] r_att_cache)
    <{table("wk", 4, 4)}, {table("positions", 90, 4)}, int64 nought = {{0}}, int64 one = {{1}},
     int64[1] at_0 = {{0}}, int64[1] at_1 = {{1}}, int64[1] at_2 = {{2}}, int64 two = {{2}}> {{
    cs = Shape (chunk) s = Gather (cs, one) ps = Shape (att_cache) p = Gather (ps, two)
    t = Add (p, s) counted = Range (nought, t, one) behind = Sub (offset, p)
    index = Add (counted, behind) place = Gather (positions, index)
    placed = Transpose <perm = [1, 0]> (place) x_0 = Identity (chunk)
    {wenet_layer(0)} {wenet_layer(1)} output = Identity (x_2)
    r_att_cache = Concat <axis = 0> (all_0, all_1) }}"""

# Its caches of a fixed size, and a mask over them and the new frames.
WENET_MASK = """masked (float[1, S, 4] chunk, float[1, 6, 4] att_cache, bool[1, M] att_mask)
    => (float[1, S, 4] output, float[1, 6, 4] r_att_cache)
    <int64[1] one = {1}, int64[1] back = {-6}, int64[1] end = {9223372036854775807},
     float low = {-10000.0}> {
    keys = Concat <axis = 1> (att_cache, chunk) turned = Transpose <perm = [0, 2, 1]> (keys)
    scores = MatMul (chunk, turned) wide = Unsqueeze (att_mask, one)
    seen = Where (wide, scores, low) w = Softmax (seen) output = MatMul (w, keys)
    r_att_cache = Slice (keys, back, end, one) }"""

# A recurrence whose states have a batch of another name than the frames.
LSTM = f"""predictor (float[S, B, 2] x, float[1, N, 2] state0, float[1, N, 2] state1)
    => (float[S, B, 2] y, float[1, N, 2] next_state0, float[1, N, 2] next_state1)
    <{table("w", 1, 8, 2)}, {table("rr", 1, 8, 2)}, int64[1] one = {{1}}> {{
    a, next_state0, next_state1 = LSTM <hidden_size = 2> (x, w, rr, , , state0, state1)
    y = Squeeze (a, one) }}"""


def names_of_sovits(text: str) -> str:
    """Return a decoder with GPT-SoVITS's names, which say nothing."""
    for old, new in (("past_key", "ik"), ("past_value", "iv"), ("present_key", "k_"),
                     ("present_value", "v_")):  # fmt: skip
        text = text.replace(old, new)
    return text


def _tokens_and_mask(past: int, new: int) -> Feeds:
    return {
        "input_ids": RANDOM.integers(0, 9, (1, new)),
        "attention_mask": np.ones((1, past + new), np.int64),
    }


STREAMS = {
    "genai": Example(
        GROUPED,
        ["S=1,4"],
        {"past_key": "present_key", "past_value": "present_value"},
        [5, *[1] * 40],
        _tokens_and_mask,
        [48],
    ),
    "genai with buffers": Example(
        BUFFERED,
        ["S=1,4"],
        {"past_key": "present_key", "past_value": "present_value"},
        [5, *[1] * 40],
        _tokens_and_mask,
    ),
    "genai with a window": Example(
        WINDOWED,
        ["S=1,4"],
        {"past_key": "present_key", "past_value": "present_value"},
        [5, *[1] * 40],
        _tokens_and_mask,
        [48],
    ),
    "halved": Example(
        HALVED,
        ["S=2,8"],
        {"conv_pad": "conv_pad_next", "past_key": "present_key"},
        [8, 2, *[2] * 20],
        lambda _, new: {"frames": frames(1, 4, new)},
        [48],
    ),
    "wenet": Example(
        WENET,
        ["S=1,4"],
        {"att_cache": "r_att_cache"},
        [4, 4, *[1] * 40],
        lambda past, new: {"chunk": frames(1, new, 4), "offset": np.array(past)},
        [48],
    ),
    "wenet with a mask": Example(
        WENET_MASK,
        ["S=2"],
        {"att_cache": "r_att_cache"},
        [2] * 20,
        lambda past, new: {
            "chunk": frames(1, new, 4),
            "att_mask": np.arange(6 + new)[None] >= 6 - min(past, 6),
        },
    ),
    "lstm": Example(
        LSTM,
        ["S=2"],
        {"state0": "next_state0", "state1": "next_state1"},
        [2] * 20,
        lambda _, new: {"x": frames(new, 1, 2)},
    ),
    "sovits": Example(
        names_of_sovits(FORMS["causal"]),
        ["S=1,4"],
        {"ik": "k_", "iv": "v_"},
        [5, *[1] * 40],
        lambda _, new: {"x": frames(1, new, 4)},
        [48],
    ),
    "cut before it is read": Example(
        FORMS["cut before it is read"],
        ["S=1,2"],
        {"past_key": "present_key", "past_value": "present_value"},
        [2, *[1] * 40],
        lambda _, new: {"x": frames(1, new, 4)},
    ),
}


def prove_on(ep: Ep, example: Example, folder: Path) -> FolderProof:
    """Ship an example, and prove it on a provider: at least 40 steps, and one that is refused."""
    source = saved(HEADER + example.text, folder / "model.onnx")
    sizes = parse_containers(example.containers)
    result = ship(source, folder / "out", sizes, cache=example.cache, stream=True, ep=ep)
    assert result.ok, str(result.whole)
    return verify_folder(source, folder / "out", ep=ep)
