"""``graphfix probe``: where two runs part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from graphfix.cli import _options, _terminal

if TYPE_CHECKING:
    from graphfix.feeds.clips import Fill
    from graphfix.probing.probe import Probe
    from graphfix.runtime.provider import Ep


@click.command()
@click.argument("models", metavar="MODEL", nargs=-1, required=True)
@click.option("--padded", is_flag=True, hidden=True, help="It is what probe does.")
@_options.lengths
@click.option(
    "--fill",
    type=click.Choice(["zero", "noise", "large", "nan", "inf"]),
    default="noise",
    help="What the padding holds; noise by default.",
)
@click.option(
    "--max-abs",
    type=float,
    metavar="X",
    help="Largest difference of an output that passes; of outputs over 1, a share. Default 1e-4. "
    "Inside, a tenth of it.",
)
@click.option(
    "--ep",
    type=click.Choice(["cpu", "dml"]),
    default="cpu",
    help="Where the second run is: on the CPU (default), or on DirectML. The first is on the CPU.",
)
@_options.json_flag
@_options.verbose
def probe(
    models: tuple[str, ...],
    padded: bool,
    dims: _options.Sizes | None,
    container: list[int] | None,
    axis: str,
    original: str | None,
    fill: Fill,
    max_abs: float | None,
    ep: Ep,
    as_json: bool,
    verbose: bool,
) -> int:
    """Find the first tensor at which a clip in a container parts from the clip alone.

    Every inner tensor is compared as far as it is valid. Exit code 1 if an output parts.
    """
    if len(models) != 1:
        raise click.UsageError(
            "give one model; graphfix verify names the first tensor at which two models part."
        )
    sizes = _options.one_each("--dim", dims) or {}
    if container is not None and len(container) > 1:
        raise click.UsageError(f"--container: one size, not {len(container)}.")
    gate = _options.gates(max_abs)
    with _terminal.progress(quiet=as_json) as tell:
        from graphfix.probing.probe import probe_padded

        found = probe_padded(
            models[0],
            dims=sizes,
            container=container[0] if container else None,
            axis=axis,
            original=original,
            fill=fill,
            tolerance=gate,
            ep=ep,
            progress=_terminal.counted(tell),
        )
    if as_json:
        _terminal.print_json(found.to_json())
    else:
        _show(found, models[0], every=verbose)
    return 0 if found.ok else 1


def _show(found: Probe, model: str, *, every: bool) -> None:
    _terminal.paragraph(model)
    _terminal.paragraph(found.case)
    click.echo()
    if found.ok:
        _terminal.row("agree", str(found), colour="green")
    elif found.first is None:
        _terminal.row("part", str(found), colour="red")
    else:
        first = found.first
        _terminal.row("first", f"{first.tensor} ({first.op} {first.node})", colour="red")
        _terminal.row("by", f"{first.max_abs:.3g} of {first.scale:.3g}, cosine {first.cosine:.8f}")
        _more(found, every=every)
    compared = sum(place.inner.state != "skipped" for place in found.places)
    _terminal.row("compared", _terminal.plural(compared, "tensor"))
    for reason, count in found.skipped.items():
        _terminal.row("skipped", f"{_terminal.plural(count, 'tensor')}: {reason}")
    if found.healed:
        harmless = _terminal.plural(len(found.healed), "tensor")
        text = f"{harmless} part inside, and no output shows it, such as {found.healed[0]}"
        _terminal.row("harmless", text)
    for note in found.notes:
        _terminal.row("note", note)


def _more(found: Probe, *, every: bool) -> None:
    """The other nodes at which the runs part, each operator once with its places."""
    rest = found.sites[1:]
    if not rest:
        return
    more = _terminal.plural(len(rest), "more node")
    _terminal.row("also", f"{more}, each the first on its way to part")
    pairs = ((site.node, site.op) for site in rest)
    _terminal.reasons(pairs, every=every, indent=" " * 12)
