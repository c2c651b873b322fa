"""Files written whole or not at all, whoever else writes, reads or dies meanwhile.

A write has a token. What it writes is called ``.NAME.TOKEN.part`` until it is whole, and then
replaces the file of that name. Weights that go into a file of their own are called
``NAME.TOKEN.data`` from the start, as only the model that is not there yet refers to them. So at
any moment a model's name stands for the old file or for the new one, and the weights of both are
there. If a process dies, the next write removes its drafts, see
:mod:`graphfix.files.leftovers`.
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
from graphfix.files.byte_ranges import current_umask, write_chunks
from graphfix.files.file_lock import acquire_lock, release_lock, remove_file, rename_path
from graphfix.files.leftovers import (
    data_files,
    lock_path,
    mentioned_tokens,
    part_path,
    sweep_leftovers,
)
from graphfix.files.wire import Chunk

GRACE = 1.0
"""Seconds for which the weights of a replaced model stay: a process that has just read that model
can still open them."""

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
class WriteJob:
    """Some files of one folder that are written together.

    Attributes:
        targets: Their final paths.
        about: Files that describe the files that are replaced, and are removed with them.
        token: The name of this write, which no other write has.
        drafts: The files under their temporary names, in the same order.
        written: The files that have their final names.
        all_written: Whether all files have.
    """

    targets: Sequence[Path]
    about: Sequence[Path] = ()
    token: str = ""
    drafts: list[Draft] = field(default_factory=list)
    written: list[Path] = field(default_factory=list)
    all_written: bool = False
    _locks: list[BaseFileLock] = field(default_factory=list)
    _data_files: list[Path] = field(default_factory=list)
    _finished_tokens: set[str] = field(default_factory=set)

    @property
    def folder(self) -> Path:
        """The folder of the files."""
        return self.targets[0].parent

    def data_name(self, name: str) -> str:
        """Return the name of a file of weights that belong to ``name``."""
        return f"{name}.{self.token}.data"

    def write_data(self, name: str, chunks: Iterable[Chunk]) -> None:
        """Write the file of weights that :meth:`data_name` has named, beside the targets."""
        path = self.folder / name  # nobody else has this name
        self._data_files.append(path)
        write_chunks(path, chunks)
        path.chmod(0o666 & ~current_umask())
        flush_to_disk(path)

    def _create_drafts(self) -> None:
        self.token = lock_new_token(self.folder, self._locks)
        for target in self.targets:
            path = part_path(target, self.token)
            path.touch(0o600, exist_ok=False)
            self.drafts.append(Draft(path))

    def _name_drafts(self) -> None:
        """Rename each draft to its target."""
        for draft, target in zip(self.drafts, self.targets, strict=True):
            mode = target.stat().st_mode if target.exists() else 0o666 & ~current_umask()
            flush_to_disk(draft.path)
            draft.path.chmod(mode)
        flush_to_disk(self.folder)  # the weights have their name before a model that refers to them
        old_tokens = self._replaced_tokens()
        self._lock_tokens(old_tokens)
        for path in self.about:  # first: it must not lie beside a file that it does not describe
            remove_file(path)
        for draft, target in zip(self.drafts, self.targets, strict=True):
            rename_path(draft.path, target)
            self.written.append(target)
        self.all_written = True
        flush_to_disk(self.folder)
        if old_tokens:
            time.sleep(GRACE)
            self._lock_tokens(old_tokens)  # a write that was still running before may have finished

    def _replaced_tokens(self) -> set[str]:
        """Return the tokens of the weights of models that are about to be replaced."""
        tokens = {x for x, _ in data_files(self.folder)} - {self.token}
        with suppress(OSError):  # a model that cannot be read needs no weights
            return mentioned_tokens(self.targets, tokens) if tokens else set()
        return set()

    def _lock_tokens(self, tokens: Iterable[str]) -> None:
        """Lock other tokens, so that no other write removes their files before this one does."""
        for token in tokens:
            with suppress(OSError):  # without a lock, the files with the token stay
                lock = acquire_lock(lock_path(self.folder, token))
                if lock is not None:
                    self._locks.append(lock)
                    self._finished_tokens.add(token)

    def _is_data_used(self) -> bool:
        try:
            return not self._data_files or bool(mentioned_tokens(self.targets, {self.token}))
        except OSError:
            return True

    def _clean_up(self) -> None:
        """Remove drafts without a final name; the next write removes what cannot go now."""
        # By the files themselves: an interruption may come between a rename and its record.
        unread = all(draft.path.exists() for draft in self.drafts)
        for draft in self.drafts:
            remove_file(draft.path)
        for path in self._data_files if unread else ():  # no model refers to it yet
            remove_file(path)
        # Another write may have replaced these files already, and left their weights to this one:
        # just now, for all that is known, so there may be readers of them.
        replaced = self.all_written and not self._is_data_used()
        if replaced:
            time.sleep(GRACE)
            self._finished_tokens.add(self.token)
        for lock in self._locks:
            release_lock(lock, remove=False)
        if self.all_written and not replaced:
            remove_file(lock_path(self.folder, self.token))
        sweep_leftovers(self.folder, self._finished_tokens)


def lock_new_token(folder: Path, locks: list[BaseFileLock]) -> str:
    """Return a new token; add its lock to ``locks``, if the file system has locks."""
    while True:
        token = secrets.token_hex(8)
        try:
            lock = acquire_lock(lock_path(folder, token))
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return token
            raise
        if lock is not None:  # else another process has it, to sweep it
            locks.append(lock)
            return token


@contextmanager
def draft_files(paths: Sequence[Path], about: Sequence[Path] = ()) -> Iterator[WriteJob]:
    """Yield drafts that become ``paths`` if the block keeps all of them, and vanish otherwise.

    They get their names one after the other: if one cannot, or the process dies, each name stands
    for the old file or for the new one, whole. Files ``about`` the old ones are removed when they
    are replaced.

    Args:
        paths: The files, all in one folder.
        about: Files that describe the files that are replaced.

    Raises:
        KeyboardInterrupt: With the paths, if it came when they were written already.
        ModelError: A path is no place for a file, or the folder or the disk does not allow it.
    """
    job = WriteJob(
        [resolve_target(x) for x in paths], [resolve_target(x) for x in about if x.exists()]
    )
    try:
        try:
            sweep_leftovers(job.folder)
            job._create_drafts()
            yield job
            if all(draft.kept for draft in job.drafts):
                job._name_drafts()
        finally:
            job._clean_up()
    except KeyboardInterrupt:
        if job.all_written:
            raise KeyboardInterrupt(*map(str, paths)) from None
        raise
    except OSError as error:
        refusal = write_error(error, *paths)
        if job.written and not job.all_written:
            refusal = ModelError(f"{refusal}; written: {', '.join(map(str, job.written))}")
        raise refusal from error


@contextmanager
def draft_file(path: Path) -> Iterator[Draft]:
    """Yield a draft that becomes ``path`` if the block keeps it, and vanishes otherwise.

    Raises:
        ModelError: The folder or the disk does not allow it.
    """
    with draft_files([path]) as job:
        yield job.drafts[0]


def write_text(path: Path, text: str) -> None:
    """Write a file of text, all at once or not at all.

    Raises:
        ModelError: The folder or the disk does not allow it.
    """
    with draft_file(path) as draft:
        draft.path.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
        draft.keep()


def write_error(error: OSError, *paths: Path) -> ModelError:
    """Return the error for files that cannot be written, with advice where the disk is full."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    advice = "; free some space or name another folder with -o" if full else ""
    names = ", ".join(map(str, paths))
    return ModelError(f"{names}: cannot be written: {error.strerror or error}{advice}")


def resolve_target(path: Path) -> Path:
    """Return the file that writing to ``path`` replaces: where a link of the user's leads.

    Raises:
        ModelError: There is no folder for it, or it is there and no file that can be written.
    """
    if not path.name:
        raise ModelError(f"{str(path)!r}: is no name of a file; name one with -o")
    refuse_windows_name(path)
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


def require_writable(path: Path) -> None:
    """Raise ModelError if a file of this name could not be written, before it is made."""
    folder = resolve_target(path).parent
    if not os.access(folder, os.W_OK):
        raise ModelError(f"{path}: the folder {folder} is read-only; name a file elsewhere with -o")


def refuse_windows_name(path: Path) -> None:
    """Raise ModelError for a name that Windows does not take as it is.

    After a colon, it writes into a hidden part of a file.

    Raises:
        ModelError: With what cannot be in a name there.
    """
    wrong = sorted(_NOT_ON_WINDOWS.intersection(path.name)) if sys.platform == "win32" else []
    if wrong:
        signs = " or ".join(wrong)
        raise ModelError(f"{path}: no name on Windows has {signs} in it; choose another")


def flush_to_disk(path: Path) -> None:
    """Flush a file, or the names in a folder, so that they outlive a loss of power."""
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
