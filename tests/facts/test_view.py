"""What a view says of the model around a node."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.facts.view import View, drop_node_index, index_nodes, restore_node_index

TEXT = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1, "own" : 1]>
m (float[B, T] x, bool flag) => (float[B, T] y, float[A] r)
<float two = {2}, int64[1] some = {3}, float given = {1}>
{
    first = Relu (x)
    c = Constant <value = float {1.0}> ()
    sum = Add (c, two)
    deep = Exp (sum)
    g = com.microsoft.Gelu (first)
    b = If (flag) <
        then_branch = a () => (float[B, T] p) { t = Relu (g) inner = If (flag) <
            then_branch = aa () => (float[B, T] pp) { pp = Neg (t) },
            else_branch = bb () => (float[B, T] qq) { qq = Relu (t) }> p = Mul (inner, deep) },
        else_branch = e () => (float[B, T] q) { q = Neg (g) }>
    f = own.Twice (b)
    y = Relu (f)
    r = RandomNormal <shape = [3]> ()
    made = ConstantOfShape (some)
    chance = RandomNormalLike (made)
}
<domain: "own", opset_import: ["" : 14]>
Twice (v) => (w) { h = Relu (v) w = Add (h, h) }"""


@pytest.fixture
def view() -> View:
    return View(ir.from_onnx_text(TEXT))


def named(view: View, name: str) -> ir.Node:
    return next(x for x in view.node_positions if x.outputs[0].name == name)


def outputs(view: View, *op_types: str) -> list[str | None]:
    return [node.outputs[0].name for node in view.nodes(*op_types)]


def test_nodes_of_bodies_and_functions_are_among_those_of_a_type(view: View) -> None:
    relus = outputs(view, "Relu")
    assert sorted(map(str, relus)) == ["first", "h", "qq", "t", "y"]
    assert relus == sorted(relus, key=lambda x: view.node_positions[named(view, str(x))])
    assert outputs(view, "com.microsoft.Gelu") == ["g"]
    assert outputs(view, "Gelu") == []
    assert outputs(view, "ai.onnx.Relu") == []
    assert set(outputs(view, "Relu", "Neg")) == {*relus, "pp", "q"}


def test_an_index_finds_the_same_nodes_in_the_same_order(view: View) -> None:
    before = outputs(view, "Relu", "Neg", "com.microsoft.Gelu")
    index_nodes(view.model)
    assert outputs(view, "Relu", "Neg", "com.microsoft.Gelu") == before
    # It is what it was, whatever is removed, until it is dropped.
    node = named(view, "q")
    index_nodes(view.model)
    assert node.graph is not None
    index = drop_node_index(view.model)
    assert index is not None
    assert drop_node_index(view.model) is None
    restore_node_index(view.model, index)
    assert outputs(view, "Relu", "Neg", "com.microsoft.Gelu") == before


def test_what_onnx_runtime_knows_when_it_loads(view: View) -> None:
    names = {x.name for x in view.constant_values}
    assert names == {"two", "some", "given", "c", "sum", "deep", "made"}


def test_an_initializer_that_may_be_fed_is_no_constant() -> None:
    m = ir.from_onnx_text(
        '<ir_version: 8, opset_import: ["" : 17]> m (float x, float d) => (float y) '
        "<float d = {1}> { n = Neg (d) y = Add (x, n) }"
    )
    assert m.graph.inputs[1].is_initializer()
    assert not View(m).constant_values


@pytest.mark.parametrize(
    ("name", "opset", "function"),
    [("first", 17, False), ("qq", 17, False), ("q", 17, False), ("h", 14, True)],
)
def test_the_opset_that_governs_a_node(view: View, name: str, opset: int, function: bool) -> None:
    node = named(view, name)
    assert view.opset_of_node(node) == opset
    assert view.in_function(node) == function


def test_graphs_around_a_node(view: View) -> None:
    innermost, outer, top = (named(view, x).graph for x in ("qq", "t", "first"))
    assert innermost is not None
    assert view.enclosing_graphs(innermost) == [innermost, outer, top]
    assert view.owner_of_body(innermost) is named(view, "inner")
    assert view.owner_of_body(outer) is named(view, "b")
    assert view.owner_of_body(top) is None
    assert view.owner_of_body(named(view, "h").graph) is None


def test_usual_shapes_are_those_of_no_empty_input() -> None:
    m = ir.from_onnx_text(
        '<ir_version: 8, opset_import: ["" : 17]> m (float[B, T] x) => (float[B, T] y) '
        "{ y = Relu (x) }"
    )
    view = View(m)
    assert view.with_usual_shapes.shapes is view.usual_shapes
    assert view.with_usual_shapes.model is m
    assert view.dim_symbols == {"B", "T"}


def test_equal_shape_tensors_have_one_number() -> None:
    m = ir.from_onnx_text(
        """<ir_version: 8, opset_import: ["" : 17]>
        m (float[B, T] x, float[B, T] z, float[C, T] u, float[N] any) => (int64[2] y)
        { a = Shape (x) b = Shape (z) c = Shape (u) n = NonZero (any) d = Shape (n) e = Shape (n)
          y = Add (a, b) w = Add (c, d) }"""
    )
    view = View(m)
    values = {x.outputs[0].name: x.outputs[0] for x in m.graph}
    numbers = {name: view.numbering.number_of(value) for name, value in values.items()}
    assert numbers["a"] == numbers["b"]
    assert numbers["a"] != numbers["c"]
    assert numbers["d"] == numbers["e"]


def test_a_float_tells_the_sizes_of_usual_runs_apart() -> None:
    """Half of a size, computed in float32: exact up to a million."""
    view = View(
        ir.from_onnx_text("""<ir_version: 8, opset_import: ["" : 17]>
        m (float[T] x) => (float[K] y) <float half = {0.5}, float[1] zero = {0}>
        { s = Shape (x) f = Cast <to = 1> (s) h = Mul (f, half) k = Cast <to = 7> (h)
          y = Expand (zero, k) }""")
    )
    y = view.model.graph.outputs[0]
    assert [str(x) for x in view.usual_shapes.dims(y) or ()] == ["floor(T/2)"]
    assert [str(x) for x in view.with_usual_shapes.shapes.dims(y) or ()] == ["floor(T/2)"]
    assert [str(x) for x in view.shapes.dims(y) or ()] != ["floor(T/2)"]
