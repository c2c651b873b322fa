"""Rule for Resize and Upsample: which frames a place between frames is computed from."""

import dataclasses
import math
from typing import Literal

import numpy as np
import sympy

from graphfix import ops
from graphfix.facts.symbolic.trials import size_at_trials
from graphfix.lengths import tail_state as facts
from graphfix.lengths.joint_axes import RefusedError, require_sole_time
from graphfix.lengths.repairs.frames import FirstFrame
from graphfix.lengths.rule_site import AcceptedInputs, PaddingRule, RuleSite
from graphfix.ops.resizes import Places, Resize, read_resize

_ROUNDING = 2.0**-22
"""How far off a place may be, as a share of it, where float32 does not hold its scale exactly."""


def infer_resize(site: RuleSite) -> facts.TensorState:
    """Infer a Resize: each axis by itself, and time only where no length changes the grid."""
    state = site.input_state()
    if state.axes is None:
        return site.output_without_time()
    resize = read_resize(site.node, state.rank, site.opset)
    if resize is None:
        raise RefusedError("its axes lie outside of its rank")
    if state.time_axes:
        _check_options(resize)
    if not all(map(site.is_size_of_inputs, site.output_dims())):
        raise RefusedError(
            "how many frames its result has is not known; a constant scale would say it"
        )
    result = state.with_other_numbers(state.tails, _sign_of_mixture(resize, state.sign))
    if resize.mode == "nearest":
        result = dataclasses.replace(result, fill=state.fill, valid_fill=state.valid_fill)
    resized_axes = [i for i, x in enumerate(site.output_dims()) if x != state.size_along(i)]
    for axis, size in enumerate(site.output_dims()):
        if facts.carries_time(state.factors_of(axis)):
            only_axis = resized_axes == [axis]
            result = _resize_time(site, resize, result, axis, size, only_axis=only_axis)
        elif axis in resized_axes:
            result = _resize_other_axis(site, result, axis, size)
    return dataclasses.replace(result, fixed=False)


def _check_options(resize: Resize) -> None:
    """Refuse a Resize whose grid or whose weights depend on sizes in a way that nothing mends."""
    if resize.aspect != "stretch":
        raise RefusedError("it keeps an aspect ratio, which depends on the padded length")
    if resize.antialias:
        raise RefusedError("its antialias has other weights at the end of the clip; export without")
    if resize.mode == "cubic" and resize.excludes_outside:
        raise RefusedError("its exclude_outside has other weights at the end of the clip")


def _sign_of_mixture(resize: Resize, sign: facts.Sign) -> facts.Sign:
    """Return the sign of what lies between frames: a cubic overshoots, a product underflows."""
    return sign if resize.mode == "nearest" else 0 if resize.mode == "cubic" else min(sign, 1)


def _resize_other_axis(
    site: RuleSite, state: facts.TensorState, axis: int, size: sympy.Expr
) -> facts.TensorState:
    if facts.holds_rows(state.factors_of(axis)):
        raise RefusedError("it resizes the batch")
    if site.grows_with_padding(size):
        raise RefusedError(
            f"it stretches {state.size_along(axis)} of something that does not follow the clip to "
            "the padded length"
        )
    return state.with_axis(axis, facts.fixed_axis(size), None)


def _resize_time(
    site: RuleSite,
    resize: Resize,
    state: facts.TensorState,
    axis: int,
    size: sympy.Expr,
    *,
    only_axis: bool,
) -> facts.TensorState:
    """Infer an axis of time.

    Args:
        site: The Resize.
        resize: How it reads between frames.
        state: What is known of the result, with the axes before this one resized.
        axis: An axis that carries time.
        size: Its size in the result.
        only_axis: Whether no other axis is resized.
    """
    time = require_sole_time(state.factors_of(axis), "it resizes an axis that")
    if not site.grows_with_padding(size):
        raise RefusedError(f"its result has {size} frames however long the clip is")
    scale = _scale_of_time(resize, axis, time.size, size)
    grid = _Grid.at_trials(resize, scale, time.size, size)
    need = grid.need_behind_end()
    # ONNX Runtime reads the next row of the batch, too, with a weight of 0.
    mixes_rows = resize.mode != "nearest" and site.source.batch is not None
    if need == "copies" and site.input_state().fill is None:
        site.require_last_tail(0, axis, "boundary leak")
    elif (need or mixes_rows) and not site.input_state().tail_along(axis).is_finite:
        site.require_zero_tail(0, axis, "boundary leak")
    if grid.places_depend_on_size():
        _request_first_frame(site, state, axis, size, only_axis=only_axis)
    input_tail = site.input_state().tail_along(axis)
    return state.with_axis(axis, (facts.TimeFactor(size),), grid.tail_of_result(input_tail))


def _scale_of_time(resize: Resize, axis: int, before: sympy.Expr, after: sympy.Expr) -> float:
    """Return the factor of time, which must be the same at any length.

    Raises:
        RefusedError: It is not, or what the Resize reads depends on the length in another way.
    """
    ratio = sympy.cancel(after / before)
    scale = resize.scale_along(axis)
    if scale is None:
        if not ratio.is_Rational:
            raise RefusedError(
                f"it stretches {before} frames to {after}, at each length by another factor; "
                "export it with a scale (scale_factor) that is a number"
            )
        scale = float(np.float32(ratio.p) / np.float32(ratio.q))
    if resize.coordinates == "align_corners":
        raise RefusedError(
            "it puts the last frame of the padded clip at the end of its grid (align_corners), so "
            "that padding moves all others; export it with align_corners=False"
        )
    if resize.coordinates == "half_pixel_symmetric" and not ratio.is_Rational:
        raise RefusedError("half_pixel_symmetric puts its frames where the padded length says")
    return scale


@dataclasses.dataclass(frozen=True)
class _Grid:
    """Where the frames of results lie among those of clips of many lengths.

    Attributes:
        resize: How it reads between frames.
        scale: The factor of time.
        before: How many frames each clip has.
        after: How many each result has.
    """

    resize: Resize
    scale: float
    before: Places
    after: Places

    @classmethod
    def at_trials(
        cls, resize: Resize, scale: float, before: sympy.Expr, after: sympy.Expr
    ) -> "_Grid":
        """Return the grid at every trial length that leaves a frame of both."""
        sizes = [size_at_trials(x).astype(np.float64) for x in (before, after)]
        usual = (sizes[0] >= 1) & (sizes[1] >= 1)
        if not usual.any():
            raise RefusedError(f"no clip is known that leaves a frame of {after}")
        if resize.coordinates == "half_pixel_symmetric":  # of a factor that leaves no part over
            resize = dataclasses.replace(resize, coordinates="half_pixel")
        return cls(resize, scale, sizes[0][usual], sizes[1][usual])

    def places(self, index: Places) -> Places:
        """Return the places of these frames of the results, one for each clip."""
        places = self.resize.places(index, self.scale)
        if places is None:
            raise RefusedError(f"there is no rule for its {self.resize.coordinates}")
        return places

    def _margin(self, places: Places) -> Places:
        is_exact = math.frexp(self.scale)[0] == 0.5  # powers of two
        return np.zeros_like(places) if is_exact else np.abs(places) * _ROUNDING

    def need_behind_end(self) -> Literal["copies", "numbers", ""]:
        """Return what must lie behind the valid frames: copies of the last, or any numbers."""
        places = self.places(self.after - 1)
        _, last_read = self.resize.neighbours(places + self._margin(places))
        past = last_read > self.before - 1
        if not past.any():
            return ""
        # A place on the last frame itself has a weight of 0 for the next.
        weighs = past if self.resize.mode == "nearest" else places > self.before - 1
        return "copies" if (past & weighs).any() or self.resize.mode == "cubic" else "numbers"

    def places_depend_on_size(self) -> bool:
        """Return whether the first frame is read elsewhere where it is the only one."""
        if self.resize.coordinates != "pytorch_half_pixel":
            return False
        usual, alone = self.places(np.zeros(1)), np.zeros(1)
        if self.resize.mode == "nearest":
            usual, alone = (self.resize.neighbours(x)[0] for x in (usual, alone))
        is_alone = (self.after == 1) & (self.before > 1)
        return bool(is_alone.any() and usual[0] != alone[0])

    def tail_of_result(self, tail: facts.Tail) -> facts.Tail:
        """Return the tail of the result, of that of the input."""
        last, behind = (self._first_read(index) for index in (self.after - 1, self.after))
        if tail.kind == "last" and (last >= self.before - 1).all():
            return tail
        if tail.kind != "last" and (behind >= self.before).all() and self.resize.mode != "cubic":
            return tail
        return tail.after_arithmetic

    def _first_read(self, index: Places) -> Places:
        places = self.places(index)
        return self.resize.neighbours(places - self._margin(places))[0]


def _request_first_frame(
    site: RuleSite, state: facts.TensorState, axis: int, size: sympy.Expr, *, only_axis: bool
) -> None:
    """Ask for the first frame where a clip alone has a result of one frame."""
    if not only_axis:
        raise RefusedError("a clip of one frame is resized in another way (pytorch_half_pixel)")
    site.check_size(size)
    site.request_repair(FirstFrame(site.node, "boundary leak", axis, size, state))


RULES = dict.fromkeys(ops.RESIZES, PaddingRule(infer_resize, AcceptedInputs.SIZES_BEHIND))
