"""What the numbers of an input meet in a graph."""

from __future__ import annotations

import math

import onnx_ir as ir
import pytest

from graphfix.feeds.number_uses import NO_USES, NumberUses, _Line, find_number_uses
from tests.feeds.small_models import model

FLOATS = """float half = {0.5}, float two = {2}, float tenth = {0.1}, float[4] many = {1, 2, 3, 4},
    float low = {-1.0}, uint8 z = {0}, int64[1] k = {1}"""
INTEGERS = """int64 zero = {0}, int64 one = {1}, int64 ten = {10}, int64 date = {1700000000},
    int64 near = {16777216}, int64 far = {16777217},
    int64[1] axis = {1}, float[4, 2] table = {0, 1, 2, 3, 4, 5, 6, 7}"""


def uses(body: str, output: str, given: str = "float[N, 4] x", more: str = FLOATS) -> NumberUses:
    made = model(f"m ({given}) => ({output}) <{more}> {{ {body} }}")
    return find_number_uses(made.graph.inputs[0])


def integer_uses(
    body: str, output: str = "int64[N, 4] y", given: str = "int64[N, 4] x"
) -> NumberUses:
    return uses(body, output, given, INTEGERS)


THRESHOLDS = {
    "as it is": ("y = Greater (x, tenth)", (0.1,)),
    "the other way round": ("y = Less (half, x)", (0.5,)),
    "behind a factor and an addend": (
        "a = Mul (x, two) b = Sub (half, a) y = Less (b, low)",
        (0.75,),
    ),
    "behind a divisor": ("a = Div (x, two) y = Greater (a, half)", (1.0,)),
    "behind what moves": ("a = Transpose (x) b = Transpose (a) y = Greater (b, half)", (0.5,)),
    "behind a sign": ("a = Neg (x) y = Greater (a, half)", (-0.5,)),
    "behind a size": ("a = Abs (x) y = Greater (a, half)", (0.5,)),
    "where rounding may be between": ("a = Mul (x, tenth) y = Greater (a, half)", ()),
    "behind a curve": ("a = Sigmoid (x) y = Greater (a, tenth)", ()),
    "behind a factor of many": ("a = Mul (x, many) y = Greater (a, half)", ()),
}


@pytest.mark.parametrize("case", THRESHOLDS)
def test_thresholds_are_brought_back_to_the_input(case: str) -> None:
    body, thresholds = THRESHOLDS[case]
    found = uses(body, "bool[N, 4] y")
    assert found.ties
    assert found.thresholds == pytest.approx(thresholds)


HALVES = (0.5, 2.5, -1.5, 1.5, -0.5)


@pytest.mark.parametrize(
    ("body", "scale"),
    [
        ("y = Round (x)", 1.0),
        ("a = Mul (x, two) y = Round (a)", 0.5),
        ("q = QuantizeLinear (x, half, z) y = DequantizeLinear (q, half, z)", 0.5),
        ("a = Sigmoid (x) y = Round (a)", None),
        ("a = Sigmoid (x) q = QuantizeLinear (a, half, z) y = DequantizeLinear (q, half, z)", None),
    ],
)
def test_halves_are_brought_back_to_the_input(body: str, scale: float | None) -> None:
    thresholds = [] if scale is None else [x * scale for x in HALVES]
    assert uses(body, "float[N, 4] y").thresholds == pytest.approx(thresholds)


@pytest.mark.parametrize(
    ("body", "output", "ties"),
    [
        ("y = Round (x)", "float[N, 4] y", True),
        ("y = Cast <to = 7> (x)", "int64[N, 4] y", True),
        ("y = QuantizeLinear (x, half, z)", "uint8[N, 4] y", True),
        ("p = Softmax (x) y = ArgMax <keepdims = 0, axis = 1> (p)", "int64[N] y", True),
        ("v, y = TopK (x, k)", "int64[N, 1] y", True),
        ("n = ReduceMean (x) y = Greater (x, n)", "bool[N, 4] y", True),
        ("y = Mul (x, half)", "float[N, 4] y", False),
        ("a = MatMul (x, x) y = Round (a)", "float[N, 4] y", False),
        ("s = Shape (x) y = Greater (s, k)", "bool[A] y", False),
    ],
)
def test_what_ties_decide(body: str, output: str, ties: bool) -> None:
    assert uses(body, output).ties == ties


GUARDED = {
    "NaN": ("n = IsNaN (x) y = Where (n, half, x)", {"nan"}),
    "infinity": ("n = IsInf (x) y = Where (n, half, x)", {"inf", "-inf"}),
    "both ends": ("y = Clip (x, low, half)", {"inf", "-inf"}),
    "one end": ("y = Clip (x, low)", {"-inf"}),
    "a floor": ("y = Max (x, low)", {"-inf"}),
    "a ceiling": ("y = Min (low, x)", {"inf"}),
    "a floor of the negative": ("a = Neg (x) y = Max (a, low)", {"inf"}),
    "behind a curve": ("a = Sigmoid (x) y = Max (a, low)", set()),
    "the larger of two inputs": ("a = Abs (x) y = Max (x, a)", set()),
}


@pytest.mark.parametrize("case", GUARDED)
def test_what_is_guarded(case: str) -> None:
    body, guarded = GUARDED[case]
    assert {str(x) for x in uses(body, "float[N, 4] y").guarded} == guarded


EXACT = {
    "a sum": ("y = Add (x, one)", 64, False),
    "a product": ("y = Mul (x, x)", 64, True),
    "through int32": ("a = Cast <to = 6> (x) y = Cast <to = 7> (a)", 32, False),
    "only asked about": ("y = Greater (x, one)", 64, False),
    "a float follows": ("a = Cast <to = 1> (x) y = Cast <to = 7> (a)", 0, False),
    "an index": ("y = Gather (table, x)", 0, False),
    "a size": ("s = Squeeze (x) y = Range (zero, s, one)", 0, False),
}


@pytest.mark.parametrize("case", EXACT)
def test_where_whole_numbers_stay_exact(case: str) -> None:
    body, bits, multiplied = EXACT[case]
    kind = {"an index": "float", "only asked about": "bool"}.get(case, "int64")
    found = integer_uses(body, f"{kind} y")
    assert found.exact_bits == bits
    assert found.multiplied == multiplied


def test_whole_numbers_in_a_body_may_be_anything() -> None:
    body = """s = Add (x, one) y = If (b) <
        then_branch = t () => (int64[N, 4] u) { u = Add (x, one) },
        else_branch = e () => (int64[N, 4] v) { v = Neg (s) }>"""
    assert integer_uses(body, given="int64[N, 4] x, bool b").exact_bits == 0


@pytest.mark.parametrize(
    ("body", "thresholds"),
    [
        ("y = Mod (x, ten)", (10,)),
        ("y = Div (x, ten)", (10,)),
        ("a = Sub (x, one) y = Min (a, ten)", (11,)),
        ("y = Sub (x, date)", (1_700_000_000,)),
        ("y = Add (x, ten)", ()),
        ("y = Div (ten, x)", ()),
        ("y = Mod (ten, x)", ()),
        ("y = Min (ten, x)", (10,)),
        ("y = Sub (x, near)", ()),
        ("y = Sub (x, far)", (16_777_217,)),
    ],
)
def test_numbers_at_which_whole_numbers_turn(body: str, thresholds: tuple[int, ...]) -> None:
    assert integer_uses(body).thresholds == thresholds


MASKS = {
    "is it 0": ("e = Equal (x, zero) y = Not (e)", True, False),
    "as a bool": ("y = Cast <to = 9> (x)", True, False),
    "is it 1": ("y = Equal (x, one)", False, True),
    "is it above 0": ("y = Greater (x, zero)", True, False),
    "one minus it, as a bool": ("a = Sub (one, x) y = Cast <to = 9> (a)", False, True),
    "both questions": ("e = Equal (x, zero) f = Equal (x, one) y = And (e, f)", False, False),
    "a question and a sum": ("y = Cast <to = 9> (x) s = ReduceSum (x, axis)", False, False),
}


@pytest.mark.parametrize("case", MASKS)
def test_what_a_2_in_a_mask_is(case: str) -> None:
    body, as_one, as_zero = MASKS[case]
    found = integer_uses(body, "bool[N, 4] y")
    assert (found.as_one, found.as_zero) == (as_one, as_zero)


def test_a_bool_has_no_numbers() -> None:
    assert uses("y = Not (x)", "bool[N] y", "bool[N] x") == NO_USES
    assert math.isnan(uses("y = IsNaN (x)", "bool[N, 4] y").guarded[0])


@pytest.mark.parametrize(
    ("line", "number", "start"),
    [
        (_Line(0.0, 1.0), 1.0, None),
        (_Line(), math.inf, None),
        (_Line(), math.nan, None),
        (_Line(), 0.1, 0.1),
        (_Line(), 1e6, 1e6),
        (_Line(), -1e6, -1e6),
        (_Line(), 1_000_001.0, None),
        (_Line(2.0), 1.0, 0.5),
        (_Line(2.0), 0.3, None),
        (_Line(1.0, 0.5), 0.75, 0.25),
        (_Line(1.0, 0.5), 0.8, None),
        (_Line(2.0), 2.0 * (1023 + 1023 / 1024), 1023 + 1023 / 1024),
        (_Line(2.0), 2048.0, None),
        (_Line(2.0), -2048.0, None),
        (_Line(2.0), 3 / 1024, None),
    ],
)
def test_an_element_that_becomes_a_number_whatever_is_rounded(
    line: _Line, number: float, start: float | None
) -> None:
    assert line.start_of(number, is_integer=False) == start


@pytest.mark.parametrize(
    ("line", "number", "start"),
    [
        (_Line(2.0, 1.0), 7.0, 3.0),
        (_Line(2.0, 1.0), 8.0, None),
        (_Line(), 2.0**53, 2.0**53),
        (_Line(), -(2.0**53), -(2.0**53)),
        (_Line(), 2.0**53 + 2, None),
        (_Line(0.0, 1.0), 1.0, None),
    ],
)
def test_a_whole_number_that_becomes_a_number(
    line: _Line, number: float, start: float | None
) -> None:
    assert line.start_of(number, is_integer=True) == start


@pytest.mark.parametrize(
    ("operation", "place", "number", "line"),
    [
        ("Add", 0, 3.0, _Line(2.0, 4.0)),
        ("Add", 1, 3.0, _Line(2.0, 4.0)),
        ("Sub", 0, 3.0, _Line(2.0, -2.0)),
        ("Sub", 1, 3.0, _Line(-2.0, 2.0)),
        ("Mul", 1, 3.0, _Line(6.0, 3.0)),
        ("Div", 0, 4.0, _Line(0.5, 0.25)),
        ("Div", 1, 4.0, None),
        ("Div", 0, 0.0, None),
    ],
)
def test_the_line_behind_a_node_with_a_number(
    operation: str, place: int, number: float, line: _Line | None
) -> None:
    node = ir.node(operation, [ir.Value(name="a"), ir.Value(name="b")])
    assert _Line(2.0, 1.0).through_constant(node, place, number) == line
