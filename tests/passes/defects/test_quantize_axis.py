"""quantize-axis: which are written as com.microsoft's, what is left alone, equal numbers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.core import Skip
from graphfix.facts.shapes import infer
from tests.passes.models import data, execute, model

ZEROS = ", {kind}[3] z = {{1, 2, 3}}"
SCALES = "float[3] s = {0.5, 0.25, 0.125}"
REPAIRED = {
    "a picture": ("DequantizeLinear", "A, 3, B, C", "axis = 1", True),
    "counted from behind": ("DequantizeLinear", "A, 3, B, C", "axis = -3", True),
    "axis 1 if none is given": ("DequantizeLinear", "A, 3, B", "", True),
    "rows": ("DequantizeLinear", "3, B", "axis = 0", True),
    "without zero points": ("DequantizeLinear", "A, 3, B", "axis = 1", False),
    "made integers": ("QuantizeLinear", "A, 3, B", "axis = 1", True),
    "made integers without zero points": ("QuantizeLinear", "A, 3, B", "axis = 1", False),
}


def quantizing(
    op: str, dims: str, axis: str, zeros: bool = True, *, opset: int = 21, kind: str = "uint8"
) -> ir.Model:
    kinds = (kind, "float") if op == "DequantizeLinear" else ("float", kind)
    attributes = f"<{axis}>" if axis else ""
    return model(
        f"m ({kinds[0]}[{dims}] x) => ({kinds[1]}[{dims.replace('3', 'X')}] y) "
        f"<{SCALES}{ZEROS.format(kind=kind) if zeros else ''}> "
        f"{{ y = {op} {attributes} (x, s{', z' if zeros else ''}) }}",
        opset,
    )


def feeds(m: ir.Model) -> dict[str, np.ndarray]:
    sizes = {"A": 2, "B": 5, "C": 4}
    (x,) = m.graph.inputs
    random = np.random.default_rng(0)
    made = random.standard_normal([sizes.get(str(d), d) for d in x.shape]) * 40
    return {"x": np.abs(made).astype(x.dtype.numpy())}


def check_same(before: ir.Model, after: ir.Model, given: dict[str, np.ndarray]) -> None:
    (old,), (new,) = execute(before, given), execute(after, given)
    assert old.dtype == new.dtype
    np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("opset", [21, 23])
@pytest.mark.parametrize("case", REPAIRED)
def test_microsoft_s(case: str, opset: int) -> None:
    before, after = (quantizing(*REPAIRED[case], opset=opset) for _ in range(2))
    report = graphfix.run(after, "opset-ceiling,quantize-axis")
    assert len(report.passes[1].changes) == 1
    (node,) = after.graph
    assert (node.domain, node.op_type) == ("com.microsoft", REPAIRED[case][0])
    assert len(node.inputs) == 3
    assert not graphfix.run(after, "quantize-axis").changed
    old, new = (infer(x) for x in (before, after))  # others go on with what is inferred again
    y, made = before.graph.outputs[0], after.graph.outputs[0]
    assert (str(new.dims(made)), new.dtype(made)) == (str(old.dims(y)), old.dtype(y))
    check_same(before, after, feeds(before))


def test_the_types_of_microsoft_s_are_known() -> None:
    m = model(
        f"""m (float[A, 3, B] x) => (float[A, 3, B] y) <{SCALES}, int8[3] z = {{1, 2, 3}}>
        {{ signed = com.microsoft.QuantizeLinear <axis = 1> (x, s, z)
           usual = com.microsoft.QuantizeLinear <axis = 1> (x, s)
           y = com.microsoft.DequantizeLinear <axis = 1> (signed, s, z) }}""",
        17,
        ', "com.microsoft" : 1',
    )
    made = [infer(m).dtype(node.outputs[0]) for node in m.graph]
    assert made == [ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.FLOAT]


WEIGHT = """m (float[B, 3, T] x) => (float[B, 2, U] y)
    <int8[2, 3, 1] w = {1, 2, 3, 4, 5, 6}, float[2] s = {0.5, 0.25}>
    { k = DequantizeLinear <axis = 0> (w, s) y = Conv (x, k) }"""


def test_what_the_cpu_does_is_no_error() -> None:
    found = graphfix.check(model(WEIGHT, 23), "quantize-axis")
    assert [x.severity for x in found] == ["note"]


@pytest.mark.parametrize("m", [quantizing(*REPAIRED["rows"]), model(WEIGHT, 21)], ids=["x", "w"])
def test_it_is_an_error_on_directml(m: ir.Model) -> None:
    assert [x.rule for x in graphfix.check(m) if x.severity == "error"] == ["quantize-axis"]
    graphfix.run(m, "directml")
    assert not [x for x in graphfix.check(m) if x.severity == "error"]


def test_a_weight_stays_of_8_bits() -> None:
    before, after = model(WEIGHT, 21), model(WEIGHT, 21)
    graphfix.run(after, "directml")
    assert [x.op_type for x in after.graph] == ["DequantizeLinear", "Conv"]
    assert after.graph.initializers["w"].dtype == ir.DataType.INT8
    x = {"x": np.random.default_rng(0).random((2, 3, 5), np.float32)}
    np.testing.assert_array_equal(execute(before, x)[0], execute(after, x)[0])


def test_scales_of_a_wide_layer_may_come_from_anywhere() -> None:
    text = """m (uint8[2000, B] x, float[2000] s) => (float[X, B] y)
        { y = DequantizeLinear <axis = 0> (x, s) }"""
    before, after = model(text, 21), model(text, 21)
    assert graphfix.run(after, "quantize-axis").changed
    random = np.random.default_rng(0)
    x, s = random.integers(0, 255, (2000, 3), np.uint8), random.random(2000, np.float32)
    check_same(before, after, {"x": x, "s": s})


LEFT = {
    "the last axis": quantizing("DequantizeLinear", "A, B, 3", "axis = 2"),
    "opset 20": quantizing("DequantizeLinear", "A, 3, B", "axis = 1", opset=20),
    "blocks": model(
        """m (uint8[6, B] x, float[3, B] s) => (float[6, B] y)
        { y = DequantizeLinear <axis = 0, block_size = 2> (x, s) }""",
        21,
    ),
    "a scale in a list": model(
        """m (uint8[A, 1, B] x) => (float[A, 1, B] y) <float[1] s = {2}>
        { y = DequantizeLinear <axis = 1> (x, s) }""",
        21,
    ),
    "bfloat16": model(
        """m (uint8[A, 3, B] x, bfloat16[3] s) => (bfloat16[A, 3, B] y)
        { y = DequantizeLinear <axis = 1> (x, s) }""",
        21,
    ),
    "16 bits": quantizing("DequantizeLinear", "A, 3, B", "axis = 1", kind="uint16"),
    "scales of another type": model(
        f"""m (float16[A, 3, B] x) => (uint8[A, 3, B] y) <{SCALES}>
        {{ y = QuantizeLinear <axis = 1> (x, s) }}""",
        23,
    ),
    "a result of another type": model(
        f"""m (uint8[A, 3, B] x) => (float16[A, 3, B] y) <{SCALES}>
        {{ y = DequantizeLinear <axis = 1, output_dtype = 10> (x, s) }}""",
        23,
    ),
    "a precision": model(
        f"""m (float[A, 3, B] x) => (uint8[A, 3, B] y) <{SCALES}>
        {{ y = QuantizeLinear <axis = 1, precision = 1> (x, s) }}""",
        23,
    ),
}


@pytest.mark.parametrize("case", LEFT)
def test_what_is_right_is_left_alone(case: str) -> None:
    m = LEFT[case]
    before = data(m)
    assert not graphfix.check(m, "quantize-axis")
    assert not graphfix.run(m, "quantize-axis").changed
    assert data(m) == before


def test_four_bits_are_told() -> None:
    m = model(
        """m (float[3, B] x, float[3] s, int4[3] z) => (float[3, B] y)
        { q = QuantizeLinear <axis = 0> (x, s, z) y = DequantizeLinear <axis = 0> (q, s, z) }""",
        21,
    )
    found = [*graphfix.get_pass("quantize-axis").sites(m)]
    assert ["4 bits" in x.reason for x in found if isinstance(x, Skip)] == [True, True]


def test_scales_that_are_not_known_need_zero_points() -> None:
    m = model(
        """m (uint8[A, N, B] x, float[N] s) => (float[A, N, B] y)
        { y = DequantizeLinear <axis = 1> (x, s) }""",
        21,
    )
    (found,) = graphfix.get_pass("quantize-axis").sites(m)
    assert isinstance(found, Skip)
    assert "no zero points" in found.reason
