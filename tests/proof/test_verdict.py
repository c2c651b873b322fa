"""The verdict of a verification, in words."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from graphfix.feeds.case import DroppedCase
from graphfix.proof.compare import OutputDiff
from graphfix.proof.verdict import Verdict


def diff(case: str = "a", *, ok: bool = True, **facts: Any) -> OutputDiff:
    return OutputDiff("y", case, ok=ok, **{"worst_abs": facts.get("max_abs", 0.0), **facts})


def verdict(*diffs: OutputDiff, ok: bool = True, **facts: Any) -> Verdict:
    return Verdict(ok, {x.case: (x,) for x in diffs}, **facts)


def test_the_worst_is_one_that_failed_then_the_furthest() -> None:
    near, far = diff(max_abs=1.0), diff("b", max_abs=2.0)
    failed = diff("c", ok=False, max_abs=0.5)
    over = diff("d", max_abs=0.5, allowed=0.1)
    assert verdict(near, far).worst is far
    assert verdict(far, near, over).worst is over
    assert verdict(far, failed, near, over).worst is failed
    assert verdict().worst is None
    assert verdict(far, failed, near).failed == ["c"]
    assert verdict(far).failed == []


def test_a_case_fails_if_any_output_does() -> None:
    mixed = Verdict(False, {"a": (diff(), diff(ok=False)), "b": (diff("b"),)})
    assert mixed.failed == ["a"]
    assert not mixed
    assert mixed.headline == "Does not compute the same"
    assert verdict(diff()).headline == "Computes the same"


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (verdict(), "nothing was compared"),
        (verdict(reason="it does not load"), "it does not load"),
        (verdict(diff(), diff("b")), "identical in 2 cases."),
        (verdict(diff()), "identical in 1 case."),
        (
            verdict(diff(ok=False, reason="is missing"), ok=False),
            "output 'y' is missing, in case 'a'.",
        ),
    ],
)
def test_words(result: Verdict, text: str) -> None:
    assert str(result) == text


def test_a_small_difference_is_said() -> None:
    text = str(verdict(diff(), diff("b", max_abs=1e-6, compared=4)))
    assert text.startswith("the same in 2 cases: ")
    assert text.endswith(", in case 'b'.")


def test_the_element_that_is_shown_is_worst_by_its_own_allowance() -> None:
    text = str(verdict(diff(max_abs=8e4, worst_abs=5e-4, allowed=8e-4, compared=4)))
    assert "the worst difference is 0.0005 in output 'y' (allowed 0.0008), in case 'a'" in text
    alone = str(verdict(diff(max_abs=5e-4, allowed=8e-4, compared=4)))
    assert "the largest difference is 0.0005 in output 'y' (allowed 0.0008)" in alone


def test_what_differs_and_is_left_out_is_in_the_line() -> None:
    padded = {"excluded": "padded rows"}
    found = verdict(
        diff("a", **padded, excluded_abs=0.5),
        diff("b", **padded, excluded_abs=1.5),
        diff("c", excluded="rows of length 0"),
    )
    assert str(found) == (
        "identical in 3 cases; left out: padded rows of 'y', which differ by up to 1.5, and rows "
        "of length 0 of 'y', which differ."
    )


HALF = {"scale": 2.0, "cosine": 0.999, "compared": 10, "allowed": 0.1}


def test_the_error_of_float16_is_of_the_largest_element() -> None:
    text = str(
        verdict(
            diff("a", **HALF, max_abs=0.02, top=0.99),
            diff("b", **{**HALF, "scale": 100.0}, max_abs=0.5, top=0.97),
        )
    )
    assert text == (
        "the same in 2 cases: at most 0.01 of the largest element off, in output 'y' of case 'a'; "
        "cosine 0.999000; top-1 agrees in 97.00% at least."
    )


def test_whole_numbers_are_the_same_in_a_share() -> None:
    whole = {"allowed": 0.0, "compared": 8, "max_abs": 1.0}
    text = str(verdict(diff("a", **whole, differing=2), diff("b", **whole, differing=1)))
    assert text == "the same in 2 cases: whole numbers are the same in 75.00% at least."
    both = str(
        verdict(diff("a", **HALF, max_abs=0.02, top=0.99), diff("b", allowed=0.0, compared=8))
    )
    assert both.endswith("whole numbers are the same in 100.00% at least.")
    none = str(verdict(diff("a", max_abs=0.1, allowed=0.2), diff("b", allowed=0.0, compared=0)))
    assert "whole numbers" not in none


@pytest.mark.parametrize(
    "facts", [{"top": math.nan}, {"scale": 0.0, "top": 0.9}, {"cosine": math.nan, "top": 0.9}]
)
def test_without_a_measure_there_is_no_error_of_float16(facts: dict[str, float]) -> None:
    text = str(verdict(diff("a", **{**HALF, "max_abs": 0.02, **facts})))
    assert "largest element" not in text


def test_rows() -> None:
    result = verdict(
        diff(),
        dims={"a": {"T": 3, "N": 1}},
        covered=("T 3 to 9", "N 1", "U 4", "a condition"),
        not_tried=("T 50", "U 9"),
        dropped=(DroppedCase("c", "why"),),
        notes=("one", "two", "three"),
    )
    assert result.sizes == ["T 3 to 9", "N 1"]
    assert [(x.label, x.text) for x in result.rows()] == [
        ("numbers", "identical in 1 case (T 3 to 9, N 1)"),
        ("not tried", "T 50, U 9 (--dims)"),
        ("dropped", "1 case that the original cannot run (-v)"),
        ("note", "one"),
        ("", "2 more with -v"),
    ]
    assert [(x.label, x.text) for x in result.rows(verbose=True)][2:] == [
        ("dropped", "1 case that the original cannot run"),
        ("note", "one"),
        ("note", "two"),
        ("note", "three"),
    ]


@pytest.mark.parametrize(
    ("count", "verbose", "text"),
    [
        (6, False, "A, B, C, D, E, F"),
        (8, False, "A, B, C, D, E, F; 2 more with -v"),
        (8, True, "A, B, C, D, E, F, G, H"),
    ],
)
def test_a_few_things_that_were_not_tried_are_named(count: int, verbose: bool, text: str) -> None:
    result = verdict(diff(), not_tried=tuple("ABCDEFGH"[:count]))
    assert [x.text for x in result.rows(verbose=verbose) if x.label == "not tried"] == [text]


def test_rows_of_a_failure_name_no_sizes() -> None:
    result = verdict(
        diff(ok=False, reason="is missing"), ok=False, dims={"a": {"T": 3}}, covered=("T 3",)
    )
    (row,) = result.rows()
    assert row.text == "output 'y' is missing, in case 'a'"
    assert verdict(diff(), notes=("one",)).rows()[-1].text == "one"
    assert row != verdict(diff()).rows()[0]


def test_plain_data() -> None:
    data = verdict(
        diff(max_abs=math.inf), dims={"a": {"T": 3}}, dropped=(DroppedCase("c", "why"),)
    ).to_json()
    assert json.loads(json.dumps(data))["dropped"] == [{"name": "c", "reason": "why"}]
    assert data["cases"][0]["dims"] == {"T": 3}
    assert data["worst"]["max_abs"] == "inf"
    assert verdict(diff()).to_json()["cases"][0]["dims"] == {}
