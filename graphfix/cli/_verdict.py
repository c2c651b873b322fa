"""Prints a verdict in a few lines, and says how to allow what it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from graphfix.cli import _terminal
from graphfix.wording import format_number, one_line, reason_lines

if TYPE_CHECKING:
    import onnx_ir as ir

    from graphfix.probing.padded import PaddedVerdict
    from graphfix.proof.compare import OutputDiff
    from graphfix.proof.verdict import Verdict


def print_details(verdict: Verdict) -> None:
    """Print all that was covered, each case with its outputs, and the cases that were dropped."""
    if extra_cases := [x for x in verdict.covered if x not in verdict.sizes]:
        _terminal.print_row("covered", ", ".join(extra_cases))
    for i, (name, diffs) in enumerate(verdict.cases.items()):
        _terminal.print_row("" if i else "cases", name)
        for diff in diffs:
            text = one_line(f"{diff.output}: {_diff_text(diff)}")
            click.secho(f"{' ' * 16}{text}", fg=None if diff.ok else "red")
    pairs = ((case.name, case.reason) for case in verdict.dropped)
    _terminal.print_lines(reason_lines(pairs, every=True, indent=" " * 12, alike=True))


def print_padding(line: str, verdict: PaddedVerdict, *, verbose: bool) -> None:
    """Print the proof of a container, and on request its notes and the sizes that were dropped."""
    _terminal.print_row("padded", line, colour="green" if verdict.ok else "red")
    if verbose:
        dropped = (f"{x.name}: {x.reason}" for x in verdict.dropped)
        for note in (*verdict.notes, *dropped):
            _terminal.print_row("note", note)


def _diff_text(diff: OutputDiff) -> str:
    if diff.reason:
        return diff.reason
    return f"differs by at most {format_number(diff.max_abs)}" if diff.differing else "the same"


def is_numeric_difference(verdict: Verdict | None) -> bool:
    """Return whether both models ran and numbers differ: a larger tolerance may help."""
    return verdict is not None and not (verdict.ok or verdict.reason or verdict.worst is None)


def failure_sentence(verdict: Verdict | None, subject: str) -> str:
    """Return the sentence for a verdict that is not ok."""
    return f"{subject} does not compute the same: {str(verdict).rstrip('.')}"


def rounding_advice(before: ir.Model, after: ir.Model) -> str:
    """Return how to allow the rounding of another tool, or ""."""
    from graphfix.proof.half_outputs import computes_in_half

    if computes_in_half(before) or not computes_in_half(after):
        return ""
    return "; it computes in float16: --rtol 0.01 allows what that rounds"
