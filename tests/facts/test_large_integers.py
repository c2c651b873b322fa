"""Which constants make integers wide."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.facts.large_integers import has_wide_constant
from graphfix.facts.view import View

HEAD = """<ir_version: 8, opset_import: ["" : 18]> m (int64[1, 4, 2, 2] x, int64[2] n)
    => (int64[Z] y) <int64 wide = {4294967296}, int64 narrow = {4294967295},
    int64 low = {-2147483648}, int64 lower = {-2147483649}>"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Add (x, wide)", True),
        ("y = Add (x, narrow)", False),
        ("y = Add (x, low)", False),
        ("y = Add (x, lower)", True),
        ("y = Sub (wide, x)", True),
        ("y = Mul (x, wide)", True),
        ("y = Pow (wide, x)", True),
        ("y = BitwiseOr (x, wide)", True),
        # A limit makes nothing wide, nor does a divisor or a mask of bits.
        ("y = Max (x, wide)", False),
        ("y = Min (x, wide)", False),
        ("y = Clip (x, , wide)", False),
        ("y = Mod (x, wide)", False),
        ("y = Div (x, wide)", False),
        ("y = BitwiseAnd (x, wide)", False),
        ("a = Add (x, wide) y = DepthToSpace <blocksize = 2> (a)", True),
        ("a = Add (x, wide) y = ReverseSequence (a, n)", True),
        ("a = Add (x, wide) y = ReduceMax (a)", True),
        ("a = Add (x, wide) y = ArgMax (a)", False),
        ("a = Add (x, wide) y = Abs (a)", True),
        ("a = Add (x, wide) b = Cast <to = 6> (a) y = Cast <to = 7> (b)", False),
        ("c = Cast <to = 9> (x) y = Where (c, x, wide)", True),
        ("c = Cast <to = 9> (wide) y = Where (c, x, x)", False),
    ],
)
def test_a_wide_constant(body: str, expected: bool) -> None:
    model = ir.from_onnx_text(f"{HEAD} {{ {body} }}")
    assert has_wide_constant(model.graph.outputs[0], View(model)) is expected
