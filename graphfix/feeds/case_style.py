"""How the arrays of a case are made, besides their sizes: where rows end, and what is in them."""

from dataclasses import dataclass
from typing import Literal

Ends = Literal["first full", "all full", "first short", "none full", "an empty row"]
Side = Literal["right", "left"]
Values = Literal["usual", "bumps", "spikes", "positive", "loud", "quiet", "silent", "pixels"]
_CALLED: dict[Values, str] = {
    "bumps": "values over 1e3",
    "spikes": "values over 1e4",
    "positive": "values above 0",
    "loud": "values of size 30",
    "quiet": "values of size 0.03",
    "silent": "all zeros",
    "pixels": "values from 0 to 255",
}


@dataclass(frozen=True)
class Style:
    """How a case is made.

    Attributes:
        ends: Which rows are shorter than the array, where a mask or a length says so. Some models
            take the longest length for the size of the array: they run only if a row is full.
        side: On which side the padding of a mask lies.
        values: What floats are: normal numbers; the same with a few over 1e3, or over 1e4, in one
            frame of one row; all above 0; thirty times as large; as small as speech in a recording;
            all 0; or those of an image.
        wide: Whether whole numbers that nothing bounds go beyond 0 and 1, and positions start
            behind the cache.
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
        """What a user should know of it; empty for the usual."""
        side = "padded on the left" if self.side == "left" else ""
        parts = (side, _CALLED.get(self.values, ""), "other readings" if self.other else "")
        return ", ".join(filter(None, parts))


USUAL = Style()
# So many rows have every length up to that of the array: three strides of 2 tell each residue.
_EIGHT = 8


def ends_of(ends: Ends, whole: int, rows: int, step: int) -> tuple[int, ...]:
    """How long each row is.

    Args:
        ends: Which rows are shorter.
        whole: The length of the array.
        rows: How many rows there are.
        step: Another step makes other lengths, for the usual ends.
    """
    if ends == "all full":
        return (whole,) * rows
    if ends == "first full":
        shorter = (round(whole * (0.48, 0.31, 0.85)[(row + step) % 3]) for row in range(rows - 1))
        return (whole, *(_below(n, whole) for n in shorter))
    if ends == "an empty row":
        middle = (_below(round(whole * 0.6), whole),) * max(rows - 2, 0)
        return (whole, 0, *middle) if rows > 1 else (0,)
    if ends == "first short" and _EIGHT <= rows <= whole:
        return tuple(range(whole - rows + 1, whole + 1))
    found = [_below(round(whole * (0.42, 0.58, 0.31, 0.73)[row % 4]), whole) for row in range(rows)]
    if ends == "first short" and rows > 1:
        found[1] = whole
    return tuple(found)


def _below(length: int, whole: int) -> int:
    """At least 1, and shorter than the array if that can be."""
    return max(min(length, whole - 1), min(1, whole))
