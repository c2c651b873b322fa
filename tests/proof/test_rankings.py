"""Rankings: scores that values and indices tell, and near ties that are ranked either way."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.proof.compare import Tolerance
from graphfix.proof.rankings import Ranking, rankings_of, restore_scores, settle_ties

SCORES = np.array([[5.0, 1.0, 4.0, 3.0], [0.0, 2.0, 2.0, -1.0]], np.float32)
VALUES = np.array([[5.0, 4.0], [2.0, 2.0]], np.float32)
PLACES = np.array([[0, 2], [1, 2]])
RANKING = (Ranking("v", "i", -1),)


def told(values: np.ndarray | None, places: np.ndarray, scores: np.ndarray = SCORES) -> np.ndarray:
    return restore_scores(scores, places, values, -1)


@pytest.mark.parametrize("second", [[1, 2], [2, 1]])
def test_its_own_ranking_tells_the_scores_whichever_of_equals_is_first(second):
    assert (told(VALUES, np.array([[0, 2], second])) == SCORES).all()


@pytest.mark.parametrize(
    ("values", "places", "why"),
    [
        ([[5.0, 3.0], [2.0, 2.0]], [[0, 3], [1, 2]], "4 is larger and is left out"),
        ([[5.0, 5.0], [2.0, 2.0]], [[0, 0], [1, 2]], "one place twice"),
        ([[4.0, 5.0], [2.0, 2.0]], [[2, 0], [1, 2]], "in another order"),
        ([[5.0, 4.0], [2.0, 2.0]], [[2, 0], [1, 2]], "the values of other places"),
        ([[5.0, 4.0], [2.0, 2.0]], [[0, 4], [1, 2]], "no such place"),
        ([[5.0, 4.0], [2.0, 2.0]], [[0, -2], [1, 2]], "counted from the end"),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_another_ranking_tells_other_scores(values, places, why, dtype):
    restored = told(np.array(values, dtype), np.array(places), SCORES.astype(dtype))
    assert restored.shape == SCORES.shape, why
    assert not np.array_equal(restored, SCORES.astype(dtype)), why


def test_a_place_alone_tells_that_no_score_is_larger():
    assert (told(None, np.array([[0], [2]])) == SCORES).all()
    assert told(None, np.array([[2], [2]]))[0].tolist() == [4.0, 1.0, 4.0, 3.0]


def test_where_scores_are_nan_any_order_will_do():
    scores = np.array([[np.nan, 1.0, 2.0]], np.float32)
    for places in ([[0, 2]], [[2, 0]]):
        values = np.take_along_axis(scores, np.array(places), -1)
        assert np.array_equal(told(values, np.array(places), scores), scores, equal_nan=True)


def test_another_axis_or_count_does_not_have_the_shape():
    assert told(None, np.zeros((3, 1), np.int64)).shape != SCORES.shape
    first = restore_scores(SCORES, np.array([[0, 1, 0, 0]]), SCORES.max(0, keepdims=True), 0)
    assert (first == SCORES).all()


def settled(values: list[float], places: list[int]) -> list[int]:
    before = {"v": np.array([[3.0, 2.0, 2.0 - 1e-6]]), "i": np.array([[7, 4, 9]])}
    after = {"v": np.array([values]), "i": np.array([places])}
    result: list[int] = settle_ties(RANKING, before, after, Tolerance())["i"][0].tolist()
    return result


def test_near_ties_may_be_ranked_either_way():
    assert settled([3.0, 2.0, 2.0], [7, 9, 4]) == [7, 4, 9]


def test_a_near_tie_with_the_last_may_take_its_place():
    assert settled([3.0, 2.0, 2.0], [7, 4, 1]) == [7, 4, 9]


@pytest.mark.parametrize(
    ("values", "places"),
    [
        ([3.0, 2.0, 2.0], [4, 7, 9]),  # 3 and 2 are no tie
        ([3.0, 2.0, 2.0], [1, 4, 9]),  # the place of 3 is another
        ([3.0, 2.0, 1.5], [7, 4, 1]),  # its value is another
        ([3.0, 2.0, 2.0], [7, 4, 4]),  # one twice
    ],
)
def test_what_is_no_tie_differs(values, places):
    assert settled(values, places) != [7, 4, 9]


def test_rankings_are_found_behind_a_cast_and_only_with_their_values():
    head = '<ir_version: 8, opset_import: ["" : 17]> m (float[N, 5] x) => '
    body = """<int64[1] k = {2}>
        { v, place = TopK <axis = 1> (x, k) i = Cast <to = 6> (place) }"""
    both = ir.from_onnx_text(f"{head}(float[N, 2] v, int32[N, 2] i) {body}")
    assert rankings_of(both) == (Ranking("v", "i", 1),)
    assert not rankings_of(ir.from_onnx_text(f"{head}(int32[N, 2] i) {body}"))
