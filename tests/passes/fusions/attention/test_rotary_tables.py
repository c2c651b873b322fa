"""Tables of cosines and sines: which hold each number twice, and what their half is made of."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.facts.view import View
from graphfix.passes.fusions.attention.rotary_tables import (
    is_doubled,
    last_row_selection,
    trace_half,
)
from tests.passes.models import model

INPUTS = """(float[5, 4] f, float[5, 4] g, float[5, 3] odd, float[5, 1] one, float[8] vector,
    int64[2] rows, int64[5] places, float[B, 8] batch, float any, float[5, 2, 2] two)"""
TABLES = """<float[2, 4] halves = {1, 2, 1, 2, 3, 4, 3, 4},
    float[2, 4] pairs = {1, 1, 2, 2, 3, 3, 4, 4},
    float[4] row = {1, 2, 1, 2}, float[2, 4] wrong = {1, 2, 1, 2, 3, 4, 3, 5},
    float[2, 3] uneven = {1, 1, 1, 1, 1, 1}, float scalar = {7.0}, float half = {0.5},
    float[1] unit = {0.5}, float[1, 1] thin = {0.5}, float[4] gain = {1, 2, 3, 4},
    int64[2] flat = {0, -1}, int64[3] flat3 = {1, 5, 8}, int64[2] fifths = {8, 5},
    int64[3] often = {1, 1, 2}, int64[3] thrice = {1, 1, 3}, int64[1] last = {-1},
    int64[1] a0 = {0}, int64[1] a1 = {1}, int64[1] a2 = {2}, int64[1] three = {3},
    int64[1] eight = {8}, int64[2] larger = {5, 8}, int64[3] larger3 = {3, 5, 8},
    int64 column = {1}, int64[8] columns = {0, 1, 2, 3, 0, 1, 2, 3}>"""
DOUBLED = "t = Concat <axis = -1> (f, f)"
PAIRED = "u = Unsqueeze (f, last) e = Expand (u, often) t = Reshape (e, flat)"


@cache
def graph(body: str) -> tuple[ir.Model, View]:
    m = model(f"m {INPUTS} => (float y) {TABLES} {{ {body} }}", 17)
    m.graph.outputs[0].shape = None
    return m, View(m)


@pytest.mark.parametrize(
    ("body", "halves", "pairs"),
    [
        # Constants are read.
        ("y = Identity (halves)", True, False),
        ("y = Identity (row)", True, False),
        ("y = Identity (pairs)", False, True),
        ("y = Identity (wrong)", False, False),
        ("y = Identity (uneven)", False, False),
        ("y = Identity (scalar)", False, False),
        ("y = Cos (pairs)", False, True),
        ("y = Identity (batch)", False, False),
        # A tensor beside itself.
        ("y = Concat <axis = -1> (f, f)", True, False),
        ("y = Concat <axis = 1> (f, f)", True, False),
        ("c = Cos (f) d = Cos (f) y = Concat <axis = 1> (c, d)", True, False),
        ("y = Concat <axis = 0> (f, f)", False, False),
        ("y = Concat <axis = -1> (f, g)", False, False),
        ("y = Concat <axis = -1> (f, f, f)", False, False),
        ("y = Concat <axis = -1> (f)", False, False),
        # Two equal numbers in an axis of their own, which is merged.
        (f"{PAIRED} y = Cos (t)", False, True),
        ("u = Unsqueeze (f, last) e = Tile (u, often) y = Reshape (e, flat)", False, True),
        ("u = Unsqueeze (f, last) e = Expand (u, often) y = Flatten (e)", False, True),
        ("u = Unsqueeze (f, last) e = Concat <axis = 2> (u, u) y = Reshape (e, flat)", False, True),
        ("u = Unsqueeze (f, last) w = Unsqueeze (g, last) e = Concat <axis = 2> (u, w) "
         "y = Reshape (e, flat)", False, False),
        ("u = Unsqueeze (f, last) e = Expand (u, often) c = Sin (e) y = Reshape (c, flat)", False,
         True),
        ("y = Reshape (two, flat)", False, False),  # not known to be equal
        ("e = Neg (two) y = Reshape (e, flat)", False, False),
        ("e = Expand (two, often) y = Reshape (e, flat)", False, False),
        ("u = Unsqueeze (f, last) e = Expand (u, thrice) y = Reshape (e, flat)", False, False),
        ("u = Unsqueeze (f, last) e = Expand (u, often) y = Reshape (e, last)", False, True),
        ("u = Unsqueeze (odd, last) e = Expand (u, thrice) y = Reshape (e, flat)", False, False),
        # What is computed of each element, and what takes rows, or axes of 1.
        (f"{DOUBLED} y = Cos (t)", True, False),
        (f"{DOUBLED} y = Mul (t, half)", True, False),
        (f"{DOUBLED} y = Mul (unit, t)", True, False),
        (f"{DOUBLED} y = Mul (t, thin)", False, False),  # of more dims than it may have
        (f"{DOUBLED} y = Mul (t, gain)", False, False),
        ("y = Mul (half, unit)", False, False),
        (f"{DOUBLED} y = Mul (t, t)", False, False),
        (f"{DOUBLED} y = Unsqueeze (t, a0)", True, False),
        (f"{DOUBLED} y = Unsqueeze (t, last)", False, False),
        (f"{DOUBLED} y = Expand (t, larger3)", True, False),
        (f"{DOUBLED} y = Reshape (t, flat3)", True, False),
        (f"{DOUBLED} y = Reshape (t, fifths)", False, False),
        (f"{DOUBLED} y = Gather (t, rows)", True, False),
        (f"{DOUBLED} y = Gather (t, column)", True, False),
        (f"{DOUBLED} y = Gather <axis = 1> (t, columns)", False, False),
        (f"{DOUBLED} y = Gather <axis = -1> (t, columns)", False, False),
        ("y = Gather (vector, columns)", False, False),
        ("t = Concat <axis = 0> (row, row) y = Gather (t, columns)", False, False),
        (f"{DOUBLED} y = Slice (t, a0, three, a0)", True, False),
        (f"{DOUBLED} y = Slice (t, a0, three, a1)", False, False),
        (f"{DOUBLED} y = Transpose (t)", False, False),
        (f"{DOUBLED} y = Softmax (t)", False, False),
    ],
)  # fmt: skip
def test_a_table_holds_each_number_twice(body: str, *, halves: bool, pairs: bool) -> None:
    m, view = graph(body)
    assert is_doubled(m.graph.outputs[0], view, interleaved=False) == halves
    assert is_doubled(m.graph.outputs[0], view, interleaved=True) == pairs


def test_a_table_is_followed_over_sixteen_nodes() -> None:
    for count, known in ((15, True), (16, False)):
        chain = " ".join(f"n{i + 1} = Neg (n{i})" for i in range(count))
        m, view = graph(f"n0 = Concat <axis = -1> (f, f) {chain} y = Identity (n{count})")
        assert is_doubled(m.graph[count].outputs[0], view, interleaved=False) == known
        source, steps = trace_half(m.graph[count].outputs[0], view, is_half=False)
        assert (source.name == "f") == known
        assert len(steps) == (count if known else 0)


@pytest.mark.parametrize(
    ("body", "source", "steps"),
    [
        (DOUBLED, "f", []),
        (f"{DOUBLED} y = Cos (t)", "f", ["Cos 0"]),
        (f"{DOUBLED} y = Mul (t, half)", "f", ["Mul 0"]),
        (f"{DOUBLED} c = Cos (t) y = Mul (half, c)", "f", ["Cos 0", "Mul 1"]),
        (f"{DOUBLED} u = Unsqueeze (t, a0) y = Cos (u)", "f", ["Cos 0"]),
        (f"{DOUBLED} c = Cos (t) y = Gather (c, rows)", "f", ["Cos 0", "Gather 0"]),
        (f"{DOUBLED} c = Cos (t) s = Slice (c, a0, three, a0) y = Unsqueeze (s, a0)", "f",
         ["Cos 0", "Slice 0"]),
        (f"{DOUBLED} c = Cos (t) h = Mul (half, c) y = Gather (h, rows)", "f",
         ["Cos 0", "Mul 1", "Gather 0"]),
        # Rows are counted along axes as they are: what moves them in front is the source.
        (f"{DOUBLED} u = Unsqueeze (t, a1) c = Cos (u) y = Gather (c, rows)", None, []),
        # A shape is that of the whole table.
        (f"{DOUBLED} y = Expand (t, larger3)", None, []),
        (f"{DOUBLED} y = Reshape (t, flat3)", None, []),
        # Half of a constant is one.
        ("y = Cos (halves)", [[1, 2], [3, 4]], ["Cos 0"]),
        ("y = Gather (halves, rows)", [[1, 2], [3, 4]], ["Gather 0"]),
        ("y = Cos (row)", [1, 2], ["Cos 0"]),
        ("y = Identity (batch)", None, []),
        ("y = Concat <axis = -1> (f, g)", None, []),
        ("y = Concat <axis = 0> (f, f)", None, []),
        (f"{PAIRED} y = Cos (t)", None, []),
    ],
)  # fmt: skip
def test_half_of_a_table_is_made_of(
    body: str, source: str | list[object] | None, steps: list[str]
) -> None:
    m, view = graph(body)
    table = m.graph[-1].outputs[0]
    base, nodes = trace_half(table, view, is_half=False)
    assert [f"{x.op_type} {at}" for x, at in nodes] == steps
    if isinstance(source, list):
        np.testing.assert_array_equal(base, source)
    else:
        assert isinstance(base, ir.Value)
        assert base.name == (source or table.name)


@pytest.mark.parametrize(
    ("body", "source", "steps"),
    [
        ("c = Cos (f) y = Mul (c, half)", "f", ["Cos", "Mul"]),
        (DOUBLED, "t", []),  # the Concat makes the half, of which there is no half to take
        ("y = Cos (halves)", "halves", ["Cos"]),
        ("y = Expand (f, larger3)", "y", []),
        ("u = Unsqueeze (f, a0) y = Cos (u)", "f", ["Cos"]),
        # Nothing adds or drops axes in front of what selects rows.
        ("u = Unsqueeze (f, a1) c = Cos (u) y = Gather (c, rows)", "u", ["Cos", "Gather"]),
    ],
)
def test_a_table_that_is_half_already_is_traced_as_it_is(
    body: str, source: str, steps: list[str]
) -> None:
    m, view = graph(body)
    base, nodes = trace_half(m.graph[-1].outputs[0], view, is_half=True)
    assert isinstance(base, ir.Value)
    assert base.name == source
    assert [x.op_type for x, _ in nodes] == steps


def test_the_last_of_what_selects_rows() -> None:
    m, _ = graph("a = Gather (f, rows) b = Slice (a, a0, a1, a0) y = Cos (b)")
    steps = [(node, 0) for node in m.graph]
    selected = last_row_selection(steps)
    assert selected is not None
    assert selected.name == "b"
    assert last_row_selection(steps[-1:]) is None
