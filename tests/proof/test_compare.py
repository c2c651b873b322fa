"""What may differ is told for each element, from what stands around it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphfix.proof.allowance import local_scales
from graphfix.proof.compare import OutputDiff, Tolerance, compare

RNG = np.random.default_rng(0)


def diff(before: np.ndarray, after: np.ndarray) -> OutputDiff:
    return compare("y", "c", before.astype(np.float32), after.astype(np.float32), Tolerance())


@pytest.mark.parametrize("fill", [-3.4e38, -1e9, -1e4, 1e6])
def test_a_fill_that_both_have_sets_no_scale(fill: float):
    logits = RNG.normal(size=(2, 5, 50))
    logits[..., [3, 17]] = fill
    assert diff(logits, logits).ok
    wrong = logits.copy()
    wrong[..., 4] += 0.5
    found = diff(logits, wrong)
    assert not found.ok
    assert found.allowed < 1e-2
    lost = logits.copy()
    lost[..., 3] = 0
    assert not diff(logits, lost).ok


def test_a_large_element_widens_its_own_row_only():
    array = RNG.normal(size=(3, 4, 6))
    array[1, 2, 3] = 2e4
    for row, allowed in ((0, 1e-3), (1, 3.0)):
        wrong = array.copy()
        wrong[row, 0, 0] += 0.5
        found = diff(array, wrong)
        assert found.ok == (allowed > 0.5), row
        assert found.allowed < allowed


def test_a_large_element_widens_its_own_vector_only_where_vectors_are_known():
    array = RNG.normal(size=(1, 4, 16))
    array[0, 2, 3] = 2e4
    wrong = array.copy()
    wrong[0, 0] += 0.5
    assert not diff(array, wrong).ok


def test_the_worst_element_is_that_by_its_own_allowance():
    before = np.array([[8e6] * 8, [1.0] * 8])
    after = before.copy()
    after[:, 0] += (10.0, 9e-5)
    found = diff(before, after)
    assert found.ok
    assert found.max_abs == 10
    assert found.worst_abs == pytest.approx(9e-5, rel=1e-2)
    assert found.allowed == pytest.approx(1e-4)
    assert found.excess_ratio == pytest.approx(0.9, rel=1e-2)
    # Both are too far: the one that is shown is further beyond what is allowed there.
    after[:, 0] += (1e3, 9e-3)
    assert "differs by 0.00909" in diff(before, after).reason


def test_rounding_of_a_large_output_passes():
    array = 1e4 * RNG.normal(size=(2, 3, 16))
    assert diff(array, array * (1 + 1e-6)).ok


def test_scales_are_at_least_the_element_itself_and_finite():
    array = np.array([[np.nan, np.inf, -5.0, 1.0], [7e3, 7e3, 2.0, 0.0]])
    scales = local_scales(array, np.ones(array.shape, np.bool_))
    assert np.isfinite(scales).all()
    assert (scales[0] == 5).all()
    assert list(scales[1]) == [7e3, 7e3, 2, 2]


@pytest.mark.parametrize("scale", [1e-5, 1e-4, 1e-3])
def test_an_output_that_is_small_as_a_whole_is_held_to_its_own_size(scale: float):
    array = scale * RNG.normal(size=(2, 30))
    assert not diff(array, 2 * array).ok
    assert diff(array, array * (1 + 1e-4)).ok


@pytest.mark.parametrize(("error", "ok"), [(1e-6, True), (1.1e-6, False)])
def test_what_is_rounding_turns_nothing(error: float, ok: bool) -> None:
    """The least cosine is one that no output has, so that the size of the error decides."""
    before, strict = np.array([1.0, 0.0]), Tolerance(cosine=2.0)
    assert compare("y", "c", before, before + np.array([0.0, error]), strict).ok is ok


def test_whole_numbers_have_no_cosine():
    found = compare("y", "c", np.array([1, 2]), np.array([1, 3]), Tolerance())
    assert not found.ok
    assert np.isnan(found.cosine)


def test_the_relative_difference_is_that_of_what_is_not_zero() -> None:
    before = np.array([0.0, 1.0, -2.0, 4.0])
    found = diff(before, before + 0.5)
    assert found.max_rel == 0.5
    assert diff(np.zeros(3), np.full(3, 0.5)).max_rel == 0


def test_what_was_not_compared_is_the_worst_and_counts_nothing() -> None:
    missing = OutputDiff("y", "c", ok=False, reason="is missing")
    assert missing.excess_ratio == np.inf
    counts = (missing.nan_before, missing.nan_after, missing.inf_before, missing.inf_after)
    assert counts == (0, 0, 0, 0)
    compared = replace(missing, reason="differs", compared=4, worst_abs=1.0, allowed=2.0)
    assert compared.excess_ratio == 0.5
    assert replace(compared, nan_after=1).excess_ratio == np.inf
    assert replace(compared, allowed=0.0).excess_ratio == 0
    assert replace(compared, allowed=0.0, differing=1).excess_ratio == np.inf
