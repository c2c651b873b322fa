"""Shapes that are kept beside a model: what is asked of them, and what is taken over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.facts import shapes as module
from graphfix.facts.shapes import (
    Shapes,
    add_constant,
    copy_shapes,
    drop_incomplete_shapes,
    drop_shapes,
    infer,
    infer_new_nodes,
    input_dim_names,
    input_dim_symbols,
    is_known_dim,
    same_dims,
    shapes_of,
)
from graphfix.graph.constants import MAX_CONSTANT_ELEMENTS

if TYPE_CHECKING:
    from collections.abc import Sequence

HEAD = '<ir_version: 10, opset_import: ["" : 17]>\n'
TEXT = """m (float[B, T] x, int64[N] k) => (float[U, V] y) <float[2, 3] w = {1, 2, 3, 4, 5, 6}>
    { s = Shape (x) a = Neg (x) y = Reshape (a, k) }"""
UNKNOWN = ir.SymbolicDim(None)


def model(text: str = TEXT) -> ir.Model:
    return ir.from_onnx_text(HEAD + text)


def value(name: str = "v") -> ir.Value:
    return ir.Value(name=name)


def dim(text: str | int | None) -> Any:
    return text if isinstance(text, int) else ir.SymbolicDim(text)


def texts(dims: Sequence[object] | None) -> list[str] | None:
    return None if dims is None else [*map(str, dims)]


def empty() -> Shapes:
    return Shapes({}, {}, {})


def test_what_is_known_of_a_value() -> None:
    given = model()
    shapes, values = shapes_of(given), {x.name: x for n in given.graph for x in n.outputs}
    assert texts(shapes.dims(values["a"])) == ["B", "T"]
    assert (shapes.rank(values["a"]), shapes.rank(values["s"])) == (2, 1)
    assert texts(shapes.known_elements(values["s"])) == ["B", "T"]
    assert shapes.dtype(values["s"]) == ir.DataType.INT64
    assert shapes.has_known_dims(values["a"])
    for ask in (shapes.dims, shapes.rank, shapes.dtype, shapes.known_elements):
        assert ask(None) is None
        assert ask(value()) is None
    assert not shapes.has_known_dims(value())
    y = values["y"]
    assert not shapes.has_known_dims(y)
    assert shapes.carried_dims(given.graph[0]) == ()


@pytest.mark.parametrize(
    ("dims", "known"), [((2, dim("T")), True), ((dim("_d3"),), False), ((UNKNOWN,), False)]
)
def test_a_size_that_inference_named_is_not_known(dims: tuple[Any, ...], known: bool) -> None:
    v = value()
    assert Shapes({v: dims}, {}, {}).has_known_dims(v) is known


def test_a_constant_that_a_pass_has_just_made_has_its_shape() -> None:
    given = model()
    new = ir.Value(name="new", const_value=ir.tensor(np.zeros((4, 5), np.float32)))
    assert empty().dims(new) is None  # of no graph
    given.graph.register_initializer(new)
    assert empty().dims(new) == (4, 5)
    given.graph.inputs.append(new)  # now a caller may give another
    assert empty().dims(new) is None


def test_a_type_is_that_of_the_file_or_that_which_was_inferred() -> None:
    v = value()
    shapes = Shapes({}, {v: ir.DataType.INT64}, {})
    assert shapes.dtype(v) == ir.DataType.INT64
    v.dtype = ir.DataType.FLOAT
    assert shapes.dtype(v) == ir.DataType.FLOAT


def test_a_size_is_not_0_if_another_is_not() -> None:
    shapes = Shapes({}, {}, {}, frozenset(["T"]))
    assert shapes.is_never_empty(dim("T"))
    assert not shapes.is_never_empty(dim("S"))
    assert shapes.is_never_empty(dim("S"), beside=dim("S"))
    assert shapes.is_never_empty(dim("2*S*T"), beside=dim("S*U"))


def test_shapes_of_new_nodes_are_taken_over_but_for_foreign_names() -> None:
    a, b = value("a"), value("b")
    mine = Shapes({a: (1,)}, {a: ir.DataType.FLOAT}, {})
    theirs = Shapes(
        {a: (dim("T"), 2), b: (dim("T + _d1"), dim("_d1"), UNKNOWN)},
        {b: ir.DataType.BOOL},
        {b: (dim("T"), dim("_d1"))},
    )
    mine.update_from(theirs, lambda name: not name.startswith("_"))
    assert texts(mine.dims(a)) == ["T", "2"]
    assert texts(mine.dims(b)) == ["None", "None", "None"]
    assert texts(mine.known_elements(b)) == ["T", "None"]
    assert (mine.dtype(a), mine.dtype(b)) == (ir.DataType.FLOAT, ir.DataType.BOOL)


def test_a_branch_refines_what_is_in_sizes_of_the_inputs() -> None:
    a, b, c = value("a"), value("b"), value("c")
    mine = Shapes({x: (dim("_d1"),) for x in (a, b, c)}, {}, {a: (dim("_d1"),), b: (dim("_d1"),)})
    theirs = Shapes(
        {a: (dim("T"),), b: (dim("T"), dim("_d2")), c: (3,)}, {}, {a: (2,), b: (dim("_d5"),)}
    )
    mine.refine_from(theirs, [a, b, value("other")])
    assert [texts(mine.dims(x)) for x in (a, b, c)] == [["T"], ["_d1"], ["_d1"]]
    assert [texts(mine.known_elements(x)) for x in (a, b)] == [["2"], ["_d1"]]


@pytest.mark.parametrize(
    ("array", "elements"),
    [
        (np.array([3, -1]), (3, -1)),
        (np.array(7, np.int32), (7,)),
        (np.array([[3]]), None),
        (np.array([1.5]), None),
        (np.array([True]), None),
        (np.zeros(MAX_CONSTANT_ELEMENTS, np.int64), (0,) * MAX_CONSTANT_ELEMENTS),
        (np.zeros(MAX_CONSTANT_ELEMENTS + 1, np.int64), None),
    ],
)
def test_a_constant_may_be_a_shape(array: Any, elements: tuple[int, ...] | None) -> None:
    given, v, early = model(), value(), value()
    add_constant(given, early, array)
    shapes = shapes_of(given)
    assert shapes.dims(early) is None  # nothing was kept yet
    add_constant(given, v, array)
    assert (shapes.dims(v), shapes.known_elements(v)) == (array.shape, elements)


def test_what_a_pass_knows_better_is_set() -> None:
    v = value()
    shapes = empty()
    shapes.set_dims_and_dtype(v, (2,), None)
    assert (shapes.dims(v), shapes.dtype(v)) == ((2,), None)
    shapes.set_dims_and_dtype(v, (3,), ir.DataType.BOOL)
    assert (shapes.dims(v), shapes.dtype(v)) == ((3,), ir.DataType.BOOL)
    new = value()
    shapes.inherit_shape(new, v)
    assert (shapes.dims(new), shapes.dtype(new)) == ((3,), ir.DataType.BOOL)
    assert shapes.known_elements(new) is None


def test_a_copy_has_the_shapes_of_the_model() -> None:
    given = model()
    copy = given.clone()
    shapes_of(given)._never_empty = frozenset(["T"])
    copy_shapes(given, copy)
    for before, after in zip(given.graph, copy.graph, strict=True):
        for ask in ("dims", "dtype", "known_elements"):
            old, new = (getattr(shapes_of(m), ask) for m in (given, copy))
            assert old(before.outputs[0]) == new(after.outputs[0])
    assert shapes_of(copy).is_never_empty(dim("T"))


def test_shapes_are_inferred_once_and_dropped_where_they_are_incomplete() -> None:
    given = model()
    assert not drop_incomplete_shapes(given)  # none are kept
    kept = shapes_of(given)
    assert shapes_of(given) is kept
    assert drop_incomplete_shapes(given)
    assert shapes_of(given) is not kept
    complete = model("m (float[B, T] x) => (float[B, T] y) { y = Neg (x) }")
    kept = shapes_of(complete)
    assert not drop_incomplete_shapes(complete)
    assert shapes_of(complete) is kept
    drop_shapes(complete)
    assert shapes_of(complete) is not kept


def test_equal_shapes_are_known_and_equal_dim_by_dim() -> None:
    shape = (dim("T"), 4)
    assert same_dims(shape, (dim("T"), 4))
    assert not same_dims(shape, None)
    assert not same_dims(None, shape)
    assert not same_dims(None, None)
    assert not same_dims(shape, shape[:1])
    assert not same_dims(shape, (dim("T"), 5))
    assert not same_dims((UNKNOWN,), (UNKNOWN,))
    assert (is_known_dim(0), is_known_dim(dim("T")), is_known_dim(UNKNOWN)) == (True, True, False)


def test_names_of_the_dims_of_inputs() -> None:
    text = "m (float[batch, T, 4] x, float[T, M] z, float[?] w) => (y) { y = Identity (x) }"
    given = model(text.replace("float[?]", "float[N]"))
    given.graph.inputs[2].shape = ir.Shape([None])
    assert input_dim_names(given)[:3] == ["batch", "T", "M"]
    assert len(input_dim_names(given)) == len(input_dim_symbols(given)) == 4


def test_a_dim_may_be_given_another_name() -> None:
    given = model("m (float[B, T] x, float[B2, 3] z) => (y) { y = Add (x, z) }")
    a = given.graph.inputs[1]
    found = infer(given, {"B2": "B"}).dims(given.graph.outputs[0])
    assert texts(found) == ["B", "3"]
    assert texts(a.shape) == ["B2", "3"]  # the model is as it was
    found = infer(given).dims(given.graph.outputs[0])
    assert found is not None
    assert str(found[0]) not in ("B", "B2")


def test_new_nodes_have_shapes_and_old_ones_keep_theirs() -> None:
    given = model("m (float[B, T] x) => (float[B, T] y) { y = Neg (x) }")
    x, y = given.graph.inputs[0], given.graph.outputs[0]
    size = ir.node("Shape", [x], name="size")
    turned = ir.node("Transpose", [y], name="turned", attributes={"perm": [1, 0]})
    given.graph.extend([size, turned])
    infer_new_nodes(given, [size, turned])  # nothing is kept yet: nothing is done
    shapes = shapes_of(given)
    drop_shapes(given)
    kept = shapes_of(model("m (float[B, T] x) => (float[B, T] y) { y = Neg (x) }"))
    assert kept is not shapes
    shapes = shapes_of(given)
    more = ir.node("Concat", [turned.outputs[0]] * 2, name="more", attributes={"axis": 0})
    unsized = ir.node("NonZero", [y], name="unsized")
    given.graph.extend([more, unsized])
    shapes.set_dims_and_dtype(turned.outputs[0], (7, dim("B")), None)
    infer_new_nodes(given, [turned, more, unsized])
    assert texts(shapes.dims(turned.outputs[0])) == ["7", "B"]  # it took that over
    assert texts(shapes.dims(more.outputs[0])) == ["14", "B"]
    assert shapes.dtype(more.outputs[0]) == ir.DataType.FLOAT
    assert texts(shapes.dims(unsized.outputs[0])) == ["2", "None"]  # its name is no name of ours
    assert more.outputs[0].shape is None
    assert turned.outputs[0].shape is None


def test_a_new_node_that_cannot_be_inferred_is_said(caplog: pytest.LogCaptureFixture) -> None:
    given = model("m (float[B, T] x) => (float[B, T] y) { y = Neg (x) }")
    shapes = shapes_of(given)
    bad = ir.node("Transpose", [given.graph.inputs[0]], name="bad", attributes={"perm": [0, 1, 2]})
    own = ir.node("Own", [given.graph.inputs[0]], domain="my", name="own")
    given.graph.extend([bad, own])
    infer_new_nodes(given, [bad, own])
    assert shapes.dims(bad.outputs[0]) is None or len(shapes.dims(bad.outputs[0]) or ()) != 3
    assert shapes.dims(own.outputs[0]) is None
    assert module.log.name == "graphfix.facts.shapes"


def test_an_inference_leaves_types_and_constants_as_they_were() -> None:
    given = model(
        """m (float[B, T] x, int64[1] k) => (float[B, T] y) <int64[1] k = {3}, int64[2] kk = {3, 4}>
        { a = Cast <to = 7> (x) c = Constant <value_ints = [1, 2]> () d = Add (a, k)
          e = Cast <to = 1> (d) y = Neg (e) }"""
    )
    values = [x for n in given.graph for x in n.outputs]
    values[0].shape, values[0].dtype = ir.Shape([9, 9]), ir.DataType.INT32
    values[1].shape = None
    k = given.graph.inputs[1]
    before = [(x.shape, x.dtype, x.const_value) for x in (*values, k)]
    found = infer(given)
    assert [(x.shape, x.dtype, x.const_value) for x in (*values, k)] == before
    assert all("pkg" not in key for x in values for key in x.metadata_props)
    assert not any(x.metadata_props for x in values)
    assert texts(found.dims(values[0])) == ["B", "T"]  # the file is not believed
    assert found.known_elements(values[1]) == (1, 2)
    assert found.known_elements(k) is None  # a caller may give another
    assert found.known_elements(given.graph.initializers["kk"]) == (3, 4)
