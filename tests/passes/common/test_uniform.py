"""Which tensors hold one number, whatever moved or computed them."""

import pytest

from graphfix.facts.view import View
from graphfix.passes.common.fold_view import FoldView
from graphfix.passes.common.uniform import UniformTensors, broadcast_dims
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
        ("y = Where (no, fives, x)", None),
        ("y = Where (no, x, fives)", 5),
        ("y = Add (ones, ones)", 2.0),
        ("y = Mul (fives, x)", None),
        ("y = Sub (ones, ones)", 0.0),
        ("y = Greater (fives, five)", False),
        ("y = Cast <to = 1> (fives)", 5.0),
        ("c = Cast <to = 2> (big) y = Cast <to = 1> (c)", 44.0),  # uint8 wraps
        ("y = And (yes, no)", False),
        ("y = Identity (four)", None),
        ("y = Identity (five)", 5),
    ],
)
def test_uniform_number(steps: str, expected: float | None) -> None:
    m = model(
        f"""m (int64[2, 2] x, bool[2] kept, bool[2, 2] kept2, int64[2] rows, int64[2] size) =>
        (float y) <int64 five = {{5}},
        int64 big = {{300}}, int64[4] four = {{1, 4, 1, 1}}, bool t = {{1}}> {{
        fives = Expand (five, size) ones = ConstantOfShape <value = float[1] {{1.0}}> (four)
        blocks = Identity (ones) yes = Expand (t, size) no = Not (yes) {steps} }}"""
    )
    tensors = UniformTensors(FoldView(View(m)))
    number = tensors.uniform_number(m.graph[-1].outputs[0])
    assert number == expected
    assert type(number) is type(expected)


@pytest.mark.parametrize(
    ("comparison", "expected"),
    [
        ("GreaterOrEqual (r, two)", True),
        ("GreaterOrEqual (r, three)", None),
        ("Greater (r, one)", True),
        ("Greater (r, two)", None),
        ("Less (r, two)", False),
        ("Less (r, three)", None),
        ("LessOrEqual (r, one)", False),
        ("LessOrEqual (r, two)", None),
        ("LessOrEqual (two, r)", True),
        ("LessOrEqual (three, r)", None),
        ("Less (one, r)", True),
        ("Less (two, r)", None),
        ("Greater (two, r)", False),
        ("Greater (three, r)", None),
        ("GreaterOrEqual (one, r)", False),
        ("GreaterOrEqual (two, r)", None),
        ("Equal (r, one)", None),
        ("Equal (two, two)", True),
        ("Less (two, two)", False),
    ],
)
def test_an_index_is_compared_with_its_least(comparison: str, expected: bool | None) -> None:
    m = model(
        f"""m (int64 n) => (bool[A] y) <int64 two = {{2}}, int64 one = {{1}}, int64 three = {{3}}>
        {{ r = Range (two, n, one) y = {comparison} }}"""
    )
    m.graph.outputs[0].shape = None
    tensors = UniformTensors(FoldView(View(m)))
    assert tensors.uniform_number(m.graph.outputs[0]) is expected


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ([("B", 1), (1, "T")], ("B", "T")),
        ([("B", 4), (4,)], ("B", 4)),
        ([("B", 4), ("B", 4)], ("B", 4)),
        ([("B",), ("T",)], None),  # one may be 1
        ([("B",), (4,)], None),
        ([(1, 1), (1,)], (1, 1)),
        ([(), (3,)], (3,)),
        ([()], ()),
        ([], ()),
    ],
)
def test_broadcast_dims(
    shapes: list[tuple[int | str, ...]], expected: tuple[int | str, ...] | None
) -> None:
    assert broadcast_dims(shapes) == expected


@pytest.mark.parametrize(
    ("steps", "is_dropped"),
    [
        ("y = Add (x, zero) z = Neg (y)", True),
        ("y = Add (zero, x) z = Neg (y)", True),
        ("y = Add (x, wide) z = Neg (y)", False),  # it is broadcast to two rows
        ("y = Sub (x, zero) z = Neg (y)", False),
        ("z = Neg (x) y = Add (x, zero)", False),  # an output keeps its name
        ("d = Sub (x, one) s = Sqrt (x) q = Div (d, s) y = Mul (q, one) z = Neg (y)", False),
        (
            "d = Sub (x, one) s = Sqrt (x) q = Div (d, s) p = Mul (q, x) y = Add (p, zero) "
            "z = Neg (y)",
            False,
        ),
        ("d = Sub (x, one) s = Exp (x) q = Div (d, s) y = Mul (q, one) z = Neg (y)", True),
        ("d = Abs (x) s = Sqrt (x) q = Div (d, s) y = Mul (q, one) z = Neg (y)", True),
        ("d = Sub (x, one) s = Sqrt (x) q = Mul (d, s) y = Mul (q, one) z = Neg (y)", True),
        ("d = Sub (x, one) s = Sqrt (x) q = Div (d, s) y = Add (q, zero) z = Neg (y)", True),
    ],
)
def test_neutral_operators(steps: str, *, is_dropped: bool) -> None:
    output = "z" if "z = Neg (y)" in steps else "y"
    m = model(
        f"""m (float[1, T] x) => (float[A, T] {output}) <float zero = {{0}}, float one = {{1}},
        float[2, 1] wide = {{0, 0}}> {{ {steps} }}"""
    )
    look = FoldView(View(m))
    node = next(x for x in m.graph if x.outputs[0].name == "y")
    assert (UniformTensors(look).drop_neutral(node, look) is not None) == is_dropped


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


@pytest.mark.parametrize(
    ("steps", "shrinks"),
    [
        ("v = Expand (five, s) y = Mul (x, v)", True),
        ("v = Expand (five, s) n = Neg (v) y = Mul (x, n)", True),
        ("v = Expand (five, s) n = Neg (v) y = Concat <axis = 0> (x, n)", False),
        ("v = Expand (five, s) y = Identity (v)", False),
        ("v = Expand (five, s) n = Add (v, v) y = Neg (n)", False),  # y would be smaller
        ("v = Expand (row, s) y = Mul (x, v)", True),
        ("v = Expand (row, s) y = Concat <axis = 0> (x, v)", False),
        ("v = Expand (row, s) t = Transpose (v) y = Mul (x, t)", False),  # [T, 1]
        ("v = Expand (five, s) t = Transpose (v) u = Transpose (t) y = Mul (x, u)", True),
        ("v = Identity (x) y = Mul (x, v)", False),
        ("v = Expand (place, s) g = Gather (table, v) y = Mul (g, deep)", True),
        ("v = Expand (place, s) g = Gather (table, v) y = Neg (g)", False),
        ("v = Expand (place, s) g = Gather <axis = 1> (table, v) y = Mul (g, deeper)", True),
        ("v = Expand (place, s) g = Gather (v, place) y = Mul (g, g)", False),
    ],
)
def test_what_readers_would_broadcast_shrinks(steps: str, *, shrinks: bool) -> None:
    m = model(
        f"""m (float[B, T] x, float[1, T] row, float[B, T, 3] deep, float[2, B, T] deeper)
            => (float[B, T] y)
        <float[1, 1] five = {{5}}, int64[1, 1] place = {{1}},
         float[2, 3] table = {{1, 2, 3, 4, 5, 6}}>
        {{ s = Shape (x) {steps} }}"""
    )
    m.graph.outputs[0].shape = None
    look = FoldView(View(m))
    tensors = UniformTensors(look)
    node = next(x for x in m.graph if x.outputs[0].name == "v")
    assert (tensors.shrink(node, look) is not None) == shrinks
    assert bool(tensors.touched) == shrinks
    if shrinks:  # until shapes are inferred again
        assert tensors.shrink(node, look) is None


@pytest.mark.parametrize(("count", "expected"), [(15, 5), (30, None)])
def test_a_number_is_followed_through_so_many_nodes(count: int, expected: int | None) -> None:
    chain = " ".join(f"i{n + 1} = Mul (i{n}, one)" for n in range(count))
    m = model(
        f"""m (int64[2] size) => (float y) <int64 five = {{5}}, int64 one = {{1}}> {{
        i0 = Expand (five, size) {chain} y = Mul (i{count}, one) }}"""
    )
    number = UniformTensors(FoldView(View(m))).uniform_number(m.graph[-1].outputs[0])
    assert number == expected
