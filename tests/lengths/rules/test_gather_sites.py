"""Rules for Gather, Scatter and their kin: each index by itself."""

from __future__ import annotations

from typing import Any

import pytest
import sympy

from graphfix.lengths.joint_axes import RefusedError
from graphfix.lengths.rule_site import RuleSite
from graphfix.lengths.rules.gather import RULES
from graphfix.lengths.tail_state import ANY, FINITE, HIDDEN, LAST, ONE, ZERO, Tail, TensorState
from tests.lengths.sites import result_of, site_of, sizes

INPUTS = (
    "float[B, T, 4] x, int64[B, T] ids, float[9, 4] table, int64[2] pair, int64 one, "
    "int64[B, T, 4] full, float[B, T, 4] updates, float[B, 2, 4] some, bool[B, T, 4] mask, "
    "int64[B, 2, 4] places, float[B] row, int64[B, T, 1] deep, int64[B, T, N] open"
)
CONSTANTS = (
    "int64 first = {0}, int64 last = {-1}, int64[2] ends = {-1, -2}, int64[2] both = {0, -1}, "
    "int64[1] only = {-1}, int64[2] starts = {0, 1}, float[4] flat = {1, 2, 3, 4}, "
    "int64[1, 2] at = {0, 1}, int64[1, 1] back = {-1}, float[1, 4] put = {1, 2, 3, 4}, "
    "int64[1, 1] zero = {0}, float[1, T2] q"
).removesuffix(", float[1, T2] q")


def infer(node: str, **facts: Tail | dict[str, Any]) -> tuple[RuleSite, TensorState]:
    site = site_of(f"y = {node}", inputs=INPUTS, constants=CONSTANTS, **facts)
    return site, result_of(RULES, site)


@pytest.mark.parametrize(
    ("node", "facts", "expected", "tails"),
    [
        ("Gather (table, ids)", {}, "B T 4", (None, FINITE, None)),
        ("Gather (table, ids)", {"ids": LAST}, "B T 4", (None, LAST, None)),
        ("Gather <axis = 1> (table, pair)", {}, "9 2", (None, None)),
        ("Gather <axis = 2> (x, pair)", {"x": ONE}, "B T 2", (None, ONE, None)),
        ("Gather <axis = 2> (x, one)", {"x": ANY}, "B T", (None, ANY)),
        ("Gather <axis = 1> (x, first)", {}, "B 4", (None, None)),
        ("Gather <axis = 1> (x, starts)", {}, "B 2 4", (None, None, None)),
        ("Gather <axis = 1> (x, one)", {"one": {"sign": 1}}, "B 4", (None, None)),
    ],
)
def test_lookups(
    node: str, facts: dict[str, Any], expected: str, tails: tuple[Tail | None, ...]
) -> None:
    site, state = infer(node, **facts)
    assert (sizes(state), state.tails, site.repairs) == (expected, tails, [])


@pytest.mark.parametrize(
    ("index", "offsets", "drop"),
    [("last", (-1,), True), ("only", (-1,), False), ("ends", (-1, -2), False)],
)
def test_reads_from_the_end(index: str, offsets: tuple[int, ...], drop: bool) -> None:
    site, state = infer(f"Gather <axis = 1> (x, {index})")
    (repair,) = site.repairs
    assert (repair.offsets, repair.drops_axis, repair.axis) == (offsets, drop, 1)
    assert sizes(state) == ("B 4" if drop else f"B {len(offsets)} 4")
    assert not state.time_axes
    again, _ = infer(f"Gather <axis = 1> (x, {index})", x=LAST)
    assert len(again.repairs) == (len(offsets) > 1)


@pytest.mark.parametrize(("index", "length"), [("last", True), ("ends", False)])
def test_the_last_running_count_is_the_length(index: str, length: bool) -> None:
    _, state = infer(f"Gather <axis = 1> (x, {index})", x={"length": sympy.Symbol("T")})
    assert (state.length is not None) == length
    _, state = infer(f"Gather <axis = 1> (x, {index})")
    assert state.length is None


@pytest.mark.parametrize(
    ("node", "facts", "reason"),
    [
        ("Gather <axis = 1> (x, both)", {}, "it reads along time at an index that may count"),
        ("Gather <axis = 1> (x, one)", {}, "it reads along time at an index that may count"),
        ("Gather <axis = 1> (x, one)", {"one": {"counts_padding": True}}, "it reads at a place"),
        (
            "Gather (table, one)",
            {"one": {"counts_padding": True}},
            "it reads a table at the padded",
        ),
        ("Gather (x, one)", {}, "it picks rows of the batch"),
        ("GatherElements <axis = 0> (x, full)", {}, "it picks rows of the batch"),
        ("GatherElements <axis = 1> (x, full)", {}, "it reads along time at an index that may"),
        ("GatherElements <axis = 2> (x, full)", {"full": {"counts_padding": True}}, "it reads at"),
        ("GatherElements <axis = 2> (x, full)", {"x": {"counts_padding": True}}, "it reads at"),
        ("GatherND (x, open)", {}, "how many axes it reads is not known"),
        ("GatherND (x, open)", {"open": {"axes": ()}}, "how many axes it reads is not known"),
        ("GatherND (x, deep)", {}, "it picks rows of the batch"),
        ("GatherND <batch_dims = 1> (x, deep)", {}, "it reads along time at an index that may"),
        ("ScatterElements <axis = 1> (x, full, updates)", {}, "where it writes depends on the"),
        (
            "ScatterElements <axis = 1> (x, places, updates)",
            {},
            "what it writes carries time",
        ),
        (
            "ScatterElements <axis = 1> (x, places, some)",
            {"places": {"counts_padding": True}},
            "where it writes depends on the padding",
        ),
        (
            "ScatterElements <axis = 1> (x, places, some)",
            {"some": {"counts_padding": True}},
            "where it writes depends on the padding",
        ),
        (
            "ScatterElements <axis = 1> (x, places, some)",
            {"places": {"fixed": True}},
            "it writes along time at an index that may count from the end",
        ),
        ("ScatterND (x, places, some)", {"places": {"axes": None, "fixed": True}}, "the rank of"),
    ],
)
def test_refusals(node: str, facts: dict[str, Any], reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        infer(node, **facts)


@pytest.mark.parametrize(
    ("node", "facts", "tails"),
    [
        ("GatherElements <axis = 2> (x, full)", {"x": {"sign": 2}}, (None, FINITE, None)),
        ("GatherElements <axis = 2> (x, full)", {"x": ANY}, (None, ANY, None)),
        ("GatherElements <axis = 1> (x, full)", {"full": {"sign": 1}}, (None, FINITE, None)),
        ("GatherND <batch_dims = 1> (x, deep)", {"deep": {"sign": 1}}, (None, FINITE, None)),
        ("ScatterElements <axis = 1> (x, places, some)", {"x": ONE}, (None, ONE, None)),
        (
            "ScatterElements <axis = 1> (x, places, some)",
            {"x": ZERO, "places": {"fixed": True, "sign": 1}},
            (None, ZERO, None),
        ),
        ("ScatterElements <axis = 2> (x, places, some)", {"x": HIDDEN}, (None, HIDDEN, None)),
    ],
)
def test_results(node: str, facts: dict[str, Any], tails: tuple[Tail | None, ...]) -> None:
    _, state = infer(node, **facts)
    assert state.tails == tails
    assert not state.fixed


@pytest.mark.parametrize(
    ("x", "some", "sign"), [(2, 2, 2), (2, 1, 1), (1, 2, 1), (0, 2, 0), (2, 0, 0)]
)
def test_a_scatter_has_the_lower_sign(x: int, some: int, sign: int) -> None:
    node = "ScatterElements <axis = 1> (x, places, some)"
    assert infer(node, x={"sign": x}, some={"sign": some})[1].sign == sign


def test_a_lookup_keeps_what_all_numbers_are() -> None:
    facts = {"sign": 2, "fill": 3.0, "valid_fill": 3.0, "fixed": True}
    _, state = infer("Gather (table, pair)", table=facts, pair={"fixed": True})
    assert (state.sign, state.fill, state.valid_fill, state.fixed) == (2, 3.0, 3.0, True)
    assert not infer("Gather (table, pair)", table=facts)[1].fixed
    assert not infer("Gather (table, pair)", pair={"fixed": True})[1].fixed


@pytest.mark.parametrize("name", ["table", "pair"])
def test_a_rank_that_is_not_known_is_that_of_the_result(name: str) -> None:
    _, state = infer("Gather (table, pair)", **{name: {"axes": None, "tails": ()}})
    assert sizes(state) == "2 4"


def test_sizes_are_picked_from_sizes() -> None:
    body = "s = Shape (x) y = Gather (s, first)"
    site = site_of(body, inputs=INPUTS, constants=CONSTANTS, s={"counts_padding": True})
    state = RULES["Gather"].infer_states(site)
    assert isinstance(state, TensorState)
    assert not state.counts_padding
