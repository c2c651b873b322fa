"""A function of ours called in the process that runs models on the CPU, which may die of it."""

from collections.abc import Mapping
from typing import Any

from graphfix.runtime import memory_need
from graphfix.runtime.port import Array, Feeds
from graphfix.runtime.process import worker_for
from graphfix.runtime.python import here


def call(function: str, given: str, arrays: Feeds, seconds: float, doing: str) -> dict[str, Array]:
    """Call ``function(given, arrays)``, which returns arrays by name.

    Args:
        function: ``package.module:name``. What the module keeps is there for the next call, unless
            the process has died meanwhile.
        given: A text for it.
        arrays: Arrays for it.
        seconds: How long it may take.
        doing: What it does, for a sentence.

    Raises:
        RunError: It raised; with the words of that.
        NoAnswerError: It took too long, and was ended.
        RunDiedError: The process died of it.
    """
    request = {"verb": "call", "function": function, "given": given}
    found: dict[str, Array] = asked(request, seconds, doing, arrays)["arrays"]
    return found


def asked(
    request: Mapping[str, object], seconds: float, doing: str, arrays: Feeds | None = None
) -> dict[str, Any]:
    """The answer to a request that needs no session; as :func:`call` raises."""
    worker = worker_for(here("cpu"))
    worker.take()
    try:
        return worker.ask({**request, "memory": memory_need.available()}, seconds, doing, arrays)
    finally:
        worker.give_back()
