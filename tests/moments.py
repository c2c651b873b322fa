"""The n-th moment of a piece of work in a folder: something happens then, for every n.

A moment is a call of the system with a name in that folder, or an fsync; or a line of a module.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path
    from types import FrameType, ModuleType

    Happens = Callable[[str], object]


@dataclass
class Moment:
    """What is waited for.

    Attributes:
        left: So many moments come before it.
        happens: What happens then, told the name of the event.
        events: The events that count; all if empty.
        again: Whether it happens at each moment from then on.
        come: Whether it has come.
    """

    left: int
    happens: Happens
    events: Collection[str] = ()
    again: bool = False
    come: bool = False
    _folder: str = ""
    _busy: bool = False

    def step(self, event: str) -> None:
        """One moment has passed."""
        if (self.events and event not in self.events) or (self.come and not self.again):
            return
        self.left -= 1
        if self.left < 0 and not self._busy:
            self.come = self._busy = True
            try:
                self.happens(event)  # which may do what would be moments of its own
            finally:
                self._busy = False


_waited_for: Moment | None = None
_installed = False


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    moment = _waited_for
    if moment is None or event[:2] not in ("os", "op") or event == "os.walk":
        return  # os.walk calls nothing itself, and so it cannot fail
    if event == "open":
        reads = not int(arguments[2]) & (os.O_WRONLY | os.O_RDWR)  # type: ignore[call-overload]
        event = "read" if reads else "write"
    if any(str(x).startswith(moment._folder) for x in arguments):
        moment.step(event)


@contextmanager
def system(
    folder: Path, moment: int, happens: Happens, *, only: Collection[str] = (), again: bool = False
) -> Iterator[Moment]:
    """Let something happen before the call of the system number ``moment``, from 0.

    Args:
        folder: Calls with names in it count.
        moment: Which.
        happens: Called then; what it raises is raised by the call.
        only: The calls that count: read, write (a file that is opened), fsync, os.rename,
            os.remove, os.link, os.mkdir, os.chmod, os.scandir and the like; all by default.
        again: Whether it happens at each from then on.
    """
    global _installed, _waited_for
    if not _installed:
        sys.addaudithook(_hook)  # for good
        _installed = True
    found = Moment(moment, happens, only, again)
    found._folder = str(folder)
    real = os.fsync

    def fsync(_: int) -> None:
        found.step("fsync")  # and no more: it takes most of the time

    os.fsync = fsync
    _waited_for = found
    try:
        yield found
    finally:
        _waited_for = None
        os.fsync = real


@contextmanager
def line(modules: Collection[ModuleType], moment: int, happens: Happens) -> Iterator[Moment]:
    """Let something happen before a line of some modules runs, the one that is number ``moment``.

    Args:
        modules: Lines of these count.
        moment: Which, from 0.
        happens: Called then; what it raises is raised there.
    """
    files = {x.__file__ for x in modules}
    found = Moment(moment, happens)

    def of_line(frame: FrameType, event: str, _: object) -> object:
        if event == "line":
            found.step(f"{frame.f_code.co_name}:{frame.f_lineno}")
        return None if found.come else of_line

    def of_call(frame: FrameType, *_: object) -> object:
        # Python itself drops what is raised in a __del__.
        ours = frame.f_code.co_filename in files and frame.f_code.co_name != "__del__"
        return of_line if ours and not found.come else None

    before = sys.gettrace()
    sys.settrace(of_call)  # type: ignore[arg-type]
    try:
        yield found
    finally:
        sys.settrace(before)
