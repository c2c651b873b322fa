"""The only import of Dask: runs the requests on the workers of a cluster.

A worker that dies takes its work with it; the scheduler gives it to another one. Work that kills
three more workers after the first is not given out again (Dask's ``allowed-failures``).
"""

import socket
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from graphfix.errors import UsageError
from graphfix.model_zoo import cache
from graphfix.model_zoo.figures import Json
from graphfix.model_zoo.model_process import (
    TRAVELS,
    Request,
    failed_row,
    read_request,
    run_in_process,
)
from graphfix.runtime.scratch import ScratchFolder
from graphfix.wording import Tell

T = TypeVar("T")

ANSWER_SECONDS = 15
_POLL_SECONDS = 0.1
# A model travels with its work: apart from it, it would be lost with the worker that holds it.
_QUIET = {"distributed.admin.large-graph-warning-threshold": TRAVELS}
AHEAD = 32
"""How many models are at the scheduler at a time."""

ASKING = "graphfix-asks-dask"
"""The name of the thread in which a scheduler is asked."""


def iter_rows(
    address: str,
    requests: Sequence[Request],
    *,
    tell: Tell,
    work: Callable[[Json], Json] | None = None,
) -> Iterator[Json]:
    """Yield the row of each request, in the order of completion.

    Args:
        address: Of the scheduler, ``tcp://HOST:8786``.
        requests: The work.
        tell: Called with a remark for the user.
        work: What a worker does with a request; :func:`run_at_worker` by default.

    Raises:
        UsageError: Dask is not installed, or nobody answers at the address.
    """
    try:
        from dask import config
        from distributed import Client, as_completed
    except ImportError as error:
        raise UsageError(
            "--dask needs dask.distributed: pip install distributed, here and at the workers"
        ) from error
    try:
        client = _call_interruptibly(lambda: Client(address, timeout=ANSWER_SECONDS))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"--dask {address}: no scheduler answers there ({error}); start one with 'dask "
            "scheduler'"
        ) from error
    with config.set(_QUIET), client:
        _warn_of_missing_workers(
            client.scheduler_info(n_workers=-1)["workers"].values(), requests, tell
        )
        pending, sent = iter(requests), {}
        answers = as_completed()

        def submit_next() -> None:
            """Submit the next request; not all at once, since the scheduler holds what it has."""
            request = next(pending, None)
            if request is None:
                return
            future = client.submit(
                work or run_at_worker,
                {**request.to_send(), "sources": cache.hash_sources()},
                key=f"graphfix-{request.recipe.id}-{request.key}",
                resources=resource_of(request),
                pure=False,
            )
            sent[future] = request
            answers.add(future)

        for _ in range(AHEAD):
            submit_next()
        for future in answers:
            submit_next()
            request = sent.pop(future)
            failure = future.exception()
            if failure is None:
                yield future.result()
            else:
                yield failed_row(request, f"on the cluster: {type(failure).__name__}: {failure}")


def resource_of(request: Request) -> dict[str, int] | None:
    """Return what a worker must have been started with: ``--resources dml=1`` for DirectML."""
    return None if request.ep == "cpu" else {request.ep: 1}


def _call_interruptibly(call: Callable[[], T]) -> T:
    """Call in a thread and return its result, so that Windows hears Ctrl-C meanwhile."""
    future: Future[T] = Future()

    def run_call() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run_call, daemon=True, name=ASKING).start()
    while not future.done():
        wait([future], timeout=_POLL_SECONDS)
    return future.result()


def run_at_worker(data: Json) -> Json:
    """Run a request on a worker, in a new process, if it has the same graphfix."""
    with ScratchFolder() as folder:
        request = read_request(data, folder.path)
        if data["sources"] == cache.hash_sources():
            return run_in_process(request)
        host = socket.gethostname()
        return failed_row(
            request, f"the worker at {host} has another graphfix; install the same there"
        )


def _warn_of_missing_workers(
    workers: Collection[Mapping[str, Any]], requests: Sequence[Request], tell: Tell
) -> None:
    if not workers:
        tell("the cluster has no workers yet; waiting for one")
        return
    for name in dict.fromkeys(name for x in requests for name in resource_of(x) or ()):
        if not any(name in (worker.get("resources") or {}) for worker in workers):
            tell(f"no worker was started with --resources {name}=1 yet; waiting for one")
