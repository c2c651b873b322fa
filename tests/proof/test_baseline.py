"""The original's runs: its cases, garbage in their padding, and what is noted of them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.errors import FeedError
from graphfix.feeds.case import Case
from graphfix.feeds.coverage import Coverage
from graphfix.feeds.mask_holes import HOLES
from graphfix.lengths.length_input import KEY
from graphfix.proof import baseline as baselines
from graphfix.proof.baseline import Baseline, BaselineCache, OriginalRun
from graphfix.proof.compare import Tolerance
from graphfix.runtime.compared_session import open_original
from graphfix.runtime.local_session import Session
from graphfix.runtime.run_errors import OverBudgetError, RunError

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
PLAIN = "m (float[B, T] x) => (float[B, T] y) { y = Neg (x) }"
# y keeps content apart, z mixes all frames of x.
MASKED = """m (float[B, T, 2] x, int64[B, T] mask) => (float[B, T, 2] y, float[B, T, 2] z)
    <int64[1] ax = {2}, float nil = {0.0}, int64 zero = {0}>
    { e = Equal (mask, zero) u = Unsqueeze (e, ax) y = Where (u, nil, x)
      m = ReduceMean <axes = [1]> (x) z = Sub (y, m) }"""
LENGTHS = """m (float[B, T] x, int64[B] ilens) => (float[B, T] y)
    <int64 zero = {0}, int64 one = {1}, int64[1] ax = {1}, float nil = {0.0}>
    { n = Shape <start = 1, end = 2> (x) k = Squeeze (n) r = Range (zero, k, one)
      u = Unsqueeze (ilens, ax) l = Less (r, u) y = Where (l, x, nil) }"""


def model(text: str) -> ir.Model:
    return ir.from_onnx_text(HEAD + text)


def prepared(
    text: str | ir.Model, after: ir.Model | None = None, tell: list[str] | None = None
) -> Baseline:
    graph = text if isinstance(text, ir.Model) else model(text)
    told = [] if tell is None else tell
    return Baseline(graph, graph, lambda: after or graph, Tolerance(), told.append)


def run(
    text: str | ir.Model,
    after: ir.Model | None = None,
    *,
    tell: list[str] | None = None,
    cases: list[Case] | None = None,
    dims: dict[str, list[int]] | None = None,
    feeds: Any = None,
    seed: int = 0,
) -> Baseline:
    made = prepared(text, after, tell)
    made.run_cases(cases, dims, feeds, seed)
    return made


def test_the_original_runs_made_up_cases() -> None:
    told: list[str] = []
    made = run(PLAIN, tell=told)
    assert len(made.runs) > 5
    assert {f"before, {x.case.name}" for x in made.runs} == set(told)
    for item in made.runs:
        np.testing.assert_array_equal(item.outputs["y"], -item.case.feeds["x"])
        assert (item.clean_masks, item.isolated_masks) == ({}, {})
    assert (made.notes, made.dropped, made.chains, made.ignored_inputs) == ([], [], [], [])
    assert made.leak_notes(()) == ()


def test_the_seed_and_the_sizes_are_the_callers() -> None:
    first, same, other = (run(PLAIN, seed=x).runs[0].case.feeds["x"] for x in (0, 0, 1))
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)
    assert {x.case.dims["T"] for x in run(PLAIN, dims={"T": [5]}).runs} == {5}


def case(size: int, name: str = "mine") -> Case:
    return Case(name, {"B": 1, "T": size}, {"x": np.ones((1, size), np.float32)})


def test_given_cases_are_run_and_no_others() -> None:
    told: list[str] = []
    made = run(PLAIN, cases=[case(2), case(3, "other")], tell=told)
    assert [x.case.name for x in made.runs] == ["mine", "other"]
    assert told == ["before, mine", "before, other"]
    assert made.coverage_of(["mine"]) == Coverage()
    assert made.budget.over == []


def test_no_given_case_is_not_the_same_as_none() -> None:
    assert run(PLAIN, cases=[]).runs == []


def test_feeds_come_before_cases() -> None:
    feeds = {"x": np.ones((1, 4), np.float32)}
    made = run(PLAIN, cases=[case(2)], feeds=feeds)
    assert [x.case.feeds["x"].shape for x in made.runs] == [(1, 4)]
    assert not made.chains


def test_a_given_case_that_does_not_run() -> None:
    wide = PLAIN.replace("Neg (x)", "Add (x, w)").replace(")\x20{", ") <float[2] w = {1, 2}> {")
    with pytest.raises(FeedError, match="does not run on the case 'mine': "):
        run(wide, cases=[case(3)])


# What is said of the cases


def test_coverage_is_of_what_was_compared() -> None:
    made = run(PLAIN)
    whole = made.coverage_of([x.case.name for x in made.runs])
    first = made.coverage_of([made.runs[0].case.name])
    assert "T 1 to 319" in whole.covered
    assert "T 7" in first.covered


IGNORED = """m (float[B, T] x, float[B, T] z, float[B] w) => (float[B, T] y) <float nil = {0.0}>
    { v = Mul (z, nil) y = Add (x, v) }"""


def test_inputs_whose_change_reaches_no_output() -> None:
    made = run(IGNORED)
    # The one that nothing reads is said elsewhere.
    assert made.ignored_inputs == ["z"]
    assert made.notes == ["the graph does not use the input 'w': what it says is not heard"]
    coverage = made.coverage_of([x.case.name for x in made.runs])
    assert "a change of 'z' that reaches an output" in coverage.missing
    assert not any("'z'" in x for x in coverage.covered)
    assert any("'x'" in x for x in coverage.covered)


def test_an_output_that_is_always_nan_does_not_change() -> None:
    made = run("""m (float[B, T] x, float[B, T] z) => (float[B, T] y, float[B, T] w)
        <float nil = {0.0}, float least = {-1.0}>
        { v = Mul (z, nil) y = Add (x, v) n = Sqrt (least) w = Add (y, n) }""")
    assert made.ignored_inputs == ["z"]


def test_only_some_inputs_are_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = IGNORED.replace("float[B, T] x, float[B, T] z", "float[B, T] z, float[B, T] x")
    for most, ignored in ((2, ["z"]), (1, ["z"]), (0, [])):
        monkeypatch.setattr(baselines, "_MOST_CHANGED_INPUTS", most)
        assert run(twice).ignored_inputs == ignored


def test_loud_inputs_may_hide_what_quiet_ones_show() -> None:
    made = run("""m (float[B, T] x, float[B, T] z) => (float[B, T] y)
        <float most = {0.2}, float least = {-0.2}, float big = {1000.0}>
        { a = Mul (x, big) b = Tanh (a) c = Abs (z) d = Clip (c, most, most) e = Mul (b, b)
          f = Min (c, most) y = Add (e, f) }""")
    assert made.ignored_inputs == []


def test_what_could_not_be_changed_is_not_called_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    made = run(IGNORED)

    def refuse(*_: Any) -> Any:
        raise RunError("no")

    with open_original(made.graph) as session:
        assert not made._affects_outputs(session, "z", 0)
        monkeypatch.setattr(session, "run", refuse)
        assert made._affects_outputs(session, "z", 0)


def test_only_cases_that_feed_an_input_show_whether_it_is_ignored() -> None:
    made = run(IGNORED)
    feeds = made.runs[0].case.feeds
    empty = {**feeds, "z": feeds["z"][:0]}
    made.runs = [
        replace(made.runs[0], case=replace(made.runs[0].case, feeds=fed, poison=poison))
        for fed, poison in ((feeds, "NaN"), (empty, ""))
    ]
    with open_original(made.graph) as session:
        assert made._affects_outputs(session, "z", 0)  # as far as it is known


def test_states_are_fed_back() -> None:
    made = run("""m (float[B, 2] x, float[B, 2] state) => (float[B, 2] y, float[B, 2] stateN)
        { y = Add (x, state) stateN = Identity (y) }""")
    assert [str(x).partition(" (")[0] for x in made.chains] == ["4 steps with 1 state fed back"]


def test_given_cases_have_no_steps() -> None:
    text = """m (float[B, 2] x, float[B, 2] state) => (float[B, 2] y, float[B, 2] stateN)
        { y = Add (x, state) stateN = Identity (y) }"""
    assert not run(text, feeds={k: np.ones((1, 2), np.float32) for k in ("x", "state")}).chains


LOG = "m (float[B, T] x) => (float[B, T] y) { %s y = Log (a) }"


def test_inputs_above_0_where_others_give_no_number() -> None:
    made = run(LOG % "n = Neg (x) m = ReduceMax <axes = [1]> (n) a = Neg (m)")
    assert [x for x in made.notes if "above 0" in x] == [
        "inputs are above 0: with others 'y' is not a finite number"
    ]
    assert all((x.case.feeds["x"] > 0).all() for x in made.runs)


def test_inputs_stay_where_no_inputs_give_a_number() -> None:
    made = run(LOG % "b = Abs (x) c = Neg (b) a = Identity (c)")
    assert made.notes == []
    assert any((x.case.feeds["x"] < 0).any() for x in made.runs)


def test_sizes_that_a_repair_fixed_are_run_alone() -> None:
    after = model(PLAIN.replace("[B, T] x", "[B, 6] x"))
    made = run(PLAIN, after)
    assert {x.case.dims["T"] for x in made.runs} == {6}
    # The user's sizes come first.
    assert {x.case.dims["T"] for x in run(PLAIN, after, dims={"T": [4]}).runs} == {4}


def test_inputs_that_a_repair_made_constants_are_fed_the_same() -> None:
    text = "m (float[B, T] x, float k) => (float[B, T] y) { y = Mul (x, k) }"
    after = model(text)
    graphfix.run(after, "fix-input:k=3")
    made = run(text, after)
    assert made.constants["k"].item() == 3
    assert {x.case.feeds["k"].item() for x in made.runs} == {3}
    assert run(text).constants == {}


def test_a_repaired_model_that_cannot_be_compared_gives_no_constants() -> None:
    other = model(PLAIN.replace("[B, T] x", "[B, T] z").replace("(x)", "(z)"))
    assert run(PLAIN, other).constants == {}


# Padding


def poisons(made: Baseline) -> list[tuple[str, str]]:
    return [(x.case.base, x.case.poison) for x in made.runs if x.case.poison]


def test_which_cases_get_garbage_in_their_padding() -> None:
    told: list[str] = []
    made = run(MASKED, tell=told)
    by_base: dict[str, list[str]] = {}
    for base, poison in poisons(made):
        if HOLES not in base:
            by_base.setdefault(base, []).append(poison)
    cases = {x.case.name: x.case for x in made.runs}
    layouts = [(baselines._padding_layout(cases[x]), kinds) for x, kinds in by_base.items()]
    assert layouts == [
        ("behind others", ["NaN", "large values"]),
        ("behind others", ["NaN", "large values", "other numbers"]),
        ("behind all rows", ["large values", "other numbers"]),
        ("on the left", ["NaN"]),
    ]
    names = [x.case.base if x.case.holes else x.case.name for x in made.runs]
    assert {f"before, {x}" for x in names} == set(told)
    assert sum(HOLES in x for x in names) == 1
    assert not any(0 in rows for x in by_base for rows in cases[x].valid.values())


def padded_case(name: str, *ends: int, side: Any = "right") -> OriginalRun:
    return OriginalRun(Case(name, {"T": 5}, {}, {"T": ends}, side=side), {})


def test_of_each_layout_only_the_last_cases_get_garbage() -> None:
    made = prepared(MASKED)
    full = [padded_case(f"full {n}", 5, n) for n in range(1, 4)]
    short = [padded_case(f"short {n}", n, 5) for n in range(1, 4)]
    left = [padded_case(f"left {n}", n, side="left") for n in range(1, 4)]
    others = [padded_case("whole", 5, 5), padded_case("empty", 5, 0)]
    everything = ("NaN", "large values", "other numbers")
    made.runs = [*left, *full, *others, *short]
    assert [(run.case.name, kinds) for run, kinds in made._cases_to_poison()] == [
        ("full 2", everything[:2]),
        ("full 3", everything),
        ("short 3", everything[1:]),
        ("left 3", everything[:1]),
    ]
    made.runs = [*others, *short]
    assert [(run.case.name, kinds) for run, kinds in made._cases_to_poison()] == [
        ("short 3", everything)
    ]
    made.runs = others
    assert made._cases_to_poison() == []


def test_without_a_full_row_the_short_ones_get_every_garbage() -> None:
    made = run(MASKED.replace("[B,", "[1,"))
    kinds = [p for base, p in poisons(made) if "left" not in base]
    assert kinds == ["NaN", "large values", "other numbers"]


def test_what_garbage_reaches_is_no_clean_content() -> None:
    made = run(MASKED)
    garbage = [x for x in made.runs if x.case.poison and not x.case.holes]
    assert all(x.clean_masks.keys() == {"y", "z"} for x in garbage)
    for item in garbage:
        (lengths,) = item.case.valid.values()
        for row, length in enumerate(lengths):
            assert item.clean_masks["y"][row].any()
            full = length == item.case.dims["T"]
            assert item.clean_masks["z"][row].any() == full


def test_leaks_of_the_original_are_noted_once_for_each_output_and_garbage() -> None:
    made = run(MASKED)
    notes = made.leak_notes(())
    assert [x.partition(" from ")[0] for x in notes] == [
        "the original leaks NaN",
        "the original leaks large values",
    ]
    assert all("into 'z' too: 22 of 68 elements are excluded" in x for x in notes)
    assert all("in case 'B=2 T=23 lengths 23,11, " in x for x in notes)
    assert made.leak_notes(("NaN",)) == notes[1:]
    assert made.leak_notes(("NaN", "large values")) == ()


def test_a_model_that_keeps_content_apart_leaks_nothing() -> None:
    safe = MASKED.replace("z = Sub (y, m)", "z = Neg (y)").replace(
        "m = ReduceMean", "m = ReduceMax"
    )
    made = run(safe)
    assert poisons(made)
    assert made.leak_notes(()) == ()


def test_a_row_without_content_that_changes_no_other() -> None:
    made = run(MASKED)
    (empty,) = (x for x in made.runs if x.case.empty_rows)
    assert empty.isolated_masks.keys() == {"y", "z"}
    assert all(not x.isolated_masks for x in made.runs if x is not empty)
    # Such rows are noted nowhere, and get no garbage in the cases that are compared.
    assert all(empty.case.name not in note for note in made.leak_notes(()))


def test_garbage_that_cannot_be_run_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Session.run

    def refuse(self: Session, feeds: Any) -> Any:
        if np.isnan(feeds["x"]).any():
            raise RunError("no NaN here")
        return original(self, feeds)

    monkeypatch.setattr(Session, "run", refuse)
    made = run(MASKED)
    assert {p for _, p in poisons(made)} == {"large values", "other numbers"}
    assert {(x.name.partition(", NaN")[1], x.reason) for x in made.dropped} == {
        (", NaN", "no NaN here")
    }
    count = len(made.dropped)

    def exhaust(self: Session, feeds: Any) -> Any:
        if np.isnan(feeds["x"]).any():
            raise OverBudgetError("late")
        return original(self, feeds)

    monkeypatch.setattr(Session, "run", exhaust)
    made = run(MASKED)
    assert {p for _, p in poisons(made)} == {"large values", "other numbers"}
    assert count == 3
    assert made.dropped == []


@pytest.mark.parametrize(
    ("side", "valid", "layout"),
    [
        ("right", {"T": (5, 3)}, "behind others"),
        ("right", {"T": (3, 5)}, "behind all rows"),
        ("left", {"T": (5, 3)}, "on the left"),
        ("right", {"T": (5, 3), "S": (2, 4)}, "behind all rows"),
        ("right", {"T": (5, 3), "N": (1, 1)}, "behind others"),
    ],
)
def test_where_a_case_has_padding(side: Any, valid: dict[str, Any], layout: str) -> None:
    made = Case("a", {"T": 5, "S": 4}, {}, valid, side=side)
    assert baselines._padding_layout(made) == layout


BY_LENGTH = {"input": "ilens", "axis": "x.1", "kind": "lengths"}


def with_lengths(text: str) -> ir.Model:
    made = model(text)
    made.metadata_props[KEY] = json.dumps(BY_LENGTH)
    return made


LEFT = "padding is left to graphfix padded: there the repair differs"


def test_a_repair_that_reads_lengths_of_the_original_differs_in_padding() -> None:
    made = run(LENGTHS, with_lengths(LENGTHS))
    assert made.notes == [LEFT]
    assert made.runs
    assert not any(x.case.is_ragged for x in made.runs)
    # What the original knew already, or what is new to it, is no reason.
    assert LEFT not in run(with_lengths(LENGTHS), with_lengths(LENGTHS)).notes
    plain = LENGTHS.replace(", int64[B] ilens", "").replace("Unsqueeze (ilens", "Unsqueeze (n")
    assert LEFT not in run(plain, with_lengths(LENGTHS)).notes
    assert any(x.case.is_ragged for x in run(LENGTHS).runs)


def test_an_input_is_a_length_where_a_repair_takes_it_for_that() -> None:
    unread = """m (float[B, T] x, int64[B] ilens) => (float[B, T] y, int64[B] n)
        { y = Neg (x) n = Identity (ilens) }"""

    def why(made: Baseline) -> str:
        return next(x.role.why for x in made.signature.inputs if x.name == "ilens")

    assert why(run(unread, with_lengths(unread))) == "a repair takes it for that"
    # The original knew it already.
    assert why(run(with_lengths(unread), with_lengths(unread))) == why(run(unread))


# How else the original runs


def test_outputs_with_optimizations_are_kept() -> None:
    made = run(PLAIN)
    few = made.default_outputs(made.runs[:2])
    assert few is not None
    assert list(few) == [x.case.name for x in made.runs[:2]]
    for item in made.runs[:2]:
        np.testing.assert_array_equal(few[item.case.name]["y"], item.outputs["y"])
    assert made.default_outputs(made.runs) is few


def test_no_outputs_with_optimizations_where_it_does_not_load(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = run(PLAIN)
    made._source = tmp_path / "gone.onnx"
    assert made.default_outputs(made.runs) is None
    assert made.default_outputs([]) is None


QUANTIZED = """m (float[B, 4] x) => (float[B, 4] y) <float scale = {0.1}, int8 zero = {0}>
    { q = QuantizeLinear (x, scale, zero) y = DequantizeLinear (q, scale, zero) }"""


def test_a_model_that_rounds_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    made = run(QUANTIZED, tell=told)
    seen: list[list[int]] = []
    original = baselines.measure_own_rounding

    def measure(*args: Any, **more: Any) -> Any:
        seen.append([sum(x.size for x in feeds.values()) for feeds, _ in args[2]])
        return original(*args, **more)

    monkeypatch.setattr(baselines, "measure_own_rounding", measure)
    told.clear()
    rounding = made.own_rounding(Tolerance(), optimize=False)
    assert rounding is not None
    assert made.own_rounding(Tolerance(), optimize=False) is rounding
    assert told == ["how far the original differs from itself"]
    assert made.own_rounding(Tolerance(), optimize=True) is not rounding
    assert Counter(told) == {"how far the original differs from itself": 2}
    # The smallest and the largest in turn, each once.
    sizes = sorted(x.case.element_count for x in made.runs)
    assert seen[0][:4] == [sizes[0], sizes[-1], sizes[1], sizes[-2]]
    assert sorted(seen[0]) == sizes


def test_a_model_that_does_not_round_is_not_measured() -> None:
    told: list[str] = []
    made = run(PLAIN, tell=told)
    told.clear()
    assert made.own_rounding(Tolerance(), optimize=False) is None
    assert not told


def test_garbage_and_empty_rows_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    masked = MASKED.replace("z = Sub (y, m)", "q = QuantizeLinear (y, s, n) z = Cast <to = 1> (q)")
    made = run(
        masked.replace("int64 zero = {0}", "int64 zero = {0}, float s = {1.0}, int8 n = {0}")
    )
    seen: list[Any] = []
    monkeypatch.setattr(
        baselines, "measure_own_rounding", lambda *args, **_: seen.extend(args[2]) or None
    )
    assert made.own_rounding(Tolerance(), optimize=False) is None
    assert len(seen) == sum(not x.case.poison and not x.case.empty_rows for x in made.runs)
    assert not any(np.isnan(feeds["x"]).any() for feeds, _ in seen)


def test_the_repaired_model_is_let_go() -> None:
    after = model(PLAIN)
    made = prepared(PLAIN, after)
    assert made._after() is after
    made.forget_repaired()
    assert made._after() is made.graph


def test_a_cache_has_the_graph_of_what_it_keeps() -> None:
    cache = BaselineCache()
    assert (cache.graph, cache.failed) == (None, [])
    cache.original = prepared(PLAIN)
    assert cache.graph is cache.original.graph
