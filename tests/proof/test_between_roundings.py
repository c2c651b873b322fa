"""A quantized model is held from one rounding to the next, and faults between them are told."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix

# The first is rounded up if it is the least bit larger.
FEEDS = {"x": np.array([[0.49999997, 0.2, 3.4, -7.1, 90.0, -90.0, 1.0, 2.0]], np.float32)}
EPSILON = 1e-7


def model(
    more: float,
    *,
    scale: float = 1.0,
    factor: float = 0.5,
    dynamic: bool = False,
    domain: str = "",
) -> ir.Model:
    rounded = "q, s, z = DynamicQuantizeLinear (a)"
    if not dynamic:
        rounded = f"q = {domain}QuantizeLinear (a, scale, zero)"
    used = "s, z" if dynamic else "scale, zero"
    return ir.from_onnx_text(f"""<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
    m (float[B, 8] x) => (float[B, 8] y)
    <float more = {{{more}}}, float scale = {{{scale}}}, int8 zero = {{0}},
     float factor = {{{factor}}}>
    {{ a = Add (x, more) {rounded} d = DequantizeLinear (q, {used}) y = Mul (d, factor) }}""")


@pytest.mark.parametrize("domain", ["", "com.microsoft."])
def test_a_rounding_that_is_flipped_is_no_fault(domain: str) -> None:
    before, after = (model(x, domain=domain) for x in (0.0, EPSILON))
    verdict = graphfix.verify(before, after, feeds=FEEDS)
    assert verdict.ok
    (note,) = (x for x in verdict.notes if "rounded the other way" in x)
    assert note.startswith("output 'y' differs by 0.5")


@pytest.mark.parametrize(
    "after",
    [model(0.3), model(EPSILON, factor=0.51), model(EPSILON, scale=1.1)],
    ids=["before it", "behind it", "the rounding itself"],
)
def test_a_fault_is_told(after: ir.Model) -> None:
    assert not graphfix.verify(model(0.0), after, feeds=FEEDS)


def test_a_scale_that_the_model_computes_may_be_off_by_rounding_alone() -> None:
    before = model(0.0, dynamic=True)
    feeds = {"x": np.random.default_rng(0).standard_normal((400, 8)).astype(np.float32)}
    assert graphfix.verify(before, model(EPSILON, dynamic=True), feeds=feeds)
    assert not graphfix.verify(before, model(0.01, dynamic=True), feeds=feeds)


def test_a_rounding_that_is_left_out_is_a_fault() -> None:
    after = model(0.0)
    node = next(x for x in after.graph if x.op_type == "Mul")
    node.replace_input_with(0, next(x for x in after.graph if x.op_type == "Add").outputs[0])
    assert not graphfix.verify(model(0.0), after, feeds=FEEDS)


POINT = """<ir_version: 8, opset_import: ["" : 17]> m (float[B, 4] x) => (float[B, 4] y)
    <float more = {%s}> {{ a = Add (x, more) q, s, z = DynamicQuantizeLinear (a)
    d = DequantizeLinear (q, s, z) y = Mul (d, d) }}"""


def test_a_zero_point_that_is_rounded_the_other_way_moves_all_integers() -> None:
    # The range is -127.5 to 127.5 and the zero point 127.5: the last bit decides.
    feeds = {
        "x": np.array([[-127.5, 127.5, 3.2, -40.1], *[[3.2, -7.1, 9.3, 50.2]] * 99], np.float32)
    }
    before, after = (
        ir.from_onnx_text((POINT % x).replace("{{", "{").replace("}}", "}"))
        for x in ("0.0", "7e-6")
    )
    verdict = graphfix.verify(before, after, feeds=feeds)
    assert verdict.ok
    assert any("rounded the other way" in x for x in verdict.notes)


BITS = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
    m (float[B, 32] x) => (float[B, 2] y)
    <float[32] g = {%s}, uint8[2, 1, 16] w = {%s}, float[2] s = {0.5, %s}>
    { a = Mul (x, g) p = com.microsoft.MatMulNBits <K = 32, N = 2, bits = 4, block_size = 32,
    accuracy_level = 4> (a, w, s) y = Mul (p, p) }"""


def bits(gain: float = 1.0, scale: float = 0.25) -> ir.Model:
    weights = ", ".join(str((41 * i) % 251) for i in range(32))
    return ir.from_onnx_text(BITS % (", ".join([repr(gain)] * 32), weights, scale))


def test_a_product_that_rounds_its_data_is_held_too() -> None:
    assert not graphfix.verify(bits(), bits(gain=1.001))
    assert not graphfix.verify(bits(), bits(scale=0.251))
    assert graphfix.verify(bits(), bits(gain=1.0000001))
