"""``graphfix padded``: does a padded clip give the same results as the clip alone?"""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from graphfix.cli import _options, _page, _terminal
from graphfix.providers.table import Ep
from graphfix.wording import format_number, group_pairs, one_line, plural, reason_lines

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
@_options.tolerance_option(
    "--atol",
    "--max-abs",
    text="Largest difference that passes; of outputs over 1, a share. Default 1e-4.",
)
@_options.tolerance_option("--cosine", text="Least cosine; 0.999999 by default.")
@_options.padded_ep
@_options.json_flag
@_page.option
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
    report: str | None,
    verbose: bool,
) -> int:
    """Measure whether padding changes the results.

    Each clip runs alone and padded to longer containers, with zeros, noise and large values in the
    padding. Masks and lengths of the model are filled in.

    Exit code 1 if an output of a clip differs by more than the tolerance.
    """
    page = _page.page_path(report, [model, *([original] if original else [])])
    gates = _options.build_tolerance(atol, cosine=cosine, wide=False)
    with _terminal.show_progress(quiet=as_json) as tell:
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
            progress=lambda step: tell(f"padding {step}"),
        )
    data = verdict.to_json()
    if as_json:
        _terminal.print_json(data)
    else:
        _print_verdict(data, model, verbose=verbose)
    if page is not None:
        names = {
            "model": _page.display_name(model),
            "original": original and _page.display_name(original),
        }
        _page.write_page(page, "padded.html", data, quiet=as_json, **names)
    if verdict.ok:
        return 0
    reason = f": {str(verdict).rstrip('.')}" if as_json else ""  # else it was said above
    return _terminal.report_failure(f"{model} is not safe to pad{reason}")


def _print_verdict(verdict: Verdict, model: str, *, verbose: bool) -> None:
    from graphfix.facts.forced_sizes import ForcedSize, forced_row

    _terminal.print_paragraph(model)
    click.echo()
    _print_table(verdict["checks"], verdict["axis"], every=verbose)
    label, colour = ("safe", "green") if verdict["ok"] else ("failed", "red")
    _terminal.print_row(label, verdict["summary"], colour=colour)
    _terminal.print_row("length of", ", ".join(verdict["told"]) or "nothing")
    forced = {name: ForcedSize(**size) for name, size in verdict["forced"].items()}
    for row in forced_row(forced, verbose=verbose):
        _terminal.print_row(row.label, row.text)
    if dropped := verdict["dropped"]:
        _terminal.print_row("dropped", f"{plural(len(dropped), 'size')} not compared")
        pairs = ((x["name"], x["reason"]) for x in dropped)
        _terminal.print_lines(reason_lines(pairs, every=verbose, indent=" " * 12, alike=True))
    for note in verdict["notes"]:
        _terminal.print_row("note", note)


def _print_table(checks: Sequence[Verdict], axis: str, *, every: bool) -> None:
    """Print a line per clip, container and padding: its worst output, or each with ``every``."""
    if not checks:
        return
    keys = ("clip", "row", "container", "fill", *(["output"] if every else []))
    groups = group_pairs(((*(check[x] for x in keys), *check["rows"]), check) for check in checks)
    rowed = any(len(check["rows"]) > 1 for check in checks)
    of = f"{'row':<9}" if rowed else ""
    click.echo(
        f"  {'clip':>6} {'container':>9}  {of}{'padding':<8}{'max abs':>9} {'allowed':>8}  "
        f"{'cosine':<11} output"
    )
    for group in groups.values():
        worst = max(
            group, key=lambda c: (not c["ok"], _share_of_allowed(c), _as_float(c["max_abs"]))
        )
        text = f"  {worst['clip']:>6} {worst['container']:>9}  "
        if rowed:
            text += f"{worst['row'] + 1} of {len(worst['rows']):<4}"
        text += (
            f"{worst['fill']:<8}{format_number(worst['max_abs']):>9} "
            f"{format_number(worst['allowed']):>8}  "
        )
        text += f"{_cosine_text(worst):<11} {one_line(worst['output'])}"
        click.echo(text if worst["ok"] else click.style(text, fg="red"))
    click.echo(f"  clip and container count {one_line(axis)}")
    click.echo()


def _as_float(number: float | str) -> float:
    return number if isinstance(number, float) else float("inf")


def _share_of_allowed(check: Verdict) -> float:
    allowed = check["allowed"]
    return _as_float(check["max_abs"]) / allowed if allowed else 0.0


def _cosine_text(check: Verdict) -> str:
    """Return the cosine, or - for whole numbers and for 1 beside a failure."""
    value = check["cosine"]
    if isinstance(value, str):
        return "-"
    text = f"{value:.9f}"
    return text if check["ok"] or float(text) < 1 else "-"
