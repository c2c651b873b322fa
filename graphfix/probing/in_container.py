"""Outputs of a clip in a container: their valid part, and its difference from the clip alone."""

from dataclasses import dataclass

from graphfix.feeds.clips import Fill
from graphfix.proof.compare import Array, OutputDiff


@dataclass(frozen=True)
class PaddedDiff:
    """Difference of one output of a clip in a container from that of the clip alone.

    Attributes:
        clip: The length of the clip.
        container: The length of the container.
        fill: What the padding holds.
        rows: The lengths of all rows in the container.
        row: Which of them this clip is.
        diff: The difference, on the valid prefix only.
    """

    clip: int
    container: int
    fill: Fill
    rows: tuple[int, ...]
    row: int
    diff: OutputDiff

    @property
    def ok(self) -> bool:
        """Return whether it is within the gates."""
        return self.diff.ok

    def __str__(self) -> str:
        among = f", row {self.row + 1} of {len(self.rows)}" if len(self.rows) > 1 else ""
        return f"{self.clip} in {self.container}{among}, padding {self.fill}"


def crop_to_clip(
    array: Array, reference: Array, row: int = 0, rows: int = 1, row_axis: int | None = None
) -> Array | str:
    """Return the part of ``array`` that is valid: as much as ``reference`` has along each axis.

    Args:
        array: A tensor of a container.
        reference: The same tensor of the clip alone.
        row: Which row of the container the clip is.
        rows: How many rows the container has.
        row_axis: The axis of the rows, if it is known.

    Returns:
        An array of the shape of ``reference``, or why there is none, in words.
    """
    if array.ndim != reference.ndim:
        return f"has {array.ndim} dims in the container and {reference.ndim} alone"
    window = [slice(0, size) for size in reference.shape]
    if rows > 1:
        sizes = zip(array.shape, reference.shape, strict=True)
        fits = [a for a, pair in enumerate(sizes) if pair == (rows, 1)]
        axis = row_axis if row_axis in fits else next(iter(fits), None)
        if axis is None:
            return (
                f"has no axis of {rows} rows: its shape is {[*array.shape]} in the container "
                f"and {[*reference.shape]} alone"
            )
        window[axis] = slice(row, row + 1)
    for axis, (size, own) in enumerate(zip(array.shape, reference.shape, strict=True)):
        if size < own:
            return (
                f"cannot be cropped to the clip: axis {axis} has {size} in the container "
                f"and {own} alone"
            )
    return array[tuple(window)]
