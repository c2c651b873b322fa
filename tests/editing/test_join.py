"""Two graphs as one: names, dims, weights and functions that both have."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.editing.join import Joined, join_models
from graphfix.errors import UsageError
from tests.passes.models import execute, model, opened

FRONT = """front (float[B, S] audio, int64[B] lens) => (float[B, S, 2] feats, int64[B] n)
    <float[2] w = {1.0, 2.0}, int64[1] last = {2}>
    { u = Unsqueeze (audio, last) feats = Mul (u, w) n = Identity (lens) }"""
ENCODER = """encoder (float[N, T, 2] x, int64[N] lens) => (float[N, T, 2] y, int64[N] n)
    <float[2] w = {1.0, 3.0}> { u = Add (x, w) y = Neg (u) n = Identity (lens) }"""


def joined(first: str, second: str, **connect: str) -> Joined:
    return join_models(model(first), model(second), connect)


def texts(values: object) -> list[str]:
    return [f"{x.name}{x.shape}" for x in values]  # type: ignore[attr-defined]


def test_what_both_have_is_told_apart():
    both = joined(FRONT, ENCODER, feats="x")
    assert texts(both.model.graph.inputs) == ["audio[B,S]", "lens[B]"]
    assert texts(both.model.graph.outputs) == ["n[B]", "y[B,S,2]", "second_n[B]"]
    assert both.inputs == {"lens": "lens"}
    assert both.outputs == {"y": "y", "n": "second_n"}
    assert both.shared_inputs == ("lens",)
    audio, lens = np.ones((1, 3), np.float32), np.array([3])
    y = execute(both.model, {"audio": audio, "lens": lens})[1]
    assert y[0, 0].tolist() == [-2.0, -5.0]


def test_dims_that_the_connection_does_not_tie_stay_two():
    second = """s (float[B, T] x, float[B, S] z) => (float[B, T] y, float[B, S] v)
        { y = Neg (x) v = Abs (z) }"""
    both = joined("f (float[B, S] a) => (float[B, S] b) { b = Abs (a) }", second, b="x")
    assert texts(both.model.graph.inputs) == ["a[B,S]", "z[B,second_S]"]
    assert texts(both.model.graph.outputs) == ["y[B,S]", "v[B,second_S]"]


def test_sizes_and_expressions_are_handed_on():
    first = model("f (float[B, S] a) => (float[B, K, 3] b) { b = Neg (a) }")
    first.graph.outputs[0].shape = ir.Shape(["B", "S//2", 3])
    second = model("s (float[N, T, F] x) => (float[N, T, F] y) { y = Neg (x) }")
    second.graph.outputs[0].shape = ir.Shape(["N", "T + 1", "F"])
    both = join_models(first, second, {"b": "x"})
    assert texts(both.model.graph.outputs) == ["y[B,(S//2) + 1,3]"]


def test_inputs_of_one_name_and_another_type_are_two():
    both = joined(FRONT, ENCODER.replace("int64[N] lens", "int32[N] lens"), feats="x")
    assert texts(both.model.graph.inputs) == ["audio[B,S]", "lens[B]", "second_lens[B]"]
    assert both.inputs == {"lens": "second_lens"}


def test_weights_of_the_same_bytes_are_stored_once():
    table = np.arange(32, dtype=np.float32).reshape(16, 2)
    models = [model(x) for x in (FRONT, ENCODER)]
    for m, name, array in zip(models, ("t", "s"), (table, table.copy()), strict=True):
        value = ir.Value(name=name, const_value=ir.tensor(array, name=name))
        value.shape, value.type = ir.Shape([16, 2]), ir.TensorType(ir.DataType.FLOAT)
        m.graph.register_initializer(value)
        node = ir.node("ReduceSum", [value], attributes={"keepdims": 0})
        node.outputs[0].name = f"sum_{name}"
        node.outputs[0].type, node.outputs[0].shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([])
        m.graph.append(node)
        m.graph.outputs.append(node.outputs[0])
    both = join_models(*models, {"feats": "x"})
    assert (both.shared_weights, both.shared_bytes) == (1, 128)
    assert "t" in both.model.graph.initializers
    assert "s" not in both.model.graph.initializers
    assert opened(both.model)


def test_bodies_see_what_they_saw():
    second = """s (float[N, T, 2] x, bool c) => (float[N, T, 2] y)
        { y = If (c) < then_branch = t () => (float[N, T, 2] u) { u = Neg (x) },
                       else_branch = e () => (float[N, T, 2] v) { v = Abs (x) } > }"""
    both = joined(FRONT, second, feats="x")
    feeds = {"audio": np.ones((1, 1), np.float32), "lens": np.array([1]), "c": np.array(True)}
    assert execute(both.model, feeds)[1].tolist() == [[[-1.0, -2.0]]]


def test_what_the_second_hands_on_is_an_output_still():
    second = "s (float[N, T, 2] x) => (float[N, T, 2] x, float[N, T, 2] y) { y = Neg (x) }"
    both = joined(FRONT, second, feats="x")
    assert both.outputs == {"x": "x", "y": "y"}
    feeds = {"audio": np.ones((1, 1), np.float32), "lens": np.array([1])}
    assert [x.tolist() for x in execute(both.model, feeds)[1:]] == [
        [[[1.0, 2.0]]],
        [[[-1.0, -2.0]]],
    ]


def test_the_same_function_is_one_and_another_is_a_sentence():
    text = """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
        m (float[N] NAME) => (float[N] OUT) { OUT = f.g (NAME) }
        <domain: "f", opset_import: ["" : 17]> g (a) => (b) { b = Neg (a) }"""
    first = text.replace("NAME", "x").replace("OUT", "y")
    second = text.replace("NAME", "v").replace("OUT", "w")
    both = join_models(ir.from_onnx_text(first), ir.from_onnx_text(second), {"y": "v"})
    assert len(both.model.functions) == 1
    assert execute(both.model, {"x": np.ones(1, np.float32)})[0].tolist() == [1.0]
    other = ir.from_onnx_text(second.replace("Neg", "Abs"))
    with pytest.raises(UsageError, match="local function f"):
        join_models(ir.from_onnx_text(first), other, {"y": "v"})


@pytest.mark.parametrize(
    ("connect", "second", "words"),
    [
        ({"feat": "x"}, ENCODER, "no output 'feat'; did you mean 'feats'"),
        ({"feats": "z"}, ENCODER, "no input 'z'"),
        ({"feats": "x"}, ENCODER.replace("float[N, T, 2] x", "float16[N, T, 2] x"), "float16 is"),
        ({"feats": "x"}, ENCODER.replace("float[N, T, 2] x", "float[N, T] x"), "2 are wanted"),
        ({"feats": "x"}, ENCODER.replace("float[N, T, 2] x", "float[N, T, 5] x"), "5 is wanted"),
        ({"feats": "x", "n": "x"}, ENCODER, "'n' does not fit"),
    ],
)
def test_what_does_not_fit_is_a_sentence(connect, second, words):
    with pytest.raises(UsageError, match=words):
        join_models(model(FRONT), model(second), connect)
