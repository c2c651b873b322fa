"""A folder of models, and the same work for each: recipe, stages, cache and page."""

import logging
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path

from graphfix.errors import UsageError
from graphfix.files.model_input import require_valid_choices
from graphfix.model_zoo import cache, zoo_page
from graphfix.model_zoo.figures import CANNOT_TELL, Json
from graphfix.model_zoo.model_process import Request, end_processes, run_in_process
from graphfix.model_zoo.recipe import Recipe, find_recipes, model_ids
from graphfix.paths import StrPath, require_path
from graphfix.providers.table import EVERYWHERE, PROVIDERS, Ep
from graphfix.runtime.own_errors import raises_own_errors
from graphfix.wording import Proof, Row, Tell, plural

__all__ = ["ModelRow", "Recipe", "Zoo", "find_recipes", "stored_rows", "zoo"]

# Short, as Windows hears no Ctrl-C while it waits.
_POLL_SECONDS = 0.2
_PATIENCE_SECONDS = 1.0  # with a process that is to end by itself


@dataclass(frozen=True)
class ModelRow:
    """The row of one model.

    Attributes:
        row: The results, as plain data.
        fresh: Whether they were computed now, and not taken from the cache.
    """

    row: Json
    fresh: bool

    def to_row(self) -> Row:
        """Return the results as one line."""
        row = self.row
        details = [_ratio_text(row["figures"]["ratio"]), *([] if self.fresh else ["known"])]
        details = [x for x in details if x]
        if "repair" in row["stages"]:
            passes = row["stages"]["repair"].get("passes", [])
            details.append(plural(sum(len(p["changes"]) for p in passes), "repair"))
        details += [x for name in ("crashes", "worst") if (x := _figure_text(row, name))]
        if self.fresh:
            details.append(f"{row['seconds']:.0f} s")
        colour, word = ("green", "ok") if row["ok"] else ("red", "failed")
        return Row(word, f"{row['id']}: {', '.join(details)}", colour)


def _figure_text(row: Json, name: str) -> str:
    figure = row["figures"][name]
    before, after = figure["before"], figure["after"]
    if after is None:
        return ""
    if name == "crashes":
        words = ("runs", "crashes")
        where = f"on {PROVIDERS[row['ep']].label}"
        now = "runs now" if before and not after else f"{words[int(after)]} {where}"
        return f"crashed {where}, {now}" if before else now
    return f"worst difference {after:.2g}"


def _ratio_text(figure: Json) -> str:
    """Return how long the repaired model takes, with the interval; "" where it was not timed."""
    value = figure["after"]
    if value is None:
        return CANNOT_TELL if figure["why"].startswith(CANNOT_TELL) else ""
    low, high = figure.get("interval", (value, value))
    text = f"{value:.2f} of the time ({low:.2f} to {high:.2f})"
    return f"no difference seen: {text}" if low <= 1 <= high else text


@dataclass(frozen=True, repr=False)
class Zoo(Proof):
    """The results for a folder of models.

    Attributes:
        models: The result of each model, in the order of the folder.
        page: The page about all of them.
        ep: Where the repaired models ran.
    """

    models: tuple[ModelRow, ...]
    page: Path
    ep: Ep

    @property
    def failed(self) -> list[str]:
        """Return the ids of the models that miss what their recipe asks for."""
        return [x.row["id"] for x in self.models if not x.row["ok"]]

    @property
    def ok(self) -> bool:
        """Return whether every model meets its recipe."""
        return not self.failed

    def rows(self, *, verbose: bool = False) -> list[Row]:
        """Return the summary in one line, and where the page is."""
        del verbose
        colour = "green" if self.ok else "red"
        return [Row("models", str(self), colour), Row("page", str(self.page))]

    def __str__(self) -> str:
        count, failed = len(self.models), self.failed
        if not failed:
            return f"all {count} are as they should be"
        return f"{len(failed)} of {count} are not as they should be: {', '.join(failed)}"

    def to_json(self) -> Json:
        """Return the result as plain data for JSON."""
        return {"schema": 1, "ok": self.ok, "ep": self.ep, "rows": [x.row for x in self.models]}


@raises_own_errors
def zoo(
    models: StrPath = "models",
    names: Sequence[str] = (),
    *,
    out: StrPath = "build/zoo",
    ep: Ep = "cpu",
    jobs: int = 1,
    force: bool = False,
    careful: bool = False,
    dask: str | None = None,
    each: Callable[[ModelRow], None] = lambda _: None,
    progress: Tell = lambda _: None,
) -> Zoo:
    """Repair, check, verify and time a folder of models, and write a page about them.

    Args:
        models: The folder: folders with a model.toml, or plain .onnx files.
        names: Which of them; all by default.
        out: The folder for results and page.
        ep: Where the repaired models are to run.
        jobs: How many models to work on at a time, on this machine.
        force: Whether to do it all again, also what did not change.
        careful: Whether to time for longer, also what was timed quickly.
        dask: The address of a Dask scheduler, to work there.
        each: Called with the row of each model as soon as it is complete.
        progress: Called with a short text at each step.

    Raises:
        UsageError: There is no such model, a recipe names no passes, the provider or cluster is
            unavailable, or nothing can be written into ``out``.
    """
    require_valid_choices(ep=(ep, EVERYWHERE))
    folder, out_folder, rows_by_id = require_path(models), require_path(out), dict[str, ModelRow]()
    if jobs < 1:
        raise UsageError(f"-j {jobs}: at least 1.")
    recipes, requests = find_recipes(folder, names), list[Request]()
    for recipe in recipes:
        key = cache.key_of(recipe, ep)
        row = None if force else cache.load_row(out_folder / f"{recipe.id}.json", key)
        if row is None or (careful and not row["stages"].get("bench", {}).get("careful")):
            bench = {**recipe.bench, "careful": careful}
            requests.append(Request(replace(recipe, bench=bench), ep, key))
        else:
            rows_by_id[recipe.id] = ModelRow(row, fresh=False)
            each(rows_by_id[recipe.id])
    if requests:
        _require_runnable(requests, locally=dask is None)
        _require_writable(out_folder)
    # Nothing else holds what makes the rows: where this loop is left, it ends its processes.
    for row in (
        _run_locally(requests, jobs, progress) if dask is None else _run_on_cluster(requests, dask)
    ):
        cache.save_row(out_folder / f"{row['id']}.json", row)
        rows_by_id[row["id"]] = ModelRow(row, fresh=True)
        if dask is not None:  # which of them a worker has begun is not known here
            progress(f"working on the cluster: {len(rows_by_id)} of {len(recipes)} models are done")
        each(rows_by_id[row["id"]])
    zoo_page.write_page(stored_rows(folder, out_folder), out_folder / "index.html")
    return Zoo(tuple(rows_by_id[x.id] for x in recipes), out_folder / "index.html", ep)


def stored_rows(folder: Path, out: Path) -> list[Json]:
    """Return the rows of the models in ``folder`` that are stored in ``out``, in order."""
    rows = [cache.load_row(out / f"{name}.json") for name in model_ids(folder)]
    return [row for row in rows if row is not None]


def _run_on_cluster(requests: Sequence[Request], dask: str) -> Iterator[Json]:
    from graphfix.model_zoo.dask_workers import iter_rows

    if requests:
        yield from iter_rows(dask, requests, tell=logging.getLogger("graphfix").warning)


def _run_locally(requests: Sequence[Request], jobs: int, progress: Tell) -> Iterator[Json]:
    stages: dict[str, str] = {}  # of the models that are worked on, by their line

    def run_one(number: int, request: Request) -> Json:
        line = f"model {number} of {len(requests)}, {request.recipe.id}"
        stages[line] = "starting"
        try:
            return run_in_process(request, lambda stage: stages.update({line: stage}))
        finally:
            del stages[line]

    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(run_one, i, request) for i, request in enumerate(requests, 1)}
        try:
            while running:
                finished, running = wait(running, _POLL_SECONDS, FIRST_COMPLETED)
                if now := "\n".join(f"{line}: {stage}" for line, stage in [*stages.items()]):
                    progress(now)
                for future in finished:
                    yield future.result()
        except BaseException as error:  # Ctrl-C, or the caller stops iterating
            pool.shutdown(wait=False, cancel_futures=True)
            patience = time.monotonic() + _PATIENCE_SECONDS
            while not all(x.done() for x in running):  # one may just be starting
                end_processes(at_once=time.monotonic() > patience)
                time.sleep(_POLL_SECONDS)
            # Where Ctrl-C comes as threading.Condition takes its lock, that raises another error.
            if isinstance(error.__context__, KeyboardInterrupt):
                raise error.__context__ from None
            raise


def _require_runnable(requests: Sequence[Request], *, locally: bool) -> None:
    """Raise UsageError for a bad recipe or provider before anything is run."""
    from graphfix.engine import pipeline

    for request in requests:
        try:
            pipeline.resolve_passes(request.recipe.passes)
        except UsageError as error:
            raise UsageError(f"the recipe of {request.recipe.id}: {error}") from error
    if locally:
        from graphfix.runtime.python import require_provider

        require_provider(requests[0].ep)


def _require_writable(out: Path) -> None:
    """Raise UsageError if no results can be written to the folder; it is not created yet."""
    # A drive that is not there has no folder above.
    existing = next((x for x in (out, *out.absolute().parents) if x.exists()), out)
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        reason = (
            "is a file" if existing.is_file() else f"cannot be written: {error.strerror or error}"
        )
        option = f"--out {out}" if existing == out else f"--out {out}: {existing}"
        raise UsageError(f"{option}: {reason}; name a folder for the results") from error
