"""The manual of a pass: its sections, and what is said of a docstring that lacks one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import pytest

from graphfix.errors import PluginError
from graphfix.spec import manual
from graphfix.spec.manual import LeftAlone, Option, manual_of


@dataclass(frozen=True)
class Whole:
    """One sentence
    on two lines.

    A paragraph.

    Another: with a colon at the end of a line:
    and more.

    Why:
        It was
        measured.

        Twice.

    Before:
        <a: 1>
        m (float[N] x) => (float[N] y) {
            y = Relu (x)
        }

    After:
        nothing

    Left alone:
        A Relu of integers, with "integers,
        which it does not take":
        <a: 1>
        m (int64[N] x) => (int64[N] y) {
            y = Relu (x)
        }

        No Relu:
        <a: 1>

    Safety:
        Exact.

    Spec:
        whole:loud=yes

    Options:
        floor: What is added,
            and more: much more.
        loud: Whether.
        how_much: How much.
        style: The style.
    """

    name: ClassVar[str] = "whole"
    safety: ClassVar[str] = "valid-rows"

    floor: float = -1e4
    loud: bool = False
    how_much: int | None = None
    style: Literal["plain", "fancy"] = "plain"


def test_the_sections() -> None:
    got = manual_of(Whole)
    assert got.name == "whole"
    assert got.summary == "One sentence on two lines."
    assert got.body == "A paragraph.\n\nAnother: with a colon at the end of a line:\nand more."
    assert got.why == "It was\nmeasured.\n\nTwice."
    assert got.before == "<a: 1>\nm (float[N] x) => (float[N] y) {\n    y = Relu (x)\n}"
    assert got.after == "nothing"
    assert got.left_alone == (
        LeftAlone(
            'A Relu of integers, with "integers, which it does not take":',
            "<a: 1>\nm (int64[N] x) => (int64[N] y) {\n    y = Relu (x)\n}",
        ),
        LeftAlone("No Relu:", "<a: 1>"),
    )
    assert [x.reason for x in got.left_alone] == ["integers, which it does not take", ""]
    assert got.safety == "Exact."
    assert got.promise == "valid-rows"
    assert got.spec == "whole:loud=yes"


def test_the_options_have_the_types_and_defaults_of_the_fields() -> None:
    assert manual_of(Whole).options == (
        Option("floor", "number", "-10000", "What is added, and more: much more."),
        Option("loud", "yes or no", "no", "Whether."),
        Option("how-much", "whole number or none", "none", "How much."),
        Option("style", "plain or fancy", "plain", "The style."),
    )


def without(section: str) -> type:
    text = str(Whole.__doc__)
    head, _, tail = text.partition(f"    {section}:\n")
    return dataclass(frozen=True)(
        type("Part", (Whole,), {"__doc__": head + tail.partition("\n\n")[2]})
    )


@pytest.mark.parametrize("section", manual.REQUIRED)
def test_a_missing_section_is_named(section: str) -> None:
    with pytest.raises(PluginError, match=rf"whole \(.*Part\): .* lacks {section}:"):
        manual_of(without(section))


def test_an_empty_section_is_missing() -> None:
    cls = type("Part", (), {"__doc__": "S.\n\nWhy:\n\nBefore:\n    b\n", "name": "part"})
    with pytest.raises(PluginError, match="lacks Why:, After:, Safety:"):
        manual_of(cls)


def test_a_dataclass_without_a_docstring_has_no_manual() -> None:
    @dataclass(frozen=True)
    class Bare:
        name: ClassVar[str] = "bare"
        floor: float = 0.0

    with pytest.raises(PluginError, match="lacks a first sentence, Why:"):
        manual_of(Bare)


def test_the_docstring_of_a_parent_is_not_taken() -> None:
    with pytest.raises(PluginError, match="lacks a first sentence"):
        manual_of(type("Child", (Whole,), {}))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("        loud: Whether.\n", "", "does not describe loud"),
        ("loud: Whether", "proud: Whether", "does not describe loud"),
        ("loud: Whether.", "loud: Whether.\n        proud: Not.", "describes proud, which is no"),
    ],
)
def test_options_that_do_not_fit_are_named(old: str, new: str, says: str) -> None:
    text = str(Whole.__doc__).replace(old, new)
    cls = dataclass(frozen=True)(type("Part", (Whole,), {"__doc__": text}))
    with pytest.raises(PluginError, match=says):
        manual_of(cls)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("No Relu:", "No Relu."),
        ("        No Relu:\n", ""),
        ("No Relu:\n", "No Relu:\n\n"),
    ],
)
def test_a_model_left_alone_has_a_sentence_before_it(old: str, new: str) -> None:
    text = str(Whole.__doc__).replace(old, new)
    cls = dataclass(frozen=True)(type("Part", (Whole,), {"__doc__": text}))
    with pytest.raises(PluginError, match=r"Left alone: has .* a sentence that ends with a colon"):
        manual_of(cls)
