"""``graphfix ship``: from an export to a folder of containers, proved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from graphfix.cli import _options, _page, _terminal, _verdict
from graphfix.spec.quoting import quote_name
from graphfix.wording import kernels_text, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphfix.providers.table import Ep
    from graphfix.shipped.manifest import Container, Streaming
    from graphfix.shipping.result import Shipped

_MIB = 1 << 20
_FULL = {
    True: "caches roll: what falls out of them is not read by the original either",
    False: "the step that would overfill the caches is an error, and nothing is lost",
}


@click.command()
@_options.model
@click.option(
    "--container",
    "containers",
    multiple=True,
    metavar="T=500,3000",
    help="Sizes of the dim that is padded, by name, or in seconds with --rate: T=5s,30s. Other "
    "dims with --container B=1; the batch is 1 unless it is said. T and B stand for the padded dim "
    "and the batch, whatever the model calls them.",
)
@click.option(
    "--cache",
    default="",
    metavar="256,1024",
    help="The entries that caches hold, of a model that continues them; of several sizes the "
    "smallest that suffices is used.",
)
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="INPUT=OUTPUT",
    help="An input, and the output that gives it for the next step, if names do not tell; of many "
    "at once, 'cached_*=new_cached_*'.",
)
@_options.flag_option(
    "--stream",
    text="Run it step by step although none of its states grows, as a streaming encoder.",
)
@click.option("--rate", type=float, metavar="16000", help="How many of that dim a second has.")
@click.option("-o", "--output", required=True, metavar="DIR", help="The folder that is made.")
@click.option(
    "-p",
    "--passes",
    "spec",
    default="",
    metavar="SPEC",
    help="Passes and profiles instead of the usual ones; sizes and ilens-mask are put in.",
)
@click.option(
    "--axis", default="", metavar="NAME", help="The dim that is padded, if several could be."
)
@_options.flag_option("--float16", text="Weights and arithmetic in float16.")
@_options.tolerance_option("--atol", text="Largest difference that passes.")
@_options.rtol
@_options.flag_option(
    "--strict",
    text="Ship nothing if a container fails: do not search for the repairs that are to blame.",
)
@_options.ep
@_options.json_flag
@_page.option
@_options.plugin
@_options.verbose
def ship(
    model: str,
    containers: tuple[str, ...],
    cache: str,
    states: tuple[str, ...],
    stream: bool,
    rate: float | None,
    output: str,
    spec: str,
    axis: str,
    float16: bool,
    atol: float | None,
    rtol: float | None,
    strict: bool,
    ep: Ep,
    as_json: bool,
    report: str | None,
    verbose: bool,
) -> int:
    """Create a folder of fixed-size graphs to deploy.

    One graph per container, with shared weights. graphfix.Session is a drop-in replacement for
    onnxruntime.InferenceSession, for clips of any length. Exit code 1, and nothing is written, if
    a padded clip differs from the clip alone on MODEL.
    """
    page = _page.page_path(report, [model])
    _options.load_plugins()
    with _terminal.show_progress(quiet=as_json) as tell:
        from graphfix.shipping.build import ship_file
        from graphfix.shipping.container_spec import (
            parse_cache_sizes,
            parse_containers,
            parse_states,
        )

        result = ship_file(
            model,
            output,
            parse_containers(containers, rate),
            passes=spec,
            axis=axis,
            float16=float16,
            ep=ep,
            tolerance=_options.build_tolerance(atol, rtol),
            strict=strict,
            cache=parse_cache_sizes(cache),
            states=parse_states(states),
            stream=stream,
            progress=tell,
        )
    if as_json:
        _terminal.print_json(result.to_json())
    else:
        _print_result(model, result, verbose=verbose)
    if page is not None:
        _page.write_page(page, "ship.html", result.to_json(), quiet=as_json)
    if result.ok:
        return 0
    reason = next((str(x) for x in result.padding if not x.verdict.ok), str(result.whole))
    lost = f"what would be shipped is not the original: {reason}"
    return _terminal.report_failure(f"{lost}; nothing was written")


def _print_result(model: str, result: Shipped, *, verbose: bool) -> None:
    _terminal.print_paragraph(model)
    click.echo()
    errors = result.checked.errors
    _terminal.print_row("check", str(result.checked), colour="yellow" if errors else None)
    for finding in result.checked.after if verbose else errors:
        _terminal.print_row("left", f"{finding.rule} at {finding.at}: {finding.message}")
    if result.manifest.stream is not None:
        _print_step_cost(result.manifest.containers)
        for remark in result.remarks:
            _terminal.print_row("note", remark, colour="yellow")
    click.echo()
    for container in result.manifest.containers:
        _print_container(result, container, verbose=verbose)
    if result.manifest.stream is not None:
        _print_stream(result.manifest.stream)
    _print_proof(result, verbose=verbose)
    for name, size in result.sizes.items():
        _terminal.print_row("file", f"{name}, {_size_text(size)}")
    if result.folder is None:
        _terminal.print_row("written", "nothing", colour="red")
        return
    _terminal.print_row("written", str(result.folder))
    steps = "" if result.manifest.stream is None else "stream()."
    _terminal.print_row("use", f"graphfix.Session({str(result.folder)!r}).{steps}run(None, feeds)")


def _print_container(result: Shipped, container: Container, *, verbose: bool) -> None:
    axis = result.manifest.axis
    name = quote_name(result.manifest.provenance["names"][axis.dim][0])
    size = container.sizes[axis.dim]
    seconds = f" ({size / axis.rate:g} s)" if axis.rate else ""
    sizes = f"{_cache_sizes_text(result, container)}{name}={size}{seconds}"
    _terminal.print_paragraph(f"{container.file}, {sizes}", "  ")
    _terminal.print_row("kernels", _kernels_text(container))
    for proof in result.padding:
        if proof.file == container.file:
            _verdict.print_padding(str(proof), proof.verdict, verbose=verbose)
    click.echo()


def _print_step_cost(containers: Sequence[Container]) -> None:
    """Print what the dearest step runs, if any of it is recompiled, copied or on the CPU."""
    counts = [x for container in containers if (x := container.kernels["after"]) is not None]
    worst = ("recompiled", "cpu", "copies", "dispatches")
    dearest = max(counts, key=lambda x: tuple(x[name] for name in worst), default=None)
    if dearest is None or not any(dearest[x] for x in worst[:-1]):
        return
    copies = dearest["copies"]
    between = f", with {plural(copies, 'copy', 'copies')} between them" if copies else ""
    _terminal.print_row(
        "step",
        f"{plural(dearest['dispatches'], 'kernel')} a step on DirectML, "
        f"{dearest['recompiled']:,} of them recompiled, "
        f"and {dearest['cpu']:,} on the CPU{between}; predicted",
        colour="yellow",
    )


def _print_stream(stream: Streaming) -> None:
    if stream.opening is not None:
        container = stream.opening.container
        _terminal.print_paragraph(f"{container.file}, once for each encoding", "  ")
        _terminal.print_row("kernels", _kernels_text(container))
        click.echo()
    shown = ", ".join(f"{x.input} from {x.output}" for x in stream.states[:2])
    more = ", ..." if len(stream.states) > 2 else ""
    _terminal.print_row("states", f"{len(stream.states)}: {shown}{more}")
    if stream.caches:
        _terminal.print_row("full", _FULL[stream.rolls])


def _print_proof(result: Shipped, *, verbose: bool) -> None:
    """Print what a session gives, and what was skipped or done in another way."""
    from graphfix.engine.report import endless_rows

    if result.whole is not None:
        colour = "green" if result.whole.ok else "red"
        _terminal.print_row("session", str(result.whole), colour=colour)
    for reason in result.unrounded:
        _terminal.print_row("note", reason, colour="yellow")
    _terminal.print_rows(x.row(verbose=verbose) for x in (*result.faults, *result.left))
    if result.searched:
        _terminal.print_row("searched", result.searched)
    _terminal.print_rows(endless_rows(name for report in result.reports for name in report.endless))


def _cache_sizes_text(result: Shipped, container: Container) -> str:
    """Return the sizes of the caches of a container, such as ``past=256, ``."""
    stream = result.manifest.stream
    names = result.manifest.provenance["names"]
    grows = [] if stream is None else [x.dim for x in stream.caches if x.grows]
    return "".join(f"{quote_name(names[x][0])}={container.sizes[x]}, " for x in grows)


def _kernels_text(container: Container) -> str:
    before, after = container.kernels["before"], container.kernels["after"]
    if before is None or after is None:
        return "not predicted: ONNX Runtime does not load it here"
    first, second = ({**x, "directml": x["dispatches"]} for x in (before, after))
    return kernels_text(first, second)


def _size_text(size: int) -> str:
    return f"{size / _MIB:.1f} MiB" if size >= _MIB else f"{size / 1024:.0f} KiB"
