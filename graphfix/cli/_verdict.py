"""A verdict in a few lines, made from its JSON."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from graphfix.cli import _terminal
from graphfix.spec.quoting import quoted

_SIZES = re.compile(r" \d+( to \d+)?$")

if TYPE_CHECKING:
    from collections.abc import Mapping

    Verdict = Mapping[str, Any]  # of graphfix.proof.verdict.Verdict.to_json


def show(verdict: Verdict, *, verbose: bool) -> None:
    """Print what was compared, the worst of it, and what was not tried."""
    sizes, others = _covered(verdict)
    tried = f" ({', '.join(sizes)})" if sizes and verdict["ok"] else ""
    colour = "green" if verdict["ok"] else "red"
    _terminal.row("numbers", verdict["summary"].rstrip(".") + tried, colour=colour)
    if not_tried := verdict["not_tried"]:
        _terminal.row("not tried", f"{', '.join(not_tried)} (--dims)")
    if verbose:
        if others:
            _terminal.row("covered", ", ".join(others))
        for case in verdict["cases"]:
            _case(case)
    if dropped := verdict["dropped"]:
        count = _terminal.plural(len(dropped), "case")
        told = f"{count} that the original cannot run{'' if verbose else ' (-v)'}"
        _terminal.row("dropped", told)
        pairs = ((case["name"], case["reason"]) for case in dropped)
        if verbose:
            _terminal.reasons(pairs, every=True, indent=" " * 12, alike=True)
    notes = verdict["notes"]
    for note in notes if verbose else notes[:1]:
        _terminal.row("note", note)
    if len(notes) > 1 and not verbose:
        _terminal.row("", f"{len(notes) - 1} more with -v")


def _covered(verdict: Verdict) -> tuple[list[str], list[str]]:
    """What was covered: sizes of dims, and the rest."""
    dims = {quoted(name) for case in verdict["cases"] for name in case["dims"]}
    sizes = [x for x in verdict["covered"] if _SIZES.sub("", x) in dims]
    return sizes, [x for x in verdict["covered"] if x not in sizes]


def _case(case: Verdict) -> None:
    indent = " " * 12
    _terminal.paragraph(case["name"], indent)
    for diff in case["outputs"]:
        if diff["reason"]:
            told = diff["reason"]
        elif diff["differing"]:
            told = f"differs by at most {number(diff['max_abs'])}"
        else:
            told = "the same"
        text = _terminal.line(f"{diff['output']}: {told}")
        click.echo(f"{indent}    {text}" if diff["ok"] else click.style(indent + text, fg="red"))


def number(value: float | str) -> str:
    """A difference in three digits; NaN and infinity are text in the JSON."""
    return value if isinstance(value, str) else f"{value:.3g}"


def is_difference(verdict: Verdict) -> bool:
    """Whether both models ran, and numbers differ: then a larger tolerance may be meant."""
    return not verdict["ok"] and not verdict["reason"] and verdict["worst"] is not None


def failure(verdict: Verdict, subject: str) -> str:
    """The sentence for a verdict that is not ok."""
    return f"{subject} does not compute the same: {verdict['summary'].rstrip('.')}"
