"""Resize: where each frame is read does not depend on how many there are; how far, may."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import sympy

from graphfix.lengths.joint_axes import RefusedError
from graphfix.lengths.repairs import CopiedTail
from graphfix.lengths.rule_site import Rule, Site, Takes
from graphfix.lengths.rules.convolve import checked, spatial
from graphfix.lengths.tail_state import ANY, FINITE, State, Time, carries_time, same_size, time_of
from graphfix.model.values import attr_int, attr_ints, const_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphfix.lengths.tail_state import Axis, Tail

    Numbers = np.ndarray[tuple[int, ...], np.dtype[np.float32]]

_TRIED = 512


def resize(site: Site) -> State:
    """Each frame repeated, or drawn out; the last is drawn out to its copy."""
    state, dims = checked(site), site.out_dims()
    if _text(site, "mode") != "nearest" and any(
        not same_size(dims[i], state.size(i)) for i in range(state.rank)
    ):
        state = _beside(site, state, dims)
    axes: list[Axis] = list(state.axes or ())
    tails: list[Tail | None] = list(state.tails)
    stretched = False
    for axis in spatial(state):
        time = time_of(state.at(axis))
        if same_size(dims[axis], state.size(axis)):
            continue
        if time is None:
            raise RefusedError("its time axis holds something else beside time, or runs backwards")
        stretched = True
        read = _read(site, axis, dims[axis], time)
        if read.past and state.tail(axis).kind != "last":
            site.check_size(time.size)
            site.repair(CopiedTail(site.node, "boundary leak", axis, time.size, state))
            tails[axis] = FINITE
        elif not (read.apart and state.tail(axis).is_zero):
            tails[axis] = state.tail(axis).recomputed
    finite = all(x is None or x.is_finite for x in tails)
    for i, old in enumerate(axes):
        if not carries_time(old):
            axes[i] = old if i == 0 else site.axis_of(dims[i])
            continue
        tail = tails[i]
        if not same_size(dims[i], state.size(i)):
            axes[i] = (Time(dims[i]),)
        elif stretched and tail is not None and not tail.is_zero:
            tails[i] = FINITE if finite else ANY
    return State(
        tuple(axes), tuple(tails), sign=0 if _text(site, "mode") == "cubic" else state.sign
    )


def _beside(site: Site, state: State, dims: Sequence[sympy.Expr]) -> State:
    """Along an axis that stays as it is ONNX Runtime adds 0 times what is next, in some ranks."""
    kept = (i for i in state.timed if same_size(dims[i], state.size(i)))
    if any(not state.tail(i).is_finite for i in kept):
        return site.need_finite(0, "boundary leak")
    return state


@dataclass(frozen=True)
class _Reads:
    """Which frames a stretched axis is read at.

    Attributes:
        past: Whether what is valid of the result reads past what is valid, where alone it would
            read the last frame again.
        apart: Whether what is behind it reads nothing valid.
    """

    past: bool
    apart: bool


def _read(site: Site, axis: int, size: sympy.Expr, time: Time) -> _Reads:
    scale = _scale(site, axis, size, time)
    where = _text(site, "coordinate_transformation_mode")
    mode = _text(site, "mode")
    known = ("asymmetric", "half_pixel", "pytorch_half_pixel")
    if where not in known or (where == known[2] and scale < 1):  # which has a case for one frame
        raise RefusedError(f"where it reads depends on the padded length ({where})")
    if attr_int(site.node, "antialias", 0) or (
        mode == "cubic" and attr_int(site.node, "exclude_outside", 0)
    ):
        raise RefusedError("it weighs what is past the end")
    if site.opset < 11 and scale < 1:
        raise RefusedError("which frame it takes is another matter before opset 11")
    valid = np.arange(1, _TRIED)
    count = (valid.astype(np.float32) * scale).astype(np.int64)
    at = np.arange(int(count.max()) + 2, dtype=np.float32)
    half = np.float32(0.5)
    x = at / scale if where == "asymmetric" else (at + half) / scale - half
    low, high = _frames(mode, "floor" if site.opset < 11 else _text(site, "nearest_mode"), x)
    some = count > 0
    past = high[np.maximum(count - 1, 0)] > valid - 1
    return _Reads(bool((past & some).any()), bool((low[count] >= valid).all()))


def _frames(mode: str, nearest: str, x: Numbers) -> tuple[Numbers, Numbers]:
    """The first and the last frame that is read for each of the result."""
    if mode == "nearest":
        ways = {
            "round_prefer_floor": np.ceil(x - np.float32(0.5)),
            "round_prefer_ceil": np.floor(x + np.float32(0.5)),
            "floor": np.floor(x),
            "ceil": np.ceil(x),
        }
        return ways[nearest], ways[nearest]
    low = np.floor(x)
    if mode == "cubic":
        return low - 1, low + 2
    # At a whole place nothing of the next frame is taken, but 0 times it.
    return low, low + 1


def _scale(site: Site, axis: int, size: sympy.Expr, time: Time) -> np.float32:
    scales = const_of(site.node.inputs[2]) if site.has(2) else None
    if site.opset < 11:
        scales = const_of(site.node.inputs[1]) if site.has(1) else None
    if scales is not None and scales.size:
        axes = attr_ints(site.node, "axes")
        places = [x % site.state().rank for x in axes] if axes else range(site.state().rank)
        return np.float32(dict(zip(places, scales.reshape(-1), strict=True)).get(axis, 1.0))
    ratio = sympy.cancel(size / time.size)
    if not ratio.is_number:
        raise RefusedError("how much it stretches time depends on the padded length")
    return np.float32(float(ratio))


_DEFAULTS = {
    "mode": "nearest",
    "coordinate_transformation_mode": "half_pixel",
    "nearest_mode": "round_prefer_floor",
}


def _text(site: Site, name: str) -> str:
    if site.opset < 11 and name == "coordinate_transformation_mode":
        return "asymmetric"
    attribute = site.node.attributes.get(name)
    return _DEFAULTS[name] if attribute is None else attribute.as_string()


RULES = {"Resize": Rule(resize, Takes.SIZES_BEHIND)}
