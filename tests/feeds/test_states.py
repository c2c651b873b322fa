"""Which inputs are states, and which output each of them takes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.feeds.states import carry_states, find_states
from tests.feeds.small_models import HEAD

CACHE = """cache (float[B, T, 4] x, float[B, P, 4] past_values) => (float[B, N, 4] present_values)
    { present_values = Concat <axis = 1> (past_values, x) }"""


def names(inputs: str, outputs: str) -> list[str]:
    model = ir.from_onnx_text(
        f"""{HEAD} named ({inputs}) => ({outputs}) {{
        {" ".join(f"{x.split()[-1]} = Identity (x)" for x in outputs.split(", "))} }}"""
    )
    return [str(x) for x in find_states(model)]


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


def test_an_output_that_does_not_fit_is_not_fed() -> None:
    model = ir.from_onnx_text(HEAD + CACHE)
    states = find_states(model)
    fits = {"present_values": np.zeros((2, 9, 4), np.float32)}
    assert carry_states(states, model, fits) == {"past_values": fits["present_values"]}
    assert carry_states(states, model, {"present_values": np.zeros((2, 9, 5), np.float32)}) is None
    assert carry_states(states, model, {"present_values": np.zeros((2, 9, 4), np.float16)}) is None
    assert carry_states(states, model, {}) is None
