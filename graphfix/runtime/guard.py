"""A call into ONNX Runtime in this process that comes to an end: by itself, in time, or by Ctrl-C.

The call is made in a thread, and this one waits, so that signals are heard meanwhile. ONNX Runtime
ends a run between two nodes when it is told to (``RunOptions.terminate``), those in the body of a
Loop among them. What is within one node, or makes a session, cannot be ended: the thread is then
left alone, and :func:`left` says so to who ends the process.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import TYPE_CHECKING, TypeVar

from graphfix.errors import ModelError
from graphfix.runtime import memory

if sys.platform != "win32":
    import resource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

SECONDS = "GRAPHFIX_RUN_SECONDS"
"""The environment variable with the longest that one run on the CPU may take."""

_DEFAULT_SECONDS = 120.0
_STOP_SECONDS = 0.5
# Short, as Windows hears no signal while it waits.
_POLL_SECONDS = 0.1

_lock = threading.Lock()
# What the limit of memory was before: once for each call that goes on.
_limits: list[tuple[int, int]] = []
_threads: list[threading.Thread] = []


class StoppedError(ModelError):
    """A model whose run took too long, so that it was ended: no size will do better."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the model ran for {seconds:g} s without an end, so it was stopped; if it needs "
            f"longer, set {SECONDS}"
        )


def guarded(
    call: Callable[[], T],
    stop: Callable[[], object] = lambda: None,
    *,
    seconds: float | None = None,
) -> T:
    """What ``call`` returns or raises, while Ctrl-C is heard.

    Args:
        call: What is to be done; memory that there is not is an error of it.
        stop: Asks it to end soon.
        seconds: How long it may take; for ever by default.

    Raises:
        StoppedError: It took longer.
    """
    result: list[T] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            result.append(call())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=work, daemon=True, name="graphfix-onnxruntime")
    with _bounded_memory():
        try:
            thread.start()
            left_over = float("inf") if seconds is None else seconds
            while thread.is_alive() and left_over > 0:
                thread.join(min(_POLL_SECONDS, left_over))
                left_over -= _POLL_SECONDS
        except BaseException:  # Ctrl-C
            _give_up(thread, stop)
            raise
        if thread.is_alive() and seconds is not None:
            _give_up(thread, stop)
            raise StoppedError(seconds)
    if failure:
        raise failure[0]
    return result[0]


def run_seconds() -> float:
    """How long one run may take."""
    try:
        return max(float(os.environ[SECONDS]), 0.1)
    except (KeyError, ValueError):
        return _DEFAULT_SECONDS


def left() -> bool:
    """Whether a call was given up: what it holds of ONNX Runtime must not be taken down in order.

    Its thread may go on, or come back to a Python that ends meanwhile, which aborts the process.
    """
    return bool(_threads)


def _give_up(thread: threading.Thread, stop: Callable[[], object]) -> None:
    _threads.append(thread)
    stop()
    thread.join(_STOP_SECONDS)


@contextlib.contextmanager
def _bounded_memory() -> Iterator[None]:
    """Asking for more memory than there is fails, as it does on Windows; Linux would end us.

    Elsewhere than on Linux nothing is done: macOS does not keep to such a limit.
    """
    free = memory.available() if sys.platform == "linux" else None
    if sys.platform != "linux" or free is None:
        yield
        return
    with _lock:
        if not _limits:
            _limits.append(resource.getrlimit(resource.RLIMIT_AS))
            with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
                used = int(file.read().split()[0]) * resource.getpagesize()
            soft, hard = _limits[0]
            most = used + free
            if soft == resource.RLIM_INFINITY or most < soft:
                resource.setrlimit(resource.RLIMIT_AS, (most, hard))
        else:
            _limits.append(_limits[0])  # one more call beside the first
    try:
        yield
    finally:
        with _lock:
            before = _limits.pop()
            if not _limits:
                resource.setrlimit(resource.RLIMIT_AS, before)
