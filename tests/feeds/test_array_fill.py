"""Contents of one array of a case."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from graphfix.feeds import array_fill
from graphfix.feeds.case_style import Style, Values
from graphfix.feeds.input import Input
from graphfix.feeds.number_uses import NumberUses
from graphfix.feeds.roles import Role
from tests.feeds.one_input import item, rng


@pytest.mark.parametrize(
    ("side", "length", "valid", "expected"),
    [
        ("right", 4, (4, 2), [[1, 1, 1, 1], [1, 1, 0, 0]]),
        ("left", 4, (4, 1), [[1, 1, 1, 1], [0, 0, 0, 1]]),
        ("right", 3, (3, 1), [[1, 1, 1, 1], [1, 1, 0, 0]]),
        ("right", 3, (0, 3), [[0, 0, 0, 0], [1, 1, 1, 1]]),
    ],
)
def test_masks(side: Any, length: int, valid: tuple[int, ...], expected: list[list[int]]) -> None:
    mask = array_fill.make_mask(item("mask", (2, 4), "i8"), (2, 4), valid, length, side)
    assert mask.tolist() == expected
    assert mask.dtype == np.int64
    other = item("mask", (2, 4), valid=0.0, padded=-5.0)
    negative = array_fill.make_mask(other, (2, 4), valid, length, side)
    assert negative.tolist() == [[0 if x else -5 for x in row] for row in expected]


def test_a_mask_without_time_is_content() -> None:
    mask = array_fill.make_mask(item("mask", (2,), time=None, valid=3.0), (2,), (1, 1), 1, "right")
    assert mask.tolist() == [3, 3]
    assert array_fill.padding_mask(item(time=None), (2, 3, 1), (1, 1)) is None
    padding = array_fill.padding_mask(item(), (2, 3, 1), (3, 1))
    assert padding is not None
    assert padding[..., 0].tolist() == [[False, False, False], [False, True, True]]


def test_values_lie_along_axes() -> None:
    assert array_fill.index_along((2, 3), 1).tolist() == [[0, 1, 2]]
    assert array_fill.index_along((2, 3), 0).tolist() == [[0], [1]]
    assert array_fill.repeat_rows(np.array([5, 6]), (1, 3)).tolist() == [[5, 6, 5]]
    assert array_fill.repeat_rows(np.array([5]), (0, 1)).shape == (0, 1)


@pytest.mark.parametrize(
    ("shape", "axis", "start", "expected"),
    [
        ((2, 3), 1, 0, [[1, 2, 3], [1, 2, 3]]),
        ((1, 3), 1, 4, [[5, 6, 6]]),
        ((2,), 0, 0, [1, 2]),
        ((), 0, 2, 3),
    ],
)
def test_positions(shape: tuple[int, ...], axis: int, start: int, expected: Any) -> None:
    role = Role("positions", "a use", low=1, high=7)
    assert array_fill.count_positions(shape, axis, role, start).tolist() == expected


def test_ids_avoid_those_of_padding() -> None:
    role = Role("tokens", "a use", low=2, high=9, choices=(2, 3))
    ids = array_fill.draw_token_ids(rng(), role, (4, 50))
    assert set(ids.reshape(-1).tolist()) == {4, 5, 6, 7, 8}
    assert ids.reshape(-1)[100] == 8
    alone = array_fill.draw_token_ids(
        rng(), Role("tokens", "a use", low=1, high=2, choices=(1,)), (3,)
    )
    assert alone.tolist() == [1, 1, 1]
    pair = array_fill.draw_token_ids(rng(), Role("tokens", "a use", low=0, high=999), (2,))
    assert pair[1] == 998
    single = array_fill.draw_token_ids(rng(), Role("tokens", "a use", low=0, high=999), (1,))
    assert single[0] != 998


@pytest.mark.parametrize(
    ("given", "values"),
    [
        (item("choice", (2,), "i8", choices=(1, 4), free=True), (1, 4, 5)),
        (item("choice", (2,), "u1", choices=(4, 1), free=True), (4, 1, 5)),
        (item("choice", (2,), "i8", choices=(1, 4)), (1, 4)),
        (item("choice", (2,), "f4", choices=(1, 4), free=True), (1, 4)),
        (item("tokens", (2, 1), "i8", time=None, low=1, high=4), (1, 2, 3)),
        (item("tokens", (2,), "i8", time=None, high=64), tuple(range(64))),
        (item("tokens", (2,), "i8", time=None, low=1, high=66), ()),
        (item("tokens", (2, 3), "i8", time=None, high=4), ()),
        (item("tokens", (2, 1), "i8", time=1, high=4), ()),
        (item("data", (2,), "i8", time=None, high=4), ()),
    ],
)
def test_options(given: Input, values: tuple[int, ...]) -> None:
    assert array_fill.selector_values(given) == values


@pytest.mark.parametrize(
    ("given", "wide", "low", "high"),
    [
        (item("data", dtype="i8", low=3, high=6), False, 3, 5),
        (item("data", dtype="i8", low=3, high=3), False, 3, 3),
        (item("data", dtype="i8", low=3, high=6), True, 3, 5),
        (item("data", dtype="i8", low=3, high=6, free=True), True, -3, 120),
        (item("data", dtype="u2", low=3, high=6, free=True), True, 0, 120),
        (item("data", dtype="u1", free=True), True, 0, 255),
        (item("data", dtype="i1", free=True), True, -128, 127),
        (item("data", dtype="?", free=True), True, 0, 1),
    ],
)
def test_integers(given: Input, wide: bool, low: int, high: int) -> None:
    array = array_fill.draw_integers(rng(), given, (2, 800, 3), wide=wide)
    assert (array.min(), array.max()) == (low, high)
    assert array.dtype == np.dtype(given.dtype)


def test_one_outlier_lies_in_the_second_row() -> None:
    wide = item("data", dtype="i8", free=True)
    array = array_fill.draw_integers(rng(), wide, (2, 8, 3), wide=True)
    assert np.argwhere(array == 120).tolist() == [[1, 2, 0]]
    assert (array[array != 120] < 10).all()
    single = array_fill.draw_integers(rng(), item(dtype="i8", free=True), (1, 1, 1), wide=True)
    assert single[0, 0, 0] < 10


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [("usual", 0.7, 1.3), ("loud", 20, 40), ("quiet", 0.02, 0.04), ("silent", -0.1, 0.1)],
)
def test_floats_spread(values: Values, low: float, high: float) -> None:
    array = array_fill.draw_floats(rng(), item(), (2, 100, 3), values)
    first = array[:1]  # the last row of loud ones is far below 0
    assert low <= np.std(first) <= high
    assert abs(np.mean(first)) <= high


def test_floats_of_a_span_and_of_an_image() -> None:
    span = array_fill.draw_floats(rng(), item(span=(2.0, 3.0)), (2, 100, 3), "loud")
    assert span.min() >= 2
    assert span.max() <= 3
    image = item(dims=(1, 3, 8, 8))
    pixels = array_fill.draw_floats(rng(), image, (1, 3, 8, 8), "pixels")
    assert pixels.min() >= 0
    assert 200 < pixels.max() <= 255
    assert array_fill.draw_floats(rng(), item(), (2, 100, 3), "pixels").max() < 9


@pytest.mark.parametrize(
    ("dims", "image"),
    [((1, 3, 8, 8), True), ((1, 8, 8, 3), True), ((1, 8, 3, 8), False), ((3, 3, 3), False)],
)
def test_images(dims: tuple[int, ...], image: bool) -> None:
    assert array_fill.is_image(item(dims=dims)) == image


@pytest.mark.parametrize("values", ["usual", "silent", "spikes", "loud"])
def test_positive_floats_are_above_0(values: Values) -> None:
    for positive, style in ((True, values), (False, "positive")):
        array = array_fill.draw_floats(rng(), item(), (2, 8, 3), style, positive=positive)
        assert array.min() >= 0.2


@pytest.mark.parametrize(
    ("given", "shape", "places"),
    [
        (item(), (2, 8, 3), [(1, 2, 0), (1, 2, 1)]),
        (item(), (1, 8, 3), [(0, 2, 0), (0, 2, 1)]),
        (item(), (2, 8, 1), [(1, 2, 0)]),
        (item(dims=(2, 8)), (2, 8), [(1, 2), (1, 3)]),
        (item(dims=(2, 5, 8), time=2), (2, 5, 8), [(1, 0, 2), (1, 1, 2)]),
        (item(dims=(8,), rows=None, time=0), (8,), [(2,), (3,)]),
        (item(dims=(2, 3), time=None), (2, 3), [(1, 0), (1, 1)]),
        (item(dims=(2,), time=None), (2,), [(1,)]),
    ],
)
def test_spikes_lie_in_one_frame(given: Input, shape: Any, places: list[tuple[int, ...]]) -> None:
    for values, high in (("bumps", 1.3e3), ("spikes", 1.3e4)):
        array = array_fill.draw_floats(rng(), given, shape, values)
        assert array[places[0]] == high
        assert [tuple(x) for x in np.argwhere(np.abs(array) > 100).tolist()] == places
        assert len(places) == 1 or array[places[1]] == -high + high / 13
    one = array_fill.draw_floats(rng(), item(), (1, 1, 1), "spikes")
    assert abs(one[0, 0, 0]) < 100


def test_content_is_of_the_type_of_the_input() -> None:
    style = Style(values="loud", wide=True)
    tokens = array_fill.draw_content(rng(), item("tokens", dtype="i4", high=5), (2, 9, 1), style)
    assert tokens.dtype == np.int32
    assert tokens.max() == 4
    whole = array_fill.draw_content(rng(), item(dtype="i8", free=True), (2, 9, 1), style)
    assert whole.max() == 120
    floats = array_fill.draw_content(rng(), item(), (2, 90, 1), style, positive=True)
    assert floats.dtype == np.float32
    assert floats.min() > 0
    assert floats.max() > 20


def test_other_readings_of_a_mask() -> None:
    whole = array_fill.draw_other_reading(rng(), item("mask", dtype="i8"), (2, 200))
    assert (whole.min(), whole.max()) == (0, 8)
    gains = array_fill.draw_other_reading(rng(), item("mask"), (2, 200))
    assert gains.dtype == np.float32
    assert 0.3 <= gains.min() < 0.4
    assert 1.6 < gains.max() <= 1.7


def test_positions_of_a_wide_case_jump_repeat_and_differ_by_row() -> None:
    role = Role("positions", "a use", high=400)
    made = Input("p", np.int64, (3, 40), role, rows=0, time=1)
    rng = np.random.default_rng(0)
    positions = array_fill.draw_positions(rng, made, (3, 40), 1, 5)
    steps = np.diff(positions, axis=1)
    assert (steps == 0).any()
    assert (steps > 1).any()
    assert (positions[0] != positions[1]).any()
    assert positions.min() >= 5
    written = replace(made, role=replace(role, writes=True))
    kept = array_fill.draw_positions(rng, written, (3, 40), 1, 5)
    assert (np.diff(kept, axis=1) == 1).all()


def test_special_ids_come_together_and_others_from_the_end() -> None:
    role = Role("tokens", "a use", high=9, choices=(2, 3))
    made = Input("ids", np.int64, (1, 12), role, rows=0, time=1)
    ids = array_fill.add_rare_ids(np.full((1, 12), 5), made)
    assert {2, 3, -4} <= {*ids.reshape(-1)}
    above = replace(made, role=replace(role, low=1))
    assert array_fill.add_rare_ids(np.full((1, 12), 5), above).min() > 0


def test_ties_are_halves_equal_elements_and_thresholds() -> None:
    uses = NumberUses(thresholds=(0.1,), ties=True)
    array = array_fill.draw_floats(rng(), item(dims=(4, 10, 3), uses=uses), (4, 10, 3), "ties")
    assert {0.1, 0.5, 2.5} <= {*array.reshape(-1).tolist()}
    on_grid = array[array != 0.1]
    np.testing.assert_array_equal(on_grid * 8, np.round(on_grid * 8))
    assert len(np.unique(array)) < array.size / 2
    above = array_fill.draw_floats(
        rng(), item(dims=(4, 10, 3), uses=uses), (4, 10, 3), "ties", positive=True
    )
    assert above.min() > 0
    usual = array_fill.draw_floats(rng(), item(dims=(4, 10, 3)), (4, 10, 3), "ties")
    assert len(np.unique(usual)) == usual.size


def test_a_single_number_is_a_tie_or_guarded_too() -> None:
    tie = item(dims=(), rows=None, time=None, uses=NumberUses(thresholds=(0.1,), ties=True))
    assert array_fill.draw_floats(rng(), tie, (), "ties") == 0.1
    guarded = item(dims=(), rows=None, time=None, uses=NumberUses(guarded=(np.inf,)))
    assert array_fill.draw_floats(rng(), guarded, (), "guarded") == np.inf
    whole = item("int", (), "i8", rows=None, time=None, free=True, uses=NumberUses(exact_bits=64))
    flag = item("mask", (2, 4), "?", sure=False, uses=NumberUses(exact_bits=64))
    assert array_fill.draw_other_reading(rng(), flag, (2, 4)).dtype == np.bool_
    fed = [array_fill.draw_integers(rng(), whole, (), wide=True) for _ in range(3)]
    assert all(x.shape == () for x in fed)


def test_only_what_is_guarded_is_nan_or_infinite() -> None:
    uses = NumberUses(guarded=(np.inf,))
    array = array_fill.draw_floats(rng(), item(uses=uses), (2, 8, 3), "guarded")
    assert np.isposinf(array).any()
    assert np.isfinite(array).sum() > array.size / 2
    assert np.isfinite(array_fill.draw_floats(rng(), item(), (2, 8, 3), "guarded")).all()


@pytest.mark.parametrize(
    ("dtype", "uses", "expected"),
    [
        ("i8", NumberUses(exact_bits=64), {2**31 + 7, 2**24 + 1, 70_001}),
        ("i8", NumberUses(exact_bits=32), {2**24 + 1}),
        ("i4", NumberUses(exact_bits=32), {2**24 + 1}),
        ("i4", NumberUses(exact_bits=32, multiplied=True), {40_001}),
        ("i8", NumberUses(thresholds=(500.0,)), {499, 500, 501}),
        ("i8", NumberUses(), set()),
    ],
)
def test_whole_numbers_that_only_an_exact_type_holds(
    dtype: str, uses: NumberUses, expected: set[int]
) -> None:
    role = item("int", (2, 40), dtype, free=True, uses=uses)
    fed = {*array_fill.draw_integers(rng(), role, (2, 40), wide=True).reshape(-1).tolist()}
    assert expected <= fed
    assert expected or max(fed) == 120
    narrow = array_fill.draw_integers(rng(), role, (2, 40), wide=False)
    assert narrow.max() < 3
    if uses.multiplied:
        assert max(abs(x) for x in fed) ** 2 < 2**31
    other = {*array_fill.draw_other_reading(rng(), role, (2, 40)).reshape(-1).tolist()}
    assert expected <= other


def test_a_2_in_a_mask_stands_where_it_is_the_same() -> None:
    mask = np.array([[1, 1, 1, 0, 0, 0]])
    as_one = item("mask", (1, 6), "i8", uses=NumberUses(as_one=True))
    assert array_fill.add_other_true(mask, as_one).tolist() == [[1, 2, 1, 0, 0, 0]]
    as_zero = item("mask", (1, 6), "i8", uses=NumberUses(as_zero=True))
    assert array_fill.add_other_true(mask, as_zero).tolist() == [[1, 1, 1, 0, 2, 0]]
    for other in (item("mask", (1, 6), "i8"), item("mask", (1, 6), "i8", valid=0.0, padded=-9.0)):
        assert array_fill.add_other_true(mask, other).tolist() == mask.tolist()


def test_ids_past_the_end_where_the_graph_brings_them_back() -> None:
    ids = np.zeros((1, 8), np.int64)
    fed = array_fill.add_rare_ids(ids, item("tokens", (1, 8), "u8", high=10, wraps=True))
    assert fed.max() == 10
    assert array_fill.add_rare_ids(ids, item("tokens", (1, 8), "u8", high=10)).max() == 0
    ring = item("tokens", (1,), "i8", time=None, high=3, wraps=True)
    assert array_fill.selector_values(ring) == (0, 3, 4, 1, 2)
    places = array_fill.draw_positions(
        rng(), item("positions", (2, 40), "i8", high=8, wraps=True), (2, 40), 1, 0
    )
    assert 8 <= places.max() < 16
