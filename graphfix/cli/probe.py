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
@click.argument("models", metavar="A.onnx [B.onnx]", nargs=-1, required=True)
@click.option(
    "--padded",
    is_flag=True,
    help="Compare one model with itself: a clip alone, and the same clip in a container.",
)
@_options.lengths
@click.option(
    "--fill",
    type=click.Choice(["zero", "noise", "large", "nan", "inf"]),
    default="noise",
    help="What the padding holds with --padded; noise by default.",
)
@click.option("--feeds", metavar="FILE.npz", help="Compare A and B on these inputs, by name.")
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
@click.option("--report", metavar="PAGE.html", help="Also write a page with a plot.")
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
    feeds: str | None,
    max_abs: float | None,
    ep: Ep,
    report: str | None,
    as_json: bool,
    verbose: bool,
) -> int:
    """Find the first tensor at which two runs part.

    Either A and B on the same input, or with --padded a clip alone and in a container. Every inner
    tensor that both have is compared; of a container, only what is valid.

    Exit code 1 if an output parts.
    """
    _check_usage(models, padded, container, axis, original, feeds)
    sizes = _options.one_each("--dim", dims) or {}
    if container is not None and len(container) > 1:
        raise click.UsageError(f"--container: one size, not {len(container)}.")
    gate = _options.gates(max_abs)
    with _terminal.progress(quiet=as_json) as tell:
        from graphfix.probing.probe import probe as compare
        from graphfix.probing.probe import probe_padded

        if padded:
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
        else:
            found = compare(
                *models,
                dims=sizes,
                feeds=feeds,
                tolerance=gate,
                ep=ep,
                progress=_terminal.counted(tell),
            )
    if report:
        from graphfix.show import probe_page

        probe_page.write(found, " and ".join(models), report)
    if as_json:
        _terminal.print_json(found.to_json())
    else:
        _show(found, models, every=verbose)
        if report:
            _terminal.row("page", report)
    return 0 if found.ok else 1


def _check_usage(
    models: tuple[str, ...],
    padded: bool,
    container: list[int] | None,
    axis: str,
    original: str | None,
    feeds: str | None,
) -> None:
    if padded and len(models) != 1:
        raise click.UsageError("--padded takes one model; name another one with --original.")
    if padded and feeds:
        raise click.UsageError("--feeds goes with two models, not with --padded.")
    if not padded and len(models) != 2:
        hint = " To compare one model with itself, say --padded." if len(models) == 1 else ""
        raise click.UsageError(f"give two models, not {len(models)}.{hint}")
    if not padded and (container or axis or original):
        raise click.UsageError("--container, --axis and --original go with --padded.")


def _show(found: Probe, models: tuple[str, ...], *, every: bool) -> None:
    _terminal.paragraph(" and ".join(models))
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
