"""A folder of models, and the same work for each: a recipe, its stages, what is known, the page."""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graphfix.errors import UsageError
from graphfix.zoo import cache
from graphfix.zoo.model_process import Request, apart, end_all
from graphfix.zoo.recipe import Recipe, find, ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from graphfix.runtime.provider import Ep

__all__ = ["ModelRow", "Recipe", "find", "run", "stored"]

Json = dict[str, Any]

# Short, as Windows hears no Ctrl-C while it waits.
_POLL_SECONDS = 0.2
_PATIENCE_SECONDS = 1.0  # with a process that is to end by itself


@dataclass(frozen=True)
class ModelRow:
    """The row of one model.

    Attributes:
        row: What was found, as plain data.
        fresh: Whether it was found now, or known.
    """

    row: Json
    fresh: bool


def run(
    recipes: Sequence[Recipe],
    out: Path,
    *,
    ep: Ep = "cpu",
    jobs: int = 1,
    force: bool = False,
    dask: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Iterator[ModelRow]:
    """Do what is not known yet, and keep each result as ``out/NAME.json`` as soon as it is there.

    Args:
        recipes: The models.
        out: The folder of the results.
        ep: Where the repaired models are to run.
        jobs: How many models to work on at a time, on this machine.
        force: Whether to do it all again.
        dask: The address of a Dask scheduler, to work there.
        tell: Called with a remark for the user.

    Yields:
        The rows: first those that are known, then the others as they come.

    Raises:
        UsageError: A recipe names no passes, DirectML or the cluster is unavailable, or nothing
            can be written into ``out``.
    """
    requests = []
    for recipe in recipes:
        request = Request(recipe, ep, cache.key_of(recipe, ep))
        row = None if force else cache.known(_place(out, recipe), request.key)
        if row is None:
            requests.append(request)
        else:
            yield ModelRow(row, fresh=False)
    if not requests:
        return
    _can_be_done(requests, here=dask is None)
    _require_room(out)
    if dask is not None:
        from graphfix.zoo.dask_workers import rows

        done = rows(dask, requests, tell=tell)
    else:
        done = _here(requests, jobs)
    places = {request.recipe.id: _place(out, request.recipe) for request in requests}
    for row in done:
        cache.keep(places[row["id"]], row)
        yield ModelRow(row, fresh=True)


def stored(folder: Path, out: Path) -> list[Json]:
    """The rows that are known of the models in ``folder``, in order, old ones among them."""
    rows = [cache.known(out / f"{name}.json") for name in ids(folder)]
    return [row for row in rows if row is not None]


def _here(requests: Sequence[Request], jobs: int) -> Iterator[Json]:
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(apart, request) for request in requests}
        try:
            while running:
                done, running = wait(running, _POLL_SECONDS, FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        except BaseException as error:  # Ctrl-C, or nobody wants the rest
            pool.shutdown(wait=False, cancel_futures=True)
            patience = time.monotonic() + _PATIENCE_SECONDS
            while not all(x.done() for x in running):  # one may just be starting
                end_all(at_once=time.monotonic() > patience)
                time.sleep(_POLL_SECONDS)
            # Where Ctrl-C comes as threading.Condition takes its lock, that raises another error.
            if isinstance(error.__context__, KeyboardInterrupt):
                raise error.__context__ from None
            raise


def _can_be_done(requests: Sequence[Request], *, here: bool) -> None:
    """Say what is wrong before anything is run, not after half of it."""
    from graphfix.engine import pipeline

    for request in requests:
        try:
            pipeline.resolve(request.recipe.passes)
        except UsageError as error:
            raise UsageError(f"the recipe of {request.recipe.id}: {error}") from error
    if here and requests[0].ep == "dml":
        from graphfix.runtime.python import require

        require("dml")


def _require_room(out: Path) -> None:
    """Raise UsageError where no results can be put; nothing is made of the folder yet."""
    # A drive that is not there has no folder above.
    there = next((x for x in (out, *out.absolute().parents) if x.exists()), out)
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        reason = "is a file" if there.is_file() else f"cannot be written: {error.strerror or error}"
        where = f"--out {out}" if there == out else f"--out {out}: {there}"
        raise UsageError(f"{where}: {reason}; name a folder for the results") from error


def _place(out: Path, recipe: Recipe) -> Path:
    return out / f"{recipe.id}.json"
