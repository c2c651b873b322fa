"""Clips without padding: at which lengths a model runs, and its outputs there."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.errors import FeedError
from graphfix.lengths.length_input import KEY
from graphfix.probing.unpadded import ClipTable, UnpaddedRuns, clip_lengths_for
from graphfix.runtime.compared_session import open_session

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
PLAIN = "m (float[B, T, 4] x) => (float[B, T, 4] y) { y = Neg (x) }"
REPAIRED = "m (float[B, T, 4] x, int64[B] ilens) => (float[B, T, 4] y) { y = Neg (x) }"
FIXED = REPAIRED.replace("[B, T, 4]", "[1, 24, 4]").replace("[B] ilens", "[1] ilens")


def model(text: str, lengths: dict[str, str] | None = None) -> ir.Model:
    made = ir.from_onnx_text(HEAD + text)
    if lengths is not None:
        made.metadata_props[KEY] = json.dumps(lengths)
    return made


BY_LENGTH = {"input": "ilens", "axis": "x.1", "kind": "lengths"}


def prepared(
    text: str,
    repaired: ir.Model | None = None,
    dims: dict[str, list[int]] | None = None,
    containers: tuple[int, ...] = (),
    axis: str = "",
    seeds: int | None = None,
    tell: list[str] | None = None,
) -> UnpaddedRuns:
    told = [] if tell is None else tell
    return UnpaddedRuns(model(text), repaired, dims or {}, containers, axis, seeds, told.append)


def run(text: str, *args: Any, **more: Any) -> tuple[UnpaddedRuns, ClipTable]:
    runs = prepared(text, *args, **more)
    with open_session(model(text)) as session:
        return runs, runs.run(session)


def test_each_clip_has_the_models_outputs() -> None:
    told: list[str] = []
    runs, table = run(PLAIN, dims={"T": [5, 9]}, tell=told)
    assert list(table) == [(5, 0), (9, 0)]
    for (length, seed), clips in table.items():
        (clip,) = clips
        assert (clip.length, clip.seed) == (length, seed)
        assert clip.feeds["x"].shape == (1, length, 4)
        np.testing.assert_array_equal(clip.outputs["y"], -clip.feeds["x"])
    assert told == ["T=5 alone", "T=9 alone"]
    assert (runs.firsts, runs.batches, runs.containers) == ([5, 9], (1,), ())
    assert (runs.dim_name, runs.notes, runs.dropped) == ("T", [], [])
    assert runs.length_input is None


def test_lengths_are_tried_until_three_run() -> None:
    runs, table = run(PLAIN)
    assert runs.firsts == [7, 23, 40]
    assert list(table) == [(7, 0), (23, 0), (40, 0)]
    # None is longer than the container.
    assert run(PLAIN, containers=(23,))[0].firsts == [7, 23]
    assert run(PLAIN, containers=(9, 22))[0].firsts == [7]


ONES = ", ".join("1" * 30)
WIDE = f"""m (float[B, 1, T] x) => (float[B, 1, F] y)
    <float[1, 1, 30] w = {{{ONES}}}> {{ y = Conv <kernel_shape = [30]> (x, w) }}"""


def test_lengths_that_do_not_run_are_dropped_once_with_the_reason() -> None:
    runs, _ = run(WIDE)
    assert runs.firsts == [40, 80, 161]
    assert [x.name for x in runs.dropped] == ["T=7 alone", "T=23 alone"]
    assert "Conv" in runs.dropped[0].reason
    runs.drop_case("T=7 alone", "again")
    runs.drop_case("T=8 alone", "new")
    assert [x.name for x in runs.dropped] == ["T=7 alone", "T=23 alone", "T=8 alone"]


def test_no_length_runs() -> None:
    with pytest.raises(FeedError, match=r"at none of the lengths .* \(T=5 alone: .*T=9 alone: "):
        run(WIDE, dims={"T": [5, 9]})
    with pytest.raises(FeedError) as caught:
        run(WIDE, dims={"T": [2, 3, 4, 5]})
    assert "T=4 alone" in str(caught.value)
    assert "T=5 alone" not in str(caught.value)


def test_each_length_that_the_user_gives_is_run() -> None:
    assert run(PLAIN, dims={"T": [5, 9, 6, 8, 5]})[0].firsts == [5, 9, 6, 8]


def test_a_container_holds_the_longest_clip() -> None:
    message = "a container of 8 does not hold a clip of 9"
    with pytest.raises(FeedError, match=message):
        run(PLAIN, dims={"T": [5, 9]}, containers=(6, 8))
    assert run(PLAIN, dims={"T": [5, 9]}, containers=(6, 9))[0].containers == (6, 9)


def test_rows_of_a_container_are_other_clips_of_other_lengths() -> None:
    runs, table = run(PLAIN, dims={"T": [10], "B": [3, 1]})
    assert runs.batches == (3, 1)
    assert runs.firsts == [10]
    assert [length for length, _ in table] == [10, 6, 8]
    for clips in table.values():
        assert len(clips) == 3
        assert not np.array_equal(clips[0].feeds["x"], clips[1].feeds["x"])
    # As many as rows have no length of their own.
    assert [n for n, _ in run(PLAIN, dims={"T": [10, 9], "B": [3]})[1]] == [10, 9, 6]
    assert [n for n, _ in run(PLAIN, dims={"T": [10, 9, 8], "B": [2]})[1]] == [10, 9, 8]
    assert [n for n, _ in run(PLAIN, dims={"T": [1], "B": [2]})[1]] == [1]
    assert [n for n, _ in run(PLAIN, dims={"B": [2]})[1]] == [7, 23, 40]


def test_batches_of_no_clip_are_left_out() -> None:
    assert run(PLAIN, dims={"T": [5], "B": [0, 2, 2]})[0].batches == (2,)
    assert run(PLAIN, dims={"T": [5], "B": [0]})[0].batches == (1,)


def test_a_batch_that_is_padded_holds_one_clip() -> None:
    runs, table = run(PLAIN, dims={"T": [5]}, axis="B")
    assert runs.dim_name == "B"
    assert runs.batches == (1,)
    assert {len(clips) for clips in table.values()} == {1}


@pytest.mark.parametrize(
    ("outputs", "seeds", "count"),
    [
        ("float[B, T, 4] y", None, 1),
        ("int64[B, 1, 4] z", None, 5),
        ("float[B, T, 4] y, int64[B, 1, 4] z", None, 2),
        ("float[B, T, 4] y", 3, 3),
        ("int64[B, 1, 4] z", 1, 1),
    ],
)
def test_whole_numbers_are_tried_with_more_contents(
    outputs: str, seeds: int | None, count: int
) -> None:
    text = f"""m (float[B, T, 4] x) => ({outputs})
        {{ y = Neg (x) z = ArgMax <axis = 1> (x) }}"""
    runs, table = run(text, dims={"T": [5]}, seeds=seeds)
    assert list(runs.seeds) == list(range(count))
    assert list(table) == [(5, seed) for seed in range(count)]
    contents = {clips[0].feeds["x"].tobytes() for clips in table.values()}
    assert len(contents) == count


def test_the_repaired_model_counts_the_contents_and_names_the_lengths() -> None:
    text = REPAIRED.replace("float[B, T, 4] y", "int64[B, 1, 4] y").replace(
        "Neg (x)", "ArgMax <axis = 1> (x)"
    )
    runs = prepared(PLAIN, model(text, BY_LENGTH))
    assert len(runs.seeds) == 5
    assert runs.length_input is not None
    assert runs.length_input.input == "ilens"


LOG = "m (float[B, T, 4] x) => (float[B, T, 4] y) { %s y = Log (a) }"


def test_contents_above_0_where_others_give_no_number() -> None:
    runs, table = run(LOG % "m = ReduceMin <axes = [1]> (x) a = Min (m, x)", dims={"T": [9, 14]})
    assert runs.notes == ["inputs are above 0: with others 'y' is not a finite number"]
    assert all((clips[0].feeds["x"] > 0).all() for clips in table.values())
    assert (runs.clips.make_clip(9, 0, 0)["x"] > 0).all()


def test_contents_stay_where_no_contents_give_a_number() -> None:
    runs, table = run(LOG % "b = Abs (x) a = Neg (b)", dims={"T": [9]})
    assert runs.notes == []
    assert any((clips[0].feeds["x"] < 0).any() for clips in table.values())
    assert (runs.clips.make_clip(9, 0, 0)["x"] < 0).any()


# A repair that has fixed sizes


def test_clips_fit_into_the_size_that_a_repair_has_fixed() -> None:
    runs, table = run(PLAIN, model(FIXED, BY_LENGTH))
    assert runs.containers == (24,)
    assert runs.firsts == clip_lengths_for(24)
    assert runs.dropped == []
    clip = table[24, 0][0]
    assert clip.feeds["ilens"].tolist() == [24]


def test_lengths_of_the_user_are_kept_as_far_as_they_fit() -> None:
    repaired = model(FIXED, BY_LENGTH)
    assert run(PLAIN, repaired, dims={"T": [5, 24, 23, 30]})[0].firsts == [5, 23]
    assert run(PLAIN, repaired, dims={"T": [24]})[0].firsts == clip_lengths_for(24)


def test_other_containers_than_the_fixed_one_are_refused() -> None:
    repaired = model(FIXED, BY_LENGTH)
    runs, _ = run(PLAIN, repaired, containers=(24, 48))
    assert runs.containers == (24,)
    assert [(x.name, x.reason) for x in runs.dropped] == [("T=48", "the model is fixed at 24")]
    # Without the fixed one among them the user is believed.
    runs, _ = run(PLAIN, repaired, dims={"T": [5]}, containers=(48,))
    assert (runs.containers, runs.dropped) == ((48,), [])


def test_another_dim_may_be_fixed() -> None:
    text = "m (float[B, T, F] x) => (float[B, T, F] y) { y = Neg (x) }"
    repaired = model(text.replace("F]", "6]"))
    runs, table = run(text, repaired, dims={"T": [5]}, axis="T")
    assert runs.containers == ()
    assert table[5, 0][0].feeds["x"].shape == (1, 5, 6)
    # A size of the user's gives way to it.
    _, table = run(text, repaired, dims={"T": [5], "F": [3]}, axis="T")
    assert table[5, 0][0].feeds["x"].shape == (1, 5, 6)


def test_numbers_that_were_numbers_and_other_inputs_are_not_fixed_by_a_repair() -> None:
    repaired = model("m (float[B, T, 4] x, float[24, 2] z) => (float[B, T, 4] y) { y = Neg (x) }")
    runs, _ = run(PLAIN, repaired, dims={"T": [5]})
    assert runs.containers == ()
    # Nor is what an input of the same name has in another rank.
    both = "m (float[B, T, 4] x, float[B, T] z) => (y, w) { y = Neg (x) w = Neg (z) }"
    runs, _ = run(both, model(both.replace("[B, T] z", "[B, 24, 1] z")), dims={"T": [5]})
    assert runs.containers == ()


def test_inputs_that_a_repair_made_constants_are_fed_the_same() -> None:
    text = PLAIN.replace("x)", "x, float k)", 1).replace("Neg (x)", "Mul (x, k)")
    repaired = model(text)
    graphfix.run(repaired, "fix-input:k=3")
    _, table = run(text, repaired, dims={"T": [5]})
    assert table[5, 0][0].feeds["k"].item() == 3


@pytest.mark.parametrize(
    ("size", "lengths"),
    [
        (24, [24, 23, 22, 14, 13, 6, 2]),
        (100, [100, 99, 93, 60, 59, 25, 8]),
        (3, [3, 2, 1]),
        (2, [2, 1]),
        (1, [1]),
    ],
)
def test_clips_of_both_parities_for_a_container(size: int, lengths: list[int]) -> None:
    assert clip_lengths_for(size) == lengths
