"""How a model is fed and read stays as it is, unless it is a pass's job to change it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.core import interface_changes_of
from graphfix.engine import registry
from graphfix.feeds.case import Case
from graphfix.proof.interface import list_interface_changes
from graphfix.proof.verify import verify

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
TEXT = """m (float[B, T] x, float[1] g) => (float[B, T] y, float[B, T] z)
    <float[1] g = {2.0}> { y = Mul (x, g)  z = Neg (x) }"""


def model(text: str) -> ir.Model:
    return ir.from_onnx_text(HEAD + text)


@pytest.mark.parametrize(
    ("was", "now", "says"),
    [
        pytest.param(
            "(float[B, T] y, float[B, T] z)",
            "(float[B, T] z, float[B, T] y)",
            "outputs in another order: z, y instead of y, z",
            id="order",
        ),
        pytest.param("float[B, T] x", "float[B, 6] x", "fixed at 6 instead of T", id="frozen"),
        pytest.param(", float[1] g)", ")", "no input 'g' any more", id="override"),
        pytest.param("<float[1] g = {2.0}>", "", "no default for the input 'g'", id="default"),
        pytest.param("float[B, T] x,", "float[B, T] x, float[1] q,", "new input 'q'", id="new"),
        pytest.param("z)", "z, float[B, T] v)", "new output 'v'", id="new output"),
    ],
)
def test_a_changed_interface_is_a_failure(was: str, now: str, says: str):
    text = TEXT.replace(was, now, 1)
    if "float[B, T] v" in text:
        text = text.replace("z = Neg (x)", "z = Neg (x)  v = Neg (z)")
    changes = list_interface_changes(model(TEXT), model(text))
    assert says in "; ".join(changes)
    if "new input" not in says and "no default" not in says:
        verdict = verify(model(TEXT), model(text))
        assert not verdict.ok
        assert says in str(verdict) or "no input 'g'" in says  # its other value tells it as well


def test_the_same_interface_is_none():
    assert list_interface_changes(model(TEXT), model(TEXT)) == []
    assert verify(model(TEXT), model(TEXT)).ok


def test_dtype_and_rank_of_what_is_declared():
    other = model(TEXT)
    other.graph.outputs[0].type = ir.TensorType(ir.DataType.FLOAT16)
    other.graph.outputs[1].shape = ir.Shape(["B"])
    said = "; ".join(list_interface_changes(model(TEXT), other))
    assert "'y' as float16 instead of float" in said
    assert "'z' with 1 dims instead of 2" in said


def test_a_pass_says_what_it_may_change():
    frozen = model(TEXT.replace("float[B, T] x", "float[B, 6] x"))
    assert interface_changes_of([registry.make_pass("fix-dims", {"T": "6"})]) == {"dims"}
    assert not interface_changes_of([registry.make_pass("additive-mask")])
    assert verify(model(TEXT), frozen, may_change=["dims"]).ok


@pytest.mark.parametrize(("was", "now", "ok"), [("B", "B, U", True), ("B, U", "B", False)])
def test_a_false_number_of_dims_of_an_output_may_be_set_right(was: str, now: str, ok: bool):
    """ONNX Runtime loads it where it does not know itself how many there are."""
    text = """m (float[B, T] x, int64[N] to) => (float[%s] y)
        { s = Identity (to)  y = Reshape (x, s) }"""
    before, after = model(text % was), model(text % now)
    feeds = {"x": np.ones((2, 3), np.float32), "to": np.array([3, 2])}
    verdict = verify(before, after, feeds=feeds)
    assert verdict.ok is ok
    assert ("dims instead of" in str(verdict)) is not ok


def test_a_size_of_an_output_may_be_known_better() -> None:
    """What an output is declared as nobody feeds; of an input it would refuse other sizes."""
    known = TEXT.replace("=> (float[B, T] y", "=> (float[2, 6] y")
    assert list_interface_changes(model(TEXT), model(known)) == []


AUDIO = "m (float[B, T] audio) => (float[B, T] y) { y = Relu (audio) }"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (AUDIO.replace("audio", "audios"), "has no input 'audio' (did you mean 'audios'?); needs"),
        (
            "m (float[B, T] audio, int64[B] n) => (float[B, T] y, int64[B] l) "
            "{ y = Relu (audio)  l = Identity (n) }",
            "needs an input 'n', int64 [B]",
        ),
        (AUDIO.replace("float", "double"), "the input 'audio' as float64 instead of float32"),
        (AUDIO.replace("T]", "T, 3]"), "the input 'audio' with 3 dims instead of 2"),
        (
            "m (float[B, 40] audio) => (float[B, T] y) <int64[2] s = {-1, 40}> "
            "{ r = Reshape (audio, s)  y = Relu (r) }",
            "takes 40 in axis 1 of the input 'audio' instead of 7",
        ),
        ("m (int64[N] ids) => (int64[N] q) { q = Identity (ids) }", "needs an input 'ids', int64"),
    ],
)
def test_of_unrelated_models_the_inputs_that_differ_are_said(text: str, says: str) -> None:
    head = "the models take other inputs: the repaired one "
    cases = [Case("given", {"B": 2, "T": 7}, {"audio": np.ones((2, 7), np.float32)})]
    found = str(verify(model(AUDIO), model(text), cases=cases))
    assert found.startswith(head)
    assert says in found
    assert "Required inputs" not in found
