"""Rules for quantized numbers."""

from __future__ import annotations

import pytest

from graphfix.lengths.joint_axes import RefusedError
from graphfix.lengths.rules.quantize import (
    infer_dequantize,
    infer_dynamic_quantize,
    infer_quantize,
    subtract_zero_point,
    zero_point_number,
)
from graphfix.lengths.tail_state import ANY, FINITE, LAST, ONE, ZERO, Tail
from tests.lengths.sites import asked_leaks, site_of

CONSTANTS = "float s = {0.5}, uint8 p = {3}"
QUANTIZED = "uint8[B, T, 4] x, uint8 u, uint8 v"
POINT, THREE = Tail("point"), Tail("number", 3.0)


@pytest.mark.parametrize(
    ("node", "tail", "expected"),
    [
        ("QuantizeLinear (x, s, p)", ZERO, THREE),
        ("QuantizeLinear (x, s)", ZERO, ZERO),
        ("QuantizeLinear (x, s, u)", ZERO, POINT),
        ("QuantizeLinear (x, s, p)", ONE, FINITE),
        ("QuantizeLinear (x, s, p)", ANY, ANY),
    ],
)
def test_a_tail_of_zeros_becomes_one_of_zero_points(node: str, tail: Tail, expected: Tail) -> None:
    inputs = "float[B, T, 4] x, uint8 u"
    site = site_of(f"y = {node}", inputs=inputs, constants=CONSTANTS, x=tail)
    state = infer_quantize(site)
    assert state.tails == (None, expected, None)
    assert [str(state.size_along(i)) for i in range(3)] == ["B", "T", "4"]
    assert (None if state.point is None else state.point.name) == (
        None if node.count(",") == 1 else node[-2]
    )


@pytest.mark.parametrize(
    ("points", "tail", "expected"),
    [
        (", p", THREE, ZERO),
        (", p", Tail("number", 4.0), FINITE),
        ("", THREE, FINITE),
        ("", ZERO, ZERO),
        (", u", THREE, FINITE),
        (", p", FINITE, FINITE),
        (", p", LAST, FINITE),
        (", p", ANY, ANY),
    ],
)
def test_a_tail_of_zero_points_becomes_one_of_zeros(
    points: str, tail: Tail, expected: Tail
) -> None:
    node = f"y = DequantizeLinear (x, s{points})"
    site = site_of(node, inputs=QUANTIZED, constants=CONSTANTS, x=tail)
    assert infer_dequantize(site).tails == (None, expected, None)


@pytest.mark.parametrize(("read", "expected"), [("u", ZERO), ("v", FINITE)])
def test_a_zero_point_that_is_computed_is_known_by_its_tensor(read: str, expected: Tail) -> None:
    node = f"y = DequantizeLinear (x, s, {read})"
    site = site_of(node, inputs=QUANTIZED, constants=CONSTANTS, x=POINT)
    state = site.input_state()
    point = next(x for x in site.node.graph.inputs if x.name == "u")
    site.states[0] = type(state)(state.axes, state.tails, point=point)
    assert infer_dequantize(site).tails == (None, expected, None)


def test_without_a_point_no_tail_is_one_of_points() -> None:
    site = site_of("y = DequantizeLinear (x, s)", inputs=QUANTIZED, constants=CONSTANTS, x=POINT)
    assert infer_dequantize(site).tails == (None, FINITE, None)


@pytest.mark.parametrize(
    ("point", "filled", "expected"), [("p", 5.0, 2.0), ("p", None, None), ("u", 5.0, None)]
)
def test_a_number_everywhere_is_lowered_by_the_point(
    point: str, filled: float | None, expected: float | None
) -> None:
    node = f"y = DequantizeLinear (x, s, {point})"
    facts = {"valid_fill": filled, "sign": 2}
    site = site_of(node, inputs=QUANTIZED, constants=CONSTANTS, x=facts)
    state = subtract_zero_point(site, 0, 2)
    assert (state.valid_fill, state.fill, state.sign, state.point) == (expected, None, 0, None)
    assert site.input_state() is state
    assert site.zero_points[0] is site.node.inputs[2]


@pytest.mark.parametrize(("tail", "leak"), [(FINITE, ["maximum pollution"]), (ZERO, [])])
def test_a_dynamic_range_is_taken_over_zeros(tail: Tail, leak: list[str]) -> None:
    site = site_of("y, s, p = DynamicQuantizeLinear (x)", x=tail)
    quantized, scale, point = infer_dynamic_quantize(site)
    assert asked_leaks(site) == leak
    assert quantized is not None
    assert quantized.tails == (None, POINT, None)
    assert quantized.point is site.node.outputs[2]
    assert scale is not None
    assert scale == point
    assert scale.axes == ()


@pytest.mark.parametrize("infer", [infer_quantize, infer_dequantize])
def test_a_scale_of_each_frame_is_refused(infer: object) -> None:
    inputs = "float[B, T, 4] x, float[T] t, uint8[T] r"
    site = site_of("y = QuantizeLinear <axis = 1> (x, t, r)", inputs=inputs)
    with pytest.raises(RefusedError, match="its scale carries time"):
        infer(site)


def test_zero_points_are_numbers_where_they_are_constant() -> None:
    site = site_of("y = QuantizeLinear (x, s, p)", constants=CONSTANTS)
    assert zero_point_number(None) == 0
    assert zero_point_number(site.node.inputs[2]) == 3
    assert zero_point_number(site.node.inputs[0]) is None
