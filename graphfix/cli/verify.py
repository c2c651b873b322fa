"""``graphfix verify``: do two models compute the same?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from graphfix.cli import _options, _page, _terminal, _verdict

if TYPE_CHECKING:
    from graphfix.core import Safety
    from graphfix.providers.table import Ep


@click.command()
@click.argument("before", metavar="BEFORE", type=_options.FILE, callback=_options.path_or_stdin)
@click.argument("after", metavar="AFTER", type=_options.FILE)
@_options.feeding
@_options.rtol
@_options.ep
@click.option(
    "--safety",
    type=click.Choice(["exact", "valid-rows", "conditional"]),
    help="What must be equal. Default: what the passes that AFTER says it went through promise.",
)
@_options.json_flag
@_page.option
@_options.plugin
@_options.verbose
def verify(
    before: str,
    after: str,
    dims: _options.Sizes | None,
    feeds: str | None,
    atol: float | None,
    rtol: float | None,
    ep: Ep,
    safety: Safety | None,
    as_json: bool,
    report: str | None,
    verbose: bool,
) -> int:
    """Compare the outputs of two models, or of a model and the folder that ship made of it.

    Both run at several lengths, batch sizes and paddings. A model that the pass float16 made may
    differ as far as that pass promises. Of a folder, the hash of each file is compared, and clips
    or steps run as in graphfix ship; --dims, --feeds, --safety and --report are for two models.

    Exit code 1 if they differ by more than the tolerance.
    """
    _options.load_plugins()
    if Path(after).is_dir():
        from graphfix.cli._folder import run_folder_verify

        unused = {"--dims": dims, "--feeds": feeds, "--safety": safety, "--report": report}
        for option, value in unused.items():
            if value:
                raise click.UsageError(f"{option}: {after} is a folder; leave it out.")
        return run_folder_verify(
            before, after, ep, atol=atol, rtol=rtol, as_json=as_json, verbose=verbose
        )
    from graphfix.engine import pipeline
    from graphfix.files import io
    from graphfix.job.comparing import passes_between, with_own_promise
    from graphfix.proof.verify import Options
    from graphfix.proof.verify import verify as compare
    from graphfix.runtime import memory_need
    from graphfix.runtime.python import require_provider

    require_provider(ep)
    page = _page.page_path(report, [before, after], feeds=feeds)
    old, new = io.load(before), io.load(after)
    memory_need.check_memory(old, new, instead="verify it on a machine that has more")
    options: Options = {"dims": dims, "feeds": feeds, "ep": ep}
    options["tolerance"] = _options.build_tolerance(atol, rtol)
    if safety is not None:
        options["safety"] = safety
    passes = passes_between(old, new)
    options = with_own_promise(options, passes, new)
    advised = _verdict.rounding_advice(old, new) if options.get("tolerance") is None else ""
    about = {
        "spec": pipeline.spec_of(passes),
        "ops_before": pipeline.count_ops(old),
        "ops_after": pipeline.count_ops(new),
    }
    del old, new  # what verifies them loads them one at a time

    with _terminal.show_progress(quiet=as_json) as tell:
        options["progress"] = lambda step: tell(f"verifying {step}")
        verdict = compare(before, after, **options)
    if as_json:
        _terminal.print_json(verdict.to_json())
    else:
        _terminal.print_rows(verdict.rows(verbose=verbose))
        if verbose:
            _verdict.print_details(verdict)
    if page is not None:
        names = {"before": _page.display_name(before), "after": _page.display_name(after)}
        _page.write_page(page, "verify.html", verdict.to_json(), quiet=as_json, **names, **about)
    if verdict.ok:
        return 0
    advised = advised if _verdict.is_numeric_difference(verdict) else ""
    return _terminal.report_failure(f"{_verdict.failure_sentence(verdict, after)}{advised}")
