"""Comparison of two arrays within a tolerance."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from graphfix.proof.allowance import HALF_GATE as HALF_GATE
from graphfix.proof.allowance import ChannelScales, Floats, allowed_differences
from graphfix.proof.allowance import Mask as Mask
from graphfix.proof.allowance import Tolerance as Tolerance
from graphfix.runtime.port import Array as Array

LeaveOut = Literal["", "NaN", "not finite"]

# Below this an absolute difference is float32 rounding, and the cosine of what remains is noise.
_ROUNDING = 1e-6
# An output that is small as a whole may differ by so many times the usual share of its size.
_SMALL_SHARE = 100.0


@dataclass(frozen=True)
class OutputDiff:
    """The difference of one output of one case from the original's.

    Attributes:
        output: The name of the tensor.
        case: The name of the case.
        ok: Whether it is within the tolerance.
        reason: Why not, in one sentence; empty if it is.
        max_abs: The largest absolute difference of the compared elements.
        max_rel: The largest difference relative to the original's element, where that is not 0.
        cosine: The cosine of the compared elements, as vectors; NaN for non-floats.
        rms: The root mean square of the differences, as a share of that of the original.
        scale: The largest absolute value of the original's compared elements.
        worst_abs: The difference of the worst element, which is the one that is worst by its own
            allowance: another may differ by more where more is allowed.
        allowed: The allowed difference of the worst element; 0 for integers.
        differing: How many compared elements are not bit for bit the same number.
        compared: How many elements were compared.
        finite: How many of them are finite in both.
        zero: Whether all compared elements of the original are 0, or False, or empty text.
        top: In a model converted to float16: the share of vectors along the last axis in which the
            same element is the largest; NaN otherwise.
        total: How many elements the output has.
        nan_before: NaN in the original, among the compared.
        nan_after: NaN in the repaired model, among the compared.
        inf_before: Infinities in the original, among the compared.
        inf_after: Infinities in the repaired model, among the compared.
        note: What a reader should know of how it was compared; empty if it was compared whole.
        excluded: What was left out of the comparison although it differs by more than the
            tolerance: ``padded rows`` or ``rows of length 0``; empty if nothing was.
        excluded_abs: The largest difference of what was left out, where that is finite in both.
    """

    output: str
    case: str
    ok: bool
    reason: str = ""
    max_abs: float = 0.0
    max_rel: float = 0.0
    cosine: float = math.nan
    rms: float = 0.0
    scale: float = 0.0
    worst_abs: float = 0.0
    allowed: float = 0.0
    differing: int = 0
    compared: int = 0
    finite: int = 0
    zero: bool = False
    top: float = math.nan
    total: int = 0
    nan_before: int = 0
    nan_after: int = 0
    inf_before: int = 0
    inf_after: int = 0
    note: str = ""
    excluded: str = ""
    excluded_abs: float = 0.0

    @property
    def excess_ratio(self) -> float:
        """Return the ratio of the difference to what is allowed, for sorting."""
        if self.reason and (self.nan_after != self.nan_before or not self.compared):
            return math.inf
        if self.allowed:
            return self.worst_abs / self.allowed
        return math.inf if self.differing else 0.0

    @property
    def difference_text(self) -> str:
        """Return the difference of the worst element and what is allowed there, in words."""
        where = f"in output {self.output!r} (allowed {self.allowed:.3g})"
        kind = "largest" if self.worst_abs == self.max_abs else "worst"
        return f"the {kind} difference is {self.worst_abs:.3g} {where}"


def compare(
    output: str,
    case: str,
    before: Array,
    after: Array,
    tolerance: Tolerance,
    *,
    where: Mask | None = None,
    leave_out: LeaveOut = "",
    note: str = "",
    channels: ChannelScales | None = None,
) -> OutputDiff:
    """Compare two arrays.

    NaN where the original has NaN, and the same infinity, are equal. Integers, booleans and
    strings must be the same.

    Args:
        output: The name of the tensor.
        case: The name of the case.
        before: The array of the original.
        after: The array of the repaired model.
        tolerance: The largest allowed difference.
        where: The elements to compare; all by default.
        leave_out: Elements that are this in the original are not compared.
        note: The note of the result.
        channels: The scales of the output's channels, to hold each element to its own, too.
    """
    head = OutputDiff(output, case, ok=False, total=before.size, note=note)
    if before.dtype != after.dtype:
        return replace(head, reason=f"is {after.dtype} instead of {before.dtype}")
    if before.shape != after.shape:
        return replace(head, reason=f"has shape {[*after.shape]} instead of {[*before.shape]}")
    if before.dtype.kind not in "fV":
        if where is not None:
            before, after = before[where], after[where]
        return _compare_exactly(head, before, after, tolerance)
    mask = np.ones(before.shape, np.bool_) if where is None else where
    if leave_out:
        mask = mask & (np.isfinite(before) if leave_out == "not finite" else ~np.isnan(before))
    return _compare_floats(head, before, after, mask, tolerance, channels)


def _compare_exactly(
    head: OutputDiff, before: Array, after: Array, tolerance: Tolerance
) -> OutputDiff:
    differing = int(np.count_nonzero(before != after))
    gap = 0.0
    if differing and before.dtype.kind in "iub":
        gap = float(np.max(np.abs(before.astype(np.float64) - after.astype(np.float64))))
    wrong = differing > max(0.0, (1.0 - tolerance.equal) * before.size)
    reason = f"differs in {differing:,} of {before.size:,} elements" if wrong else ""
    return replace(
        head,
        ok=not reason,
        reason=reason,
        differing=differing,
        compared=before.size,
        finite=before.size,
        zero=not before.any(),
        max_abs=gap,
        worst_abs=gap,
    )


def _compare_floats(
    head: OutputDiff,
    before: Array,
    after: Array,
    where: Mask,
    tolerance: Tolerance,
    channels: ChannelScales | None,
) -> OutputDiff:
    wide, repaired = before.astype(np.float64), after.astype(np.float64)
    allowed = allowed_differences(wide, where, tolerance, channels)[where]
    a, b = wide[where], repaired[where]
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(a) & np.isfinite(b)
    odd = int(np.count_nonzero(~same & ~finite))
    x, y, allowed = a[finite], b[finite], allowed[finite]
    gap = np.abs(x - y)
    scale = float(np.max(np.abs(x), initial=0.0))
    worst = int(np.argmax(gap / allowed if tolerance.max_abs else gap)) if gap.size else 0
    largest = float(np.max(gap, initial=0.0))
    cosine = _cosine_of(x, y)
    rms = _rms_of(gap) / (_rms_of(x) or 1.0)
    nan_before, nan_after = int(np.isnan(a).sum()), int(np.isnan(b).sum())
    reason = ""
    if nan_after > nan_before:
        reason = f"has NaN at {nan_after - nan_before:,} places where the original has numbers"
    elif odd:
        reason = f"has NaN or infinity at {odd:,} places where the other has none"
    elif (gap > allowed).any():
        reason = f"differs by {gap[worst]:.3g}, allowed {allowed[worst]:.3g}"
        if x[worst] and abs(x[worst]) < scale and allowed[worst] < tolerance.max_abs * scale:
            reason += f" where it is {x[worst]:.3g}"
    elif cosine < tolerance.cosine and largest > _ROUNDING * max(tolerance.least, scale):
        reason = f"has cosine {cosine:.9g}, allowed {tolerance.cosine:.9g}"
    elif rms > tolerance.rms:
        reason = f"differs by {rms:.3g} of its root mean square, allowed {tolerance.rms:.3g}"
    elif largest > max(tolerance.max_abs * _SMALL_SHARE * scale, _ROUNDING):
        reason = f"differs by {largest:.3g}, and is itself at most {scale:.3g}"
    nonzero = x != 0
    if tolerance.whole:
        head = replace(head, top=_top1_agreement(wide, repaired, where))
    return replace(
        head,
        ok=not reason,
        reason=reason,
        max_abs=largest,
        max_rel=float(np.max(gap[nonzero] / np.abs(x[nonzero]), initial=0.0)),
        cosine=cosine,
        rms=rms,
        scale=scale,
        worst_abs=float(gap[worst]) if gap.size else 0.0,
        allowed=float(allowed[worst]) if gap.size else tolerance.max_abs,
        differing=int(np.count_nonzero(~same)),
        compared=a.size,
        finite=x.size,
        zero=scale == 0,
        nan_before=nan_before,
        nan_after=nan_after,
        inf_before=int(np.isinf(a).sum()),
        inf_after=int(np.isinf(b).sum()),
    )


def check_padding_finite(diff: OutputDiff, before: Array, after: Array) -> OutputDiff:
    """Return ``diff``, failed if a finite number of the original became NaN or infinite."""
    if before.dtype.kind != "f":
        return diff
    lost = int(np.count_nonzero(np.isfinite(before) & ~np.isfinite(after)))
    if not lost:
        return diff
    reason = f"has NaN or infinity at {lost:,} places where the original has numbers, in padding"
    return replace(diff, ok=False, reason=reason)


def _top1_agreement(before: Floats, after: Floats, where: Mask) -> float:
    """Return the share of vectors along the last axis whose largest element is the same."""
    if before.ndim < 1 or before.shape[-1] < 2 or not before.size:
        return math.nan
    rows = where.all(axis=-1) & np.isfinite(before).all(axis=-1) & np.isfinite(after).all(axis=-1)
    if not rows.any():
        return math.nan
    return float((before[rows].argmax(axis=-1) == after[rows].argmax(axis=-1)).mean())


def _rms_of(x: Floats) -> float:
    """Return the root mean square of the elements; 0 of none."""
    top = float(np.max(np.abs(x), initial=0.0))
    return top * math.sqrt(float(np.square(x / top).mean())) if top else 0.0


def _cosine_of(x: Floats, y: Floats) -> float:
    top = max(float(np.max(np.abs(x), initial=0.0)), float(np.max(np.abs(y), initial=0.0)))
    if top == 0.0:
        return 1.0
    x, y = x / top, y / top  # so that squares of 1e200 do not overflow
    # Not x @ y: waking the threads of a BLAS takes longer than the sum, and ONNX Runtime's spin.
    norm = math.sqrt(float((x * x).sum()) * float((y * y).sum()))
    return min(1.0, float((x * y).sum()) / norm) if norm else 0.0
