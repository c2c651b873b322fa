"""Calls of our functions in the process that runs models on the CPU, which may die of them."""

from collections.abc import Mapping
from typing import Any

from graphfix.runtime import memory_need
from graphfix.runtime.port import Array, Feeds
from graphfix.runtime.process import worker_for
from graphfix.runtime.python import runner_for


def call_in_worker(
    function: str, text: str, arrays: Feeds, seconds: float, doing: str
) -> dict[str, Array]:
    """Call ``function(given, arrays)``, which returns arrays by name.

    Args:
        function: ``package.module:name``. What the module keeps is there for the next call, unless
            the process has died meanwhile.
        text: A text for it.
        arrays: Arrays for it.
        seconds: How long it may take.
        doing: What it does, for a sentence.

    Raises:
        RunError: It raised; with the words of that.
        NoAnswerError: It took too long, and was ended.
        RunDiedError: The process died of it.
    """
    request = {"verb": "call", "function": function, "given": text}
    outputs: dict[str, Array] = ask_worker(request, seconds, doing, arrays)["arrays"]
    return outputs


def ask_worker(
    request: Mapping[str, object], seconds: float, doing: str, arrays: Feeds | None = None
) -> dict[str, Any]:
    """Return the answer to a request that needs no session; raise as :func:`call_in_worker`."""
    worker = worker_for(runner_for("cpu"))
    worker.reserve_session()
    try:
        return worker.ask(
            {**request, "memory": memory_need.available_memory()}, seconds, doing, arrays
        )
    finally:
        worker.release_session()
