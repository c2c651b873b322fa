"""``graphfix check``: every hazard of a model at once, and on request its repair."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import click

from graphfix.cli import _options, _page, _terminal
from graphfix.errors import GraphfixError
from graphfix.wording import clean, grouped, plural, reasons

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from graphfix.core import Check, Findings
    from graphfix.rules import Provider

_COLOURS = {"error": "red", "warning": "yellow", "note": None}
_WORST = ("error", "warning", "note")
_REASONS = 3


@click.command()
@_options.models
@click.option(
    "-p",
    "--passes",
    "--rules",
    "spec",
    metavar="SPEC",
    help="Passes, profiles and rules, separated by commas. Default: the rules that hold on --ep, "
    "and what matters there of the profile directml, and thaw.",
)
@_options.flag(
    "--padding",
    text="Say instead what padding does: each leak, and what cannot be analysed (the pass "
    "ilens-mask repairs it).",
)
@_options.flag(
    "--float16",
    "half",
    text="Say instead what would stay in float32, and why (the pass float16 converts the rest).",
)
@_options.where(
    ["dml", "cpu"], "dml", "Where the model is to run: on DirectML (default) or on the CPU."
)
@click.option(
    "--fail-on",
    type=click.Choice(_WORST),
    help="Exit with 1 if there is a finding as bad as this: error (default), or warning where -p "
    "says what to look for.",
)
@_options.exclude
@_options.json_flag
@_page.option
@_options.flag("--sarif", text="Print SARIF 2.1.0 on stdout.")
@_options.plugin
@_options.flag("-v", "--verbose", "--all", text="List every node.")
def check(
    models: tuple[str, ...],
    spec: str | None,
    padding: bool,
    half: bool,
    ep: Provider,
    fail_on: str | None,
    exclude: tuple[str, ...],
    as_json: bool,
    report: str | None,
    sarif: bool,
    verbose: bool,
) -> int:
    """Report what fails, is wrong or is slow on DirectML.

    Nothing is run or written.
    A pattern such as "models/**/*.onnx" stands for all files that it matches.

    An error crashes there or computes something else, a warning is slow or runs on the CPU, a note
    matters only elsewhere. Exit code 1 if there is an error.
    """
    also = [name for name, asked in (("ilens-mask", padding), ("float16", half)) if asked]
    if also:
        spec = ",".join([*([spec] if spec is not None else []), *also])
    if as_json and sarif:
        raise click.UsageError("--json and --sarif: only one of them goes to stdout.")
    _options.load_plugins()
    from graphfix.core import Findings
    from graphfix.engine import pipeline
    from graphfix.files import io
    from graphfix.job import checking

    page = _page.path(report, models)
    asked = pipeline.resolve(spec) if spec is not None else checking.everything(ep)
    found: dict[str, Findings] = {}
    unread: list[str] = []
    with _terminal.progress(quiet=as_json or sarif) as say:
        for model in models:
            say(f"checking {model}")
            click.get_current_context().meta[_options.MODEL] = model
            try:
                here = checking.check(io.load(model), asked, ep=ep)
            except GraphfixError as error:
                if len(models) == 1:
                    raise
                _terminal.remark(f"error: {error}")
                unread.append(str(error))
                continue
            here.sort(key=lambda x: _WORST.index(x.severity))
            shown = (x for x in here if not any(fnmatchcase(x.at, y) for y in exclude))
            found[model] = Findings(shown)
    limit = fail_on or ("error" if spec is None else "warning")
    each = [_as_json(_page.name(model), ep, asked, here) for model, here in found.items()]
    document = each[0] if len(models) == 1 else _terminal.headed(models=each)
    if sarif:
        from graphfix.show.sarif import document as in_sarif

        _terminal.print_json(in_sarif(found, _about(asked)))
    elif as_json:
        _terminal.print_json(document)
    else:
        for model, here in found.items():
            _print(model, here, verbose=verbose)
            if padding and here:
                measured = "graphfix padded measures what reaches the outputs"
                _terminal.row("how", f"seen in the graph, for any size; {measured}")
        if len(models) > 1:
            click.echo()
            _total(found)
    if page is not None:
        groups = {_page.name(model): list(_groups(here)) for model, here in found.items()}
        told: dict[str, object] = {"groups": groups, "about": _about(asked), "unread": unread}
        quiet = as_json or sarif
        _page.write(page, "check.html", document, quiet=quiet, models=each, ep=ep, **told)
    bad = any(_WORST.index(x.severity) <= _WORST.index(limit) for y in found.values() for x in y)
    return 2 if unread else int(bad)


def _groups(found: Findings) -> Iterator[dict[str, object]]:
    """What the page shows of one rule: each reason once with its places."""
    for (severity, rule, fix), here in found.groups.items():
        told = grouped((x.message, x.at) for x in here)
        yield {"severity": severity, "rule": rule, "fix": fix, "found": here, "reasons": told}


def _about(asked: Sequence[Check]) -> dict[str, str]:
    from graphfix.spec.manual import summary_of

    return {x.name: summary_of(type(x)) for x in asked}


def _as_json(model: str, ep: str, asked: Sequence[Check], found: Findings) -> dict[str, object]:
    from graphfix.engine import pipeline

    return _terminal.headed(source=model, ep=ep, spec=pipeline.spec_of(asked), **found.to_json())


def _print(model: str, found: Findings, *, verbose: bool) -> None:
    _terminal.paragraph(model)
    click.echo()
    show_findings(found, verbose=verbose)
    if found:
        click.echo()
    counted = found.line
    none = "; no automatic repair" if found and all(x.fix is None for x in found) else ""
    _terminal.row("found", counted + none, colour="red" if "error" in counted else None)


def _total(found: Mapping[str, Findings]) -> None:
    """The last line, where there are several models."""
    from graphfix.core import Findings

    every = Findings(x for here in found.values() for x in here)
    failing = sum(any(x.severity == "error" for x in here) for here in found.values())
    text = f"{plural(len(found), 'model')}, {failing} with errors"
    _terminal.row("in all", f"{text}: {every.line}")


def show_findings(found: Findings, *, verbose: bool) -> None:
    """Print findings: those of one rule with one repair together, each reason once."""
    from graphfix.engine import registry

    passes = set(registry.names())
    for (severity, rule, fix), here in found.groups.items():
        named = [f" ({x.module})" if verbose and x.module else "" for x in here]
        pairs = [(x.at + module, x.message) for x, module in zip(here, named, strict=True)]
        word = click.style(severity, fg=_COLOURS.get(severity), bold=severity != "note")
        how = f"; repair with -p {fix}" if fix is not None and severity != "note" else ""
        click.echo(f"  {word} {clean(f'{rule}: {len(pairs)}{how}')}")
        # Why a pass leaves something is never hidden: it is all that there is to act on.
        most = None if fix is None and rule in passes else _REASONS
        _terminal.lines(reasons(pairs, every=verbose, indent="      ", most=most))
