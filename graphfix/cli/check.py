"""``graphfix check``: every hazard of a model at once."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import click

from graphfix.cli import _options, _page, _terminal
from graphfix.errors import GraphfixError
from graphfix.providers.table import EVERYWHERE
from graphfix.wording import clean_text, group_pairs, plural, reason_lines, wrap_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from graphfix.core import Check, Findings
    from graphfix.providers.table import Ep

_COLOURS = {"error": "red", "warning": "yellow", "note": None}
_WORST = ("error", "warning", "note")
_REASONS = 3
_PADDING = "ilens-mask"


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
@_options.flag_option(
    "--padding",
    text="Say instead what padding does: each leak, and what cannot be analysed (the pass "
    "ilens-mask repairs it).",
)
@_options.flag_option(
    "--float16",
    "half",
    text="Say instead what would stay in float32, and why (the pass float16 converts the rest).",
)
@_options.ep_option(
    EVERYWHERE,
    "dml",
    "Where the model is to run: on DirectML (default), on the CPU, WebGPU or CUDA.",
)
@click.option(
    "--fail-on",
    type=click.Choice(_WORST),
    default="error",
    help="Exit with 1 if there is a finding of this severity or worse; error by default.",
)
@_options.exclude
@_options.json_flag
@_page.option
@_options.flag_option("--sarif", text="Print SARIF 2.1.0 on stdout.")
@_options.plugin
@_options.flag_option("-v", "--verbose", "--all", text="List every node.")
def check(
    models: tuple[str, ...],
    spec: str | None,
    padding: bool,
    half: bool,
    ep: Ep,
    fail_on: str,
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
    if as_json and sarif:
        raise click.UsageError("--json and --sarif: only one of them goes to stdout.")
    quiet = as_json or sarif
    _options.load_plugins()
    from graphfix.engine import pipeline
    from graphfix.job import checking
    from graphfix.providers.versions import named_label
    from graphfix.runtime.python import versions_in_force

    versions = versions_in_force(ep)
    page = _page.page_path(report, models)
    asked = [x for x in (spec, "float16" if half else "") if x]
    is_default = not asked and not padding
    checks = checking.default_checks(ep) if is_default else pipeline.resolve_passes(asked)
    adds_padding = padding and all(x.name != _PADDING for x in checks)
    findings_by_model, checks_by_model, unread = _check_models(
        models, checks, ep, exclude, adds_padding=adds_padding, quiet=quiet
    )
    about = {k: v for x in checks_by_model.values() for k, v in _summaries_of(x).items()}
    each = [
        _to_json(_page.display_name(x), ep, versions, checks_by_model[x], y)
        for x, y in findings_by_model.items()
    ]
    document = each[0] if len(models) == 1 else _terminal.with_header(models=each)
    if sarif:
        from graphfix.show.sarif import sarif_document

        _terminal.print_json(sarif_document(findings_by_model, about))
    elif as_json:
        _terminal.print_json(document)
    else:
        padding_specs = {
            model: pipeline.spec_of(x[-1:]) if adds_padding else _PADDING
            for model, x in checks_by_model.items()
            if padding
        }
        _print_models(findings_by_model, ep, padding_specs, verbose=verbose, folds_notes=is_default)
        if len(models) > 1:
            click.echo()
            _print_total(findings_by_model)
    if page is not None:
        groups = {
            _page.display_name(model): list(_page_groups(findings))
            for model, findings in findings_by_model.items()
        }
        values: dict[str, object] = {"groups": groups, "about": about, "unread": unread}
        values["where"] = named_label(ep)
        _page.write_page(page, "check.html", document, quiet=quiet, models=each, **values)
    return 2 if unread else int(_has_finding(findings_by_model, fail_on))


def _check_models(
    models: Sequence[str],
    checks: Sequence[Check],
    ep: Ep,
    exclude: Sequence[str],
    *,
    adds_padding: bool,
    quiet: bool,
) -> tuple[dict[str, Findings], dict[str, Sequence[Check]], list[str]]:
    """Return the findings of each model, the worst first, its checks, and why others are unread.

    Raises:
        GraphfixError: The only model cannot be read.
    """
    from graphfix.core import Findings
    from graphfix.files import io
    from graphfix.job import checking

    findings_by_model: dict[str, Findings] = {}
    checks_by_model: dict[str, Sequence[Check]] = {}
    unread: list[str] = []
    with _terminal.show_progress(quiet=quiet) as say:
        for model in models:
            say(f"checking {model}")
            click.get_current_context().meta[_options.MODEL] = model
            try:
                graph = io.load(model)
                padding_checks = [checking.padding_check(graph)] if adds_padding else []
                checks_by_model[model] = [*checks, *padding_checks]
                findings = checking.check(graph, checks_by_model[model], ep=ep)
            except GraphfixError as error:
                if len(models) == 1:
                    raise
                _terminal.print_remark(f"error: {error}")
                unread.append(str(error))
                continue
            findings.sort(key=lambda x: _WORST.index(x.severity))
            shown = (x for x in findings if not any(fnmatchcase(x.at, y) for y in exclude))
            findings_by_model[model] = Findings(shown)
    return findings_by_model, checks_by_model, unread


def _has_finding(findings_by_model: Mapping[str, Findings], limit: str) -> bool:
    """Return whether a finding of any model is as bad as ``limit``."""
    return any(
        _WORST.index(x.severity) <= _WORST.index(limit)
        for findings in findings_by_model.values()
        for x in findings
    )


def _page_groups(findings: Findings) -> Iterator[dict[str, object]]:
    """Yield what the page shows of each rule: its reasons, each once with its places."""
    for (severity, rule, fix), group in findings.groups.items():
        places_by_reason = group_pairs((x.message, x.at) for x in group)
        yield {
            "severity": severity,
            "rule": rule,
            "fix": fix,
            "found": group,
            "reasons": places_by_reason,
        }


def _summaries_of(checks: Sequence[Check]) -> dict[str, str]:
    from graphfix.spec.manual import summary_of

    return {x.name: summary_of(type(x)) for x in checks}


def _to_json(
    model: str, ep: str, versions: Sequence[str], checks: Sequence[Check], findings: Findings
) -> dict[str, object]:
    from graphfix.engine import pipeline

    return _terminal.with_header(
        source=model,
        ep=ep,
        versions=[*versions],
        spec=pipeline.spec_of(checks),
        **findings.to_json(),
    )


def _print_models(
    findings_by_model: Mapping[str, Findings],
    ep: Ep,
    padding_specs: Mapping[str, str],
    *,
    verbose: bool,
    folds_notes: bool,
) -> None:
    """Print the findings of each model.

    Args:
        findings_by_model: The findings.
        ep: Where the models are to run.
        padding_specs: By model, the pass that says what padding does, where that is asked.
        verbose: Whether to list every node.
        folds_notes: Whether to count notes instead of listing them.
    """
    for number, (model, findings) in enumerate(findings_by_model.items()):
        if number:
            click.echo()
        _print_findings(model, findings, ep, verbose=verbose, folds_notes=folds_notes)
        if model not in padding_specs:
            continue
        if padding_specs[model] != _PADDING:
            text = f"those of the model's own input, as with -p {padding_specs[model]}"
            _terminal.print_row("lengths", text)
        if findings:
            measured = "graphfix padded measures what reaches the outputs"
            _terminal.print_row("how", f"seen in the graph, for any size; {measured}")


def _print_findings(
    model: str, findings: Findings, ep: Ep, *, verbose: bool, folds_notes: bool
) -> None:
    """Print the answer, then each finding; notes are counted where they are folded."""
    from graphfix.core import Findings
    from graphfix.job.checking import answer_of

    _terminal.print_paragraph(model)
    colour = "red" if findings.counted["error"] else None
    answer = wrap_text(answer_of(findings, ep), "  ")
    _terminal.print_lines(click.style(x, fg=colour) for x in answer)
    note_count = 0 if verbose or not folds_notes else findings.counted["note"]
    shown = Findings(x for x in findings if not (note_count and x.severity == "note"))
    if shown:
        click.echo()
        print_findings(shown, verbose=verbose)
    if note_count:
        click.echo(f"\n  {plural(note_count, 'note')} (-v lists them)")


def _print_total(findings_by_model: Mapping[str, Findings]) -> None:
    """Print the last line, where there are several models."""
    from graphfix.core import Findings

    every = Findings(x for findings in findings_by_model.values() for x in findings)
    failing = sum(
        any(x.severity == "error" for x in findings) for findings in findings_by_model.values()
    )
    text = f"{plural(len(findings_by_model), 'model')}, {failing} with errors"
    _terminal.print_row("in all", f"{text}: {every.line}")


def print_findings(findings: Findings, *, verbose: bool) -> None:
    """Print findings by rule and repair, each reason once."""
    from graphfix.engine import registry

    passes = set(registry.pass_names())
    for (severity, rule, fix), group in findings.groups.items():
        modules = [f" ({x.module})" if verbose and x.module else "" for x in group]
        pairs = [(x.at + module, x.message) for x, module in zip(group, modules, strict=True)]
        word = click.style(severity, fg=_COLOURS.get(severity), bold=severity != "note")
        repair_hint = f"; repair with -p {fix}" if fix is not None and severity != "note" else ""
        click.echo(f"  {word} {clean_text(f'{rule}: {len(pairs)}{repair_hint}')}")
        # Why a pass leaves something is never hidden: it is all that there is to act on.
        most = None if fix is None and rule in passes else _REASONS
        _terminal.print_lines(reason_lines(pairs, every=verbose, indent="      ", most=most))
