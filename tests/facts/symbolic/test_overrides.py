"""Rules that replace the library's: types, contents, and what is left to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import pytest
from onnx_shape_inference import ShapeInferenceContext, registry

from graphfix.facts.shapes import infer
from graphfix.facts.symbolic import inferred, overrides
from graphfix.facts.symbolic.expressions import array_of_exprs
from tests.facts.symbolic.bodies import contents_of, dims_of, keys

if TYPE_CHECKING:
    from collections.abc import Sequence

INPUTS = "float[B, T, 4] x, float[B, T, 4] z, int64[2] k, int32[2] k32, bool[B, T, 4] c, float lone"


def infer_model(body: str, opset: int = 17, inputs: str = INPUTS) -> tuple[Any, ir.Value]:
    model = ir.from_onnx_text(
        f"""<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]>
        m ({inputs}) => (y) {{ {body} }}"""
    )
    return infer(model), model.graph.outputs[0]


@pytest.mark.parametrize(
    ("body", "dtype"),
    [
        ("y = Add (x, z)", "FLOAT"),
        ("y = Mul (k, k)", "INT64"),
        ("y = Less (x, z)", "BOOL"),
        ("y = Equal (k, k)", "BOOL"),
        ("y = And (c, c)", "BOOL"),
        ("y = Where (c, x, z)", "FLOAT"),
        ("y = Reshape (x, k)", "FLOAT"),
        ("y = Expand (k32, k)", "INT32"),
        ("y = Slice (k32, k, k)", "INT32"),
    ],
)
def test_types_are_those_of_the_data(body: str, dtype: str) -> None:
    shapes, y = infer_model(body)
    assert shapes.dtype(y) == ir.DataType[dtype]


def test_a_type_is_taken_of_the_first_that_says_it() -> None:
    floats, unknown = ir.Value(name="a", type=ir.TensorType(ir.DataType.FLOAT)), ir.Value(name="b")
    assert overrides._common_dtype([None, unknown, floats]) == ir.DataType.FLOAT
    assert overrides._common_dtype([unknown]) is None
    assert overrides._common_dtype([]) is None


@pytest.mark.parametrize(
    ("body", "contents"),
    [
        ("s = Shape (x) y = Add (s, s)", ["2*B", "2*T", 8]),
        ("s = Shape (x) y = Sub (s, s)", [0, 0, 0]),
        ("s = Shape (x) y = Concat <axis = 0> (s, k)", ["B", "T", 4, None, None]),
        ("s = Shape (x) e = Concat <axis = 0> (s, s) y = Identity (e)", ["B", "T", 4] * 2),
        ("y = Size (x)", ["4*B*T"]),
        ("y = Add (k, k)", None),
        ("s = Shape (k) y = Add (s, k)", None),
    ],
)
def test_contents_of_lists_of_sizes(body: str, contents: list[int | str | None] | None) -> None:
    found = contents_of(body, inputs=INPUTS)
    assert found == (None if contents is None else keys(*contents))


def test_integers_that_went_through_floats_are_known_in_usual_runs_alone() -> None:
    body = """s = Shape <start = 1, end = 2> (x) f = Cast <to = 1> (s) h = Mul (f, half)
        g = Floor (h) y = Cast <to = 7> (g)"""
    half = "half = Constant <value_float = 0.5> ()"
    assert contents_of(f"{half} {body}", inputs=INPUTS, usual=True) == keys("floor(T/2)")
    assert contents_of(f"{half} {body}", inputs=INPUTS, usual=False) is None


def test_a_slice_by_attributes() -> None:
    text = "s = Shape (x) y = Slice <axes = [0], starts = [1], ends = [3]> (s)"
    assert contents_of(text, 9, INPUTS) == keys("T", 4)
    text = "y = Slice <axes = [1], starts = [1], ends = [3]> (x)"
    assert dims_of(text, 9, INPUTS) == keys("B", "Min(3, T) - 1", 4)
    shapes, y = infer_model(text, 9)
    assert shapes.dtype(y) == ir.DataType.FLOAT
    text = "y = Slice <axes = [0], starts = [0], ends = [1]> (k)"
    assert contents_of(text, 9, INPUTS) is None


def test_a_loop_without_a_condition_is_read() -> None:
    loop = """m (int64 n, bool go, float[B, 4] x) => (y) { y = Loop (n, %s, x) <body = g
        (int64 i, bool c, float[P, Q] a) => (bool more, aa)
        { more = Identity (c) aa = Neg (a) }> }"""
    for condition in ("", "go"):
        model = ir.from_onnx_text('<ir_version: 8, opset_import: ["" : 17]>' + loop % condition)
        dims: Sequence[object] | None = infer(model).dims(model.graph.outputs[0])
        assert dims is not None
        assert [*map(str, dims)] == ["B", "4"]


def test_rules_do_nothing_outside_of_an_inference() -> None:
    overrides.register_rules()
    model = ir.from_onnx_text(
        '<ir_version: 8, opset_import: ["" : 17]> m (float[B, T] x) => (y) { y = Add (x, x) }'
    )
    ctx = ShapeInferenceContext(model.opset_imports)
    rule = registry.get("", "Add", version=17)
    assert rule is not None
    rule(ctx, model.graph[0])
    assert model.graph.outputs[0].dtype == ir.DataType.FLOAT
    assert model.graph.outputs[0].shape == ir.Shape(["B", "T"])
    sliced = ir.from_onnx_text(
        """<ir_version: 8, opset_import: ["" : 9]> m (float[B, T] x) => (y)
        { y = Slice <axes = [1], starts = [0], ends = [2]> (x) }"""
    )
    old = registry.get("", "Slice", version=9)
    assert old is not None
    old(ShapeInferenceContext(sliced.opset_imports), sliced.graph[0])
    assert sliced.graph.outputs[0].dtype == ir.DataType.FLOAT
    assert sliced.graph.outputs[0].shape is None


def test_a_constant_keeps_its_tensor_and_its_name() -> None:
    text = "y = Constant <value = int64[2] {3, 4}> ()"
    assert contents_of(text, inputs=INPUTS) == [3, 4]
    shapes, y = infer_model(text)
    assert (shapes.dims(y), shapes.dtype(y)) == ((2,), ir.DataType.INT64)
    for attribute, dims in (("value_ints = [3, 4]", (2,)), ("value_float = 0.5", ())):
        shapes, y = infer_model(f"y = Constant <{attribute}> ()")
        assert shapes.dims(y) == dims


def test_layer_norms_are_known_before_opset_17() -> None:
    for opset in (11, 17):
        assert dims_of("y = LayerNormalization (x, lone)", opset, INPUTS) == keys("B", "T", 4)
    assert registry.get("", "LayerNormalization", 1) is not None


def test_long_dims_get_a_short_name() -> None:
    model = ir.from_onnx_text(
        '<ir_version: 8, opset_import: ["" : 17]> m (float[B, T] x) => (y) { y = Neg (x) }'
    )
    facts = inferred.Facts(model.graph, positive=(), usual=False)
    ctx = ShapeInferenceContext(model.opset_imports)
    value, short, none = (ir.Value(name=x) for x in "abc")
    value.shape = ir.Shape([ir.SymbolicDim("T" * 200), 4, ir.SymbolicDim("T")])
    short.shape = shape = ir.Shape([4, ir.SymbolicDim("T")])
    overrides._shorten_shapes(facts, ctx, [value, short, none])
    assert value.shape is not None
    assert len(str(value.shape[0])) < 20
    assert [str(x) for x in value.shape[1:]] == ["4", "T"]
    assert short.shape is shape
    assert none.shape is None


def test_what_is_not_of_integers_or_lengths_has_no_contents() -> None:
    model = ir.from_onnx_text(
        '<ir_version: 8, opset_import: ["" : 17]> m (float[2] x) => (y) { y = Mul (x, x) }'
    )
    node = model.graph[0]
    for dtype, usual, known in (
        (ir.DataType.FLOAT, True, True),
        (ir.DataType.FLOAT, False, False),
        (ir.DataType.FLOAT16, True, False),
    ):
        facts = inferred.Facts(model.graph, positive=(), usual=usual)
        ctx = ShapeInferenceContext(model.opset_imports)
        node.inputs[0].dtype = node.outputs[0].dtype = dtype  # type: ignore[union-attr]
        node.outputs[0].shape = ir.Shape([2])
        assert node.inputs[0] is not None
        two = array_of_exprs([inferred.sympy.Integer(3), inferred.sympy.Integer(4)], [2])
        facts.contents[node.inputs[0]] = two
        overrides._infer_contents(facts, ctx, node, lambda *_: None)
        assert (node.outputs[0] in facts.contents) is known
