"""Quantized numbers: a tail of zeros becomes one of zero points, and has to be one."""

import dataclasses

import onnx_ir as ir

from graphfix.graph.constants import scalar_of
from graphfix.graph.nodes import input_at
from graphfix.lengths.rule_site import Rule, Site
from graphfix.lengths.tail_state import ZERO, State, Tail, plain


def quantize_dynamically(site: Site) -> list[State | None]:
    """The range that it takes from the tensor holds 0 in any case."""
    state = site.state()
    for axis in state.timed:
        state = site.need_zero(0, axis, "maximum pollution")
    return [_quantized(state, site.node.outputs[2]), plain(()), plain(())]


def quantize(site: Site) -> State:
    """Each number by itself; a zero becomes the zero point."""
    site.check_behind("its scale carries time")
    return _quantized(site.state(), input_at(site.node, 2))


def dequantize(site: Site) -> State:
    """Each number by itself; the zero point becomes a zero."""
    site.check_behind("its scale carries time")
    state = unbiased(site, 0, 2)
    return State(state.axes, state.recomputed(zeros=True))


def _quantized(state: State, point: ir.Value | None) -> State:
    number = number_of(point)
    zero = Tail("point") if number is None else Tail("number", number)
    tails = tuple(zero if x and x.is_zero else x and x.recomputed for x in state.tails)
    return State(state.axes, tails, point=point)


def number_of(point: ir.Value | None) -> float | None:
    """The number that a zero point is, if it is one and the same: 0 if it is not given."""
    number = 0 if point is None else scalar_of(point)
    return None if number is None else float(number)


def unbiased(site: Site, index: int, at: int) -> State:
    """What an input is once its zero point is taken off: kept as its state, and given back.

    Args:
        site: The node.
        index: The input.
        at: Which input is its zero point.
    """
    point = site.points[index] = input_at(site.node, at)
    state, number = site.state(index), number_of(point)
    tails: list[Tail | None] = []
    for tail in state.tails:
        same = tail is not None and (
            (tail.kind == "number" and number is not None and tail.value == number)
            or (tail.kind == "point" and state.point is not None and state.point is point)
        )
        tails.append(ZERO if same else tail and tail.recomputed)
    level = None if number is None or state.level is None else state.level - number
    site.states[index] = dataclasses.replace(
        state, tails=tuple(tails), sign=0, fill=None, inside=level, point=None
    )
    return site.state(index)


RULES = {
    "DequantizeLinear": Rule(dequantize),
    "DynamicQuantizeLinear": Rule(quantize_dynamically),
    "QuantizeLinear": Rule(quantize),
}
