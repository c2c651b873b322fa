"""Which nodes square elements."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.ops.squares import squared_input

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'


def node(body: str) -> ir.Node:
    text = "m (float[2, 3] x, float[2, 3] z) => (float y) <float two = {2}, float three = {3}>"
    return ir.from_onnx_text(f"{HEAD}{text} {{ y = {body} }}").graph.node(0)


@pytest.mark.parametrize(
    ("body", "squares"),
    [
        ("Mul (x, x)", True),
        ("Mul (x, z)", False),
        ("Pow (x, two)", True),
        ("Pow (x, three)", False),
        ("Pow (x, z)", False),
        ("Neg (x)", False),
    ],
)
def test_squares_of_elements(body: str, squares: bool) -> None:
    square = node(body)
    assert squared_input(square) is (square.inputs[0] if squares else None)


def test_no_node_squares_nothing() -> None:
    assert squared_input(None) is None
