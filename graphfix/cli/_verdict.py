"""A verdict in a few lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from graphfix.cli import _terminal
from graphfix.wording import number, one_line, reasons

if TYPE_CHECKING:
    from graphfix.proof.compare import OutputDiff
    from graphfix.proof.verdict import Verdict


def details(verdict: Verdict) -> None:
    """Print all that was covered, each case with its outputs, and the cases that were dropped."""
    if others := [x for x in verdict.covered if x not in verdict.sizes]:
        _terminal.row("covered", ", ".join(others))
    for i, (name, diffs) in enumerate(verdict.cases.items()):
        _terminal.row("" if i else "cases", name)
        for diff in diffs:
            text = one_line(f"{diff.output}: {_told(diff)}")
            click.secho(f"{' ' * 16}{text}", fg=None if diff.ok else "red")
    pairs = ((case.name, case.reason) for case in verdict.dropped)
    _terminal.lines(reasons(pairs, every=True, indent=" " * 12, alike=True))


def _told(diff: OutputDiff) -> str:
    if diff.reason:
        return diff.reason
    return f"differs by at most {number(diff.max_abs)}" if diff.differing else "the same"


def is_difference(verdict: Verdict | None) -> bool:
    """Whether both models ran, and numbers differ: then a larger tolerance may be meant."""
    return verdict is not None and not (verdict.ok or verdict.reason or verdict.worst is None)


def failure(verdict: Verdict | None, subject: str) -> str:
    """The sentence for a verdict that is not ok."""
    return f"{subject} does not compute the same: {str(verdict).rstrip('.')}"
