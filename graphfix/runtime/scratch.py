"""Temporary folders, removed with the process that made them, or by a later one.

A killed process removes nothing. So each folder has a lock file that its process holds, and before
a process makes its first folder, it removes those whose lock nobody holds. A folder without such a
file, of another user, or one that is a link is not touched: anybody may have made it.
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
from graphfix.files.file_lock import acquire_lock, is_link, release_lock, remove_file, remove_folder

_NAME = re.compile(r"graphfix-\w{8}")  # as tempfile makes them
_LOCK_NAME = ".held"
_AGE = 60.0  # seconds; a folder that is younger may not be held yet
_swept: set[str] = set()


@contextmanager
def scratch_errors() -> Iterator[None]:
    """Turn an OSError into a UsageError that names the folder for temporary files.

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


class Closable:
    """An object that a ``with`` block closes."""

    def close(self) -> None:
        """Let go of what is kept open; by default nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ScratchFolder(Closable):
    """A temporary folder, removed when it is closed, with the object, or with the process.

    Attributes:
        path: Where it is.

    Raises:
        UsageError: It cannot be made.
    """

    def __init__(self) -> None:
        with scratch_errors():
            self.path = Path(_make_folder())
            lock = None
            with suppress(OSError):  # there are no locks
                lock = acquire_lock(self.path / _LOCK_NAME)
        self._remove = weakref.finalize(self, _remove_folder, self.path, lock, os.getpid())

    def close(self) -> None:
        """Remove the folder; one that is in use on Windows is removed by a later process."""
        self._remove()
        # Again, if it was in use when the process began to end; what still is keeps its lock file.
        _remove_folder(self.path, None, os.getpid())


def _make_folder() -> str:
    parent = tempfile.gettempdir()
    if parent not in _swept:
        _swept.add(parent)
        remove_stale_folders(Path(parent))
    return tempfile.mkdtemp(prefix="graphfix-")


def remove_stale_folders(parent: Path) -> None:
    """Remove the folders in ``parent`` whose process has died, as far as that is possible."""
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            with suppress(OSError):
                path = parent / entry.name
                if _NAME.fullmatch(entry.name) and _is_ours(path):
                    lock = acquire_lock(path / _LOCK_NAME)
                    if lock is not None:  # else its process lives
                        _remove_folder(path, lock, os.getpid())


def _is_ours(path: Path) -> bool:
    """Return whether a folder was made here, by this user, and not just now."""
    folder, lock_file = path.lstat(), (path / _LOCK_NAME).lstat()
    if not stat.S_ISDIR(folder.st_mode) or not stat.S_ISREG(lock_file.st_mode) or is_link(path):
        return False
    # On Windows the folder for temporary files is the user's own.
    if sys.platform != "win32" and (folder.st_mode & 0o022 or folder.st_uid != os.getuid()):
        return False
    return time.time() - lock_file.st_mtime >= _AGE


def _remove_folder(path: Path, lock: BaseFileLock | None, owner: int) -> None:
    if owner != os.getpid():
        return  # a fork of who made it
    with suppress(OSError):
        for inner in list(path.iterdir()):
            if inner.name != _LOCK_NAME:
                remove_folder(inner) if inner.is_dir() else remove_file(inner)
    with suppress(OSError):
        # Its lock file goes last: it says to a later process, too, that the folder may go.
        emptied = all(x.name == _LOCK_NAME for x in path.iterdir())
        if lock is not None:
            release_lock(lock, remove=emptied)
        elif emptied:
            remove_file(path / _LOCK_NAME)
        if not emptied:
            (path / _LOCK_NAME).touch()  # on Windows it has gone with its lock
        path.rmdir()
