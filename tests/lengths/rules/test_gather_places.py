"""Rules for Gather, Scatter and their kin: where an index comes from, and what it may read."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from graphfix.lengths.joint_axes import RefusedError
from graphfix.lengths.rules import gather
from graphfix.lengths.rules.gather import RULES
from graphfix.lengths.tail_state import (
    ANY,
    FINITE,
    LAST,
    ONE,
    ZERO,
    OtherFactor,
    Tail,
    TensorState,
    TimeFactor,
)
from tests.lengths.sites import FOUR, ROWS, TIME, asked_leaks, result_of, site_of, size

if TYPE_CHECKING:
    from graphfix.lengths.rule_site import RuleSite

INPUTS = (
    "float[B, T, 4] x, int64[B, T] ids, float[B, T] wave, float[9, 4] table, bool[B, T] mask, "
    "int64[B, T] others, int64[B, 2, 1] deep, int64[B, 2, 2] two, int64[B, 2, 3] three, "
    "float[B, 2] some, float[B, 2, 4] rows, bool[B, T, 4] full, int64[T, 4, B] turned"
)
CONSTANTS = (
    "int64 none = {0}, int64 one = {1}, int64 minus = {-1}, int64[1] first = {0}, "
    "int64[1] at1 = {1}, int64[1, 1] top = {0}, int64[1, 1] bottom = {-1}, float zero = {0}, "
    "float five = {5}, float[2] pair = {1, 2}, int64[2, 2] corners = {0, 0, 1, 0}, "
    "float[1, 4] put = {1, 2, 3, 4}, "
    "float[1] single = {3}"
)


def site(node: str, **facts: Tail | dict[str, Any]) -> RuleSite:
    return site_of(node, inputs=INPUTS, constants=CONSTANTS, **facts)


def infer(given: RuleSite) -> TensorState:
    return result_of(RULES, given)


def with_states(given: RuleSite, **tails: Tail | None) -> RuleSite:
    """Let the tensors before the node have these tails along time; None is a fixed tensor."""
    states = {
        name: TensorState((ROWS, TIME), (None, tail or FINITE), fixed=tail is None)
        for name, tail in tails.items()
    }
    given.state_of = lambda value: states.get(value.name or "")
    return given


FROM_FLOATS = "f = Mul (wave, five) i = Cast <to = 7> (f) y = Gather (table, i)"


@pytest.mark.parametrize(
    ("text", "tails", "strays"),
    [
        (FROM_FLOATS, {"i": FINITE, "f": FINITE}, True),
        (FROM_FLOATS, {"i": FINITE, "f": ANY}, True),
        (FROM_FLOATS, {"i": FINITE, "f": ONE}, False),
        (FROM_FLOATS, {"i": FINITE, "f": LAST}, False),
        (FROM_FLOATS, {"i": FINITE, "f": None}, False),
        (FROM_FLOATS, {"i": ONE, "f": FINITE}, False),
        (FROM_FLOATS, {"f": FINITE}, False),
        ("i = Add (ids, others) y = Gather (table, i)", {"i": FINITE, "ids": FINITE}, False),
        # A comparison gives 0 or 1.
        (
            "c = Greater (wave, five) i = Cast <to = 7> (c) y = Gather (table, i)",
            {"i": FINITE, "c": FINITE, "wave": FINITE},
            False,
        ),
        # What a Where chooses by does not come out of it.
        (
            "i = Where (mask, ids, others) y = Gather (table, i)",
            {"i": FINITE, "mask": FINITE, "ids": FINITE},
            False,
        ),
        (
            "f = Cast <to = 7> (wave) i = Where (mask, f, others) y = Gather (table, i)",
            {"i": FINITE, "f": FINITE, "wave": FINITE},
            True,
        ),
        (
            "f = Cast <to = 7> (wave) i = Where (mask, others, f) y = Gather (table, i)",
            {"i": FINITE, "f": FINITE, "wave": FINITE},
            True,
        ),
        # A sort gives places, whatever it sorts.
        (
            "v, f = TopK <axis = 1> (wave, at1) i = Add (f, ids) y = Gather (table, i)",
            {"i": FINITE, "f": FINITE, "wave": FINITE},
            False,
        ),
    ],
)
def test_an_index_that_floats_make_may_stray(
    text: str, tails: dict[str, Tail | None], strays: bool
) -> None:
    given = with_states(site(text), **tails)
    state = infer(given)
    assert asked_leaks(given) == ["stray index"] * strays
    assert state.rank == 3
    assert state.tail_along(1).is_finite


def test_an_index_in_range_is_left_alone() -> None:
    for tail in (ONE, LAST):
        given = with_states(site(FROM_FLOATS, i=tail), i=FINITE, f=FINITE)
        infer(given)
        assert given.repairs == []


FLAT = TensorState(((*ROWS, *TIME), FOUR), (ZERO, None), sign=1, length=size("T"))
INDEX = TensorState((ROWS, TIME), (None, FINITE), fixed=True, steps=(0, 1), stride=size("T"))


def test_rows_and_positions_of_one_axis() -> None:
    state = gather._gather_by_row(FLAT, INDEX, 0)
    assert state.axes == (ROWS, TIME, FOUR)
    assert (state.tails, state.sign, state.length) == ((None, ZERO, None), 1, size("T"))
    late = dataclasses.replace(FLAT, axes=(FOUR, (*ROWS, *TIME)), tails=(None, ONE))
    state = gather._gather_by_row(late, INDEX, 1)
    assert state.axes == (FOUR, ROWS, TIME)
    assert state.tails == (None, None, ONE)


@pytest.mark.parametrize(
    ("data", "index"),
    [
        ({}, {"stride": size("T + 1")}),
        ({}, {"steps": None}),
        ({}, {"axes": (ROWS, (TimeFactor(size("T + 1")),))}),
        ({}, {"axes": (TIME, TIME), "tails": (FINITE, FINITE)}),
        ({"axes": ((*TIME, *ROWS), FOUR)}, {}),
        ({"axes": ((*ROWS, *TIME, *FOUR), FOUR)}, {}),
        ({"axes": ((*FOUR, *TIME), FOUR)}, {}),
        ({"axes": ((*ROWS, *FOUR), FOUR)}, {"axes": (ROWS, FOUR)}),
    ],
)
def test_other_rows_than_those_it_was_made_of(data: dict[str, Any], index: dict[str, Any]) -> None:
    with pytest.raises(RefusedError, match="rows of another size than those it was made of"):
        gather._gather_by_row(
            dataclasses.replace(FLAT, **data), dataclasses.replace(INDEX, **index), 0
        )


SIZE = "s = Shape <start = 1, end = 2> (x)"


@pytest.mark.parametrize(
    ("index", "offsets"),
    [
        ("i = Sub (s, at1)", (-1,)),
        ("k = Add (at1, at1) i = Sub (s, k)", (-2,)),
        ("k = Sub (s, at1) m = Sub (k, at1) i = Concat <axis = 0> (k, m)", (-1, -2)),
    ],
)
def test_reads_before_the_padded_size(index: str, offsets: tuple[int, ...]) -> None:
    given = site(f"{SIZE} {index} y = Gather <axis = 1> (x, i)", i={"counts_padding": True})
    infer(given)
    (repair,) = given.repairs
    assert (repair.offsets, repair.drops_axis) == (offsets, False)  # type: ignore[attr-defined]
    given = site(f"{SIZE} {index} y = Gather <axis = 1> (x, i)", i={"sign": 1})
    infer(given)  # a number that does not count the padding is what it is
    assert given.repairs == []


@pytest.mark.parametrize(
    "index",
    [
        "i = Identity (s)",
        "k = Add (at1, at1) i = Div (s, k)",
        "k = Sub (s, at1) i = Concat <axis = 0> (k, s)",
    ],
)
def test_reads_at_a_part_of_the_padded_size(index: str) -> None:
    given = site(f"{SIZE} {index} y = Gather <axis = 1> (x, i)", i={"counts_padding": True})
    with pytest.raises(RefusedError, match="it reads at a place that depends on the padded length"):
        infer(given)


@pytest.mark.parametrize(
    ("index", "advice"),
    [("first", "fix the batch at 1"), ("ids", "fix the batch at 1"), ("at1", "export the model")],
)
def test_rows_of_the_batch_are_picked_by_no_lookup(index: str, advice: str) -> None:
    with pytest.raises(RefusedError, match=f"it picks rows of the batch.*{advice}"):
        infer(site(f"y = Gather (x, {index})"))


@pytest.mark.parametrize(
    ("node", "facts", "axes", "tail"),
    [
        ("GatherND <batch_dims = 1> (x, deep)", {"deep": {"sign": 1}}, (ROWS, "2", FOUR), None),
        ("GatherND <batch_dims = 1> (x, two)", {"two": {"sign": 1}}, (ROWS, "2"), None),
        ("GatherND (table, deep)", {}, (ROWS, "2", FOUR), None),
        ("GatherND (table, two)", {}, (ROWS, "2"), None),
    ],
)
def test_several_axes_are_read_at_once(
    node: str, facts: dict[str, Any], axes: tuple[Any, ...], tail: Tail | None
) -> None:
    state = infer(site(f"y = {node}", **facts))
    wanted = tuple((OtherFactor(size(x)),) if isinstance(x, str) else x for x in axes)
    assert (state.axes, state.tails) == (wanted, (tail,) * len(axes))


@pytest.mark.parametrize(
    ("node", "facts", "reason"),
    [
        ("GatherND (x, two)", {}, "it picks rows of the batch"),
        ("GatherND (x, three)", {"three": {"sign": 1}}, "it picks rows of the batch"),
        ("GatherND <batch_dims = 1> (x, two)", {}, "at an index that may count from the end"),
        ("GatherND (x, two)", {"two": {"counts_padding": True}}, "depends on the padded length"),
        ("GatherND (x, two)", {"x": {"counts_padding": True}}, "depends on the padded length"),
        ("GatherND (x, two)", {"two": {"axes": None, "tails": ()}}, "depends on the padded"),
        ("GatherND (x, two)", {"x": {"axes": None, "tails": ()}}, "depends on the padded length"),
    ],
)
def test_several_axes_that_are_not_read(node: str, facts: dict[str, Any], reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        infer(site(f"y = {node}", **facts))


def test_elements_are_looked_up_where_rank_and_place_are_known() -> None:
    unknown: dict[str, Any] = {"axes": None, "tails": ()}
    for name in ("wave", "ids"):
        with pytest.raises(RefusedError, match="its result grows with the padding"):
            infer(site("y = GatherElements (wave, ids)", **{name: unknown}))
        small = site(
            "y = GatherElements (pair, first)", **dict.fromkeys(("pair", "first"), unknown)
        )
        assert infer(small).time_axes == ()
    given = site("y = GatherElements <axis = -1> (wave, ids)", ids={"sign": 1}, wave=ONE)
    assert infer(given).tails == (None, FINITE)
    no_rows = site("y = GatherElements <axis = 0> (pair, first)")
    assert infer(no_rows).axes == ((),)


@pytest.mark.parametrize(
    ("node", "count"),
    [
        ("ScatterND (x, top, put)", 1),
        ("ScatterND (wave, corners, pair)", 2),
        ("ScatterND (x, deep, rows)", 1),
        ("ScatterND (x, two, rows)", 2),
        ("ScatterND (x, three, some)", 3),
    ],
)
def test_where_a_scatter_writes(node: str, count: int) -> None:
    given = site(f"y = {node}")
    places = gather._scatter_places(given, given.input_state(0), given.input_state(1))
    assert [*places] == [*range(count)]
    if "corners" in node:
        assert [x.tolist() for x in places.values() if x is not None] == [[0, 1], [0, 0]]
    elements = site("y = ScatterElements <axis = 1> (wave, corners, wave)")
    places = gather._scatter_places(elements, elements.input_state(0), elements.input_state(1))
    assert [*places] == [1]


@pytest.mark.parametrize(
    ("node", "facts", "reason"),
    [
        ("ScatterND (wave, corners, pair)", {}, "rows of the batch|each has its own length"),
        ("ScatterND (x, two, rows)", {"two": {"fixed": True}}, "at an index that may count"),
        (
            "ScatterND (x, two, rows)",
            {"x": {"axes": None, "tails": ()}, "two": {"fixed": True}},
            "the rank of one of its inputs is not known",
        ),
        ("ScatterND (x, two, rows)", {"two": {"tails": (None, FINITE, None)}}, "depends on the"),
        ("ScatterND (x, two, rows)", {"rows": {"tails": (None, ONE, None)}}, "carries time"),
    ],
)
def test_scatters_that_are_refused(node: str, facts: dict[str, Any], reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        infer(site(f"y = {node}", **facts))


def test_what_a_scatter_writes_at_valid_places_stays_valid() -> None:
    state = infer(
        site("y = ScatterND (x, two, rows)", x={"fixed": True, "sign": 2}, rows={"sign": 1})
    )
    assert (state.fixed, state.sign, state.tails) == (False, 1, (None, FINITE, None))


PLACES = "n = NonZero (mask) i = Transpose <perm = [1, 0]> (n)"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (f"{PLACES} v = Expand (five, i) y = ScatterND (wave, i, v)", 5.0),
        (f"{PLACES} y = ScatterND (wave, i, five)", 5.0),
        (f"{PLACES} v = Reshape (five, first) w = Cast <to = 1> (v) y = ScatterND (wave, i, w)", 5),
        (f"{PLACES} y = ScatterND (wave, i, zero)", 0.0),
        (f"{PLACES} y = ScatterND (wave, i, single)", 3.0),
        (f"{PLACES} y = ScatterND (wave, i, pair)", None),
        (f"{PLACES} y = ScatterElements (wave, i, five)", None),
        ("y = ScatterND (wave, corners, five)", None),
        ("i = Transpose (corners) y = ScatterND (wave, i, five)", None),
    ],
)
def test_one_number_at_all_places_of_a_mask(text: str, number: float | None) -> None:
    assert gather.scattered_number(site(text).node) == number


@pytest.mark.parametrize(
    ("tail", "mask", "number", "expected"),
    [
        (FINITE, Tail("number", 0.0), 5.0, FINITE),
        (ZERO, Tail("number", 0.0), 5.0, ZERO),
        (FINITE, ONE, 5.0, Tail("number", 5.0)),
        (FINITE, FINITE, 5.0, FINITE),
        (ZERO, FINITE, 5.0, FINITE),
        (ZERO, FINITE, 0.0, ZERO),
        (ANY, FINITE, 5.0, ANY),
    ],
)
def test_a_number_written_at_a_mask(tail: Tail, mask: Tail, number: float, expected: Tail) -> None:
    data, places = (
        TensorState((ROWS, TIME), (None, tail), sign=2),
        TensorState((ROWS, TIME), (None, mask)),
    )
    state = gather._write_at_mask(data, places, number)
    assert (state.axes, state.tails) == ((ROWS, TIME), (None, expected))
    assert state.sign == (2 if number else 1)


def test_a_mask_of_fewer_axes_covers_the_others() -> None:
    data, places = TensorState((ROWS, TIME), (None, ZERO)), TensorState((ROWS,), (None,))
    assert gather._write_at_mask(data, places, 0.0).tails == (None, ZERO)
    assert gather._write_at_mask(data, places, 5.0).tails == (None, FINITE)
    with pytest.raises(RefusedError, match="it writes different numbers at the places of a mask"):
        gather._write_at_mask(data, places, None)


def test_a_rank_that_is_not_known_and_sizes_of_sizes() -> None:
    with pytest.raises(RefusedError, match="it reads a table at the padded length"):
        infer(site("y = Gather (table, ids)", ids={"counts_padding": True}))
    state = infer(site(f"{SIZE} y = Gather (s, first)", s={"counts_padding": True}))
    assert state.counts_padding
