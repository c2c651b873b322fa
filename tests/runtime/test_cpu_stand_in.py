"""Stand-ins for what the CPU has no kernel for compute what the operator does."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx.reference import ReferenceEvaluator

import graphfix
from graphfix.runtime.compared_session import open_session
from graphfix.runtime.cpu_stand_in import stand_in_copy


def graph(body: str, opset: int = 17) -> ir.Model:
    return ir.from_onnx_text(f'<ir_version: 8, opset_import: ["" : {opset}]> m {body}')


NODES = [
    ("(float[N, M] x) => (bool[N, M] y)", "EyeLike <dtype = 9> (x)"),
    ("(float[N, M] x) => (int8[N, M] y)", "EyeLike <dtype = 3, k = 1> (x)"),
    ("(float[N, M] x) => (float16[N, M] y)", "EyeLike <dtype = 10> (x)"),
    ("(int8[N, M] x) => (int8[N, M] y)", "Trilu (x)"),
    ("(uint16[N, M] x) => (uint16[N, M] y)", "Max (x, x)"),
    ("(bool[N, M] c, int16[N, M] x) => (int16[N, M] y)", "Where (c, x, x)"),
    ("(int16[N, M] x) => (int64[N] y)", "ArgMax <axis = 1, keepdims = 0> (x)"),
]


@pytest.mark.parametrize(("ports", "node"), NODES, ids=[x.partition(" ")[0] for _, x in NODES])
def test_it_computes_what_the_operator_is(ports: str, node: str) -> None:
    model = graph(f"{ports} {{ y = {node} }}")
    with pytest.raises(Exception, match="Could not find an implementation"):
        ort.InferenceSession(
            ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"]
        )
    rng = np.random.default_rng(0)
    feeds = {
        x.name or "": rng.integers(-120, 120, (3, 4)).astype(x.dtype.numpy())
        for x in model.graph.inputs
        if x.dtype is not None
    }
    with open_session(model) as session:
        (note,) = session.notes
        got = session.run(feeds)["y"]
    wanted = ReferenceEvaluator(ir.to_proto(model)).run(None, feeds)[0]
    assert note.startswith("the CPU has no kernel")
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(got, wanted)


def test_there_is_none_of_a_type_that_no_other_holds() -> None:
    assert stand_in_copy(graph("(uint64[N] x) => (uint64[N] y) { y = ReduceSum (x) }")) is None
    assert stand_in_copy(graph("(float[N] x) => (float[N] y) { y = Relu (x) }")) is None


def test_a_repair_beside_it_is_proved_and_the_file_is_not_touched() -> None:
    text = """(float[N, N] x) => (float[N, N] y)
        { e = EyeLike <dtype = 9> (x)  n = Not (e)  z = Cast <to = 9> (x)  a = And (n, z)
          y = Cast <to = 1> (a) }"""
    before, after = graph(text), graph(text)
    report = graphfix.run(after, "bool-cast")
    assert report.changed
    verdict = graphfix.verify(before, after)
    assert verdict
    assert any("no kernel for EyeLike of bool" in x for x in verdict.notes)
    assert [x.op_type for x in after.graph].count("EyeLike") == 1
    assert not any("int32" in x for x in map(str, after.graph))


def test_a_fault_beside_it_is_found() -> None:
    text = "(float[N, N] x) => (bool[N, N] y) {{ e = EyeLike <dtype = 9> (x)  y = {} (e, e) }}"
    assert not graphfix.verify(graph(text.format("And")), graph(text.format("Xor")))
