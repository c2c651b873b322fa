"""Nodes that stay in float32, by what their operators are."""

from __future__ import annotations

import pytest

from graphfix.facts.view import View
from graphfix.passes.half.conversion.float32_nodes import Float32Nodes
from graphfix.passes.half.conversion.value_types import ElementTypes
from tests.passes.half.test_float16 import HALF, add, agree, f, halved, parse, same_numbers

__all__ = ["same_numbers"]  # a fixture


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("y = Identity (x)", ""),
        ("y = RandomNormalLike (x)", "ONNX Runtime makes float32 there"),
        ("n = Multinomial (x) y = Identity (x)", "ONNX Runtime makes float32 there"),
        ("y = MeanVarianceNormalization <axes = [0]> (x)", "its function in ONNX Runtime has"),
        (
            "q, s, z = DynamicQuantizeLinear (x) y = Cast <to = 1> (q)",
            "scales of quantized numbers",
        ),
        ("s = SequenceConstruct (x) y = ConcatFromSequence <axis = 0> (s)", "a sequence has one"),
        (
            """s = SequenceConstruct (x) t = SequenceMap (s) <body = g (float[B, 8] a)
            => (float[B, 8] b) { b = Neg (a) }> y = ConcatFromSequence <axis = 0> (t)""",
            "a sequence has one type",
        ),
    ],
)
def test_an_operator_has_its_reason(body: str, reason: str) -> None:
    view = View(parse("(float[B, 8] x) => (float[B, 8] y)", body))
    nodes = Float32Nodes(view, ElementTypes(view))
    first = next(iter(view.model.graph))
    assert nodes._intrinsic_reason(first).startswith(reason)
    assert bool(nodes._intrinsic_reason(first)) == bool(reason)


def test_a_cast_like_casts_to_the_type_that_its_second_input_gets() -> None:
    before = add(
        parse(
            "(float[B, 8] x, float[8, 8] w, int64[B, 8] n) => (float[B, 8] y)",
            "h = MatMul (x, w) c = CastLike (n, h) s = Add (h, c) y = MatMul (s, w)",
        ),
        w=f(8, 8),
    )
    after = halved(before)
    dtypes = {x.outputs[0].name: x.outputs[0].dtype for x in after.graph}
    assert (dtypes["h"], dtypes["c"]) == (HALF, HALF)
    agree(before, after, {"x": f(2, 8), "n": (3 * f(2, 8)).astype("int64")})
