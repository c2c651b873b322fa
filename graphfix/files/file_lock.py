"""Locks that go with the process that has them, and renames and removals as Windows allows them."""

import contextlib
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

_SCAN = 2.0  # seconds that a virus scanner may look at a file that is new
_IN_USE = (5, 32)  # ERROR_ACCESS_DENIED, ERROR_SHARING_VIOLATION


def take(path: Path) -> BaseFileLock | None:
    """Lock a file, which is created if there is none; None if another process has it.

    Raises:
        OSError: The file cannot be opened.
    """
    # Not the lock of a thread: any may release it, and so may the garbage collector.
    lock = FileLock(path, timeout=0, thread_local=False)
    while True:
        try:
            lock.acquire()
        except Timeout:
            if path.exists():  # else it was removed just now, and nobody has it
                return None
        else:
            return lock


def release(lock: BaseFileLock, *, remove: bool) -> None:
    """Release a lock; remove its file if nothing is left that it stands for."""
    path = Path(lock.lock_file)
    if remove and sys.platform != "win32":  # before another process can take it
        removed(path)
    lock.release()
    if remove and sys.platform == "win32":  # where an open file cannot be removed
        removed(path)


def renamed(path: Path, target: Path) -> None:
    """Give a file or a folder another name; a file that has that name goes.

    On Windows somebody may look into what is new for a moment, as virus scanners do.
    """
    end = time.monotonic() + _SCAN
    while True:
        try:
            path.replace(target)
        except OSError as error:
            if getattr(error, "winerror", None) not in _IN_USE or time.monotonic() > end:
                raise
            time.sleep(0.01)
        else:
            return


def removed(path: Path) -> bool:
    """Remove a file; whether it is gone. What somebody has open on Windows cannot be removed."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        _remove_read_only(os.unlink, str(path), None)
    return not os.path.lexists(path)


def removed_folder(path: Path) -> bool:
    """Remove a folder with all that is in it; whether it is gone. Of a link, only the link goes."""
    if is_link(path):
        return removed(path)
    shutil.rmtree(path, onerror=_remove_read_only)
    return not path.exists()


def _remove_read_only(remove: Callable[[str], object], path: str, _: object) -> None:
    """Windows removes no file that is read-only, which others do."""
    if sys.platform == "win32" and not is_link(Path(path)):
        with contextlib.suppress(OSError):
            os.chmod(path, stat.S_IREAD | stat.S_IWRITE)  # noqa: PTH101
            remove(path)


def is_link(path: Path) -> bool:
    """Whether a name leads elsewhere, as a link does or, on Windows, a junction."""
    try:
        found = path.lstat()
    except OSError:
        return False
    if sys.platform == "win32" and found.st_reparse_tag == stat.IO_REPARSE_TAG_MOUNT_POINT:
        return True
    return stat.S_ISLNK(found.st_mode)
