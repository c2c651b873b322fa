"""Comparison of two arrays: each reason, each number that is kept, at its bound."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from graphfix.proof import compare as module
from graphfix.proof.compare import OutputDiff, Tolerance, check_padding_finite, compare

NAN, INF = math.nan, math.inf


def diff(before: Any, after: Any, dtype: str = "f4", **options: Any) -> OutputDiff:
    tolerance = options.pop("tolerance", Tolerance())
    arrays = (np.asarray(x, dtype) for x in (before, after))
    return compare("y", "c", *arrays, tolerance, **options)


def test_another_type_and_another_shape_are_said_first() -> None:
    found = compare("y", "c", np.zeros(2, np.float32), np.zeros(2, np.float16), Tolerance())
    assert (found.ok, found.reason, found.total) == (False, "is float16 instead of float32", 2)
    found = compare("y", "c", np.zeros((2, 1)), np.zeros(2), Tolerance(), note="n")
    assert (found.reason, found.note) == ("has shape [2] instead of [2, 1]", "n")
    assert (found.output, found.case) == ("y", "c")


@pytest.mark.parametrize(
    ("before", "after", "dtype", "differing", "gap", "zero"),
    [
        ([1, 2], [1, 2], "i8", 0, 0.0, False),
        ([1, 2], [1, 5], "i8", 1, 3.0, False),
        ([0, 0], [0, 0], "i8", 0, 0.0, True),
        ([True, False], [False, False], "?", 1, 1.0, False),
        ([250], [1], "u1", 1, 249.0, False),
        (["a", "b"], ["a", "c"], "U1", 1, 0.0, False),
    ],
)
def test_whole_numbers_and_text_are_the_same(
    before: Any, after: Any, dtype: str, differing: int, gap: float, zero: bool
) -> None:
    found = diff(before, after, dtype)
    reason = f"differs in {differing} of {len(before)} elements" if differing else ""
    assert (found.ok, found.reason) == (not differing, reason)
    assert (found.differing, found.max_abs, found.worst_abs) == (differing, gap, gap)
    assert (found.compared, found.finite, found.zero) == (len(before), len(before), zero)
    assert math.isnan(found.cosine)


def test_some_whole_numbers_may_differ_and_only_those_asked_for_count() -> None:
    before, after = np.zeros(8, int), np.array([1, 1, *[0] * 6])
    for equal, ok in ((0.75, True), (0.76, False)):
        assert diff(before, after, "i8", tolerance=Tolerance(equal=equal)).ok is ok
    where = np.array([False, False, *[True] * 6])
    found = diff(before, after, "i8", where=where)
    assert (found.ok, found.compared, found.total) == (True, 6, 8)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ([1.0, NAN], [1.0, NAN], ""),
        ([1.0, INF], [1.0, INF], ""),
        ([1.0, 2.0], [1.0, NAN], "has NaN at 1 places where the original has numbers"),
        ([1.0, NAN], [NAN, 1.0], "has NaN or infinity at 2 places where the other has none"),
        ([1.0, NAN], [1.0, 2.0], "has NaN or infinity at 1 places where the other has none"),
        ([1.0, INF], [1.0, -INF], "has NaN or infinity at 1 places where the other has none"),
        ([1.0, INF], [1.0, 2.0], "has NaN or infinity at 1 places where the other has none"),
    ],
)
def test_nan_and_infinity_stand_where_they_stood(before: Any, after: Any, reason: str) -> None:
    found = diff(before, after)
    assert (found.ok, found.reason) == (not reason, reason)
    arrays = [np.array(x) for x in (before, after)]
    assert [found.nan_before, found.nan_after] == [int(np.isnan(x).sum()) for x in arrays]
    assert [found.inf_before, found.inf_after] == [int(np.isinf(x).sum()) for x in arrays]
    finite = int((np.isfinite(arrays[0]) & np.isfinite(arrays[1])).sum())
    assert (found.compared, found.finite) == (2, finite)


@pytest.mark.parametrize(("leave_out", "compared"), [("", 4), ("NaN", 3), ("not finite", 2)])
def test_what_the_original_has_odd_may_be_left_out(leave_out: Any, compared: int) -> None:
    found = diff([1.0, NAN, INF, 2.0], [1.0, NAN, INF, 2.0], leave_out=leave_out)
    assert (found.compared, found.total, found.ok) == (compared, 4, True)
    where = np.array([True, True, True, False])
    found = diff([1.0, NAN, INF, 2.0], [1.0, 3.0, 4.0, 9.0], leave_out="not finite", where=where)
    assert (found.compared, found.ok) == (1, True)


def test_the_numbers_of_a_difference() -> None:
    found = diff([2.0, 0.0, -4.0], [2.5, 0.25, -4.0])
    assert (found.max_abs, found.max_rel, found.scale) == (0.5, 0.25, 4.0)
    assert (found.differing, found.compared, found.zero) == (2, 3, False)
    assert found.rms == pytest.approx(math.sqrt((0.25 + 0.0625) / 20))
    assert found.cosine == pytest.approx((5 + 16) / math.sqrt(20 * (6.25 + 0.0625 + 16)))
    assert not found.ok
    assert found.worst_abs == 0.5
    nothing = diff([], [])
    assert (nothing.ok, nothing.worst_abs, nothing.zero, nothing.cosine) == (True, 0.0, True, 1.0)
    assert nothing.allowed == Tolerance().max_abs


def test_a_small_element_of_a_large_output_is_named() -> None:
    before = np.array([[1e-3] * 4, [1e3] * 4])
    after = before.copy()
    after[0, 0] += 0.5
    found = diff(before, after)
    assert found.reason.startswith("differs by 0.5, allowed ")
    assert found.reason.endswith(" where it is 0.001")
    alone = diff([1.0], [2.0])
    assert "where it is" not in alone.reason
    at_zero = diff([0.0, 1e3], [5.0, 1e3])
    assert "where it is" not in at_zero.reason


def test_the_cosine_counts_where_more_than_rounding_differs() -> None:
    loose = Tolerance(max_abs=10.0, cosine=0.99)
    assert diff([1.0, 0.0], [0.0, 1.0], tolerance=loose).reason.startswith("has cosine 0")
    tiny = np.array([1e-8, 0.0])
    assert "cosine" not in diff(tiny, tiny[::-1], tolerance=loose).reason
    assert diff([1.0, 0.0], [1.0, 0.01], tolerance=loose).ok


def test_the_root_mean_square_is_held_to_its_own_bound() -> None:
    before, after = np.ones(4), np.ones(4) * 1.5
    for rms, ok in ((0.5, True), (0.49, False)):
        found = diff(before, after, tolerance=Tolerance(max_abs=10.0, cosine=-1.0, rms=rms))
        assert found.ok is ok
        assert ok or found.reason == "differs by 0.5 of its root mean square, allowed 0.49"


@pytest.mark.parametrize(
    ("change", "excess"),
    [
        ({"ok": True, "worst_abs": 1.0, "allowed": 2.0}, 0.5),
        ({"ok": True, "differing": 0}, 0.0),
        ({"ok": False, "differing": 1, "compared": 5, "reason": "r"}, INF),
        ({"ok": False, "reason": "has shape", "compared": 0, "allowed": 2.0}, INF),
        ({"reason": "NaN", "nan_after": 1, "compared": 5, "allowed": 2.0, "worst_abs": 1.0}, INF),
        ({"reason": "r", "compared": 5, "allowed": 2.0, "worst_abs": 3.0}, 1.5),
        ({"nan_after": 1, "compared": 5, "allowed": 2.0, "worst_abs": 3.0}, 1.5),
    ],
)
def test_how_far_beyond_what_is_allowed(change: dict[str, Any], excess: float) -> None:
    head = OutputDiff("y", "c", ok=True)
    assert replace(head, **change).excess_ratio == excess


def test_a_difference_in_words() -> None:
    head = OutputDiff("y", "c", ok=True, max_abs=2.0, worst_abs=2.0, allowed=0.5)
    assert head.difference_text == "the largest difference is 2 in output 'y' (allowed 0.5)"
    assert replace(head, worst_abs=1.0).difference_text.startswith("the worst difference is 1 ")


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0),
        ([1.0, 2.0], [NAN, INF], 2),
        ([1.0, NAN], [1.0, INF], 0),
        ([INF, 2.0], [1.0, INF], 1),
    ],
)
def test_padding_stays_finite(before: Any, after: Any, lost: int) -> None:
    head = OutputDiff("y", "c", ok=True)
    found = check_padding_finite(head, np.array(before), np.array(after))
    assert found.ok is not bool(lost)
    assert (f"at {lost} places" in found.reason) is bool(lost)
    assert check_padding_finite(head, np.array([1]), np.array([2])) is head


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [
        ([[1, 2], [3, 1]], [[1, 2], [1, 3]], 0.5),
        ([[1, 2], [3, 1]], [[0, 9], [9, 0]], 1.0),
        ([[1, 2], [NAN, 1]], [[1, 2], [1, 3]], 1.0),
        ([[1, 2], [3, 1]], [[1, 2], [INF, 3]], 1.0),
        ([[NAN, 2]], [[1, 2]], NAN),
        ([[1], [2]], [[1], [2]], NAN),
        ([], [], NAN),
    ],
)
def test_how_often_the_same_element_is_the_largest(before: Any, after: Any, share: float) -> None:
    a, b = np.array(before, float), np.array(after, float)
    found = module._top1_agreement(a, b, np.ones(a.shape, bool))
    assert found == share or (math.isnan(found) and math.isnan(share))
    assert math.isnan(module._top1_agreement(a, b, np.zeros(a.shape, bool)))


def test_agreement_is_counted_for_float16_alone() -> None:
    rows = [[1.0, 2.0], [3.0, 1.0]]
    assert math.isnan(diff(rows, rows).top)
    gate = Tolerance(least=0.5)
    assert gate.whole
    assert diff(rows, rows, tolerance=gate).top == 1.0
    assert math.isnan(module._top1_agreement(np.array(1.0), np.array(1.0), np.array(True)))


def test_means_and_cosines_of_huge_and_of_no_numbers() -> None:
    assert module._rms_of(np.array([3e200, 4e200])) == pytest.approx(math.sqrt(12.5) * 1e200)
    assert module._rms_of(np.array([])) == 0.0
    assert module._rms_of(np.zeros(3)) == 0.0
    assert module._cosine_of(np.array([1e200, 0]), np.array([1e200, 1e200])) == pytest.approx(
        math.sqrt(0.5)
    )
    assert module._cosine_of(np.zeros(2), np.zeros(2)) == 1.0
    assert module._cosine_of(np.zeros(2), np.ones(2)) == 0.0
    assert module._cosine_of(np.ones(3), np.ones(3)) == 1.0
