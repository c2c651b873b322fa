"""What small integer tensors hold that shapes are computed with."""

from __future__ import annotations

import pytest

from tests.facts.symbolic.bodies import INPUTS, contents_of, keys

NUMBERS = """s = Shape (x) b = Shape <end = 1> (x) t = Shape <start = 1, end = 2> (x)
    one_ = Constant <value_ints = [1]> () two = Constant <value_ints = [2]> ()
    three = Constant <value_ints = [3]> () zero = Constant <value_ints = [0]> ()
    minus = Constant <value_ints = [-1]> () many = Constant <value_ints = [3, 1, 4, 1, 5]> ()"""


def contents(body: str) -> list[int | str | None] | None:
    return contents_of(f"{NUMBERS} {body}", inputs=f"{INPUTS}, int64[1] u")


# Beside each body what y holds: B and T are sizes of x, None is an element that is not known.
@pytest.mark.parametrize(
    ("body", "elements"),
    [
        ("y = Add (b, t)", ["B + T"]),
        ("y = Sum (b, t, two)", ["B + T + 2"]),
        ("y = Sub (t, one_)", ["T - 1"]),
        ("y = Mul (b, t)", ["B*T"]),
        ("y = Div (t, two)", ["floor(T/2)"]),
        ("y = Div (many, two)", [1, 0, 2, 0, 2]),
        ("n = Sub (one_, t) y = Div (n, two)", ["1 - 1*floor(T/2 + 1/2)"]),
        (
            "n = Sub (t, three) y = Div (n, two)",
            ["floor(T/2) - 1*Max(0, floor(T/2) - 1) + Max(0, floor(T/2 + 1/2) - 2) - 1"],
        ),
        ("n = Neg (t) y = Div (n, two)", ["-1*floor(T/2)"]),
        ("n = Sub (t, two) y = Div (n, two)", ["Max(0, floor(T/2) - 1)"]),
        ("y = Div (t, b)", ["floor(T/B)"]),
        ("y = Div (t, zero)", [None]),
        ("y = Div (t, minus)", [None]),
        ("n = Sub (b, t) y = Div (n, two)", [None]),
        ("y = Mod (t, two)", ["T - 2*floor(T/2)"]),
        ("y = Mod <fmod = 1> (t, two)", None),
        ("y = Mod (t, minus)", [None]),
        ("n = Sub (t, three) y = Mod (n, two)", ["T - 2*floor(T/2 + 1/2) + 1"]),
        ("y = Mod (many, three)", [0, 1, 1, 1, 2]),
        ("y = Min (t, two)", ["Min(2, T)"]),
        ("y = Max (t, two)", ["Max(2, T)"]),
        ("y = Max (t, one_)", ["T"]),
        ("y = Min (t, one_)", [1]),
        ("y = Min (t, b)", ["Min(B, T)"]),
        ("y = Max (t, b, two)", ["Max(2, B, T)"]),
        ("y = Neg (t)", ["-1*T"]),
        ("y = Neg (many)", [-3, -1, -4, -1, -5]),
        ("y = Identity (s)", ["B", "T", 4]),
        ("y = Shape <start = -2> (x)", ["T", 4]),
        ("y = Shape <end = -1> (x)", ["B", "T"]),
        ("y = Shape <start = 1, end = 2> (x)", ["T"]),
        ("y = Size (x)", ["4*B*T"]),
        ("y = ReduceProd (s)", ["4*B*T"]),
        ("y = ReduceProd <keepdims = 0> (s)", ["4*B*T"]),
        ("y = Gather (s, two)", [4]),
        ("y = Gather (s, minus)", [4]),
        ("y = Gather (s, three)", None),
        ("i = Constant <value_ints = [-4]> () y = Gather (s, i)", None),
        ("i = Constant <value_ints = [-3]> () y = Gather (s, i)", ["B"]),
        ("i = Constant <value_int = 1> () y = Gather (s, i)", ["T"]),
        ("i = Constant <value_ints = [2, 0]> () y = Gather (s, i)", [4, "B"]),
        ("y = Concat <axis = 0> (s, two)", ["B", "T", 4, 2]),
        ("y = Concat <axis = 0> (two, u)", [2, None]),
        ("y = Slice (many, one_, three)", [1, 4]),
        ("y = Slice (many, minus, zero, zero, minus)", [5, 1, 4, 1]),
        ("st = Constant <value_ints = [2]> () y = Slice (many, zero, three, zero, st)", [3, 4]),
        ("y = Slice (s, one_, three)", ["T", 4]),
        ("y = Slice (s, one_, three, zero, zero)", None),
        (
            "c = Constant <value_int = 2> () e = Constant <value_int = 9> () "
            "d = Constant <value_int = 3> () y = Range (c, e, d)",
            [2, 5, 8],
        ),
        (
            "c = Constant <value_int = 0> () e = Constant <value_int = 9000> () "
            "d = Constant <value_int = 1> () y = Range (c, e, d)",
            None,
        ),
        ("y = Expand (two, three)", [2, 2, 2]),
        ("v = Constant <value_ints = [1]> () y = Expand (many, v)", [3, 1, 4, 1, 5]),
        ("y = ConstantOfShape <value = int64[1] {7}> (three)", [7, 7, 7]),
        ("y = ConstantOfShape (three)", None),
        ("y = ConstantOfShape <value = int64[1] {7}> (t)", None),
        ("e = Equal (s, t) y = Cast <to = 7> (e)", [None, 1, None]),
        ("e = Equal (many, one_) y = Cast <to = 7> (e)", [0, 1, 0, 1, 0]),
        ("e = Equal (t, zero) y = Cast <to = 7> (e)", [0]),
        ("e = Equal (t, one_) y = Cast <to = 7> (e)", [None]),
        ("e = Equal (zero, t) y = Cast <to = 7> (e)", [0]),
        ("e = Less (zero, t) y = Cast <to = 7> (e)", [1]),
        ("e = Less (t, one_) y = Cast <to = 7> (e)", [0]),
        ("e = Less (t, two) y = Cast <to = 7> (e)", [None]),
        ("e = Less (many, three) y = Cast <to = 7> (e)", [0, 1, 0, 1, 0]),
        ("e = LessOrEqual (many, three) y = Cast <to = 7> (e)", [1, 1, 0, 1, 0]),
        ("e = Greater (many, three) y = Cast <to = 7> (e)", [0, 0, 1, 0, 1]),
        ("e = GreaterOrEqual (many, three) y = Cast <to = 7> (e)", [1, 0, 1, 0, 1]),
        ("e = LessOrEqual (one_, t) y = Cast <to = 7> (e)", [1]),
        ("e = GreaterOrEqual (zero, t) y = Cast <to = 7> (e)", [0]),
        (
            "e = Less (many, three) f = Equal (many, one_) g = And (e, f) y = Cast <to = 7> (g)",
            [0, 1, 0, 1, 0],
        ),
        (
            "e = Less (many, three) f = Greater (many, two) g = Or (e, f) y = Cast <to = 7> (g)",
            [1, 1, 1, 1, 1],
        ),
        (
            "e = Less (many, three) f = Equal (many, one_) g = Xor (e, f) y = Cast <to = 7> (g)",
            [0, 0, 0, 0, 0],
        ),
        ("e = Less (many, three) f = Not (e) y = Cast <to = 7> (f)", [1, 0, 1, 0, 1]),
        ("f = Cast <to = 9> (many) y = Cast <to = 7> (f)", [1, 1, 1, 1, 1]),
        (
            "z = Constant <value_ints = [0, 2, -1]> () f = Cast <to = 9> (z) y = Cast <to = 7> (f)",
            [0, 1, 1],
        ),
        ("f = Cast <to = 9> (t) y = Cast <to = 7> (f)", [1]),
        ("n = Sub (t, one_) f = Cast <to = 9> (n) y = Cast <to = 7> (f)", [None]),
        ("e = Less (many, three) y = Where (e, two, many)", [3, 2, 4, 2, 5]),
        ("e = Less (t, two) y = Where (e, b, t)", [None]),
        ("e = Less (t, two) y = Where (e, t, t)", ["T"]),
        ("e = Equal (s, t) y = Where (e, minus, s)", [None, -1, None]),
        (
            "lo = Constant <value_int = 2> () hi = Constant <value_int = 4> () "
            "y = Clip (many, lo, hi)",
            [3, 2, 4, 2, 4],
        ),
        ("hi = Constant <value_int = 4> () y = Clip (many, , hi)", [3, 1, 4, 1, 4]),
        ("lo = Constant <value_int = 2> () y = Clip (many, lo)", [3, 2, 4, 2, 5]),
        ("lo = Constant <value_int = 2> () y = Clip (t, lo)", ["Max(2, T)"]),
        ("hi = Constant <value_int = 4> () y = Clip (t, , hi)", ["Min(4, T)"]),
        ("q = Squeeze (t, zero) y = Unsqueeze (q, zero)", ["T"]),
    ],
)
def test_what_y_holds(body: str, elements: list[int | str | None] | None) -> None:
    assert contents(body) == (None if elements is None else keys(*elements))


def test_division_rounds_toward_zero() -> None:
    for number, quotient in ((-3, -1), (-2, -1), (-1, 0), (0, 0), (1, 0), (3, 1)):
        body = f"n = Constant <value_ints = [{number}]> () y = Div (n, two)"
        assert contents(body) == [quotient]


def test_a_product_has_an_axis_unless_it_is_dropped() -> None:
    assert contents("p = ReduceProd (s) y = Concat <axis = 0> (p, two)") == keys("4*B*T", 2)
    dropped = "p = ReduceProd <keepdims = 0> (s) q = Unsqueeze (p, zero)"
    assert contents(f"{dropped} y = Concat <axis = 0> (q, two)") == keys("4*B*T", 2)


def test_of_a_matrix_the_elements_are_transposed() -> None:
    body = """v = Constant <value_ints = [2, 2]> () w4 = Constant <value_ints = [1, 2, 3, 4]> ()
        q = Reshape (w4, v) f = Transpose <perm = [1, 0]> (q) y = Reshape (f, minus)"""
    assert contents(body) == [1, 3, 2, 4]
    body = body.replace("Transpose <perm = [1, 0]> (q)", "Gather <axis = 1> (q, one_)")
    assert contents(body) == [2, 4]
    body = body.replace("Gather <axis = 1> (q, one_)", "Concat <axis = 1> (q, q)")
    assert contents(body) == [1, 2, 1, 2, 3, 4, 3, 4]


def test_more_than_a_shape_holds_is_not_listed() -> None:
    for length in (64, 65):
        body = f"""a = Constant <value_int = 0> () e = Constant <value_int = {length}> ()
            d = Constant <value_int = 1> () y = Range (a, e, d)"""
        assert (contents(body) is None) is (length > 64)
