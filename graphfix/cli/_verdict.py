"""A verdict in a few lines, made from its JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from graphfix.cli import _terminal

if TYPE_CHECKING:
    from collections.abc import Mapping

    Verdict = Mapping[str, Any]  # of graphfix.proof.verdict.Verdict.to_json


def show(verdict: Verdict, *, verbose: bool) -> None:
    """Print what was compared, the worst of it, and what was left out and why."""
    if verdict["ok"]:
        _terminal.row("verified", verdict["summary"], colour="green")
    else:
        _terminal.row("failed", verdict["summary"], colour="red")
    if covered := verdict["covered"]:
        _terminal.row("covered", ", ".join(covered))
    if not_tried := verdict["not_tried"]:
        _terminal.row("not tried", ", ".join(not_tried))
    if verbose:
        for case in verdict["cases"]:
            _case(case)
    if dropped := verdict["dropped"]:
        count = _terminal.plural(len(dropped), "case")
        _terminal.row("dropped", f"{count} that the original cannot run")
        pairs = ((case["name"], case["reason"]) for case in dropped)
        _terminal.reasons(pairs, every=verbose, indent=" " * 12, alike=True)
    for note in verdict["notes"]:
        _terminal.row("note", note)


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
