"""``graphfix merge``: two models as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from graphfix.cli import _options, _terminal, _verdict
from graphfix.spec.quoting import partition_outside_quotes, unquote_name

if TYPE_CHECKING:
    from graphfix.files.weights import Placement


def _parse_connections(
    _: click.Context, option: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str]:
    """Return the input that each output feeds."""
    connections: dict[str, str] = {}
    for text in texts:
        source, equals, target = partition_outside_quotes(text, "=")
        if not (source and equals and target):
            raise click.UsageError(f"{option.opts[0]} {text}: write OUTPUT=INPUT.")
        if unquote_name(source) in connections:
            raise click.UsageError(f"{option.opts[0]} {text}: {source} is given twice.")
        connections[unquote_name(source)] = unquote_name(target)
    return connections


@click.command()
@click.argument("first", metavar="FIRST", type=_options.FILE)
@click.argument("second", metavar="SECOND", type=_options.FILE)
@click.option("-o", "--output", metavar="FILE", required=True, help="Where the merged model goes.")
@click.option(
    "--connect",
    multiple=True,
    metavar="OUTPUT=INPUT",
    callback=_parse_connections,
    help="An output of FIRST and the input of SECOND that it feeds; may be given several times. "
    "By default those of one name.",
)
@_options.dims_option("T=7,40", "Sizes to verify at; may be given for several dims.")
@_options.tolerance_option("--atol", text="Largest difference that passes; 1e-4 by default.")
@_options.flag_option("--no-verify", text="Write the result without running it.")
@click.option(
    "--external-data",
    type=click.Choice(["auto", "inline", "separate"]),
    default="auto",
    help="Weights in the model, or in a file beside it; auto decides by the size.",
)
@_options.json_flag
@_options.verbose
def merge(
    first: str,
    second: str,
    output: str,
    connect: dict[str, str],
    dims: _options.Sizes | None,
    atol: float | None,
    no_verify: bool,
    external_data: Placement,
    as_json: bool,
    verbose: bool,
) -> int:
    """Merge two models into one: outputs of FIRST feed inputs of SECOND.

    Such as a front end and an encoder. Equal weights are stored once. Both models run one after
    the other, and both as one, and the outputs are compared.

    Exit code 1, and nothing is written, if they differ.
    """
    _options.require_name(output)
    with _terminal.show_progress(quiet=as_json) as tell:
        from graphfix.job.merging import merge as merge_models

        merged = merge_models(
            first,
            second,
            connect,
            output,
            check=not no_verify,
            dims=dims,
            tolerance=_options.build_tolerance(atol),
            external_data=external_data,
            progress=tell,
        )
    if as_json:
        _terminal.print_json(merged.to_json())
    else:
        _terminal.print_paragraph(f"{first} + {second} -> {output}")
        _terminal.print_rows(merged.rows(verbose=verbose))
        if verbose and merged.verdict is not None:
            _verdict.print_details(merged.verdict)
    if merged.ok:
        return 0
    return _terminal.report_failure(
        f"the merged model is not the two: {merged}; nothing was written"
    )
