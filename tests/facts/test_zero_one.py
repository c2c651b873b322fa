"""What must hold only 0 and 1 for a tensor to do so."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.facts.view import View
from graphfix.facts.zero_one import zero_one_sources

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'


def sources(body: str) -> list[str | None] | None:
    text = f"m (float[1, 4, 2, 2] x, int64[2, 2] m, int64[2] n) => (float[Z] y) {{ {body} }}"
    model = ir.from_onnx_text(f"{HEAD} {text}")
    found = zero_one_sources(model.graph.outputs[0], View(model))
    return None if found is None else [value.name for value in found]


@pytest.mark.parametrize(
    "moves",
    [
        "y = Identity (b)",
        "y = Trilu (b)",
        "y = DepthToSpace <blocksize = 2> (b)",
        "y = SpaceToDepth <blocksize = 2> (b)",
        "y = ReverseSequence (b, n)",
        "y = Cast <to = 10> (b)",
        "y, z = Split <axis = 1> (b)",
    ],
)
def test_a_comparison_is_a_proof_wherever_its_elements_go(moves: str) -> None:
    assert sources(f"c = Greater (x, x) b = Cast <to = 1> (c) {moves}") == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Relu (x)", None),
        ("a = Relu (x) y = DepthToSpace <blocksize = 2> (a)", None),
        ("y = Cast <to = 1> (m)", ["m"]),
        ("one = Constant <value_float = 1.0> () c = Cast <to = 1> (m) y = Sub (one, c)", ["m"]),
        ("two = Constant <value_float = 2.0> () c = Cast <to = 1> (m) y = Sub (two, c)", None),
        ("y = Mul (x, x)", ["x"]),
        ("two = Constant <value_float = 2.0> () y = Mul (x, two)", None),
    ],
)
def test_what_is_left_to_assume(body: str, expected: list[str] | None) -> None:
    assert sources(body) == expected
