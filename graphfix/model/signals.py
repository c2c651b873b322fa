"""Signals that are heard when a few steps are done, so that they are done all or none.

Ctrl-C is an exception wherever the main thread stands, also between a file that has its new name
and the note of it.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    Handler = Callable[[int, FrameType | None], object]

_NUMBERS = [
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
    if hasattr(signal, name)
]


@contextmanager
def waiting() -> Iterator[None]:
    """Signals that come in this block are heard at its end, as they would have been in it.

    It should be short. What ends the process without asking ends it here, too.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # no other thread hears any
        return
    handlers: dict[int, Handler] = {}
    heard: list[int] = []

    def hear(number: int, _: FrameType | None) -> None:
        heard.append(number)

    try:
        for number in _NUMBERS:
            handler = signal.getsignal(number)
            if callable(handler):
                handlers[number] = handler
                signal.signal(number, hear)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in heard:
            handlers[number](number, None)
