"""Sizes that are tried, in order; nothing is run, a function says which of them would run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from graphfix.errors import FeedError
from graphfix.feeds import case_search
from graphfix.feeds.case_search import check_sizes, requested_sizes, search_cases
from graphfix.feeds.signature import Signature
from graphfix.runtime.run_errors import OverBudgetError, RunError
from tests.feeds.small_models import model

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphfix.feeds.case import Case, Cases

FRAMES = "m (float[B, T, 4] x) => (float[B, T, 4] y) { y = Relu (x) }"
WAVE = "m (float[B, T] x) => (float[B, T] y) { y = Relu (x) }"
TWO = """m (float[B, T] x, float[B, S] z) => (float[B, T] y, float[B, S] w)
    { y = Relu (x) w = Relu (z) }"""
THREE = (
    TWO.replace("m (", "m (float[B, R] a, ")
    .replace("=> (", "=> (float[B, R] b, ")
    .replace("{ y", "{ b = Relu (a) y")
)


class Search:
    """What was tried, and what came of it."""

    def __init__(
        self,
        text: str,
        runs: Callable[[dict[str, int]], bool] = lambda _: True,
        error: type[Exception] = RunError,
        **options: object,
    ) -> None:
        self.tried: list[dict[str, int]] = []

        def run(case: Case) -> None:
            self.tried.append(dict(case.dims))
            if not runs(dict(case.dims)):
                raise error("no such size")

        self.cases: Cases = search_cases(model(text), run, **options)  # type: ignore[arg-type]

    def sizes(self, *names: str) -> list[tuple[int, ...]]:
        return [tuple(x[name] for name in names) for x in self.tried]


def test_the_usual_sizes() -> None:
    assert Search(FRAMES).sizes("B", "T") == [(1, 7), (1, 1), (2, 2), (2, 23), (3, 40)]


def test_times_that_are_not_tied_differ() -> None:
    assert Search(TWO).sizes("T", "S") == [(7, 5), (1, 2), (2, 3), (23, 13), (40, 22)]
    assert Search(THREE).sizes("R", "T", "S")[0] == (7, 5, 6)


def test_a_row_is_tried_alone_where_several_do_not_run() -> None:
    search = Search(FRAMES, lambda dims: dims["B"] == 1)
    assert search.sizes("B", "T")[:8] == [
        *((1, 7), (1, 1), (2, 2), (1, 2), (2, 23), (1, 23), (3, 40), (1, 40))
    ]
    assert [x.name for x in search.cases.dropped] == ["B=2 T=2", "B=2 T=23", "B=3 T=40"]
    assert all(x.has_inputs and x.reason == "no such size" for x in search.cases.dropped)


LONGER = [5, 12, 32, 64, 98, 101, 160, 162, 224, 256, 400, 480, 512, 576, 720, 1600, 3200]


def test_longer_ones_are_tried_until_lengths_differ_enough() -> None:
    search = Search(FRAMES, lambda dims: dims["T"] >= 100)
    lengths = [x[0] for x in search.sizes("T")]
    tried = list(dict.fromkeys(lengths))
    assert tried == [7, 1, 2, 23, 40, *LONGER[:-1]]
    ran = [case.dims["T"] for case in search.cases]
    assert (min(ran), max(ran)) == (101, 1600)
    rows = [case.dims["B"] for case in search.cases if case.dims["T"] == 101]
    assert sorted({*rows}) == [1, 2, 3]  # in the end as many rows as usual, at the shortest


def test_rows_alternate_at_longer_lengths() -> None:
    search = Search(FRAMES, lambda dims: dims["T"] >= 3200)
    rows = [x for x in search.sizes("B", "T") if x[1] in LONGER]
    assert rows[:6] == [(2, 5), (1, 5), (1, 12), (2, 32), (1, 32), (1, 64)]
    assert search.sizes("T")[-1] == (3200,)


def test_only_waves_are_tried_at_more_than_3200() -> None:
    for text, longest in ((FRAMES, 3200), (WAVE, 51_200)):
        search = Search(text, lambda dims: dims["T"] in (3200, 12_800))
        assert max(search.sizes("T"))[0] == longest
        assert not search.cases.left_out


def test_three_lengths_are_enough_where_the_longest_is_eight_times_the_shortest() -> None:
    search = Search(FRAMES, lambda dims: dims["T"] in (2, 5, 12, 32))
    assert max(search.sizes("T")) == (40,)  # of the usual ones: behind 32 none is tried
    assert {case.dims["T"] for case in search.cases} == {2, 5, 12, 32}
    assert {case.dims["B"] for case in search.cases if case.dims["T"] == 2} == {1, 2, 3}


def test_a_case_over_the_budget_is_not_said_to_fail() -> None:
    search = Search(FRAMES, lambda dims: dims["T"] < 30, OverBudgetError)
    assert search.cases.dropped == []
    assert {case.dims["T"] for case in search.cases} == {7, 1, 2, 23}


@pytest.mark.parametrize(
    ("dims", "sizes"),
    [
        ({"T": [8]}, [(1, 8), (2, 8)]),
        ({"T": [8, 9, 10]}, [(1, 8), (2, 9), (3, 10)]),
        ({"B": [4], "T": [8]}, [(4, 8)]),
        ({"B": [4, 5], "T": [8]}, [(4, 8), (5, 8)]),
        ({"T": [8] * 6}, [(1, 8), (2, 8), (3, 8)]),
        ({"T": [0, 3]}, [(1, 0), (2, 3)]),
    ],
)
def test_sizes_that_a_user_asks_for(
    dims: dict[str, list[int]], sizes: list[tuple[int, int]]
) -> None:
    assert Search(FRAMES, dims=dims).sizes("B", "T") == sizes


def test_lengths_are_ours_where_only_rows_are_asked_for() -> None:
    found = Search(FRAMES, dims={"B": [2]}).sizes("B", "T")
    assert {rows for rows, _ in found} == {2}
    assert [length for _, length in found] == [7, 5, 12, 32, 64][: len(found)]
    assert len(found) >= 3


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ({"N": [3]}, "no input has a dim named 'N'; the symbolic dims are: B, T"),
        ({"T": []}, "the sizes of 'T' must be numbers from 0 up"),
        ({"T": [3, -1]}, "the sizes of 'T' must be numbers from 0 up"),
    ],
)
def test_sizes_that_are_none(dims: dict[str, list[int]], message: str) -> None:
    with pytest.raises(FeedError, match=message):
        check_sizes(model(FRAMES), dims)
    check_sizes(model(FRAMES), {"T": [0, 3]})
    check_sizes(model(FRAMES), None)
    assert requested_sizes(Signature(model(FRAMES)), {"T": [3, 4]}) == {"T": (3, 4)}


def test_a_model_that_runs_at_no_size() -> None:
    with pytest.raises(FeedError) as caught:
        Search(FRAMES, lambda _: False)
    text = str(caught.value)
    assert "runs at none of the sizes tried (B=1 T=7; B=1 T=1; B=2 T=2; B=1 T=2 and " in text
    assert " more), with x as data. ONNX Runtime: no such size. Give inputs" in text
    assert text.endswith("or sizes with --dims T=..")
    fixed = "m (float[2, 3] x) => (float[2, 3] y) { y = Relu (x) }"
    with pytest.raises(FeedError) as caught:
        Search(fixed, lambda _: False)
    assert "From" not in str(caught.value)


def test_what_is_drawn_in_passing_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_search, "_MOST_DRAWN", 4 * (2 * 5 + 12))
    with pytest.raises(FeedError, match=r"From B=2 T=32 on the inputs are too large"):
        Search(FRAMES, lambda _: False)
    monkeypatch.setattr(case_search, "_MOST_DRAWN", 4 * (2 * 5 + 12) - 1)
    with pytest.raises(FeedError, match=r"From B=1 T=12 on the inputs are too large"):
        Search(FRAMES, lambda _: False)


def test_much_work_is_not_done_again_at_longer_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """m (float[B, T, 4] x) => (float[B, T, T] y) {
        t = Transpose <perm = [0, 2, 1]> (x) y = MatMul (x, t) }"""
    monkeypatch.setattr(case_search, "_ENOUGH_WORK", 4 * 200 * 200)
    search = Search(text, lambda dims: dims["T"] >= 150)
    ran = {case.dims["T"] for case in search.cases}
    assert ran == {160, 162, 224}  # three that ran are enough
    search = Search(text, lambda dims: dims["T"] == 98)
    assert max(search.sizes("T")) == (162,)  # the next would cost too much to try in passing


def test_images_grow_on_both_sides() -> None:
    text = """m (float[B, 3, H, W] x) => (float[B, 3, H, W] y) { y = Relu (x) }"""
    search = Search(text, lambda dims: dims["H"] % 32 == 0 and dims["W"] % 32 == 0)
    ran = {(case.dims["H"], case.dims["W"]) for case in search.cases}
    assert {(64, 32), (160, 64), (224, 96)} <= ran
    assert all(a % 32 == b % 32 == 0 for a, b in ran)


def test_the_same_sizes_are_tried_once() -> None:
    sizes = Search(FRAMES, lambda dims: dims["T"] >= 100).sizes("B", "T")
    assert len(sizes) == len({*sizes})
    fixed = "m (float[2, 3] x) => (float[2, 3] y) { y = Relu (x) }"
    assert len(Search(fixed).tried) == 5  # other numbers each time


def test_caches_are_empty_short_and_long() -> None:
    text = """m (float[B, T, 4] x, float[B, P, 4] past)
        => (float[B, T, 4] y, float[B, U, 4] present)
        { present = Concat <axis = 1> (past, x) y = Neg (x) }"""
    search = Search(text)
    assert search.sizes("T", "P") == [(7, 4), (1, 0), (2, 1), (23, 9), (40, 16)]
    tied = Search(text, lambda dims: dims["P"] == 0)
    assert {case.dims["P"] for case in tied.cases} == {0}


def test_lengths_beside_rows_that_a_user_asks_for() -> None:
    found = Search(FRAMES, dims={"B": [2] * 6}).sizes("B", "T")
    assert found[:5] == [(2, 7), (2, 23), (2, 40), (2, 1), (2, 2)]


def test_work_is_counted_to_the_last_multiplication(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """m (float[B, T, 4] x) => (float[B, T, T] y) {
        t = Transpose <perm = [0, 2, 1]> (x) y = MatMul (x, t) }"""
    for most, longest in ((4 * 224 * 224, 224), (4 * 224 * 224 - 1, 162)):
        monkeypatch.setattr(case_search, "_ENOUGH_WORK", most)
        search = Search(text, lambda dims: dims["T"] == 98)
        assert max(search.sizes("T")) == (longest,)


def test_four_sizes_are_named_and_the_others_counted() -> None:
    for count in (4, 5):
        with pytest.raises(FeedError) as caught:
            Search(FRAMES, lambda _: False, dims={"B": [1] * count, "T": [*range(1, count + 1)]})
        assert ("and 1 more)" in str(caught.value)) is (count == 5)
