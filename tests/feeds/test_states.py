"""Which inputs are states, and which output each of them takes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.feeds.states import (
    StatePair,
    carry_states,
    expand_state_globs,
    find_states,
    find_states_by_shape,
    unpaired_states,
)
from tests.feeds.small_models import HEAD

CACHE = """cache (float[B, T, 4] x, float[B, P, 4] past_values) => (float[B, N, 4] present_values)
    { present_values = Concat <axis = 1> (past_values, x) }"""


def named_model(inputs: str, outputs: str) -> ir.Model:
    """Return a model whose outputs all are its first input."""
    first = inputs.split(", ")[0].split()[-1]
    names_of_outputs = [x.split()[-1] for x in outputs.split(", ")]
    nodes = " ".join(f"{x} = Identity ({first})" for x in names_of_outputs)
    return ir.from_onnx_text(f"{HEAD} named ({inputs}) => ({outputs}) {{ {nodes} }}")


def names(inputs: str, outputs: str) -> list[str]:
    return [str(x) for x in find_states(named_model(inputs, outputs))]


@pytest.mark.parametrize(
    ("inputs", "outputs", "found"),
    [
        (
            "float[B] x, float[B] past_key_values_0_key, float[B] past_key_values_0_value",
            "float[B] present_key_values_0_value, float[B] present_key_values_0_key",
            [
                "present_key_values_0_key to past_key_values_0_key",
                "present_key_values_0_value to past_key_values_0_value",
            ],
        ),
        (
            "float[B] x, float[B] in_cache0, float[B] in_cache1",
            "float[B] logits, float[B] out_cache0, float[B] out_cache1",
            ["out_cache0 to in_cache0", "out_cache1 to in_cache1"],
        ),
        ("float[B] x, float[B] state", "float[B] y, float[B] stateN", ["stateN to state"]),
        (
            "float[B] x, float[B] h0, float[B] c0",
            "float[B] y, float[B] hn, float[B] cn",
            ["hn to h0", "cn to c0"],
        ),
        # Other names, in order; not where there are more of them, or of another shape.
        (
            "float[B] x, float[B] memory",
            "float[B] y, float[B] next_state",
            ["next_state to memory"],
        ),
        ("float[B] x, float[B] memory", "float[B] y, float[B] s, float[B] cache", []),
        ("float[2] x, float[2] state", "float[2] y, int64[2] new_state", []),
        # What one layer hands the next is no state of a run.
        ("float[B] x, float[B] hidden_states", "float[B] y, float[B] hidden_states_out", []),
        ("float[B] x, float[B] mask", "float[B] y", []),
    ],
)
def test_which_output_an_input_takes(inputs: str, outputs: str, found: list[str]) -> None:
    assert names(inputs, outputs) == found


@pytest.mark.parametrize(
    ("inputs", "outputs", "found"),
    [
        # The names of icefall, of a codec, MNN, NeMo, WeNet, RWKV and recurrences.
        (
            "float[N,T] x, int64[N] processed_lens, float[16,N] cached_key_0, "
            "float[16,N] cached_key_1, float[N,4] embed_states",
            "float[N,T] y, int64[N] new_processed_lens, float[16,N] new_cached_key_0, "
            "float[16,N] new_cached_key_1, float[N,4] new_embed_states",
            [
                "new_processed_lens to processed_lens",
                "new_cached_key_0 to cached_key_0",
                "new_cached_key_1 to cached_key_1",
                "new_embed_states to embed_states",
            ],
        ),
        (
            "float[B,T] x, float[B,2] pre_conv_h, float[B,2] latent_buf",
            "float[B,T] y, float[B,2] new_pre_conv_h, float[B,2] new_latent_buf",
            ["new_pre_conv_h to pre_conv_h", "new_latent_buf to latent_buf"],
        ),
        (
            "int64[1,S] ids, float[2,P] past_key_values_0, float[2,P] past_key_values_1",
            "float[1,S] y, float[2,Q] presents_0, float[2,Q] presents_1",
            ["presents_0 to past_key_values_0", "presents_1 to past_key_values_1"],
        ),
        (
            "int64[1,S] ids, float[2,P] past_key_values",
            "float[1,S] y, float[2,Q] presents",
            ["presents to past_key_values"],
        ),
        (
            "float[B,T] signal, int64[B] length, float[B,7] cache_last_time, "
            "int64[B] cache_last_channel_len",
            "float[B,U] outputs, int64[B] encoded_lengths, float[B,7] cache_last_time_next, "
            "int64[B] cache_last_channel_next_len",
            [
                "cache_last_time_next to cache_last_time",
                "cache_last_channel_next_len to cache_last_channel_len",
            ],
        ),
        (
            "float[1,T] chunk, float[2,P] att_cache, float[2,7] cnn_cache",
            "float[1,U] output, float[2,Q] r_att_cache, float[2,7] r_cnn_cache",
            ["r_att_cache to att_cache", "r_cnn_cache to cnn_cache"],
        ),
        (
            "float[B,T] x, float[B,8] shift_0, float[B,8] shift_1",
            "float[B,T] y, float[B,8] shift_0_out, float[B,8] shift_1_out",
            ["shift_0_out to shift_0", "shift_1_out to shift_1"],
        ),
        (
            "float[B,T] x, float[2,B] h_0, float[2,B] c_0",
            "float[B,T] y, float[2,B] c_n, float[2,B] h_n",
            ["h_n to h_0", "c_n to c_0"],
        ),
        (
            "float[B,T] x, float[B,8] hx, float[B,8] prev_c",
            "float[B,T] y, float[B,8] c1, float[B,8] hy",
            ["hy to hx", "c1 to prev_c"],
        ),
        (
            "float[B,T] x, float[B,8] hidden",
            "float[B,T] y, float[B,8] new_hidden",
            ["new_hidden to hidden"],
        ),
        # Numbers that go from step to step; the position is looked up in a table, the length fed.
        (
            "float[1,T] x, int64[1] offset, float gain, int64[1] lens, float[1,8] cache",
            "float[1,T] y, int64[1] offset_out, float gain_out, int64[1] lens_out, "
            "float[1,8] cache_out",
            ["offset_out to offset", "gain_out to gain", "cache_out to cache"],
        ),
        # Named as the others are: but for the first, which is fed, and what is no float.
        (
            "float[B,8] frame, float[B,8] hidden, float[B,E] weights, float[B,8] ctx, int64[B,E] m",
            "float[B,8] out_frame, float[B,8] out_hidden, float[B,E] out_weights, "
            "float[B,7] out_ctx, int64[B,E] out_m",
            ["out_hidden to hidden", "out_weights to weights"],
        ),
        # The same type and shape, and no states: what a model is fed, and what it makes of it.
        ("float[B,T] x, float[B,8] bias", "float[B,T] x_new, float[B] z", []),
        ("float[B,T] audio, int64[B] lens", "float[B,T] audio_out, int64[B] lens_out", []),
        ("float[1,4] latents_0, float[1] t", "float[1,4] new_latents_0, float[1] s", []),
        ("float[1,8] x1, float[1,8] x2", "float[1,8] x1_out, float[1,8] x2_out", []),
        ("float[1,8] mix, float[1,8] labels", "float[1,8] logits, float[1] loss", []),
        # Two outputs are the next of one.
        (
            "float[B,T] x, float[B,8] mem",
            "float[B,T] y, float[B,8] new_mem, float[B,8] next_mem",
            [],
        ),
    ],
)
def test_states_of_one_stem(inputs: str, outputs: str, found: list[str]) -> None:
    assert names(inputs, outputs) == found


@pytest.mark.parametrize(
    ("inputs", "outputs", "found"),
    [
        (
            "int64[1,S] ids, float[1,8] aa, float[1,8] bb, float[2,8] pp",
            "float[1,S] y, float[1,8] r0, float[1,8] r1, float[2,8] r2",
            ["r0 to aa", "r1 to bb", "r2 to pp"],
        ),
        # What is as long as the step is no state, although the output is, too.
        (
            "float[1,T,4] x, float[1,2,4] aa, float[1,4] bb",
            "float[1,T,4] y, float[1,2,4] r0, float[1,4] r1",
            ["r0 to aa", "r1 to bb"],
        ),
        # In another order, one more of them, and what is the model's own content.
        (
            "int64[1,S] ids, float[1,8] aa, float[2,8] pp",
            "float[1,S] y, float[2,8] r2, float[1,8] r0",
            [],
        ),
        (
            "int64[1,S] ids, float[1,8] aa",
            "float[1,S] y, float[1,8] r0, float[1,8] r1",
            [],
        ),
        ("float[1,8] mix, float[2,8] aa", "float[1,8] enh, float[2,8] r0", []),
        ("float[1,8] mix, float[1] t", "float[1,8] enh, float[1] s", []),
    ],
)
def test_states_of_one_shape(inputs: str, outputs: str, found: list[str]) -> None:
    model = named_model(inputs, outputs)
    assert not find_states(model)
    states = find_states_by_shape(model, (), model.graph.outputs)
    assert [str(x) for x in states] == found


@pytest.mark.parametrize(
    ("inputs", "outputs", "found"),
    [
        # The caches of GPT-SoVITS.
        (
            "int64[1,1] ix, float[2,P,1,8] ik, float[2,P,1,8] iv, float[1,P,8] iy",
            "float[2,more,1,8] k, float[2,more,1,8] v, float[1,more,8] y, float[1,9] logits",
            ["k to ik", "v to iv", "y to iy"],
        ),
        # Twice as long, shorter, longer along two dims, one of two, and all that comes out.
        ("int64[1,S] ids, float[2,P,8] aa", "float[1,S] y, float[2,twice,8] b", []),
        ("int64[1,S] ids, float[2,P,8] aa", "float[1,S] y, float[2,less,8] b", []),
        ("int64[1,S] ids, float[P,P,8] aa", "float[1,S] y, float[more,more,8] b", []),
        (
            "int64[1,S] ids, float[2,P,8] aa",
            "float[1,S] y, float[2,more,8] b, float[2,more,8] c",
            [],
        ),
        ("int64[1,S] ids, float[2,P,8] aa", "float[2,more,8] b", []),
    ],
)
def test_states_that_grow(inputs: str, outputs: str, found: list[str]) -> None:
    model = named_model(inputs, outputs)
    dims = {"more": "P + 1", "twice": "2*P", "less": "P - 1"}
    for value in model.graph.outputs:
        value.shape = ir.Shape([dims.get(str(x), x) for x in value.shape or ()])
    states = find_states_by_shape(model, (), model.graph.outputs)
    assert [str(x) for x in states] == found


def test_the_first_of_both_are_no_state_where_names_tell_others() -> None:
    """A frame comes out again as a frame; of a model without any names it may be a state."""
    model = named_model(
        "float[1,8] frame, float[1,8] hidden, float[2,8] aa, float[3,8] content",
        "float[1,8] predicted, float[1,8] out_hidden, float[2,8] bb, float[1] stop",
    )
    known = find_states(model)
    assert [str(x) for x in known] == ["out_hidden to hidden"]
    states = find_states_by_shape(model, known, model.graph.outputs)
    assert [str(x) for x in states] == ["bb to aa"]


def test_what_looks_like_a_state_and_is_none() -> None:
    model = named_model(
        "float[B,T] x, float[B,8] mem, float[B,9] gain, float[B,4] left_context",
        "float[B,U] y, float[B,8] new_mem, float[B,9] z",
    )
    assert unpaired_states(model, find_states(model)) == ("gain", "left_context")


def test_patterns_of_states() -> None:
    model = named_model("float[B] x, float[B] k_0, float[B] k_1", "float[B] n_0, float[B] n_1")
    states = expand_state_globs(model, [StatePair("k_*", "n_*")])
    assert states == (StatePair("k_0", "n_0"), StatePair("k_1", "n_1"))
    assert expand_state_globs(model, [StatePair("z*", "n*")]) == (StatePair("z*", "n*"),)
    assert expand_state_globs(model, [StatePair("k_0", "n_1")]) == (StatePair("k_0", "n_1"),)


def test_an_output_that_does_not_fit_is_not_fed() -> None:
    model = ir.from_onnx_text(HEAD + CACHE)
    states = find_states(model)
    fits = {"present_values": np.zeros((2, 9, 4), np.float32)}
    assert carry_states(states, model, fits) == {"past_values": fits["present_values"]}
    assert carry_states(states, model, {"present_values": np.zeros((2, 9, 5), np.float32)}) is None
    assert carry_states(states, model, {"present_values": np.zeros((2, 9, 4), np.float16)}) is None
    assert carry_states(states, model, {}) is None


def test_embeddings_of_one_entry_are_no_state() -> None:
    text = """m (float[1, 1, 4] embeds, int64[1, 1] positions, float[1, 3, 4] past_key) =>
        (float[1, 1, 4] hidden, float[1, 1, 7] logits, float[1, 3, 4] present_key) {
        hidden = Neg (embeds) present_key = Neg (past_key)
        shift = Cast <to = 1> (positions) wave = Sin (shift) logits = Own (wave) }"""
    model = ir.from_onnx_text(HEAD + text)
    known = find_states(model)
    assert [x.input for x in known] == ["past_key"]
    assert find_states_by_shape(model, known, model.graph.outputs) == ()
