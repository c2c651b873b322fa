"""``graphfix padded``: does a clip in a container give what it gives alone?"""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from graphfix.cli import _options, _terminal
from graphfix.runtime.provider import Ep
from graphfix.wording import grouped, number, one_line, plural, reasons

Verdict = Mapping[str, Any]  # of graphfix.probing.padded.PaddedVerdict.to_json


@click.command()
@_options.model
@_options.lengths
@click.option(
    "--poison",
    type=click.Choice(["nan", "inf"]),
    multiple=True,
    help="Fill the padding with this as well; a mask that multiplies by 0 does not stop it.",
)
@_options.gate(
    "--atol",
    "--max-abs",
    text="Largest difference that passes; of outputs over 1, a share. Default 1e-4.",
)
@_options.gate("--cosine", text="Least cosine; 0.999999 by default.")
@_options.padded_ep
@_options.json_flag
@_options.verbose
def padded(
    model: str,
    dims: _options.Sizes | None,
    container: list[int] | None,
    axis: str,
    original: str | None,
    poison: tuple[str, ...],
    atol: float | None,
    cosine: float | None,
    ep: Ep,
    as_json: bool,
    verbose: bool,
) -> int:
    """Measure whether padding changes the results.

    Each clip runs alone and padded to longer containers, with zeros, noise and large values in the
    padding. Masks and lengths of the model are filled in.

    Exit code 1 if an output of a clip differs by more than the tolerance.
    """
    gates = _options.tolerance(atol, cosine=cosine, wide=False)
    with _terminal.progress(quiet=as_json) as tell:
        from graphfix.feeds.clips import FILLS
        from graphfix.probing.padded import padded as measure

        verdict = measure(
            model,
            dims=dims,
            container=container,
            axis=axis,
            original=original,
            fills=(*FILLS, *poison),  # type: ignore[arg-type]
            tolerance=gates,
            ep=ep,
            progress=lambda what: tell(f"padding {what}"),
        )
    data = verdict.to_json()
    if as_json:
        _terminal.print_json(data)
    else:
        _show(data, model, verbose=verbose)
    if verdict.ok:
        return 0
    why = f": {str(verdict).rstrip('.')}" if as_json else ""  # else it was said above
    return _terminal.failed(f"{model} is not safe to pad{why}")


def _show(verdict: Verdict, model: str, *, verbose: bool) -> None:
    _terminal.paragraph(model)
    click.echo()
    _table(verdict["checks"], verdict["axis"], every=verbose)
    label, colour = ("safe", "green") if verdict["ok"] else ("failed", "red")
    _terminal.row(label, verdict["summary"], colour=colour)
    _terminal.row("length of", ", ".join(verdict["told"]) or "nothing")
    if dropped := verdict["dropped"]:
        _terminal.row("dropped", f"{plural(len(dropped), 'size')} not compared")
        pairs = ((x["name"], x["reason"]) for x in dropped)
        _terminal.lines(reasons(pairs, every=verbose, indent=" " * 12, alike=True))
    for note in verdict["notes"]:
        _terminal.row("note", note)


def _table(checks: Sequence[Verdict], axis: str, *, every: bool) -> None:
    """A line for each clip, container and padding: its worst output, or each with ``every``."""
    if not checks:
        return
    keys = ("clip", "row", "container", "fill", *(["output"] if every else []))
    groups = grouped(((*(check[x] for x in keys), *check["rows"]), check) for check in checks)
    rowed = any(len(check["rows"]) > 1 for check in checks)
    of = f"{'row':<9}" if rowed else ""
    click.echo(
        f"  {'clip':>6} {'container':>9}  {of}{'padding':<8}{'max abs':>9} {'allowed':>8}  "
        f"{'cosine':<11} output"
    )
    for found in groups.values():
        worst = max(found, key=lambda c: (not c["ok"], _badness(c), _size(c["max_abs"])))
        text = f"  {worst['clip']:>6} {worst['container']:>9}  "
        if rowed:
            text += f"{worst['row'] + 1} of {len(worst['rows']):<4}"
        text += f"{worst['fill']:<8}{number(worst['max_abs']):>9} {number(worst['allowed']):>8}  "
        text += f"{_cosine(worst):<11} {one_line(worst['output'])}"
        click.echo(text if worst["ok"] else click.style(text, fg="red"))
    click.echo(f"  clip and container count {one_line(axis)}")
    click.echo()


def _size(number: float | str) -> float:
    return number if isinstance(number, float) else float("inf")


def _badness(check: Verdict) -> float:
    allowed = check["allowed"]
    return _size(check["max_abs"]) / allowed if allowed else 0.0


def _cosine(check: Verdict) -> str:
    """The cosine, where it says something: not of whole numbers, and not 1 beside a failure."""
    value = check["cosine"]
    if isinstance(value, str):
        return "-"
    text = f"{value:.9f}"
    return text if check["ok"] or float(text) < 1 else "-"
