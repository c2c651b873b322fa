"""What the rules of fold know of shape tensors, also where a size is 0."""

import pytest

from graphfix.facts.view import View
from graphfix.passes.common.fold_view import FoldView, perm_of, root_of
from tests.passes.models import model


@pytest.mark.parametrize(
    ("steps", "is_known"),
    [
        ("y = Identity (b)", True),
        ("y = Mul (b, two)", True),
        ("m = Mul (b, two) y = Div (m, two)", True),
        ("m = Mul (b, t) y = Div (m, t)", False),  # t may be 0
        ("y = Max (b, one)", False),  # b may be 0
        ("y = Concat <axis = 0> (b, t)", True),
        ("s = Split <axis = 0, num_outputs = 1> (b) y = Identity (s)", True),
    ],
)
def test_contents_are_right_at_size_0(steps: str, *, is_known: bool) -> None:
    m = model(
        f"""m (float[B, T] x) => (int64[N] y) <int64[1] two = {{2}}, int64[1] one = {{1}}> {{
        b = Shape <end = 1> (x) t = Shape <start = 1> (x) {steps} }}"""
    )
    assert (FoldView(View(m)).data(m.graph.outputs[0]) is not None) == is_known


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("Transpose <perm = [0, 2, 1]> (x)", (0, 2, 1)),
        ("Transpose (x)", (2, 1, 0)),
        ('Einsum <equation = "abc->acb"> (x)', (0, 2, 1)),
        ('Einsum <equation = "abc->ac"> (x)', ()),
        ('Einsum <equation = "aac->aca"> (x)', ()),
    ],
)
def test_permutation(node: str, expected: tuple[int, ...]) -> None:
    m = model(f"m (float[2, 2, 4] x) => (float y) {{ y = {node} }}")
    assert perm_of(m.graph[0], FoldView(View(m))) == expected


def test_the_root_is_behind_views() -> None:
    m = model("""m (float[2, 3] x) => (float[6] y) <int64[1] flat = {-1}> {
        n = Neg (x) a = Identity (n) b = Flatten (a) y = Reshape (b, flat) }""")
    assert root_of(m.graph.outputs[0]) is m.graph[0].outputs[0]
