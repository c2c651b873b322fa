"""Clips alone and in containers: which dim is padded, and what is fed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphfix.errors import FeedError
from graphfix.feeds.case import Array
from graphfix.feeds.clips import FILLS, ClipMaker, Fill, feed_length_input, find_padded_group
from graphfix.feeds.input import Input
from graphfix.feeds.roles import Role
from graphfix.feeds.runnable_sizes import REFLECTS
from graphfix.feeds.signature import Signature
from graphfix.lengths.length_input import LengthInput
from tests.feeds.small_models import ADDITIVE, CONV, LENGTHS, TOKENS, model

DATA = "m (float[B, T, 2] x) => (float[B, T, 2] y) { y = Relu (x) }"
TWO = "m (float[B, T, 2] x, float[B, S, 2] z) => (y, w) { y = Relu (x) w = Relu (z) }"
CACHE = """m (float[B, T, 4] x, float[B, P, 4] past) => (float[B, N, 4] present)
    { present = Concat <axis = 1> (past, x) }"""
ONE_ROW = "m (float[B, T] x, float[3] k) => (y, w) { y = Relu (x) w = Relu (k) }"
BY_LENGTH = LengthInput("ilens", "x.1", "lengths")


def signature(text: str) -> Signature:
    return Signature(model(text))


def padded_dim(
    text: str, axis: str = "", length_input: LengthInput | None = None, **sizes: int
) -> str:
    dims = {name: (size,) for name, size in sizes.items()}
    return find_padded_group(signature(text), axis, dims, length_input)


@pytest.mark.parametrize(
    ("text", "axis", "sizes", "group"),
    [
        (DATA, "", {}, "T"),
        (DATA, "T", {}, "T"),
        (DATA, "x.1", {}, "T"),
        (DATA, "B", {}, "B"),
        (DATA, "x.0", {}, "B"),
        # Sizes of the batch alone do not make it the one that is padded, if there is another.
        (DATA, "", {"B": 3}, "T"),
        (DATA, "", {"B": 3, "T": 5}, "T"),
        (TWO, "", {"S": 3}, "S"),
        (TWO, "S", {"T": 3}, "S"),
        # A cache is padded only by name, or by its sizes.
        (CACHE, "", {}, "T"),
        (CACHE, "", {"P": 3}, "P"),
        (CACHE, "", {"P": 3, "T": 5}, "T"),
        (CACHE, "past.1", {}, "P"),
        ("m (float[B, 4] x) => (y) { y = Relu (x) }", "", {"B": 3}, "B"),
    ],
)
def test_which_dim_is_padded(text: str, axis: str, sizes: dict[str, int], group: str) -> None:
    assert padded_dim(text, axis, **sizes) == group


def test_the_metadata_says_which_dim_is_padded_unless_the_user_does() -> None:
    named = LengthInput("ilens", "z.1", "lengths")
    assert padded_dim(TWO, "", named) == "S"
    assert padded_dim(TWO, "T", named) == "T"
    # A place that there is not says nothing.
    assert padded_dim(DATA, "", LengthInput("ilens", "x.2", "lengths")) == "T"
    assert padded_dim(DATA, "", LengthInput("ilens", "z.1", "lengths")) == "T"


@pytest.mark.parametrize(
    ("text", "axis", "sizes", "message"),
    [
        (DATA, "F", {}, "no input has a dim 'F' that could be padded; .* dims are: B, T$"),
        (DATA, "x.2", {}, "no input has a dim 'x.2'"),
        (DATA, "x.3", {}, "no input has a dim 'x.3'"),
        (DATA, "x.one", {}, "no input has a dim 'x.one'"),
        (DATA, "z.1", {}, "no input has a dim 'z.1'"),
        (TWO, "", {}, "could be the one that is padded: T, S; name one, such as --axis T$"),
        (TWO, "", {"S": 3, "T": 4}, "could be the one that is padded: T, S"),
        (
            "m (float[B, 4] x) => (y) { y = Relu (x) }",
            "",
            {},
            "dims are: B. Export it .* first; if B is no batch but time, name it: --axis B$",
        ),
        (
            'm (float["batch.size", 4] x) => (y) { y = Relu (x) }',
            "",
            {},
            "; if batch.size is no batch but time, name it: --axis batch.size$",
        ),
        (
            "m (float[4] x) => (y) { y = Relu (x) }",
            "",
            {},
            "dims are: none. Export it with .*, or try graphfix run -p thaw first$",
        ),
        (
            "m (string[B, T] x) => (y) { y = Identity (x) }",
            "",
            {},
            "the input 'x' cannot be padded: its type is",
        ),
        (
            "m (float[T] x) => (y) <float[6] w = {1,2,3,4,5,6}> { y = Mul (x, w) }",
            "",
            {},
            "has no dim that could be padded: T = 6, from w; others may run$",
        ),
        (
            "m (float[B, T] x) => (y) <float[6] w = {1,2,3,4,5,6}> { y = Mul (x, w) }",
            "",
            {},
            "no dim that could be padded: T = 6.*; if B is no batch but time, name it: --axis B$",
        ),
    ],
)
def test_no_one_dim_must_be_meant(
    text: str, axis: str, sizes: dict[str, int], message: str
) -> None:
    with pytest.raises(FeedError, match=message):
        padded_dim(text, axis, **sizes)


def clip_maker(text: str, time: str = "T", **facts: Any) -> ClipMaker:
    dims = {name: (size,) for name, size in facts.pop("sizes", {}).items()}
    return ClipMaker(signature(text), time, dims, **facts)


@pytest.mark.parametrize(
    ("text", "time", "can"),
    [(DATA, "T", True), (DATA, "B", False), ("m (float[T] x) => (y) { y = Relu (x) }", "T", False)],
)
def test_clips_share_a_container_if_there_is_a_batch(text: str, time: str, can: bool) -> None:
    assert clip_maker(text, time).can_batch == can


REPAIRED = "m (float[B, T, 2] x, int64%s ilens) => (float[B, T, 2] y) { y = Relu (x) }"


@pytest.mark.parametrize(
    ("dims", "kind", "shares"),
    [
        ("", "lengths", True),
        ("[1]", "lengths", True),
        ("[B]", "lengths", False),
        ("[2]", "lengths", False),
        ("[1]", "mask", False),
    ],
)
def test_one_number_may_be_the_length_of_all_clips(dims: str, kind: Any, shares: bool) -> None:
    length_input = LengthInput("ilens", "x.1", kind)
    assert clip_maker(REPAIRED % dims, length_input=length_input).shares_one_length == shares
    assert not clip_maker(REPAIRED % dims).shares_one_length
    other = LengthInput("lens", "x.1", kind)
    assert not clip_maker(REPAIRED % dims, length_input=other).shares_one_length
    extra = signature(REPAIRED % dims)
    made = clip_maker(DATA, length_input=length_input, extra=extra)
    assert made.shares_one_length == shares


def test_an_input_that_cannot_be_made() -> None:
    text = "m (float[B, T] x, string[B] s) => (y, t) { y = Relu (x) t = Identity (s) }"
    message = "the input 's' cannot be made up: its type is"
    with pytest.raises(FeedError, match=message):
        clip_maker(text)
    with pytest.raises(FeedError, match=message):
        clip_maker(DATA, extra=signature(text))


@pytest.mark.parametrize(
    ("length", "reason"), [(3, None), (2, "Conv 'Conv of y' has nothing to work on: too short")]
)
def test_a_clip_shorter_than_a_window(length: int, reason: str | None) -> None:
    assert clip_maker(CONV, "N").too_short_reason(length) == reason


@pytest.mark.parametrize(("length", "reason"), [(4, None), (3, REFLECTS)])
def test_a_clip_shorter_than_what_is_reflected(length: int, reason: str | None) -> None:
    made = clip_maker("""m (float[B, T] x) => (float[B, U] y) <int64[4] pads = {0, 3, 0, 0}>
        { y = Pad <mode = "reflect"> (x, pads) }""")
    assert made.too_short_reason(length) == reason
    if reason is None:
        assert made.make_clip(length, 0, 0)["x"].shape == (1, length)
    else:
        with pytest.raises(FeedError, match=reason):
            made.make_clip(length, 0, 0)


def test_each_row_and_seed_is_another_clip() -> None:
    made = clip_maker(ONE_ROW)
    first, same, row, seed = (made.make_clip(5, *x) for x in ((0, 0), (0, 0), (1, 0), (0, 1)))
    assert first["x"].shape == (1, 5)
    np.testing.assert_array_equal(first["x"], same["x"])
    assert not np.array_equal(first["x"], row["x"])
    assert not np.array_equal(first["x"], seed["x"])
    # What has no rows is the same for all clips of a container.
    np.testing.assert_array_equal(first["k"], row["k"])
    assert not np.array_equal(first["k"], seed["k"])


def test_the_sizes_of_other_dims() -> None:
    assert clip_maker(TWO).make_clip(5, 0, 0)["z"].shape == (1, 7, 2)
    assert clip_maker(TWO, sizes={"S": 3}).make_clip(5, 0, 0)["z"].shape == (1, 3, 2)
    assert clip_maker(CACHE).make_clip(5, 0, 0)["past"].shape == (1, 4, 4)


def test_the_maker_has_a_seed() -> None:
    makers = (clip_maker(DATA), clip_maker(DATA, seed=0), clip_maker(DATA, seed=1))
    clips = [x.make_clip(5, 0, 0)["x"] for x in makers]
    np.testing.assert_array_equal(clips[0], clips[1])
    assert not np.array_equal(clips[0], clips[2])


def test_clips_above_0() -> None:
    assert (clip_maker(DATA, positive=True).make_clip(9, 0, 0)["x"] > 0).all()
    assert (clip_maker(DATA).make_clip(9, 0, 0)["x"] < 0).any()


def container(
    text: str, lengths: tuple[int, ...], fill: Fill = "zero", size: int = 12, **facts: Any
) -> tuple[list[dict[str, Array]], dict[str, Array]]:
    """Return clips, and the container that holds them."""
    made = clip_maker(text, **facts)
    clips = [made.make_clip(n, row, 0) for row, n in enumerate(lengths)]
    return clips, made.make_container(clips, size, fill, 0)


def test_each_clip_is_the_beginning_of_its_row() -> None:
    clips, feeds = container(DATA, (5, 9), "nan")
    assert feeds["x"].shape == (2, 12, 2)
    for row, length in enumerate((5, 9)):
        np.testing.assert_array_equal(feeds["x"][row, :length], clips[row]["x"][0])
        assert np.isnan(feeds["x"][row, length:]).all()


def test_a_clip_in_a_model_without_a_batch() -> None:
    clips, feeds = container("m (float[T, 2] x) => (y) { y = Relu (x) }", (5,), "nan")
    np.testing.assert_array_equal(feeds["x"][:5], clips[0]["x"])
    assert np.isnan(feeds["x"][5:]).all()


def test_inputs_without_rows_are_joined_as_they_are() -> None:
    clips, feeds = container(ONE_ROW, (5, 9), "nan")
    np.testing.assert_array_equal(feeds["k"], clips[0]["k"])


def test_inputs_that_are_not_padded_are_joined_by_rows() -> None:
    text = """m (float[B, T, 2] x, float[B, 3] style, float[1, 4] k) => (y, z, w)
        { y = Relu (x) z = Relu (style) w = Relu (k) }"""
    clips, feeds = container(text, (5, 9), "nan")
    np.testing.assert_array_equal(feeds["style"], [x["style"][0] for x in clips])
    np.testing.assert_array_equal(feeds["k"], clips[1]["k"])


def test_masks_and_lengths_are_made_for_the_container() -> None:
    _, feeds = container(ADDITIVE, (5, 9))
    assert feeds["a"].sum(-1).tolist() == [5, 9]
    _, feeds = container(LENGTHS % ("int64", 7, 7), (5, 9))
    assert feeds["a"].tolist() == [5, 9]


def test_a_mask_along_another_dim_is_joined_from_the_clips() -> None:
    text = """m (float[B, T, 2] x, float[B, S, S] s, bool[B, S] a) => (y, z)
        <int64[1] ax = {1}, float fill = {-10000.0}>
        { y = Relu (x) u = Unsqueeze (a, ax)  t = Where (u, s, fill)  z = Softmax (t) }"""
    clips, feeds = container(text, (5, 9))
    np.testing.assert_array_equal(feeds["a"], [x["a"][0] for x in clips])
    assert feeds["a"].shape == (2, 7)


def test_other_padding_for_another_seed_and_container() -> None:
    made = clip_maker(DATA)
    clips = [made.make_clip(3, 0, 0)]
    paddings = [
        made.make_container(clips, *x)["x"][0, 3:8]
        for x in ((8, "noise", 0), (8, "noise", 0), (8, "noise", 1), (9, "noise", 0))
    ]
    np.testing.assert_array_equal(paddings[0], paddings[1])
    assert not np.array_equal(paddings[0], paddings[2])
    assert not np.array_equal(paddings[0], paddings[3])


@pytest.mark.parametrize(
    ("fill", "low", "high"), [("zero", 0, 0), ("noise", 0.1, 6), ("large", 1e3, 6e4)]
)
def test_what_padding_holds(fill: Fill, low: float, high: float) -> None:
    _, feeds = container(DATA, (5,), fill, 200)
    largest = np.abs(feeds["x"][0, 5:]).max()
    assert low <= largest <= high
    assert feeds["x"].dtype == np.float32
    half = DATA.replace("float[", "float16[")
    assert np.isfinite(container(half, (5,), fill, 200)[1]["x"]).all()


def test_padding_of_no_numbers() -> None:
    assert np.isnan(container(DATA, (5,), "nan")[1]["x"][0, 5:]).all()
    infinite = container(DATA, (5,), "inf", 60)[1]["x"][0, 5:]
    assert set(np.unique(infinite)) == {-np.inf, np.inf}
    assert FILLS == ("zero", "noise", "large")


BOUNDED = """m (int64[B, T] a) => (float[B, T, 1] y)
    <float[4, 1] table = {0,1,2,3}, int64 two = {2}>
    { i = Sub (a, two) y = Gather (table, i) }"""


@pytest.mark.parametrize(
    ("text", "fill", "ids"),
    [
        (TOKENS, "zero", {0}),
        (TOKENS, "large", {4}),
        (TOKENS, "noise", {0, 1, 2, 3, 4}),
        (TOKENS, "nan", {0, 1, 2, 3, 4}),
        (BOUNDED, "zero", {2}),
        (BOUNDED, "large", {5}),
        (BOUNDED, "noise", {2, 3, 4, 5}),
    ],
)
def test_padding_of_ids(text: str, fill: Fill, ids: set[int]) -> None:
    _, feeds = container(text, (5,), fill, 60)
    assert set(feeds["a"][0, 5:].tolist()) == ids
    assert feeds["a"].dtype == np.int64


def test_ids_of_a_table_of_one_row() -> None:
    one = TOKENS.replace("[5, 2] table = {0,1, 2,3, 4,5, 6,7, 8,9}", "[1, 2] table = {0, 1}")
    assert (container(one, (5,), "large")[1]["a"] == 0).all()


@pytest.mark.parametrize(("fill", "seen"), [("zero", {0}), ("large", {1}), ("noise", {0, 1})])
def test_padding_of_flags_beyond_the_rows_of_a_mask(fill: Fill, seen: set[int]) -> None:
    text = "m (bool[B, S, T] a) => (bool[B, S, T] y) { y = Not (a) }"
    _, feeds = container(text, (3,), fill, 9, time="S")
    assert feeds["a"].shape == (1, 9, 7)
    assert feeds["a"].dtype == np.bool_
    assert set(feeds["a"][:, 3:].astype(int).flat) == seen


# The length input of a repair


def test_lengths_of_a_repair_are_added() -> None:
    extra = signature(REPAIRED % "[B]")
    made = clip_maker(DATA, length_input=BY_LENGTH, extra=extra)
    clips = [made.make_clip(n, row, 0) for row, n in enumerate((5, 9))]
    assert clips[1]["ilens"].tolist() == [9]
    feeds = made.make_container(clips, 12, "zero", 0)
    assert feeds["ilens"].tolist() == [5, 9]
    assert feeds["ilens"].dtype == np.int64


def test_what_a_repair_adds_besides_is_made_for_the_container() -> None:
    more = REPAIRED.replace("ilens)", "ilens, float[4] k)").replace("Relu (x)", "Mul (x, k)")
    extra = signature(more % "[B]")
    made = clip_maker(DATA, length_input=BY_LENGTH, extra=extra)
    feeds = made.make_container([made.make_clip(5, 0, 0)], 12, "zero", 0)
    assert feeds["k"].shape == (4,)
    assert feeds["x"].shape == (1, 12, 2)


def test_a_repair_that_fixed_the_size_gives_its_dims_no_other_names() -> None:
    fixed = (REPAIRED % "[1]").replace("[B, T, 2]", "[1, 12, 2]")
    made = clip_maker(DATA, length_input=BY_LENGTH, extra=signature(fixed))
    feeds = made.make_container([made.make_clip(5, 0, 0)], 12, "zero", 0)
    assert feeds["ilens"].tolist() == [5]


def test_a_share_of_the_valid_length_is_that_of_the_clip() -> None:
    text = """m (float[B, T, 2] x, float[B] a, int64[B] ilens) => (float[B, T, 2] y)
        <int64 zero = {0}, int64 one = {1}, int64[1] ax1 = {1}, int64[1] ax2 = {2}>
        { n = Shape <start = 1, end = 2> (x)  k = Squeeze (n)  f = Cast <to = 1> (k)
          b = Mul (a, f)  c = Unsqueeze (b, ax1)  r = Range (zero, k, one)  q = Cast <to = 1> (r)
          l = Less (q, c)  w = Cast <to = 1> (l)  v = Unsqueeze (w, ax2)  y = Mul (x, v) }"""
    _, feeds = container(text, (5,), length_input=BY_LENGTH)
    assert feeds["a"].tolist() == [1.0]
    _, feeds = container(text, (6,))
    assert feeds["a"].tolist() == [0.5]


def fed(kind: Any, dims: tuple[Any, ...], lengths: tuple[int, ...] = (2, 3)) -> Array:
    item = Input("ilens", "i8", dims, Role("lengths", ""))
    x = np.zeros((2, 4, 2), np.float32)
    feeds = feed_length_input({"x": x}, LengthInput("ilens", "x.1", kind), item, lengths)
    assert feeds["x"] is x
    assert feeds["ilens"].dtype == np.int64
    return feeds["ilens"]


@pytest.mark.parametrize(
    ("kind", "dims", "value"),
    [
        ("lengths", ("B",), [2, 3]),
        ("lengths", (3,), [2, 3, 2]),
        ("lengths", (1,), [2]),
        ("lengths", (), 2),
        ("lengths", ("B", 1), [[2], [3]]),
        ("mask", ("B", "T"), [[1, 1, 0, 0], [1, 1, 1, 0]]),
        ("mask", ("B", 1, "T"), [[[1, 1, 0, 0]], [[1, 1, 1, 0]]]),
        ("mask", ("B", "T", 1), [[[1], [1], [0], [0]], [[1], [1], [1], [0]]]),
    ],
)
def test_lengths_as_the_input_takes_them(kind: Any, dims: tuple[Any, ...], value: object) -> None:
    assert fed(kind, dims).tolist() == value


def test_a_mask_of_one_row_without_a_batch() -> None:
    assert fed("mask", ("T",), (2,)).tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("axis", ["x.3", "z.1"])
def test_metadata_that_names_no_axis(axis: str) -> None:
    item = Input("ilens", "i8", ("B",), Role("lengths", ""))  # type: ignore[arg-type]
    with pytest.raises(FeedError, match=f"names {axis}, which is no axis"):
        feed_length_input(
            {"x": np.zeros((2, 4, 2))}, LengthInput("ilens", axis, "lengths"), item, (2, 3)
        )
    made = clip_maker(REPAIRED % "[B]", length_input=LengthInput("ilens", "x.2", "lengths"))
    assert made.make_clip(5, 0, 0)["ilens"].tolist() == [2]
