"""Manuals: docstrings parsed into sections, and what is said of one that lacks something."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest

from graphfix.errors import PluginError
from graphfix.spec.manual import LeftAlone, Option, manual_of, rule_manual_of, summary_of


@dataclass(frozen=True)
class Full:
    """Does one thing
    on two lines.

    Some more of it.

    And more.

    Why:
        Measured: it
        is faster.

    Before:
        <a>
          b

    After:
        <c>

    Left alone:
        It is something else, "not that" and "more":
        <ir_version: 8>
        x => y

        Another one:
        <ir_version: 9>

    Safety:
        Exact.

    Spec:
        full:floor=1

    Options:
        floor: the lowest
            number there is
        keep_all: whether all
          is kept
        mode: which

        name: what it is called
        ratio: how much
    """

    name = "full"
    safety = "exact"

    floor: float
    keep_all: bool = False
    mode: Literal["a", "b", "c"] = "a"
    name_: int | None = None
    ratio: float = 1e-3


class Rule:
    """Finds it.

    Why:
        It fails.

    Flagged:
        <a>

    Clean:
        <b>
    """

    providers = ("dml", "cpu")


def test_a_manual_has_all_its_sections() -> None:
    broken = Full.__doc__
    assert broken is not None
    manual = manual_of(
        type("Full", (), {"__doc__": broken.partition("    Options:")[0], "name": "full",
                          "safety": "exact"})
    )  # fmt: skip
    assert (manual.name, manual.summary) == ("full", "Does one thing on two lines.")
    assert manual.body == "Some more of it.\n\nAnd more."
    assert manual.why == "Measured: it\nis faster."
    assert (manual.before, manual.after) == ("<a>\n  b", "<c>")
    assert (manual.safety, manual.promise, manual.spec) == ("Exact.", "exact", "full:floor=1")
    assert manual.options == ()
    assert manual.left_alone == (
        LeftAlone('It is something else, "not that" and "more":', "<ir_version: 8>\nx => y"),
        LeftAlone("Another one:", "<ir_version: 9>"),
    )
    assert [x.reason for x in manual.left_alone] == ["not that", ""]


@dataclass(frozen=True)
class Optioned:
    """Does it.

    Why:
        So.

    Before:
        <a>

    After:
        <c>

    Safety:
        Exact.

    Options:
        floor: the lowest
            number there is
        keep_all: whether all: of it

        mode: which
        count: how many
        ratio: how much
        label: what
    """

    floor: float
    keep_all: bool = True
    mode: Literal["a", "b", "c"] = "a"
    count: int | None = None
    ratio: float = 1e-3
    label: str = "x"


def test_options_have_types_and_defaults() -> None:
    assert manual_of(Optioned).options == (
        Option("floor", "number", "", "the lowest number there is"),
        Option("keep-all", "yes or no", "yes", "whether all: of it"),
        Option("mode", "a, b or c", "a", "which"),
        Option("count", "whole number or none", "none", "how many"),
        Option("ratio", "number", "0.001", "how much"),
        Option("label", "text", "x", "what"),
    )
    manual = manual_of(Optioned)
    assert (manual.name, manual.promise, manual.spec, manual.body) == (
        "Optioned",
        "check",
        None,
        "",
    )


def with_doc(old: str, new: str) -> type:
    assert Optioned.__doc__ is not None
    assert old in Optioned.__doc__

    @dataclass(frozen=True)
    class Changed(Optioned):
        pass

    Changed.__doc__ = Optioned.__doc__.replace(old, new)
    return Changed


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Safety:", "Sfety:", "its docstring lacks Safety:; a manual has a first sentence, then "
         "Why:, Before:, After:, Safety:, Options:"),
        ("Does it.", "", "its docstring lacks a first sentence; "),
        ("        <c>", "", "its docstring lacks After:; "),
        ("        label: what", "", "Options: does not describe label"),
        ("label: what", "label:", "Options: does not describe label"),
        ("label: what", "label: what\n        other: no", "Options: describes other, which is no"),
    ],
)  # fmt: skip
def test_what_a_docstring_lacks_is_said(old: str, new: str, message: str) -> None:
    with pytest.raises(PluginError, match=message):
        manual_of(with_doc(old, new))


@pytest.mark.parametrize(
    "text",
    ["It is other\n        <ir>", "It is other:\n        ir", "It is other:\n\n        <ir>"],
)
def test_a_model_that_is_left_alone_has_a_sentence_before_it(text: str) -> None:
    with pytest.raises(PluginError, match=r"Left alone: has '.*'; each model there is ONNX text"):
        manual_of(with_doc("    Safety:", f"    Left alone:\n        {text}\n\n    Safety:"))


def test_a_rule_has_its_own_sections() -> None:
    manual = rule_manual_of(Rule)
    assert (manual.name, manual.summary, manual.why) == ("Rule", "Finds it.", "It fails.")
    assert (manual.flagged, manual.clean, manual.providers) == ("<a>", "<b>", ("dml", "cpu"))

    class Lacking(Rule):
        """Finds it."""

    with pytest.raises(PluginError) as caught:
        rule_manual_of(Lacking)
    assert "lacks Why:, Flagged:, Clean:; " in str(caught.value)
    assert "Options" not in str(caught.value)


def test_the_summary_is_the_first_paragraph() -> None:
    assert summary_of(Full) == "Does one thing on two lines."

    class Bare(Full):
        pass

    @dataclass
    class Signature:
        x: int

    assert summary_of(Bare) == ""  # that of a parent is not its own
    assert summary_of(Signature) == ""
