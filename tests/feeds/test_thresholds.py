"""A number that constants are compared with is fed where it leaves something of them."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.feeds.roles import roles_of
from graphfix.proof.verify import verify

# A pitch that is looked for between two frequencies; of none there is no number.
PITCH = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[B, T, 4] x, float low, float{high} high) => (float[B, T] y)
    <float[4] scale = {{50, 100, 200, 400}}, float none = {{-inf}}>
    {{ over = GreaterOrEqual (scale, low)  under = {under}  both = And (over, under)
       s = Where (both, x, none)  p = Softmax <axis = -1> (s)  w = Mul (p, scale)
       axis = Constant <value_ints = [-1]> ()  y = ReduceSum <keepdims = 0> (w, axis) }}"""
UNDER = {
    "a table below it": "LessOrEqual (scale, high)",
    "a table above it": "Greater (high, scale)",
}


def model(under: str = "a table below it", high: str = "") -> ir.Model:
    return ir.from_onnx_text(PITCH.format(under=UNDER[under], high=high))


@pytest.mark.parametrize("high", ["", "[1]"])
@pytest.mark.parametrize("under", UNDER)
def test_a_lower_and_an_upper_bound(under: str, high: str) -> None:
    roles = roles_of(model(under, high))
    assert roles["low"].bounds == (50.0, 87.5)
    assert roles["high"].bounds == (250.0, 400.0)
    assert roles["x"].bounds is None


def test_a_model_that_selects_by_them_has_numbers_to_compare() -> None:
    found = verify(model(), model())
    assert found.ok, found.reason


def test_what_is_compared_with_data_or_with_one_number_is_no_threshold() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        m (float[B, T] x, float a, float b) => (float[B, T] y)
        <float one = {1}> { c = Less (x, a)  d = Less (b, one)  e = And (c, d)
            y = Where (e, x, one) }"""
    roles = roles_of(ir.from_onnx_text(text))
    assert [roles[x].bounds for x in "ab"] == [None, None]
