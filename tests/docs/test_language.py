"""What a user reads is in the field's words: none that stands for one of them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import click
import pytest

from graphfix.cli import group

ROOT = Path(__file__).parents[2]
# What is said instead, by what is not said.
WORDS = {
    r"made anew|makes? anew|\banew\b": "recompiled, again",
    r"\bfore(see|sees|seen)\b": "predicted",
    r"\bkernels of a run\b": "kernels per run",
    r"\bheld against\b": "compared with",
    r"\b(not|is|are) to be had\b": "unavailable, available",
    r"\bcan(not)? be told\b(?! apart)": "can be inferred",
    r"\bsee(s|n)? through\b": "analyse",
    r"\bput back\b": "rolled back",
    r"\bleft alone\b": "skipped",
    r"\btold by\b": "recognised by, inferred from",
    r"\bin turns\b": "alternately",
    r"\bbut for\b": "except",
    r"\bopen size\b|\ba size is open\b": "a symbolic dim",
    r"\bno place in a fused graph\b": "cannot be part of a fused graph",
    r"\blargest element of a vector is the same\b": "top-1 agrees",
    r"\bfor other reasons\b|\(too much\)": "how many, and -v",
}
PAGES = [ROOT / "README.md", ROOT / "passes/README.md", *sorted((ROOT / "docs").glob("*.md"))]
CODE = [x for y in ("graphfix", "passes") for x in sorted((ROOT / y).rglob("*.py"))]


def found(text: str) -> list[str]:
    flat = re.sub(r"\s+", " ", text)
    return [
        f"{flat[max(0, x.start() - 30) : x.end() + 30]!r}: say {instead}"
        for words, instead in WORDS.items()
        for x in re.finditer(words, flat)
    ]


def test_the_words_are_seen() -> None:
    assert found("three kernels\nare made  anew, as foreseen") != []
    assert found("they can be told apart; three kernels are recompiled") == []


@pytest.mark.parametrize("page", PAGES, ids=lambda x: x.name)
def test_pages(page: Path) -> None:
    assert found(page.read_text(encoding="utf-8")) == []


def test_messages_and_docstrings() -> None:
    wrong = [
        (path.relative_to(ROOT).as_posix(), node.lineno, told)
        for path in CODE
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for told in found(node.value)
    ]
    assert wrong == []


def test_help() -> None:
    for name, command in group.commands.items():
        context = click.Context(command, info_name=name)
        assert found(command.get_help(context)) == [], name


def test_pages_of_results() -> None:
    for path in (ROOT / "graphfix/show/templates").iterdir():
        assert found(path.read_text(encoding="utf-8")) == [], path.name


def test_a_summary_of_a_pass_is_a_verb_and_its_object() -> None:
    from graphfix.engine import registry
    from graphfix.spec.manual import manual_of

    for name in registry.pass_names():
        first = manual_of(registry.pass_class(name)).summary.split()[0]
        assert re.fullmatch("[A-Z][a-z]+s", first), f"{name}: {first}"
