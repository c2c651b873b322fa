"""``graphfix reduce``: the smallest model that still fails, and a bug report of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from graphfix.cli import _options, _terminal
from graphfix.providers.table import EVERYWHERE
from graphfix.wording import ALIASES

if TYPE_CHECKING:
    from graphfix.providers.table import Ep


@click.command()
@_options.model
@_options.ep_option(
    EVERYWHERE,
    "dml",
    "Where it fails: on DirectML by default, on the CPU, WebGPU or CUDA.",
)
@click.option(
    "--passes",
    "-p",
    metavar="PASSES",
    default="",
    help="Passes that spoil the model: then it fails where they change what it computes.",
)
@click.option(
    "--original",
    metavar="MODEL",
    help="The model before a repair: then it fails where it computes something else.",
)
@click.option("--feeds", metavar="FILE.npz", help="The inputs with which it fails, by name.")
@_options.dims_option("T=7,40", "Sizes to try; may be given for several dims.")
@_options.tolerance_option("--atol", text="Largest difference that is no failure; 1e-4 by default.")
@click.option(
    "--slower-than",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="A model fails if its second run takes longer.",
)
@click.option(
    "--budget",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="After about how long the smallest model found by then is written. So does Ctrl-C.",
)
@click.option(
    "-o", "--output", metavar="FILE", help="Where it goes; model.small.onnx beside the model."
)
@_options.json_flag
@_options.plugin
def reduce(
    model: str,
    ep: Ep,
    passes: str,
    original: str | None,
    feeds: str | None,
    dims: _options.Sizes | None,
    atol: float | None,
    slower_than: float | None,
    budget: float,
    output: str | None,
    as_json: bool,
) -> int:
    """Find the smallest model that still fails.

    Crashes, errors, wrong numbers and slow runs on an execution provider. Writes the model, its
    inputs beside it as .npz, and a text for a bug report as .md.

    Exit code 0 if one was written, 2 if the model does not fail.
    """
    _options.load_plugins()
    if output is None and model in ALIASES:
        raise click.UsageError("-: name the output with -o FILE.")
    _options.require_name(output)
    target = Path(output or Path(model).with_suffix(".small.onnx"))
    from graphfix.files.byte_ranges import refuse_overwrite
    from graphfix.reducing.reduction import output_files
    from graphfix.reducing.reduction import reduce as reduced
    from graphfix.runtime.python import require_provider

    read_files = [Path(x) for x in (model, original) if x]
    for file in output_files(target, with_original=original is not None):
        refuse_overwrite(read_files, file, [feeds, *_options.plugin_files()])
    require_provider(ep)
    tolerance = _options.build_tolerance(atol)
    with _terminal.show_progress(quiet=as_json) as tell:
        reduction = reduced(
            model,
            ep=ep,
            original=original,
            feeds=feeds,
            dims=dims,
            passes=passes or (),
            tolerance=tolerance,
            slower_than=slower_than,
            budget=budget,
            progress=tell,
        )
        files = reduction.save(target)
    if as_json:
        _terminal.print_json({**reduction.to_json(), "files": [str(x) for x in files]})
        return 0
    _terminal.print_paragraph(f"{model} -> {target}")
    _terminal.print_rows(reduction.rows())
    _terminal.print_row("inputs", str(files[1]))
    _terminal.print_row("report", str(files[2]))
    if original is not None:
        _terminal.print_row("original", str(files[3]))
    return 0
