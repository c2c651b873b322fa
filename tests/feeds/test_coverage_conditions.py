"""Conditions of a set of cases, each by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphfix.feeds import coverage
from graphfix.feeds.case import Case
from graphfix.feeds.coverage import measure_coverage
from graphfix.feeds.full_scale import PCM, FullScale
from graphfix.feeds.input import Input
from graphfix.feeds.number_uses import NumberUses
from graphfix.feeds.roles import Role
from graphfix.feeds.signature import Signature
from tests.feeds.small_models import ADDITIVE, model

TIES, ODD = NumberUses(ties=True), ("NaN or infinity in 'x'", False)
FRAMES = "m (float[B, T, 4] x) => (float[B, T, 4] y) { y = Relu (x) }"


def item(
    kind: Any = "data", dtype: str = "f4", dims: Any = (2, 8), time: Any = 1, **role: Any
) -> Input:
    return Input("x", dtype, dims, Role(kind, "a use", **role), rows=0, time=time)


def case(feeds: Any = None, dims: Any = None, **options: Any) -> Case:
    return Case("c", dims or {}, {"x": np.asarray(feeds)} if feeds is not None else {}, **options)


def plain(rows: int, length: int) -> Case:
    return Case("c", {"B": rows, "T": length}, {"x": np.ones((rows, length, 4), np.float32)})


@pytest.mark.parametrize(
    ("size", "kind"),
    [(0, "0"), (1, "1"), (2, "even"), (3, "odd"), (64, "even"), (63, "odd"), (65, "over 64")],
)
def test_kinds_of_sizes(size: int, kind: str) -> None:
    assert coverage._size_kind(size) == kind


def test_sizes_that_were_tried_and_not() -> None:
    signature = Signature(model(FRAMES))
    found = measure_coverage([plain(1, 7), plain(2, 40), plain(1, 1)], signature)
    assert found.covered[-2:] == ("B 1 to 2", "T 1 to 40")
    assert {"B > 2", "T > 40", "sizes of 0"} <= {*found.missing}
    found = measure_coverage([plain(2, 7)], signature)
    assert found.covered[-2:] == ("B 2", "T 7")
    assert "sizes of 0" not in found.missing
    assert measure_coverage([], signature).covered == ()
    zero = measure_coverage([plain(2, 0), plain(2, 3)], signature)
    assert "sizes of 0" not in zero.missing


def test_kinds_that_were_tried_and_never_together() -> None:
    signature = Signature(model(FRAMES))
    cases = [plain(1, 7), plain(2, 40)]
    assert coverage._untried_pairs(cases, signature) == ["B 1 with T even", "B even with T odd"]
    assert coverage._untried_pairs([*cases, plain(1, 8), plain(2, 7)], signature) == []
    assert coverage._untried_pairs([case()], signature) == []
    many = [plain(1, 1), plain(2, 2), plain(3, 3)]
    found = measure_coverage(many, signature)
    assert sum(" with " in x for x in found.missing) == 3
    assert "3 more pairs of sizes" in found.missing
    assert not any("more pairs" in x for x in measure_coverage(cases, signature).missing)


@pytest.mark.parametrize(
    ("dims", "valid", "rows"),
    [
        ({"T": 4}, {"T": (4, 2)}, [((4, 2), 4)]),
        ({"T": 1}, {"T": (1, 0)}, []),
        ({"T": 2}, {"T": (1,)}, [((1,), 2)]),
        ({}, {"T": (1,)}, []),
        ({"T": 4, "S": 3}, {"T": (4,), "S": (2,)}, [((4,), 4), ((2,), 3)]),
    ],
)
def test_rows_of_a_case(dims: Any, valid: Any, rows: Any) -> None:
    found = coverage._PaddedRows.all_of(Case("c", dims, {}, valid, side="left"))
    assert [(x.ends, x.full_length) for x in found] == rows
    assert all(x.side == "left" for x in found)


@pytest.mark.parametrize(
    ("ends", "side", "met"),
    [
        ((4, 4), "right", {"several full rows"}),
        ((2, 4), "right", {"a short first row"}),
        ((3, 2), "right", {"no full row"}),
        ((2, 3), "left", {"no full row", "a short first row", "padding on the left"}),
        ((4, 0), "right", {"an empty row"}),
        ((4, 4), "left", {"several full rows"}),
        ((4, 3), "right", set()),
    ],
)
def test_conditions_on_rows(ends: tuple[int, ...], side: Any, met: set[str]) -> None:
    signature = Signature(model(ADDITIVE))
    given = Case("c", {"B": 2, "T": 4}, {}, {"T": ends}, side=side)
    found = dict(coverage._check_row_conditions([given], signature))
    assert {name for name, is_met in found.items() if is_met} == met
    assert len(found) == 5


def test_one_row_has_no_other_rows() -> None:
    signature = Signature(model(ADDITIVE))
    given = Case("c", {"B": 1, "T": 4}, {}, {"T": (3,)})
    assert dict(coverage._check_row_conditions([given], signature)) == {
        "no full row": True,
        "an empty row": False,
        "padding on the left": False,
    }
    assert dict(coverage._check_row_conditions([], signature)) == {"padding": False}


@pytest.mark.parametrize(
    ("given", "arrays", "expected"),
    [
        (item(), [[1e4]], ("'x' over 1e4", False)),
        (item(), [[1.0], [-1.1e4]], ("'x' over 1e4", True)),
        (item(dims=(2, 3, 8, 8)), [[1.0]], ("'x' from 0 to 255", False)),
        (item(dims=(2, 3, 8, 8)), [[1.5]], ("'x' from 0 to 255", True)),
        (
            item(full_scale=FullScale(PCM, 1.0)),
            [[16384.0]],
            ("'x' at full scale (32,768)", False),
        ),
        (item(full_scale=FullScale(PCM, 1.0)), [[16385.0]], ("'x' at full scale (32,768)", True)),
        (item(span=(0.0, 1.0)), [[1e9]], None),
        (item("mask"), [[1e9]], None),
        (item(), [], ("'x' over 1e4", False)),
    ],
)
def test_how_large_floats_were(given: Input, arrays: Any, expected: Any) -> None:
    found = [*coverage._check_values(given, [np.array(x, np.float32) for x in arrays])]
    largest = max((np.ceil(np.abs(x).max()) for x in arrays), default=0)
    beyond = [(f"'x' beyond {largest:,.0f}", False)] if arrays else []
    assert found == ([] if expected is None else [expected, *beyond])


@pytest.mark.parametrize(
    ("role", "values", "expected"),
    [
        ({"kind": "tokens", "high": 9}, range(9), [("9 values of 'x' (0 to 8)", True)]),
        (
            {"kind": "tokens", "high": 9},
            range(8),
            [("8 values of 'x' (0 to 7)", True), ("the last id of 'x'", False)],
        ),
        (
            {"kind": "tokens", "high": 9},
            (0, 8),
            [("values of 'x' other than 0 to 8", False)],
        ),
        ({"kind": "tokens", "high": 2}, (0, 1), [("2 values of 'x' (0 to 1)", True)]),
        ({"kind": "tokens", "high": 1}, (0,), []),
        ({"kind": "tokens", "high": 2}, (1,), [("1 values of 'x' (1)", True)]),
        (
            {"kind": "tokens", "high": 3},
            (1,),
            [("values of 'x' other than 1", False), ("the last id of 'x'", False)],
        ),
        (
            {"kind": "int", "high": 1, "free": True},
            (0, 1, 2),
            [("3 values of 'x' (0 to 2)", True), ("'x' beyond 0 to 2", False)],
        ),
        (
            {"kind": "int", "high": 1, "free": True},
            (5,),
            [("values of 'x' other than 5", False), ("'x' beyond 5 to 5", False)],
        ),
        (
            {"kind": "int", "high": 1, "free": True},
            (-(2**63), 0, 2**63 - 1),
            [(f"3 values of 'x' ({-(2**63)} to {2**63 - 1})", True)],
        ),
        ({"kind": "data", "high": 1}, (5,), [("values of 'x' other than 5", False)]),
        (
            {"kind": "tokens", "high": 9, "below": ("N",)},
            (0, 1, 2),
            [("3 values of 'x' (0 to 2)", True)],
        ),
        ({"kind": "positions", "high": 9}, (0, 1, 2), [("3 values of 'x' (0 to 2)", True)]),
    ],
)
def test_which_integers_were_fed(role: dict[str, Any], values: Any, expected: Any) -> None:
    given = item(dtype="i8", **role)
    assert [*coverage._check_integers(given, np.array([*values]))] == expected


@pytest.mark.parametrize(
    ("given", "arrays", "expected"),
    [
        (item(uses=TIES), [[0.5, 0.5]], [("halves and equal elements of 'x'", True), ODD]),
        (item(uses=TIES), [[0.5, 1.0]], [("halves and equal elements of 'x'", False), ODD]),
        (item(), [[1.0], [np.nan, np.inf]], [("NaN or infinity in 'x'", True)]),
        (item(), [[1.0]], [ODD]),
        (item(), [[np.nan], [1.0]], [("NaN in 'x'", True), ("infinity in 'x'", False)]),
        (item(), [[1.0, -np.inf]], [("NaN in 'x'", False), ("infinity in 'x'", True)]),
        (item("int", "i8", free=True), [[2**31]], [("'x' over 2^31", False)]),
        (item("int", "i8", free=True), [[-(2**31) - 1]], [("'x' over 2^31", True)]),
        (item("int", "i4", free=True), [[2**24]], [("'x' over 2^24", False)]),
        (item("int", "i4", free=True), [[2**24 + 1]], [("'x' over 2^24", True)]),
        (item("int", "i2", free=True), [[9]], []),
        (item("int", "i8"), [[2**40]], []),
        (item("int", "i8", free=True), [], [("'x' over 2^31", False)]),
        (item("mask", "i8"), [[0, 1]], [("'x' other than 0 and 1", False)]),
        (item("mask", "i8"), [[0, 2]], [("'x' other than 0 and 1", True)]),
        (item("mask", "i8", sure=False), [[0, 2]], []),
        (item("mask", "?"), [[True]], []),
        (item("mask", "f4", valid=0.0, padded=-9.0), [[0.0]], []),
    ],
)  # fmt: skip
def test_numbers_that_are_seldom_met(given: Input, arrays: Any, expected: Any) -> None:
    cases = [case(np.array(x, given.dtype)) for x in arrays]
    assert [*coverage._check_number_uses(given, cases)] == expected


@pytest.mark.parametrize(
    ("values", "ties"),
    [
        ([0.5, 0.5], True),
        ([0.5, 2.0, 2.0], True),
        ([2.0, 2.0], False),
        ([0.5, 1.5], False),
        ([0.5, 0.0, 0.0], False),
        ([0.5, np.nan, np.nan], False),
        ([0.5, np.inf, np.inf], False),
        ([-0.5, 3.0, 3.0], True),
    ],
)
def test_halves_and_equal_elements(values: list[float], ties: bool) -> None:
    assert coverage._has_ties(np.array(values)) is ties


def test_ids_gains_caches_and_defaults() -> None:
    signature = Signature(model(FRAMES))
    ids = item("tokens", "i8", high=9, choices=(3,))
    for fed, met in (([[0, 3]], True), ([[0, 4]], False)):
        found = dict(coverage._check_input_conditions(ids, [case(np.array(fed))], signature))
        assert found["an id in 'x' that the graph asks for"] is met
    no_time = item("tokens", "i8", high=9, choices=(3,), time=None)
    found = dict(coverage._check_input_conditions(no_time, [case(np.array([3]))], signature))
    assert not any("asks for" in x for x in found)
    gain = item("mask", sure=False)
    for fed, met in (([[0, 1]], False), ([[0.5]], True)):
        given = [case(np.array(fed, np.float32))]
        assert (
            dict(coverage._check_input_conditions(gain, given, signature))["'x' as no mask"] is met
        )
    poisoned = case(np.array([[0.5]]), poison="NaN")
    assert coverage._check_conditions([poisoned], signature) is not None


@pytest.mark.parametrize(("length", "met"), [(8, False), (9, True)])
def test_a_cache_over_8(length: int, met: bool) -> None:
    text = """m (float[B, T, 4] x, float[B, P, 4] past)
        => (float[B, T, 4] y, float[B, U, 4] present)
        { present = Concat <axis = 1> (past, x) y = Neg (x) }"""
    signature = Signature(model(text))
    feeds = {"x": np.ones((1, 2, 4), np.float32), "past": np.ones((1, length, 4), np.float32)}
    given = Case("c", {"B": 1, "T": 2, "P": length}, feeds)
    found = dict(coverage._check_conditions([given], signature))
    assert found["a cache over 8"] is met
    assert found["'x' over 1e4"] is False


@pytest.mark.parametrize(
    ("fed", "expected"),
    [
        ((1, 4), ("1 of 3 values of 'x'", False)),
        ((1, 4, 5, 9), ("every value of 'x'", True)),
        ((), ("3 of 3 values of 'x'", False)),
    ],
)
def test_values_of_a_choice(fed: tuple[int, ...], expected: tuple[str, bool]) -> None:
    assert coverage._check_options(item(), [np.array(fed)], (1, 4, 5)) == expected
