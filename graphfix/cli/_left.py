"""What ``run`` and ``ship`` say of passes that went wrong: of bad places, and of endless turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphfix.cli import _terminal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from graphfix.engine.report import Left


def show(left: Iterable[Left], searched: str, *, verbose: bool) -> None:
    """Print each bad place, and what came of the search for them."""
    for one in left:
        _one(one, verbose=verbose)
    if searched:
        _terminal.row("searched", searched)


def endless(passes: Iterable[str]) -> None:
    """Print which passes were stopped in the middle of it, if any were."""
    if names := list(dict.fromkeys(passes)):
        from graphfix.engine.fixpoint import ROUNDS

        text = f"{' and '.join(names)} still changed something after {ROUNDS} rounds and were "
        text += "stopped: if they undo each other, leave one of them out; else run again"
        _terminal.row("unsettled", text, colour="yellow")


def _one(one: Left, *, verbose: bool) -> None:
    """What was left out, or done in another way, and why."""
    shown = one.at if verbose else one.at[:2]
    more = f" and {len(one.at) - len(shown)} more (-v)" if len(one.at) > len(shown) else ""
    places = f" at {', '.join(shown)}{more}" if shown else ""
    if one.instead:
        text = f"{one.instead}{places}: with {one.by} {one.why}"
        _terminal.row("instead", text, colour="yellow")
    elif one.raised:
        _terminal.row("left out", f"{one.why}; what it did was rolled back", colour="yellow")
    else:
        _terminal.row("left out", f"{one.by}{places}: with it {one.why}", colour="yellow")
