"""What ONNX Runtime refuses to load is an error, with its reason."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from tests.rules.checking import findings, graph

REFUSED = {
    "dims": "(float[2, 3] x, float[4, 5] w) => (float[2, 5] y) { y = MatMul (x, w) }",
    "joined": "(float[2, 3] x, float[4, 5] w) => (y) { y = Concat <axis = 0> (x, w) }",
    "axis": "(float[2, 3] x) => (y) { y = Softmax <axis = 5> (x) }",
    "literal type": "(float[2, 3] x, float[2] s) => (y) { y = Reshape (x, s) }",
    "kernel": '(float[1, 3, 8] x, float[4, 3, 3] w) => (y) { y = Conv <auto_pad = "SAME"> (x, w) }',
    "attribute": """(float[5, 1, 3] x, float[1, 16, 3] w, float[1, 16, 4] r) => (y)
        { y = LSTM (x, w, r) }""",
    "impossible": "(float[2, 3] x) => (y) <int64[2] s = {4, -1}> { y = Reshape (x, s) }",
    "state": """(float[N] x) => (float[N] y) <int64 m = {5}, bool ok = {1}>
        { y = Loop (m, ok, x) <body = b (int64 i, bool c, int32[N] s) => (bool d, int32[N] t)
            { t = Identity (s)  d = Identity (c) }> }""",
    "outer value": """(bool c, float[N] x) => (float[N] y) { y = If (c) <
        then_branch = t () => (float[N] x) { },
        else_branch = e () => (float[N] q) { q = Neg (x) }> }""",
}


@pytest.mark.parametrize("ep", ["dml", "cpu"])
@pytest.mark.parametrize("kind", REFUSED)
def test_it_is_an_error_on_each_provider(kind: str, ep: str) -> None:
    (hit,) = findings(graph(REFUSED[kind], 17), "does-not-load", ep)
    assert hit.severity == "error"
    assert "does not load the model: " in hit.message


def test_the_node_is_the_one_that_it_names() -> None:
    text = "(float[2, 3] x, float[4, 5] w) => (y) { a = Relu (x) [bad] y = MatMul (a, w) }"
    assert [x.at for x in findings(graph(text), "does-not-load")] == ["bad"]
    assert [x.at for x in findings(graph(text.replace("[bad]", "")), "does-not-load")] == [
        "the model"
    ]


def test_an_opset_that_is_too_new() -> None:
    (hit,) = findings(graph("(float[N] x) => (float[N] y) { y = Relu (x) }", 99), "does-not-load")
    assert "opset" in hit.message


@pytest.mark.parametrize(
    "text",
    [
        # DirectML has the kernel that the CPU lacks.
        graph("(float[N, N] x) => (bool[N, N] y) { y = EyeLike <dtype = 9> (x) }", 17),
        # A library of custom operators has it.
        """<ir_version: 8, opset_import: ["" : 17, "com.acme" : 1]>
            m (float[N] x) => (float[N] y) { y = com.acme.Magic (x) }""",
        # Repaired by the pass loadable, which reports it.
        graph("(float[N] x) => (float[N] y) { [a] h = Relu (x) [a] y = Neg (h) }"),
    ],
    ids=["no CPU kernel", "custom", "names"],
)
def test_what_has_another_finding_or_none(text: str) -> None:
    assert not findings(text, "does-not-load")


def test_large_weights_are_not_read_and_the_model_is_as_before() -> None:
    model = ir.from_onnx_text(
        graph("(float[N, 8] x, float[8, 4096] w) => (y) { y = MatMul (x, w) }")
    )
    weight = model.graph.inputs.pop()
    read = []

    def numbers() -> ir.TensorProtocol:
        read.append(1)
        return ir.tensor(np.zeros((8, 4096), np.float32))

    weight.const_value = ir.LazyTensor(numbers, dtype=ir.DataType.FLOAT, shape=ir.Shape([8, 4096]))
    model.graph.initializers["w"] = weight
    assert not graphfix.check(model, "does-not-load")
    assert not read
    assert [x.name for x in model.graph.inputs] == ["x"]
    assert list(model.graph.initializers) == ["w"]


STALE = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[N, 4] x, float[4, 5] w) => (float[N, 5] y)
    <int64[1] one = {1}, int64[1] four = {4}, float[N, 7] h>
    { s = Shape <start = 0, end = 1> (x)  n = Mul (s, one)  u = Concat <axis = 0> (n, four)
      h = Reshape (x, u)  y = MatMul (h, w) }"""


def test_a_declared_shape_that_it_stumbles_over_is_repaired_and_proved() -> None:
    (hit,) = findings(STALE, "does-not-load")
    assert hit.fix == "fresh-shapes"
    before, after = ir.from_onnx_text(STALE), ir.from_onnx_text(STALE)
    graphfix.run(after, "fresh-shapes")
    verdict = graphfix.verify(before, after)
    assert verdict, str(verdict)
    assert any("does not load the original" in x for x in verdict.notes)
    assert not graphfix.check(after, "does-not-load")
