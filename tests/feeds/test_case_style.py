"""Styles of made-up arrays."""

from __future__ import annotations

import pytest

from graphfix.feeds.case_style import USUAL, Ends, Style, row_lengths


@pytest.mark.parametrize(
    ("style", "label"),
    [
        (USUAL, ""),
        (Style(side="left"), "padded on the left"),
        (Style(values="spikes"), "values over 1e4"),
        (Style(values="bumps", wide=True), "values over 1e3"),
        (Style(other=True), "other readings"),
        (
            Style(side="left", values="silent", other=True),
            "padded on the left, all zeros, other readings",
        ),
    ],
)
def test_labels(style: Style, label: str) -> None:
    assert style.label == label
    assert (USUAL.wide, USUAL.other, USUAL.ends, USUAL.side) == (
        False,
        False,
        "first full",
        "right",
    )


@pytest.mark.parametrize(
    ("ends", "length", "rows", "step", "expected"),
    [
        ("all full", 7, 3, 0, (7, 7, 7)),
        ("first full", 100, 5, 0, (100, 48, 31, 85, 48)),
        ("first full", 100, 5, 1, (100, 31, 85, 48, 31)),
        ("first full", 100, 4, 2, (100, 85, 48, 31)),
        ("first full", 100, 1, 0, (100,)),
        ("first full", 1, 3, 0, (1, 1, 1)),
        ("first full", 2, 3, 0, (2, 1, 1)),
        ("first full", 0, 2, 0, (0, 0)),
        ("an empty row", 10, 1, 0, (0,)),
        ("an empty row", 10, 2, 0, (10, 0)),
        ("an empty row", 10, 4, 0, (10, 0, 6, 6)),
        ("an empty row", 1, 3, 0, (1, 0, 1)),
        ("first short", 100, 1, 0, (42,)),
        ("first short", 100, 2, 0, (42, 100)),
        ("first short", 100, 6, 0, (42, 100, 31, 73, 42, 58)),
        ("first short", 100, 7, 0, (42, 100, 31, 73, 42, 58, 31)),
        ("first short", 8, 8, 0, (1, 2, 3, 4, 5, 6, 7, 8)),
        ("first short", 20, 9, 0, tuple(range(12, 21))),
        ("first short", 7, 8, 0, (3, 7, 2, 5, 3, 4, 2, 5)),
        ("none full", 100, 9, 0, (42, 58, 31, 73, 42, 58, 31, 73, 42)),
        ("none full", 1, 2, 0, (1, 1)),
        ("none full", 0, 2, 0, (0, 0)),
    ],
)
def test_lengths_of_rows(
    ends: Ends, length: int, rows: int, step: int, expected: tuple[int, ...]
) -> None:
    assert row_lengths(ends, length, rows, step) == expected
