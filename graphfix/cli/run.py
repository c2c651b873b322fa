"""``graphfix run``: repair a model, verify it, write it, and print the report."""

from __future__ import annotations

import atexit
import gc
import shutil
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import click

from graphfix.cli import _options, _page, _terminal, _verdict
from graphfix.wording import ALIASES, one_line, plural, reason_lines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from graphfix.engine.report import PassReport, Report
    from graphfix.files.weights import Placement
    from graphfix.runtime.provider import Ep


@click.command()
@_options.model
@_options.passes
@click.option("-o", "--output", metavar="FILE", help="Default: MODEL.fixed.onnx beside the model.")
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
    help="Count the kernels per run on DirectML before and after. Default: if it is verified.",
)
@click.option(
    "--budget",
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    help="Time for verification, about. A slow model is verified at fewer and smaller sizes, and "
    "the report lists what was not tried. Default: 60.",
)
@_options.exclude
@_options.feeding
@_options.rtol
@_options.ep
@_options.plugin
@_options.verbose
def run(
    model: str,
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
    """
    piped = output == "-"
    if piped:
        if as_json or external_data in ("keep", "separate"):
            raise click.UsageError("-o -: the model goes to stdout, all of it, and nothing else.")
        output, external_data = _options.stdout_file(click.get_current_context()), "inline"
    elif output is None and model in ALIASES and not dry_run:
        raise click.UsageError("-: name the output with -o FILE, or -o - for stdout.")
    _options.require_name(output)
    page = None
    if report is not None:
        from graphfix.job.one_file import default_target

        target = Path(output) if output else default_target(Path(model))
        page = _page.page_path(report, [model], target, feeds)
    _options.load_plugins()
    # A graph is hundreds of thousands of small objects that live to the end: searching them for
    # garbage again and again was a sixth of the time, and once more at the end a fiftieth.
    # Verification does leave some.
    if no_verify:
        gc.disable()
    else:
        gc.set_threshold(100_000, 50, 100)
    atexit.register(gc.freeze)
    with _terminal.show_progress(quiet=as_json) as tell:
        from graphfix import job
        from graphfix.engine import pipeline  # a second for the spinner

        result = job.repair_file(
            model,
            output,
            spec or pipeline.DEFAULT,
            check=not no_verify,
            dry_run=dry_run,
            dims=dims,
            feeds=feeds,
            tolerance=_options.build_tolerance(atol, rtol),
            external_data=external_data,
            ep=ep,
            kernels=kernels,
            strict=strict,
            budget=budget,
            exclude=exclude,
            page=page,
            progress=tell,
        )
    shown = sys.stderr if piped and _terminal.data_stream() is sys.stdout else sys.stdout
    with _terminal.report_late_errors(_outcome_text(result)), redirect_stdout(shown):
        if as_json:
            _terminal.print_json(result.to_json())
        else:
            _print_report(result, diff=diff, verbose=verbose)
    if page is not None:  # whether or not the standard output takes what is printed
        from graphfix.job import planning
        from graphfix.show.html import write_page

        with _terminal.report_late_errors(_outcome_text(result)):
            files = {"before": model, "after": result.output}
            with _terminal.show_progress(quiet=as_json) as tell:
                tell("planning for DirectML")
                strips = {
                    when: planning.placement_strip(file) for when, file in files.items() if file
                }
            names = {
                "source": _page.display_name(model),
                "output": result.output and _page.display_name(result.output),
            }
            write_page({**result.to_json(), **names, "strips": strips}, page)
            if not (as_json or piped):
                _terminal.print_row("report", str(page))
    if piped and result.output is not None:
        with Path(result.output).open("rb") as file:
            shutil.copyfileobj(file, _terminal.data_stream().buffer)
    if result.ok:
        return 0
    if result.verdict and result.padded is not None:
        reason, advised = f"the repaired model is not safe to pad: {result.padded}", True
    else:
        reason = _verdict.failure_sentence(result.verdict, "the repaired model")
        advised = _verdict.is_numeric_difference(result.verdict)
    option = "--rtol" if "float16" in result.spec else "--atol"
    advice = f"; if that difference is expected, raise {option}" if advised else ""
    return _terminal.report_failure(f"{reason}; nothing was written{advice}")


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
