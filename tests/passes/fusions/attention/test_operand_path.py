"""Tensors on the way to and from an attention: what each is made of, and times which factor."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.facts.view import View
from graphfix.passes.fusions.attention.axis_layout import Atom, Layout, operand_layout
from graphfix.passes.fusions.attention.operand_path import (
    Shift,
    TracedTensor,
    heads_in,
    is_read_once,
    keeps_dims,
    only_reader,
    scaling_of,
    trace_back,
    trace_forward,
)
from tests.passes.models import model

INPUTS = """(float[B, 2, T, 8] x, float[B, T, 16] rows, float[B, 2, 8, T] q, float[B, 2, P, 8] past,
    float[C, 2, P, 8] other, float[B, 2, P, 4] thin, float[B, 2, 1, 8] new, float any,
    float[B, 2, 8] flat, int64[2] fed, float[B, 1, T, 8] single, bool[B, 2, T, 8] which,
    float[T, 8] lone, float[1, 1, T, 8] angles)"""
CONSTANTS = """<float half = {0.5}, float two = {2}, float nil = {0}, float one = {1},
    float thousand = {1000}, float[1] unit = {0.25}, float[1, 1, 1, 1] deep = {0.25},
    float[1, 1, 1, 1, 1] deeper = {0.25}, float[2] twice = {3, 3}, float[1, 1, 1, 8] wide = {WIDE},
    float[16, 16] w = {WEIGHT}, float[16] bias = {BIAS}, float[2, 1, 8] bias_of_heads = {BIAS},
    float[1, 1, 16] bias3 = {BIAS}, float[8] bias_of_all = {WIDE},
    float[2, 1, 1] of_heads = {1, 2},
    float[2, 1, 16] of_batch = {TWO}, float[3, 1] of_times = {1, 2, 3},
    int64[4] split = {0, 0, 2, 8}, int64[3] merge = {0, 0, 16}, int64[4] often = {1, 2, 1, 1},
    int64[1] a0 = {0}, int64[1] four = {4}, int64[1] end = {9}, int64[1] last = {3},
    int64 count = {3},
    float[32] vector = {TWO}, float[2, 16] matrix = {TWO}, int64[2] parts = {16, 16},
    int64[1] a1 = {1}, int64[2] shape = {1, 1}, int64 negative = {-7}, int64 two_whole = {2}>"""
for name, count in (("WIDE", 8), ("BIAS", 16), ("TWO", 32), ("WEIGHT", 256)):
    CONSTANTS = CONSTANTS.replace(name, ", ".join(map(str, range(1, count + 1))))
PROJECTED = "p = MatMul (rows, w)"


@cache
def graph(body: str) -> tuple[ir.Model, View]:
    m = model(f"m {INPUTS} => (float y) {CONSTANTS} {{ {body} }}", 17)
    m.graph.outputs[0].shape = None
    return m, View(m)


def value_of(m: ir.Model, name: str) -> ir.Value:
    return next(x for node in m.graph for x in node.outputs if x.name == name)


def traced(body: str, roles: str = "bbqf") -> list[TracedTensor]:
    """Trace t back, which a product reads."""
    m, view = graph(f"{body} y = MatMul (q, t)")
    value, long = value_of(m, "t"), {x[0]: x for x in ("batch", "query", "key", "feature")}
    layout = operand_layout(view.shapes.dims(value) or (), [long[x] for x in roles])
    return trace_back(value, layout, m.graph[-1], view)


def shown(tensors: list[TracedTensor]) -> list[str]:
    """Return each tensor as its name, factor and kernels, such as ``x 0.5 1``."""
    return [f"{x.value.name} {x.factor:g} {x.freed}" for x in tensors]


ROTATED = """a = Slice (x, a0, four, last) b = Slice (x, four, end, last) n = Neg (b)
    turned = Concat <axis = -1> (n, a) ff = Concat <axis = -1> (f, f) cos = Cos (ff)
    sin = Sin (ff) c = Mul (x, cos) d = Mul (turned, sin) r = Add (c, d)""".replace(
    "ff = Concat", "f = Slice (angles, a0, four, last) ff = Concat"
)


@pytest.mark.parametrize(
    ("body", "tensors"),
    [
        ("t = Mul (x, half)", ["t 1 0", "x 0.5 1"]),
        ("t = Mul (half, x)", ["t 1 0", "x 0.5 1"]),
        ("t = Div (x, two)", ["t 1 0", "x 0.5 1"]),
        ("t = Div (two, x)", ["t 1 0"]),
        ("a = Mul (x, half) t = Div (a, two)", ["t 1 0", "a 0.5 1", "x 0.25 2"]),
        ("t = Relu (x)", ["t 1 0"]),
        ("r = Reshape (rows, split) t = Transpose <perm = [0, 2, 1, 3]> (r)",
         ["t 1 0", "r 1 1", "rows 1 2"]),
        ("a = Mul (rows, half) r = Reshape (a, split) t = Transpose <perm = [0, 2, 1, 3]> (r)",
         ["t 1 0", "r 1 1", "a 1 2", "rows 0.5 3"]),
        ("r = Relu (x) t = Identity (r)", ["t 1 0", "r 1 1"]),
        # A rotation of all features, and what comes before and after it.
        (f"{ROTATED} t = Mul (r, half)", ["t 1 0", "r 0.5 1", "x 0.5 7"]),
        # What is added before a rotation is no bias.
        (f"{PROJECTED} s = Reshape (p, split) v = Transpose <perm = [0, 2, 1, 3]> (s) "
         f"z = Add (v, bias_of_heads) {ROTATED} t = Identity (r)".replace("(x,", "(z,")
         .replace("Mul (x", "Mul (z"), ["t 1 0", "r 1 1", "z 1 7"]),
    ],
)  # fmt: skip
def test_factors_layouts_and_rotations_are_traced_back(body: str, tensors: list[str]) -> None:
    assert shown(traced(body)) == tensors


def test_only_one_rotation_is_traced() -> None:
    second = ROTATED
    for name in ("a", "b", "n", "c", "d", "turned", "r"):
        second = second.replace(f"{name} = ", f"{name}_2 = ")
        second = second.replace(f"({name},", f"({name}_2,").replace(f" {name})", f" {name}_2)")
    second = second.replace("(n)", "(n_2)").replace("(b)", "(b_2)").replace("(x,", "(r,")
    second = second[: second.index("f = Slice")] + second[second.index("c_2 = ") :]
    tensors = traced(f"{ROTATED} {second} t = Identity (r_2)")
    assert shown(tensors) == ["t 1 0", "r_2 1 1", "r 1 7"]
    assert tensors[-1].rotation is not None


@pytest.mark.parametrize(
    ("body", "tensors", "shift"),
    [
        ("t = Add (v, bias_of_heads)", ["t 1 0", "v 1 1"], (1, [*range(1, 17)])),
        ("t = Add (bias_of_heads, v)", ["t 1 0", "v 1 1"], (1, [*range(1, 17)])),
        ("t = Add (v, bias_of_all)", ["t 1 0", "v 1 1"], (1, [*range(1, 9)] * 2)),
        ("t = Add (v, half)", ["t 1 0", "v 1 1"], (1, [0.5] * 16)),
        ("t = Add (v, of_heads)", ["t 1 0", "v 1 1"], (1, [1] * 8 + [2] * 8)),
        ("a = Add (v, bias_of_heads) t = Mul (a, half)", ["t 1 0", "a 0.5 1", "v 0.5 2"],
         (0.5, [*range(1, 17)])),
        ("a = Mul (v, half) t = Add (a, bias_of_heads)", ["t 1 0", "a 1 1", "v 0.5 2"],
         (1, [*range(1, 17)])),
        # Somebody else reads heads with their bias: they take it off again, at no kernel less.
        ("a = Add (v, bias_of_heads) z = Relu (a) t = Identity (a)", ["t 1 0", "a 1 1", "v 1 1"],
         (1, [*range(1, 17)])),
        ("a = Add (v, bias_of_heads) z = Shape (a) t = Identity (a)", ["t 1 0", "a 1 1", "v 1 2"],
         (1, [*range(1, 17)])),
        ("t = Add (v, of_times)", ["t 1 0"], None),
        ("t = Add (v, v)", ["t 1 0"], None),
        ("t = Sub (v, bias_of_all)", ["t 1 0"], None),
        # An input has no projection that could have taken the bias.
        ("z = Identity (v) t = Add (x, bias_of_heads)", ["t 1 0"], None),
        ("t = Add (h, bias_of_heads)", ["t 1 0"], None),  # it has fewer heads than the sum
    ],
)  # fmt: skip
def test_a_bias_of_heads_is_a_shift(
    body: str, tensors: list[str], shift: tuple[float, list[float]] | None
) -> None:
    split = f"{PROJECTED} s = Reshape (p, split) v = Transpose <perm = [0, 2, 1, 3]> (s)"
    result = traced(f"{split} h = Neg (single) {body}")
    assert shown(result)[: len(tensors)] == tensors
    last = result[len(tensors) - 1]
    assert len(last.shifts) == (shift is not None)
    if shift is None:
        assert len(result) == len(tensors)
        return
    own_atoms = tuple(x for x in last.layout.order if isinstance(x.size, int))
    row = last.shifts[0].as_row(own_atoms, last.factor)
    assert row is not None
    factor, numbers = shift
    np.testing.assert_array_equal(row, [x * factor / last.factor for x in numbers])


@pytest.mark.parametrize(
    ("body", "is_shift"),
    [
        ("b = Add (p, bias)", True),
        ("b = Add (p, bias3)", True),
        ("b = Add (bias, p)", True),
        ("b = Add (p, of_batch)", False),
        ("b = Add (p, of_times)", False),
        ("b = Add (rows, bias)", False),
        ("b = Add (p, bias) z = Relu (b)", False),  # somebody else reads the rows
        ("b = Add (p, bias) z = Shape (b)", True),
        ("i, j = Split <axis = 0> (vector, parts) b = Add (p, i)", True),
        ("i, j = Split <axis = 0> (vector, parts) b = Add (p, j)", True),
        ("i, j = Split <axis = 0> (matrix, shape) b = Add (p, j)", False),
        ("i, j = Split <axis = 0> (vector, fed) b = Add (p, i)", False),
        ("i = Neg (bias) b = Add (p, i)", False),
    ],
)
def test_a_bias_of_rows_is_a_shift(body: str, *, is_shift: bool) -> None:
    result = traced(
        f"{PROJECTED} {body} s = Reshape (b, split) t = Transpose <perm = [0, 2, 1, 3]> (s)"
    )
    assert shown(result)[:2] == ["t 1 0", "s 1 1"]
    assert shown(result)[3:] == (["p 1 3"] if is_shift else [])
    if is_shift:
        (shift,) = result[-1].shifts
        first = 17 if "(p, j)" in body else 1
        row = shift.as_row([x for x in shift.atoms if isinstance(x.size, int)], 1)
        assert row is not None
        assert [*row] == [*range(first, first + 16)]


def atoms(*sizes: int) -> tuple[Atom, ...]:
    return tuple(Atom("batch", x) for x in sizes)


def test_a_shift_is_spread_over_the_heads_and_features() -> None:
    heads, features, other = atoms(2, 3, 4)
    array, unknown = np.arange(6).reshape(2, 3), Atom("batch", ir.SymbolicDim("B"))
    both, of_heads, of_features = (
        Shift(array, (heads, features), 3.0),
        Shift(array[:, 0], (heads,), 1.0),
        Shift(array[0], (features,), 1.0),
    )
    rows: list[tuple[Shift, tuple[Atom, ...], float, list[int] | None]] = [
        (both, (heads, features), 1.5, [0, 2, 4, 6, 8, 10]),
        (both, (features, heads), 3.0, [0, 3, 1, 4, 2, 5]),
        (both, (heads,), 3.0, None),
        (both, (heads, other), 3.0, None),
        (of_heads, (heads, features), 1.0, [0, 0, 0, 3, 3, 3]),
        (of_features, (heads, features), 1.0, [0, 1, 2, 0, 1, 2]),
        (of_features, (unknown, features), 1.0, None),
    ]
    for shift, axes, factor, expected in rows:
        row = shift.as_row(axes, factor)
        assert (None if row is None else [*row]) == expected


JOINED = "t = Concat <axis = 2> (past, x)"


@pytest.mark.parametrize(
    ("body", "tensors", "past"),
    [
        (JOINED, ["t 1 0", "x 1 1"], "past"),
        ("t = Concat <axis = -2> (past, x)", ["t 1 0", "x 1 1"], "past"),
        ("t = Concat <axis = 2> (past, new)", ["t 1 0", "new 1 1"], "past"),
        ("j = Concat <axis = 2> (past, x) t = Mul (j, half)", ["t 1 0", "j 0.5 1", "x 0.5 2"],
         "past"),
        # What is done to the new keys alone: a factor is none of all keys.
        ("n = Mul (x, half) t = Concat <axis = 2> (past, n)", ["t 1 0", "n 1 1"], "past"),
        ("r = Reshape (rows, split) n = Transpose <perm = [0, 2, 1, 3]> (r) "
         "t = Concat <axis = 2> (past, n)", ["t 1 0", "n 1 1", "r 1 2", "rows 1 3"], "past"),
        ("n = Concat <axis = 2> (past, x) t = Concat <axis = 2> (past, n)", ["t 1 0", "n 1 1"],
         "past"),
        ("t = Concat <axis = 2> (past, x, x)", ["t 1 0"], None),
        ("t = Concat <axis = 2> (x)", ["t 1 0"], None),
        ("t = Concat <axis = 1> (x, x)", ["t 1 0"], None),
        ("t = Concat <axis = 2> (other, x)", ["t 1 0"], None),
        ("t = Add (past, past)", ["t 1 0"], None),
        # What lies between the join and the product is read by nothing else.
        ("j = Concat <axis = 2> (past, x) t = Mul (j, half) z = Relu (t)", ["t 1 0", "j 0.5 1"],
         None),
        ("j = Concat <axis = 2> (past, x) t = Mul (j, half) z = Relu (j)",
         ["t 1 0", "j 0.5 1", "x 0.5 2"], "past"),
        # A bias of all keys is none of those of a past.
        ("j = Concat <axis = 2> (past, x) t = Add (j, bias_of_heads)", ["t 1 0", "j 1 1"], None),
        ("j = Concat <axis = 2> (past, x) k = Mul (j, half) t = Add (k, k)", ["t 1 0"], None),
    ],
)  # fmt: skip
def test_a_past_is_joined_in_front(body: str, tensors: list[str], past: str | None) -> None:
    result = traced(body, "bbkf")
    assert shown(result) == tensors
    joined = result[-1].past
    assert (joined is None) == (past is None)
    if joined is not None:
        assert joined.value.name == past
        assert joined.heads == 2
        assert joined.node.op_type == "Concat"
        assert joined.reader in [use.node for use in joined.node.outputs[0].uses()]
        assert joined.reader not in joined.other_readers
        assert len(joined.other_readers) == len([*joined.node.outputs[0].uses()]) - 1
        new_dims = [str(x) for x in result[-1].layout.order[-2:] if x.role == "key"]
        assert len(new_dims) == ("new" not in body)


@pytest.mark.parametrize("roles", ["bbqf", "bqkf", "kbkf", "bbkq", "bbfk"])
def test_what_is_joined_are_keys_of_heads(roles: str) -> None:
    assert shown(traced(JOINED, roles)) == ["t 1 0"]


def test_a_past_of_keys_that_are_turned_is_none() -> None:
    result = traced(f"{ROTATED} j = Concat <axis = 2> (past, r) t = Identity (j)", "bbkf")
    assert shown(result) == ["t 1 0", "j 1 1", "r 1 2", "x 1 8"]
    assert result[-1].rotation is not None
    assert result[-1].past is not None


def test_a_tensor_is_followed_through_layouts_alone() -> None:
    body = """r = Transpose <perm = [0, 2, 1, 3]> (y0) s = Reshape (r, merge) y = Relu (s)"""
    m, view = graph(f"y0 = Relu (x) {body}")
    layout = operand_layout(view.shapes.dims(m.graph[0].outputs[0]) or (), ["batch"] * 4)
    assert shown(trace_forward(m.graph[0].outputs[0], layout, view)) == ["y0 1 0", "r 1 1", "s 1 2"]
    for more in ("z = Neg (r)", "z = Add (r, r)"):
        m, view = graph(f"y0 = Relu (x) {more} {body}".replace(f"{more} r = ", "r = ") + f" {more}")
        layout = operand_layout(view.shapes.dims(m.graph[0].outputs[0]) or (), ["batch"] * 4)
        assert shown(trace_forward(m.graph[0].outputs[0], layout, view)) == ["y0 1 0", "r 1 1"]
    # A tensor that is a target shape is none of the data.
    m, view = graph("s = Shape (x) y = Reshape (x, s)")
    assert shown(trace_forward(m.graph[0].outputs[0], Layout((), ()), view)) == ["s 1 0"]


def test_readers_are_counted() -> None:
    m, _ = graph("a = Relu (x) b = Neg (a) c = Add (b, b) d = Shape (c) e = Abs (c) y = Neg (e)")
    once = {x.name for node in m.graph for x in node.outputs if is_read_once(x)}
    alone = {x.name for node in m.graph for x in node.outputs if only_reader(x)}
    assert once == {"a", "c", "d", "e"}
    assert alone == {"a", "e"}
    assert only_reader(m.graph[0].outputs[0]) is m.graph[1]


@pytest.mark.parametrize(
    ("node", "factor"),
    [
        ("y = Mul (x, half)", 0.5),
        ("y = Mul (unit, x)", 0.25),
        ("y = Mul (x, deep)", 0.25),
        ("y = Mul (x, deeper)", None),  # it adds a dim
        ("y = Mul (lone, deep)", None),
        ("y = Mul (x, wide)", None),
        ("y = Mul (x, nil)", None),
        ("y = Mul (x, any)", None),
        ("y = Mul (x, x)", None),
        ("y = Div (x, two)", 0.5),
        ("y = Div (x, nil)", None),
        ("y = Div (half, x)", None),
        ("y = Add (x, half)", None),
        # A number that is computed.
        ("n = Sqrt (unit) y = Mul (x, n)", 0.5),
        ("n = Exp (thousand) y = Mul (x, n)", None),
        ("n = Div (one, nil) y = Mul (x, n)", None),
        ("n = Div (one, two) y = Div (x, n)", 2.0),
        ("n = Reshape (unit, shape) y = Mul (x, n)", 0.25),
        ("n = Expand (half, shape) y = Mul (x, n)", 0.5),
        ("n = Mul (half, any) y = Mul (x, n)", None),
        ("n = Mul (any, half) y = Mul (x, n)", None),
        ("n = Clip (half) y = Mul (x, n)", None),
        ("n = Sqrt (twice) y = Mul (x, any)", None),
        ("n = Cast <to = 1> (count) y = Mul (x, n)", 3.0),
        ("c = Div (negative, two_whole) n = Cast <to = 1> (c) y = Mul (x, n)", -3.0),
        # A size of the graph that is a number, and one that is not.
        ("s = Shape <start = 3> (x) n = Cast <to = 1> (s) y = Mul (x, n)", 8.0),
        ("s = Shape <start = 2, end = 3> (x) n = Cast <to = 1> (s) y = Mul (x, n)", None),
        ("s = Shape <start = 1> (flat) n = Cast <to = 1> (s) y = Mul (x, any)", None),
    ],
)
def test_what_scales(node: str, factor: float | None) -> None:
    m, view = graph(node)
    scaling = scaling_of(m.graph[-1], view)
    assert (None if scaling is None else scaling[1]) == factor
    assert scaling is None or scaling[0].name == "x"


def test_a_number_is_computed_from_few_nodes() -> None:
    for count, known in ((14, True), (15, False)):
        chain = " ".join(f"n{i + 1} = Neg (n{i})" for i in range(count))
        m, view = graph(f"n0 = Neg (half) {chain} y = Mul (x, n{count})")
        assert (scaling_of(m.graph[-1], view) is not None) == known


@pytest.mark.parametrize(
    ("node", "except_last", "may_add_dims", "keeps"),
    [
        ("y = Add (x, half)", 0, False, True),
        ("y = Add (x, deeper)", 0, False, False),
        ("y = Add (x, deeper)", 0, True, True),
        ("y = Add (x, deeper)", 2, True, True),
        ("y = MatMul (x, q)", 0, False, False),
        ("y = MatMul (x, q)", 1, False, True),
        ("y = MatMul (q, x)", 1, False, True),
        ("y = Add (single, x)", 0, False, False),
        ("y = Add (single, x)", 2, False, False),
        ("y = Add (single, x)", 3, False, True),
        ("y = Add (lone, x)", 0, True, False),  # what comes in front is not 1
        ("y = Add (any, half)", 0, False, True),
    ],
)
def test_which_dims_are_kept(
    node: str, except_last: int, *, may_add_dims: bool, keeps: bool
) -> None:
    m, view = graph(node)
    source = m.graph[-1].inputs[0]
    assert source is not None
    assert keeps_dims(m.graph[-1], source, view, except_last, may_add_dims=may_add_dims) == keeps


@pytest.mark.parametrize(
    ("axes", "heads"),
    [
        ("b3|q5|h2 f8", 2),
        ("b3|q5|f8", None),
        ("b3|q5|h2|f8", 2),  # heads beside the features, behind the queries
        ("b3|h2|q5|f8", None),
        ("b3|k5|h2|f8", 2),
        ("b3|q5|h2|h4|f8", 4),
        ("b3|q5|h2 h4 f8", 8),
        ("b3|h2|f8", None),
        ("q5|h2 f8|", 2),  # an axis of 1 at the end
        ("q5|f8 h2", None),
        ("", None),
        ("q5|hN f8", None),
        ("q5|h1 f8", None),
    ],
)
def test_heads_lie_beside_the_features(axes: str, heads: int | None) -> None:
    roles = {"b": "batch", "h": "batch", "q": "query", "k": "key", "f": "feature"}
    groups = [
        tuple(
            Atom(roles[x[0]], int(x[1:]) if x[1:].isdigit() else ir.SymbolicDim(x[1:]))
            for x in axis.split()
        )
        for axis in axes.split("|")
    ]
    order = tuple(x for axis in groups for x in axis)
    m, _ = graph("y = Relu (x)")
    tensor = TracedTensor(m.graph.inputs[0], Layout(tuple(groups), order))
    assert heads_in(tensor) == heads
