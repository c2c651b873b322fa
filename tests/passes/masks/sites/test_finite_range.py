"""Bounds of what operators compute, and what may be infinite or NaN."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.facts.intervals import Interval
from graphfix.facts.view import View
from graphfix.passes.masks.sites.finite_range import FiniteBounds
from tests.passes.models import model


@pytest.mark.parametrize(
    ("body", "bounds"),
    [
        ("y = MatMul (x, x)", Interval(-1e30, 1e30)),
        ("y = ConvTranspose (image, image)", Interval(-1e30, 1e30)),
        ("y = InstanceNormalization (image, few, few)", Interval(-1e30, 1e30)),
        ("y = HardSigmoid (x)", Interval(-1e30, 1e30)),
        ("y = ReverseSequence (few, n)", Interval(-3, 2)),
        ("y = Flatten (few)", Interval(-3, 2)),
        ("y = Neg (few)", Interval(-2, 3)),
        ("h = Sub (few, few) y = Mul (h, few)", Interval(-15, 15)),
        # 0 / 0 in a row of zeros.
        ("y = LpNormalization (x)", "may make -inf or NaN"),
        ("y = Log (few)", "may make -inf or NaN"),
        ("y = Identity (x)", "the caller may give -inf"),
        ("y = Add (low, low)", "beyond float"),
    ],
)
def test_bounds_or_a_reason(body: str, bounds: Interval | str) -> None:
    text = f"""m (float[T, T] x, float[B, C, T] image, int64[2] n) => (float[A, C] y)
        <float[2] few = {{-3, 2}}, float low = {{-3e38}}> {{ {body} }}"""
    m = model(text)
    result = FiniteBounds(View(m)).bounds_of(m.graph.outputs[0])
    if isinstance(bounds, Interval):
        assert result == bounds
    else:
        assert isinstance(result, str)
        assert bounds in result


def test_a_weight_too_large_to_be_read() -> None:
    m = model("m (float[T] x) => (float[T] y) <float[2] w = {1, 2}> { y = Add (x, w) }")
    weight = m.graph.initializers["w"]
    weight.const_value = ir.LazyTensor(
        lambda: pytest.fail("it was read"), dtype=ir.DataType.FLOAT, shape=ir.Shape([1 << 23])
    )
    weight.shape = ir.Shape([1 << 23])
    assert "is too large" in str(FiniteBounds(View(m)).bounds_of(weight))
    assert "is an input" in str(FiniteBounds(View(m)).bounds_of(m.graph.inputs[0]))


ORDINARY = Interval(-1e30, 1e30)


@pytest.mark.parametrize(
    ("body", "bounds"),
    [
        ("y = Add (few, five)", Interval(2, 7)),
        ("y = Sub (few, five)", Interval(-8, -3)),
        ("y = Mul (few, down)", Interval(-4, 6)),
        ("y = Div (few, down)", Interval(-1, 1.5)),
        ("y = Div (five, few)", "may make -inf or NaN"),
        ("y = Div (five, nil)", "may make -inf or NaN"),
        ("y = Trilu (square)", Interval(0, 4)),
        ("k = Neg (square) y = Trilu (k)", Interval(-4, 0)),
        ("y = Clip (few)", Interval(-3, 2)),
        ("y = Clip (few, nil, five)", Interval(-3, 5)),
        ('y = Clip (few, "", five)', Interval(-3, 5)),
        ("y = Max (few, five)", Interval(-3, 5)),
        ("y = Min (few, five)", Interval(-3, 5)),
        ("y = Concat <axis = 0> (few, few, down1)", Interval(-3, 2)),
        ("y = Where (which, few, five)", Interval(-3, 5)),
        ("y = Where (which, x, five)", "the caller may give -inf"),
        ("y = Cast <to = 1> (which)", Interval(0, 1)),
        ("y = Cast <to = 1> (n)", Interval(-(2.0**63), 2.0**63)),
        ("y = Cast <to = 1> (few)", Interval(-3, 2)),
        ("y = Gather (few, n)", Interval(-3, 2)),
        ("y = Expand (five, n)", Interval(5, 5)),
        ("m = MatMul (x, x) y = Mul (m, five)", ORDINARY),
        ("m = MatMul (x, x) y = Mul (m, half)", ORDINARY),
        ("m = MatMul (x, x) y = Mul (m, m)", ORDINARY),
        ("m = MatMul (x, x) a = Add (m, m) y = Mul (a, m)", "beyond float"),
        ("m = MatMul (x, x) y = Add (m, few)", Interval(-1e30, 1e30)),
        # In float16 there is room for a floor of -1e4, and none for two results.
        ("m = MatMul (h, h) y = Add (m, floor16)", Interval(-6e4, 4e4)),
        ("m = MatMul (h, h) y = Add (m, m)", "beyond float16"),
        ("y = Identity (infinite)", "holds inf"),
        ("k = Neg (infinite) y = Add (few, k)", "holds inf"),
        ("k = Log (nil) y = Add (few, k)", "may make -inf or NaN"),
        ("y = Exp (few)", "may make -inf or NaN"),
        ("y = Sqrt (few)", "may make -inf or NaN"),
    ],
)
def test_bounds_are_combined(body: str, bounds: Interval | str) -> None:
    text = f"""m (float[T, T] x, bool[2] which, int64[2] n, float16[4, 4] h) => (float y)
        <float[2] few = {{-3, 2}}, float five = {{5}}, float half = {{0.5}}, float nil = {{0}},
         float down = {{-2}}, float[1] down1 = {{-2}}, float[2, 2] square = {{1, 2, 3, 4}},
         float low = {{-1e4}}, float big = {{1e38}}, float[2] infinite = {{1, 2}}>
        {{ floor16 = Cast <to = 10> (low) {body} }}"""
    m = model(text)
    array = ir.tensor(np.array([1, np.inf], np.float32), name="infinite")
    m.graph.initializers["infinite"].const_value = array
    m.graph.outputs[0].type = m.graph.outputs[0].shape = None
    result = FiniteBounds(View(m)).bounds_of(m.graph.outputs[0])
    if isinstance(bounds, Interval):
        assert isinstance(result, Interval), result
        assert (result.low, result.high) == pytest.approx((bounds.low, bounds.high), rel=1e-3)
    else:
        assert isinstance(result, str)
        assert bounds in result


def test_bounds_are_followed_over_64_nodes() -> None:
    for count, known in ((61, True), (62, False)):
        chain = " ".join(f"n{i + 1} = Neg (n{i})" for i in range(count))
        m = model(f"m (bool[T] x) => (float[T] y) {{ n0 = Cast <to = 1> (x) {chain} "
                  f"y = Neg (n{count}) }}")  # fmt: skip
        result = FiniteBounds(View(m)).bounds_of(m.graph.outputs[0])
        assert isinstance(result, Interval) == known
        assert known or "too many nodes" in str(result)


@pytest.mark.parametrize(
    ("number", "dtype", "is_beyond"),
    [
        (65504.0, np.float16, False),
        (3.4e38, np.float32, False),
        (1e300, np.float64, False),
        (3.3e38, "bfloat16", False),
        (3.4e38, "bfloat16", True),
    ],
)
def test_the_largest_numbers_of_each_type(number: float, dtype: object, is_beyond: bool) -> None:
    """A sum with 0 is as large as the number; twice as large is beyond, but for float64."""
    kind = ir.DataType.BFLOAT16 if dtype == "bfloat16" else ir.DataType.from_numpy(np.dtype(dtype))
    name = {ir.DataType.FLOAT16: "float16", ir.DataType.DOUBLE: "double"}.get(kind, "float")
    name = "bfloat16" if kind == ir.DataType.BFLOAT16 else name
    for factor in (1, 2):
        m = model(f"m ({name}[1] x) => ({name}[1] y) {{ z = Relu (x) y = Add (x, x) }}")
        bounds = FiniteBounds(View(m))
        x, half = m.graph.inputs[0], number * factor / 2
        bounds._bounds_by_value[x] = Interval(-half, half)
        result = bounds.bounds_of(m.graph.outputs[0])
        expected = is_beyond or (factor == 2 and kind != ir.DataType.DOUBLE)
        assert isinstance(result, str) == expected, result
        assert not expected or f"may reach -{number * factor:.6g}, beyond {name}" in str(result)
