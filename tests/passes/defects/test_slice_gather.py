"""slice-gather: which parts of a tensor are looked up, what is left alone, and equal numbers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfix
from graphfix.graph.constants import ints_of
from tests.passes.models import execute, refusals

CONSTANTS = """<int64[1] s = {0}, int64[1] e = {18}, int64[1] a = {1}, int64[1] two = {2},
    int64[1] all = {20}, int64[3] r = {1, 20, 8}, int64[2] flat = {18, 8}, int64[2] both = {0, 2},
    int64[2] to = {18, 4}, int64[2] axes = {1, 2}, float half = {0.5},
    float[2, 1, 1] many = {1, 2}>"""


def model(body: str, given: str = "float[1, 20, 8] x", made: str = "float[P, Q, R] y") -> ir.Model:
    return ir.from_onnx_text(
        f'<ir_version: 8, opset_import: ["" : 17]> m ({given}) => ({made}) {CONSTANTS} {{ {body} }}'
    )


def run(m: ir.Model, x: np.ndarray) -> list[np.ndarray]:
    return execute(m, {"x": x})


SITES = {
    "before an activation": "z = Add (x, x) q = Slice (z, s, e, a) y = Tanh (q)",
    "before a sum": "z = Mul (x, half) q = Slice (z, s, e, a) y = Add (half, q)",
    "behind a Reshape": "z = Neg (x) p = Reshape (z, r) q = Slice (p, s, e, a) y = Relu (q)",
    "before a Reshape": """z = Neg (x) q = Slice (z, s, e, a) p = Reshape (q, flat) t = Relu (p)
        y = Unsqueeze (t, s)""",
    "up to a computed size": """z = Neg (x) l = Shape (x) i = Gather (l, a) c = Sub (i, two)
        q = Slice (z, s, c, a) y = Relu (q)""",
    "with a step of 1": "z = Neg (x) q = Slice (z, s, e, a, a) y = Relu (q)",
}


@pytest.mark.parametrize("body", SITES.values(), ids=SITES)
def test_rows_that_are_worked_on_alone_are_looked_up(body: str) -> None:
    before, after = model(body), model(body)
    assert len(graphfix.run(after, "slice-gather").passes[0].changes) == 1
    (gather,) = [x for x in after.graph if x.op_type == "Gather"]
    assert ints_of(gather.inputs[1]) == tuple(range(18))
    x = np.random.default_rng(0).standard_normal((1, 20, 8)).astype(np.float32)
    np.testing.assert_array_equal(run(after, x)[0], run(before, x)[0])


LEFT = {
    "another axis": "z = Neg (x) q = Slice (z, s, two, two) y = Relu (q)",
    "two axes": "z = Neg (x) q = Slice (z, both, to, axes) y = Relu (q)",
    "a step": "z = Neg (x) q = Slice (z, s, e, a, two) y = Relu (q)",
    "nothing is cut": "z = Neg (x) q = Slice (z, s, all, a) y = Relu (q)",
    "of an input": "q = Slice (x, s, e, a) y = Relu (q)",
    "read twice": "z = Neg (x) q = Slice (z, s, e, a) y = Add (q, q)",
    "the whole is read, too": """z = Neg (x) q = Slice (z, s, e, a) t = Relu (q) m = ReduceMax (z)
        y = Add (t, m)""",
    "before a Softmax": "z = Neg (x) q = Slice (z, s, e, a) y = Softmax (q)",
    "before a Where": "z = Neg (x) c = IsNaN (half) q = Slice (z, s, e, a) y = Where (c, half, q)",
    "an output": "z = Neg (x) y = Slice (z, s, e, a)",
    "no row is left": "z = Neg (x) q = Slice (z, e, s, a) y = Relu (q)",
    "what is added makes it larger": "z = Neg (x) q = Slice (z, s, e, a) y = Add (q, many)",
    "what is added makes it larger behind a view": """z = Neg (x) q = Slice (z, s, e, a)
        p = Reshape (q, flat) y = Add (p, many)""",
}


@pytest.mark.parametrize("body", LEFT.values(), ids=LEFT)
def test_what_directml_loads_stays(body: str) -> None:
    m = model(body)
    assert not refusals(m, "slice-gather")


OUT = "float[P, Q, R] y"


@pytest.mark.parametrize(
    "made",
    [f"{OUT}, float[1, 20, 8] z", f"{OUT}, float[1, 18, 8] q"],
    ids=["the whole", "the part"],
)
def test_an_output_of_the_graph_is_read_by_the_caller(made: str) -> None:
    m = model("z = Neg (x) q = Slice (z, s, e, a) y = Relu (q)", made=made)
    assert not graphfix.run(m, "slice-gather").changed


BRANCHES = {
    "inside a branch": ("", "z = Neg (x) q = Slice (z, s, e, a) t = Relu (q)"),
    "read in a branch": ("z = Neg (x) q = Slice (z, s, e, a)", "t = Relu (q)"),
}


@pytest.mark.parametrize(("before", "inside"), BRANCHES.values(), ids=BRANCHES)
def test_around_an_if_nothing_is_compiled(before: str, inside: str) -> None:
    m = model(
        f"""{before} y = If <
            then_branch = g () => (float[1, 18, 8] t) {{ {inside} }},
            else_branch = h () => (float[1, 18, 8] u) {{ u = Expand (half, big) }}> (c)""",
        given="float[1, 20, 8] x, bool c, int64[3] big",
        made=OUT,
    )
    assert not graphfix.run(m, "slice-gather").changed


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("float[B, 20, 8] x", "float[B, 18, 8] y"),
        ("float[1, 20, D] x", "float[1, 18, D] y"),
        ("float[2, 20, 8] x", "float[2, 18, 8] y"),
    ],
    ids=["a batch of any size", "features of any size", "two rows"],
)
def test_open_sizes_and_several_rows_stay(given: str, made: str) -> None:
    assert not graphfix.run(
        model(SITES["before an activation"], given, made), "slice-gather"
    ).changed


def test_a_slice_of_opset_9_has_attributes() -> None:
    text = """<ir_version: 8, opset_import: ["" : 9]> m (float[1, 6] x) => (float[1, 3] y)
        { z = Neg (x) q = Slice <starts = [-5], ends = [-2], axes = [1]> (z) y = Relu (q) }"""
    before, after = ir.from_onnx_text(text), ir.from_onnx_text(text)
    assert graphfix.run(after, "slice-gather").changed
    x = np.arange(-6, 0, dtype=np.float32)[None]
    np.testing.assert_array_equal(run(after, x)[0], run(before, x)[0])


@settings(max_examples=60, deadline=None)
@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    axis=st.integers(-4, 3),
    start=st.integers(-7, 7),
    end=st.integers(-7, 7),
)
def test_every_number_is_kept(shape: list[int], axis: int, start: int, end: int) -> None:
    axis = axis % len(shape) - (len(shape) if axis < 0 else 0)
    dims, made = ", ".join(map(str, shape)), ", ".join("PQRS"[: len(shape)])
    text = f"""<ir_version: 8, opset_import: ["" : 17]> m (float[{dims}] x) => (float[{made}] y)
        <int64[1] s = {{{start}}}, int64[1] e = {{{end}}}, int64[1] a = {{{axis}}}>
        {{ z = Neg (x) q = Slice (z, s, e, a) y = Relu (q) }}"""
    before, after = ir.from_onnx_text(text), ir.from_onnx_text(text)
    graphfix.run(after, "slice-gather")
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    np.testing.assert_array_equal(run(after, x)[0], run(before, x)[0])


def test_after_fix_dims_the_profile_has_it() -> None:
    m = model(SITES["before an activation"], "float[B, 20, 8] x", "float[B, 18, 8] y")
    graphfix.run(m, "directml,fix-dims:B=1")
    assert [x.op_type for x in m.graph] == ["Add", "Gather", "Tanh"]
    assert not graphfix.run(m, "directml").changed
