"""``graphfix zoo``: a folder of models, each repaired, checked, run and timed; and one page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from graphfix.cli import _options, _terminal
from graphfix.wording import plural

if TYPE_CHECKING:
    from graphfix.model_zoo.zoo import ModelRow
    from graphfix.runtime.provider import Ep


_INTERRUPTED = 130


@click.command()
@click.argument("names", metavar="[NAMES]", nargs=-1)
@click.option(
    "--models",
    metavar="DIR",
    default="models",
    help="The models: folders with a model.toml, or plain .onnx files. Default: models.",
)
@_options.where(
    ["cpu", "dml"],
    "cpu",
    "Where repaired models run: on the CPU (default), or on DirectML, where the originals are "
    "tried, too.",
)
@click.option("-j", "--jobs", type=int, default=1, help="How many models at a time; 1 by default.")
@click.option(
    "--out",
    metavar="DIR",
    default="build/zoo",
    help="Where results and page go. Default: build/zoo.",
)
@_options.flag("--force", text="Do it all again, also what did not change.")
@_options.flag("--careful", text="Time for longer, for narrower intervals; redo quick rows.")
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
    done: list[ModelRow] = []

    def each(ran: ModelRow) -> None:
        done.append(ran)
        if not as_json:
            _terminal.rows([ran.told()])
            for gate in ran.row["gates"]:
                if gate["ok"] is False:
                    _terminal.paragraph(gate["text"], " " * 12)

    with _terminal.progress(quiet=as_json) as tell:
        from graphfix.model_zoo.zoo import zoo as work

        try:
            found = work(
                models,
                names,
                out=out,
                ep=ep,
                jobs=jobs,
                force=force,
                careful=careful,
                dask=dask,
                each=each,
                progress=tell,
            )
        except KeyboardInterrupt:
            _terminal.remark(f"interrupted; {plural(len(done), 'result')} in {out}")
            return _INTERRUPTED
    if as_json:
        _terminal.print_json(found.to_json())
    else:
        click.echo()
        _terminal.rows(found.rows())
    return int(not found.ok)
