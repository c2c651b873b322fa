"""Evaluators of small integer tensors, each alone, on contents that are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import sympy
from onnx_shape_inference import ShapeInferenceContext

from graphfix.facts.symbolic.expressions import array_of_exprs
from graphfix.facts.symbolic.inferred import MAX_SHAPE_ELEMENTS, Facts
from graphfix.facts.symbolic.integer_contents import EVALUATORS
from tests.facts.symbolic.bodies import size_of

INPUTS = "int64[2] a, int64[2] b, int64 n, float[B, T] x, float[] any, bool[2] c, int64[1] one"


def array(*items: str | int, shape: tuple[int, ...] | None = None) -> Any:
    return array_of_exprs([*map(size_of, items)], (len(items),) if shape is None else shape)


def evaluate(
    text: str,
    *args: Any,
    contents: dict[str, Any] | None = None,
    out: tuple[int, ...] | None = None,
) -> tuple[list[str] | None, tuple[int, ...]]:
    """Return what a node holds, as text; ``?`` for what is not known, and the shape."""
    model = ir.from_onnx_text(
        f'<ir_version: 8, opset_import: ["" : 17]> m ({INPUTS}) => (y) {{ y = {text} }}'
    )
    facts = Facts(model.graph, positive=(), usual=False)
    facts.dims_as_sizes(ir.Shape(["B", "T"]))
    for value in model.graph.inputs:
        if value.name in (contents or {}):
            facts.contents[value] = (contents or {})[value.name]
    node = model.graph[0]
    if out is not None:
        node.outputs[0].shape = ir.Shape(out)
    ctx = ShapeInferenceContext(model.opset_imports)
    found = EVALUATORS[node.op_type](facts, ctx, node, [*args])
    if found is None:
        return None, ()
    return ["?" if "_d" in str(x) else str(x) for x in found.flat], found.shape


@pytest.mark.parametrize(
    ("text", "args", "expected"),
    [
        ("Add (a, b)", (array("T", 1), array(2, 3)), ["T + 2", "4"]),
        ("Sub (a, b)", (array("T", 1), array(2, 3)), ["T - 2", "-2"]),
        ("Mul (a, b)", (array("T", 1), array(2, 3)), ["2*T", "3"]),
        ("Div (a, b)", (array("T", 7), array(2, 3)), ["floor(T/2)", "2"]),
        ("Div (a, b)", (array(-7, 7), array(2, -2)), ["-3", "?"]),
        ("Div (a, b)", (array(0, 1), array(5, 0)), ["0", "?"]),
        ("Div (a, b)", (array("B - T", "T"), array(2, "B")), ["?", "floor(T/B)"]),
        ("Mod (a, b)", (array(7, "T"), array(3, 0)), ["1", "?"]),
        ("Min (a, b)", (array("T", 5), array(1, 3)), ["1", "3"]),
        ("Max (a, b)", (array("T", 5), array(1, 3)), ["T", "5"]),
        ("Equal (a, b)", (array("T", 3), array("T", 4)), ["1", "0"]),
        ("Equal (a, b)", (array("T", "T"), array(1, 0)), ["?", "0"]),
        ("Equal (a, b)", (array("T", 3), array("T + 1", 4)), ["0", "0"]),
        ("Less (a, b)", (array("T", "T"), array("T", "T + 1")), ["0", "1"]),
        ("Less (a, b)", (array(1, 1), array("T", "T + 1")), ["?", "1"]),
        ("Greater (a, b)", (array("T + 1", 1), array("T", "T")), ["1", "0"]),
        ("LessOrEqual (a, b)", (array("T", "T + 1"), array("T", "T")), ["1", "0"]),
        ("GreaterOrEqual (a, b)", (array("T", 0), array("T", "T")), ["1", "0"]),
        ("Where (c, a, b)", (array(1, 0), array("T", "T"), array(3, 4)), ["T", "4"]),
        ("Neg (a)", (array("T", -2),), ["-T", "2"]),
        ("Identity (a)", (array("T", 2),), ["T", "2"]),
        ("Floor (a)", (array("T", 2),), None),
        ("Ceil (a)", (array("T", 2),), None),
    ],
)
def test_arithmetic(text: str, args: tuple[Any, ...], expected: list[str] | None) -> None:
    assert evaluate(text, *args)[0] == expected


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("And (c, c)", [0, 0, 0, 1]),
        ("Or (c, c)", [0, 1, 1, 1]),
        ("Xor (c, c)", [0, 1, 1, 0]),
    ],
)
def test_truth(text: str, table: list[int]) -> None:
    found, _ = evaluate(text, array(0, 0, 1, 1), array(0, 1, 0, 1))
    assert found == [*map(str, table)]
    assert evaluate("Not (c)", array(0, 1))[0] == ["1", "0"]


def test_a_choice_that_does_not_matter() -> None:
    unknown = sympy.Symbol("c", integer=True)
    cond = np.array([unknown, unknown], dtype=object)
    assert evaluate("Where (c, a, b)", cond, array("T", 2), array("T", 3))[0] == ["T", "?"]


@pytest.mark.parametrize(
    ("inputs", "args", "expected"),
    [
        ("a, n, n", (array(5, 0), array(1, shape=()), array(3, shape=())), ["3", "1"]),
        ("a, n", (array(5, 0), array(1, shape=())), ["5", "1"]),
        ("a, , n", (array(5, 0), array(3, shape=())), ["3", "0"]),
        ("a", (array(5, 0),), ["5", "0"]),
        ("a, n, n", (array("T", 0), array(1, shape=()), array(3, shape=())), ["Min(3, T)", "1"]),
    ],
)
def test_a_clip(inputs: str, args: tuple[Any, ...], expected: list[str]) -> None:
    assert evaluate(f"Clip ({inputs})", *args)[0] == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [((0, 5), ["0", "1"]), (("T", "T - 1"), ["1", "?"])],
)
def test_a_cast_to_bool(data: tuple[str | int, ...], expected: list[str]) -> None:
    model = ir.from_onnx_text(
        '<ir_version: 8, opset_import: ["" : 17]> m (int64[2] a) => (y) { y = Cast <to = 9> (a) }'
    )
    facts = Facts(model.graph, positive=(), usual=False)
    facts.dims_as_sizes(ir.Shape(["T"]))
    node = model.graph[0]
    ctx = ShapeInferenceContext(model.opset_imports)
    for dtype, wanted in (
        (ir.DataType.BOOL, expected),
        (ir.DataType.INT32, [*map(str, map(size_of, data))]),
    ):
        node.outputs[0].dtype = dtype
        found = EVALUATORS["Cast"](facts, ctx, node, [array(*data)])
        assert found is not None
        assert ["?" if "_d" in str(x) else str(x) for x in found] == wanted


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Shape (x)", ["B", "T"]),
        ("Shape <start = 1> (x)", ["T"]),
        ("Shape <end = 1> (x)", ["B"]),
        ("Shape <start = -1, end = 5> (x)", ["T"]),
        ("Shape <start = 1, end = 1> (x)", []),
        ("Shape (any)", None),
        ("Size (x)", ["B*T"]),
        ("Size (any)", None),
    ],
)
def test_sizes(text: str, expected: list[str] | None) -> None:
    assert evaluate(text)[0] == expected
    if text == "Size (x)":
        assert evaluate(text)[1] == ()


@pytest.mark.parametrize(
    ("attributes", "data", "at", "expected", "shape"),
    [
        ("", array(5, 6, 7), array(1, shape=()), ["6"], ()),
        ("", array(5, 6, 7), array(-3, 2), ["5", "7"], (2,)),
        ("", array(5, 6, 7), array(3), None, ()),
        ("", array(5, 6, 7), array(-4), None, ()),
        ("", array(5, 6, 7), array("T"), None, ()),
        ("", array(5, shape=()), array(0), None, ()),
        ("", array(1, 2, 3, 4, shape=(2, 2)), array(1), ["3", "4"], (1, 2)),
        ("<axis = 1>", array(1, 2, 3, 4, shape=(2, 2)), array(1), ["2", "4"], (2, 1)),
        ("<axis = -1>", array(1, 2, 3, 4, shape=(2, 2)), array(0, shape=()), ["1", "3"], (2,)),
    ],
)
def test_a_gather(
    attributes: str, data: Any, at: Any, expected: list[str] | None, shape: tuple[int, ...]
) -> None:
    assert evaluate(f"Gather {attributes} (a, b)", data, at) == (expected, shape)


def test_a_concat_reads_its_inputs() -> None:
    known = {"a": array("T", 2)}
    assert evaluate("Concat <axis = 0> (a, b)", contents=known)[0] == ["T", "2", "?", "?"]
    assert evaluate("Concat <axis = 0> (a, n)", contents=known)[0] is None
    table = {"a": array(1, 2, shape=(1, 2)), "b": array(3, 4, shape=(1, 2))}
    assert evaluate("Concat <axis = 1> (a, b)", contents=table) == (["1", "2", "3", "4"], (1, 4))


@pytest.mark.parametrize(
    ("start", "end", "step", "expected"),
    [
        (1, 3, 1, ["6", "7"]),
        (-1, -9, -1, ["8", "7", "6", "5"]),
        (0, 9, 2, ["5", "7"]),
        (0, 2, 0, None),
        ("T", 2, 1, None),
    ],
)
def test_a_slice(start: Any, end: int, step: int, expected: list[str] | None) -> None:
    known = {"a": array(start), "b": array(end), "n": array(0), "one": array(step)}
    found, _ = evaluate("Slice (x, a, b, n, one)", array(5, 6, 7, 8), contents=known)
    assert found == expected


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((2, 9, 3), ["2", "5", "8"]),
        ((2, 9, 0), None),
        ((0, 64, 1), 64),
        ((0, 65, 1), None),
        ((0, "T", 1), None),
        ((5, 0, -2), ["5", "3", "1"]),
    ],
)
def test_a_range(numbers: tuple[Any, ...], expected: Any) -> None:
    found, _ = evaluate("Range (n, n, n)", *(array(x, shape=()) for x in numbers))
    assert (len(found) if isinstance(expected, int) and found else found) == expected
    assert evaluate("Range (a, n, n)", array(1, 2), array(3), array(1))[0] is None


@pytest.mark.parametrize(
    ("operator", "out", "shape"),
    [
        ("Reshape (a, b)", (2, 1), (2, 1)),
        ("Squeeze (a)", (2,), (2,)),
        ("Unsqueeze (a, b)", None, ()),
        ("Reshape (a, b)", (3,), ()),
    ],
)
def test_a_list_in_another_shape(operator: str, out: Any, shape: tuple[int, ...]) -> None:
    found = evaluate(operator, array("T", 2), out=out)
    assert found == ((["T", "2"], shape) if shape else (None, ()))


@pytest.mark.parametrize(
    ("data", "to", "expected"),
    [
        (array("T"), array(3), ["T"] * 3),
        (array("T", 2), array(1), ["T", "2"]),
        (array("T"), array("T"), None),
        (array("T"), array(MAX_SHAPE_ELEMENTS), ["T"] * MAX_SHAPE_ELEMENTS),
        (array("T"), array(MAX_SHAPE_ELEMENTS + 1), None),
    ],
)
def test_an_expand(data: Any, to: Any, expected: list[str] | None) -> None:
    assert evaluate("Expand (a, b)", data, to)[0] == expected


@pytest.mark.parametrize(
    ("attributes", "shape", "expected"),
    [
        ("<value = int64[1] {7}>", (2,), ["7", "7"]),
        ("", (2,), None),
        ("<value = int64[1] {7}>", ("T",), None),
        ("<value = int64[1] {7}>", (MAX_SHAPE_ELEMENTS,), ["7"] * MAX_SHAPE_ELEMENTS),
        ("<value = int64[1] {7}>", (MAX_SHAPE_ELEMENTS + 1,), None),
    ],
)
def test_a_constant_of_a_shape(
    attributes: str, shape: tuple[Any, ...], expected: list[str] | None
) -> None:
    assert evaluate(f"ConstantOfShape {attributes} (a)", array(*shape))[0] == expected


@pytest.mark.parametrize(
    ("attributes", "data", "expected", "shape"),
    [
        ("", array("T", 3), ["3*T"], (1,)),
        ("<keepdims = 0>", array("T", 3), ["3*T"], ()),
        ("", array(1, 2, shape=(1, 2)), None, ()),
    ],
)
def test_a_product(
    attributes: str, data: Any, expected: list[str] | None, shape: tuple[int, ...]
) -> None:
    assert evaluate(f"ReduceProd {attributes} (a)", data) == (expected, shape)


def test_a_list_turned() -> None:
    data = array(1, 2, 3, 4, shape=(2, 2))
    assert evaluate("Transpose <perm = [1, 0]> (a)", data)[0] == ["1", "3", "2", "4"]
    assert evaluate("Transpose (a)", data)[0] == ["1", "3", "2", "4"]
    assert evaluate("Mod <fmod = 1> (a, b)", array(7), array(3))[0] is None
    assert evaluate("Mod (a, b)", array(7), array(3))[0] == ["1"]
