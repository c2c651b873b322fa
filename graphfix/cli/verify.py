"""``graphfix verify``: do two models compute the same?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from graphfix.cli import _options, _page, _terminal, _verdict
from graphfix.cli._between import advice, gate_between, passes_between

if TYPE_CHECKING:
    from graphfix.core import Safety
    from graphfix.runtime.provider import Ep


@click.command()
@click.argument("before", metavar="BEFORE", type=_options.FILE, callback=_options.from_stdin)
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
    """Compare the outputs of two models.

    Both run at several lengths, batch sizes and paddings. A model that the pass float16 made may
    differ as far as that pass promises.

    Exit code 1 if they differ by more than the tolerance.
    """
    _options.load_plugins()
    from graphfix.core import changed_by, new_feeds, together
    from graphfix.engine import pipeline
    from graphfix.files import io
    from graphfix.proof.verify import verify as compare
    from graphfix.runtime import memory_need

    page = _page.path(report, [before, after], feeds=feeds)
    old, new = io.load(before), io.load(after)
    passes = passes_between(old, new, after)
    memory_need.expect(old, new, instead="verify it on a machine that has more")
    allowed = _options.tolerance(atol, rtol) or gate_between(passes, new)
    advised = advice(old, new) if allowed is None else ""
    about = {
        "spec": pipeline.spec_of(passes),
        "ops_before": pipeline.count_ops(old),
        "ops_after": pipeline.count_ops(new),
    }
    del old, new  # what verifies them loads them one at a time

    with _terminal.progress(quiet=as_json) as tell:
        verdict = compare(
            before,
            after,
            dims=dims,
            feeds=feeds,
            tolerance=allowed,
            safety=safety or together(one.safety for one in passes),
            map_feeds=partial(new_feeds, passes),
            may_change=changed_by(passes),
            ep=ep,
            progress=lambda what: tell(f"verifying {what}"),
        )
    if as_json:
        _terminal.print_json(verdict.to_json())
    else:
        _terminal.rows(verdict.rows(verbose=verbose))
        if verbose:
            _verdict.details(verdict)
    if page is not None:
        names = {"before": _page.name(before), "after": _page.name(after)}
        _page.write(page, "verify.html", verdict.to_json(), quiet=as_json, **names, **about)
    if verdict.ok:
        return 0
    advised = advised if _verdict.is_difference(verdict) else ""
    return _terminal.failed(f"{_verdict.failure(verdict, after)}{advised}")
