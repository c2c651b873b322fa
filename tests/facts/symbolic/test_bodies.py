"""Shapes of operators with bodies: If, Loop, Scan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir
import pytest

from graphfix.facts.shapes import shapes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

HEAD = '<ir_version: 10, opset_import: ["" : 17]>\n'


def dims_of(text: str, name: str = "y") -> list[str] | None:
    model = ir.from_onnx_text(HEAD + text)
    values = {x.name: x for node in model.graph for x in node.outputs}
    dims: Sequence[object] | None = shapes_of(model).dims(values[name])
    return None if dims is None else [*map(str, dims)]


@pytest.mark.parametrize(
    ("then", "other", "dims"),
    [
        ("p = Neg (x)", "q = Abs (x)", ["B", "4"]),
        ("p = Neg (x)", "q = Reshape (x, k)", None),
        ("p = Reshape (x, k)", "q = Neg (x)", None),
    ],
)
def test_the_shape_of_an_if_is_that_of_both_branches(
    then: str, other: str, dims: list[str] | None
) -> None:
    text = f"""m (bool c, float[B, 4] x, int64[N] k) => (y) {{ y = If (c) <
        then_branch = a () => (p) {{ {then} }}, else_branch = b () => (q) {{ {other} }}> }}"""
    assert dims_of(text) == dims


LOOP = """m (int64 n, bool c, float[B, 4] x, float[B, 2] z) => (y, w, s) {{
    y, w, s = Loop ({count}, {cond}, x, z) <body = g
    (int64 i, bool go, float[P, Q] a, float[R, S] b) => (bool more, aa, bb, each)
    {{ more = Identity (go) aa = {first} bb = Neg (b) each = Neg (b) }}> }}"""


@pytest.mark.parametrize("cond", ["c", ""])
def test_what_a_loop_carries_keeps_its_shape(cond: str) -> None:
    text = LOOP.format(count="n", cond=cond, first="Neg (a)")
    assert dims_of(text) == ["B", "4"]
    assert dims_of(text, "w") == ["B", "2"]
    stacked = dims_of(text, "s")
    assert stacked is not None
    assert stacked[1:] == ["B", "2"]
    assert stacked[0] not in ("B", "2", "4")


@pytest.mark.parametrize("cond", ["c", ""])
def test_what_changes_its_shape_from_round_to_round_has_none(cond: str) -> None:
    text = LOOP.format(count="n", cond=cond, first="Concat <axis = 1> (a, b)")
    assert dims_of(text) is None
    model = ir.from_onnx_text(HEAD + text)
    shapes = shapes_of(model)
    (loop,) = model.graph
    assert [(str(a), str(b)) for a, b in shapes.carried_dims(loop)] == [("4", "6")]
    body = loop.attributes["body"].as_graph()
    assert all(shapes.dims(x) is None for x in (*body.inputs, *body[1].outputs))


def test_a_scan_gives_its_states_and_a_row_for_each_step() -> None:
    text = """m (float[B, 4] x, float[T, B, 4] z) => (y, s) {
        y, s = Scan <num_scan_inputs = 1> (x, z) <body = g (float[P, Q] a, float[R, S] b)
        => (aa, each) { aa = Add (a, b) each = Neg (b) }> }"""
    text = text.replace(
        "Scan <num_scan_inputs = 1> (x, z) <body", "Scan (x, z) <num_scan_inputs = 1, body"
    )
    assert dims_of(text) == ["B", "4"]
    stacked = dims_of(text, "s")
    assert stacked is None or stacked[1:] == ["B", "4"]
    grown = text.replace("aa = Add (a, b)", "aa = Concat <axis = 1> (a, b)")
    assert dims_of(grown) is None


def test_a_sequence_that_a_loop_appends_to() -> None:
    text = """m (int64 n, float[B, 4] x) => (y, z) { e = SequenceEmpty ()
        y, z = Loop (n, , e, x) <body = g (int64 i, bool go, seq(float[P, Q]) a, float[R, S] b)
        => (bool more, seq(float[U, V]) aa, float[R, S] bb)
        { more = Identity (go) bb = Neg (b) aa = SequenceInsert (a, bb) }> }"""
    assert dims_of(text, "z") == ["B", "4"]
