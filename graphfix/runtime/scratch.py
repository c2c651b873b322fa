"""Temporary folders, which go with the process that made them, or with a later one.

Who is killed removes nothing. So each folder has a file in it that its process holds, and the first
that a process makes is made after those are removed that nobody holds any more. What has no such
file, belongs to another user or leads elsewhere is not touched: in a folder for all, anybody may
have made it.
"""

import os
import re
import stat
import sys
import tempfile
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from filelock import BaseFileLock

from graphfix.errors import UsageError
from graphfix.files.file_lock import is_link, release, removed, removed_folder, take

_NAME = re.compile(r"graphfix-\w{8}")  # as tempfile makes them
_HELD = ".held"
_AGE = 60.0  # seconds; a folder that is younger may not be held yet
_swept: set[str] = set()


@contextmanager
def scratch() -> Iterator[None]:
    """Around what writes into a temporary folder: an error is of it, and of no file of the user's.

    Raises:
        UsageError: Something could not be written.
    """
    try:
        yield
    except OSError as error:
        folder = tempfile.tempdir or "the folder for temporary files"
        variable = "TEMP" if os.name == "nt" else "TMPDIR"
        raise UsageError(
            f"{folder}: cannot be written: {error.strerror or error}; free some space there, or "
            f"name another folder for temporary files in {variable}"
        ) from error


class Closing:
    """What is closed at the end of a ``with`` block."""

    def close(self) -> None:
        """Let go of what is kept open; if nothing else is said, that is nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Folder(Closing):
    """A temporary folder; it goes when it is closed, with the object, or with the process.

    Attributes:
        path: Where it is.

    Raises:
        UsageError: It cannot be made.
    """

    def __init__(self) -> None:
        with scratch():
            self.path = Path(_made())
            lock = None
            with suppress(OSError):  # there are no locks
                lock = take(self.path / _HELD)
        self._remove = weakref.finalize(self, _remove, self.path, lock, os.getpid())

    def close(self) -> None:
        """Remove it. What is in use on Windows stays, and is removed by a later process."""
        self._remove()
        # Again, if it was in use when the process began to end; what still is keeps its lock file.
        _remove(self.path, None, os.getpid())


def _made() -> str:
    around = tempfile.gettempdir()
    if around not in _swept:
        _swept.add(around)
        sweep(Path(around))
    return tempfile.mkdtemp(prefix="graphfix-")


def sweep(around: Path) -> None:
    """Remove the folders in ``around`` whose process has died. What cannot be removed stays."""
    with suppress(OSError), os.scandir(around) as entries:
        for entry in entries:
            with suppress(OSError):
                path = around / entry.name
                if _NAME.fullmatch(entry.name) and _is_ours(path):
                    lock = take(path / _HELD)
                    if lock is not None:  # else its process lives
                        _remove(path, lock, os.getpid())


def _is_ours(path: Path) -> bool:
    """Whether a folder was made here, by this user, and not just now."""
    folder, held = path.lstat(), (path / _HELD).lstat()
    if not stat.S_ISDIR(folder.st_mode) or not stat.S_ISREG(held.st_mode) or is_link(path):
        return False
    # On Windows the folder for temporary files is the user's own.
    if sys.platform != "win32" and (folder.st_mode & 0o022 or folder.st_uid != os.getuid()):
        return False
    return time.time() - held.st_mtime >= _AGE


def _remove(path: Path, lock: BaseFileLock | None, owner: int) -> None:
    if owner != os.getpid():
        return  # a fork of who made it
    with suppress(OSError):
        for inner in list(path.iterdir()):
            if inner.name != _HELD:
                removed_folder(inner) if inner.is_dir() else removed(inner)
    with suppress(OSError):
        # Its lock file goes last: it says to a later process, too, that the folder may go.
        emptied = all(x.name == _HELD for x in path.iterdir())
        if lock is not None:
            release(lock, remove=emptied)
        elif emptied:
            removed(path / _HELD)
        if not emptied:
            (path / _HELD).touch()  # on Windows it has gone with its lock
        path.rmdir()
