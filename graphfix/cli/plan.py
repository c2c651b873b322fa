"""``graphfix plan``: where a provider runs each node, what it fuses, what a run costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import click

from graphfix.cli import _options, _terminal
from graphfix.providers.table import DeviceEp
from graphfix.wording import reason_lines

if TYPE_CHECKING:
    from graphfix.providers.plan import ProviderPlan


@click.command()
@_options.model
@_options.ep_option(
    get_args(DeviceEp),
    "dml",
    "The provider: DirectML (default) or WebGPU. It need not be there.",
)
@_options.dims_option(
    "T=500", "Plan with a symbolic dim at this size; may be given for several dims."
)
@_options.json_flag
@_options.plugin
@_options.verbose
def plan(
    model: str, ep: DeviceEp, dims: _options.Sizes | None, as_json: bool, verbose: bool
) -> None:
    """Predict what DirectML or WebGPU does with a model.

    Where each node runs and why, how many graphs are fused, how many kernels and copies a run
    takes, and, on DirectML, what another length costs. The provider is not needed, and nothing is
    written.
    """
    _options.load_plugins()
    with _terminal.show_progress(quiet=as_json) as tell:
        from graphfix.job import planning

        prediction = planning.plan(model, ep=ep, dims=dims, progress=tell)
        prediction = planning.note_errors(prediction, model)
    if as_json:
        from graphfix.providers.versions import known_versions

        versions = [*known_versions(ep, "")]
        document = _terminal.with_header(source=model, versions=versions, plan=prediction.to_json())
        _terminal.print_json(document)
    else:
        _terminal.print_paragraph(model)
        click.echo()
        _print_plan(prediction, verbose=verbose)


def _print_plan(plan: ProviderPlan, *, verbose: bool) -> None:
    from graphfix.providers.plan import WORDS

    places = {word: where for where, (word, _) in WORDS.items()}
    for row in plan.rows():
        if row.label == "a run":
            click.echo()
        _terminal.print_rows([row])
        nodes = [x for x in plan.places if x.where == places.get(row.label)]
        pairs = ((x.at, x.why) for x in nodes if x.why)
        _terminal.print_lines(reason_lines(pairs, every=verbose, indent="      "))
