"""Full scale of an input: the number that the loudest sample of a wave has, or white in a picture.

A graph shows it by the type (int16 samples, uint8 pixels) and by the number that it divides by
first. Where it takes the logarithm of a spectrum of the wave as it is, the scale is the user's
choice: many front-ends want samples of 16 bits, as floats.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import onnx_ir as ir

from graphfix import ops
from graphfix.graph.constants import const_of, scalar_of
from graphfix.graph.nodes import is_op
from graphfix.graph.walks import reachable_from
from graphfix.ops.squares import ADDS_SQUARES, squared_input

PCM, WHITE, _UNIT = 32768.0, 255.0, 1.0
# Full scale, by what graphs divide by to bring samples to 1, and pixels to 1 or to -1 and 1.
_FULL_SCALE_BY_DIVISOR = {
    **dict.fromkeys((127.5, 128.0, 255.0, 256.0), WHITE),
    **dict.fromkeys((32767.0, PCM), PCM),
    **dict.fromkeys((2.0**31 - 1, 2.0**31), 2.0**31),
    **dict.fromkeys((1 / 32767, 1 / PCM, 1 / 255), _UNIT),
}
# The size of the samples of a usual recording, as a share of full scale.
_USUAL_SHARE = 1 / 16
_SAMPLES = (ir.DataType.INT16,)
_PIXELS = (ir.DataType.UINT8,)
_PICTURE_RANK = 3
# The dims of a wave besides its channels: the batch and time.
_MOST_CHANNELS, _WAVE_DIMS = 8, 2
# Elements stay what they are, but for a mean that is subtracted.
_MOVES = ops.MOVES_ELEMENTS | ops.CASTS | ops.IDLE | ops.named("Pad")
_SHIFTS = ops.named("Add Sub")
_SCALES = ops.named("Mul Div")
# A spectrum is one of them, of frames of a wave.
_TRANSFORMS = ops.CONVOLVES | ops.PRODUCTS | ops.named("STFT DFT")
_LINEAR = _MOVES | _SHIFTS | _SCALES | _TRANSFORMS | ops.named("Neg ReduceMean ReduceSum")
# From squares to a logarithm: sums, bands of mel, a root, a floor.
_SHAPES_POWER = (_MOVES | _SHIFTS | _SCALES | ops.PRODUCTS) | ops.named(
    "Sqrt Pow Max Clip ReduceSum"
)
_MOST_VALUES = 400


@dataclass(frozen=True)
class FullScale:
    """Size of the numbers that an input takes.

    Attributes:
        largest: The loudest sample, or white.
        usual: The size of usual numbers.
    """

    largest: float
    usual: float


def find_full_scale(value: ir.Value) -> FullScale | None:
    """Return how large the numbers of an input are, or None if the graph does not show it."""
    if value.dtype in _PIXELS:
        return _scale_of_picture(value)
    may_be_wave = _may_be_wave(value)
    if value.dtype in _SAMPLES and may_be_wave:
        return FullScale(PCM, PCM * _USUAL_SHARE)
    scales = (_FULL_SCALE_BY_DIVISOR.get(x) for x in map(_round_divisor, _first_divisors(value)))
    largest = next((x for x in scales if x is not None), None)
    if largest == WHITE:
        return _scale_of_picture(value)
    if not may_be_wave:
        return None
    if largest is not None:
        return FullScale(largest, max(largest * _USUAL_SHARE, _UNIT))
    return FullScale(PCM, _UNIT) if _becomes_log_spectrum(value) else None


def _scale_of_picture(value: ir.Value) -> FullScale | None:
    """Return the scale of pixels; None of fewer dims than rows, columns and colours."""
    return FullScale(WHITE, WHITE) if len(value.shape or ()) >= _PICTURE_RANK else None


def _may_be_wave(value: ir.Value) -> bool:
    """Return whether the shape is samples over time: ``[T]``, ``[B, T]``, ``[B, channels, T]``."""
    sizes = [x for x in value.shape or () if not (isinstance(x, int) and x <= _MOST_CHANNELS)]
    return 0 < len(sizes) <= _WAVE_DIMS


def _round_divisor(number: float) -> float:
    """Return the divisor of the table that a number is rounded from, or the number."""
    near = (x for x in _FULL_SCALE_BY_DIVISOR if math.isclose(x, number, rel_tol=1e-6))
    return next(near, number)


def _first_divisors(value: ir.Value) -> Iterator[float]:
    """Yield the constants by which the input is divided before anything else scales it."""
    for node, index in _uses_behind([value], _keeps_scale):
        if node in _SCALES and (factor := _constant_operand(node, index)):
            yield factor if is_op(node, "Div") else 1 / factor


def _constant_operand(node: ir.Node, index: int) -> float | None:
    """Return the number that a Mul or Div combines its input of that index with, or None."""
    if is_op(node, "Div") and index:
        return None
    number = scalar_of(node.inputs[1 - index])
    return None if number is None else float(number)


def _keeps_scale(node: ir.Node, index: int) -> bool:
    if node in _SHIFTS:
        return const_of(node.inputs[1 - index]) is not None
    return node in _MOVES and (index == 0 or is_op(node, "Concat"))


def _becomes_log_spectrum(value: ir.Value) -> bool:
    """Return whether squares of a transform of the input reach a logarithm or an output.

    What a layer with weights takes without a logarithm was trained at one scale, mostly at 1.
    """
    transforms = [node for node, _ in _uses_behind([value], _is_linear) if node in _TRANSFORMS]
    spectra = [node.outputs[0] for node in transforms]
    squares = [
        node.outputs[0]
        for node, _ in _uses_behind(spectra, _is_linear)
        if squared_input(node) is not None or node in ADDS_SQUARES
    ]
    powers = _values_behind(squares, _shapes_power)
    return any(x.is_graph_output() or any(is_op(n, "Log") for n, _ in x.uses()) for x in powers)


def _is_linear(node: ir.Node, _: int) -> bool:
    return node in _LINEAR and squared_input(node) is None


def _shapes_power(node: ir.Node, index: int) -> bool:
    if node in _SCALES:
        return _constant_operand(node, index) is not None
    return node in _SHAPES_POWER


def _values_behind(
    starts: Iterable[ir.Value], leads_on: Callable[[ir.Node, int], bool]
) -> Iterator[ir.Value]:
    """Yield ``starts`` and what follows from them through nodes of one kind, the nearest first."""

    def results(value: ir.Value) -> Iterator[ir.Value]:
        return (x for node, index in value.uses() if leads_on(node, index) for x in node.outputs)

    return islice(reachable_from(starts, results), _MOST_VALUES)


def _uses_behind(
    starts: Iterable[ir.Value], leads_on: Callable[[ir.Node, int], bool]
) -> Iterator[tuple[ir.Node, int]]:
    """Yield the uses of the same values: each node, with the index of the input."""
    for value in _values_behind(starts, leads_on):
        yield from value.uses()
