"""Casts of booleans whose numbers exist already, or are one subtraction away."""

import pytest

from tests.passes.folding import fold
from tests.passes.models import model, ops

HEAD = """m (bool[B, T] c, bool[B, 1] d, float[B, T] x) => (float[B, T] y)
    <float zero = {0}, float one = {1}>"""


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        # Cast(Not(b)) is 1 - Cast(b), if that is made anyway.
        ("f = Cast <to = 1> (c) n = Not (c) g = Cast <to = 1> (n) h = Exp (g) y = Mul (f, h)",
         ["Cast", "Exp", "Mul", "Sub"]),
        ("f = Cast <to = 1> (c) n = Not (c) m = Not (n) g = Cast <to = 1> (m) h = Exp (g) "
         "y = Mul (f, h)", ["Cast", "Exp", "Mul"]),
        ("n = Not (c) g = Cast <to = 1> (n) y = Exp (g)", ["Cast", "Exp", "Not"]),
        ("f = Cast <to = 1> (d) n = Not (c) g = Cast <to = 1> (n) h = Exp (g) y = Mul (f, h)",
         ["Cast", "Cast", "Exp", "Mul", "Not"]),
        # Equal(m, 0) is 1 - m where m is 0 or 1.
        ("f = Cast <to = 1> (c) e = Equal (f, zero) g = Cast <to = 1> (e) h = Exp (g) "
         "y = Mul (f, h)", ["Cast", "Exp", "Mul", "Sub"]),
        ("f = Cast <to = 1> (c) e = Equal (zero, f) g = Cast <to = 1> (e) h = Exp (g) "
         "y = Mul (f, h)", ["Cast", "Exp", "Mul", "Sub"]),
        ("f = Cast <to = 1> (c) e = Equal (f, zero) n = Not (e) g = Cast <to = 1> (n) h = Exp (g) "
         "y = Mul (f, h)", ["Cast", "Exp", "Mul"]),
        ("f = Cast <to = 1> (c) b = Cast <to = 9> (f) g = Cast <to = 1> (b) h = Exp (g) "
         "y = Mul (f, h)", ["Cast", "Exp", "Mul"]),
        # Not the same: another number, a float that is no mask, another type
        ("f = Cast <to = 1> (c) e = Equal (f, one) g = Cast <to = 1> (e) h = Exp (g) "
         "y = Mul (f, h)", ["Cast", "Cast", "Equal", "Exp", "Mul"]),
        ("e = Equal (x, zero) g = Cast <to = 1> (e) h = Exp (g) y = Mul (x, h)",
         ["Cast", "Equal", "Exp", "Mul"]),
        ("b = Cast <to = 9> (x) g = Cast <to = 1> (b) h = Exp (g) y = Mul (x, h)",
         ["Cast", "Cast", "Exp", "Mul"]),
    ],
)  # fmt: skip
def test_what_is_left(steps: str, expected: list[str]) -> None:
    assert sorted(ops(fold(model(f"{HEAD} {{ {steps} }}"), 1, 4))) == expected


def test_a_comparison_with_another_reader_stays() -> None:
    m = model("""m (bool[B, T] c) => (float[B, T] y, bool[B, T] z) <float zero = {0}> {
        f = Cast <to = 1> (c) e = Equal (f, zero) g = Cast <to = 1> (e) h = Exp (g)
        y = Mul (f, h) z = Identity (e) }""")
    assert "Equal" in ops(fold(m, 2))


def test_a_cast_in_a_branch_is_not_seen_outside() -> None:
    m = model("""m (bool[B, T] c, bool k) => (float[B, T] y) {
        i = If (k) <then_branch = g () => (t) { t = Cast <to = 1> (c) },
        else_branch = h () => (e) { f = Cast <to = 1> (c) e = Exp (f) }>
        n = Not (c) v = Cast <to = 1> (n) y = Add (i, v) }""")
    after = fold(m, 2)
    assert "Sub" not in ops(after)
