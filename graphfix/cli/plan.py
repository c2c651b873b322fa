"""``graphfix plan``: where DirectML will run each node, what it fuses, what a run costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from graphfix.cli import _options, _terminal
from graphfix.wording import reasons

if TYPE_CHECKING:
    from graphfix.directml.plan import Plan


@click.command()
@_options.model
@_options.dims("T=500", "Plan with a symbolic dim at this size; may be given for several dims.")
@_options.json_flag
@_options.plugin
@_options.verbose
def plan(model: str, dims: _options.Sizes | None, as_json: bool, verbose: bool) -> None:
    """Predict what DirectML does with a model.

    Where each node runs and why, how many graphs are fused, how many kernels and copies a run
    takes, and what another length costs. DirectML is not needed, and nothing is written.
    """
    _options.load_plugins()
    with _terminal.progress(quiet=as_json) as tell:
        from graphfix.job import planning

        found = planning.plan(model, dims=dims, progress=tell)
    if as_json:
        _terminal.print_json(_terminal.headed(source=model, plan=found.to_json()))
    else:
        _terminal.paragraph(model)
        click.echo()
        _show(found, verbose=verbose)


def _show(plan: Plan, *, verbose: bool) -> None:
    from graphfix.directml.plan import WORDS

    places = {word: where for where, (word, _) in WORDS.items()}
    for one in plan.rows():
        if one.label == "a run":
            click.echo()
        _terminal.rows([one])
        here = [x for x in plan.places if x.where == places.get(one.label)]
        pairs = ((x.at, x.why) for x in here if x.why)
        _terminal.lines(reasons(pairs, every=verbose, indent="      "))
