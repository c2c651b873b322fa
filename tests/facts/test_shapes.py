from __future__ import annotations

import itertools
import math

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_shape_inference import SYM_DATA_KEY, registry

import graphfix
from graphfix.facts.shapes import Shapes, same_dim, shapes_of
from graphfix.facts.symbolic import expressions, overrides, signs
from graphfix.graph.dims import GENERATED_SYMBOL

HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'


def look(text: str) -> tuple[ir.Model, Shapes]:
    model = ir.from_onnx_text(f"{HEAD} m {text}")
    return model, shapes_of(model)


def value(model: ir.Model, name: str) -> ir.Value:
    return next(x for node in model.graph.all_nodes() for x in node.outputs if x.name == name)


def dims(text: str, name: str = "y") -> list[str] | None:
    model, shapes = look(text)
    found = shapes.dims(value(model, name))
    return None if found is None else [str(x) for x in found]


def data(body: str, name: str = "y") -> list[str] | None:
    text = f"(float[B, T, 8] x, float[S] other) => (int64[N] y) {{ {body} }}"
    model, shapes = look(text)
    found = shapes.known_elements(value(model, name))
    return None if found is None else [str(x) for x in found]


def test_registering_twice_adds_nothing() -> None:
    overrides.register_rules()
    before = registry.get("", "Reshape", 17)
    overrides.register_rules()
    assert registry.get("", "Reshape", 17) is before


# Operators of ONNX Runtime ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "a", "b"),
    [
        ("alpha = 0.5", "B, H, M, K", "B, H, K, N"),
        ("transA = 1", "B, H, K, M", "B, H, K, N"),
        ("transB = 1", "B, H, M, K", "B, H, N, K"),
        ("transBatchA = 1", "M, B, H, K", "B, H, K, N"),
        ("transBatchB = 1, transB = 1", "B, H, M, K", "N, B, H, K"),
        ("transA = 1, transB = 1", "B, H, K, M", "N, K"),
    ],
)
def test_a_fused_product(attributes: str, a: str, b: str) -> None:
    body = f"y = com.microsoft.FusedMatMul <{attributes}> (a, b)"
    assert dims(f"(float[{a}] a, float[{b}] b) => (float[Z] y) {{ {body} }}") == [*"BHMN"]


def test_a_fused_product_does_not_take_one_batch_for_another() -> None:
    body = "y = com.microsoft.FusedMatMul <transB = 1> (a, b)"
    found = dims(f"(float[B, M, K] a, float[C, N, K] b) => (float[Z] y) {{ {body} }}")
    assert found is not None
    assert found[0] not in ("B", "C")


@pytest.mark.parametrize("opset", [9, 16, 17])
def test_layer_norms_at_any_opset(opset: int) -> None:
    model = ir.from_onnx_text(
        f"""<ir_version: 8, opset_import: ["" : {opset}]> m (float[B, T, 8] x, float[8] s)
        => (float[Z] y)
        {{ h = LayerNormalization (x, s) y = SimplifiedLayerNormalization (h, s) }}"""
    )
    assert [str(x) for x in shapes_of(model).dims(value(model, "y")) or ()] == ["B", "T", "8"]


# The model itself -------------------------------------------------------------------------------

LOOPED = """(float[B, T, 8] x, float[T] kept, bool[] run, int64[] times)
    => (float[Z] z, float[L, S] q, float[M] grown)
    <float[4] w = {1, 2, 3, 4}, float[5] stale> {
        grown = Loop (times, run, kept) <
            body = b (int64 i, bool go, float[P] h) => (bool on, float[Q] more)
                { on = Identity (go) more = Concat <axis = 0> (h, h) }
        >
        c = Constant <value = int64[1] {3}> ()
        s = Shape (x)
        z = If (run) <
            then_branch = one () => (float[A] a) { a = Relu (kept) },
            else_branch = two () => (float[C] d) { d = Neg (kept) }
        >
        r = Reshape (x, c)
        q = MatMul (r, w)
    }"""


def _state(model: ir.Model) -> list[object]:
    graphs = (model.graph, *model.graph.subgraphs())
    values = [v for g in graphs for v in (*g.inputs, *g.initializers.values())]
    values += [v for g in graphs for node in g for v in node.outputs]
    return [
        (v.name, v.type, str(v.type), v.shape, v.const_value, dict(v.metadata_props))
        for v in values
    ]


@pytest.mark.parametrize("broken", [False, True])
def test_inference_leaves_the_model_as_it_was(*, broken: bool) -> None:
    text = LOOPED if not broken else LOOPED.replace("MatMul (r, w)", "MatMul (r)")
    model = ir.from_onnx_text(f"{HEAD} m {text}")
    model.graph.initializers["w"].shape = ir.Shape([9])
    # What is already noted of contents, and a constant that a caller may override, come back too.
    noted = value(model, "s")
    noted.metadata_props[SYM_DATA_KEY] = "[1, 2, 3]"
    model.graph.inputs[1].const_value = ir.tensor(np.zeros(7, np.float32))
    for graph in (model.graph, *model.graph.subgraphs()):
        for x in (*graph.inputs, *(x for node in graph for x in node.outputs)):
            x.metadata_props["author"] = "somebody"
    before, proto = _state(model), ir.to_proto(model)
    shapes = shapes_of(model)
    assert _state(model) == before
    assert ir.to_proto(model) == proto
    # The note was wrong, and so was the shape of the initializer.
    assert [str(x) for x in shapes.known_elements(noted) or ()] == ["B", "T", "8"]
    assert shapes.dims(model.graph.initializers["w"]) == (4,)


# What integers hold -----------------------------------------------------------------------------

CONTENTS = {
    "the Where of TorchScript's Expand": (
        """s = Shape (x) n = Shape (s) one = ConstantOfShape <value = int64[1] {1}> (n)
           m = Constant <value_ints = [-1]> () minus = Mul (one, m)
           unset = Equal (s, minus) y = Where (unset, one, s)""",
        ["B", "T", "8"],
    ),
    "arithmetic": (
        """s = Shape <start = 1, end = 2> (x) c = Constant <value_ints = [2]> ()
           a = Add (s, c) b = Mul (a, s) d = Sub (b, s) e = Neg (d) y = Neg (e)""",
        ["T*(T + 2) - T"],
    ),
    "a division of a size": (
        """s = Shape <start = 1, end = 2> (x) c = Constant <value_ints = [2]> () y = Div (s, c)""",
        ["floor(T/2)"],
    ),
    "a remainder": (
        """s = Shape <start = 1, end = 2> (x) c = Constant <value_ints = [4]> () y = Mod (s, c)""",
        ["Mod(T, 4)"],
    ),
    "the larger": (
        """s = Shape <start = 1, end = 2> (x) t = Shape (other) y = Max (s, t)""",
        ["Max(S, T)"],
    ),
    "the less of a size and less than it": (
        """s = Shape <start = 1, end = 2> (x) c = Constant <value_ints = [2]> ()
           t = Sub (s, c) y = Min (s, t)""",
        ["T - 2"],
    ),
    "pads as TorchScript turns them round": (
        """c = Constant <value_ints = [1, 2, 3, 4]> () p = Constant <value_ints = [-1, 2]> ()
           r = Reshape (c, p) n = Constant <value_ints = [-1]> () z = Constant <value_ints = [0]> ()
           far = Constant <value_ints = [-9223372036854775807]> ()
           v = Slice (r, n, far, z, n) t = Transpose <perm = [1, 0]> (v) y = Reshape (t, n)""",
        ["3", "1", "4", "2"],
    ),
    "a product of all": ("s = Shape (x) y = ReduceProd <keepdims = 1> (s)", ["8*B*T"]),
    "a choice that is known": (
        """s = Shape <start = 0, end = 1> (x) z = Constant <value_ints = [0]> ()
           c = Greater (s, z) n = Not (c) y = Where (n, z, s)""",
        ["B"],
    ),
    "a scalar from Gather and Squeeze": (
        """s = Shape (x) i = Constant <value_int = -2> () g = Gather (s, i)
           a = Constant <value_ints = [0]> () u = Unsqueeze (g, a) q = Squeeze (u, a)
           c = Cast <to = 6> (q) w = Cast <to = 7> (c) y = Unsqueeze (w, a)""",
        ["T"],
    ),
}


@pytest.mark.parametrize("case", CONTENTS)
def test_contents_are_known(case: str) -> None:
    body, wanted = CONTENTS[case]
    found = data(body)
    assert found is not None
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        left = int(a) if a.lstrip("-").isdigit() else ir.SymbolicDim(a)
        right = int(b) if b.lstrip("-").isdigit() else ir.SymbolicDim(b)
        assert same_dim(left, right), (found, wanted)


UNKNOWN = {
    "what went through a float": """s = Shape <start = 1, end = 2> (x) f = Cast <to = 1> (s)
        y = Cast <to = 7> (f)""",
    "a division of floats": """c = Constant <value_ints = [7]> () f = Cast <to = 1> (c)
        two = Constant <value_floats = [2.0]> () h = Div (f, two) y = Cast <to = 7> (h)""",
    "a choice that is not known": """s = Shape <start = 1, end = 2> (x) t = Shape (other)
        c = Equal (s, t) y = Where (c, s, t)""",
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_contents_are_not_guessed(case: str) -> None:
    found = data(UNKNOWN[case])
    assert found is None or found[0].startswith("_d")


def test_a_division_of_less_than_0_is_cut_towards_0() -> None:
    """For T = 4 it is 0, and floor(-1/2) is -1."""
    found = data("""s = Shape <start = 1, end = 2> (x)
        c = Constant <value_ints = [5]> () two = Constant <value_ints = [2]> ()
        t = Sub (s, c) y = Div (t, two)""")
    assert found is not None
    expr = expressions.expr_of(ir.SymbolicDim(found[0]))
    (symbol,) = expr.free_symbols
    for size in range(1, 13):
        assert expr.subs({symbol: size}) == int((size - 5) / 2)


def test_a_division_of_little_less_than_0_is_0() -> None:
    """As SEW pools and convolves the same frames, of which there are two at least: of -1 / 2."""
    text = """(float[B, 1, T] x, float[4, 1, 20] w) => (int64[1] y) {
        n = Shape <start = 2> (x) ten = Constant <value_ints = [10]> () q = Div (n, ten)
        one = Constant <value_ints = [1]> () two = Constant <value_ints = [2]> ()
        three = Constant <value_ints = [3]> () a = Sub (q, three) h = Div (a, two)
        pooled = Add (h, one) c = Sub (q, one) rest = Div (c, two) y = Min (pooled, rest)
        f = Conv <strides = [10]> (x, w) }"""
    model, shapes = look(text)
    assert shapes.known_elements(value(model, "y")) == shapes.known_elements(value(model, "rest"))
    assert "Max" in str(shapes.known_elements(value(model, "h")))


def test_what_is_learned_of_one_number_is_not_believed_of_another() -> None:
    """At first nothing is known of ``h``, and ``many`` is the second that is not known."""
    text = """(float[N] x, float[M] y, float[1, 1, 5] w, float[1, 1, 6] v) => (int64[1] most)
    <int64[1] zero = {0}, int64[1] two = {2}, int64[1] five = {5}, int64[1] six = {6},
     int64[2] front = {0, 1}> {
        n = Shape (x) m = Shape (y) s = Add (n, m) rest = Sub (s, six) h = Div (rest, two)
        many = NonZero (x) f = Cast <to = 1> (many) row = Unsqueeze (f, zero)
        c = Conv (row, w) few = NonZero (y) size = Shape <start = 1> (few) most = Max (size, five)
        x3 = Unsqueeze (x, front) e = Conv (x3, v) }"""
    model, shapes = look(text)
    assert shapes.known_elements(value(model, "h")) == (ir.SymbolicDim("floor(M/2 + N/2) - 3"),)
    assert "Max(5, " in str(shapes.known_elements(value(model, "most")))


def test_an_entry_with_no_dim_that_0_would_copy_is_a_size() -> None:
    text = """(float[A, 6] x, float[T] z) => (float[B, C] y) {
        n = Shape (z) two = Constant <value_ints = [2]> () half = Div (n, two)
        rest = Constant <value_ints = [-1]> () t = Concat <axis = 0> (rest, half)
        y = Reshape (x, t) more = Concat <axis = 0> (rest, two, half) late = Reshape (x, MORE) }"""
    assert dims(text.replace("MORE", "more"))[1] == "floor(T/2)"
    assert dims(text.replace("MORE", "t"))[1].startswith("_d")  # 0 copies a 6


def test_a_third_inference_knows_what_the_second_learns() -> None:
    """Of the Conv that ``half`` is no unknown number, then of ``late`` that it is not 0."""
    text = """(float[A, 6] x, float[1, 1, T] z, float[1, 1, 20] w) => (float[B, C] y) {
        n = Shape <start = 2> (z) ten = Constant <value_ints = [10]> () q = Div (n, ten)
        one = Constant <value_ints = [1]> () two = Constant <value_ints = [2]> ()
        less = Sub (q, one) half = Div (less, two) rest = Constant <value_ints = [-1]> ()
        t = Concat <axis = 0> (rest, half) y = Reshape (x, t)
        more = Concat <axis = 0> (rest, two, half) late = Reshape (x, more)
        f = Conv <strides = [10]> (z, w) }"""
    model, shapes = look(text)
    assert shapes.dims(value(model, "y"))[1] == shapes.known_elements(value(model, "half"))[0]


# What shapes are --------------------------------------------------------------------------------


def test_two_symbols_broadcast_to_a_third() -> None:
    text = "(float[A, 4] a, float[B, 4] b) => (float[C, 4] y) { y = Add (a, b) z = Add (b, a) }"
    model, shapes = look(text)
    dim = shapes.dims(value(model, "y"))[0]
    assert str(dim) not in ("A", "B")
    assert same_dim(dim, shapes.dims(value(model, "z"))[0])


def test_it_is_one_of_them_again_where_a_matmul_asks_for_it() -> None:
    text = """(float[2, T] a, float[2, S] b, float[T, 4] w) => (float[2, 4] z) {
        y = Add (a, b) z = MatMul (y, w) }"""
    assert dims(text) == ["2", "T"]


def test_a_branch_that_may_not_run_asks_for_nothing() -> None:
    text = """(float[2, T] a, float[2, S] b, float[T, 4] w, bool c) => (float[2, 4] z) {
        y = Add (a, b) z = If (c) <
            then_branch = t () => (float[2, 4] p) { p = MatMul (y, w) },
            else_branch = e () => (float[2, 4] q) { q = MatMul (a, w) }> }"""
    assert dims(text) != ["2", "T"]


def test_a_table_cut_to_length_broadcasts_to_that_length() -> None:
    text = """(float[B, T, 8] x, float[1, 16, 8] table) => (float[B, T, 8] y) {
        n = Shape <start = 1, end = 2> (x) z = Constant <value_ints = [0]> ()
        a = Constant <value_ints = [1]> () part = Slice (table, z, n, a) y = Add (x, part) }"""
    assert dims(text) == ["B", "T", "8"]


def test_rows_cut_to_as_many_as_there_are_broadcast_to_that_many() -> None:
    """As the mask of more rows than there are ids, which a lookup row by row becomes."""
    text = """(float[M, T] mask, float[B, T] x) => (float[N, T] y) {
        n = Shape <start = 0, end = 1> (x) z = Constant <value_ints = [0]> ()
        rows = Slice (mask, z, n, z) y = Add (x, rows) }"""
    assert dims(text, "rows") == ["Min(B, M)", "T"]
    assert dims(text) == ["B", "T"]


def test_a_slice_to_a_number_is_no_longer_than_the_tensor() -> None:
    text = """(float[T] x) => (float[N] y) {
        z = Constant <value_ints = [0]> () n = Constant <value_ints = [512]> ()
        y = Slice (x, z, n) }"""
    assert dims(text) == ["Min(512, T)"]


def test_a_size_beside_minus_one_is_not_zero() -> None:
    text = """(float[B, T, 8] x) => (float[B, T, 2, 4] y) { s = Shape <end = 1> (x)
        r = Constant <value_ints = [-1, 2, 4]> () t = Concat <axis = 0> (s, r)
        y = Reshape (x, t) }"""
    model, shapes = look(text)
    assert [str(x) for x in shapes.dims(value(model, "y"))] == ["B", "T", "2", "4"]
    batch, length = shapes.dims(model.graph.inputs[0])[:2]
    assert shapes.is_never_empty(batch)
    assert not shapes.is_never_empty(length)


@pytest.mark.parametrize(("rest", "known"), [(-1, True), (8, False)])
def test_a_reshape_to_sizes_that_are_told_tells_how_many_there_are(rest: int, known: bool) -> None:
    """As many positions around the middle of a table as frames before and after it.

    Whether the table has so many, no Slice tells; the Reshape fails where it has not, unless there
    is nothing to deal out: a -1 beside the sizes says that none of them is 0.
    """
    found = dims(
        f"""(float[B, T, 8] x, float[1, 9, 8] table) => (float[B, T, N] moved)
        <int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] four = {{4}}, int64[1] five = {{5}},
         int64[1] rest = {{{rest}}}> {{
        b = Shape <start = 0, end = 1> (x) t = Shape <start = 1, end = 2> (x)
        first = Sub (five, t) last = Add (four, t) near = Slice (table, first, last, one)
        columns = Transpose <perm = [0, 2, 1]> (near) moved = MatMul (x, columns)
        twice = Mul (t, two) less = Sub (twice, one) sizes = Concat <axis = 0> (b, less, t)
        turned = Reshape (moved, sizes)
        same = Concat <axis = 0> (b, t, rest) rows = Reshape (x, same) }}""",
        "moved",
    )
    assert found is not None
    assert (found[2] == "2*T - 1") == known


def test_a_length_after_conv_may_be_divided() -> None:
    # T - 10 may be less than 0 as far as the graph tells, but then the Conv fails.
    text = """(float[B, 1, T] x, float[4, 1, 10] w) => (float[B, 4, F] y) {
        f = Conv <kernel_shape = [10], strides = [5]> (x, w)
        n = Shape <start = 2, end = 3> (x) c = Constant <value_ints = [10]> () a = Sub (n, c)
        k = Constant <value_ints = [5]> () q = Div (a, k)
        o = Constant <value_ints = [1]> ()
        frames = Add (q, o) b = Shape <end = 1> (x) ch = Constant <value_ints = [4]> ()
        s = Concat <axis = 0> (b, ch, frames) y = Reshape (f, s) }"""
    model, shapes = look(text)
    for a, b in zip(shapes.dims(value(model, "y")), shapes.dims(value(model, "f")), strict=True):
        assert same_dim(a, b)


def test_frames_of_which_there_is_at_least_one() -> None:
    """As a pitch model cuts samples, filled up to one frame and to whole frames, into frames."""
    text = """(float[1, T] x) => (float[F, 4] y)
        <int64[1] four = {4}, int64[1] three = {3}, int64[1] one = {1}, int64[1] zero = {0},
         int64[1] eight = {8}, int64[2] rows = {-1, 4}> {
        t = Shape <start = 1> (x) full = Div (t, four) frames = Max (full, one)
        lack = Sub (four, t) more = Max (lack, zero)
        least = Concat <axis = 0> (zero, zero, zero, more) p = Pad (x, least)
        long = Max (t, four) above = Add (long, three) blocks = Div (above, four)
        up = Mul (blocks, four) rest = Sub (up, long) behind = Add (rest, eight)
        pads = Concat <axis = 0> (zero, eight, zero, behind) q = Pad (p, pads)
        f = Reshape (q, rows) end = Add (frames, one) y = Slice (f, one, end, zero) }"""
    assert dims(text) == ["Max(1, floor(T/4))", "4"]


def test_floors_in_floors_are_one() -> None:
    a, b = ir.SymbolicDim("floor(floor(floor(T/5)/2)/2) - 1"), ir.SymbolicDim("floor(T/20) - 1")
    assert same_dim(a, b)
    assert not same_dim(a, ir.SymbolicDim("floor(T/10) - 1"))


def test_a_table_with_zeros_around_it_cut_to_a_length_has_that_length() -> None:
    """As VITS pads and cuts 9 rows to ``2 * T - 1``, wherever T is more than 5 or less."""
    longer = "2*Max(0, T - 5) + 9"
    cut = f"Max(0, Min({longer}, 2*T + Max(0, 5 - T) - 1) - Max(0, 5 - T))"
    assert same_dim(ir.SymbolicDim(cut), ir.SymbolicDim("2*T - 1"))
    assert not same_dim(ir.SymbolicDim(cut), ir.SymbolicDim("2*T"))
    assert same_dim(ir.SymbolicDim("Min(0, T - 5) + Max(0, T - 5)"), ir.SymbolicDim("T - 5"))


@pytest.mark.parametrize(
    ("expr", "is_never"),
    [
        ("2*T**2 - 2*T", True),
        ("T**2 - 2*T", False),
        ("S*T - S - T + 1", True),
        ("S*T - S - T", False),
        ("Max(0, T - 5) + 5 - T", True),
        ("Max(0, T - 5) + 4 - T", False),
        ("5 - T - Max(0, T - 5)", False),
        ("T + Max(0, 4 - T) - 4*Max(1, floor(T/4))", True),
        ("T + Max(0, 4 - T) - 4*Max(1, floor(T/4)) - 1", False),
        ("T + Max(0, 3 - T) - 4*Max(1, floor(T/4))", False),
        ("T - 3*floor(T/3)", True),
        ("T - 3*floor(T/3) - 1", False),
        ("2*floor(T/2 + 1/2) - T", True),
        ("floor(T/2) - 2*floor(floor(T/2)/2 - 3/2) - 3", True),
        ("floor(T/2) - 2*floor(floor(T/2)/2 - 3/2) - 4", False),
    ],
)
def test_what_is_never_less_than_nothing(expr: str, is_never: bool) -> None:
    found = expressions.expr_of(ir.SymbolicDim(expr))
    assert signs.never_negative(found) is is_never
    names = sorted(found.free_symbols, key=str)
    tried = itertools.product(range(1, 8), repeat=len(names))
    least = min(found.subs(dict(zip(names, at, strict=True))) for at in tried)
    assert bool(least >= 0) is is_never


def test_an_expand_to_a_computed_shape() -> None:
    text = """(float[B, 1, 8] x, float[T] other) => (float[B, T, 8] y) {
        b = Shape <end = 1> (x) t = Shape (other) e = Constant <value_ints = [8]> ()
        s = Concat <axis = 0> (b, t, e) y = Expand (x, s) }"""
    assert dims(text) == ["B", "T", "8"]


@pytest.mark.parametrize("op", ["ConstantOfShape (n)", "Expand (x, n)", "Reshape (x, n)"])
def test_a_size_that_the_data_say_is_a_dim_all_the_same(op: str) -> None:
    made = dims(
        f"""(float[1] x, int64[B, T] lengths) => (float[N, P] y)
        <int64[1] zero = {{0}}> {{ m = ReduceMax <keepdims = 0> (lengths)
        n = Unsqueeze (m, zero) r = {op} y = Unsqueeze (r, zero) }}"""
    )
    assert made is not None
    assert (len(made), made[0]) == (2, "1")


def test_what_a_file_calls_a_size_that_is_not_known_is_not_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No name of its dims is one of ours: "seq len" is no expression at all."""
    model = ir.from_onnx_text(
        f"""{HEAD} m (float[B, S, 4] x, int64[K] n) => (float[P, Q, R] y)
        <float[4, 4] w = {{{", ".join(["0.5"] * 16)}}}, float half = {{0.5}}>
        {{ a = Reshape (x, n) t = MatMul (a, w) y = Mul (t, half) }}"""
    )
    value(model, "a").shape = ir.Shape(["B", 4, "seq len"])
    shapes_of(model)
    assert graphfix.run(model, "fuse-matmul").changed
    assert not caplog.records


def test_an_if_whose_branches_differ() -> None:
    text = """(float[T] x, bool c) => (float[N] y) { y = If (c) <
        then_branch = t () => (float[P] p) { p = Relu (x) },
        else_branch = e () => (float[Q] q) { q = Concat <axis = 0> (x, x) }> }"""
    found = dims(text)
    assert found is not None
    assert found[0].startswith("_d")


def test_a_loop_may_end_before_its_count() -> None:
    text = """(float[T] x, int64 n, bool c) => (float[T] z, float[N, T] y) {
        m = Constant <value_int = 4> ()
        z, y = Loop (m, c, x) <body = b (int64 i, bool k, float[P] h)
            => (bool k2, float[P] h2, float[P] row) {
                k2 = Not (k) h2 = Relu (h) row = Neg (h) }> }"""
    found = dims(text)
    assert found is not None
    assert found[0].startswith("_d")
    assert found[1] == "T"
    assert dims(text, "z") == ["T"]


def test_a_loop_that_its_count_alone_ends() -> None:
    text = """(float[T] x, int64 n) => (float[T] z, float[N, T] y) {
        z, y = Loop (n, , x) <body = b (int64 i, bool k, float[P] h)
            => (bool k2, float[P] h2, float[P] row) {
                k2 = Identity (k) h2 = Relu (h) row = Neg (h) }> }"""
    assert dims(text, "z") == ["T"]
    found = dims(text)
    assert found is not None
    assert found[0].startswith("_d")
    assert found[1] == "T"


def test_looking_into_a_function_gives_no_tensor_another_name() -> None:
    model = ir.from_onnx_text("""<ir_version: 9, opset_import: ["" : 17, "own" : 1]>
        m (float[T] x) => (float[T] y) { y = own.f (x) }
        <domain: "own", opset_import: ["" : 17]>
        f (a) => (b) { c = Constant <value = int64[1] d {-1}> () b = Reshape (a, c) }""")
    before = ir.to_proto(model)
    assert shapes_of(model).dims(value(model, "y")) is not None
    assert ir.to_proto(model) == before


def test_names_that_outputs_declare_are_not_believed() -> None:
    model, shapes = look("(float[A, 4] x) => (float[N, 4] y) { y = Relu (x) }")
    assert [str(x) for x in shapes.dims(value(model, "y"))] == ["A", "4"]


def test_a_default_that_the_caller_may_override_is_no_shape() -> None:
    model = ir.from_onnx_text(f"""{HEAD} m (float[N] x) => (float[A, B] y)
        <int64[2] s = {{2, 3}}> {{ y = Reshape (x, s) }}""")
    model.graph.inputs.append(model.graph.initializers["s"])
    found = shapes_of(model).dims(value(model, "y"))
    assert found is not None
    assert not any(isinstance(x, int) for x in found)


# Whatever the numbers ---------------------------------------------------------------------------

OPS = ("Add", "Sub", "Mul", "Div", "Mod", "Min", "Max")


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(OPS), st.integers(0, 9), st.integers(0, 9)),
        min_size=1,
        max_size=5,
    ),
    st.lists(st.integers(-4, 6), min_size=2, max_size=2),
    st.integers(1, 9),
    st.integers(1, 9),
)
def test_contents_are_what_is_computed(
    steps: list[tuple[str, int, int]], numbers: list[int], t: int, s: int
) -> None:
    lines = ["v0 = Shape (a)", "v1 = Shape (b)"]
    for i, number in enumerate(numbers, 2):
        lines.append(f"v{i} = Constant <value_ints = [{number}]> ()")
    for op, left, right in steps:
        n = len(lines)
        lines.append(f"v{n} = {op} (v{left % n}, v{right % n})")
    names = [f"v{i}" for i in range(len(lines))]
    outputs = ", ".join(f"int64[1] {name}" for name in names)
    text = f"{HEAD} m (float[T] a, float[S] b) => ({outputs}) {{ {' '.join(lines)} }}"
    model = ir.from_onnx_text(text)
    values = _computed(steps, numbers, t, s)
    if values is None:
        return
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    feeds = {"a": np.zeros(t, np.float32), "b": np.zeros(s, np.float32)}
    shapes = shapes_of(model)
    for name, found in zip(names, session.run(names, feeds), strict=True):
        known = shapes.known_elements(value(model, name))
        assert found.item() == values[names.index(name)]
        if known is None or "_d" in str(known[0]):
            continue
        dim = known[0]
        said = dim if isinstance(dim, int) else dim.evaluate({"T": t, "S": s})
        assert said == found.item(), (name, dim)


COMPUTE = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": lambda a, b: (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1),
    "Mod": lambda a, b: a % b,
    "Min": min,
    "Max": max,
}


def _computed(
    steps: list[tuple[str, int, int]], numbers: list[int], t: int, s: int
) -> list[int] | None:
    """What the steps compute; None if they divide by 0, which ends the process."""
    values = [t, s, *numbers]
    for op, left, right in steps:
        a, b = values[left % len(values)], values[right % len(values)]
        if (b == 0 and op in ("Div", "Mod")) or abs(a * b) > 2**60:
            return None
        values.append(COMPUTE[op](a, b))
    return values


def test_names_that_no_expression_can_hold_are_equal_to_themselves_only() -> None:
    a, b, t = map(ir.SymbolicDim, ("0_0", "batch size", "T"))
    assert expressions.equal_dims(a, ir.SymbolicDim("0_0"))
    assert not expressions.equal_dims(a, b)
    assert expressions.divide_dims(b, t) is None
    product = expressions.multiply_dims(b, t)
    assert isinstance(product, ir.SymbolicDim)
    assert product.value is None


@pytest.mark.parametrize(
    ("signature", "node", "wanted"),
    [
        ("float[B, 1, 8] x, int64[N] axes", "Squeeze (x, axes)", None),
        ("float[B, 1, 8] x", "Squeeze (x)", None),
        ("float[3, 1, 8] x", "Squeeze (x)", ["3", "8"]),
        ("float[B, 1, 8] x", "Squeeze (x, minus)", ["B", "8"]),
    ],
)
def test_squeeze_of_axes_that_are_not_known_has_no_known_rank(
    signature: str, node: str, wanted: list[str] | None
) -> None:
    # The library takes axes that are an input for none, and none for those that are 1 for certain.
    minus = "one = Constant <value_ints = [1]> () three = Constant <value_ints = [-3]> ()"
    text = f"({signature}) => (float y) {{ {minus} minus = Add (one, three) y = {node} }}"
    assert dims(text) == wanted


@pytest.mark.parametrize(("given", "wanted"), [("", ["_"]), ("<axis = 1>", None)])
def test_unique_along_an_axis_is_not_taken_for_a_list(given: str, wanted: list[str] | None) -> None:
    found = dims(f"(float[B, T, 8] x) => (float y) {{ y, i = Unique {given} (x) }}")
    assert found is None if wanted is None else found is not None
    assert found is None or [x if x in "BT8" else "_" for x in map(str, found)] == wanted


def test_sizes_that_differ_are_told_apart_without_simplify(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(expr: object) -> object:
        raise AssertionError(f"{expr} differs from 0 at nearly every size")

    monkeypatch.setattr("sympy.simplify", slow)
    a, b = (ir.SymbolicDim(x) for x in ("floor(Tq/2 + 7/2)", "floor(Tq/3 + Uq/5)"))
    assert not expressions.equal_dims(a, b)
    assert not expressions.equal_dims(ir.SymbolicDim("Max(Uq, 2)"), ir.SymbolicDim("Max(Uq, 900)"))


@pytest.mark.parametrize(
    ("dim", "names"),
    [
        (ir.SymbolicDim("floor((T + P)/2) + 1"), {"T", "P"}),
        (ir.SymbolicDim("ceiling(T/4)"), {"T"}),  # as the library writes it
        (math.ceil(ir.SymbolicDim("T") / 4), {"T"}),
        (ir.SymbolicDim("batch size"), {"batch size"}),
        (ir.SymbolicDim(None), set()),
        (7, set()),
    ],
)
def test_the_symbols_of_a_dim(dim: expressions.Dim, names: set[str]) -> None:
    assert expressions.symbols_of(dim) == names


@pytest.mark.parametrize(
    ("start", "known"), [("Shape <start = 1, end = 2> (past)", True), ("Shape (mask)", False)]
)
def test_as_many_rows_of_a_table_as_there_are_tokens_broadcast_with_them(
    start: str, known: bool
) -> None:
    """GPT-2 cuts its causal mask [past : past + tokens] of a table."""
    text = f"""(float[B, S, 4] x, float[B, P, 4] past, float[M] mask) => (float[B, C, 4] y)
        <float[9, 4] rows = {{{", ".join(["0"] * 36)}}}, int64[1] axis = {{0}}> {{
        before = Shape <start = 1, end = 2> (past) new = Shape <start = 1, end = 2> (x)
        end = Add (before, new) begin = {start} part = Slice (rows, begin, end, axis)
        y = Add (x, part) }}"""
    assert (dims(text) == ["B", "S", "4"]) is known


# Slices and pools ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opset", "slice_text", "expected"),
    [
        (9, "y = Slice <axes = [1], starts = [1], ends = [-1]> (x)", ["B", "Max(0, T - 2)", "8"]),
        (17, "y = Slice (x, s, s, ax)", ["?", "?", "?"]),
        # An end that a caller gives says nothing of one axis, and the others keep their length.
        (17, "y = Slice (x, one, e, one)", ["B", "?", "8"]),
        # Which axes are cut follows from how many starts there are.
        (17, "y = Slice (x, s, s)", ["?", "T", "8"]),
        (17, "y = Slice (x, zero, one, one, zero)", ["B", "?", "8"]),
        (
            17,
            "n = Shape <start = 1, end = 2> (x) y = Slice (x, n, far, one, down)",
            ["B", "?", "8"],
        ),
        (17, "y = Slice (x, down, far, one, down)", ["B", "T", "8"]),
    ],
)
def test_what_a_slice_leaves(opset: int, slice_text: str, expected: list[str]) -> None:
    model = ir.from_onnx_text(
        f"""<ir_version: 8, opset_import: ["" : {opset}]>
        m (float[B, T, 8] x, int64[1] s, int64[1] e, int64[1] ax) => (float[Z] y)
        <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] down = {{-1}},
         int64[1] far = {{-9223372036854775807}}> {{ {slice_text} }}"""
    )
    found = shapes_of(model).dims(value(model, "y"))
    assert found is not None
    assert ["?" if GENERATED_SYMBOL.search(str(x)) else str(x) for x in found] == expected


@pytest.mark.parametrize("length", [1, 2, 5, 6, 7])
def test_a_lp_pool_whose_last_window_hangs_over_the_end(length: int) -> None:
    model = ir.from_onnx_text(
        """<ir_version: 8, opset_import: ["" : 18]> m (float[1, 1, T] x) => (float[1, 1, N] y) {
            y = LpPool <kernel_shape = [3], strides = [4], pads = [2, 2], ceil_mode = 1> (x) }"""
    )
    (_, _, dim) = shapes_of(model).dims(value(model, "y")) or (None, None, None)
    assert dim is not None
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString())
    (y,) = session.run(None, {"x": np.ones((1, 1, length), np.float32)})
    computed = expressions.compile_dim(dim)({"T": np.array([length])})
    assert computed.tolist() == [y.shape[2]]


def test_dims_are_known_that_follow_from_the_inputs() -> None:
    body = """(float[B, T] x, int64[2] shape) => (float[B, T] y) {
        y = Neg (x)  n = NonZero (x)  r = Reshape (x, shape)  k = Transpose (n) }"""
    model, shapes = look(body)
    assert shapes.has_known_dims(value(model, "y"))
    assert not shapes.has_known_dims(value(model, "n"))
    assert not shapes.has_known_dims(value(model, "k"))
    assert not shapes.has_known_dims(ir.Value(name="other"))
