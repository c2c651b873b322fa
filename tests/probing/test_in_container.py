"""The valid part of a container's outputs."""

from __future__ import annotations

import numpy as np
import pytest

from graphfix.feeds.clips import Fill
from graphfix.probing.in_container import PaddedDiff, crop_to_clip
from graphfix.proof.compare import OutputDiff

CONTAINER = np.arange(2 * 5 * 3).reshape(2, 5, 3)


def test_the_valid_part_is_the_beginning_of_each_axis() -> None:
    part = crop_to_clip(CONTAINER, np.empty((2, 4, 3)))
    np.testing.assert_array_equal(part, CONTAINER[:, :4])


def test_a_clip_that_fills_its_container_is_valid_as_a_whole() -> None:
    np.testing.assert_array_equal(crop_to_clip(CONTAINER, np.empty((2, 5, 3))), CONTAINER)


@pytest.mark.parametrize("row", [0, 1])
def test_the_valid_part_of_a_row_is_in_that_row(row: int) -> None:
    part = crop_to_clip(CONTAINER, np.empty((1, 4, 3)), row, 2, 0)
    np.testing.assert_array_equal(part, CONTAINER[row : row + 1, :4])


@pytest.mark.parametrize("row_axis", [None, 2])
def test_rows_are_found_where_nothing_says_their_axis(row_axis: int | None) -> None:
    part = crop_to_clip(CONTAINER, np.empty((1, 5, 3)), 1, 2, row_axis)
    np.testing.assert_array_equal(part, CONTAINER[1:])


def test_of_two_axes_that_may_be_rows_the_known_one_is() -> None:
    square = np.arange(4).reshape(2, 2)
    np.testing.assert_array_equal(crop_to_clip(square, np.empty((1, 1)), 1, 2, 1), [[1]])
    np.testing.assert_array_equal(crop_to_clip(square, np.empty((1, 1)), 1, 2, 0), [[2]])
    np.testing.assert_array_equal(crop_to_clip(square, np.empty((1, 1)), 1, 2), [[2]])


@pytest.mark.parametrize(
    ("shape", "rows", "reason"),
    [
        ((2, 5), 1, "has 3 dims in the container and 2 alone"),
        ((2, 6, 3), 1, "axis 1 has 5 in the container and 6 alone"),
        ((1, 6, 3), 2, "axis 1 has 5 in the container and 6 alone"),
        ((1, 5, 3), 3, "has no axis of 3 rows"),
        ((2, 5, 3), 2, "has no axis of 2 rows"),
    ],
)
def test_what_cannot_be_cropped_says_why(shape: tuple[int, ...], rows: int, reason: str) -> None:
    part = crop_to_clip(CONTAINER, np.empty(shape), 0, rows)
    assert isinstance(part, str)
    assert reason in part


@pytest.mark.parametrize(
    ("rows", "row", "text"),
    [((7,), 0, "7 in 9, padding zero"), ((7, 5), 1, "7 in 9, row 2 of 2, padding zero")],
)
def test_a_difference_says_which_row_it_is_of(rows: tuple[int, ...], row: int, text: str) -> None:
    fill: Fill = "zero"
    for ok in (True, False):
        diff = PaddedDiff(7, 9, fill, rows, row, OutputDiff("y", "", ok=ok))
        assert (str(diff), diff.ok) == (text, ok)
