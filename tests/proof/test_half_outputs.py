"""Which outputs were rounded to float16 on the way, and how often."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.proof.half_outputs import computes_in_half, count_half_roundings, values_behind_half

HEAD = '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>'


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("m (float[B] x) => (float[B] y) { y = Tanh (x) }", {}),
        # Passed on, stored or moved: nothing rounds.
        (
            "m (float[B] x, float16[B] h) => (float[B] y, float16[B] z, float[B] w)"
            "{ y = Tanh (x) z = Identity (h) w = Cast <to = 1> (h) }",
            {},
        ),
        # One output beside another.
        (
            "m (float[B] x) => (float[B] y, float16[B] z)"
            "{ y = Tanh (x) h = Cast <to = 10> (x) z = Tanh (h) }",
            {"z": 2},
        ),
        # It ends at integers: no number moves by a little there.
        (
            "m (float[B, T] x) => (float[B, T] y) <int64 one = {1}>"
            "{ h = Cast <to = 10> (x) i = ArgMax <axis = -1> (h) f = Cast <to = 1> (i)"
            "  y = Add (x, f) }",
            {},
        ),
        # bfloat16, and types that the file does not say.
        (
            "m (float[B] x) => (float[B] y)"
            "{ h = Cast <to = 16> (x) g = Neg (h) t = Mul (g, h) y = Cast <to = 1> (t) }",
            {"y": 3},
        ),
        # In a body, and through it.
        (
            "m (float[B] x, bool c) => (float[B] y)"
            "{ h = Cast <to = 10> (x) y = If (c) <"
            "  then_branch = a () => (float[B] p) { p = Cast <to = 1> (h) },"
            "  else_branch = b () => (float[B] q)"
            "  { g = Cast <to = 10> (x) q = Cast <to = 1> (g) }> }",
            {"y": 2},
        ),
    ],
    ids=["float32", "passed on", "beside", "integers", "bfloat16", "body"],
)
def test_roundings_are_counted_for_each_output(text: str, counts: dict[str, int]) -> None:
    assert count_half_roundings(ir.from_onnx_text(HEAD + text)) == counts


def test_a_function_that_computes_in_float16_is_not_looked_into() -> None:
    text = """m (float[B] x) => (float[B] y, float[B] z) { y = own.F (x) z = Tanh (x) }
        <opset_import: ["" : 17], domain: "own">
        F (a) => (b) { h = Cast <to = 10> (a) b = Cast <to = 1> (h) }"""
    model = ir.from_onnx_text(HEAD + text)
    assert computes_in_half(model)
    assert count_half_roundings(model) == {"y": 1000}


def test_values_behind_a_rounding_are_named() -> None:
    text = """m (float[B] x, float16[B] h) => (float[B] y, float[B] z, float[B] w)
        { a = Tanh (x) r = Cast <to = 10> (a) f = Cast <to = 1> (r) y = Neg (f)
          i = ArgMax (f) c = Cast <to = 1> (i) z = Add (x, c) w = Cast <to = 1> (h) }"""
    assert values_behind_half(ir.from_onnx_text(HEAD + text)) == {"r", "f", "y", "i"}
    assert values_behind_half(ir.from_onnx_text(HEAD + text.replace("= 10", "= 1"))) == set()
