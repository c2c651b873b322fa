"""``graphfix bench``: time models side by side, and compare their outputs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from graphfix.cli import _options, _page, _terminal
from graphfix.errors import ModelError
from graphfix.providers.table import EVERYWHERE

if TYPE_CHECKING:
    from graphfix.core import Pass
    from graphfix.providers.table import Ep
    from graphfix.runtime.python import Wanted


@click.command()
@click.argument("models", metavar="A.onnx [B.onnx ...]", nargs=-1)
@_options.ep_option(
    [*EVERYWHERE, "auto"],
    "auto",
    "Where to run. auto (default): DirectML, or the CPU where there is none, and each line says "
    "so. dml, webgpu, cuda: there, or exit code 2 and how to get it. Several with commas, as "
    "cpu,dml: side by side, without those that are unavailable.",
    several=True,
)
@_options.dims_option(
    "T=500", "The size of a symbolic dim to time at; may be given for several dims."
)
@_options.dims_option("T=480", "The same for the other shape, timed too.", "--other")
@click.option(
    "--fixed/--no-fixed",
    default=True,
    help="Whether to time with the dims fixed, too; --no-fixed takes half as long.",
)
@click.option(
    "--processes",
    type=int,
    help="How many processes of each model; 6 by default. No ratio comes of fewer.",
)
@click.option(
    "--runs", type=int, help="Minimum number of steady-state runs per process; 3 by default."
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.0),
    help="How long steady runs go on in each process at least; 0.1 by default, 0.3 on DirectML.",
)
@_options.flag_option(
    "--careful",
    text="Take longer for a narrower interval: 9 processes and 0.5 seconds, 6 and 1.5 on DirectML.",
)
@_options.tolerance_option(
    "--atol", text="Largest difference from the first model on the CPU; of outputs over 1, a share."
)
@click.option(
    "--ship",
    metavar="DIR",
    help="Time a stream of clips on what 'graphfix ship' made, beside --against.",
)
@click.option("--against", metavar="MODEL", help="The model that takes any length, for --ship.")
@click.option(
    "--clips", type=click.IntRange(min=1), default=30, help="How many clips; 30 by default."
)
@click.option("--lengths", metavar="FILE", help="A file with the length of each clip, one a line.")
@_options.json_flag
@_page.option
@_options.plugin
@_options.verbose
def bench(
    models: tuple[str, ...],
    ep: Wanted | tuple[Ep, ...],
    dims: _options.Sizes | None,
    other: _options.Sizes | None,
    fixed: bool,
    processes: int | None,
    runs: int | None,
    seconds: float | None,
    careful: bool,
    atol: float | None,
    ship: str | None,
    against: str | None,
    clips: int,
    lengths: str | None,
    as_json: bool,
    report: str | None,
    verbose: bool,
) -> int:
    """Time models side by side.

    Phases: making the session, first run, first run at a new length, steady runs, another shape,
    and back; and the peak memory of a process. Models alternate, one process at a time, in random
    order; ratios compare processes. If A differs measurably from its own copy, no ratio is
    reported. Each model is timed with symbolic and with fixed dims. With several providers, A is
    the first model on the first of them.

    Exit code 1 if a model does not run, or its outputs differ from the first model's on the CPU.
    """
    if ship is not None:
        from graphfix.cli._stream import run_stream_bench

        if models or against is None or report is not None:
            raise click.UsageError(
                "--ship DIR takes --against MODEL, no other models, no --report."
            )
        if isinstance(ep, tuple):
            raise click.UsageError("--ship DIR is timed on one provider: name one with --ep.")
        return run_stream_bench(
            ship, against, ep, clips=clips, lengths=lengths, processes=processes, as_json=as_json
        )
    if not models:
        raise click.UsageError("Name the models to time, or --ship DIR --against MODEL.")
    _options.load_plugins()
    page = _page.page_path(report, models)
    with _terminal.show_progress(quiet=as_json) as tell:
        from graphfix.benchmark.bench import bench as measure
        from graphfix.runtime.python import choose_provider

        if isinstance(ep, str):
            choose_provider(ep)  # before a model is read
        from graphfix.core import feeds_after, read_outputs

        passes = [_passes_since(models[0], model) for model in models]
        result = measure(
            models,
            ep=ep,
            dims=dims,
            other=other,
            fixed=fixed,
            processes=processes,
            runs=runs,
            seconds=seconds,
            careful=careful,
            map_feeds=[partial(feeds_after, x) for x in passes],
            read_outputs=[partial(read_outputs, x) for x in passes],
            tolerance=_options.build_tolerance(atol),
            progress=tell,
        )
    from graphfix.cli._benchmark import model_letters, print_benchmark

    if as_json:
        _terminal.print_json(result.to_json())
    else:
        print_benchmark(result, verbose=verbose)
    if page is not None:
        _page.write_page(
            page, "bench.html", result.to_json(), quiet=as_json, names=model_letters(result)
        )
    if result.ok:
        return 0
    bad = next(x for x in result.models if not x.ok)
    reason = next(x.failure for x in bad.results.values() if x.failure)
    return _terminal.report_failure(f"{result.name_of(bad)}: {reason}")


def _passes_since(first: str, model: str) -> list[Pass]:
    """Return the passes that a model says it went through since the first one."""
    from graphfix.files import io
    from graphfix.job.comparing import passes_between

    if model == first:
        return []
    try:
        return passes_between(io.load(first), io.load(model))
    except ModelError:
        return []  # that it cannot be read is said where it would be timed
