"""Clues to the role of an input, along its trails through the graph."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.feeds.input_trace import Clues, collect_clues
from tests.feeds.small_models import model


def clues(text: str, name: str = "a", length_input: str = "") -> Clues:
    values = {x.name: x for x in model(text).graph.inputs}
    return collect_clues(values[name], values.get(length_input))


def hides(condition: str, chosen: str, dtype: str = "float") -> list[tuple[float, float, str]]:
    """Return the masks that a Where over data notes, for a condition made of the input."""
    return clues(
        f"""m ({dtype}[B, T] a, float[B, T] s) => (float[B, T] y)
        <float fill = {{-9.0}}, float half = {{0.5}}, float one = {{1.0}}, int64 zero = {{0}},
         int64 unit = {{1}}, int64 two = {{2}}>
        {{ {condition} y = Where (c, {chosen}) }}"""
    ).masks


AS_MASK = [(1.0, 0.0, "Where 'y'")]
INVERTED = [(0.0, 1.0, "Where 'y'")]


@pytest.mark.parametrize(
    ("condition", "chosen", "dtype", "masks"),
    [
        ("c = Cast <to = 9> (a)", "s, fill", "float", AS_MASK),
        ("c = Cast <to = 9> (a)", "fill, s", "float", INVERTED),
        # Two tensors of data: nothing says which is padding.
        ("c = Cast <to = 9> (a)", "s, s", "float", AS_MASK),
        ("t = Cast <to = 9> (a) c = Not (t)", "s, fill", "float", INVERTED),
        ("c = Equal (a, zero)", "fill, s", "int64", AS_MASK),
        ("c = Equal (a, unit)", "fill, s", "int64", INVERTED),
        # Ids compared with an id that is neither 0 nor 1.
        ("c = Equal (a, two)", "fill, s", "int64", []),
        # Which operand is the number matters.
        ("c = Greater (a, half)", "s, fill", "float", AS_MASK),
        ("c = Greater (half, a)", "s, fill", "float", INVERTED),
        ("d = Sub (one, a) c = Cast <to = 9> (d)", "s, fill", "float", INVERTED),
        ("d = Sub (a, one) c = Cast <to = 9> (d)", "s, fill", "float", INVERTED),
        ("c = Less (a, one)", "fill, s", "float", AS_MASK),
        # The condition is the same for both numbers.
        ("c = Less (a, two)", "fill, s", "int64", []),
        # What became unknown on the way says nothing.
        ("d = CumSum (a, unit) e = Cast <to = 9> (d) c = Not (e)", "s, fill", "float", []),
    ],
)
def test_a_condition_over_data_is_a_mask(
    condition: str, chosen: str, dtype: str, masks: list[tuple[float, float, str]]
) -> None:
    assert hides(condition, chosen, dtype) == masks


def test_a_where_of_two_numbers_makes_an_addend_of_scores() -> None:
    text = """m (bool[B, T] a, float[B, T] s) => (float[B, T] y)
        <float zero = {0.0}, float low = {-1e4}>
        { m = Where (a, %s) t = Add (s, m) y = Softmax (t) }"""
    assert clues(text % "zero, low").masks == [(1.0, 0.0, "Add 't'")]
    assert clues(text % "low, zero").masks == [(0.0, 1.0, "Add 't'")]


def test_data_in_a_where_stays_data() -> None:
    text = """m (float[B, T] a, bool[B, T] c, float[B, T] s) => (float[B, T] y)
        <float fill = {-9.0}> { b = Where (c, %s) d = Cast <to = 9> (b) y = Where (d, s, fill) }"""
    assert clues(text % "a, fill").masks == [(1.0, 0.0, "Where 'y'")]
    assert clues(text % "fill, a").masks == [(1.0, 0.0, "Where 'y'")]


ADDEND = """m (float[B, T] a, float[B, T] s) => (float[B, T] y)
    <float low = {-1e4}, float high = {1e4}, float shallow = {-1.0}, float one = {1.0},
     int64 unit = {1}>
    { %s y = %s (t) }"""


@pytest.mark.parametrize(
    ("nodes", "last", "masks", "added"),
    [
        ("t = Add (s, a)", "Softmax", [], "Add 't'"),
        ("t = Add (s, a)", "LogSoftmax", [], "Add 't'"),
        ("t = Add (s, a)", "Relu", [], ""),
        # Subtracted scores are no scores; what is subtracted is not added unchanged.
        ("t = Sub (s, a)", "Softmax", [], ""),
        ("t = Sub (a, s)", "Softmax", [], "Sub 't'"),
        ("m = Mul (a, low) t = Add (s, m)", "Softmax", [(0.0, 1.0, "Add 't'")], ""),
        ("m = Mul (a, high) t = Sub (s, m)", "Softmax", [(0.0, 1.0, "Sub 't'")], ""),
        (
            "i = Sub (one, a) m = Mul (i, low) t = Add (m, s)",
            "Softmax",
            [(1.0, 0.0, "Add 't'")],
            "",
        ),
        # A small bias hides nothing; nor does what is the same for 0 and 1.
        ("m = Mul (a, shallow) t = Add (s, m)", "Softmax", [], ""),
        ("m = Min (a, low) t = Add (s, m)", "Softmax", [], ""),
        # 0 and 1 by a test are not what was fed.
        ("f = Floor (a) t = Add (s, f)", "Softmax", [], ""),
        ("n = Neg (a) m = Neg (n) t = Add (s, m)", "Softmax", [], "Add 't'"),
    ],
)
def test_what_is_added_to_scores(
    nodes: str, last: str, masks: list[tuple[float, float, str]], added: str
) -> None:
    seen = clues(ADDEND % (nodes, last))
    assert (seen.masks, seen.added) == (masks, added)


@pytest.mark.parametrize("op", ["ReduceSum", "CumSum"])
def test_sums(op: str) -> None:
    text = """m (%s a, %s b) => (float[B] y, float[B] z)
        { y = %s (a, b) z = %s (a, b) }"""
    typed = text % ("float[B, T]", "int64[1]" if op == "ReduceSum" else "int64", op, op)
    assert clues(typed).summed == f"{op} 'y'"
    # The axis is not summed, nor does it decide a shape.
    assert clues(typed, "b") == Clues()


def test_a_sum_goes_on_with_unknown_numbers() -> None:
    seen = clues("""m (float[B, T] a, float[B, T] s) => (float[B, T] y)
        <int64 unit = {1}> { c = CumSum (a, unit) t = Add (s, c) y = Softmax (t) }""")
    assert (seen.summed, seen.added, seen.masks) == ("CumSum 'c'", "", [])


GATE = """m (%s[B, T, 1] a, float[B, T, 4] s) => (float[B, T, 4] y, float[B, T, 4] z)
    <float one = {1.0}, float two = {2.0}, float half = {0.5}, float inf = {inf}, int64 unit = {1}>
    { %s y = Mul (s, g) z = Mul (g, s) }"""


@pytest.mark.parametrize(
    ("nodes", "gates", "masks"),
    [
        ("g = Identity (a)", "Mul 'y'", []),
        ("g = Sub (one, a)", "Mul 'y'", [(0.0, 1.0)]),
        # 0 and 1 by a test: surely a mask.
        ("g = Floor (a)", "Mul 'y'", [(1.0, 0.0)]),
        ("c = Cast <to = 9> (a) g = Cast <to = 1> (c)", "Mul 'y'", [(1.0, 0.0)]),
        ("c = Greater (a, half) g = Cast <to = 1> (c)", "Mul 'y'", [(1.0, 0.0)]),
        # Neither hides anything.
        ("g = Add (a, one)", "", []),
        # The same for both, or no number that could be a gate.
        ("g = Max (a, two)", "", []),
        ("g = Mul (a, inf)", "", []),
    ],
)
def test_what_is_multiplied_with_data(
    nodes: str, gates: str, masks: list[tuple[float, float]]
) -> None:
    seen = clues(GATE % ("float", nodes))
    assert seen.gates == gates
    assert [x[:2] for x in seen.masks] == masks * 2
    assert [x[2] for x in seen.masks] == ["Mul 'y'", "Mul 'z'"] * len(masks)


def test_whole_numbers_are_no_gate_before_they_are_floats() -> None:
    text = """m (int64[B, T, 1] a, %s[B, T, 4] s) => (%s[B, T, 4] y) { %s }"""
    assert not clues(text % ("int64", "int64", "y = Mul (s, a)")).gates
    cast = "g = Cast <to = 1> (a) y = Mul (s, g)"
    assert clues(text % ("float", "float", cast)).gates == "Mul 'y'"
    like = "g = CastLike (a, s) y = Mul (s, g)"
    assert clues(text % ("float", "float", like)).gates == "Mul 'y'"


def test_the_type_that_a_cast_follows_is_not_on_the_trail() -> None:
    seen = clues("""m (float[B, T, 1] a, int64[B, T, 1] n, float[B, T, 4] s) => (float[B, T, 4] y)
        { g = CastLike (n, a) y = Mul (s, g) }""")
    assert seen == Clues()


POSITIONS = """m (%s[B] a, float[B, T] s) => (y)
    <int64 zero = {0}, int64 one = {1}, int64[1] ax = {1}, %s[4] table = {%s}>
    { n = Shape <start = 1, end = 2> (s) k = Squeeze (n) r = Range (zero, k, one)
      f = Cast <to = 1> (r) u = Unsqueeze (a, ax) %s }"""


@pytest.mark.parametrize(
    ("dtype", "nodes", "compared"),
    [
        ("int64", "y = Less (r, u)", "Less 'y'"),
        ("int64", "y = Greater (u, r)", "Greater 'y'"),
        ("int64", "y = Equal (u, r)", "Equal 'y'"),
        ("int64", "y = Sub (u, r)", "Sub 'y'"),
        ("float", "y = Sub (f, u)", "Sub 'y'"),
        ("int64", "y = Add (u, r)", ""),
        ("int64", "y = Less (table, u)", "Less 'y'"),
        ("int64", "o = Less (r, u) y = Less (r, u)", "Less 'o'"),
    ],
)
def test_what_is_compared_with_positions(dtype: str, nodes: str, compared: str) -> None:
    text = POSITIONS % (dtype, "int64", "0, 1, 2, 3", nodes)
    assert clues(text).compared == compared


@pytest.mark.parametrize(
    ("nodes", "span"),
    [
        ("y = Less (u, table)", (0.0, 4.0)),
        ("y = LessOrEqual (u, table)", (0.0, 4.0)),
        ("y = Less (table, u)", (4.0, 8.0)),
        ("y = Greater (u, table)", (4.0, 8.0)),
        ("y = Greater (table, u)", (0.0, 4.0)),
        ("y = Equal (u, table)", None),
        ("w = Add (u, u) x = Neg (u) y = Less (x, table)", None),
        ("one1 = Constant <value_floats = [3.0]> () y = Less (u, one1)", None),
    ],
)
def test_the_half_of_a_table_that_lets_the_other_pass(
    nodes: str, span: tuple[float, float] | None
) -> None:
    assert clues(POSITIONS % ("float", "float", "0, 1, 2, 8", nodes)).span == span


def test_the_numbers_that_it_is_compared_with() -> None:
    seen = clues("""m (float[B] a) => (x, y, z)
        <float two = {2.0}, float inf = {inf}, float one = {1.0}>
        { x = Equal (a, two) y = Equal (inf, a) z = Less (a, one) }""")
    assert seen.compared_numbers == [2, 0]


LIMITS = [
    ("Range (zero, a, one)", "Range 'y'", True),
    ("Range (a, k, one)", "", True),
    ("Range (zero, k, a)", "", True),
]


@pytest.mark.parametrize(("node", "limits", "shape"), LIMITS)
def test_the_end_of_a_range(node: str, limits: str, shape: bool) -> None:
    seen = clues(f"""m (int64 a, int64 k) => (y, z) <int64 zero = {{0}}, int64 one = {{1}}>
        {{ y = {node} z = {node} }}""")
    assert (seen.limits, seen.shape) == (limits, shape)


@pytest.mark.parametrize(
    ("node", "limits"),
    [
        ("GRU <hidden_size = 2> (x, w, r, , a)", "GRU 'y'"),
        ("LSTM <hidden_size = 2> (x, w, r, , a)", "LSTM 'y'"),
        ("ReverseSequence (x, a)", "ReverseSequence 'y'"),
        ("Gather (x, a)", ""),
        ("GRU <hidden_size = 2> (x, a, r)", ""),
        ("Relu (a)", ""),
    ],
)
def test_row_lengths(node: str, limits: str) -> None:
    seen = clues(
        f"m (int32[B] a, float[T, B, 2] x, float[1, 6, 2] w, float[1, 6, 2] r) => (y)"
        f"{{ y = {node} }}"
    )
    assert seen.limits == limits


@pytest.mark.parametrize(
    ("node", "shape"),
    [
        ("Reshape (x, a)", True),
        ("Expand (x, a)", True),
        ("Slice (x, zeros, a)", True),
        ("Squeeze (x, a)", False),
        ("Unsqueeze (x, a)", False),
        ("ReduceMax (x, a)", False),
        ("Mul (x, a)", False),
    ],
)
def test_what_decides_a_shape(node: str, shape: bool) -> None:
    seen = clues(f"""m (int64[1] a, int64[1, 5] x) => (y)
        <int64[1] zeros = {{0}}> {{ y = {node} }}""")
    assert seen.shape == shape
    assert not seen.cut


@pytest.mark.parametrize(("condition", "branch"), [("a", True), ("b", False)])
def test_what_decides_an_if(condition: str, branch: bool) -> None:
    seen = clues(f"""m (bool a, bool b) => (bool y, bool z) {{ z = Identity (a) y = If ({condition})
        <then_branch = t () => (bool p) {{ p = Constant <value = bool {{1}}> () }},
         else_branch = e () => (bool q) {{ q = Constant <value = bool {{0}}> () }}> }}""")
    assert seen.branch == branch


SHARE = """m (float[B] a, float[B, T] s, int64[B] n) => (y)
    <int64 one = {1}, int64[1] zeros = {0}, int64[1] ones = {1}, float two = {2.0}>
    { k = Shape (s) g = Gather (k, one) f = Cast <to = 1> (g) fn = Cast <to = 1> (n) %s }"""


@pytest.mark.parametrize(
    ("nodes", "fraction", "cut"),
    [
        ("y = Mul (a, f)", "Mul 'y'", ""),
        ("y = Mul (f, a)", "Mul 'y'", ""),
        # What a convolution leaves of a size is a length, too; a power of it is a scale.
        ("h = Div (f, two) i = Floor (h) y = Mul (a, i)", "Mul 'y'", ""),
        ("h = Pow (f, two) y = Mul (a, h)", "", ""),
        ("y = Mul (a, s)", "", ""),
        ("x = Mul (a, f) y = Mul (a, f)", "Mul 'x'", ""),
        (
            "m = Mul (a, f) i = Cast <to = 7> (m) y = Slice (s, zeros, i, ones)",
            "Mul 'm'",
            "Slice 'y'",
        ),
        ("m = Mul (a, f) i = Cast <to = 7> (m) y = Slice (s, i, i, ones)", "Mul 'm'", "Slice 'y'"),
        ("m = Mul (a, f) i = Cast <to = 7> (m) y = Slice (s, i, ones, ones)", "Mul 'm'", ""),
        # Not a share of a size.
        ("i = Cast <to = 7> (a) y = Slice (s, zeros, i, ones)", "", ""),
        ("q = Mul (a, f) i = Cast <to = 7> (a) y = Slice (s, zeros, i, ones)", "Mul 'q'", ""),
    ],
)
def test_shares_of_a_size(nodes: str, fraction: str, cut: str) -> None:
    seen = clues(SHARE % nodes)
    assert (seen.fraction, seen.cut) == (fraction, cut)


def test_a_share_of_the_valid_length() -> None:
    text = SHARE % "y = Mul (a, fn)"
    assert clues(text).fraction == ""
    assert clues(text, length_input="n").fraction == "Mul 'y'"


def test_angles() -> None:
    text = """m (int64[B, T] a, float[1, 4] w) => (y) <int64[1] ax = {2}>
        { f = Cast <to = 1> (a) u = Unsqueeze (f, ax) %s }"""
    assert clues(text % "p = Mul (u, w) y = Sin (p)").waves == "Mul 'p'"
    assert clues(text % "p = MatMul (u, w) y = Cos (p)").waves == "Cos 'y'"
    assert clues(text % "p = MatMul (u, w) t = Transpose (p) y = Sin (t)").waves == "Sin 'y'"
    assert clues(text % "p = MatMul (u, w) r = Relu (p) y = Sin (r)").waves == ""
    assert clues(text % "p = Mul (u, w) y = Exp (p)").waves == ""
    first = clues(text % "x = Sin (u) y = Cos (u)")
    assert first.waves == "Sin 'x'"


NEIGHBOURS = """m (int64[N] a, int64[N] b) => (y) <int64[1] zeros = {0}, int64[1] ones = {1},
    int64[1] last = {-1}, int64[1] end = {99}>
    { n = Slice (a, ones, end) p = Slice (a, zeros, last) o = Slice (b, zeros, last) %s }"""


@pytest.mark.parametrize(
    ("nodes", "neighbours"),
    [
        ("y = Sub (n, p)", True),
        ("y = Add (n, p)", False),
        ("y = Sub (n, o)", False),
        ("i = Identity (p) y = Sub (n, i)", False),
    ],
)
def test_differences_of_neighbours(nodes: str, neighbours: bool) -> None:
    assert clues(NEIGHBOURS % nodes).neighbours == neighbours


def test_floats_cut_twice_are_a_mask_combined_with_itself() -> None:
    text = NEIGHBOURS.replace("int64[N]", "float[N]")
    assert not clues(text % "y = Sub (n, p)").neighbours


COMBINED = """m (bool[B, T] a, bool[B, T] b, float[B, T] s) => (float[B, T] y)
    <float fill = {-9.0}, int64 unit = {1}, float one = {1.0}> { %s y = Where (c, s, fill) }"""


@pytest.mark.parametrize(
    ("nodes", "masks"),
    [
        ("c = And (a, b)", [(1.0, 0.0, "Where 'y'")]),
        ("c = Or (b, a)", [(1.0, 0.0, "Where 'y'")]),
        ("n = Not (a) c = Or (b, n)", [(0.0, 1.0, "Where 'y'")]),
        # Combined with what has been made of it.
        ("n = Identity (a) c = And (a, n)", [(1.0, 0.0, "Where 'y'")]),
    ],
)
def test_masks_that_are_combined(nodes: str, masks: list[tuple[float, float, str]]) -> None:
    assert set(clues(COMBINED % nodes).masks) == set(masks)


def test_a_mask_times_its_own_sum_is_unknown() -> None:
    seen = clues("""m (int64[B, T] a, float[B, T] s) => (float[B, T] y)
        <float fill = {-9.0}, int64 unit = {1}>
        { k = CumSum (a, unit) p = Mul (k, a) c = Cast <to = 9> (p) y = Where (c, s, fill) }""")
    assert (seen.masks, seen.summed) == ([], "CumSum 'k'")


@pytest.mark.parametrize(
    ("node", "follows"),
    [
        ("Clip (a, low, high)", True),
        ("Concat <axis = 1> (b, a)", True),
        ("Max (a)", True),
        ("Reshape (a, shape)", True),
        ("Relu (a)", False),
        ("Where (q, a, b)", True),
    ],
)
def test_what_keeps_0_and_1_is_looked_through(node: str, follows: bool) -> None:
    seen = clues(f"""m (float[B, T] a, float[B, T] b, bool[B, T] q, float[B, T] s)
        => (float[B, T] y)
        <float low = {{0.0}}, float high = {{1.0}}, float fill = {{-9.0}},
         int64[2] shape = {{-1, 4}}>
        {{ k = {node} c = Cast <to = 9> (k) y = Where (c, s, fill) }}""")
    assert seen.masks == ([(1.0, 0.0, "Where 'y'")] if follows else [])


def test_the_bounds_of_a_clip_and_a_shape_are_no_0_and_1() -> None:
    seen = clues(
        """m (int64[2] a, float[B, T] b, float[B, T] s) => (float[B, T] y) <float fill = {-9.0}>
        { k = Reshape (b, a) c = Cast <to = 9> (k) y = Where (c, s, fill) }"""
    )
    assert (seen.masks, seen.shape) == ([], True)


def test_what_is_not_read_has_no_clue() -> None:
    assert clues("m (float[B] a, float[B] s) => (float[B] y) { y = Relu (s) }") == Clues()


def test_each_value_is_visited_once_and_an_endless_graph_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = """m (float[B, T] a, float[B, T] s) => (float[B, T] y)
        { p = Identity (a) q = Identity (a) t = Add (p, q) u = Add (s, t) y = Softmax (u) }"""
    assert clues(text).added == "Add 'u'"
    monkeypatch.setattr("graphfix.feeds.input_trace._MOST_STEPS", 2)
    assert clues(text).added == ""
    value = ir.Value(name="alone")
    assert collect_clues(value) == Clues()
