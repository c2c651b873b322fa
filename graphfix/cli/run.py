"""``graphfix run``: repair models, verify them, write them, and print the reports."""

from __future__ import annotations

import atexit
import gc
import shlex
import shutil
import sys
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from graphfix.cli import _options, _page, _terminal, _verdict
from graphfix.errors import GraphfixError
from graphfix.wording import ALIASES, one_line, plural, reason_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from graphfix.engine.report import PassReport, Report
    from graphfix.files.weights import Placement
    from graphfix.job.task import Options
    from graphfix.providers.table import Ep


@click.command()
@_options.models
@_options.passes
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Default: MODEL.fixed.onnx beside the model. For one model.",
)
@_options.flag_option("--json", "as_json", text="Print the report as JSON on stdout.")
@_page.option
@_options.flag_option("--dry-run", text="Say what would be done; verify and write nothing.")
@_options.flag_option("--diff", text="Print each repaired place before and after.")
@_options.flag_option(
    "--strict",
    text="Write nothing if the repaired model computes something else, or a pass fails: do not "
    "search for the places that are to blame, to leave them out.",
)
@_options.flag_option("--no-verify", text="Write the result without running it.")
@click.option(
    "--external-data",
    type=click.Choice(["auto", "keep", "inline", "separate"]),
    default="auto",
    help="Where weights go: as they are, but not over 2 GB in one file (auto); as they are (keep); "
    "into the model (inline); into one file beside it (separate).",
)
@click.option(
    "--kernels/--no-kernels",
    default=None,
    help="Count the kernels per run on DirectML, or where --ep says, before and after. Default: if "
    "it is verified.",
)
@click.option(
    "--budget",
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    help="Time for searches and verification, about. A slow model is verified at fewer and smaller "
    "sizes, and the report lists what was not tried. Default: 60.",
)
@_options.exclude
@_options.feeding
@_options.rtol
@_options.ep
@_options.plugin
@_options.verbose
def run(
    models: tuple[str, ...],
    spec: str | None,
    output: str | None,
    as_json: bool,
    report: str | None,
    dry_run: bool,
    diff: bool,
    strict: bool,
    no_verify: bool,
    external_data: Placement,
    kernels: bool | None,
    budget: float | None,
    exclude: tuple[str, ...],
    dims: _options.Sizes | None,
    feeds: str | None,
    atol: float | None,
    rtol: float | None,
    ep: Ep,
    verbose: bool,
) -> int:
    """Repair a model, verify it, and write it.

    If the repaired model computes something else, the repairs to blame are searched for and
    skipped, and the rest is written. Exit code 1 if none are found, or with --strict: then nothing
    is written.

    Several models are repaired one after another, each beside itself; the exit code is the worst.
    """
    if len(models) > 1:
        _require_plain_run(models, output=output, report=report)
    piped = output == "-"
    if piped:
        if as_json or external_data in ("keep", "separate"):
            raise click.UsageError("-o -: the model goes to stdout, all of it, and nothing else.")
        output, external_data = _options.stdout_file(click.get_current_context()), "inline"
    elif output is None and not dry_run and any(x in ALIASES for x in models):
        raise click.UsageError("-: name the output with -o FILE, or -o - for stdout.")
    _options.require_name(output)
    page = _page_path(report, models[0], output, feeds)
    _options.load_plugins()
    _search_less_for_garbage(verifies=not no_verify)
    options: Options = {
        "check": not no_verify,
        "dry_run": dry_run,
        "dims": dims,
        "feeds": feeds,
        "tolerance": _options.build_tolerance(atol, rtol),
        "external_data": external_data,
        "ep": ep,
        "kernels": kernels,
        "strict": strict,
        "budget": budget,
        "exclude": exclude,
        "page": page,
    }
    shown = partial(_show_report, as_json=as_json, diff=diff, verbose=verbose, piped=piped)
    if len(models) > 1:
        return _repair_each(models, spec, options, shown, as_json=as_json)
    result = _repair(models[0], output, spec, options, quiet=as_json)
    late_errors = shown(result)
    if page is not None:  # whether or not the standard output takes what is printed
        with _terminal.report_late_errors(_outcome_text(result)) as page_errors:
            _write_page(page, models[0], result, quiet=as_json)
            if not (as_json or piped):
                _terminal.print_row("report", str(page))
        late_errors += page_errors
    if piped:
        _copy_to_stdout(result.output)
    code = 0 if result.ok else _report_failed_proof(result)
    return 2 if late_errors else code


def _require_plain_run(models: Sequence[str], *, output: str | None, report: str | None) -> None:
    """Raise a usage error for several models where only one may be given."""
    last = models[-1]
    if output is None and not Path(last).exists():
        what = f"-o {last}" if Path(last).suffix else f"--dims {last}" if "=" in last else ""
        advice = f". Is this meant: graphfix run {models[0]} {what}" if what else ""
        raise click.UsageError(f"{last}: no such file{advice}")
    if output is not None:
        raise click.UsageError("-o names the output of one model; give one, or no -o.")
    if report is not None:
        raise click.UsageError("--report is a page about one model; graphfix zoo makes one of all.")


def _repair(
    model: str, output: str | None, spec: str | None, options: Options, *, quiet: bool
) -> Report:
    """Repair one model, with its progress shown."""
    with _terminal.show_progress(quiet=quiet) as tell:
        from graphfix import job
        from graphfix.engine import pipeline  # a second for the spinner

        options = options | {"progress": tell}
        return job.repair_file(model, output, spec or pipeline.DEFAULT, **options)


def _repair_each(
    models: Sequence[str],
    spec: str | None,
    options: Options,
    shown: Callable[[Report], list[BaseException]],
    *,
    as_json: bool,
) -> int:
    """Repair models one after another, whatever becomes of each; return the worst exit code."""
    code, reports = 0, list[dict[str, object]]()
    for model in models:
        click.get_current_context().meta[_options.MODEL] = model
        try:
            result = _repair(model, None, spec, options, quiet=as_json)
        except GraphfixError as error:
            _terminal.print_remark(f"error: {error}")
            code = 2
            continue
        if not as_json:
            if reports:
                click.echo()
            code = max(code, 2 if shown(result) else 0)
        reports.append(result.to_json())
        if not result.ok:
            code = max(code, _report_failed_proof(result))
    if as_json:
        _terminal.print_json(_terminal.with_header(models=reports))
    return code


def _show_report(
    result: Report, *, as_json: bool, diff: bool, verbose: bool, piped: bool
) -> list[BaseException]:
    """Print what was done to one model; return why that could not be printed."""
    stream = _report_stream(piped=piped)
    with _terminal.report_late_errors(_outcome_text(result)) as errors, redirect_stdout(stream):
        if as_json:
            _terminal.print_json(result.to_json())
        else:
            _print_report(result, diff=diff, verbose=verbose)
    return errors


def _report_stream(*, piped: bool) -> TextIO:
    """Return where the report is printed: on stderr if the model takes stdout."""
    return sys.stderr if piped and _terminal.data_stream() is sys.stdout else sys.stdout


def _copy_to_stdout(path: str | None) -> None:
    """Copy the model that was written, if one was, to stdout."""
    if path is not None:
        with Path(path).open("rb") as file:
            shutil.copyfileobj(file, _terminal.data_stream().buffer)


def _page_path(
    report: str | None, model: str, output: str | None, feeds: str | None
) -> Path | None:
    """Return where the page goes, which is none of the files that are read or written."""
    if report is None:
        return None
    from graphfix.job.one_file import default_target

    target = Path(output) if output else default_target(Path(model))
    return _page.page_path(report, [model], target, feeds)


def _search_less_for_garbage(*, verifies: bool) -> None:
    """Make Python search for garbage seldom, or never where nothing is verified.

    A graph is hundreds of thousands of small objects that live to the end: searching them for
    garbage again and again was a sixth of the time, and once more at the end a fiftieth.
    Verification does leave some.
    """
    if verifies:
        gc.set_threshold(100_000, 50, 100)
    else:
        gc.disable()
    atexit.register(gc.freeze)


def _write_page(page: Path, model: str, report: Report, *, quiet: bool) -> None:
    """Write the page about a repaired model, with what runs where before and after."""
    from graphfix.job import planning
    from graphfix.providers.table import PROVIDERS
    from graphfix.show.html import write_page

    files = {"before": model, "after": report.output}
    with _terminal.show_progress(quiet=quiet) as tell:
        tell(f"planning for {PROVIDERS[report.ep].label}")
        strips = {
            when: planning.placement_strip(file, report.ep) for when, file in files.items() if file
        }
    names = {
        "source": _page.display_name(model),
        "output": report.output and _page.display_name(report.output),
    }
    write_page({**report.to_json(), **names, "strips": strips}, page)


def _report_failed_proof(report: Report) -> int:
    """Print why nothing was written, and what to do next; return the exit code."""
    if report.verdict and report.padded is not None:
        reason, numeric = f"the repaired model is not safe to pad: {report.padded}", True
    else:
        reason = _verdict.failure_sentence(report.verdict, "the repaired model")
        numeric = _verdict.is_numeric_difference(report.verdict)
    option = "--rtol" if "float16" in report.spec else "--atol"
    advice = f"if that difference is expected, raise {option}" if numeric else _next_command(report)
    return _terminal.report_failure(f"{reason}; nothing was written; {advice}")


def _next_command(report: Report) -> str:
    """Return what to try where the proof failed, and not by a number that is a little off."""
    from graphfix.engine import registry

    model = shlex.quote(report.source or "MODEL")
    changed = list(dict.fromkeys(x.name for x in report.passes if x.changes))
    if not changed or (report.verdict is not None and "does not load" in report.verdict.reason):
        return f"graphfix check {model} says what ONNX Runtime refuses"
    if not set(changed).isdisjoint(registry.FUSIONS):
        return f"try the repairs without the fusions: graphfix run {model} -p directml"
    if len(changed) > 1:
        others = f", then {', '.join(changed[1:4])}" + (", ..." if len(changed) > 4 else "")
        return f"try the passes one at a time: graphfix run {model} -p {changed[0]}{others}"
    skip = "leave out a node, --exclude NODE"
    return f"{skip}, or look at both models: graphfix run {model} -p {changed[0]} --no-verify"


def _outcome_text(report: Report) -> str:
    """Return what became of the model, as the end of a sentence."""
    written = report.output
    return "no model was written" if written is None else f"the model is written: {written}"


def _print_report(report: Report, *, diff: bool, verbose: bool) -> None:
    _terminal.print_paragraph(report.title)
    _terminal.print_rows(report.rows(verbose=verbose))
    if not verbose:
        _terminal.print_lines(report.skipped())
    elif report.verdict is not None:
        _verdict.print_details(report.verdict)
    if verbose or diff:
        _print_details(report, diff=diff, verbose=verbose)


def _print_details(report: Report, *, diff: bool, verbose: bool) -> None:
    """Print each pass that did something, the others by name, and the nodes by operator."""
    click.echo()
    busy = [p for p in report.passes if p.changes or p.skips or p.findings or p.left]
    names = {p.name for p in busy}
    idle = dict.fromkeys(p.name for p in report.passes if p.name not in names)
    wide = max((len(one_line(p.name)) for p in busy), default=0)
    for pass_report in busy:
        _print_pass(pass_report, pass_report.name.ljust(wide), diff=diff, verbose=verbose)
    if idle:
        _terminal.print_paragraph(f"no repairs: {', '.join(idle)}", "  ")
    click.echo()
    _terminal.print_row("nodes", _operators_text(report.ops_before, report.ops_after))


def _print_pass(pass_report: PassReport, name: str, *, diff: bool, verbose: bool) -> None:
    parts = (
        f"{plural(len(pass_report.changes), 'repair')} ({pass_report.safety})"
        if pass_report.changes
        else "",
        plural(len(pass_report.skips), "near miss", "near misses") if pass_report.skips else "",
        plural(len(pass_report.findings), "finding") if pass_report.findings else "",
        "left out" if pass_report.left else "",
    )
    click.echo(f"  {click.style(one_line(name), bold=True)}  {', '.join(filter(None, parts))}")
    notes = ((change.at, change.note) for change in pass_report.changes if change.note)
    _terminal.print_lines(reason_lines(notes, every=verbose, indent="      "))
    if diff:
        for change in pass_report.changes:
            _print_diff(change.at, change.removed, change.added)
    _terminal.print_lines(reason_lines(pass_report.skips, every=verbose, indent="      "))
    findings = ((x.at, f"{x.severity}: {x.message}") for x in pass_report.findings)
    _terminal.print_lines(reason_lines(findings, every=verbose, indent="      "))


def _print_diff(at: str, removed: tuple[str, ...], added: tuple[str, ...]) -> None:
    # Not wrapped: these lines are ONNX text, to be searched for and copied.
    click.secho(f"    @@ {one_line(at)}", fg="cyan")
    for sign, texts, colour in (("-", removed, "red"), ("+", added, "green")):
        for text in texts:
            click.secho(f"    {sign} {one_line(text)}", fg=colour)


def _operators_text(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """Return ``83 -> 79: Where 4 -> 0, Add 10 -> 14``, removed operators first."""
    from graphfix.show.html import changed_operators

    detail = ", ".join(f"{op} {a} -> {b}" for op, a, b, _ in changed_operators(before, after))
    return f"{sum(before.values())} -> {sum(after.values())}: {detail or 'the same operators'}"
