"""``graphfix zoo``: a folder of models, each repaired, checked, run and timed; and one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graphfix.cli import _options, _terminal
from graphfix.wording import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphfix.runtime.provider import Ep

    Json = dict[str, Any]


_INTERRUPTED = 130


@click.command()
@click.argument("names", metavar="[NAMES]", nargs=-1)
@click.option(
    "--models",
    metavar="DIR",
    default="models",
    help="The models: folders with a model.toml, or plain .onnx files. Default: models.",
)
@click.option(
    "--ep",
    type=click.Choice(["cpu", "dml"]),
    default="cpu",
    help="Where repaired models run: on the CPU (default), or on DirectML, where the originals are "
    "tried, too.",
)
@click.option("-j", "--jobs", type=int, default=1, help="How many models at a time; 1 by default.")
@click.option(
    "--out",
    metavar="DIR",
    default="build/zoo",
    help="Where results and page go. Default: build/zoo.",
)
@click.option("--force", is_flag=True, help="Do it all again, also what did not change.")
@click.option("--dask", metavar="tcp://HOST:8786", help="Work on a Dask cluster.")
@_options.json_flag
def zoo(
    names: tuple[str, ...],
    models: str,
    ep: Ep,
    jobs: int,
    out: str,
    force: bool,
    dask: str | None,
    as_json: bool,
) -> int:
    """Repair, check, verify and time a folder of models.

    Results go to one page. Unchanged models are taken from the cache. Exit code 1 if a model
    misses what its recipe asks for.
    """
    if jobs < 1:
        raise click.UsageError(f"-j {jobs}: at least 1.")
    folder, place = Path(models), Path(out)
    rows: list[Json] = []
    with _terminal.progress(quiet=as_json) as tell:
        from graphfix import zoo as work

        recipes = work.find(folder, names)
        tell(f"0 of {len(recipes)} models")
        try:
            for ran in work.run(
                recipes, place, ep=ep, jobs=jobs, force=force, dask=dask, tell=_terminal.remark
            ):
                rows.append(ran.row)
                tell(f"{len(rows)} of {len(recipes)} models")
                if not as_json:
                    _print(ran.row, fresh=ran.fresh)
        except KeyboardInterrupt:
            _terminal.remark(f"interrupted; {len(rows)} of {len(recipes)} results are in {place}")
            return _INTERRUPTED
        from graphfix.zoo import zoo_page

        zoo_page.write(work.stored(folder, place), place / "index.html")
    failed = [row for row in rows if not row["ok"]]
    if as_json:
        order = {recipe.id: i for i, recipe in enumerate(recipes)}
        rows.sort(key=lambda row: order[row["id"]])
        _terminal.print_json({"schema": 1, "ok": not failed, "ep": ep, "rows": rows})
    else:
        click.echo()
        _terminal.row("models", _sum(rows, failed), colour="red" if failed else "green")
        _terminal.row("page", str(place / "index.html"))
    return int(bool(failed))


def _print(row: Json, *, fresh: bool) -> None:
    colour, word = ("green", "ok") if row["ok"] else ("red", "failed")
    told = [] if fresh else ["known"]
    if "repair" in row["stages"]:
        passes = row["stages"]["repair"].get("passes", [])
        told.append(plural(sum(len(p["changes"]) for p in passes), "repair"))
    told += [text for name in ("crashes", "worst", "ratio") if (text := _figure(row, name))]
    if fresh:
        told.append(f"{row['seconds']:.0f} s")
    _terminal.row(word, f"{row['id']}: {', '.join(told)}", colour=colour)
    for gate in row["gates"]:
        if gate["ok"] is False:
            _terminal.paragraph(gate["text"], " " * 12)


def _figure(row: Json, name: str) -> str:
    figure = row["figures"][name]
    before, after = figure["before"], figure["after"]
    if after is None:
        return ""
    if name == "crashes":
        words = ("runs", "crashes")
        now = "runs now" if before and not after else f"{words[int(after)]} on DirectML"
        return f"crashed on DirectML, {now}" if before else now
    if name == "worst":
        return f"worst difference {after:.2g}"
    return f"{after:.2f} of the time"


def _sum(rows: Sequence[Json], failed: Sequence[Json]) -> str:
    if not failed:
        return f"all {len(rows)} are as they should be"
    names = ", ".join(row["id"] for row in failed)
    return f"{len(failed)} of {len(rows)} are not as they should be: {names}"
