"""Stand-ins for models: wider types, and placeholders of large weights."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.files import stand_in
from graphfix.files.stand_in import (
    WIDER_FLOATS,
    WIDER_HALF,
    copy_without_weights,
    has_heavy_weights,
    narrow_types,
    restore_weights,
    uses_float16,
    widened_copy,
)

HALF, FLOAT, DOUBLE = ir.DataType.FLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE
LARGE = 16_384


def graph(text: str) -> ir.Model:
    return ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 17]>\n m {text}')


def weighted(elements: int, dtype: ir.DataType = FLOAT, body: str = "y = Add (x, w)") -> ir.Model:
    name = dtype.name.lower()
    model = graph(
        f"({name}[{elements}] x) => ({name}[{elements}] y) <{name}[1] w = {{1}}> {{ {body} }}"
    )
    weight = model.graph.initializers["w"]
    weight.const_value = ir.tensor(np.ones(elements, dtype.numpy()), name="w")
    weight.shape = ir.Shape([elements])
    return model


def op_types(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


@pytest.mark.parametrize(
    ("text", "is_half"),
    [
        ("(float[N] x) => (float[N] y) { y = Relu (x) }", False),
        ("(float16[N] x) => (float16[N] y) { y = Relu (x) }", True),
        ("(float[N] x) => (float[N] y) { h = Cast <to = 10> (x) y = Cast <to = 1> (h) }", True),
        ("(float[N] x) => (float[N] y) { d = Cast <to = 11> (x) y = Cast <to = 1> (d) }", False),
        ("(float[N] x) => (y) { r = RandomUniformLike <dtype = 10> (x) y = Shape (r) }", True),
        ("(float[N] x) => (y) <float16 w = {1}> { y = Shape (x) }", True),
    ],
)
def test_which_models_compute_in_float16(text: str, is_half: bool) -> None:
    assert uses_float16(graph(text)) is is_half


def test_weights_of_exactly_the_limit_are_not_too_heavy(monkeypatch: pytest.MonkeyPatch) -> None:
    model = weighted(10)
    monkeypatch.setattr(stand_in, "_HEAVY_BYTES", 40)
    assert not has_heavy_weights(model)
    monkeypatch.setattr(stand_in, "_HEAVY_BYTES", 39)
    assert has_heavy_weights(model)


# ONNX text gives the bits of a float16: 2 and 3.
MIXED = """(float16[N] x, int64[N] i) => (float[N] y) <float16 w = {16384}> {
    c = Constant <value = float16 {16896}> ()  a = Mul (x, w)  b = Add (a, c)
    f = Cast <to = 1> (b)  h = Cast <to = 10> (f)  g = Cast <to = 7> (h)  y = Cast <to = 1> (g) }"""


def test_every_type_of_a_copy_is_wider_and_the_model_stays() -> None:
    model = graph(MIXED)
    wide = widened_copy(model, WIDER_FLOATS)
    values = {x.name: x for n in wide.graph for x in n.outputs} | {
        x.name: x for x in (*wide.graph.inputs, *wide.graph.initializers.values())
    }
    assert [values[name].dtype for name in ("x", "i", "w", "y")] == [
        *(FLOAT, ir.DataType.INT64, FLOAT, DOUBLE)
    ]
    weight = values["w"].const_value
    assert weight is not None
    assert (weight.dtype, weight.numpy().tolist()) == (FLOAT, 2)
    constant = wide.graph[0].attributes["value"].as_tensor()
    assert (constant.dtype, constant.numpy().tolist()) == (FLOAT, 3)
    casts = [n.attributes["to"].as_int() for n in wide.graph if n.op_type == "Cast"]
    assert casts == [DOUBLE, FLOAT, ir.DataType.INT64, DOUBLE]
    assert model.graph.inputs[0].dtype == HALF
    assert model.graph.initializers["w"].dtype == HALF


def test_only_the_types_that_are_named_become_wider() -> None:
    wide = widened_copy(graph(MIXED), WIDER_HALF)
    assert [x.dtype for x in (*wide.graph.inputs, *wide.graph.outputs)] == [
        *(FLOAT, ir.DataType.INT64, FLOAT)
    ]
    casts = [n.attributes["to"].as_int() for n in wide.graph if n.op_type == "Cast"]
    assert casts == [FLOAT, FLOAT, ir.DataType.INT64, FLOAT]


def test_what_was_made_of_a_wider_copy_gets_the_types_of_the_model() -> None:
    model = graph(MIXED)
    wide = widened_copy(model, WIDER_FLOATS)
    narrow_types(wide, WIDER_FLOATS)
    types = [[x.dtype for x in (*m.graph.inputs, *m.graph.outputs)] for m in (model, wide)]
    assert types[0] == types[1] == [HALF, ir.DataType.INT64, FLOAT]


def test_a_body_is_widened_with_the_graph_around_it() -> None:
    wide = widened_copy(
        graph("""(bool c, float16[N] x) => (float16[N] y) { y = If (c) <
            then_branch = a () => (float16[N] p) { p = Neg (x) },
            else_branch = b () => (float16[N] q) { q = Abs (x) }> }"""),
        WIDER_FLOATS,
    )
    bodies = [wide.graph[0].attributes[f"{x}_branch"].as_graph() for x in ("then", "else")]
    assert [body.outputs[0].dtype for body in bodies] == [FLOAT, FLOAT]


def test_a_large_weight_is_a_node_and_a_weight_again() -> None:
    model = weighted(LARGE)
    copy = copy_without_weights(model)
    assert op_types(copy) == ["RandomUniform", "Add"]
    assert not copy.graph.initializers
    placeholder = copy.graph[1].inputs[1]
    assert placeholder is not None
    assert (placeholder.name, placeholder.dtype, placeholder.shape) == ("w", FLOAT, [LARGE])
    assert op_types(model) == ["Add"]
    assert "w" in model.graph.initializers

    restore_weights(copy)
    assert op_types(copy) == ["Add"]
    weight = copy.graph.initializers["w"]
    assert copy.graph[0].inputs[1] is weight
    assert weight.const_value is not None
    assert (weight.const_value.dtype, weight.const_value.shape) == (FLOAT, [LARGE])


def test_a_small_weight_stays() -> None:
    copy = copy_without_weights(weighted(LARGE - 1))
    assert op_types(copy) == ["Add"]
    assert list(copy.graph.initializers) == ["w"]


def test_a_weight_that_is_an_output_or_an_input_stays() -> None:
    output, default = weighted(LARGE), weighted(LARGE)
    output.graph.outputs.append(output.graph.initializers["w"])
    default.graph.inputs.append(default.graph.initializers["w"])
    for model in (output, default):
        assert op_types(copy_without_weights(model)) == ["Add"]


def test_a_weight_of_another_type_is_cast() -> None:
    copy = copy_without_weights(weighted(LARGE, ir.DataType.INT8))
    assert op_types(copy) == ["RandomUniform", "Cast", "Add"]
    assert copy.graph[1].attributes["to"].as_int() == ir.DataType.INT8
    restore_weights(copy)
    assert op_types(copy) == ["Add"]
    assert copy.graph.initializers["w"].dtype == ir.DataType.INT8


def test_what_is_computed_from_large_weights_alone_is_a_weight_too() -> None:
    body = "n = Neg (w)  m = Mul (n, n)  a = Add (x, m)  y = Mul (a, a)"
    model = weighted(LARGE, body=body)
    scale = ir.Value(
        name="s", type=ir.TensorType(FLOAT), const_value=ir.tensor(np.float32(2), name="s")
    )
    model.graph.initializers["s"] = scale
    for place in (1, 3):
        model.graph[place].replace_input_with(1, scale)
    copy = copy_without_weights(model)
    restore_weights(copy)
    assert op_types(copy) == ["Add", "Mul"]
    assert copy.graph[0].inputs[1] is copy.graph.initializers["m"]
    assert copy.graph[1].inputs[1] is copy.graph.initializers["s"]


def test_what_is_computed_from_other_constants_stays() -> None:
    model = graph("(float[1] x) => (float[1] y) <float[1] s = {2}> { n = Neg (s) y = Add (x, n) }")
    restore_weights(model)
    assert op_types(model) == ["Neg", "Add"]


def test_an_output_that_is_computed_from_weights_stays_one() -> None:
    copy = copy_without_weights(weighted(LARGE, body="y = Add (w, w)"))
    restore_weights(copy)
    assert op_types(copy) == ["Add"]
    assert [x.name for x in copy.graph.outputs] == ["y"]
    assert copy.graph.outputs[0].producer() is copy.graph[0]
