"""Which tensors hold one number, whatever moved or computed them."""

import pytest

from graphfix.facts.view import View
from graphfix.passes.common.fold_view import FoldView
from graphfix.passes.common.uniform import UniformTensors
from tests.passes.folding import fold
from tests.passes.models import model, ops


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("y = Identity (fives)", 5),
        ("y, z = Split <axis = 0, num_outputs = 2> (fives)", 5),
        ("y = ReverseSequence (fives, rows)", 5),
        ("y = DepthToSpace <blocksize = 2> (blocks)", 1.0),
        ("y = Compress (fives, kept)", None),
        ("y = Xor (yes, no)", True),
        ("y = Xor (yes, yes)", False),
        ("y = Not (yes)", False),
        ("y = Where (kept2, fives, fives)", None),
        ("y = Where (yes, fives, x)", 5),
        ("y = Dropout (fives)", None),
    ],
)
def test_uniform_number(steps: str, expected: float | None) -> None:
    m = model(
        f"""m (int64[2, 2] x, bool[2] kept, bool[2, 2] kept2, int64[2] rows, int64[2] size) =>
        (float y) <int64 five = {{5}}, int64[4] four = {{1, 4, 1, 1}}, bool t = {{1}}> {{
        fives = Expand (five, size) ones = ConstantOfShape <value = float[1] {{1.0}}> (four)
        blocks = Identity (ones) yes = Expand (t, size) no = Not (yes) {steps} }}"""
    )
    tensors = UniformTensors(FoldView(View(m)))
    number = tensors.uniform_number(m.graph[-1].outputs[0])
    assert number == expected
    assert type(number) is type(expected)


@pytest.mark.parametrize(
    ("steps", "least"),
    [
        ("v = Range (two, n, one)", 2),
        ("v = Range (two, n, minus)", None),
        ("r = Range (two, n, one) v = Add (r, one)", 3),
        ("r = Range (two, n, one) u = Unsqueeze (r, axis) v = Slice (u, axis, axis1)", 2),
        ("o = Expand (one, size) v = CumSum (o, zero)", 1),
        ("o = Expand (one, size) v = CumSum <exclusive = 1> (o, zero)", 0),
        ("o = Expand (minus, size) v = CumSum (o, zero)", None),
        ("v = Identity (list)", -4),
    ],
)
def test_a_comparison_with_the_least_index_is_true(steps: str, least: int | None) -> None:
    """As ``index >= 0`` is, by which transformers exports a mask that hides nothing."""
    for limit in range(-5, 5):
        m = model(
            f"""m (int64 n, int64[1] size) => (bool[A] y) <int64 two = {{2}}, int64 one = {{1}},
            int64 minus = {{-1}}, int64 zero = {{0}}, int64[1] axis = {{0}},
            int64[1] axis1 = {{1}}, int64[3] list = {{7, -4, 3}}, int64 limit = {{{limit}}}>
            {{ {steps} y = GreaterOrEqual (v, limit) }}"""
        )
        number = UniformTensors(FoldView(View(m))).uniform_number(m.graph.outputs[0])
        assert (number is True) == (least is not None and limit <= least)


HEAD = """m (float[B, T] x, bool[B, T] c) => (float[N, M] y) <float two = {2},
    float one = {1}, float zero = {0}, bool yes = {1}, bool no = {0}, int64[2] twice = {2, 1},
    float[1, 1] unit = {1}, float[1, 1] five = {5}>"""


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("a = Add (x, zero) y = Neg (a)", ["Neg"]),
        ("a = Add (x, one) y = Neg (a)", ["Add", "Neg"]),
        ("a = Mul (one, x) y = Neg (a)", ["Neg"]),
        ("a = Mul (two, x) y = Neg (a)", ["Mul", "Neg"]),
        ("a = Where (no, two, x) y = Neg (a)", ["Neg"]),
        ("a = Where (c, two, x) y = Neg (a)", ["Where", "Neg"]),
        ("a = And (c, yes) n = Not (a) y = Cast <to = 1> (n)", ["Not", "Cast"]),
        ("a = Or (no, c) n = Not (a) y = Cast <to = 1> (n)", ["Not", "Cast"]),
        # Expanded tensors, before an operator that broadcasts
        ("s = Shape (x) a = Expand (five, s) y = Mul (x, a)", ["Mul"]),
        ("s = Shape (x) a = Expand (five, s) r = Sqrt (a) y = Mul (x, r)", ["Mul"]),
        (
            "s = Shape (x) a = Expand (five, s) y = Concat <axis = 0> (x, a)",
            ["Shape", "Expand", "Concat"],
        ),
        ("a = Tile (x, twice) y = Neg (a)", ["Tile", "Neg"]),
    ],
)
def test_fold_drops_neutral_operators_and_shrinks(steps: str, expected: list[str]) -> None:
    assert ops(fold(model(f"{HEAD} {{ {steps} }}"), 1, 3)) == expected


@pytest.mark.parametrize(
    ("steps", "becomes_where"),
    [
        ("i = NonZero (c) t = Transpose (i) y = ScatterND (x, t, low)", True),
        ("i = NonZero (c) t = Transpose <perm = [0, 1]> (i) y = ScatterND (x, t, low)", False),
        ("i = NonZero (x) t = Transpose (i) y = ScatterND (x, t, low)", False),
        ("i = NonZero (c) t = Transpose (i) y = ScatterND (x, t, z)", False),
        (
            """i = NonZero (c) t = Transpose (i)
            y = ScatterND <reduction = "add"> (x, t, low)""",
            False,
        ),
    ],
)
def test_a_number_written_at_the_places_of_a_mask(steps: str, *, becomes_where: bool) -> None:
    m = model(
        f"""m (float[B, T] x, bool[B, T] c, float[N] z) => (float[B, T] y) <float low = {{-7}}> {{
        {steps} }}"""
    )
    tensors, look = UniformTensors(FoldView(View(m))), FoldView(View(m))
    replacement = tensors.scatter_to_where(m.graph[-1], look)
    assert (replacement is not None) == becomes_where


@pytest.mark.parametrize(
    ("steps", "drops"),
    [
        ("p = Concat <axis = -1> (a, z) y = DFT (p)", True),
        ("p = Concat <axis = 2> (a, z) y = DFT (p)", True),
        ("p = Concat <axis = -1> (a, u) y = DFT (p)", False),  # imaginary parts of 1
        ("p = Concat <axis = -1> (z, a) y = DFT (p)", False),
        ("p = Concat <axis = -1> (a, z) y = DFT <inverse = 1> (p)", False),
        ("p = Concat <axis = 0> (a, z) y = DFT (p)", False),
    ],
)
def test_zero_imaginary_parts_of_a_dft(steps: str, *, drops: bool) -> None:
    m = model(
        f"""m (float[1, T, 1] a) => (float[B, T, 2] y)
        <float[1, 1, 1] nought = {{0}}, float[1, 1, 1] unit = {{1}}> {{
        h = Shape (a) z = Expand (nought, h) u = Expand (unit, h) {steps} }}"""
    )
    look = FoldView(View(m))
    assert (UniformTensors(look).drop_imaginary(m.graph[-1], look) is not None) == drops
