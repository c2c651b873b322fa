"""The only import of Dask: the same work, on the workers of a cluster.

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
from graphfix.model_zoo.model_process import TRAVELS, Request, apart, failed, received
from graphfix.runtime.scratch import Folder
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

RESOURCE = "dml"
"""The resource that workers with DirectML are started with: ``--resources dml=1``."""


def rows(
    address: str,
    requests: Sequence[Request],
    *,
    tell: Tell,
    work: Callable[[Json], Json] | None = None,
) -> Iterator[Json]:
    """The row of each request, as they come.

    Args:
        address: Of the scheduler, ``tcp://HOST:8786``.
        requests: The work.
        tell: Called with a remark for the user.
        work: What a worker does with a request; :func:`at_worker` by default.

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
        client = _heard(lambda: Client(address, timeout=ANSWER_SECONDS))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"--dask {address}: no scheduler answers there ({error}); start one with 'dask "
            "scheduler'"
        ) from error
    with config.set(_QUIET), client:
        _remark_on_workers(client.scheduler_info(n_workers=-1)["workers"].values(), requests, tell)
        waiting, sent = iter(requests), {}
        answers = as_completed()

        def send() -> None:
            """The next one: not all at once, since the scheduler holds what it has to give out."""
            request = next(waiting, None)
            if request is None:
                return
            future = client.submit(
                work or at_worker,
                {**request.to_send(), "sources": cache.sources()},
                key=f"graphfix-{request.recipe.id}-{request.key}",
                resources={RESOURCE: 1} if request.ep == "dml" else None,
                pure=False,
            )
            sent[future] = request
            answers.add(future)

        for _ in range(AHEAD):
            send()
        for future in answers:
            send()
            request = sent.pop(future)
            why = future.exception()
            if why is None:
                yield future.result()
            else:
                yield failed(request, f"on the cluster: {type(why).__name__}: {why}")


def _heard(call: Callable[[], T]) -> T:
    """What ``call`` returns or raises, while Ctrl-C is heard: Windows hears none while it waits."""
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True, name=ASKING).start()
    while not future.done():
        wait([future], timeout=_POLL_SECONDS)
    return future.result()


def at_worker(data: Json) -> Json:
    """What a worker does: the work, in a process of its own, if it has the same graphfix."""
    with Folder() as folder:
        request = received(data, folder.path)
        if data["sources"] == cache.sources():
            return apart(request)
        host = socket.gethostname()
        return failed(request, f"the worker at {host} has another graphfix; install the same there")


def _remark_on_workers(
    workers: Collection[Mapping[str, Any]], requests: Sequence[Request], tell: Tell
) -> None:
    if not workers:
        tell("the cluster has no workers yet; waiting for one")
    elif any(x.ep == "dml" for x in requests):
        able = sum(RESOURCE in (worker.get("resources") or {}) for worker in workers)
        if not able:
            tell(f"no worker was started with --resources {RESOURCE}=1 yet; waiting for one")
