"""Conditions that cases met and missed."""

from __future__ import annotations

import numpy as np
import pytest

from graphfix.feeds.case import Case
from graphfix.feeds.case_search import search_cases
from graphfix.feeds.case_style import Side
from graphfix.feeds.coverage import Coverage, measure_coverage
from graphfix.feeds.signature import Signature
from tests.feeds.small_models import ADDITIVE, model


@pytest.mark.parametrize(
    ("dims", "image"),
    [("B, 3, H, W", True), ("1, 64, 64, 3", True), ("B, 1, 80, T", False), ("B, T, 3", False)],
)
def test_pictures_have_the_range_of_pictures(dims: str, image: bool) -> None:
    made = model(f"m (float[{dims}] x) => (float[{dims}] y) {{ y = Tanh (x) }}")
    cases = search_cases(made, lambda case: None, cover=True)
    most = max(float(np.abs(x.feeds["x"]).max()) for x in cases)
    assert (100 < most <= 255) if image else most > 1e4
    told = measure_coverage(cases, cases.signature)
    assert ("'x' from 0 to 255" in told.covered) == image
    assert any("values from 0 to 255" in x.name for x in cases) == image


ROWS = {
    "several full rows": ((4, 4), "right"),
    "a short first row": ((2, 4), "right"),
    "no full row": ((3, 2), "right"),
    "an empty row": ((4, 0), "right"),
    "padding on the left": ((4, 2), "left"),
}


def padded(ends: tuple[int, ...], side: Side) -> Case:
    mask = np.arange(4) < np.array(ends)[:, None]
    mask = mask[:, ::-1] if side == "left" else mask
    feeds = {"a": mask.astype(np.int64), "s": np.ones((2, 4, 4), np.float32)}
    return Case("", {"B": 2, "T": 4}, feeds, {"T": ends}, side=side)


@pytest.mark.parametrize("condition", ROWS)
def test_a_condition_on_rows_is_met_by_a_case_of_it_alone(condition: str) -> None:
    signature, (ends, side) = Signature(model(ADDITIVE)), ROWS[condition]
    plain = padded((4, 3), "right")
    assert condition in measure_coverage([plain], signature).missing
    assert condition in measure_coverage([plain, padded(ends, side)], signature).covered


def test_without_padding_it_is_said_that_there_was_none() -> None:
    signature = Signature(model(ADDITIVE))
    short = Case("", {"B": 2, "T": 1}, padded((4, 3), "right").feeds, {"T": (1, 0)})
    assert "padding" in measure_coverage([short], signature).missing
    assert "padding" not in measure_coverage([padded((4, 3), "right")], signature).missing


@pytest.mark.parametrize(("fed", "missing"), [((0, 1), 1), ((0, 1, 2), 0), ((2, 7), 2)])
def test_values_of_a_choice_are_counted(fed: tuple[int, ...], missing: int) -> None:
    signature = Signature(
        model("""m (float[B, T] x, int64[B] voice) => (float[B, T] y) <float[3, 1] t = {1, 2, 3}>
        { e = Gather (t, voice)  y = Add (x, e) }""")
    )
    feeds = {"x": np.ones((len(fed), 2), np.float32), "voice": np.array(fed)}
    coverage = measure_coverage([Case("", {"B": len(fed), "T": 2}, feeds)], signature)
    if missing:
        assert f"{missing} of 3 values of 'voice'" in coverage.missing
    else:
        assert "every value of 'voice'" in coverage.covered


def test_that_no_size_was_0_is_said() -> None:
    made = model("m (float[B, T] x, float[B, P] z) => (float[B, T] y) { y = Tanh (x) }")
    cases = search_cases(made, lambda case: None, cover=True)
    assert "sizes of 0" in measure_coverage(cases, cases.signature).missing
    fed = search_cases(made, lambda case: None, dims={"B": [0], "T": [0], "P": [0]})
    assert "sizes of 0" not in measure_coverage(fed, fed.signature).missing
    larger = search_cases(made, lambda case: None, dims={"B": [2], "T": [2], "P": [2]})
    assert "sizes of 0" not in measure_coverage(larger, larger.signature).missing


def test_a_pair_of_sizes_that_no_case_had_is_said() -> None:
    made = model("m (float[B, T] x) => (float[B, T] y) { y = Tanh (x) }")
    cases = search_cases(made, lambda case: None, cover=True)
    kept = [x for x in cases if x.dims["T"] > 1 or x.dims["B"] == 1]
    missing = measure_coverage(kept, cases.signature).missing
    assert "B even with T 1" in missing
    few = [x for x in cases if (x.dims["B"] == 1) == (x.dims["T"] == 1)]
    missing = measure_coverage(few, cases.signature).missing
    assert sum(" with " in x for x in missing) <= 3


NUMBERS = {
    "halves and equal elements of 'x'": ("float[B, T] x", "y = Round (x)", [0.5, 0.5], [0.3, 0.2]),
    "NaN or infinity in 'x'": ("float[B, T] x", "y = Max (x, low)", [np.inf, np.nan], [0, 1]),
    "'x' over 2^31": ("int64[B, T] x", "y = Add (x, one)", [2**31 + 1, 0], [2**24 + 1, 0]),
    "'x' over 2^24": ("int32[B, T] x", "y = Neg (x)", [2**24 + 1, 0], [9, 0]),
}


@pytest.mark.parametrize("condition", NUMBERS)
def test_numbers_that_chance_seldom_meets_are_said(condition: str) -> None:
    given, body, met, missed = NUMBERS[condition]
    output = given.replace(" x", " y")
    made = model(f"m ({given}) => ({output}) <float low = {{-1}}, int64 one = {{1}}> {{ {body} }}")
    signature = Signature(made)
    for numbers, is_met in ((met, True), (missed, False)):
        array = np.array([numbers], signature.inputs[0].dtype)
        coverage = measure_coverage([Case("", {"B": 1, "T": 2}, {"x": array})], signature)
        assert (condition in coverage.covered) == is_met
        assert (condition in coverage.missing) != is_met


def coverage_of(text: str, *cases: Case) -> Coverage:
    return measure_coverage(cases, Signature(model(text)))


def test_infinity_alone_says_nothing_of_nan_nor_does_garbage_in_padding() -> None:
    text = "m (float[B] x) => (float[B] y) { y = Neg (x) }"
    infinite = Case("a", {"B": 2}, {"x": np.array([np.inf, 1], np.float32)})
    poisoned = Case("b", {"B": 2}, {"x": np.array([np.nan, 1], np.float32)}, poison="NaN")
    coverage = coverage_of(text, infinite, poisoned)
    assert "infinity in 'x'" in coverage.covered
    assert "NaN in 'x'" in coverage.missing


def test_numbers_beyond_those_that_were_fed_are_said() -> None:
    floats = Case("a", {"B": 2}, {"x": np.array([-130.5, 1], np.float32)})
    text = "m (float[B] x) => (float[B] y) { y = Neg (x) }"
    assert "'x' beyond 131" in coverage_of(text, floats).missing
    integers = Case("a", {"B": 4}, {"x": np.array([-7, 900, 5, 3], np.int64)})
    text = text.replace("float", "int64")
    assert "'x' beyond -7 to 900" in coverage_of(text, integers).missing


@pytest.mark.parametrize(
    ("sizes", "moduli"),
    [((1, 4), "modulo 3 and more"), ((1, 2, 3, 4), "modulo 5 and more"),
     ((1, 2, 4, 5, 7, 10), "modulo 3, 5 and more"), ((1, 2, 5, 7), "modulo 3 and more")],
)  # fmt: skip
def test_moduli_of_which_a_remainder_was_not_fed_are_said(
    sizes: tuple[int, ...], moduli: str
) -> None:
    text = "m (float[B] x) => (float[B] y) { y = Neg (x) }"
    cases = [Case(str(n), {"B": n}, {"x": np.ones(n, np.float32)}) for n in sizes]
    assert f"some remainders of B {moduli}" in coverage_of(text, *cases).missing


def test_other_numbers_in_a_mask_are_said() -> None:
    signature, mask = Signature(model(ADDITIVE)), np.array([[1, 0, 1, 0]])
    condition = "'a' other than 0 and 1"
    feeds = {"a": mask, "s": np.ones((1, 4, 4), np.float32)}
    case = Case("", {"B": 1, "T": 4}, feeds, {"T": (4,)})
    assert condition in measure_coverage([case], signature).missing
    feeds["a"] = 2 * mask
    assert condition in measure_coverage([case], signature).covered
