"""Outlines of cases, and which sizes, values and rows come of them; nothing is run."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from graphfix.feeds import condition_cover
from graphfix.feeds.arrays import CaseMaker
from graphfix.feeds.case_style import Style
from graphfix.feeds.condition_cover import (
    OUTLINES,
    CaseOutline,
    CoverSearch,
    frame_hop,
    is_waveform,
)
from graphfix.feeds.signature import Signature
from tests.feeds.small_models import model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from graphfix.feeds.case import Case

FRAMES = "m (float[B, T, 4] x) => (float[B, T, 4] y) { y = Tanh (x) }"
WAVE = "m (float[B, T] x) => (float[B, T] y) { y = Tanh (x) }"
WORDS = """m (int64[B, T] a) => (float[B, T, 2] y) <float[5, 2] t = {0,1,2,3,4,5,6,7,8,9}>
    { y = Gather (t, a) }"""
MASK = """m (float[B, T, 4] x, int64[B, T] mask) => (float[B, T, 4] y)
    <int64[1] ax = {1}, int64 zero = {0}, float fill = {-10000.0}>
    { t = Transpose <perm = [0, 2, 1]> (x)  s = MatMul (x, t)  e = Equal (mask, zero)
      u = Unsqueeze (e, ax)  m = Where (u, fill, s)  p = Softmax (m)  y = MatMul (p, x) }"""
CHOICE = """m (float[B, T] x, int64[B] a) => (float[B, T, 1] y) <float[%d, 1] table = {%s}>
    { e = Gather (table, a)  two = Constant <value_ints = [2]> () u = Unsqueeze (x, two)
      one = Constant <value_ints = [1]> () w = Unsqueeze (e, one) y = Add (u, w) }"""
USUAL = ((1, 7), (1, 1), (2, 2), (2, 23), (3, 40))


class Cover:
    """A search behind the usual cases, of which all run, or those that ``runs`` says."""

    def __init__(
        self,
        text: str,
        usual: Sequence[tuple[int, int]] = USUAL,
        requested: Mapping[str, Sequence[int]] | None = None,
        *,
        runs: Any = lambda *_: True,
        second: Any = lambda length: length,
    ) -> None:
        self.signature = Signature(model(text))
        self.maker = CaseMaker(self.signature, 0)
        self.cases: list[Case] = []
        for step, (rows, length) in enumerate(usual):
            groups = {
                t: second(length) if i else length for i, t in enumerate(self.signature.times)
            }
            if self.signature.batch:
                groups[self.signature.batch] = rows
            self.cases.append(self.maker.make_case(step, groups))
        self.attempts: list[tuple[int, dict[str, int], Style, dict[str, tuple[int, ...]]]] = []
        self.ran: list[tuple[dict[str, int], Style]] = []

        def attempt(step: int, groups: Any, style: Style, chosen: Any) -> bool:
            self.attempts.append((step, dict(groups), style, dict(chosen)))
            if not runs(groups, style):
                return False
            self.ran.append((dict(groups), style))
            self.cases.append(self.maker.make_case(step, groups, None, style, chosen))
            return True

        self.search = CoverSearch(self.signature, self.maker, requested or {}, self.cases, attempt)
        self.search.run()

    def sizes(self, *names: str) -> list[tuple[int, ...]]:
        return [tuple(groups[name] for name in names) for groups, _ in self.ran]


def kind(number: int) -> str:
    if number <= 1:
        return str(number)
    return "over 64" if number > 64 else "odd" if number % 2 else "even"


def pairs(columns: Sequence[int]) -> set[tuple[str, str]]:
    rows = [
        *((x.rows, x.length, x.past, x.other) for x in OUTLINES),
        *((1, 7, 4, 5), (1, 1, 0, 2), (2, 2, 1, 3), (2, 23, 9, 13), (3, 40, 16, 22)),
    ]
    first, second = columns
    return {(kind(row[first]), kind(row[second])) for row in rows}


SMALL = ("1", "odd", "even")


@pytest.mark.parametrize(
    ("columns", "first", "second", "missing"),
    [
        ((0, 1), SMALL, SMALL, set()),
        ((1, 2), SMALL, ("odd", "even", "over 64"), {("1", "odd"), ("even", "over 64")}),
        ((1, 3), (*SMALL, "over 64"), SMALL, {("1", "odd"), ("odd", "1")}),
    ],
)
def test_kinds_of_sizes_meet_in_pairs(
    columns: Sequence[int],
    first: Sequence[str],
    second: Sequence[str],
    missing: set[tuple[str, str]],
) -> None:
    assert {*itertools.product(first, second)} - pairs(columns) == missing


def test_outlines_reach_far_enough() -> None:
    lengths = [x.length for x in OUTLINES]
    for window in (7, 10, 16, 64, 160):
        assert {0, window - 1} <= {n % window for n in (*lengths, 7, 1, 2, 23, 40)}
    for number in (2, 3, 4, 5, 8):
        assert {n % number for n in (*lengths, 7, 1, 2, 23, 40)} == {*range(number)}
    assert max(x.rows for x in OUTLINES) == 9
    assert sum(n > 256 for n in lengths) == 1
    assert sum(n % 32 == 0 for n in lengths) >= 2
    assert any(x.past > 64 for x in OUTLINES)
    assert any(8 < x.past <= 64 for x in OUTLINES)
    assert any(x.length == 1 and x.past > 8 for x in OUTLINES)  # one token behind a cache
    with_first = [x for x in OUTLINES if x.style.side == "left"]
    assert [x.style.ends for x in with_first] == ["first short"]


def test_every_outline_of_a_plain_model_runs_at_its_sizes() -> None:
    cover = Cover(FRAMES)
    found = {(g["B"], g["T"]) for g, _ in cover.ran}
    assert {(5, 12), (9, 13), (5, 67), (1, 319), (2, 160), (6, 1), (1, 64), (5, 1)} <= found
    assert not any(style.side == "left" or style.ends == "an empty row" for _, style in cover.ran)
    assert not any(style.other or style.values == "guarded" for _, style in cover.ran)
    steps = [step for step, *_ in cover.attempts]
    assert steps == sorted({*steps})
    assert steps[0] == 32
    assert cover.search.left_out == []


def test_a_mask_is_padded_on_the_left_and_has_an_empty_row() -> None:
    styles = [style for _, style in Cover(MASK).ran]
    assert sum(x.side == "left" for x in styles) == 1
    assert sum(x.ends == "an empty row" for x in styles) == 1


@pytest.mark.parametrize(
    ("body", "values", "used"),
    [
        ("y = Round (x)", "ties", True),
        ("y = Tanh (x)", "ties", True),  # as a usual case of its size
        ("y = Max (x, low)", "guarded", True),
        ("y = Tanh (x)", "guarded", False),
        ("y = Tanh (x)", "positive", True),
    ],
)
def test_values_are_drawn_where_they_matter(body: str, values: str, used: bool) -> None:
    text = f"m (float[B, T] x) => (float[B, T] y) <float low = {{-1.0}}> {{ {body} }}"
    assert any(x.values == values for _, x in Cover(text).ran) is used


def test_words_have_no_positive_floats_and_a_fixed_model_few_cases() -> None:
    assert not any(x.values == "positive" for _, x in Cover(WORDS).ran)
    fixed = Cover("m (float[2, 3] x) => (float[2, 3] y) { y = Tanh (x) }", [(1, 1)])
    assert all(x.values != "usual" or x.wide for _, x in fixed.ran)
    assert {"spikes", "bumps", "loud", "positive", "silent"} <= {x.values for _, x in fixed.ran}
    assert not any(x.values == "ties" for _, x in fixed.ran)


def test_waves_are_quiet_and_long() -> None:
    cover = Cover(WAVE)
    assert is_waveform(cover.signature)
    assert not is_waveform(Signature(model(FRAMES)))
    assert [(g["B"], g["T"]) for g, x in cover.ran if x.values == "quiet"] == [(4, 19)]
    assert not any(x.values == "recording" for _, x in cover.ran)  # one frame a sample


ONES = ", ".join(["1"] * 100)
HOPS = f"""m (float[B, 1, T] x) => (float[B, 1, F] y) <float[1, 1, 100] w = {{{ONES}}}>
    {{ y = Conv <strides = [100], pads = [99, 0]> (x, w) }}"""


def test_lengths_of_several_frames() -> None:
    cover = Cover(HOPS)
    assert frame_hop(cover.signature) == 100
    lengths = [g["T"] for g, _ in cover.ran]
    assert {201, 499, 16_000} <= {*lengths}
    (second,) = (x for g, x in cover.ran if g["T"] == 16_000)
    assert (second.values, second.ends) == ("recording", "all full")
    short = HOPS.replace("strides = [100]", "strides = [63]")
    assert frame_hop(Signature(model(short))) == 63
    assert 127 not in [g["T"] for g, _ in Cover(short).ran]  # 319 has five frames
    long = HOPS.replace("strides = [100]", "strides = [64]")
    assert {129, 319} <= {g["T"] for g, _ in Cover(long).ran}


def test_a_hop_is_the_largest_of_the_graph() -> None:
    assert frame_hop(Signature(model(FRAMES))) == 1
    assert frame_hop(Signature(model("m (float[2, 3] x) => (y) { y = Tanh (x) }"))) == 1
    doubled = """m (float[B, T] x) => (float[B, U] y) { y = Concat <axis = 1> (x, x) }"""
    assert frame_hop(Signature(model(doubled))) == 1
    third = """m (float[B, T] x) => (float[B, U] y) <int64[1] z = {0}, int64[1] o = {1},
        int64[1] e = {9223372036854775807}, int64[1] k = {3}> { y = Slice (x, z, e, o, k) }"""
    assert frame_hop(Signature(model(third))) == 3


def test_a_case_that_fails_is_tried_plainer_shorter_and_with_fewer_rows() -> None:
    cover = Cover(FRAMES, runs=lambda groups, style: groups["B"] < 3 and style.values == "usual")
    first = [(g["B"], g["T"], x.values, x.wide) for step, g, x, _ in cover.attempts if step == 32]
    assert first[0] == (5, 12, "spikes", True)
    values = list(dict.fromkeys((v, w) for *_, v, w in first))
    assert values == [("spikes", True), ("spikes", False), ("usual", False)]
    rows = list(dict.fromkeys(b for b, *_ in first))
    assert rows == [5, 2, 1]
    assert first[-1] == (2, 12, "usual", False)
    guarded = """m (float[B, T] x) => (float[B, T] y) <float low = {-1.0}> { y = Max (x, low) }"""
    cover = Cover(guarded, runs=lambda _, style: style.values != "guarded")
    assert {x.values for *_, x, _ in cover.attempts if "guarded" in x.values} == {"guarded"}
    step = next(step for step, _, x, _ in cover.attempts if x.values == "guarded")
    assert {x.values for s, _, x, _ in cover.attempts if s == step} == {"guarded"}


def test_longer_cases_are_halved() -> None:
    cover = Cover(FRAMES, runs=lambda groups, _: groups["T"] < 100)
    lengths = [g["T"] for _, g, _, _ in cover.attempts]
    at = lengths.index(319)
    assert list(dict.fromkeys(lengths[at : at + 4]))[:3] == [319, 159, 79]
    assert 160 in lengths
    assert 80 in lengths


def test_a_model_with_a_minimum_gets_more_than_that() -> None:
    cover = Cover(FRAMES, [(1, 50), (2, 61), (1, 67)])
    assert min(g["T"] for g, _ in cover.ran) >= 50
    assert {12 + 50, 13 + 50, 67} <= {g["T"] for g, _ in cover.ran}


def test_a_model_of_patches_gets_multiples() -> None:
    cover = Cover(FRAMES, [(1, 32), (2, 64), (1, 96)])
    assert all(g["T"] % 32 == 0 for g, _ in cover.ran)
    assert {32 + 32 * (n % 7) for n in (13, 67)} <= {g["T"] for g, _ in cover.ran}


def test_a_second_length_is_that_of_the_outline() -> None:
    text = """m (float[B, T, 2] x, float[B, S, 2] z) => (float[B, T, 2] y, float[B, S, 2] w)
        { y = Tanh (x) w = Tanh (z) }"""
    cover = Cover(text, second=lambda length: length + 3)
    found = {(g["T"], g["S"]) for g, _ in cover.ran}
    assert {(12, 1), (13, 24), (67, 7), (319, 1), (160, 12), (64, 66)} <= found


def test_sizes_of_the_user_are_kept() -> None:
    cover = Cover(FRAMES, requested={"T": [8, 9]})
    assert {g["T"] for g, _ in cover.ran} <= {8, 9}
    assert len({g["B"] for g, _ in cover.ran}) > 2
    rows = Cover(FRAMES, requested={"B": [2, 3]})
    assert {g["B"] for g, _ in rows.ran} <= {2, 3}


def test_what_costs_too_much_is_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(condition_cover, "_FRAMES", 400)
    cover = Cover(FRAMES)
    assert all(g["B"] * g["T"] <= 120 for g, _ in cover.ran)  # as the usual ones, or a quarter
    assert sum(g["B"] * g["T"] for g, _ in cover.ran) <= 400
    assert cover.search.left_out
    assert all(" T=" in x for x in cover.search.left_out)
    plenty = Cover(FRAMES, [(3, 2000)])
    assert sum(g["B"] * g["T"] for g, _ in plenty.ran) > 400
    monkeypatch.setattr(condition_cover, "_WORK", 6 * 4 * 100)
    product = FRAMES.replace("y = Tanh (x)", "w = Constant <value_floats = [1.0]> () y = Tanh (x)")
    assert len(Cover(product).ran) == len(cover.ran)  # it multiplies nothing


def table(rows: int) -> str:
    return CHOICE % (rows, ", ".join(map(str, range(rows))))


def test_each_value_of_a_choice_is_in_all_rows_and_beside_others() -> None:
    cover = Cover(table(6))
    arrays = [case.feeds["a"].tolist() for case in cover.cases]
    assert {a[0] for a in arrays if len({*a}) == 1} == {*range(6)}
    assert any(len({*a}) > 1 for a in arrays)
    alone = [x["a"] for *_, x in cover.attempts if x and len({*x["a"]}) == 1]
    assert len(alone) == len({*alone})


def two_tables(first: int, second: int) -> str:
    a, b = (", ".join(map(str, range(n))) for n in (first, second))
    return f"""m (float[B, T] x, int64[B] a, int64[B] b) => (float[B, T, 1] y)
        <float[{first}, 1] t = {{{a}}}, float[{second}, 1] u = {{{b}}}, int64[1] one = {{1}},
         int64[1] two = {{2}}>
        {{ e = Gather (t, a) f = Gather (u, b) g = Add (e, f) h = Unsqueeze (g, one)
          i = Unsqueeze (x, two) y = Add (i, h) }}"""


@pytest.mark.parametrize(("first", "second"), [(3, 4), (6, 20)])
def test_combinations_of_two_choices(first: int, second: int) -> None:
    cover = Cover(two_tables(first, second))
    pairs_had = {
        (int(p), int(q))
        for case in cover.cases
        for p, q in zip(case.feeds["a"], case.feeds["b"], strict=True)
    }
    assert pairs_had == {*itertools.product(range(first), range(second))}
    tried = [x["a"] for *_, x in cover.attempts if x]
    assert first == 3 or max(map(len, tried)) == 32
    assert len([a for a in tried if len(a) == 1]) <= 16


def test_where_choices_do_not_run_together_they_are_left() -> None:
    failing = Cover(two_tables(6, 20), runs=lambda groups, style: groups["B"] < 10)
    assert len([a for *_, x in failing.attempts if x and len(a := x["a"]) > 9]) == 1
    fixed_rows = Cover(two_tables(6, 20), [(2, 7), (2, 1)], requested={"B": [2]})
    assert {len(x["a"]) for *_, x in fixed_rows.attempts if x} == {2}
    assert len([x for *_, x in fixed_rows.attempts if x]) <= 16 + 8


def test_an_outline_has_a_second_length_of_nine_by_default() -> None:
    assert CaseOutline(1, 2, 3, Style()).other == 9
