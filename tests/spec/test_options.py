"""Options of a pass as text, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest

from graphfix.errors import UsageError
from graphfix.spec.options import Sizes, Texts, make_instance, option_name, options_to_text


@dataclass(frozen=True)
class Plain:
    times: int = 1
    bias: float | None = None
    from_: str = ""
    two_words: bool = False
    style: Literal["a", "b"] = "a"
    several: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.times < 0:
            raise ValueError("times is below 0")


@dataclass(frozen=True)
class Open:
    loud: bool = False
    sizes: Sizes = ()


@dataclass(frozen=True)
class OpenTexts:
    values: Texts = ()


class Bare:
    pass


@pytest.mark.parametrize(
    ("instance", "text"),
    [
        (Plain(), ""),
        (Plain(times=3), "times=3"),
        (Plain(bias=-1000.0), "bias=-1000"),
        (Plain(bias=1e30, two_words=True), "bias=1e30:two-words=yes"),
        (Plain(bias=1e-30), "bias=1e-30"),
        (Plain(from_="x", style="b"), "from=x:style=b"),
        (Plain(several=("a", "b")), "several=a+b"),
        (Open(loud=True, sizes=(("T", 5), ("B", 1))), "loud=yes:T=5:B=1"),
        (OpenTexts((("sr", "16000"),)), "sr=16000"),
        (Bare(), ""),
    ],
)
def test_what_differs_from_the_default_is_written(instance: object, text: str) -> None:
    assert options_to_text(instance) == text


@pytest.mark.parametrize(
    ("cls", "texts", "instance"),
    [
        (Plain, {}, Plain()),
        (Plain, {"times": "3", "two_words": "TRUE"}, Plain(times=3, two_words=True)),
        (Plain, {"two-words": "1"}, Plain(two_words=True)),
        (Plain, {"two-words": "0"}, Plain()),
        (Plain, {"two-words": "false"}, Plain()),
        (Plain, {"bias": "None", "from": "x"}, Plain(from_="x")),
        (Plain, {"bias": "1e3", "style": "b"}, Plain(bias=1000.0, style="b")),
        (Open, {"T": "5", "loud": "no", "B": "1"}, Open(sizes=(("T", 5), ("B", 1)))),
        (Open, {"sizes": "5"}, Open(sizes=(("sizes", 5),))),
        (OpenTexts, {"sr": "16000"}, OpenTexts((("sr", "16000"),))),
    ],
)
def test_texts_become_an_instance(cls: type, texts: dict[str, str], instance: object) -> None:
    assert make_instance(cls, "p", texts) == instance


@pytest.mark.parametrize(
    ("cls", "texts", "reason"),
    [
        (Plain, {"tims": "3"}, "p has no option 'tims'.*did you mean 'times'"),
        (Bare, {"times": "3"}, "p has no options, but 'times' was given"),
        (Plain, {"times": "1.5"}, "times=1.5 is not a whole number"),
        (Plain, {"times": "1+2"}, "times=1,2 are several sizes"),
        (Plain, {"times": "-1"}, "p: times is below 0"),
        (Plain, {"bias": "high"}, "bias=high is not a number"),
        (Plain, {"style": "c"}, "style=c is none of a, b"),
        (Plain, {"two-words": "2"}, "two-words=2 is neither yes nor no"),
        (Open, {"T": "long"}, "T=long is not a whole number"),
    ],
)
def test_what_does_not_fit(cls: type, texts: dict[str, str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        make_instance(cls, "p", texts)


def test_names_of_options() -> None:
    assert option_name("from_") == "from"
    assert option_name("two_words") == "two-words"
