"""``graphfix check``: what the passes would repair, without repairing it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from graphfix.cli import _options, _terminal
from graphfix.version import __version__

if TYPE_CHECKING:
    from graphfix.core import Finding

_COLOURS = {"error": "red", "warning": "yellow", "note": None}


@click.command()
@_options.model
@_options.passes
@_options.json_flag
@_options.plugin
@_options.verbose
def check(
    model: str, spec: str | None, as_json: bool, plugin: tuple[str, ...], verbose: bool
) -> int:
    """Say what there is to repair in MODEL; nothing is run or written.

    Exit code 1 if there is an error or a warning. Notes, which are near misses, do not count.
    """
    _options.load_plugins(plugin)
    from graphfix import pipeline
    from graphfix.model import io

    chosen = pipeline.resolve(spec or pipeline.DEFAULT)
    with _terminal.progress(quiet=as_json) as tell:
        if tell is not None:
            tell("loading")
        loaded = io.load(model)
        if tell is not None:
            tell("looking")
        found = pipeline.check(loaded, chosen)
    if as_json:
        import dataclasses

        _terminal.print_json(
            {
                "schema": 1,
                "graphfix": __version__,
                "source": model,
                "spec": pipeline.spec_of(chosen),
                "findings": [dataclasses.asdict(finding) for finding in found],
            }
        )
    else:
        _print(model, found, verbose=verbose)
    return int(any(finding.severity != "note" for finding in found))


def _print(model: str, found: list[Finding], *, verbose: bool) -> None:
    _terminal.paragraph(model)
    click.echo()
    groups: dict[tuple[str, str, str | None], list[Finding]] = {}
    for finding in found:
        groups.setdefault((finding.rule, finding.severity, finding.fix), []).append(finding)
    for (rule, severity, fix), members in groups.items():
        word = click.style(severity, fg=_COLOURS.get(severity), bold=severity != "note")
        how = f"; repair with: graphfix run {model} -p {fix}" if fix is not None else ""
        head = f"{_terminal.clean(rule)}: {len(members)}"
        click.echo(f"  {word} {head}{_terminal.clean(how)}")
        pairs = ((member.at, member.message) for member in members)
        _terminal.reasons(pairs, every=verbose, indent="      ")
    if not found:
        _terminal.paragraph("nothing to repair", "  ")
