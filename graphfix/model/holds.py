"""Files that are held: nobody takes one for left behind as long as the process lives that has it.

The lock goes with the process, however it ends.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from graphfix.model import signals

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_PATIENCE = 10.0  # seconds; a rename takes none
_FAR = 1 << 40  # the byte that is locked on Windows, where nobody can read what is locked
# On Windows ONNX Runtime opens no file that somebody has open for writing, and it reads drafts.
# On Linux a lock on NFS wants a file that is open for writing.
_ACCESS: int = os.O_RDONLY if sys.platform == "win32" else os.O_RDWR


class Hold:
    """A file that nobody sweeps away as long as this process lives."""

    _handle = -1

    def __init__(self, handle: int, path: Path) -> None:
        self._handle = handle
        self._path = path

    @classmethod
    def create(cls, path: Path) -> Hold:
        """Make an empty file and hold it."""
        while True:
            made = cls(os.open(path, _ACCESS | os.O_CREAT | os.O_EXCL, 0o600), path)
            # Where there are no locks, nobody can take it either.
            if _lock(made._handle) is not False and made._is_there():
                return made
            made.release()  # swept away between the two

    @classmethod
    def take(cls, path: Path) -> Hold | None:
        """Hold a file that is there; None if another process does, or locks are unknown."""
        try:
            found = cls(os.open(path, _ACCESS), path)
        except OSError:
            return None
        if _lock(found._handle) and found._is_there():
            return found
        found.release()
        return None

    def is_taken(self) -> bool:
        """Whether another has it. Where nobody has, or there are no locks, it is ours now."""
        return _lock(self._handle) is False

    def _is_there(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._handle), self._path.stat())
        except OSError:
            return False

    def release(self) -> None:
        """Let go of the file, which stays."""
        with signals.waiting():  # a number that is closed twice may be another file's by then
            if self._handle >= 0:
                os.close(self._handle)
                self._handle = -1

    def __del__(self) -> None:
        # Ctrl-C may come anywhere, and the process may go on all the same, as a notebook does.
        if self._handle >= 0:
            os.close(self._handle)

    def rename(self, target: Path) -> None:
        """Give the file the name ``target``, and let go of it."""
        if sys.platform == "win32":  # where an open file keeps its name
            self.release()
        self._path.replace(target)
        self.release()

    def remove(self, path: Path) -> None:
        """Remove the file, and let go of it."""
        if sys.platform == "win32":
            self.release()
        removed(path)
        self.release()


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """No other process gives files in ``folder`` their names; on Windows it may all the same.

    Two that did would each see the model from before both, and the weights of the one that was
    first would stay for good. One that keeps us waiting too long, as it was stopped, is passed by.
    """
    handle: Hold | None = None
    if sys.platform != "win32":
        with contextlib.suppress(OSError):  # who may write into it need not be allowed to read it
            handle = Hold(os.open(folder, os.O_RDONLY), folder)
    try:
        end = time.monotonic() + _PATIENCE
        while handle is not None and handle.is_taken() and time.monotonic() < end:
            time.sleep(0.01)
        yield
    finally:
        if handle is not None:
            handle.release()


def removed(path: Path) -> bool:
    """Remove a file; whether it is gone. What somebody has open on Windows cannot be removed."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def _lock(handle: int) -> bool | None:
    """Lock a file against other processes: whether it worked, or None where there are no locks."""
    try:
        if sys.platform == "win32":
            os.lseek(handle, _FAR, os.SEEK_SET)
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
            os.lseek(handle, 0, os.SEEK_SET)
        else:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        held = error.errno in (errno.EAGAIN, errno.EACCES, errno.EDEADLK)
        return False if held else None
    return True
