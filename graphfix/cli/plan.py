"""``graphfix plan``: where DirectML will run each node, what it fuses, what a run costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from graphfix.cli import _options, _terminal
from graphfix.spec.quoting import quoted
from graphfix.version import __version__

if TYPE_CHECKING:
    from graphfix.directml.plan import Plan, Where

_WORDS: dict[Where, str] = {"fused": "fused", "dml": "DirectML", "cpu": "CPU", "gone": "gone"}
_COLOURS = {"fused": "green", "dml": "cyan", "cpu": "yellow", "gone": None}


@click.command()
@_options.model
@click.option(
    "--dim",
    "dims",
    multiple=True,
    callback=_options.sizes,
    metavar="T=500",
    help="Plan with a symbolic dim at this size; may be given for several dims.",
)
@_options.gone("--before-after", "plan what run has written")
@_options.gone("--against", "graphfix zoo --ep dml says which node ran where")
@_options.json_flag
@_options.plugin
@_options.verbose
def plan(
    model: str,
    dims: _options.Sizes | None,
    as_json: bool,
    verbose: bool,
) -> None:
    """Predict what DirectML does with a model.

    Where each node runs and why, how many graphs are fused, how many kernels and copies a run
    takes, and what another length costs. DirectML is not needed, and nothing is written.
    """
    sizes = {name: several[0] for name, several in (dims or {}).items()}
    for name, several in (dims or {}).items():
        if len(set(several)) > 1:
            raise click.UsageError(f"--dim {name}: a plan is for one size; give one of {several}.")
    _options.load_plugins()
    with _terminal.progress(quiet=as_json) as say:
        from graphfix.job import planning
        from graphfix.model import io

        say("loading")
        loaded = io.load(model)
        say("planning")
        found = planning.plan(loaded, sizes=sizes)
    if as_json:
        _terminal.print_json(
            {
                "schema": 1,
                "graphfix": __version__,
                "source": model,
                "plan": found.to_json(),
            }
        )
    else:
        _terminal.paragraph(model)
        click.echo()
        _show(found, verbose=verbose)


def _show(plan: Plan, *, verbose: bool) -> None:
    for where, word in _WORDS.items():
        here = [x for x in plan.places if x.where == where]
        if not here:
            continue
        head = click.style(f"{word:<10}", fg=_COLOURS[where], bold=True)
        click.echo(f"  {head}{_terminal.plural(len(here), 'node')}{_sizes_of_graphs(plan, where)}")
        pairs = [(x.at, x.why) for x in here if x.why]
        _terminal.reasons(pairs, every=verbose, indent="      ")
    click.echo()
    _terminal.row("a run", _run(plan))
    _terminal.row("lengths", _lengths(plan))
    for note in dict.fromkeys(plan.notes):
        _terminal.row("note", note, colour="yellow")


def _sizes_of_graphs(plan: Plan, where: Where) -> str:
    if where != "fused":
        return ""
    sizes = sorted((x.nodes for x in plan.steps if x.on == "graph"), reverse=True)
    shown = ", ".join(map(str, sizes[:6])) + (", ..." if len(sizes) > 6 else "")
    of = f" of {shown}" if len(sizes) > 1 else ""
    return f" in {_terminal.plural(len(sizes), 'graph')}{of}"


def _run(plan: Plan) -> str:
    kernels = plan.steps_on("graph", "dml")
    parts = [f"{_terminal.plural(kernels, 'kernel')} on DirectML"]
    if graphs := plan.steps_on("graph"):
        parts[0] += f", {graphs} of them {'a fused graph' if graphs == 1 else 'fused graphs'}"
    parts.append(f"{plan.steps_on('cpu')} on the CPU")
    parts.append(_terminal.plural(plan.steps_on("copy"), "copy", "copies") + " between them")
    return "; ".join(parts)


def _lengths(plan: Plan) -> str:
    kernels = plan.steps_on("graph", "dml")
    named = (
        f"; open: {', '.join(plan.dims)} (--dim {quoted(plan.dims[0])}=SIZE)" if plan.dims else ""
    )
    if plan.sizes and not plan.dynamic:
        fixed = ", ".join(f"{quoted(name)}={size}" for name, size in plan.sizes.items())
        return f"fixed at {fixed}; another length needs another session"
    if not plan.dynamic:
        return "all sizes are fixed; another length needs another model"
    if not plan.remade:
        return f"no kernel depends on a size that varies{named}"
    return (
        f"{plan.remade} of the {kernels} kernels are recompiled in each run at another size than "
        f"the first one{named}"
    )
