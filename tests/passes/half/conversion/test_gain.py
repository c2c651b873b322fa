"""What is too little to gain, and models that compute in int8."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

import graphfix
from graphfix.files.half_weights import KEPT_IN_FLOAT32_KEY
from graphfix.proof.compare import HALF_GATE, compare
from graphfix.proof.verdict import Verdict
from tests.passes.half.test_float16 import HALF, add, f, halved, parse, same_numbers
from tests.passes.models import refusals

__all__ = ["same_numbers"]  # a fixture


def test_a_branching_that_stays_says_so_to_the_second_run() -> None:
    before = add(
        parse(
            "(float[B, 8] x, bool c, float[8, 8] w) => (float[B, 8] y)",
            """h = MatMul (x, w)
            z = If (c) <then_branch = yes () => (float[B, 8] a) { a = Exp (h) },
            else_branch = no () => (float[B, 8] b) { b = Tanh (h) }> y = MatMul (z, w)""",
        ),
        w=f(8, 8, scale=0.3),
    )
    after = halved(before, "float16:keep=z")
    assert (
        next(x for x in after.graph if x.op_type == "If").metadata_props[KEPT_IN_FLOAT32_KEY]
        == "keep=z"
    )


def test_too_little_is_left_as_it_is() -> None:
    steps = " ".join(f"s{i} = Tanh ({f's{i - 1}' if i else 'h'})" for i in range(30))
    before = add(
        parse(
            "(float[B, 40] x, float[40, 40] w, float[2, 40] v) => (float[B, 40] y, float[B, 2] z)",
            f"h = MatMul (x, w) {steps} y = MatMul (s29, w) t = Transpose (v) z = MatMul (x, t)",
        ),
        w=f(40, 40),
        v=f(2, 40),
    )
    text = ir.to_proto(before).SerializeToString(deterministic=True)
    assert refusals(before, "float16:keep=h+s*+y") == [
        "float16 gains nothing here, left as it is: keep=h; keep=s*; keep=y"
    ]
    assert ir.to_proto(before).SerializeToString(deterministic=True) == text
    # What was asked for by name is done, however little it is.
    assert graphfix.run(before, "float16:only=z+t").changed


def test_whole_numbers_alone_have_a_sentence_too() -> None:
    ours = np.arange(200)
    theirs = ours.copy()
    theirs[7] = 3
    diff = compare("y", "c", ours, theirs, HALF_GATE)
    assert str(Verdict(True, {"c": (diff,)})) == (
        "the same in 1 case: whole numbers are the same in 99.50% at least."
    )


def test_what_computes_in_int8_is_left_as_it_is() -> None:
    """Whole numbers meet: as they are, or through a pair of operators around each."""
    pairs = """(float[B, 8] x, int8[8, 8] w, float s, int8 z, float[8] b) => (float[B, 8] y)"""
    body = """q = QuantizeLinear (x, s, z) d = DequantizeLinear (q, s, z)
    v = DequantizeLinear (w, s, z) t = Transpose (v) h = MatMul (d, t)
    a = Add (h, b) e = Tanh (a) y = Softmax (e)"""
    integers = """(float[B, 8] x, int8[8, 8] w, float s, int8 z, float[8] b) => (float[B, 8] y)"""
    whole = """q, k, n = DynamicQuantizeLinear (x) i = MatMulInteger (q, w, n, z)
    f = Cast <to = 1> (i) g = Mul (f, k) h = Mul (g, s) a = Add (h, b) e = Tanh (a)
    y = Softmax (e)"""
    weights = {
        "w": np.arange(64, dtype=np.int8).reshape(8, 8),
        "s": np.array(0.02, np.float32),
        "z": np.array(0, np.int8),
        "b": f(8),
    }
    for signature, text in ((pairs, body), (integers, whole)):
        model = add(parse(signature, text), **weights)
        report = graphfix.run(model, "float16")
        assert not report.changed
        assert "it computes in int8" in report.passes[0].skips[0][1]
        # Inputs and outputs that were asked for are float16, and nothing else.
        asked = add(parse(signature, text), **weights)
        graphfix.run(asked, "float16:io=half")
        made = [x for node in asked.graph for x in node.outputs if x.dtype == HALF]
        assert made == list(asked.graph.outputs)
    # What meets floats is a weight that is stored in less, and what it makes is float16.
    stored = body.replace("MatMul (d, t)", "MatMul (x, t)")
    report = graphfix.run(add(parse(pairs, stored), **weights), "float16")
    assert report.changed
    report = graphfix.run(add(parse(pairs, body), **weights), "float16:only=Softmax")
    assert report.changed


def test_a_model_of_functions_that_gains_nothing_says_so() -> None:
    model = add(
        parse(
            "(float[B, 8] x, float[8, 8] w) => (float[B, 8] y)",
            "y = local.f (x, w)",
            extra='<domain: "local", opset_import: ["" : 17]> f (a, k) => (c) {c = MatMul (a, k)}',
        ),
        w=f(8, 8),
    )
    report = graphfix.run(model, "float16:keep=MatMul")
    assert not report.changed
    assert model.functions
    assert ["gains nothing here" in why for _, why in report.passes[0].skips] == [True]
