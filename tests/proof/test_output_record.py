"""Outputs that say nothing, and those that are no tensors of numbers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.proof.allowance import Tolerance
from graphfix.proof.verify import verify
from graphfix.runtime._results import flatten_output

HEAD = '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>\n'


def model(text: str) -> ir.Model:
    return ir.from_onnx_text(HEAD + text)


def test_a_logarithm_gets_inputs_above_0():
    text = """m (float[B, T] x) => (float[B, T] y)
        { l = Log (x)  m = ReduceMean <axes = [1]> (l)  y = %s (l, m) }"""
    assert verify(model(text % "Sub"), model(text % "Sub")).ok
    verdict = verify(model(text % "Sub"), model(text % "Add"))
    assert not verdict.ok
    assert "inputs are above 0" in " ".join(verdict.notes)


def test_an_output_that_is_never_a_number_is_a_failure():
    text = "m (float[B, T] x) => (float[B, T] y) { a = Abs (x)  n = Neg (a)  y = Log (n) }"
    verdict = verify(model(text), model(text))
    assert not verdict.ok
    assert "'y' has no finite number in any case" in str(verdict)


@pytest.mark.parametrize(
    ("array", "says"),
    [
        pytest.param(np.full((1, 3), np.nan), "no finite number", id="NaN"),
        pytest.param(np.zeros((0, 3)), "nothing was compared", id="empty"),
    ],
)
def test_given_inputs_that_say_nothing_are_a_failure(array: np.ndarray, says: str):
    text = "m (float[B, T] x) => (float[B, T] y) { y = Neg (x) }"
    verdict = verify(model(text), model(text), feeds={"x": array.astype(np.float32)})
    assert not verdict.ok
    assert says in str(verdict)


def test_an_output_that_is_always_0():
    text = """m (float[B, T] x) => (float[B, T] y) <float c = {%s}>
        { z = Sub (x, x)  y = Add (z, c) }"""
    verdict = verify(model(text % "0.0"), model(text % "0.0"))
    assert verdict.ok
    assert "'y' is 0 in every case" in " ".join(verdict.notes)
    verdict = verify(model(text % "0.0"), model(text % "1e-7"))
    assert not verdict.ok
    assert "always 0 in the original" in str(verdict)


def test_an_output_that_stays_below_what_rounding_is():
    text = "m (float[B, T] x) => (float[B, T] y) <float c = {%s}> { t = Tanh (x)  y = Mul (t, c) }"
    assert verify(model(text % "1e-8"), model(text % "1e-8")).ok
    assert not verify(model(text % "1e-8"), model(text % "1.002e-8")).ok
    pair = model(text % "1e-8"), model(text % "2e-8")
    verdict = verify(*pair, tolerance=Tolerance())
    assert not verdict.ok
    assert "never more than 1e-08" in str(verdict)


def test_sequences_are_compared():
    text = """m (float[B, T] x) => (seq(float[B, T]) y)
        { a = Neg (x)  b = %s (x)  y = SequenceConstruct (%s) }"""
    right = model(text % ("Tanh", "a, b"))
    assert verify(right, right).ok
    for wrong in (("Sigmoid", "a, b"), ("Tanh", "b, a"), ("Tanh", "a, b, b"), ("Tanh", "a")):
        assert not verify(right, model(text % wrong), locate=False).ok, wrong


def test_text_is_compared():
    text = """m (int64[B, T] x) => (string[B, T] y)
        { y = ai.onnx.ml.LabelEncoder
          <keys_int64s = [0, 1], values_strings = ["no", "%s"], default_string = "none"> (x) }"""
    assert verify(model(text % "yes"), model(text % "yes")).ok
    assert not verify(model(text % "yes"), model(text % "yet"), locate=False).ok


def test_what_is_no_tensor_becomes_arrays():
    assert flatten_output("y", None)["y.present"].item() is False
    assert set(flatten_output("y", [np.zeros(2)])) == {"y.length", "y[0]"}
    assert set(flatten_output("y", {"b": 1.0, "a": 2.0})) == {"y.keys", "y['a']", "y['b']"}
