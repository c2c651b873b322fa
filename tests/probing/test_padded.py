"""Clips alone against clips in containers: what leaks must be seen, what is safe must pass."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.cli import main
from graphfix.errors import FeedError, ModelError
from graphfix.feeds.clips import ClipMaker, find_padded_group
from graphfix.feeds.signature import Signature
from graphfix.lengths.length_input import KEY as LENGTHS_KEY
from graphfix.lengths.length_input import LengthInput
from graphfix.probing.in_container import PaddedDiff, crop_to_clip
from graphfix.probing.padded import PaddedVerdict, padded
from graphfix.proof.between_roundings import rounds_somewhere
from graphfix.proof.compare import OutputDiff, Tolerance
from graphfix.proof.own_rounding import OwnRounding

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
PLAIN = "m (float[B, T, 4] x) => (float[B, T, 4] y) { a = Relu (x)  y = Neg (a) }"
MEAN = """m (float[B, T, 4] x) => (float[B, T, 4] y)
    { mean = ReduceMean <axes = [1]> (x)  y = Sub (x, mean) }"""
CONV = """m (float[B, 4, T] x) => (float[B, 4, T] y)
    <float[4, 1, 3] w = {1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3}>
    { y = Conv <kernel_shape = [3], pads = [1, 1], group = 4> (x, w) }"""
# The mean of each row over its valid frames; {n} is the length that each row is taken to have.
MASKED_MEAN = """m (float[B, T, 4] x, int64[B] ilens) => (float[B, T, 4] y)
    <int64 zero = {0}, int64 one = {1}, int64[1] ax1 = {1}, int64[1] ax2 = {2}, float nil = {0.0}>
    { n = %s
      s = Shape <start = 1, end = 2> (x)  k = Squeeze (s)  r = Range (zero, k, one)
      u = Unsqueeze (n, ax1)  l = Less (r, u)  m = Unsqueeze (l, ax2)
      z = Where (m, x, nil)  sum = ReduceSum (z, ax1)
      f = Cast <to = 1> (u)  d = Unsqueeze (f, ax2)  mean = Div (sum, d)  y = Sub (x, mean) }"""
ATTENTION = """m (float[B, T, 4] x, int64[B, T] mask) => (float[B, T, 4] y)
    <int64[1] ax = {1}, int64 zero = {0}, float fill = {-10000.0}>
    { t = Transpose <perm = [0, 2, 1]> (x)  s = MatMul (x, t)
      e = Equal (mask, zero)  u = Unsqueeze (e, ax)  m = Where (u, fill, s)
      p = Softmax (%s)  y = MatMul (p, x) }"""
BY_LENGTH = {"input": "ilens", "axis": "x.1", "kind": "lengths"}
SIZES = {"T": [5, 9]}


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(signal, "signal", lambda *_: None)


def model(text: str, lengths: dict[str, str] | None = None) -> ir.Model:
    made = ir.from_onnx_text(HEAD + text)
    if lengths is not None:
        made.metadata_props[LENGTHS_KEY] = json.dumps(lengths)
    return made


def masked_mean(length: str = "Identity (ilens)") -> ir.Model:
    return model(MASKED_MEAN % length, BY_LENGTH)


# A model of one size


def fixed(text: str, size: int, lengths: dict[str, str] | None = None) -> ir.Model:
    made = model(text, lengths)
    graphfix.run(made, f"fix-dims:T={size}:B=1")
    return made


def test_a_fixed_model_is_tried_in_its_own_container_only():
    made = fixed(MASKED_MEAN % "Identity (ilens)", 24, BY_LENGTH)
    verdict = padded(made, original=model(PLAIN.replace("Neg (a)", "Relu (a)")), container=[24, 48])
    assert {c.container for c in verdict.checks} == {24}
    assert {c.clip for c in verdict.checks} == {24, 23, 22, 14, 13, 6, 2}
    assert [(x.name, x.reason) for x in verdict.dropped] == [("T=48", "the model is fixed at 24")]


def test_clips_that_a_user_names_are_taken():
    verdict = padded(fixed(PLAIN, 24), original=model(PLAIN), dims=SIZES)
    assert verdict.ok
    assert {(c.clip, c.container) for c in verdict.checks} == {(5, 24), (9, 24)}


def test_a_fixed_model_that_leaks_is_told():
    verdict = padded(fixed(MEAN, 24), original=model(MEAN))
    assert not verdict.ok
    assert {c.clip for c in verdict.checks if c.ok} == {24}


# What leaks and what does not


def test_what_is_local_along_time_is_safe():
    verdict = padded(model(PLAIN), dims=SIZES, container=24)
    assert verdict.ok, str(verdict)
    assert len(verdict.checks) == 2 * 3
    assert {(c.clip, c.container) for c in verdict.checks} == {(5, 24), (9, 24)}
    assert {c.fill for c in verdict.checks} == {"zero", "noise", "large"}
    assert str(verdict).startswith("the same in all 6 comparisons: not one number differs")
    assert verdict.told == ()
    assert any("no input tells the model" in note for note in verdict.notes)


def test_a_mean_over_padding_is_seen_with_every_padding():
    verdict = padded(model(MEAN), dims=SIZES, container=24)
    assert not verdict.ok
    assert not any(check.ok for check in verdict.checks)
    assert verdict.worst is not None
    assert verdict.worst.diff.max_abs > 100
    for part in ("output 'y'", f"{verdict.worst.diff.max_abs:.3g}", "6 of 6", "padding large"):
        assert part in str(verdict)


def test_a_convolution_takes_zeros_for_its_own_padding_and_nothing_else():
    verdict = padded(model(CONV), dims=SIZES, container=24)
    ok = {fill: all(c.ok for c in verdict.checks if c.fill == fill) for fill in ("zero", "noise")}
    assert ok == {"zero": True, "noise": False}
    # A container as long as the clip has no padding.
    assert padded(model(CONV), dims={"T": [9]}, container=9).ok


def test_a_mask_of_the_model_is_made_to_fit():
    safe, leaky = (model(ATTENTION % x) for x in ("m", "s"))
    verdict = padded(safe, dims=SIZES, container=[12, 24])
    assert verdict.ok, str(verdict)
    assert verdict.told == ("mask",)
    assert {c.container for c in verdict.checks} == {12, 24}
    assert not padded(leaky, dims=SIZES, container=24).ok


def test_a_clip_is_as_long_as_what_a_pad_reflects_of_it():
    m = model("""m (float[B, T] x) => (float[B, Q] y) <int64[4] pads = {0, 30, 0, 0}>
        { y = Pad <mode = "reflect"> (x, pads) }""")
    clips = ClipMaker(signature := Signature(m), find_padded_group(signature, "", {}, None), {})
    assert clips.make_clip(31, 0, 0)["x"].shape == (1, 31)
    with pytest.raises(FeedError, match="a Pad reflects more than there is"):
        clips.make_clip(30, 0, 0)  # ONNX Runtime 1.24.1 would run it


def test_poison_is_put_in_on_request():
    """A product with 0 keeps large values out, and NaN not."""
    text = """m (float[B, T] x, float[B, T] mask) => (float[B, 1] y)
        <int64[1] ax = {1}> { z = Mul (x, mask)  y = ReduceSum (z, ax) }"""
    assert padded(model(text), dims=SIZES, container=24).ok
    for fill in ("nan", "inf"):
        verdict = padded(model(text), dims=SIZES, container=24, fills=(fill,))
        assert not verdict.ok
        assert "NaN" in str(verdict)
        json.dumps(verdict.to_json(), allow_nan=False)


def test_the_worst_comparison_is_in_json_where_there_is_one() -> None:
    worst, usual = (
        PaddedDiff(5, 9, "zero", (5,), 0, OutputDiff("y", "c", ok=False, max_abs=x))
        for x in (2.0, 1.0)
    )
    verdict = PaddedVerdict(False, (usual, worst, usual), "T", None, (), Tolerance())
    data = verdict.to_json()
    assert data["worst"] == data["checks"][1]
    assert data["worst"] != data["checks"][0]
    assert "case" not in data["worst"]
    nothing = PaddedVerdict(False, (), "T", None, (), Tolerance(), reason="no container runs")
    assert nothing.to_json()["worst"] is None


def test_last_frames_and_whole_numbers_are_compared_exactly():
    text = """m (float[B, T, 4] x) => (int64[B, 1, 4] y) { y = ArgMax <axis = 1> (x) }"""
    verdict = padded(model(text), dims=SIZES, container=24)
    assert not verdict.ok
    assert "elements" in str(verdict)


def test_whole_numbers_get_several_contents():
    """The largest of a row changes with its padding in some contents only."""
    text = """m (float[B, T, 4] x) => (int64[B, 1] y)
        { s = ReduceMean <axes = [1], keepdims = 0> (x)  y = ArgMax <axis = 1> (s) }"""
    verdict = padded(model(text), dims=SIZES, container=24)
    assert not verdict.ok
    assert len(verdict.checks) == 5 * len(
        padded(model(text), dims=SIZES, container=24, seeds=1).checks
    )
    assert all(np.isnan(check.diff.cosine) for check in verdict.checks)


def test_an_output_that_is_never_a_number_is_not_safe():
    text = "m (float[B, T, 4] x) => (float[B, T, 4] y) { %s y = Log (a) }"
    assert padded(model(text % "a = Identity (x)"), dims=SIZES, container=24).ok
    verdict = padded(model(text % "p = Abs (x) a = Neg (p)"), dims=SIZES, container=24)
    assert not verdict.ok
    assert "no finite number" in str(verdict)


def test_a_logarithm_gets_contents_above_0():
    text = """m (float[B, T, 4] x) => (float[B, 4] y)
        { l = Log (x)  y = ReduceMean <axes = [1], keepdims = 0> (l) }"""
    verdict = padded(model(text), dims=SIZES, container=24)
    assert not verdict.ok
    assert any("above 0" in note for note in verdict.notes)


# The input that a repair has added


def test_a_repaired_model_is_told_the_lengths_by_its_metadata():
    verdict = padded(masked_mean(), dims=SIZES, container=[12, 60])
    assert verdict.ok, str(verdict)
    assert verdict.told == ("ilens",)
    assert verdict.fed == LengthInput.from_metadata(masked_mean())
    wrong = masked_mean("Add (ilens, one)")
    assert not padded(wrong, dims=SIZES, container=12).ok


def test_the_metadata_may_name_a_mask():
    text = """m (float[B, T, 4] x, float[B, T] keep) => (float[B, T, 4] y)
        <int64[1] ax1 = {1}, int64[1] ax2 = {2}>
        { m = Unsqueeze (keep, ax2)  z = Mul (x, m)  sum = ReduceSum (z, ax1)
          n = ReduceSum (m, ax1)  mean = Div (sum, n)  y = Sub (x, mean) }"""
    fed = {"input": "keep", "axis": "x.1", "kind": "mask"}
    verdict = padded(model(text, fed), dims={**SIZES, "B": [2]}, container=12)
    assert verdict.ok, str(verdict)


def test_lengths_count_in_units_of_the_axis_that_is_named():
    """Frames of 2 samples: the length is told in samples."""
    text = """m (float[1, T] x, int64[1] ilens) => (float[1, F] y)
        <int64[3] cut = {1, -1, 2}, int64 two = {2}, int64 zero = {0}, int64 one = {1},
         int64[1] ax = {1}, int64[1] ax2 = {2}, float nil = {0.0}>
        { f = Reshape (x, cut)  e = ReduceSum <keepdims = 0> (f, ax2)
          n = Div (ilens, two)  s = Shape <start = 1, end = 2> (e)  k = Squeeze (s)
          r = Range (zero, k, one)  u = Unsqueeze (n, ax)  l = Less (r, u)
          z = Where (l, e, nil)  sum = ReduceSum (z, ax)  y = Sub (e, sum) }"""
    verdict = padded(model(text, {"input": "ilens", "axis": "x.1"}), dims={"T": [6]}, container=20)
    assert verdict.ok, str(verdict)


def test_clips_alone_may_run_on_the_original():
    original = model(MEAN)
    assert padded(masked_mean(), original=original, dims=SIZES, container=24).ok
    other = model(MEAN.replace("y = Sub (x, mean)", "y = Add (x, mean)"))
    assert not padded(masked_mean(), original=other, dims=SIZES, container=24).ok
    # Without ilens it is only the container's length that the model knows.
    assert not padded(model(MEAN), original=original, dims=SIZES, container=24).ok


def test_a_repaired_model_may_run_at_one_length_only():
    fixed = model(MASKED_MEAN.replace("[B, T, 4]", "[1, 24, 4]") % "Identity (ilens)", BY_LENGTH)
    verdict = padded(fixed, original=model(MEAN), dims=SIZES, container=24)
    assert verdict.ok, str(verdict)
    verdict = padded(fixed, original=model(MEAN), dims=SIZES, container=30)
    assert not verdict.ok
    assert "does not run, with 5 in T=30" in str(verdict)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "malformed"),
        ('{"input": "ilens"}', "malformed"),
        ('{"input": "ilens", "axis": "x.one"}', "malformed"),
        ('{"input": "nobody", "axis": "x.1"}', "an input 'nobody' that it does not have"),
        ('{"input": "ilens", "axis": "y.1"}', "an input 'y' that it does not have"),
        ('{"input": "ilens", "axis": "x.1", "kind": "ends"}', "not lengths or mask"),
    ],
)
def test_malformed_metadata_is_an_error(text: str, says: str):
    made = masked_mean()
    made.metadata_props[LENGTHS_KEY] = text
    with pytest.raises(ModelError, match=says):
        padded(made, dims=SIZES, container=24)


# Several clips in one container


def test_rows_of_different_lengths_share_a_container():
    verdict = padded(masked_mean(), dims={**SIZES, "B": [2]}, container=24)
    assert verdict.ok, str(verdict)
    assert {check.rows for check in verdict.checks} == {(5, 9), (9, 5)}
    assert {check.row for check in verdict.checks} == {0, 1}
    # The first row's length for all of them is right for one row, and for two it is not.
    first = masked_mean("Gather (ilens, zs)")
    first.graph.register_initializer(
        ir.Value(name="zs", const_value=ir.tensor(np.zeros(1, np.int64), name="zs"))
    )
    wrong = ir.from_proto(ir.to_proto(first))
    assert padded(wrong, dims=SIZES, container=24).ok
    assert not padded(wrong, dims={**SIZES, "B": [2]}, container=24).ok


def test_one_number_for_all_rows_means_rows_of_one_length():
    text = MASKED_MEAN.replace("int64[B] ilens", "int64[1] ilens") % "Identity (ilens)"
    verdict = padded(model(text, BY_LENGTH), dims={**SIZES, "B": [2]}, container=24)
    assert verdict.ok, str(verdict)
    assert {check.rows for check in verdict.checks} == {(5, 5), (9, 9)}


def test_the_metadata_names_the_axis_too():
    text = MASKED_MEAN.replace("[B, T, 4]", "[B, T, F]") % "Identity (ilens)"
    verdict = padded(model(text, BY_LENGTH), container=60)
    assert verdict.ok, str(verdict)
    assert verdict.axis == "T"


def test_one_length_gets_shorter_neighbours():
    verdict = padded(masked_mean(), dims={"T": [10], "B": [3]}, container=24)
    assert verdict.ok, str(verdict)
    (rows,) = {check.rows for check in verdict.checks}
    assert rows[0] == 10
    assert len(set(rows)) == 3
    assert max(rows) == 10


def test_rows_that_cannot_be_told_apart_are_a_failure():
    text = """m (float[B, T, 4] x) => (float[N, 4] y)
        <int64[2] cut = {-1, 4}> { a = Relu (x)  y = Reshape (a, cut) }"""
    assert padded(model(text), dims=SIZES, container=24).ok
    verdict = padded(model(text), dims={**SIZES, "B": [2]}, container=24)
    assert not verdict.ok
    assert "has no axis of 2 rows" in str(verdict)


def test_a_model_that_takes_the_longest_row_for_its_size_gets_a_full_one():
    text = """m (float[B, T, 4] x, int64[B] n) => (float[B, T, 4] y)
        <int64 zero = {0}, int64 one = {1}, int64[1] ax1 = {1}, int64[1] ax2 = {2}, float nil = {0}>
        { most = ReduceMax <keepdims = 0> (n)  r = Range (zero, most, one)
          u = Unsqueeze (n, ax1)  l = Less (r, u)  m = Unsqueeze (l, ax2)
          %s }"""
    verdict = padded(model(text % "y = Where (m, x, nil)"), dims=SIZES, container=24)
    assert verdict.ok, str(verdict)
    assert any("a row as long as the container" in note for note in verdict.notes)
    assert {check.rows for check in verdict.checks} == {(5,), (9,)}
    leaky = "a = ReduceMean <axes = [1]> (x)  z = Where (m, x, nil)  y = Sub (z, a)"
    assert not padded(model(text % leaky), dims=SIZES, container=24).ok


def test_cropping():
    long = np.arange(24).reshape(2, 4, 3)
    assert np.array_equal(crop_to_clip(long, long[:1, :2, :2], 1, 2), long[1:, :2, :2])
    assert np.array_equal(crop_to_clip(long[:1], long[:1, :3]), long[:1, :3])
    assert crop_to_clip(long, long[0]) == "has 3 dims in the container and 2 alone"
    assert "axis 1 has 2 in the container and 4 alone" in str(crop_to_clip(long[:1, :2], long[:1]))


# What is fed


def test_ids_stay_ids():
    text = """m (int64[B, T] ids) => (float[B, T, 2] y)
        <float[6, 2] table = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}> { y = Gather (table, ids) }"""
    signature = Signature(model(text))
    time = find_padded_group(signature, "", SIZES)
    clips = ClipMaker(signature, time, SIZES)
    clip = clips.make_clip(5, 0, 0)
    seen = {}
    for fill in ("zero", "noise", "large"):
        ids = clips.make_container([clip], 40, fill, 0)["ids"]
        assert np.array_equal(ids[:, :5], clip["ids"])
        seen[fill] = set(ids[0, 5:].tolist())
    assert seen["zero"] == {0}
    assert seen["large"] == {5}
    assert len(seen["noise"]) > 3
    assert padded(model(text), dims=SIZES, container=40).ok


def test_other_inputs_are_the_same_in_the_container():
    text = """m (float[B, T, 2] x, float[B, 2] style, float[3, 2] table) => (float[B, T, 2] y)
        <int64[1] ax = {1}, int64 two = {2}> { s = Unsqueeze (style, ax)  a = Add (x, s)
          r = Gather (table, two)  y = Mul (a, r) }"""
    verdict = padded(model(text), dims={**SIZES, "B": [2]}, container=24)
    assert verdict.ok, str(verdict)


def test_seeds_are_other_contents():
    one, three = (padded(model(MEAN), dims=SIZES, container=24, seeds=n) for n in (1, 3))
    assert len(three.checks) == 3 * len(one.checks)
    assert len({c.diff.max_abs for c in three.checks if c.fill == "zero" and c.clip == 5}) == 3


def test_lengths_and_containers_are_found_if_nobody_gives_them():
    verdict = padded(model(PLAIN))
    pairs = {(c.clip, c.container) for c in verdict.checks}
    assert pairs == {(7, 10), (7, 85), (23, 34), (23, 277), (40, 60), (40, 481)}


def test_random_numbers_are_drawn_alike():
    text = """m (float[B, T, 4] x) => (float[B, T, 4] y)
        { r = RandomNormal <shape = [4]> ()  y = Add (x, r) }"""
    assert padded(model(text), dims=SIZES, container=24).ok
    text = text.replace("RandomNormal <shape = [4]> ()", "RandomNormalLike (x)")
    verdict = padded(model(text), dims={"T": [5], "B": [2]}, container=24)
    assert not verdict.ok
    assert any("draws random numbers (RandomNormalLike 'r')" in note for note in verdict.notes)


def test_float16_has_gates_of_its_own_unless_they_are_given():
    text = """m (float[B, T, 4] x) => (float[B, T, 4] y) <float eps = {0.004}>
        { mean = ReduceMean <axes = [1]> (x)  h = Cast <to = 10> (x)  f = Cast <to = 1> (h)
          g = Mul (mean, eps)  y = Sub (f, g) }"""
    made = model(text)
    verdict = padded(made, dims={"T": [9]}, container=10, fills=("zero",))
    assert verdict.ok, str(verdict)
    assert any("float16" in note for note in verdict.notes)
    strict = Tolerance(max_abs=5e-5)
    assert not padded(made, dims={"T": [9]}, container=10, fills=("zero",), tolerance=strict).ok


# What cannot be run


def test_what_the_model_cannot_run_alone_is_dropped_with_the_reason():
    text = """m (float[B, 1, T] x) => (float[B, 1, F] y)
        <float[1, 1, 8] w = {1, 2, 3, 4, 5, 6, 7, 8}>
        { y = Conv <kernel_shape = [8]> (x, w) }"""
    verdict = padded(model(text), dims={"T": [5, 9]}, container=24)
    assert verdict.ok, str(verdict)
    assert {check.clip for check in verdict.checks} == {9}
    assert [x.name for x in verdict.dropped] == ["T=5 alone"]
    assert "Conv" in verdict.dropped[0].reason
    with pytest.raises(FeedError, match=r"at none of the lengths without padding \(T=5 alone: "):
        padded(model(text), dims={"T": [5]}, container=24)


def test_a_container_that_does_not_run_even_without_padding_is_dropped():
    text = """m (float[1, T, 1] x) => (float[1, T, 1] y)
        <float[1, 16, 1] p, int64[1] zero = {0}, int64[1] ax = {1}>
        { s = Shape <start = 1, end = 2> (x)  q = Slice (p, zero, s, ax)  y = Add (x, q) }"""
    text = text.replace("[1, 16, 1] p", f"[1, 16, 1] p = {{{', '.join('1' * 16)}}}")
    verdict = padded(model(text), dims={"T": [5]}, container=[12, 24])
    assert verdict.ok, str(verdict)
    assert {check.container for check in verdict.checks} == {12}
    assert [x.name for x in verdict.dropped] == ["T=24 without padding"]
    with pytest.raises(FeedError, match="in none of the containers"):
        padded(model(text), dims={"T": [5]}, container=24)


def test_what_is_asked_for_must_fit():
    with pytest.raises(FeedError, match="a container of 8 does not hold a clip of 9"):
        padded(model(PLAIN), dims=SIZES, container=8)
    with pytest.raises(
        FeedError, match="no input has a dim named 'S'; the symbolic dims are: B, T"
    ):
        padded(model(PLAIN), dims={"S": [4]}, container=8)
    with pytest.raises(FeedError, match=r"no dim that could be padded.* name it: --axis B$"):
        padded(model(PLAIN.replace("T", "7")), container=8)
    with pytest.raises(FeedError, match=r"dims are: none\. Export it .* -p thaw first$"):
        padded(model(PLAIN.replace("T", "7").replace("B", "1")), container=8)
    verdict = padded(model(PLAIN), dims=SIZES, container=[8, 12])
    assert {(c.clip, c.container) for c in verdict.checks} == {(5, 8), (5, 12), (9, 12)}
    assert [x.name for x in verdict.dropped] == ["9 in T=8"]


def test_of_several_dims_one_must_be_named():
    text = """m (float[1, T, S] x) => (float[1, T, 1] y) { y = ReduceMean <axes = [2]> (x) }"""
    with pytest.raises(
        FeedError, match=r"several dims could be .*: T, S; name one, such as --axis"
    ):
        padded(model(text), container=24)
    for axis in ("T", "x.1"):
        assert padded(model(text), axis=axis, container=24).ok
    assert padded(model(text), dims={"T": [5]}, container=24).ok
    assert not padded(model(text), axis="S", container=24).ok
    with pytest.raises(FeedError, match=r"no input has a dim 'x\.7' that could be padded"):
        padded(model(text), axis="x.7", container=24)


def test_the_first_dim_may_be_time():
    text = "m (float[T, 1, 4] x) => (float[T, 1, 4] y) { %s }"
    for body, ok in (
        ("y = Relu (x)", True),
        ("a = ReduceMean <axes = [0]> (x) y = Sub (x, a)", False),
    ):
        verdict = padded(model(text % body), dims=SIZES, container=24)
        assert verdict.ok is ok, str(verdict)


# The command line


def saved(made: ir.Model, path: Path) -> str:
    ir.save(made, path)
    return str(path)


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    good, bad = saved(masked_mean(), tmp_path / "g.onnx"), saved(model(MEAN), tmp_path / "b.onnx")
    sizes = ["--dim", "T=5,9", "--container", "12,24"]
    assert main(["padded", good, *sizes]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "safe      the same in all 12 comparisons" in said.out
    assert "length of ilens" in said.out
    assert all(len(line) <= 80 for line in said.out.replace(good, "").splitlines())
    assert main(["padded", bad, *sizes, "--dim", "B=2", "-v"]) == 1
    said = capsys.readouterr()
    assert said.err.strip() == f"graphfix: error: {bad} is not safe to pad"
    assert "failed    output 'y' differs by" in said.out
    assert "1 of 2" in said.out
    assert all(len(line) <= 80 for line in said.out.replace(bad, "").splitlines())
    assert main(["padded", good, "--original", bad, *sizes]) == 0


def test_the_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    bad = saved(model(MEAN), tmp_path / "bad.onnx")
    code = main(["padded", bad, "--dims", "T=5", "--container=24", "--poison", "nan", "--json"])
    assert code == 1
    data = json.loads(capsys.readouterr().out)
    assert data["ok"] is False
    assert [check["fill"] for check in data["checks"]] == ["zero", "noise", "large", "nan"]
    zero = data["checks"][0]
    assert (zero["clip"], zero["container"], zero["output"]) == (5, 24, "y")
    assert zero["max_abs"] > 0.1
    assert zero["cosine"] < 0.999999
    assert (data["max_abs"], data["cosine"]) == (1e-4, 0.999999)


def test_gates_can_be_given(tmp_path: Path):
    bad = saved(model(MEAN), tmp_path / "bad.onnx")
    run = ["padded", bad, "--dim", "T=9", "--container", "24", "--max-abs", "1e5"]
    assert main(run) == 1
    assert main([*run, "--cosine", "-1"]) == 0


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--container", "many"], "--container many: not whole numbers."),
        (["--container", "0"], "a container is at least 1."),
        (["--dim", "T"], "--dims T: write NAME=SIZE"),
        (["--max-abs", "-1"], "a difference is at least 0."),
        (["--cosine", "2"], "a cosine is between -1 and 1."),
        (["--dim", "T=30", "--container", "24"], "a container of 24 does not hold a clip of 30"),
    ],
)
def test_bad_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str], given: list[str], says: str):
    path = saved(model(PLAIN), tmp_path / "m.onnx")
    assert main(["padded", path, *given]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert says in said.err


def test_it_is_in_the_library():
    assert graphfix.padded is padded
    assert graphfix.PaddedVerdict.__name__ == "PaddedVerdict"


@pytest.mark.parametrize("op_type", ["AveragePool", "MaxPool"])
def test_a_clip_is_as_long_as_the_window_of_a_pool(op_type):
    m = model(f"""m (float[B, 4, T] x) => (float[B, 4, Q] y)
        {{ y = {op_type} <kernel_shape = [4], strides = [2]> (x) }}""")
    clips = ClipMaker(signature := Signature(m), find_padded_group(signature, "x.2", {}, None), {})
    assert clips.make_clip(4, 0, 0)["x"].shape == (1, 4, 4)
    with pytest.raises(FeedError, match=op_type):
        clips.make_clip(3, 0, 0)  # ONNX Runtime makes one frame of it, of 3 samples


def test_a_clip_is_as_long_as_its_windows():
    """What is made of no window is empty, and the maximum of nothing -inf."""
    m = model("""m (float[B, 1, T] x) => (float[B, 1] y) <int64[1] ax = {2}>
        { p = MaxPool <kernel_shape = [2], strides = [2]> (x)
          q = MaxPool <kernel_shape = [2], strides = [2]> (p)
          y = ReduceMax <axes = [2], keepdims = 0> (q) }""")
    clips = ClipMaker(signature := Signature(m), find_padded_group(signature, "", {}, None), {})
    assert clips.make_clip(4, 0, 0)["x"].shape == (1, 1, 4)
    with pytest.raises(FeedError, match="has nothing to work on"):
        clips.make_clip(3, 0, 0)


ROUNDED = """m (float[B, T, 4] x) => (float[B, T, 4] y)
    <float s = {0.01}, int8 z = {0}, float g = {%s}>
    { q = QuantizeLinear (x, s, z) d = DequantizeLinear (q, s, z) y = Mul (d, g) }"""


def test_what_is_quantized_may_differ_as_far_as_the_original_from_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = OwnRounding({"other last bits": 0.004}, rms=0.005, channel=40.0, runs=3)

    def measure(_: object, graph: ir.Model, *__: object, **___: object) -> OwnRounding | None:
        return own if rounds_somewhere(graph) else None

    monkeypatch.setattr("graphfix.probing.padded.measure_own_rounding", measure)
    original, near, wrong = (model(ROUNDED % x) for x in ("1.0", "1.005", "1.02"))
    verdict = padded(near, original=original)
    assert verdict.ok
    assert str(own) in verdict.notes
    assert not padded(wrong, original=original)
    assert not padded(near, original=original, tolerance=Tolerance())
    rounding = "q = QuantizeLinear (x, s, z) d = DequantizeLinear (q, s, z)"
    plain = ROUNDED.replace(rounding, "d = Neg (x)")
    assert not padded(model(plain % "1.005"), original=model(plain % "1.0"))
