"""Obstacles to loading that mean nothing to what a model computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from graphfix.editing.loadable import (
    external_sizes,
    loadable_copy,
    move_inside,
    nodes_of_taken_names,
    rename_apart,
    without_inner_shapes,
)

if TYPE_CHECKING:
    from pathlib import Path

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
BRANCHES = """then_branch = t () => (p) { [a] p = Neg (x) },
    else_branch = e () => (q) { [a] e = Abs (x)  [a] q = Neg (e) }"""


def model_of(body: str, inputs: str = "float[2, 3] x", constants: str = "") -> ir.Model:
    values = f"<{constants}>" if constants else ""
    return ir.from_onnx_text(f"{HEAD} m ({inputs}) => (y) {values} {{ {body} }}")


def test_names_differ_within_a_graph() -> None:
    model = model_of(f"[a] b = Neg (x)  [a] d = Abs (b)  [f] y = If (c) <{BRANCHES}>",
                     "float[2, 3] x, bool c")  # fmt: skip
    assert [x.outputs[0].name for x in nodes_of_taken_names(model)] == ["d", "q"]
    bare = model_of("b = Neg (x)  y = Abs (b)")
    for node in bare.graph:
        node.name = None
    assert list(nodes_of_taken_names(bare)) == []


def test_nodes_get_the_first_number_that_is_free() -> None:
    model = model_of("[a] b = Neg (x)  [a_1] c = Abs (b)  [a] d = Exp (c)  [a] y = Relu (d)")
    rename_apart(list(nodes_of_taken_names(model)))
    assert [x.name for x in model.graph] == ["a", "a_1", "a_2", "a_3"]
    branches = model_of(f"[a] y = If (c) <{BRANCHES}>", "float[2, 3] x, bool c")
    rename_apart(list(nodes_of_taken_names(branches)))
    assert [x.name for x in branches.graph.all_nodes()] == ["a", "a", "a", "a_1"]


def outside(folder: Path, body: str, constants: str) -> ir.Model:
    """Return a model whose constants all lie in another file."""
    model = model_of(body, constants=constants)
    ir.save(model, folder / "m.onnx", external_data="m.data", size_threshold_bytes=0)
    return ir.load(folder / "m.onnx")


SIZES = "int64[2] s = {3, 2}, float[2, 3] w = {1, 2, 3, 4, 5, 6}"


def test_sizes_lie_inside(tmp_path: Path) -> None:
    body = "a = Add (x, w)  b = Reshape (a, s)  c = Reshape (b, s)  y = Reshape (c, t)"
    model = outside(tmp_path, f"t = Identity (s)  {body}", SIZES)
    found = [(node.outputs[0].name, value.name) for node, value in external_sizes(model)]
    # Once, at its first reader; weights may lie outside, and so may what nobody reads as a size.
    assert found == [("b", "s")]
    (_, value) = next(external_sizes(model))
    move_inside(value)
    assert value.const_value is not None
    assert value.const_value.numpy().tolist() == [3, 2]
    assert list(external_sizes(model)) == []
    assert list(external_sizes(model_of(body.replace(", t)", ", s)"), constants=SIZES))) == []


def test_an_absent_size_is_none(tmp_path: Path) -> None:
    assert list(external_sizes(model_of("y = Squeeze (x)"))) == []
    model = model_of("y = Clip (x, , w)", constants="float w = {1}")
    assert list(external_sizes(model)) == []


def test_a_copy_is_made_only_of_what_does_not_load(tmp_path: Path) -> None:
    assert loadable_copy(model_of("[a] y = Neg (x)")) is None
    model = model_of("[a] b = Neg (x)  [a] y = Abs (b)")
    copy = loadable_copy(model)
    assert copy is not None
    assert [x.name for x in copy.graph] == ["a", "a_1"]
    assert [x.name for x in model.graph] == ["a", "a"]
    model = outside(tmp_path, "y = Reshape (x, s)", SIZES)
    copy = loadable_copy(model)
    assert copy is not None
    assert list(external_sizes(copy)) == []
    assert len(list(external_sizes(model))) == 1


def test_inner_shapes_are_gone_for_a_while() -> None:
    model = model_of("a = Neg (x)  b = Abs (a)  y = Relu (b)")
    a, b, y = (node.outputs[0] for node in model.graph)
    a.shape, y.shape = ir.Shape([2, 3]), ir.Shape([2, 3])
    with without_inner_shapes(model):
        assert a.shape is b.shape is None
        assert y.shape == ir.Shape([2, 3])
    assert a.shape == ir.Shape([2, 3])
    assert b.shape is None
