"""``graphfix check``: every hazard of a model at once, and on request its repair."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from typing import TYPE_CHECKING

import click

from graphfix.cli import _left, _options, _terminal, _verdict
from graphfix.errors import UsageError
from graphfix.spec.quoting import quoted
from graphfix.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphfix.core import Check, Finding
    from graphfix.engine.report import Report
    from graphfix.rules import Provider

_COLOURS = {"error": "red", "warning": "yellow", "note": None}
_WORST = ("error", "warning", "note")
_REASONS = 3
_NAME = r'(?:"(?:[^"\\]|\\.)*"|[^\s:;,"])+'
_AXIS = re.compile(rf"-p ilens-mask:axis=(?P<axis>{_NAME})(?::from=(?P<source>{_NAME}))?")


@click.command()
@_options.model
@click.option(
    "-p",
    "--passes",
    "--rules",
    "spec",
    metavar="SPEC",
    help="Passes, profiles and rules, separated by commas. Default: the rules that hold on --ep, "
    "and what matters there of the profile directml, and thaw.",
)
@click.option(
    "--padding",
    is_flag=True,
    help="Say instead what padding does: each leak, and what cannot be seen through (the pass "
    "ilens-mask repairs it).",
)
@click.option(
    "--float16",
    "half",
    is_flag=True,
    help="Say instead what would stay in float32, and why (the pass float16 converts the rest).",
)
@click.option(
    "--axis",
    metavar="INPUT.AXIS",
    help="With --padding: the axis that is padded, such as audio.2. Default: found by itself.",
)
@click.option(
    "--from",
    "source",
    metavar="INPUT",
    help="With --padding: the mask or length input that says what is valid.",
)
@click.option(
    "--ep",
    type=click.Choice(["dml", "cpu"]),
    default="dml",
    help="Where the model is to run: on DirectML (default) or on the CPU.",
)
@click.option(
    "--run",
    "trial",
    is_flag=True,
    help="Also run the model on --ep dml or cpu, against the CPU: a crash is a finding. With "
    "--padding, measure too whether a leak reaches an output.",
)
@click.option("--fix", is_flag=True, help="Repair, verify and write the model; then check again.")
@click.option("-o", "--output", metavar="FILE", help="With --fix. Default: MODEL.fixed.onnx.")
@click.option(
    "--fail-on",
    type=click.Choice(_WORST),
    help="Exit with 1 if there is a finding as bad as this: error (default), or warning where -p "
    "says what to look for.",
)
@_options.json_flag
@click.option("--sarif", is_flag=True, help="Print SARIF 2.1.0 on stdout.")
@_options.feeding
@_options.plugin
@click.option("-v", "--verbose", "--all", is_flag=True, help="List every node.")
def check(
    model: str,
    spec: str | None,
    padding: bool,
    half: bool,
    axis: str | None,
    source: str | None,
    ep: Provider,
    trial: bool,
    fix: bool,
    output: str | None,
    fail_on: str | None,
    as_json: bool,
    sarif: bool,
    dims: _options.Sizes | None,
    feeds: str | None,
    atol: float | None,
    verbose: bool,
) -> int:
    """Say what in MODEL fails, is wrong or is slow; nothing is written but with --fix.

    An error crashes there or computes something else, a warning is slow or runs on the CPU, a note
    matters only elsewhere. Exit code 1 if there is an error.
    """
    _options.require_name(output)
    spec = _padding(spec, padding=padding, axis=axis, source=source)
    if half:
        spec = "float16" if spec is None else f"{spec},float16"
    _refuse(fix=fix, output=output, both=as_json and sarif)
    _options.load_plugins()
    from graphfix.engine import pipeline
    from graphfix.job import checking
    from graphfix.model import io

    asked = pipeline.resolve(spec) if spec is not None else checking.everything(ep)
    report: Report | None = None
    with _terminal.progress(quiet=as_json or sarif) as say:

        def look(path: str) -> list[Finding]:
            say(f"loading {path}")
            loaded = io.load(path)
            say("looking")
            try:
                found = checking.check(loaded, asked, ep=ep)
            except UsageError as error:
                raise UsageError(_as_options(str(error)) if padding else str(error)) from error
            if trial:
                say("running")
                found += checking.ran(path, ep=ep, dims=dims, feeds=feeds)
                if padding:
                    say("measuring")
                    found = checking.measured(found, path, ep=ep, dims=dims, axis=axis or "")
            return sorted(found, key=lambda x: _WORST.index(x.severity))

        found = before = look(model)
        repairs = checking.repairs(asked, before) if fix else []
        if any(x.fix is not None and x.severity != "note" for x in before) and repairs:
            from graphfix import job

            report = job.repair_file(
                model,
                output,
                repairs,
                dims=dims,
                feeds=feeds,
                tolerance=_options.tolerance(atol),
                ep="dml" if trial and ep == "dml" else "cpu",
                progress=say,
            )
            if report.output is not None:
                found = look(report.output)
    limit = fail_on or ("error" if spec is None else "warning")
    if sarif:
        from graphfix.show.sarif import document

        source = (report.output if report is not None else None) or model
        _terminal.print_json(document(source, found, _about(asked)))
    elif as_json:
        _terminal.print_json(_as_json(model, ep, asked, found, before, report))
    else:
        _print(model, before, verbose=verbose)
        if padding and before and not trial:
            seen = "seen in the graph, for any size; --run measures what reaches the outputs"
            _terminal.row("how", seen)
        if fix:
            _print_fix(before, found, report, verbose=verbose)
    failed = report is not None and not report.ok
    if failed and report is not None:
        told = _verdict.failure(report.verdict or {}, "the repaired model")
        _terminal.remark(f"error: {told}; nothing was written")
    return int(failed or any(_WORST.index(x.severity) <= _WORST.index(limit) for x in found))


def _padding(
    spec: str | None, *, padding: bool, axis: str | None, source: str | None
) -> str | None:
    """What to look for: with --padding the pass that closes the leaks, told what the user told."""
    if not padding:
        if axis is not None or source is not None:
            raise click.UsageError("--axis and --from belong to --padding.")
        return spec
    given = [f"axis={quoted(axis)}"] if axis is not None else []
    given += [f"from={quoted(source)}"] if source is not None else []
    return ",".join([*([spec] if spec is not None else []), ":".join(["ilens-mask", *given])])


def _as_options(told: str) -> str:
    """What a pass says of ``-p`` as check takes it: its axis by ``--axis``; other passes by run."""
    told = _AXIS.sub(_axis_options, told)
    return re.sub(r"-p (?=fix-dims:|thaw\b)", "graphfix run -p ", told)


def _axis_options(found: re.Match[str]) -> str:
    source = found["source"]
    return f"--axis {found['axis']}" + (f" --from {source}" if source else "")


def _refuse(*, fix: bool, output: str | None, both: bool) -> None:
    if both:
        raise click.UsageError("--json and --sarif: only one of them goes to stdout.")
    if output is not None and not fix:
        raise click.UsageError("-o: nothing is written without --fix.")


def _about(asked: Sequence[Check]) -> dict[str, str]:
    from graphfix.spec.manual import summary_of

    about = {x.name: summary_of(type(x)) for x in asked}
    return {**about, "runs": "The model runs, and computes what it does on the CPU."}


def _as_json(
    model: str,
    ep: str,
    asked: Sequence[Check],
    found: Sequence[Finding],
    before: Sequence[Finding],
    report: Report | None,
) -> dict[str, object]:
    from graphfix.engine import pipeline

    count = {severity: sum(x.severity == severity for x in found) for severity in _WORST}
    data: dict[str, object] = {
        "schema": 1,
        "graphfix": __version__,
        "source": model,
        "ep": ep,
        "spec": pipeline.spec_of(asked),
        "count": count,
        "findings": [dataclasses.asdict(finding) for finding in found],
    }
    if report is not None:
        data["before"] = [dataclasses.asdict(finding) for finding in before]
        data["repair"] = report.to_json()
    return data


def _print(model: str, found: Sequence[Finding], *, verbose: bool) -> None:
    _terminal.paragraph(model)
    click.echo()
    show_findings(found, verbose=verbose)
    if found:
        click.echo()
    count: Counter[str] = Counter(x.severity for x in found)
    counted = ", ".join(_terminal.plural(count[x], x) for x in _WORST if count[x])
    nothing = "" if any(x.fix is not None for x in found) else "nothing to repair"
    text = "; ".join(filter(None, (counted, nothing)))
    _terminal.row("found", text, colour="red" if count["error"] else None)


def show_findings(found: Sequence[Finding], *, verbose: bool) -> None:
    """Print findings: those of one rule with one repair together, each reason once."""
    from graphfix.engine import registry

    passes = set(registry.names())
    groups: dict[tuple[str, str, str | None], list[tuple[str, str]]] = {}
    for x in found:
        at = f"{x.at} ({x.module})" if verbose and x.module else x.at
        groups.setdefault((x.rule, x.severity, x.fix), []).append((at, x.message))
    for (rule, severity, fix), pairs in groups.items():
        word = click.style(severity, fg=_COLOURS.get(severity), bold=severity != "note")
        how = f"; repair with -p {fix}" if fix is not None and severity != "note" else ""
        click.echo(f"  {word} {_terminal.clean(f'{rule}: {len(pairs)}{how}')}")
        # Why a pass leaves something is never hidden: it is all that there is to act on.
        most = None if fix is None and rule in passes else _REASONS
        _terminal.reasons(pairs, every=verbose, indent="      ", most=most)


def _print_fix(
    before: Sequence[Finding], after: Sequence[Finding], report: Report | None, *, verbose: bool
) -> None:
    if report is None:
        _terminal.row("repaired", "nothing: no pass repairs what was found")
        return
    made = ", ".join(f"{len(x.changes)} by {x.name}" for x in report.passes if x.changes)
    _terminal.row("repaired", made or "nothing")
    _left.show(report.left, report.searched, verbose=verbose)
    _left.endless(report.endless)
    if report.verdict is not None:
        _verdict.show(report.verdict, verbose=verbose)
    if report.output is None:
        _terminal.row("written", "nothing", colour="red")
        return
    _terminal.row("written", report.output)
    click.echo()
    _print(report.output, after, verbose=verbose)
