"""File locks that end with their process, and renames and removals as Windows allows them."""

import contextlib
import errno
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

_SCAN = 2.0  # seconds that a virus scanner may look at a file that is new
_TRIES = 1000  # to make a file that others remove again
_IN_USE = (5, 32)  # ERROR_ACCESS_DENIED, ERROR_SHARING_VIOLATION


def acquire_lock(path: Path) -> BaseFileLock | None:
    """Lock a file, which is created if there is none; return None if another process has it.

    Raises:
        OSError: The file cannot be opened.
    """
    # Not the lock of a thread: any may release it, and so may the garbage collector.
    lock = FileLock(path, timeout=0, thread_local=False)
    for _ in range(_TRIES):
        try:
            lock.acquire()
        except Timeout:
            if path.exists():  # else it was removed just now, and nobody has it
                return None
        else:
            return lock
    # No file can be made there: the folder is gone, or is none of files, as /proc.
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path.parent))


def release_lock(lock: BaseFileLock, *, remove: bool) -> None:
    """Release a lock; remove its file if nothing remains that it protects."""
    path = Path(lock.lock_file)
    if remove and sys.platform != "win32":  # before another process can take it
        remove_file(path)
    lock.release()
    if remove and sys.platform == "win32":  # where an open file cannot be removed
        remove_file(path)


def rename_path(path: Path, target: Path) -> None:
    """Rename a file or a folder, replacing a file that has the new name.

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


def remove_file(path: Path) -> bool:
    """Remove a file; return whether it is gone: on Windows, an open one cannot be removed."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        _remove_read_only(os.unlink, str(path), None)
    return not os.path.lexists(path)


def remove_folder(path: Path) -> bool:
    """Remove a folder and its contents, of a link only the link; return whether it is gone."""
    if is_link(path):
        return remove_file(path)
    shutil.rmtree(path, onerror=_remove_read_only)
    return not path.exists()


def _remove_read_only(remove: Callable[[str], object], path: str, _: object) -> None:
    """Make a file writable and remove it: Windows does not remove one that is read-only."""
    if sys.platform == "win32" and not is_link(Path(path)):
        with contextlib.suppress(OSError):
            os.chmod(path, stat.S_IREAD | stat.S_IWRITE)  # noqa: PTH101
            remove(path)


def is_link(path: Path) -> bool:
    """Return whether a path is a link or, on Windows, a junction."""
    try:
        status = path.lstat()
    except OSError:
        return False
    if sys.platform == "win32" and status.st_reparse_tag == stat.IO_REPARSE_TAG_MOUNT_POINT:
        return True
    return stat.S_ISLNK(status.st_mode)
