"""Nodes that compute a dim from valid lengths."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
import sympy

from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.lengths.dim_nodes import SizeArithmetic, is_buildable
from graphfix.lengths.tail_state import size_expr
from graphfix.runtime.local_session import Session

T, B = size_expr("T"), size_expr("B")
LENGTHS = np.array([0, 1, 2, 3, 7, 8, 20, 4096], np.int64)


def evaluate(expr: sympy.Expr, opset: int = 17) -> list[int]:
    """Build an expression of lengths, and run it."""
    model = ir.from_onnx_text(
        f'<ir_version: 8, opset_import: ["" : {opset}]> g (int64[N] n) => (int64[N] y) '
        "{ y = Identity (n) }"
    )
    site, lengths = model.graph[-1], model.graph.inputs[0]
    builder = Builder("test", View(model))

    def rewrite() -> ir.Value:
        return SizeArithmetic(builder, "valid", "T", lambda: lengths, lengths).build(expr)

    builder.repair(site, rewrite)
    with Session(model) as session:
        (result,) = session.run({"n": LENGTHS}).values()
    return result.tolist()


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize(
    "expr",
    [
        T + 1,
        T - 5,
        3 * T,
        sympy.floor(T / 2),
        sympy.floor((T - 3) / 2) + 1,
        sympy.floor((T - 7) / 4),
        sympy.floor((5 - T) / 3),
        sympy.floor(sympy.floor((T + 1) / 2) / 2),
        sympy.Max(T - 3, 0),
        sympy.Min(T, 5, 2 * T - 3),
        sympy.Mod(T, 4),
        T + sympy.floor(T / 3) - 2,
    ],
)
def test_expressions(expr: sympy.Expr, opset: int) -> None:
    assert evaluate(expr, opset) == [int(expr.subs(T, int(n))) for n in LENGTHS]


@pytest.mark.parametrize(
    ("expr", "buildable"),
    [
        (T, True),
        (sympy.Integer(4), True),
        (B, False),
        (T + B, False),
        (sympy.floor(T / 2) + 1, True),
        (T / 2, True),
        (2 / T, False),
        (sympy.floor(3 / T), False),
        (sympy.floor(sympy.Max(T, 3) / 2), True),
        (sympy.Mod(T, 3), True),
        (sympy.ceiling(T / 2), False),
        (sympy.sqrt(T), False),
        (T * T, False),
    ],
)
def test_what_can_be_built(expr: sympy.Expr, buildable: bool) -> None:
    assert is_buildable(expr, "T") == buildable
