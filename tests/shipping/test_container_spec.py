"""The sizes that a user asks for, as text and from Python."""

from __future__ import annotations

import pytest

from graphfix.errors import UsageError
from graphfix.feeds.states import StatePair
from graphfix.shipping.container_spec import (
    ContainerSpec,
    parse_cache_sizes,
    parse_containers,
    parse_states,
    spec_of,
)

LARGEST = 2**31 - 1


@pytest.mark.parametrize(
    ("texts", "rate", "sizes"),
    [
        (["T=500,3000"], None, {"T": (500, 3000)}),
        (["T=3000, 500 ,500"], None, {"T": (500, 3000)}),
        (["T=500", "B=2", "T=100"], None, {"T": (100, 500), "B": (2,)}),
        (["T=5s,0.5s"], 100.0, {"T": (50, 500)}),
        (["T=0.333s"], 10.0, {"T": (3,)}),
        (['"a=b" = 4'], None, {"a=b": (4,)}),
        (["T=1"], None, {"T": (1,)}),
        ([f"T={LARGEST}"], None, {"T": (LARGEST,)}),
        ([], None, {}),
    ],
)
def test_sizes_in_text(
    texts: list[str], rate: float | None, sizes: dict[str, tuple[int, ...]]
) -> None:
    assert parse_containers(texts, rate) == ContainerSpec(sizes, rate)


@pytest.mark.parametrize(
    ("text", "rate", "said"),
    [
        ("T", None, "write NAME=SIZE,SIZE such as T=500,3000"),
        ("T=", None, "write NAME=SIZE"),
        ("T= ", None, "write NAME=SIZE"),
        ("=5", None, "write NAME=SIZE"),
        ("T=5m", None, "'5m' is no size; write 500, or 5s for seconds"),
        ("T=5,", None, "'' is no size"),
        ("T=-5", None, "'-5' is no size"),
        ("T=5s", None, "5s is in seconds; say how many frames or samples a second has"),
        ("T=5.5", None, "5.5 is not a whole number"),
        ("T=5.5", 10.0, "5.5 is not a whole number"),
        ("T=0", None, "a size is at least 1 and at most 2,147,483,647"),
        ("T=0.001s", 10.0, "a size is at least 1"),
        (f"T={LARGEST + 1}", None, "a size is at least 1"),
        ("T=5", 0.0, "--rate 0: is no number of frames or samples a second"),
        ("T=5", -1.0, "--rate -1: is no number"),
        ("T=5", 1e9, r"--rate 1e\+09: is no number"),
    ],
)
def test_text_that_is_no_size(text: str, rate: float | None, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_containers([text], rate)


def test_a_rate_may_be_as_small_and_as_large_as_it_gets() -> None:
    assert parse_containers([], 1e-3).rate == 1e-3
    assert parse_containers([], 999_999_999).rate == 999_999_999


def test_sizes_from_python() -> None:
    spec = ContainerSpec({"T": (5,)}, 2.0)
    assert spec_of(spec) is spec
    assert spec_of({"T": 5, "B": [3, 2, 3]}).sizes == {"T": (5,), "B": (2, 3)}
    assert spec_of("T=5,6").sizes == {"T": (5, 6)}
    assert spec_of(["T=5", "B=2"]).sizes == {"T": (5,), "B": (2,)}
    assert spec.rename_dims({"T": "frames", "B": "rows"}) == ContainerSpec({"frames": (5,)}, 2.0)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("256", (256,)),
        ("1024, 256,256", (256, 1024)),
        ("1", (1,)),
        (str(LARGEST), (LARGEST,)),
        (",", ()),
    ],
)
def test_sizes_of_caches(text: str, sizes: tuple[int, ...]) -> None:
    assert parse_cache_sizes(text) == sizes


@pytest.mark.parametrize("text", ["0", "x", "-5", "2.5", str(LARGEST + 1), "256,x"])
def test_what_is_no_size_of_a_cache(text: str) -> None:
    with pytest.raises(UsageError, match="is no size; write --cache 256,1024"):
        parse_cache_sizes(text)


def test_states_in_text() -> None:
    assert parse_states(["a=b", ' "c=d" = e ']) == (StatePair("a", "b"), StatePair("c=d", "e"))
    for text in ("a", "a=", "=b"):
        with pytest.raises(UsageError, match="write INPUT=OUTPUT, such as past_0=present_0"):
            parse_states([text])
