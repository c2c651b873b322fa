"""Files that come into being whole or not at all, whoever else writes, reads or dies meanwhile.

A write has a token. What it writes is called ``.NAME.TOKEN.part`` until it is whole, and locked as
long as its process lives. Weights that go into a file of their own are called ``NAME.TOKEN.data``
from the start, as only the model that is not there yet refers to them. So at any moment a model's
name stands for the old file or for the new one, and the weights of both are there.

A ``.part`` that nobody has locked was left by a process that died: whoever writes next into that
folder removes it, and the weights with its token if no model there refers to them. Before a model
is replaced, an empty ``.part`` with the token of *its* weights says the same of them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from graphfix.errors import ModelError
from graphfix.model.files import umask, write

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from graphfix.model.wire import Chunk

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

GRACE = 1.0
"""Seconds for which the weights of a replaced model stay: one who has just read that model, and
is about to open them, finds them."""

_PART = re.compile(r"\..+\.([0-9a-f]{16})\.part")
_DATA = re.compile(r".+\.([0-9a-f]{16})\.data")
_MODEL_LIMIT = 1 << 31  # no model is longer, so nothing that is longer refers to weights
_BUFFER = 1 << 22
_FAR = 1 << 40  # the byte that is locked on Windows, where nobody can read what is locked


@dataclass
class Draft:
    """A file that does not have its final name yet.

    Attributes:
        path: Where it is for now: in the folder of its final name, so that a model's weights are
            found from there.
        kept: Whether it is to get that name when the block ends.
    """

    path: Path
    kept: bool = False

    def keep(self) -> None:
        """Let the draft become the file."""
        self.kept = True


@dataclass
class Write:
    """Some files that are written together.

    Attributes:
        targets: What they are to be called.
        token: What tells this write from any other.
        drafts: What they are called for now, in the same order.
    """

    targets: Sequence[Path]
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    drafts: list[Draft] = field(default_factory=list)
    _held: dict[Path, _Hold] = field(default_factory=dict)
    _data: list[Path] = field(default_factory=list)
    _replaced: list[Path] = field(default_factory=list)

    def data_name(self, name: str) -> str:
        """The name of a file of weights that belong to ``name``."""
        return f"{name}.{self.token}.data"

    def put_data(self, name: str, chunks: Iterable[Chunk]) -> None:
        """Write the file of weights that :meth:`data_name` has named, beside the first target."""
        path = self.targets[0].parent / name
        with path.open("xb"):
            self._data.append(path)
        write(path, chunks)
        path.chmod(0o666 & ~umask())
        _to_disk(path)

    def _open(self) -> None:
        for target in self.targets:
            path = _part(target, self.token)
            self._held[path] = _Hold.create(path)
            self.drafts.append(Draft(path))

    def _put(self) -> None:
        """Give each draft its name; on an error, all names are as they were."""
        for draft, target in zip(self.drafts, self.targets, strict=True):
            mode = target.stat().st_mode if target.exists() else 0o666 & ~umask()
            _to_disk(draft.path)
            draft.path.chmod(mode)
        folders = {target.parent for target in self.targets}
        for folder in folders:
            _to_disk(folder)  # the weights have their name before a model that refers to them
        with ExitStack() as locks:
            for folder in sorted(folders):
                locks.enter_context(_alone_in(folder))
            self._mark_replaced()
            self._rename()
        self._data.clear()
        for folder in folders:
            _to_disk(folder)
        if self._replaced:
            with contextlib.suppress(KeyboardInterrupt):  # all is written already
                time.sleep(GRACE)
            for path in self._replaced:
                self._held.pop(path).release()
            for folder in folders:
                sweep(folder)

    def _mark_replaced(self) -> None:
        """Say of the weights of models that are about to be replaced that they may go."""
        for target in self.targets:
            tokens = {x for x, _ in _data_in(target.parent)} - {self.token}
            for token in _mentioned([target], tokens) if tokens else ():
                path = _part(target, token)
                if path not in self._held:
                    with contextlib.suppress(FileExistsError):  # another write says so already
                        self._held[path] = _Hold.create(path)
                        self._replaced.append(path)

    def _rename(self) -> None:
        backups = []
        with ExitStack() as undo:
            for draft, target in zip(self.drafts, self.targets, strict=True):
                if target == self.targets[-1]:  # nothing can go wrong after it
                    pass
                elif target.exists():
                    backup = _part(target, secrets.token_hex(8))
                    backups.append(backup)
                    _copy_of(target, backup)
                    undo.callback(backup.replace, target)
                else:
                    undo.callback(target.unlink, missing_ok=True)
                self._held[draft.path].rename(target)
            undo.pop_all()
        for draft in self.drafts:
            del self._held[draft.path]
        for backup in backups:
            backup.unlink()

    def _clear(self) -> None:
        """Remove what has not got its name. What cannot be removed now, the next write removes."""
        for path in self._data:
            _remove(path)
        for path, hold in self._held.items():
            hold.remove(path)
        self._held.clear()


@contextmanager
def writing(paths: Sequence[Path]) -> Iterator[Write]:
    """Drafts that become ``paths`` if the block keeps all of them, and vanish otherwise.

    If one cannot get its name, those that have theirs give it back to what was there before. Only
    the death of the process in the middle of that leaves it undone; each name then stands for the
    old file or for the new one.

    Raises:
        ModelError: A path is no place for a file, or the folder or the disk does not allow it.
    """
    made = Write([target_of(path) for path in paths])
    try:
        for folder in {target.parent for target in made.targets}:
            sweep(folder)
        made._open()
        yield made
        if all(draft.kept for draft in made.drafts):
            made._put()
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        advice = "; free some space or name another folder with -o" if full else ""
        names = ", ".join(map(str, paths))
        raise ModelError(
            f"{names}: cannot be written: {error.strerror or error}{advice}"
        ) from error
    finally:
        made._clear()


@contextmanager
def replacing(path: Path) -> Iterator[Draft]:
    """A draft that becomes ``path`` if the block keeps it, and vanishes otherwise.

    Raises:
        ModelError: The folder or the disk does not allow it.
    """
    with writing([path]) as made:
        yield made.drafts[0]


def target_of(path: Path) -> Path:
    """The file that writing to ``path`` replaces: where a link of the user's leads.

    Raises:
        ModelError: There is no folder for it, or it is there and no file that can be written.
    """
    if not path.name:
        raise ModelError(f"{str(path)!r}: is no name of a file; name one with -o")
    try:
        real = path.resolve() if path.is_symlink() else path
        if not real.parent.is_dir():
            raise ModelError(f"{path}: there is no folder {real.parent}; make it first")
        if real.is_dir():
            raise ModelError(f"{path}: is a folder; name a file in it")
        if real.exists() and not real.is_file():
            raise ModelError(f"{path}: is a device or a pipe, not a file; name another with -o")
        if real.exists() and not os.access(real, os.W_OK):
            raise ModelError(f"{path}: is read-only; name another file with -o")
    except (RuntimeError, ValueError, OSError) as error:
        reason = "is a link to itself" if isinstance(error, RuntimeError) else str(error)
        raise ModelError(f"{path}: cannot be written: {reason}") from error
    return real


def sweep(folder: Path) -> None:
    """Remove what writes that died have left in ``folder``. What cannot be removed now stays."""
    left: dict[Path, _Hold] = {}
    try:
        tokens = set()
        for path, token in _matching(folder, _PART):
            if (hold := _Hold.take(path)) is not None:
                left[path] = hold
                tokens.add(token)
        data = [(token, path) for token, path in _data_in(folder) if token in tokens]
        if data:
            used = _mentioned(_others(folder, left), {token for token, _ in data})
            for token, path in data:
                if token not in used:
                    _remove(path)
    except OSError:
        pass  # a folder that cannot be listed
    finally:
        for path, hold in left.items():
            hold.remove(path)


class _Hold:
    """A file that nobody sweeps away as long as this process lives."""

    def __init__(self, handle: int, path: Path) -> None:
        self._handle = handle
        self._path = path

    @classmethod
    def create(cls, path: Path) -> _Hold:
        """Make an empty file and hold it."""
        while True:
            handle = os.open(path, _ACCESS | os.O_CREAT | os.O_EXCL, 0o600)
            # Where there are no locks, nobody can take it either.
            if _lock(handle) is not False and _is_at(handle, path):
                return cls(handle, path)
            os.close(handle)  # swept away between the two

    @classmethod
    def take(cls, path: Path) -> _Hold | None:
        """Hold a file that is there; None if another process does, or locks are unknown."""
        try:
            handle = os.open(path, _ACCESS)
        except OSError:
            return None
        if _lock(handle) and _is_at(handle, path):
            return cls(handle, path)
        os.close(handle)
        return None

    def release(self) -> None:
        """Let go of the file, which stays."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

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
        _remove(path)
        self.release()


# On Windows ONNX Runtime opens no file that somebody has open for writing, and it reads drafts.
# On Linux a lock on NFS wants a file that is open for writing.
_ACCESS: int = os.O_RDONLY if sys.platform == "win32" else os.O_RDWR


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


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except OSError:
        return False


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """No other process gives files in ``folder`` their names; on Windows it may all the same.

    Two that did would each see the model from before both, and the weights of the one that was
    first would stay for good.
    """
    if sys.platform == "win32":
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _part(target: Path, token: str) -> Path:
    """A hidden name beside ``target``, no longer than file systems allow."""
    name = target.name.encode()[:200].decode(errors="ignore")
    return target.with_name(f".{name}.{token}.part")


def _matching(folder: Path, pattern: re.Pattern[str]) -> Iterator[tuple[Path, str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            match = pattern.fullmatch(entry.name)
            if match and entry.is_file(follow_symlinks=False):
                yield Path(entry.path), match[1]


def _data_in(folder: Path) -> list[tuple[str, Path]]:
    """The tokens and paths of the files of weights that graphfix has written."""
    return [(token, path) for path, token in _matching(folder, _DATA)]


def _others(folder: Path, but: Collection[Path]) -> Iterator[Path]:
    """What could be a model that refers to weights in ``folder``."""
    with os.scandir(folder) as entries:
        for entry in entries:
            path = Path(entry.path)
            if path not in but and not _DATA.fullmatch(entry.name) and entry.is_file():
                yield path


def _mentioned(files: Iterable[Path], tokens: Collection[str]) -> set[str]:
    """Which of ``tokens`` stand somewhere in ``files``; all, if one of them cannot be read."""
    found: set[str] = set()
    for path in files:
        try:
            if not path.is_file() or path.stat().st_size >= _MODEL_LIMIT:
                continue
            with path.open("rb") as file:
                end = b""
                while block := file.read(_BUFFER):
                    whole = end + block
                    found |= {x for x in tokens if x not in found and x.encode() in whole}
                    end = whole[-16:]
        except OSError:
            return set(tokens)
    return found


def _copy_of(path: Path, copy: Path) -> None:
    try:
        copy.hardlink_to(path)
    except OSError:  # a file system without links
        shutil.copy2(path, copy)


def _to_disk(path: Path) -> None:
    """See to it that a file, or the names in a folder, outlive a loss of power."""
    if path.is_dir():
        if sys.platform == "win32":
            return
        with contextlib.suppress(OSError):  # not every file system can
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        return
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
