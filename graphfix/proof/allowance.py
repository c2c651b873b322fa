"""How far an element of an output may be off: its tolerance, and what its channel allows.

Boxes of 640 beside scores, or one bias of 900, say nothing of what else stands in the same vector.
So the scale of an element is that of its channel: of what has the same place along the axis along
which scales differ most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from graphfix.runtime.port import Array

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

# A number of at least this size that recurs is a fill; an axis of so many elements is a vector.
_FILL, _VECTOR = 1e3, 8
# What one operation in float32 may lose of the largest number that it adds up.
_EPS = float(np.finfo(np.float32).eps)
# Of a channel so many times that, what is lost is measured. Else a factor of 0.010005 for 0.01
# would pass beside a channel of 640: tests/proof/pairs/a_small_channel_beside_640.txt.
_WELL_ABOVE = 100.0
# Smaller numbers are 0 on a GPU.
_LEAST = float(np.finfo(np.float32).tiny)
# A unit in the last place of a float16, as a share of the number.
_HALF_STEP = 2.0**-10
# How many times the measured noise, a root mean square, is allowed. Repairs that only round
# otherwise took 1 to 1.7 times it in 25 models of speech and text; others may take more.
_NOISE = 8.0


@dataclass(frozen=True)
class Tolerance:
    """The largest allowed difference of an output from the original's.

    Attributes:
        max_abs: The largest allowed difference of an element: absolute where the values around it
            are at most 1, relative to them above, see :func:`local_scales`. An output whose largest
            element is below 0.01 may differ by a hundred times that share of it.
        cosine: The least cosine of the two outputs, taken as vectors.
        half: The factor on ``max_abs``, ``channel`` and ``1 - cosine`` for an output that is
            computed in float16 or bfloat16: by default they become 0.01, 0.01 and 0.9999.
        least: The least scale around an element.
        equal: The least share of equal elements in an output of whole numbers.
        rms: The largest root mean square of the differences, as a share of that of the output.
        channel: The largest allowed difference as a share of the largest number in the channel of
            an element, see :func:`allowed_differences`; without bound unless verification is given
            no tolerance.
    """

    max_abs: float = 1e-4
    cosine: float = 0.999999
    half: float = 100.0
    least: float = 1.0
    equal: float = 1.0
    rms: float = math.inf
    channel: float = math.inf

    @property
    def whole(self) -> bool:
        """Return whether one scale holds for the whole output: the gate of float16."""
        return self.least < 1.0

    def for_half(self, roundings: float = math.inf) -> Tolerance:
        """Return the tolerance of an output that is computed in float16.

        Args:
            roundings: How many nodes on the way to it round to float16. Each may turn a number into
                its neighbour, so a few of them explain less than the whole factor.
        """
        if not roundings:
            return self
        factor = min(self.half, 1.0 + roundings * _HALF_STEP / (self.max_abs or math.inf))
        return replace(
            self,
            max_abs=self.max_abs * factor,
            channel=self.channel * factor,
            cosine=1.0 - (1.0 - self.cosine) * factor,
            half=1.0,
        )


# What verification holds to where it is given no tolerance.
USUAL = Tolerance(channel=1e-4)
# float32 against float16: a share of the largest element, however small that is.
HALF_GATE = Tolerance(max_abs=1e-2, cosine=0.9999, half=1.0, least=1e-6, equal=0.99, channel=1e-2)


@dataclass
class ChannelScales:
    """The scales of the channels of one output, usual in the cases.

    Attributes:
        axis: The axis of the channels; None of an output that is one channel.
        usual: The largest absolute number of each channel in the middle one of the cases, a vector:
            a case with huge numbers says nothing of the others.
        noise: How far the original differs from itself in each channel, in the case that is
            compared: a root mean square; 0 where it was not measured.
    """

    axis: int | None
    usual: Floats
    noise: Floats = field(default_factory=lambda: np.zeros(1))

    @classmethod
    def of_output(cls, cases: Sequence[tuple[Array, Mask | None]]) -> ChannelScales:
        """Return the scales of an output from its arrays in several cases.

        The axis of the channels is that with the same size in all cases along which scales differ
        most; the first axis of several is the batch, never channels.

        Args:
            cases: The output in each case, floats, and the elements that count; None: all.
        """
        rank = cases[0][0].ndim
        sizes = [_sizes_of(x, where) for x, where in cases if x.size and x.ndim == rank]
        whole = np.full(1, np.median([x.max() for x in sizes]) if sizes else 0.0)
        candidates: list[tuple[float, int, Floats]] = []
        for axis in range(1 if rank > 1 else 0, rank):
            if len({x.shape[axis] for x in sizes}) == 1 and sizes[0].shape[axis] > 1:
                usual = np.median([_largest_along(x, axis) for x in sizes], axis=0)
                candidates.append((_spread_of(usual), axis, usual))
        if not candidates:
            return cls(None, whole)
        _, axis, usual = max(candidates, key=lambda x: x[:2])
        return cls(axis, usual)

    def with_noise(self, differences: Sequence[Floats]) -> ChannelScales:
        """Return these scales with the noise of one case.

        Args:
            differences: By how much the original differs from itself in each of several runs of the
                case; NaN where that is no number.
        """
        squares, counts = np.zeros(self.usual.shape), np.zeros(self.usual.shape)
        for difference in differences:
            if self.spread(squares, difference.shape) is None:
                continue
            finite = np.isfinite(difference)
            axes = self._other_axes(difference.ndim)
            squares += np.square(np.where(finite, difference, 0.0)).sum(axis=axes)
            counts += finite.sum(axis=axes)
        return replace(self, noise=np.sqrt(squares / np.maximum(counts, 1)))

    def samples_in(self, shape: tuple[int, ...]) -> int:
        """Return how many elements each channel has in an array of this shape."""
        return int(np.prod([shape[a] for a in self._other_axes(len(shape))]))

    def spread(self, values: Floats, shape: tuple[int, ...]) -> Floats | None:
        """Return a number per channel as an array that broadcasts to ``shape``, or None."""
        if self.axis is None:
            return values.reshape([1] * len(shape))
        if self.axis >= len(shape) or shape[self.axis] != values.size:
            return None
        return values.reshape([-1 if a == self.axis else 1 for a in range(len(shape))])

    def scales_of(self, array: Floats, where: Mask) -> Floats | None:
        """Return the scale of each element, or None if the array has other channels."""
        sizes = _sizes_of(array, where)
        own = _largest_along(sizes, self.axis) if array.size else np.zeros(1)
        if own.shape != self.usual.shape:
            return None
        scales = self.spread(np.maximum(own, self.usual), array.shape)
        size = np.where(np.isfinite(array), np.abs(array), 0.0)
        return None if scales is None else np.maximum(scales, size)

    def _other_axes(self, rank: int) -> tuple[int, ...]:
        return tuple(a for a in range(rank) if a != self.axis)


def allowed_differences(
    array: Floats, where: Mask, tolerance: Tolerance, channels: ChannelScales | None
) -> Floats:
    """Return how far each element may be off, in the unit of the output.

    It is ``min(usual, max(share, rounding, noise))``, where

    - ``usual = max_abs * max(least, around)``: absolute where the numbers around the element are
      small, relative to them where they are large (:func:`local_scales`); for the gate of float16,
      relative to the largest of the output. Without channels it is all there is.
    - ``share = channel * largest of the element's channel``, 1e-4 of it as of ``max_abs``: in this
      case or, if that is more, usually in a case.
    - ``rounding = 2**-23 * around`` where the channel is less than a hundred times that: a sum in
      float32 loses that of the largest of its terms, and a channel of zeros has no share.
    - ``noise = 8 * by how much the original differs from itself in that channel``, a root mean
      square, if it was measured: with other last bits of weights, inputs and results, with ONNX
      Runtime's optimizations, on the provider of the repaired model. So what is 0.001 because 100
      was taken from 100.001 may be off by as much as its original is.

    Args:
        array: The original's output.
        where: The elements that count; others set no scale.
        tolerance: The largest allowed difference.
        channels: The scales of the output's channels; None where they do not count.
    """
    around = local_scales(array, where)
    usual = around
    if tolerance.whole:
        finite = np.abs(array[where & np.isfinite(array)])
        usual = np.full(array.shape, np.max(finite, initial=0.0))
    usual = tolerance.max_abs * np.maximum(tolerance.least, usual)
    if channels is None or not math.isfinite(tolerance.channel):
        return usual
    scales = channels.scales_of(array, where)
    noise = channels.spread(np.broadcast_to(channels.noise, channels.usual.shape), array.shape)
    if scales is None or noise is None or not scales.any():
        return usual  # of an output that is 0 in every case the record of all cases says so
    rounding = _EPS * around
    # Of a channel well above that it is measured, as noise.
    rounding = np.where(scales > _WELL_ABOVE * rounding, 0.0, rounding)
    own = np.maximum(tolerance.channel * scales, np.maximum(rounding, _LEAST))
    allowed: Floats = np.minimum(usual, np.maximum(own, _NOISE * noise))
    return allowed


def local_scales(array: Floats, where: Mask) -> Floats:
    """Return the magnitude around each element, with which rounding grows.

    It is the largest element of the same row of the batch, or of the same vector along the last
    axis if that is less; the element itself at least. A huge number that recurs, such as the -1e4
    or -3.4e38 of a banned token, is a fill: it says nothing of the elements around it.

    Args:
        array: An output.
        where: The elements that count; others set no scale.
    """
    size = np.abs(array)
    around = _sizes_of(array, where)
    scale = np.full(array.shape, around.max(initial=0.0))
    if array.ndim > 1 and array.shape[0] > 1:
        axes = tuple(range(1, array.ndim))
        scale = np.minimum(scale, around.max(axis=axes, keepdims=True, initial=0.0))
    if array.ndim and array.shape[-1] >= _VECTOR:
        scale = np.minimum(scale, around.max(axis=-1, keepdims=True))
    scales: Floats = np.maximum(scale, np.where(np.isfinite(size), size, 0.0))
    return scales


def _sizes_of(array: Array, where: Mask | None) -> Floats:
    """Return the absolute values; 0 for fills, for what is not finite and what does not count."""
    wide: Floats = array.astype(np.float64)
    counts = np.isfinite(wide) if where is None else where & np.isfinite(wide)
    sizes = np.where(counts, np.abs(wide), 0.0)
    large = sizes >= _FILL
    if large.any():
        values, numbers = np.unique(wide[large], return_counts=True)
        sizes[large & np.isin(wide, values[numbers > 1])] = 0.0
    return sizes


def _largest_along(sizes: Floats, axis: int | None) -> Floats:
    """Return the largest of each place along an axis; of all, as one, without an axis."""
    if axis is None:
        return np.full(1, sizes.max(initial=0.0))
    largest: Floats = sizes.max(axis=tuple(a for a in range(sizes.ndim) if a != axis), initial=0.0)
    return largest


def _spread_of(largest: Floats) -> float:
    """Return by how much the scales of channels differ: the deviation of their logarithms."""
    nonzero = largest[largest > 0]
    return float(np.log(nonzero).std()) if nonzero.size > 1 else 0.0
