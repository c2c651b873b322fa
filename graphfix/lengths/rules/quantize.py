"""Quantization: each number by itself, but for a scale taken from all of them."""

from __future__ import annotations

from graphfix.lengths.domain import ANY, FINITE, State, plain
from graphfix.lengths.site import RefusedError, Site


def quantize_dynamically(site: Site) -> list[State | None]:
    """The range that it takes from the tensor holds 0 in any case."""
    state = site.state()
    for axis in state.timed:
        state = site.need_zero(0, axis, "maximum pollution")
    return [state, plain(()), plain(())]


def quantize(site: Site) -> State:
    """Each number by itself; a zero stays one, as its zero point."""
    state = site.state()
    for other in site.states[1:]:
        if other is not None and other.timed:
            raise RefusedError("its scale carries time")
    tails = tuple(
        None if x is None else x if x.is_zero else FINITE if x.is_finite else ANY
        for x in state.tails
    )
    return State(state.axes, tails)


RULES = {
    "DequantizeLinear": quantize,
    "DynamicQuantizeLinear": quantize_dynamically,
    "QuantizeLinear": quantize,
}
