"""``graphfix zoo``: repair, check, run and time a folder of models, and write one page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from graphfix.cli import _options, _terminal
from graphfix.providers.table import EVERYWHERE
from graphfix.wording import plural

if TYPE_CHECKING:
    from graphfix.model_zoo.zoo import ModelRow
    from graphfix.providers.table import Ep


_INTERRUPTED = 130


@click.command()
@click.argument("names", metavar="[NAMES]", nargs=-1)
@click.option(
    "--models",
    metavar="DIR",
    default="models",
    help="The models: folders with a model.toml, or plain .onnx files. Default: models.",
)
@_options.ep_option(
    EVERYWHERE,
    "cpu",
    "Where repaired models run: on the CPU (default), or on DirectML, WebGPU or CUDA, where the "
    "originals are tried, too.",
)
@click.option("-j", "--jobs", type=int, default=1, help="How many models at a time; 1 by default.")
@click.option(
    "--out",
    metavar="DIR",
    default="build/zoo",
    help="Where results and page go. Default: build/zoo.",
)
@_options.flag_option("--force", text="Do it all again, also what did not change.")
@_options.flag_option("--careful", text="Time for longer, for narrower intervals; redo quick rows.")
@click.option("--dask", metavar="tcp://HOST:8786", help="Work on a Dask cluster.")
@_options.json_flag
def zoo(
    names: tuple[str, ...],
    models: str,
    ep: Ep,
    jobs: int,
    out: str,
    force: bool,
    careful: bool,
    dask: str | None,
    as_json: bool,
) -> int:
    """Repair, check, verify and time a folder of models.

    Results go to one page. Unchanged models are taken from the cache. Exit code 1 if a model
    misses what its recipe asks for.
    """
    finished_rows: list[ModelRow] = []

    def show_row(ran: ModelRow) -> None:
        finished_rows.append(ran)
        if not as_json:
            _terminal.print_rows([ran.to_row()])
            for gate in ran.row["gates"]:
                if gate["ok"] is False:
                    _terminal.print_paragraph(gate["text"], " " * 12)

    with _terminal.show_progress(quiet=as_json) as tell:
        from graphfix.model_zoo.zoo import zoo as work

        try:
            result = work(
                models,
                names,
                out=out,
                ep=ep,
                jobs=jobs,
                force=force,
                careful=careful,
                dask=dask,
                each=show_row,
                progress=tell,
            )
        except KeyboardInterrupt:
            _terminal.print_remark(f"interrupted; {plural(len(finished_rows), 'result')} in {out}")
            return _INTERRUPTED
    if as_json:
        _terminal.print_json(result.to_json())
    else:
        click.echo()
        _terminal.print_rows(result.rows())
    return int(not result.ok)
