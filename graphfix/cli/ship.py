"""``graphfix ship``: from an export to a folder of containers, proved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from graphfix.cli import _options, _terminal
from graphfix.spec.quoting import quoted

if TYPE_CHECKING:
    from graphfix.runtime.provider import Ep
    from graphfix.shipped.manifest import Container
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
    "given",
    multiple=True,
    required=True,
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
    help="An input, and the output that gives it for the next step, if names do not tell.",
)
@_options.flag(
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
@_options.flag("--float16", text="Weights and arithmetic in float16.")
@_options.gate("--atol", text="Largest difference that passes.")
@_options.rtol
@_options.flag(
    "--strict",
    text="Ship nothing if a container fails: do not search for the repairs that are to blame.",
)
@_options.ep
@_options.json_flag
@_options.plugin
@_options.verbose
def ship(
    model: str,
    given: tuple[str, ...],
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
    verbose: bool,
) -> int:
    """Create a folder of fixed-size graphs to deploy.

    One graph per container, with shared weights. graphfix.Session is a drop-in replacement for
    onnxruntime.InferenceSession, for clips of any length. Exit code 1, and nothing is written, if
    a padded clip differs from the clip alone on MODEL.
    """
    _options.load_plugins()
    with _terminal.progress(quiet=as_json) as tell:
        from graphfix.shipping.build import ship_file
        from graphfix.shipping.container_spec import cache_sizes, pairs, wanted

        done = ship_file(
            model,
            output,
            wanted(given, rate),
            passes=spec,
            axis=axis,
            float16=float16,
            ep=ep,
            tolerance=_options.tolerance(atol, rtol),
            strict=strict,
            cache=cache_sizes(cache),
            states=pairs(states),
            stream=stream,
            progress=tell,
        )
    if as_json:
        _terminal.print_json(done.to_json())
    else:
        _print(model, done, verbose=verbose)
    if done.ok:
        return 0
    why = next((str(x) for x in done.padding if not x.verdict.ok), str(done.whole))
    lost = f"what would be shipped is not the original: {why}"
    return _terminal.failed(f"{lost}; nothing was written")


def _print(model: str, done: Shipped, *, verbose: bool) -> None:
    from graphfix.engine.report import endless_row

    _terminal.paragraph(model)
    click.echo()
    left = done.checked.errors
    _terminal.row("check", str(done.checked), colour="yellow" if left else None)
    for finding in done.checked.after if verbose else left:
        _terminal.row("left", f"{finding.rule} at {finding.at}: {finding.message}")
    click.echo()
    axis = done.manifest.axis
    own = quoted(done.manifest.provenance["names"][axis.dim][0])
    for container in done.manifest.containers:
        size = container.sizes[axis.dim]
        seconds = f" ({size / axis.rate:g} s)" if axis.rate else ""
        sizes = f"{_caches(done, container)}{own}={size}{seconds}"
        _terminal.paragraph(f"{container.file}, {sizes}", "  ")
        _terminal.row("kernels", _kernels(container))
        for proof in done.padding:
            if proof.file == container.file:
                verdict = proof.verdict
                _terminal.row("padded", str(proof), colour="green" if verdict.ok else "red")
                if verbose:
                    dropped = (f"{x.name}: {x.reason}" for x in verdict.dropped)
                    for note in (*verdict.notes, *dropped):
                        _terminal.row("note", note)
        click.echo()
    stream = done.manifest.stream
    if (opening := done.manifest.opening) is not None:
        _terminal.paragraph(f"{opening.container.file}, once for each encoding", "  ")
        _terminal.row("kernels", _kernels(opening.container))
        click.echo()
    if stream is not None:
        shown = ", ".join(f"{x.input} from {x.output}" for x in stream.states[:2])
        more = ", ..." if len(stream.states) > 2 else ""
        _terminal.row("states", f"{len(stream.states)}: {shown}{more}")
        if stream.caches:
            _terminal.row("full", _FULL[stream.rolls])
    if done.whole is not None:
        _terminal.row("session", str(done.whole), colour="green" if done.whole.ok else "red")
    for why in done.unrounded:
        _terminal.row("note", why, colour="yellow")
    _terminal.rows(x.row(verbose=verbose) for x in (*done.faults, *done.left))
    if done.searched:
        _terminal.row("searched", done.searched)
    _terminal.rows(endless_row(name for report in done.reports for name in report.endless))
    for name, size in done.sizes.items():
        _terminal.row("file", f"{name}, {_bytes(size)}")
    if done.folder is None:
        _terminal.row("written", "nothing", colour="red")
        return
    _terminal.row("written", str(done.folder))
    steps = "" if stream is None else "stream()."
    _terminal.row("use", f"graphfix.Session({str(done.folder)!r}).{steps}run(None, feeds)")


def _caches(done: Shipped, container: Container) -> str:
    """The sizes of the caches of a container, such as ``past=256, ``."""
    stream = done.manifest.stream
    names = done.manifest.provenance["names"]
    grows = [] if stream is None else [x.dim for x in stream.caches if x.grows]
    return "".join(f"{quoted(names[x][0])}={container.sizes[x]}, " for x in grows)


def _kernels(container: Container) -> str:
    before, after = container.kernels["before"], container.kernels["after"]
    if before is None or after is None:
        return "not predicted: ONNX Runtime does not load it here"
    all_before, all_after = (x["dispatches"] + x["cpu"] for x in (before, after))
    remade = f"{before['remade']} -> {after['remade']}"
    return f"{all_before} -> {all_after} per run, recompiled at a new length {remade}"


def _bytes(size: int) -> str:
    return f"{size / _MIB:.1f} MiB" if size >= _MIB else f"{size / 1024:.0f} KiB"
