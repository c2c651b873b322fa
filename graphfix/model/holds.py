"""Files that are held: nobody takes one for left behind as long as the process lives that has it.

The lock goes with the process, however it ends.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from graphfix.model import signals

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

if sys.platform == "win32":
    import ctypes
    import msvcrt

    _kernel = ctypes.WinDLL("kernel32")
    _kernel.CreateMutexW.restype = ctypes.c_void_p
    _kernel.CreateMutexW.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_wchar_p)
    _kernel.WaitForSingleObject.argtypes = (ctypes.c_void_p, ctypes.c_ulong)
    _kernel.ReleaseMutex.argtypes = _kernel.CloseHandle.argtypes = (ctypes.c_void_p,)
else:
    import fcntl

_PATIENCE = 10.0  # seconds; a rename takes none
_SCAN = 2.0  # seconds that a virus scanner may look at a file that is new
_IN_USE = (5, 32)  # ERROR_ACCESS_DENIED, ERROR_SHARING_VIOLATION
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
            made = cls._opened(path, _ACCESS | os.O_CREAT | os.O_EXCL)
            # Where there are no locks, nobody can take it either.
            if _lock(made._handle) is not False and made._is_there():
                return made
            made.release()  # swept away between the two

    @classmethod
    def take(cls, path: Path) -> Hold | None:
        """Hold a file that is there; None if another process does, or locks are unknown."""
        try:
            found = cls._opened(path, _ACCESS)
        except OSError:
            return None
        if _lock(found._handle) and found._is_there():
            return found
        found.release()
        return None

    @classmethod
    def _opened(cls, path: Path, flags: int) -> Hold:
        with signals.waiting():  # else a number may be lost that keeps the file on Windows
            return cls(os.open(path, flags, 0o600), path)

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
        renamed(self._path, target)
        self.release()

    def remove(self, path: Path) -> None:
        """Remove the file, and let go of it."""
        if sys.platform == "win32":
            self.release()
        removed(path)
        self.release()


class _Mutex:
    """What one process has on Windows, where a folder cannot be locked as a file can."""

    _handle: int | None = None

    def __init__(self, folder: Path) -> None:
        self._ours = False
        if sys.platform == "win32":
            try:
                real = os.path.realpath(folder)
            except OSError:  # Wine knows none of more than some 256 characters
                real = os.path.abspath(folder)  # noqa: PTH100
            name = os.path.normcase(real).encode("utf-8", "surrogatepass")
            named = f"Global\\graphfix-{hashlib.sha256(name).hexdigest()}"
            self._handle = _kernel.CreateMutexW(None, False, named)  # None if another user's

    def is_taken(self) -> bool:
        """Whether another has it. If nobody has, it is ours now."""
        if sys.platform == "win32" and self._handle and not self._ours:
            waits = 0x102  # WAIT_TIMEOUT; what was ours and died leaves it to us
            self._ours = _kernel.WaitForSingleObject(self._handle, 0) != waits
            return not self._ours
        return False

    def release(self) -> None:
        """Let others have it."""
        if sys.platform == "win32" and self._handle:
            if self._ours:
                _kernel.ReleaseMutex(self._handle)
            _kernel.CloseHandle(self._handle)
            self._handle = None

    __del__ = release


def _held(folder: Path) -> Hold | _Mutex | None:
    if sys.platform == "win32":
        return _Mutex(folder)
    try:
        return Hold._opened(folder, os.O_RDONLY)
    except OSError:  # who may write into it need not be allowed to read it
        return None


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """No other process gives files in ``folder`` their names, or sweeps it.

    Two that did would each see the model from before both, and the weights of the one that was
    first would stay for good. On Windows a draft is let go of before it gets its name, and would be
    taken for one that was left behind. One that keeps us waiting too long, as it was stopped, is
    passed by.
    """
    held = _held(folder)
    try:
        end = time.monotonic() + _PATIENCE
        while held is not None and held.is_taken() and time.monotonic() < end:
            time.sleep(0.01)
        yield
    finally:
        if held is not None:
            held.release()


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
        _writable(path)
        path.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def removed_folder(path: Path) -> bool:
    """Remove a folder with all that is in it; whether it is gone. Of a link, only the link goes."""
    if is_link(path):
        return removed(path)
    with contextlib.suppress(OSError):
        _all_writable(path)
    shutil.rmtree(path, ignore_errors=True)
    return not path.exists()


def is_link(path: Path) -> bool:
    """Whether a name leads elsewhere, as a link does or, on Windows, a junction."""
    try:
        found = path.lstat()
    except OSError:
        return False
    if sys.platform == "win32" and found.st_reparse_tag == stat.IO_REPARSE_TAG_MOUNT_POINT:
        return True
    return stat.S_ISLNK(found.st_mode)


def _all_writable(folder: Path) -> None:
    if sys.platform != "win32":
        return
    for path in folder.iterdir():  # Path.rglob and os.walk go into junctions below Python 3.12
        if is_link(path):
            continue
        if path.is_dir():
            _all_writable(path)
        else:
            _writable(path)


def _writable(path: Path) -> None:
    """Windows removes no file that is read-only, which others do."""
    if sys.platform != "win32" or is_link(path) or not path.exists():
        return
    if not path.stat().st_mode & stat.S_IWRITE:
        path.chmod(stat.S_IREAD | stat.S_IWRITE)


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
