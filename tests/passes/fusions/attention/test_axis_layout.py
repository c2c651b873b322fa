"""Roles of axes behind Reshapes, Transposes and Expands, and in front of them."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import pytest

from graphfix.facts.shapes import Dim
from graphfix.facts.view import View
from graphfix.passes.fusions.attention.axis_layout import (
    Atom,
    Layout,
    layout_after,
    layout_before,
    operand_layout,
    passes_through,
    regroup_atoms,
    size_of,
)
from tests.passes.models import model

SHORT = {"batch": "b", "query": "q", "key": "k", "feature": "f"}


def dims_of(text: str) -> list[Dim]:
    return [int(x) if x.isdigit() else ir.SymbolicDim(x) for x in text.split()]


def shown(layout: Layout | None) -> list[str] | None:
    """Return each axis as its atoms, such as ``bB f64``."""
    if layout is None:
        return None
    return [" ".join(f"{SHORT[x.role]}{x.size}" for x in axis) for axis in layout.axes]


def heads(dims: str = "B H T 64") -> Layout:
    return operand_layout(dims_of(dims), ("batch", "batch", "query", "feature"))


def test_an_operand_has_an_atom_for_each_axis_but_those_of_one() -> None:
    layout = heads("B 1 T 64")
    assert shown(layout) == ["bB", "", "qT", "f64"]
    assert layout.order == layout.flat_atoms
    assert [x.role for x in layout.batch_atoms] == ["batch"]
    assert [str(x.size) for x in layout.atoms_with_roles("query", "feature")] == ["T", "64"]
    assert layout.keeps_operand_order


def test_an_operand_is_repeated_where_the_result_is_longer() -> None:
    layout = operand_layout(
        dims_of("B 1 T 64"), ("batch", "batch", "query", "feature"), batch_dims=dims_of("B 8")
    )
    assert shown(layout) == ["bB", "", "qT", "f64"]
    assert [str(x.size) for x in layout.order] == ["B", "8", "T", "64"]
    assert [str(x.size) for x in layout.repeated] == ["8"]
    assert [str(x.size) for x in layout.batch_atoms] == ["B", "8"]
    assert [str(x.size) for x in layout.atoms_with_roles("batch")] == ["B"]
    assert layout.keeps_operand_order


@pytest.mark.parametrize(
    ("dims", "axes"),
    [
        ("B H T 64", ["bB", "bH", "qT", "f64"]),
        ("B*H T 64", ["bB bH", "qT", "f64"]),
        ("B H T 4 16", ["bB", "bH", "qT", "f4", "f16"]),
        ("B 1 H T 8 2 4", ["bB", "", "bH", "qT", "f8", "f2", "f4"]),
        ("B H T*4 16", ["bB", "bH", "qT f4", "f16"]),
        ("B*H*T*64", ["bB bH qT f64"]),
        ("B T H 64", None),
        ("B H T 3 16", None),
        ("B H T", None),
        ("B H T 64 2", None),
    ],
)
def test_a_reshape_regroups_the_atoms(dims: str, axes: list[str] | None) -> None:
    layout = heads()
    result = regroup_atoms(layout, dims_of(dims))
    assert shown(result) == axes
    if result is not None:
        assert result.order == result.flat_atoms
        assert result.keeps_operand_order
        assert str(size_of(result.flat_atoms)) == str(size_of(layout.flat_atoms))


def test_atoms_that_are_not_split_are_themselves() -> None:
    layout = heads()
    result = regroup_atoms(layout, dims_of("B*H T 4 16"))
    assert result is not None
    assert result.flat_atoms[:3] == layout.flat_atoms[:3]
    assert not {*result.flat_atoms[3:]} & {*layout.flat_atoms}


def test_the_order_and_the_repeated_atoms_outlive_a_reshape() -> None:
    atoms = [Atom("batch", 8), Atom("query", ir.SymbolicDim("T")), Atom("feature", 64)]
    layout = Layout(
        ((atoms[2],), (atoms[1],)), (atoms[0], atoms[1], atoms[2]), frozenset(atoms[:1])
    )
    result = regroup_atoms(layout, dims_of("4 16 T"))
    assert result is not None
    assert [str(x.size) for x in result.order] == ["8", "T", "4", "16"]
    assert result.repeated == layout.repeated
    assert result.keeps_operand_order


def test_a_transpose_within_a_role_loses_the_order() -> None:
    b, h, t = (Atom("batch", 2), Atom("batch", 3), Atom("query", 5))
    assert Layout(((b,), (h,), (t,)), (b, h, t)).keeps_operand_order
    assert Layout(((b,), (t,), (h,)), (b, h, t)).keeps_operand_order
    assert not Layout(((h,), (b,), (t,)), (b, h, t)).keeps_operand_order
    assert not Layout(((b,), (t,)), (b, h, t)).keeps_operand_order


GRAPH = """m (float[B, H, T, 64] x, float16[B, H, T, 64] half, bool[B, H, T, 64] truth,
    float[B, 1, T, 64] single, float[T, 64] matrix, bool training) => (y)
    <int64[4] flat = {0, 0, 0, -1}, int64[3] merge = {0, 0, -1}, int64[1] a1 = {1},
     int64[4] often = {1, 8, 1, 1}, int64[4] batch = {3, 1, 1, 1}, int64[4] back = {1, 1, 1, 1},
     float rate = {0.5}, bool on = {1}, bool off = {0}>"""


def node_of(body: str) -> tuple[ir.Node, View]:
    m = model(f"{GRAPH} {{ {body} }}", opset=17)
    return list(m.graph)[-1], View(m)


@pytest.mark.parametrize(
    ("body", "passes"),
    [
        ("y = Identity (x)", True),
        ("y = Cast <to = 10> (x)", True),
        ("y = Cast <to = 1> (half)", True),
        ("y = Cast <to = 7> (x)", False),
        ("y = Cast <to = 1> (truth)", False),
        ("y = Dropout (x)", True),
        ("y = Dropout (x, rate)", True),
        ("y = Dropout (x, rate, off)", True),
        ("y = Dropout (x, rate, on)", False),
        ("y = Dropout (x, rate, training)", False),
        ("y = Relu (x)", False),
    ],
)
def test_passes_through(body: str, passes: bool) -> None:
    node, view = node_of(body)
    assert passes_through(node, view) == passes
    layout = heads()
    assert (layout_after(node, layout, view) is layout) == passes
    assert (layout_before(node, layout, view) is layout) == passes


@pytest.mark.parametrize(
    ("body", "axes"),
    [
        ("y = Transpose <perm = [0, 2, 1, 3]> (x)", ["bB", "qT", "bH", "f64"]),
        ("y = Transpose <perm = [3, 0, 1, 2]> (x)", ["f64", "bB", "bH", "qT"]),
        ("y = Reshape (x, flat)", ["bB", "bH", "qT", "f64"]),
        ("y = Reshape (x, merge)", ["bB", "bH", "qT f64"]),
        ("y = Unsqueeze (x, a1)", ["bB", "", "bH", "qT", "f64"]),
        ("y = Expand (x, back)", None),
        ("y = Relu (x)", None),
    ],
)
def test_layout_after(body: str, axes: list[str] | None) -> None:
    node, view = node_of(body)
    assert shown(layout_after(node, heads(), view)) == axes


@pytest.mark.parametrize(
    ("body", "dims", "roles", "axes", "repeated"),
    [
        ("y = Transpose <perm = [3, 0, 1, 2]> (x)", "64 B H T", "fbbq",
         ["bB", "bH", "qT", "f64"], []),
        ("y = Reshape (x, merge)", "B H 64*T", "bbq", ["bB", "bH", "qT", "q64"], []),
        ("y = Expand (single, often)", "B 8 T 64", "bbqf", ["bB", "", "qT", "f64"], ["8"]),
        ("y = Expand (single, back)", "B 1 T 64", "bbqf", ["bB", "", "qT", "f64"], []),
        ("y = Expand (matrix, often)", "1 8 T 64", "bbqf", ["qT", "f64"], ["8"]),
        # What is repeated is not the batch, or of no fixed size.
        ("y = Expand (single, often)", "B 8 T 64", "bkqf", None, []),
        ("y = Expand (single, often)", "B G T 64", "bbqf", None, []),
        # The sizes do not fit.
        ("y = Expand (single, often)", "B 8 T 32", "bbqf", None, []),
        ("y = Expand (single, often)", "8 T 64", "bqf", None, []),
        ("y = Relu (x)", "B H T 64", "bbqf", None, []),
    ],
)  # fmt: skip
def test_layout_before(
    body: str, dims: str, roles: str, axes: Sequence[str] | None, repeated: list[str]
) -> None:
    node, view = node_of(body)
    long = {x[0]: x for x in ("batch", "query", "key", "feature")}
    layout = operand_layout(dims_of(dims), [long[x] for x in roles])
    result = layout_before(node, layout, view)
    assert shown(result) == axes
    if result is not None:
        assert [str(x.size) for x in result.repeated] == repeated
        assert {*layout.repeated} <= {*result.repeated}
