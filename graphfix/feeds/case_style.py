"""Styles of made-up arrays: where rows end, and which values they hold."""

from dataclasses import dataclass
from typing import Literal

Ends = Literal["first full", "all full", "first short", "none full", "an empty row"]
Side = Literal["right", "left"]
Values = Literal[
    "usual",
    "bumps",
    "spikes",
    "positive",
    "loud",
    "quiet",
    "silent",
    "pixels",
    "recording",
    "ties",
    "guarded",
]
_VALUE_LABELS: dict[Values, str] = {
    "bumps": "values over 1e3",
    "spikes": "values over 1e4",
    "positive": "values above 0",
    "loud": "values of size 30",
    "quiet": "values of size 0.03",
    "silent": "all zeros",
    "pixels": "values from 0 to 255",
    "recording": "a loud recording",
    "ties": "equal and half-way values",
    "guarded": "NaN and infinity",
}


@dataclass(frozen=True)
class Style:
    """The style in which the arrays of a case are made.

    Attributes:
        ends: Which rows are shorter than the array, where a mask or a length says so. Some models
            take the longest length for the size of the array: they run only if a row is full.
        side: On which side the padding of a mask lies.
        values: What floats are: normal numbers; the same with a few over 1e3, or over 1e4, in one
            frame of one row; all above 0; thirty times as large; as small as speech in a recording;
            all 0; those of an image; a wave as loud as it can be; on a coarse grid, with the
            numbers at which the graph decides; or with NaN and infinity, against which it guards.
        wide: Whether whole numbers that nothing bounds go beyond 0 and 1, positions start behind
            the cache, and masks hold a 2 where that is the same to the graph.
        other: Whether inputs whose use does not prove what they are get their other reading, and
            inputs with a default get a value.
    """

    ends: Ends = "first full"
    side: Side = "right"
    values: Values = "usual"
    wide: bool = False
    other: bool = False

    @property
    def label(self) -> str:
        """Return the style in words for a user; empty for the usual one."""
        side = "padded on the left" if self.side == "left" else ""
        parts = (side, _VALUE_LABELS.get(self.values, ""), "other readings" if self.other else "")
        return ", ".join(filter(None, parts))


USUAL = Style()
# From so many rows on, each row has another length: three strides of 2 show every residue.
_ROWS_OF_ALL_LENGTHS = 8


def row_lengths(ends: Ends, full_length: int, rows: int, step: int) -> tuple[int, ...]:
    """Return how many elements of each row are content.

    Args:
        ends: Which rows are shorter.
        full_length: The length of the array.
        rows: How many rows there are.
        step: Another step makes other lengths, for the usual ends.
    """
    if ends == "all full":
        return (full_length,) * rows
    if ends == "first full":
        shorter = (
            round(full_length * (0.48, 0.31, 0.85)[(row + step) % 3]) for row in range(rows - 1)
        )
        return (full_length, *(_clamp_length(n, full_length) for n in shorter))
    if ends == "an empty row":
        middle = (_clamp_length(round(full_length * 0.6), full_length),) * max(rows - 2, 0)
        return (full_length, 0, *middle) if rows > 1 else (0,)
    if ends == "first short" and _ROWS_OF_ALL_LENGTHS <= rows <= full_length:
        return tuple(range(full_length - rows + 1, full_length + 1))
    lengths = [
        _clamp_length(round(full_length * (0.42, 0.58, 0.31, 0.73)[row % 4]), full_length)
        for row in range(rows)
    ]
    if ends == "first short" and rows > 1:
        lengths[1] = full_length
    return tuple(lengths)


def _clamp_length(length: int, full_length: int) -> int:
    """Return a length of at least 1 and below the array's, if that is possible."""
    return max(min(length, full_length - 1), min(1, full_length))
