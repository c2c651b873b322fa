"""Contents of one array of a case, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphfix.feeds import array_fill
from graphfix.feeds.case_style import Style
from graphfix.feeds.full_scale import PCM, WHITE, FullScale
from graphfix.feeds.input import Input
from graphfix.feeds.number_uses import NumberUses
from graphfix.feeds.roles import Role
from tests.feeds.one_input import item, rng

SAMPLES, PIXELS = FullScale(PCM, 2000.0), FullScale(WHITE, 255.0)


class Steps:
    """Draws the same of what it is given, each time."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.options: list[int] = []

    def choice(self, options: list[int], shape: tuple[int, ...]) -> np.ndarray:
        self.options = options
        return np.full(shape, options[self.index])


def test_each_query_hides_other_elements_and_never_itself() -> None:
    mask = np.ones((2, 4, 4), np.int64)
    hidden = array_fill.hide_by_query(mask, item("mask", ("B", "T", "T"), "i8", time=2))
    assert hidden.tolist() == [
        [[1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 1, 1], [0, 1, 1, 1]],
        [[1, 1, 0, 1], [0, 1, 1, 0], [1, 0, 1, 1], [1, 1, 0, 1]],
    ]
    assert hidden.dtype == np.int64
    no_rows = array_fill.hide_by_query(mask[:1, 0:, :], item("mask", ("T", "T"), rows=None))
    assert no_rows.shape == (1, 4, 4)
    square = array_fill.hide_by_query(
        mask[0], item("mask", ("T", "T"), "i8", rows=None, time=1, padded=-5.0)
    )
    assert square[0].tolist() == [1, 1, 1, -5]
    for other in (item("mask", ("B", "T", "S"), time=1), item("mask", ("B", "T", "T"), time=None)):
        assert array_fill.hide_by_query(mask, other) is mask


@pytest.mark.parametrize(
    ("role", "index", "expected"),
    [
        ({"low": 1, "high": 400}, 1, [[7, 8, 9], [10, 11, 12]]),
        ({"low": 0, "high": 4}, 1, [[2, 3, 0], [1, 2, 3]]),
        ({"low": 0, "high": 4, "wraps": True}, 1, [[6, 7, 0], [1, 2, 3]]),
        ({"low": 2, "high": 2}, 1, [[2, 2, 2], [2, 2, 2]]),
        ({"low": 0, "high": 99}, 0, [[5, 5, 5], [8, 8, 8]]),
        ({"low": 0, "high": 99}, -1, [[9, 13, 17], [12, 16, 20]]),
        ({"low": 1, "high": 99, "writes": True}, -1, [[6, 7, 8], [6, 7, 8]]),
    ],
)
def test_positions_go_on_from_a_start(
    role: dict[str, Any], index: int, expected: list[list[int]]
) -> None:
    steps: Any = Steps(index)
    given = item("positions", (2, 3), "i8", **role)
    assert array_fill.draw_positions(steps, given, (2, 3), 1, 5).tolist() == expected


def test_positions_of_one_row_and_of_a_single_number() -> None:
    steps: Any = Steps(1)
    for rows in (None, 0):
        given = item("positions", (3,), "i8", rows=rows, time=0, high=99)
        assert array_fill.draw_positions(steps, given, (3,), 0, 0).tolist() == [1, 2, 3]
    assert (steps.options.count(1), min(steps.options)) == (3, 0)
    assert max(steps.options) > 2
    alone = item("positions", (), "i8", rows=None, time=None, high=99)
    assert array_fill.draw_positions(steps, alone, (), 0, 4) == 4


@pytest.mark.parametrize(
    ("count", "role", "dtype", "expected"),
    [
        (12, {"choices": (2, 3)}, "i8", [0, 2, 3, 0, 0, 0, -9, 0, 0, 0, 0, -9]),
        (12, {"choices": (2, 3), "wraps": True}, "i8", [0, 2, 3, 0, 0, 0, 0, 0, 0, 0, 9, -9]),
        (12, {"choices": (2,)}, "u8", [0, 2, *[0] * 10]),
        (12, {"low": 1}, "i8", [0] * 12),
        (12, {"below": ("N",)}, "i8", [0] * 12),
        (2, {"choices": (2, 3)}, "i8", [0, 2]),
        (3, {"choices": (2, 3)}, "i8", [0, 2, 3]),
        (1, {"choices": (2, 3)}, "i8", [0]),
    ],
)
def test_rare_ids_are_put_among_the_others(
    count: int, role: dict[str, Any], dtype: str, expected: list[int]
) -> None:
    ids = np.zeros((1, count), np.int64)
    given = item("tokens", (1, "T"), dtype, **{"high": 9, **role})
    assert array_fill.add_rare_ids(ids, given).tolist() == [expected]
    assert not ids.any()  # what was given stays


def test_a_special_id_is_drawn_again_as_any_other() -> None:
    role = Role("tokens", "a use", low=0, high=4, choices=(0, 1))
    ids = array_fill.draw_token_ids(rng(), role, (300,))
    assert {*ids.tolist()} == {2, 3}
    every = Role("tokens", "a use", low=0, high=2, choices=(0, 1))
    assert {*array_fill.draw_token_ids(rng(), every, (300,)).tolist()} == {0, 1}
    first = array_fill.draw_token_ids(rng(), Role("tokens", "a use", low=3, high=9), (300,))
    assert (first.min(), first.max(), first[150]) == (3, 8, 8)


@pytest.mark.parametrize(
    ("given", "values"),
    [
        (item("tokens", (2,), "i8", time=None, high=3, wraps=True), (0, 3, 4, 1, 2)),
        (item("tokens", (2,), "i8", time=None, high=65), ()),
        (item("tokens", (2,), "i8", time=None, low=1, high=65), tuple(range(1, 65))),
        (item("choice", (2,), "?", choices=(0, 1), free=True), (0, 1)),
    ],
)
def test_values_that_select(given: Input, values: tuple[int, ...]) -> None:
    assert array_fill.selector_values(given) == values


@pytest.mark.parametrize(
    ("dims", "rows", "time", "role", "wave"),
    [
        ((2, 8), 0, 1, {}, True),
        ((2, 8, 1), 0, 1, {}, True),
        ((2, 8, 2), 0, 1, {}, False),
        ((2, 8), 0, None, {}, False),
        ((2, 8, 2), 0, 1, {"full_scale": SAMPLES}, True),
        ((2, 8), 0, 1, {"full_scale": PIXELS}, False),
    ],
)
def test_what_is_a_wave(
    dims: tuple[int, ...], rows: int, time: int | None, role: dict[str, Any], wave: bool
) -> None:
    assert array_fill.is_wave(item("data", dims, rows=rows, time=time, **role)) is wave
    assert not array_fill.is_wave(item("tokens", (2, 8)))


def test_what_is_a_picture_by_its_scale() -> None:
    assert array_fill.is_image(item(dims=(2, 8), full_scale=PIXELS))
    assert not array_fill.is_image(item(dims=(2, 8), full_scale=SAMPLES))
    assert array_fill.is_image(item(dims=(1, 3, 8, 8), full_scale=SAMPLES))
    assert not array_fill.is_image(item(dims=(3, 8, 8, 8)))


def test_a_picture_has_a_white_quarter() -> None:
    for shape in ((1, 3, 8, 6), (1, 8, 6, 3), (8, 1, 6)):
        picture = array_fill.draw_picture(rng(), shape)
        white = (picture == WHITE).any(axis=tuple(a for a, n in enumerate(shape) if n < 6))
        expected = np.zeros((8, 6), bool)
        expected[:4, :3] = True
        assert (white == expected).all()
        assert picture.min() >= 0
        assert picture.max() == WHITE


def test_a_recording_is_a_voice_in_syllables() -> None:
    wave = array_fill.draw_recording(rng(), item(dims=(1, 16_000)), (1, 16_000))[0]
    assert np.abs(wave).max() == pytest.approx(1)
    strength = np.abs(np.fft.rfft(wave))
    assert int(np.argmax(strength)) == 125  # in Hz
    for k in range(1, 13):  # its harmonics stand out
        assert strength[125 * k - 3 : 125 * k + 4].max() > 2 * np.median(
            strength[125 * k - 40 : 125 * k + 40]
        )
    assert strength[125 * 13] < 0.3 * strength[125 * 12]
    loud, soft = (float(np.std(wave[at - 400 : at + 400])) for at in (727, 2726))
    assert loud > 2 * soft  # four syllables a second
    assert float(np.std(wave[4727 - 400 : 4727 + 400])) > 2 * soft
    noise = strength[2000:8000]
    assert noise[:1000].mean() > 1.5 * noise[-1000:].mean()  # it falls


def test_recordings_lie_along_time_and_are_as_loud_as_can_be() -> None:
    given = item(dims=(2, "T"), full_scale=SAMPLES)
    wave = array_fill.draw_recording(rng(), given, (2, 1600))
    assert np.abs(wave).max() == pytest.approx(PCM)
    assert (wave[0] != wave[1]).any()
    assert array_fill.draw_recording(rng(), given, (2, 0)).shape == (2, 0)
    no_time = item(dims=(4000, 2, 900), rows=0, time=None)
    wave = array_fill.draw_recording(rng(), no_time, (40, 2, 900))
    assert np.abs(np.diff(wave, axis=2)).mean() < np.abs(np.diff(wave, axis=0)).mean()
    assert array_fill.draw_recording(rng(), item(dims=(), rows=None, time=None), (3,)).shape == (3,)


@pytest.mark.parametrize(
    ("given", "values", "low", "high"),
    [
        (item(full_scale=SAMPLES), "usual", 1500, 2500),
        (item(full_scale=SAMPLES), "loud", 45_000, 75_000),
        (item(full_scale=SAMPLES), "recording", 2000, 20_000),
        (item(dims=(2, 8, 8), full_scale=PIXELS), "usual", 60, 110),
        (item(dims=(2, 8, 8), full_scale=PIXELS), "ties", 60, 110),
        (item(dims=(2, 8, 8), full_scale=PIXELS), "silent", 0, 0),
        (item(dims=(2, 3, 8, 8)), "usual", 0.5, 1.5),
        (item(dims=(2, 3, 8, 8)), "pixels", 60, 110),
        (item(dims=(2, 8, 3)), "recording", 0.5, 1.5),
        (item(dims=(2, 8)), "recording", 0.05, 0.6),
    ],
)
def test_floats_are_of_the_scale_of_the_input(
    given: Input, values: Any, low: float, high: float
) -> None:
    shape = tuple(40 if a == given.time else n for a, n in enumerate(given.dims))
    array = array_fill.draw_floats(rng(), given, shape, values)  # type: ignore[arg-type]
    assert low <= float(np.std(array)) <= high


@pytest.mark.parametrize(
    ("values", "free", "low", "high"),
    [
        ("usual", False, -9, 9),
        ("recording", False, -32768, 32767),
        ("silent", False, 0, 0),
        ("loud", False, -9, 9),
    ],
)
def test_samples_of_16_bits(values: Any, free: bool, low: int, high: int) -> None:
    given = item(dims=(2, 1600), dtype="i2", low=-9, high=10, full_scale=SAMPLES, free=free)
    array = array_fill.draw_integers(rng(), given, (2, 1600), wide=False, values=values)
    assert array.dtype == np.int16
    assert low <= array.min() <= array.max() <= high
    assert bool(np.abs(array.astype(int)).max() > 9) is (values == "recording")


@pytest.mark.parametrize(
    ("thresholds", "bits", "multiplied", "expected"),
    [
        ((), 0, False, []),
        ((5.0,), 0, False, [4, 5, 6]),
        ((65_536.0,), 0, False, []),  # it may yet become a size
        ((65_535.0,), 0, False, [65_534, 65_535, 65_536]),
        ((-65_536.0,), 0, False, []),
        ((65_536.0,), 32, True, [40_001, -30_001, 65_535, 65_536, 65_537]),
        ((), 32, False, [2**24 + 1, 70_001, -(2**24) - 3]),
        ((), 64, True, [70_001, 2**24 + 1, 2**31 + 7, -(2**24) - 3, -(2**31) - 9]),
        ((), 8, False, []),
    ],
)
def test_whole_numbers_near_what_the_graph_asks_about(
    thresholds: tuple[float, ...], bits: int, multiplied: bool, expected: list[int]
) -> None:
    uses = NumberUses(thresholds=thresholds, exact_bits=bits, multiplied=multiplied)
    assert array_fill._large_integers(Role("int", "a use", uses=uses)) == expected
    if bits >= 32 and not multiplied:  # what they are for: float32 does not hold them
        assert any(float(np.float32(x)) != x for x in expected)


def test_two_thirds_of_the_elements_are_large_at_most() -> None:
    role = Role("int", "a use", uses=NumberUses(exact_bits=64))
    array = array_fill._add_large_integers(rng(), np.zeros(8, np.int64), role)
    assert np.count_nonzero(array) == 5  # all there are
    array = array_fill._add_large_integers(rng(), np.zeros(6, np.int64), role)
    assert np.count_nonzero(array) == 4
    narrow = array_fill._add_large_integers(rng(), np.zeros(8, np.int32), role)
    assert {*narrow.tolist()} == {0, 70_001, 2**24 + 1, -(2**24) - 3}
    flags = np.zeros(8, np.bool_)
    assert array_fill._add_large_integers(rng(), flags, role) is flags
    single = {
        int(array_fill._add_large_integers(np.random.default_rng(i), np.array([3]), role)[0])
        for i in range(60)
    }
    assert single == {3, 70_001, 2**24 + 1, 2**31 + 7, -(2**24) - 3, -(2**31) - 9}
    nothing = Role("int", "a use", uses=NumberUses())
    assert array_fill._add_large_integers(rng(), np.array([3]), nothing).tolist() == [3]


def test_ties_are_a_third_and_half_of_the_grid_is_coarse() -> None:
    uses = NumberUses(thresholds=(0.3,), ties=True)
    given = item(dims=(4000,), rows=None, time=None, uses=uses)
    array = array_fill.draw_floats(rng(), given, (4000,), "ties")
    assert np.count_nonzero(array == 0.3) == 200  # one of six of 30 %
    halves = np.count_nonzero(np.mod(np.abs(array), 1) == 0.5) / 4000
    assert 0.3 < halves < 0.6
    eighths = array[array != 0.3] * 8
    assert (eighths == np.round(eighths)).all()
    assert 0.2 < np.count_nonzero(np.mod(eighths, 4) != 0) / 4000 < 0.45
    above = array_fill.draw_floats(rng(), given, (4000,), "ties", positive=True)
    assert above.min() == 0.125
    assert {0.3, 0.5, 2.5, 1.5} <= {*above.tolist()}


def test_a_seventh_is_guarded_and_the_first_always() -> None:
    given = item(dims=(4000,), rows=None, time=None, uses=NumberUses(guarded=(np.nan, np.inf)))
    array = array_fill.draw_floats(rng(), given, (4000,), "guarded")
    assert not np.isfinite(array[0])
    assert 0.12 < np.count_nonzero(~np.isfinite(array)) / 4000 < 0.18
    assert np.isnan(array).any()
    for seed in range(8):
        one = array_fill.draw_floats(np.random.default_rng(seed), given, (1,), "guarded")
        assert not np.isfinite(one).any()


def test_masks_over_a_cache_and_new_tokens() -> None:
    given = item("mask", (3, "P + T"), "i8")
    mask = array_fill.make_mask(given, (3, 5), (2, 1, 0), 2, "right")
    assert mask.tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 1, 0], [0, 0, 0, 0, 0]]
    left = array_fill.make_mask(given, (3, 5), (2, 1, 0), 2, "left")
    assert left.tolist() == [[1, 1, 1, 1, 1], [0, 1, 1, 1, 1], [0, 0, 0, 0, 0]]


def test_rows_that_have_content() -> None:
    given = item(dims=("B", "T", 3))
    assert array_fill.rows_with_content(given, (3, 4, 3), (4, 0, 1)).tolist() == [
        [[True]],
        [[False]],
        [[True]],
    ]
    left = array_fill.padding_mask(given, (2, 3, 1), (3, 1), "left")
    assert left is not None
    assert left[..., 0].tolist() == [[False] * 3, [True, True, False]]


def test_every_third_of_what_is_the_same_becomes_a_2() -> None:
    both = item("mask", (7,), "i8", uses=NumberUses(as_one=True, as_zero=True))
    mask = np.array([1, 1, 1, 0, 0, 0, 1])
    assert array_fill.add_other_true(mask, both).tolist() == [1, 2, 1, 0, 2, 0, 1]
    flags = mask.astype(np.bool_)
    assert array_fill.add_other_true(flags, both) is flags
    turned = item("mask", (7,), "i8", valid=0.0, padded=1.0, uses=NumberUses(as_one=True))
    assert array_fill.add_other_true(mask, turned).tolist() == [1, 2, 1, 0, 0, 0, 1]


def test_a_wide_case_has_rare_ids_and_a_usual_one_has_none() -> None:
    given = item("tokens", (1, "T"), "i8", high=9, choices=(2,))
    usual = array_fill.draw_content(rng(), given, (1, 30), Style())
    wide = array_fill.draw_content(rng(), given, (1, 30), Style(wide=True))
    assert usual.min() >= 0
    assert 2 not in usual
    assert wide.min() < 0
    assert wide[0, 1] == 2
    flags = array_fill.draw_content(rng(), item(dtype="?"), (2, 9, 1), Style())
    assert flags.dtype == np.bool_
    assert array_fill.draw_other_reading(rng(), item(dtype="u1"), (2, 9)).dtype == np.uint8
