"""Where nodes run on WebGPU, as predicted."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.job import planning
from graphfix.providers.webgpu.placement import TABLE

HEAD = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>\n'


def places(text: str) -> dict[str, tuple[str, str]]:
    """Where each operator runs, and why."""
    plan = planning.plan(ir.from_onnx_text(HEAD + text), ep="webgpu")
    assert plan.ep == "webgpu"
    return {x.op: (x.where, x.why) for x in plan.places}


def test_a_row_of_the_table() -> None:
    reshape = TABLE.kernel_at("Reshape", "", 17)
    assert reshape is not None
    assert (reshape.since, reshape.cpu_inputs, reshape.cpu_outputs) == (14, {1}, frozenset())
    assert not reshape.accepts_type("T", ir.DataType.INT8)
    shape = TABLE.kernel_at("Shape", "", 17)
    assert shape is not None
    assert shape.cpu_outputs == {0}


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ("y = Hardmax (x)", "WebGPU has no kernel for Hardmax"),
        ("y = com.microsoft.FusedMatMul (x, x)", "WebGPU has no kernel for FusedMatMul"),
    ],
)
def test_what_has_no_kernel_is_on_the_cpu(node: str, why: str) -> None:
    text = f"g (float[4, 4] x) => (float[4, 4] z) {{ {node} z = Exp (y) }}"
    (op,) = {node.split("= ")[1].split(" (")[0].removeprefix("com.microsoft.")}
    found = places(text)
    assert found[op] == ("cpu", why)
    assert found["Exp"] == ("webgpu", "")


def test_a_type_may_have_no_kernel() -> None:
    text = "g (int64[N, 4] x) => (int64[N, 4] y) { a = Neg (x) y = Abs (a) }"
    assert places(text)["Abs"] == ("cpu", "WebGPU has no kernel for Abs of int64")


def test_an_optional_input_may_be_refused() -> None:
    heads = "g (float[1, N, 8] x, int32[1, N] m, float[8, 24] w, float[24] b)"
    body = "=> (float[1, N, 8] y) {{ y = com.microsoft.Attention <num_heads = 2> (x, w, b{}) }}"
    assert places(heads + body.format(""))["Attention"][0] == "webgpu"
    where = places(heads + body.format(", m"))["Attention"]
    assert where == ("cpu", "WebGPU's Attention refuses input 3")


def test_shapes_are_computed_on_the_cpu() -> None:
    text = """g (float[N, 4] x) => (float[1] y, int64[2] t)
        <int64[1] two = {2}, int64[1] zero = {0}> {
        s = Shape (x) n = Gather (s, zero) f = Cast <to = 1> (n) y = Sqrt (f)
        m = Add (n, two) t = Concat <axis = 0> (m, two) }"""
    found = places(text)
    assert found["Gather"] == ("cpu", "WebGPU has no kernel for Gather of int64")
    assert found["Concat"][0] == found["Cast"][0] == "cpu"
    assert found["Sqrt"][0] == found["Shape"][0] == "webgpu"


def test_what_the_layout_of_convolutions_adds_is_noted() -> None:
    text = """g (float[1, 4, N] x, float[4, 4, 3] w) => (float[1, 4, M] y) { y = Conv (x, w) }"""
    plan = planning.plan(ir.from_onnx_text(HEAD + text), ep="webgpu")
    assert [x.on for x in plan.steps] == ["webgpu"]
    assert "Transposes" in plan.notes[-1]


def test_a_plan_in_words_and_in_json() -> None:
    model = ir.from_onnx_text(
        HEAD + "g (float[N, 4] x) => (float[N, 4] y) { a = Exp (x) b = Hardmax (a) y = Exp (b) }"
    )
    plan = planning.plan(model, ep="webgpu")
    assert plan.line == "2 kernels on WebGPU, 0 recompiled; 1 on the CPU"
    assert [x.label for x in plan.rows()] == ["WebGPU", "CPU", "a run"]
    assert [x.name for x in plan.steps if x.on == "copy"] == ["b to WebGPU", "a to the CPU"]
    run = plan.to_json()["run"]
    assert (run["webgpu"], run["cpu"], run["copies"], run["graphs"]) == (2, 1, 2, 0)
    assert plan.to_json()["nodes"] == {"fused": 0, "webgpu": 2, "cpu": 1, "gone": 0}
