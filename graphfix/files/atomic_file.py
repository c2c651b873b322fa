"""Files that come into being whole or not at all, whoever else writes, reads or dies meanwhile.

A write has a token. What it writes is called ``.NAME.TOKEN.part`` until it is whole, and then
replaces the file of that name. Weights that go into a file of their own are called
``NAME.TOKEN.data`` from the start, as only the model that is not there yet refers to them. So at
any moment a model's name stands for the old file or for the new one, and the weights of both are
there. Who dies leaves the rest to the next write, see :mod:`graphfix.files.leftovers`.
"""

import errno
import os
import secrets
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from filelock import BaseFileLock

from graphfix.errors import ModelError
from graphfix.files.byte_ranges import umask, write
from graphfix.files.file_lock import release, removed, renamed, take
from graphfix.files.leftovers import data_in, lock_file, mentioned, part, sweep
from graphfix.files.wire import Chunk

GRACE = 1.0
"""Seconds for which the weights of a replaced model stay: one who has just read that model, and
is about to open them, finds them."""

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL)
_NOT_ON_WINDOWS = frozenset('<>:"|?*')


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
    """Some files of one folder that are written together.

    Attributes:
        targets: What they are to be called.
        about: What tells of the files that they replace, and goes with those.
        token: What tells this write from any other.
        drafts: What they are called for now, in the same order.
        written: Those that have their names.
        done: Whether all have.
    """

    targets: Sequence[Path]
    about: Sequence[Path] = ()
    token: str = ""
    drafts: list[Draft] = field(default_factory=list)
    written: list[Path] = field(default_factory=list)
    done: bool = False
    _locks: list[BaseFileLock] = field(default_factory=list)
    _data: list[Path] = field(default_factory=list)
    _done_with: set[str] = field(default_factory=set)

    @property
    def folder(self) -> Path:
        """Where they are."""
        return self.targets[0].parent

    def data_name(self, name: str) -> str:
        """The name of a file of weights that belong to ``name``."""
        return f"{name}.{self.token}.data"

    def put_data(self, name: str, chunks: Iterable[Chunk]) -> None:
        """Write the file of weights that :meth:`data_name` has named, beside the targets."""
        path = self.folder / name  # nobody else has this name
        self._data.append(path)
        write(path, chunks)
        path.chmod(0o666 & ~umask())
        to_disk(path)

    def _open(self) -> None:
        self.token = locked(self.folder, self._locks)
        for target in self.targets:
            path = part(target, self.token)
            path.touch(0o600, exist_ok=False)
            self.drafts.append(Draft(path))

    def _put(self) -> None:
        """Give each draft its name."""
        for draft, target in zip(self.drafts, self.targets, strict=True):
            mode = target.stat().st_mode if target.exists() else 0o666 & ~umask()
            to_disk(draft.path)
            draft.path.chmod(mode)
        to_disk(self.folder)  # the weights have their name before a model that refers to them
        replaced = self._replaced()
        self._lock(replaced)
        for path in self.about:  # first: at no moment it stands beside what it is not of
            removed(path)
        for draft, target in zip(self.drafts, self.targets, strict=True):
            renamed(draft.path, target)
            self.written.append(target)
        self.done = True
        to_disk(self.folder)
        if replaced:
            time.sleep(GRACE)
            self._lock(replaced)  # those of a write that was still at work before

    def _replaced(self) -> set[str]:
        """The tokens of the weights of models that are about to be replaced."""
        known = {x for x, _ in data_in(self.folder)} - {self.token}
        with suppress(OSError):  # what nobody can read needs none of them
            return mentioned(self.targets, known) if known else set()
        return set()

    def _lock(self, tokens: Iterable[str]) -> None:
        """Lock other tokens, so that nobody sweeps what has them before this write does."""
        for token in tokens:
            with suppress(OSError):  # without it, what has the token stays
                lock = take(lock_file(self.folder, token))
                if lock is not None:
                    self._locks.append(lock)
                    self._done_with.add(token)

    def _is_used(self) -> bool:
        try:
            return not self._data or bool(mentioned(self.targets, {self.token}))
        except OSError:
            return True

    def _clear(self) -> None:
        """Remove what did not get its name. What cannot be removed now, the next write removes."""
        # Asked of the files: an interruption may come between a name and the note of it.
        unread = all(draft.path.exists() for draft in self.drafts)
        for draft in self.drafts:
            removed(draft.path)
        for path in self._data if unread else ():  # no model refers to it yet
            removed(path)
        # Another write may have replaced these files already, and left their weights to this one:
        # just now, for all that is known, so there may be readers of them.
        replaced = self.done and not self._is_used()
        if replaced:
            time.sleep(GRACE)
            self._done_with.add(self.token)
        for lock in self._locks:
            release(lock, remove=False)
        if self.done and not replaced:
            removed(lock_file(self.folder, self.token))
        sweep(self.folder, self._done_with)


def locked(folder: Path, locks: list[BaseFileLock]) -> str:
    """A new token; its lock is added to ``locks``, if the file system has locks."""
    while True:
        token = secrets.token_hex(8)
        try:
            lock = take(lock_file(folder, token))
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return token
            raise
        if lock is not None:  # else another process has it, to sweep it
            locks.append(lock)
            return token


@contextmanager
def writing(paths: Sequence[Path], about: Sequence[Path] = ()) -> Iterator[Write]:
    """Drafts that become ``paths`` if the block keeps all of them, and vanish otherwise.

    They get their names one after the other: if one cannot, or the process dies, each name stands
    for the old file or for the new one, whole. What is ``about`` the files of before is removed
    when they are replaced.

    Args:
        paths: The files, all in one folder.
        about: Files that tell of those of before.

    Raises:
        KeyboardInterrupt: With the paths, if it came when they were written already.
        ModelError: A path is no place for a file, or the folder or the disk does not allow it.
    """
    made = Write([target_of(x) for x in paths], [target_of(x) for x in about if x.exists()])
    try:
        try:
            sweep(made.folder)
            made._open()
            yield made
            if all(draft.kept for draft in made.drafts):
                made._put()
        finally:
            made._clear()
    except KeyboardInterrupt:
        if made.done:
            raise KeyboardInterrupt(*map(str, paths)) from None
        raise
    except OSError as error:
        refusal = cannot(error, *paths)
        if made.written and not made.done:
            refusal = ModelError(f"{refusal}; written: {', '.join(map(str, made.written))}")
        raise refusal from error


@contextmanager
def replacing(path: Path) -> Iterator[Draft]:
    """A draft that becomes ``path`` if the block keeps it, and vanishes otherwise.

    Raises:
        ModelError: The folder or the disk does not allow it.
    """
    with writing([path]) as made:
        yield made.drafts[0]


def put_text(path: Path, text: str) -> None:
    """Write a file of text, all at once or not at all.

    Raises:
        ModelError: The folder or the disk does not allow it.
    """
    with replacing(path) as draft:
        draft.path.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
        draft.keep()


def cannot(error: OSError, *paths: Path) -> ModelError:
    """What to say of files that cannot be written."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    advice = "; free some space or name another folder with -o" if full else ""
    names = ", ".join(map(str, paths))
    return ModelError(f"{names}: cannot be written: {error.strerror or error}{advice}")


def target_of(path: Path) -> Path:
    """The file that writing to ``path`` replaces: where a link of the user's leads.

    Raises:
        ModelError: There is no folder for it, or it is there and no file that can be written.
    """
    if not path.name:
        raise ModelError(f"{str(path)!r}: is no name of a file; name one with -o")
    refuse_name(path)
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


def refuse_name(path: Path) -> None:
    """Refuse what Windows takes for no name; after a colon, it writes into a hidden part of a file.

    Raises:
        ModelError: With what cannot be in a name there.
    """
    wrong = sorted(_NOT_ON_WINDOWS.intersection(path.name)) if sys.platform == "win32" else []
    if wrong:
        signs = " or ".join(wrong)
        raise ModelError(f"{path}: no name on Windows has {signs} in it; choose another")


def to_disk(path: Path) -> None:
    """See to it that a file, or the names in a folder, outlive a loss of power."""
    if path.is_dir():
        if sys.platform == "win32":
            return
        with suppress(OSError):  # not every file system can
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        return
    with path.open("rb+") as file:
        os.fsync(file.fileno())
