"""Nested floor divisions that are one."""

import numpy as np
import pytest

import graphfix
from tests.passes.models import execute, model

HEAD = """m (int64[T] n) => (T y) <int64 two = {2}, int64 three = {3}, int64 one = {1},
    int64 minus = {-2}, float ftwo = {2}, float fthree = {3}, float fone = {1}, float half = {0.5},
    float16 htwo = {16384}, float16 hthree = {16896}, int64 large = {4194304}>"""


def floored(x: str, divisor: str, y: str) -> str:
    """The division of integers that rounds down."""
    return f"m{y} = Mod ({x}, {divisor}) d{y} = Sub ({x}, m{y}) {y} = Div (d{y}, {divisor})"


@pytest.mark.parametrize(
    ("steps", "kind", "divisor"),
    [
        (f"{floored('n', 'two', 'a')} {floored('a', 'three', 'y')}", "int64", 6),
        (f"{floored('n', 'two', 'a')} b = Add (a, one) {floored('b', 'three', 'y')}", "int64", 6),
        (f"{floored('n', 'two', 'a')} b = Sub (a, one) {floored('b', 'two', 'y')}", "int64", 4),
        (f"{floored('n', 'two', 'a')} b = Add (a, one) {floored('b', 'two', 'c')} "
         f"e = Sub (c, one) {floored('e', 'three', 'y')}", "int64", 12),
        ("f = Cast <to = 1> (n) a = Div (f, ftwo) b = Floor (a) c = Add (b, fone) "
         "d = Div (c, fthree) y = Floor (d)", "float", 6),
        # In float16 few whole numbers have a half between them.
        ("f = Cast <to = 10> (n) a = Div (f, htwo) b = Floor (a) c = Div (b, hthree) y = Floor (c)",
         "float16", None),
        # Rounded once, or not down, or by no integer, or to zero
        (floored("n", "two", "y"), "int64", None),
        ("f = Cast <to = 1> (n) a = Div (f, ftwo) b = Add (a, fone) y = Floor (b)", "float", None),
        ("f = Cast <to = 1> (n) a = Div (f, half) b = Floor (a) c = Div (b, ftwo) y = Floor (c)",
         "float", None),
        ("f = Cast <to = 1> (n) a = Div (f, ftwo) b = Floor (a) c = Add (b, half) "
         "d = Div (c, ftwo) y = Floor (d)", "float", None),
        ("f = Cast <to = 1> (n) a = Div (f, ftwo) b = Floor (a) c = Div (b, ftwo) y = Ceil (c)",
         "float", None),
        ("a = Div (n, two) y = Div (a, two)", "int64", None),
        (f"{floored('n', 'two', 'a')} {floored('a', 'minus', 'y')}", "int64", None),
        (f"{floored('n', 'large', 'a')} {floored('a', 'two', 'y')}", "int64", None),
        # The first is read elsewhere.
        (f"{floored('n', 'two', 'a')} {floored('a', 'two', 'b')} y = Add (a, b)", "int64", None),
    ],
)  # fmt: skip
def test_one_division(steps: str, kind: str, divisor: int | None) -> None:
    m = model(f"{HEAD.replace('(T y)', f'({kind}[T] y)')} {{ {steps} }}")
    after = m.clone()
    report = graphfix.run(after, "fold")
    reasons = [x for change in report.passes[0].changes for x in change.added]
    assert any("Floor" in x or "Less" in x for x in reasons) == (divisor is not None)
    numbers = np.arange(-30, 31)
    (old,), (new,) = (execute(x, {"n": numbers}) for x in (m, after))
    np.testing.assert_array_equal(old, new)
    if divisor is not None:
        floats = [x.const_value.numpy() for x in after.graph.initializers.values()]
        assert divisor in [float(x) for x in floats if x.size == 1]
