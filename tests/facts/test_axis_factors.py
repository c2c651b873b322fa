"""What is said of the axes of a Reshape holds of the numbers that it moves."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphfix.facts.axis_factors import cuts_alike, deal_factors, keeps_axis, merged_axes
from graphfix.facts.symbolic.expressions import Dim, divide_dims

Dealt = list[list[tuple[int, Dim]]]

UNKNOWN = ir.SymbolicDim(None)


def dims_of(text: str) -> list[Dim]:
    """Return the dims in a text such as ``B, 2*T, 4``; ``?`` is one that is not known."""
    names = [x.strip() for x in text.split(",") if x.strip()]
    return [
        int(x) if x.isdigit() else UNKNOWN if x == "?" else ir.SymbolicDim(x.replace(" ", ""))
        for x in names
    ]


def deal(factors: Sequence[Dim], sizes: Sequence[Dim]) -> Dealt | None:
    dealt = deal_factors(factors, sizes, divide_dims, lambda p, size, _: divide_dims(p.size, size))
    return None if dealt is None else [[(x.factor, x.size) for x in axis] for axis in dealt]


@pytest.mark.parametrize(
    ("factors", "sizes", "axes"),
    [
        ("B, T, 4", "B, T, 4", [[(0, "B")], [(1, "T")], [(2, "4")]]),
        ("B, T, 4", "B*T, 4", [[(0, "B"), (1, "T")], [(2, "4")]]),
        ("B, 8", "B, 2, 4", [[(0, "B")], [(1, "2")], [(1, "4")]]),
        ("24", "2, 3, 4", [[(0, "2")], [(0, "3")], [(0, "4")]]),
        ("2, 6", "4, 3", [[(0, "2"), (1, "2")], [(1, "3")]]),
        ("B, 4*T", "B*4, T", [[(0, "B"), (1, "4")], [(1, "T")]]),
        ("T", "1, T, 1", [[], [(0, "T")], []]),
        ("1, T, 1", "T", [[(0, "1"), (1, "T")]]),
        ("", "", []),
        ("", "1, 1", [[], []]),
        ("4, 6", "6, 4", None),
        ("B, T", "T, B", None),
        ("4", "4, 2", None),
        ("4, 2", "4", None),
        ("?", "2, ?", None),
        ("?, 4", "?, 4", None),
    ],
)
def test_factors_are_dealt_in_order(
    factors: str, sizes: str, axes: list[list[tuple[int, str]]] | None
) -> None:
    dealt = deal(dims_of(factors), dims_of(sizes))
    if axes is None:
        assert dealt is None
    else:
        assert dealt is not None
        assert [[(i, str(x)) for i, x in axis] for axis in dealt] == axes


def test_a_split_may_know_the_axes_behind() -> None:
    """A chunked axis [T] as [T / 4, 4]: that it divides is not seen from the sizes alone."""
    asked: list[tuple[int, int, tuple[int, ...]]] = []

    def split(part: tuple[int, int], size: int, following: Sequence[int]) -> int:
        asked.append((part[1], size, tuple(following)))
        return following[0]

    dealt = deal_factors([3, 21], [3, 5, 4, 1], lambda a, b: 1 if a == b else None, split)
    assert dealt == [[(0, 3)], [(1, 5)], [(1, 4)], []]
    assert asked == [(21, 5, (4, 1))]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(1, 4), max_size=6), st.data())
def test_the_parts_of_any_regrouping_lie_as_the_elements_do(
    sizes: list[int], data: st.DataObject
) -> None:
    def regroup() -> list[int]:
        ends = sorted(data.draw(st.sets(st.integers(1, len(sizes)), max_size=4)) if sizes else [])
        cuts = [0, *ends, len(sizes)]
        return [math.prod(sizes[a:b]) for a, b in itertools.pairwise(cuts)]

    before, after = regroup(), regroup()
    dealt = deal(before, after)
    if dealt is None:  # two sizes without a common factor meet
        return
    parts = [part for axis in dealt for part in axis]
    assert [math.prod(x for _, x in axis) for axis in dealt] == after
    assert [i for i, _ in parts] == sorted(i for i, _ in parts)
    for i, size in enumerate(before):
        assert math.prod(x for j, x in parts if i == j) == size


@pytest.mark.parametrize(
    ("before", "after", "cuts"),
    [
        ("B, T, 4", "B, T, 2, 2", {(0, 0), (1, 1), (2, 2), (3, 4)}),
        ("B, T, 4", "B*T, 4", {(0, 0), (2, 1), (3, 2)}),
        ("B, 1, T", "B, T", {(0, 0), (1, 1), (2, 1), (3, 2)}),
        # From the front the two are not seen to be alike; what stands behind is.
        ("?, T, 4", "?, T, 4", {(0, 0), (1, 1), (2, 2), (3, 3)}),
        ("?, T, ?", "?, T, ?", {(0, 0), (3, 3)}),
        # No elements in front are as many as no elements, which says nothing.
        ("0, 3, 5", "0, 15", {(0, 0), (1, 1), (3, 2)}),
        ("3, 0, 5", "15, 0, 2", {(0, 0), (3, 3)}),
    ],
)
def test_cuts_alike(before: str, after: str, cuts: set[tuple[int, int]]) -> None:
    old, new = dims_of(before), dims_of(after)
    places = {(i, j) for i in range(len(old) + 1) for j in range(len(new) + 1)}
    assert {(i, j) for i, j in places if cuts_alike(old, i, new, j)} == cuts


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
)
def test_an_axis_that_is_kept_counts_the_same_elements(before: list[int], after: list[int]) -> None:
    """Index along the axis, of each element, before the Reshape and after it."""
    if math.prod(before) != math.prod(after):
        return
    for axis in range(len(before)):
        for place in range(len(after)):
            old = np.indices(before)[axis].reshape(-1)
            new = np.indices(after)[place].reshape(-1)
            # Those of two axes of size 1 are always the same.
            same = before[axis] == after[place] and np.array_equal(old, new)
            kept = keeps_axis(before, axis, after, place)
            assert kept == same or (same and before[axis] == 1)


@pytest.mark.parametrize(
    ("many", "few", "places"),
    [
        ("B, H, T, D", "B*H, T, D", [0]),
        ("B, H, T, D", "B, H*T, D", [1]),
        ("B, H, T, D", "B, H, T*D", [2]),
        ("B, H, T, D", "B, H*T*D", [1]),
        ("B, H, T, D", "B*H*T*D", [0]),
        ("B, H, T, D", "B*H, T*D", []),
        ("B, H, T", "B, H, T", []),
        ("B*H, T", "B, H, T", []),
        ("B, H, T", "B, T*2", []),
        ("2, 2, 2", "4, 2", [0]),
        ("T, 1, T", "T, T", [0, 1]),
        ("1, 1, T", "1, T", [1]),
        ("1, 1", "1", []),
        ("0, 2, 5", "0, 5", []),
        ("?, H, T", "?, H*T", [1]),
    ],
)
def test_merged_axes(many: str, few: str, places: list[int]) -> None:
    assert merged_axes(dims_of(many), dims_of(few)) == places
