"""What may be fed to an input that ends as indices, whatever the graph does to it before."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.facts.shapes import infer
from graphfix.feeds.case_search import make_cases
from graphfix.feeds.index_range import find_index_range
from graphfix.feeds.roles import roles_of
from graphfix.proof.verify import verify

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
ROWS = ", ".join(f"{n}.5" for n in range(49))
# Negative ids count from the end, as Keras writes it.
WRAPS = {
    "a Where": "n = Less (a, zero) s = Add (a, rows) i = Where (n, s, a)",
    "a product": "n = Less (a, zero) c = Cast <to = 7> (n) s = Mul (c, rows) i = Add (a, s)",
    "the size of the table": """n = Less (a, zero) h = Shape (table) r = Gather (h, zero)
        s = Add (a, r) i = Where (n, s, a)""",
    "nothing": "i = Identity (a)",
    "a Cast and a Clip": "b = Cast <to = 6> (a) c = Cast <to = 7> (b) i = Clip (c, zero, last)",
}


def wrapped(how: str, table: str = ROWS) -> ir.Model:
    return ir.from_onnx_text(
        HEAD
        + f"""m (int64[B, T] a) => (float[B, T, 1] y)
        <float[49, 1] table = {{{table}}}, int64 zero = {{0}}, int64 rows = {{49}},
         int64 last = {{48}}> {{ {WRAPS[how]} y = Gather (table, i) }}"""
    )


def bounds(text: str, name: str = "a") -> tuple[str, int, int]:
    found = roles_of(ir.from_onnx_text(HEAD + text))[name]
    return found.kind, found.low, found.high


@pytest.mark.parametrize("how", WRAPS)
def test_ids_have_the_range_of_the_table_however_they_reach_it(how: str) -> None:
    role = roles_of(wrapped(how))["a"]
    assert (role.kind, role.low, role.high) == ("tokens", 0, 49)


@pytest.mark.parametrize(
    ("made", "wraps"),
    [
        ("i = Identity (a)", False),
        ("i = Add (a, two)", False),
        ("i = Mod (a, rows)", True),
    ],
)
def test_twice_as_many_numbers_are_valid(made: str, wraps: bool) -> None:
    model = ir.from_onnx_text(f"""{HEAD}m (int64[N] a) => (float[N, 1] y)
        <float[5, 1] table = {{1, 2, 3, 4, 5}}, int64 two = {{2}}, int64 rows = {{5}}>
        {{ {made} y = Gather (table, i) }}""")
    found = find_index_range(model.graph.inputs[0], infer(model).dims)
    assert found is not None
    assert found.wraps is wraps


@pytest.mark.parametrize("how", WRAPS)
def test_a_table_of_which_nearly_all_rows_are_lost_is_another(how: str) -> None:
    emptied = ", ".join(["0.5", "1.5", *["0"] * 47])
    assert not verify(wrapped(how), wrapped(how, emptied)).ok
    assert verify(wrapped(how), wrapped(how)).ok


@pytest.mark.parametrize(
    ("made", "low", "high"),
    [
        ("i = Sub (a, two)", 2, 51),
        ("i = Add (a, two)", -2, 47),
        ("i = Mul (a, two)", 0, 25),
        ("i = Div (a, two)", 0, 97),
        ("i = Mod (a, rows)", 0, 49),
        ("i = Mul (a, zero)", 0, 49),
        ("i = Add (a, far)", 0, 1),  # no number that is tried is in range
        ("i = Add (a, books)", 0, 9),  # each codebook has its place in one table
        ("i = Add (a, other)", 0, 25),  # what is added is not known: the first half
    ],
)
def test_arithmetic_on_the_way_moves_the_range(made: str, low: int, high: int) -> None:
    text = f"""m (int64[B, 3, T] a, int64[1] other) => (float[B, 3, T, 1] y)
        <float[49, 1] table = {{{ROWS}}}, int64 two = {{2}}, int64 rows = {{49}},
         int64 zero = {{0}}, int64 far = {{-9999}}, int64[3, 1] books = {{0, 20, 40}}>
        {{ {made} y = Gather (table, i) }}"""
    assert bounds(text) == ("tokens", low, high)


@pytest.mark.parametrize(
    "node",
    [
        "y = Gather <axis = 1> (x, i)",
        "w = Unsqueeze (i, zero) k = Expand (w, one) y = GatherElements <axis = 1> (x, k)",
        "w = Unsqueeze (i, last) y = GatherND <batch_dims = 0> (t, w)",
        "w = Unsqueeze (i, last) u = Gather (t, i) y = ScatterND (t, w, u)",
    ],
)
def test_every_operator_with_indices_bounds_them(node: str) -> None:
    text = f"""m (int64[N] a) => (float[P, Q] y) <float[1, 6] x = {{1, 2, 3, 4, 5, 6}},
        int64[1] zero = {{0}}, int64[1] last = {{-1}}, int64[2] one = {{1, 1}}>
        {{ i = Identity (a) t = Transpose (x) {node} }}"""
    assert bounds(text) == ("tokens", 0, 6)


def test_classes_of_a_one_hot() -> None:
    text = """m (int64[N] a) => (float[N, 5] y)
        <int64 depth = {5}, float[2] values = {0, 1}, int64 one = {1}>
        { i = Sub (a, one) y = OneHot (i, depth, values) }"""
    assert bounds(text) == ("tokens", 1, 6)


GRAPH = """m (float[N, 4] x, int64[2, E] edges) => (float[N, 4] y)
    <int64 zero = {0}, int64 one = {1}, int64[1] last = {-1}, float none = {0}>
    { %s from = Gather (e, zero) to = Gather (e, one) sent = Gather (x, from)
      nothing = Sub (x, x) at = Unsqueeze (to, last)
      y = ScatterND <reduction = "add"> (nothing, at, sent) }"""


def graph(before: str) -> ir.Model:
    text = (GRAPH % before).replace("from ", "src ").replace("from)", "src)")
    return ir.from_onnx_text(HEAD + text)


def test_edges_reach_every_node_of_the_graph() -> None:
    cases = make_cases(graph("e = Identity (edges)"))
    assert cases.input_roles["edges"].kind == "tokens"
    assert not cases.dropped
    for case in cases:
        edges, nodes = case.feeds["edges"], len(case.feeds["x"])
        assert edges.min() >= 0
        assert edges.max() < nodes
    assert any(len(set(x.feeds["edges"].reshape(-1).tolist())) > 4 for x in cases)


def test_edges_that_are_forgotten_are_told() -> None:
    good, wrong = graph("e = Identity (edges)"), graph("e = Mul (edges, zero)")
    assert verify(good, good).ok
    assert not verify(good, wrong).ok
    assert not verify(wrong, good).ok


@pytest.mark.parametrize("update", ["float[2, 3, 3] u", "float[2, N, 3] u"])
def test_an_update_of_a_tensor_scatter_ends_inside_of_it(update: str) -> None:
    text = f"""m (float[2, 9, 3] x, {update}, int64[2] a) => (float[2, 9, 3] y)
        {{ y = TensorScatter (x, u, a) }}"""
    model = ir.from_onnx_text(HEAD.replace("17", "24").replace("8,", "11,") + text)
    role = roles_of(model)["a"]
    assert role.kind == "tokens"
    if "N" in update:
        assert [str(x) for x in role.below] == ["10 - N"]
    else:
        assert (role.low, role.high) == (0, 7)


def test_indices_of_a_max_unpool_count_through_all_axes() -> None:
    text = """m (float[1, 1, 2] x, int64[1, 1, 2] a) => (float[1, 1, 4] y)
        { y = MaxUnpool <kernel_shape = [2], strides = [2]> (x, a) }"""
    assert roles_of(ir.from_onnx_text(HEAD + text))["a"].kind == "int"


def test_a_cast_like_rounds_as_a_cast_does() -> None:
    text = f"""m (int64[N] a) => (float[N, 1] y)
        <float[49, 1] table = {{{ROWS}}}, float half = {{0.5}}, int64 one = {{1}}>
        {{ f = Cast <to = 1> (a) h = Mul (f, half) i = %s y = Gather (table, i) }}"""
    like, plain = (bounds(text % x) for x in ("CastLike (h, one)", "Cast <to = 7> (h)"))
    assert like == plain == ("tokens", 0, 97)


def test_the_last_frame_of_each_row_is_a_place_in_it() -> None:
    text = """m (float[B, T, 2] x, int64[B, 1] a) => (float[B, B, 1, 2] y) <int64 one = {1}>
        { i = Sub (a, one) y = Gather <axis = 1> (x, i) }"""
    role = roles_of(ir.from_onnx_text(HEAD + text))["a"]
    assert (role.kind, role.low) == ("tokens", 1)
    assert [str(x) for x in role.below] == ["T + 1"]


def test_a_mask_that_selects_positions_is_no_index() -> None:
    text = """m (int64[B, T] a, float[B, T, T] s) => (float[B, T, 1] y, float[B, T, T] w)
        <float[66, 1] table, int64 axis = {1}, int64[1] at = {1}, float low = {-10000}>
        { n = CumSum (a, axis) p = Mul (n, a) y = Gather (table, p)
          c = Cast <to = 9> (a) k = Unsqueeze (c, at) v = Where (k, s, low)
          w = Softmax (v) }"""
    model = HEAD + text.replace("<float[66, 1] table,", f"<float[66, 1] table = {{{'0,' * 65}0}},")
    assert roles_of(ir.from_onnx_text(model))["a"].kind == "mask"


def test_what_only_the_graph_knows_the_size_of_is_indexed_at_0() -> None:
    text = """m (float[T] x, int64[E] a) => (float[E] y)
        { p = NonZero (x) r = Transpose (p) k = GatherND (x, r) y = Gather (k, a) }"""
    cases = make_cases(ir.from_onnx_text(HEAD + text))
    assert cases
    assert all(not x.feeds["a"].any() for x in cases)
