"""Rules for quantized numbers, in which a tail of zeros is one of zero points."""

import dataclasses

import onnx_ir as ir

from graphfix.graph.constants import scalar_of
from graphfix.graph.nodes import input_at
from graphfix.lengths.rule_site import PaddingRule, RuleSite
from graphfix.lengths.tail_state import ZERO, Tail, TensorState, state_without_time


def infer_dynamic_quantize(site: RuleSite) -> list[TensorState | None]:
    """Require zeros in the tail: the range taken from the tensor holds 0 in any case."""
    state = site.input_state()
    for axis in state.time_axes:
        state = site.require_zero_tail(0, axis, "maximum pollution")
    return [
        _quantize_state(state, site.node.outputs[2]),
        state_without_time(()),
        state_without_time(()),
    ]


def infer_quantize(site: RuleSite) -> TensorState:
    """Infer each number by itself; a zero becomes the zero point."""
    site.check_parameters("its scale carries time")
    return _quantize_state(site.input_state(), input_at(site.node, 2))


def infer_dequantize(site: RuleSite) -> TensorState:
    """Infer each number by itself; the zero point becomes a zero."""
    site.check_parameters("its scale carries time")
    state = subtract_zero_point(site, 0, 2)
    return TensorState(state.axes, state.tails_after_arithmetic(zeros=True))


def _quantize_state(state: TensorState, point: ir.Value | None) -> TensorState:
    number = zero_point_number(point)
    zero = Tail("point") if number is None else Tail("number", number)
    tails = tuple(zero if x and x.is_zero else x and x.after_arithmetic for x in state.tails)
    return TensorState(state.axes, tails, point=point)


def zero_point_number(point: ir.Value | None) -> float | None:
    """Return the one number that a zero point is, 0 if it is absent; None if it is not known."""
    number = 0 if point is None else scalar_of(point)
    return None if number is None else float(number)


def subtract_zero_point(site: RuleSite, index: int, at: int) -> TensorState:
    """Store and return the state of an input minus its zero point.

    Args:
        site: The node.
        index: The input.
        at: Which input is its zero point.
    """
    point = site.zero_points[index] = input_at(site.node, at)
    state, number = site.input_state(index), zero_point_number(point)
    tails: list[Tail | None] = []
    for tail in state.tails:
        same = tail is not None and (
            (tail.kind == "number" and number is not None and tail.value == number)
            or (tail.kind == "point" and state.point is not None and state.point is point)
        )
        tails.append(ZERO if same else tail and tail.after_arithmetic)
    level = None if number is None or state.valid_value is None else state.valid_value - number
    site.states[index] = dataclasses.replace(
        state, tails=tuple(tails), sign=0, fill=None, valid_fill=level, point=None
    )
    return site.input_state(index)


RULES = {
    "DequantizeLinear": PaddingRule(infer_dequantize),
    "DynamicQuantizeLinear": PaddingRule(infer_dynamic_quantize),
    "QuantizeLinear": PaddingRule(infer_quantize),
}
