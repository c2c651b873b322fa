"""Which Transposes go, and how those that stay turn."""

import pytest

from graphfix.facts.view import View
from graphfix.graph.nodes import attr_ints
from graphfix.passes.common.fold_view import FoldView
from graphfix.passes.sizes.fold_rules.transposes import squeeze_before_transpose
from tests.passes.folding import fold
from tests.passes.models import model, ops

HEAD = """m (float[B, 3, T] x, float[B, T, 3] z, float[T] row,
    float[1, 1, 1] unit) => (float[A, C, D] y)
    <float half = {0.5}, float[3, 1] col = {1, 2, 3}, int64[1] one = {1}, int64[1] zero = {0},
    int64 nought = {0}, int64[2] outer = {0, 3}>"""


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("t = Transpose <perm = [0, 1, 2]> (x) y = Neg (t)", ["Neg"]),
        ("t = Transpose <perm = [0, 2, 1]> (x) y = Neg (t)", ["Transpose", "Neg"]),
        (
            "t = Transpose <perm = [0, 2, 1]> (x) u = Transpose <perm = [0, 2, 1]> (t) y = Neg (u)",
            ["Neg"],
        ),
        (
            "t = Transpose <perm = [1, 0, 2]> (x) u = Transpose <perm = [0, 2, 1]> (t) y = Neg (u)",
            ["Transpose", "Neg"],
        ),
        # The first has another reader.
        (
            """t = Transpose <perm = [1, 0, 2]> (x) u = Transpose <perm = [0, 2, 1]> (t)
            v = Exp (t) w = Transpose <perm = [0, 2, 1]> (v) s = Exp (v)
            r = Transpose <perm = [0, 2, 1]> (s) q = Add (u, r) y = Add (w, q)""",
            None,
        ),
        ('t = Einsum <equation = "abc->acb"> (x) y = Neg (t)', ["Transpose", "Neg"]),
        # What it turns is computed in its order.
        (
            """t = Transpose <perm = [0, 2, 1]> (x) m = Mul (t, half) n = Exp (m)
            u = Transpose <perm = [0, 2, 1]> (n) y = Neg (u)""",
            ["Mul", "Exp", "Neg"],
        ),
        (
            """t = Transpose <perm = [0, 2, 1]> (x) n = Softmax (t)
            u = Transpose <perm = [0, 2, 1]> (n) y = Neg (u)""",
            ["Transpose", "Softmax", "Transpose", "Neg"],
        ),
        (
            """t = Transpose <perm = [0, 2, 1]> (x) n = Add (t, z)
            u = Transpose <perm = [0, 2, 1]> (n) y = Neg (u)""",
            ["Transpose", "Add", "Transpose", "Neg"],
        ),
        (
            """t = Transpose <perm = [0, 2, 1]> (x) m = Mul (t, unit) n = Exp (m)
            u = Transpose <perm = [0, 2, 1]> (n) y = Neg (u)""",
            ["Mul", "Exp", "Neg"],
        ),
        # What another node reads too is not computed twice.
        (
            """t = Transpose <perm = [0, 2, 1]> (x) n = Exp (t)
            u = Transpose <perm = [0, 2, 1]> (n) v = Mul (n, z) w = Transpose <perm = [0, 2, 1]> (v)
            y = Add (u, w)""",
            ["Transpose", "Exp", "Transpose", "Mul", "Transpose", "Add"],
        ),
        # Nor in a branch what is computed before it.
        (
            """t = Transpose <perm = [0, 2, 1]> (x) n = Exp (t) first = Gather (row, nought)
            yes = Greater (first, half) y = If (yes) <
                then_branch = a () => (float[A, C, D] p) {
                    u = Transpose <perm = [0, 2, 1]> (n) p = Neg (u) },
                else_branch = b () => (float[A, C, D] q) { q = Neg (x) }>""",
            ["Transpose", "Exp", "Gather", "Greater", "If", "Transpose", "Neg", "Neg"],
        ),
        # Before dims of 1 are put in, or after they are taken out
        (
            "u = Unsqueeze (x, zero) t = Transpose <perm = [0, 1, 3, 2]> (u) y = Neg (t)",
            ["Transpose", "Unsqueeze", "Neg"],
        ),
        (
            "u = Unsqueeze (x, zero) t = Transpose <perm = [0, 3, 1, 2]> (u) y = Neg (t)",
            ["Unsqueeze", "Transpose", "Neg"],
        ),
        (
            """u = Unsqueeze (x, one) e = Concat <axis = 1> (u)
            t = Transpose <perm = [1, 0, 3, 2]> (e) s = Squeeze (t, zero) y = Neg (s)""",
            None,
        ),
    ],
)
def test_what_is_left(steps: str, expected: list[str] | None) -> None:
    m = model(f"{HEAD} {{ {steps} }}")
    m.graph.outputs[0].shape = None
    after = fold(m, 1, 4)
    assert expected is None or ops(after) == expected


def test_two_become_one_by_their_product() -> None:
    m = model(f"""{HEAD} {{ t = Transpose <perm = [1, 2, 0]> (x)
        u = Transpose <perm = [1, 0, 2]> (t) y = Neg (u) }}""")
    after = fold(m, 2)
    assert attr_ints(after.graph[0], "perm") == (2, 1, 0)


def test_a_squeeze_goes_before_a_transpose() -> None:
    m = model("""m (float[B, 1, 3, T] x) => (float[A, C, D] y) <int64[1] two = {2},
        int64[1] zero = {0}> { t = Transpose <perm = [0, 3, 1, 2]> (x) y = Squeeze (t, two) }""")
    (transpose, squeeze), look = [*m.graph], FoldView(View(m))
    assert squeeze_before_transpose(squeeze, transpose.outputs[0], look) is not None
    after = fold(m, 2)
    assert ops(after) == ["Squeeze", "Transpose"]
    assert attr_ints(after.graph[1], "perm") == (0, 2, 1)


@pytest.mark.parametrize(
    ("steps", "goes"),
    [
        ("t = Transpose <perm = [1, 0, 2, 3]> (x) y = Squeeze (t, zero)", True),  # nothing is left
        ("t = Transpose <perm = [3, 1, 0, 2]> (x) y = Squeeze (t, one)", False),
        ("t = Transpose <perm = [0, 3, 1, 2]> (x) y = Squeeze (t, far)", True),
        ("t = Transpose <perm = [0, 3, 1, 2]> (x) y = Squeeze (t) z = Neg (t)", False),
        ("t = Neg (x) y = Squeeze (t, one)", False),
    ],
)
def test_which_squeezes_go_first(steps: str, *, goes: bool) -> None:
    m = model(f"""m (float[B, 1, 3, T] x) => (float[A, C, D] y) <int64[1] one = {{1}},
        int64[1] zero = {{0}}, int64[1] far = {{-2}}> {{ {steps} }}""")
    m.graph.outputs[0].shape = None
    node, look = m.graph[1], FoldView(View(m))
    replacement = squeeze_before_transpose(node, m.graph[0].outputs[0], look)
    assert (replacement is not None) == goes
