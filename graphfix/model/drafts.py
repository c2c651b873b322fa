"""Files that come into being whole or not at all, whoever else writes, reads or dies meanwhile.

A write has a token. What it writes is called ``.NAME.TOKEN.part`` until it is whole, and held as
long as its process lives. Weights that go into a file of their own are called ``NAME.TOKEN.data``
from the start, as only the model that is not there yet refers to them. So at any moment a model's
name stands for the old file or for the new one, and the weights of both are there.

A ``.part`` that nobody holds was left by a process that died: whoever writes next into that folder
removes it, and what else has its token, see :mod:`graphfix.model.sweeping`. Before a model is
replaced, an empty ``.part`` with the token of *its* weights says the same of them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from graphfix.errors import ModelError
from graphfix.model import signals
from graphfix.model.files import umask, write
from graphfix.model.holds import Hold, alone_in, removed, renamed
from graphfix.model.sweeping import data_in, mentioned, part, sweep

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from graphfix.model.wire import Chunk

GRACE = 1.0
"""Seconds for which the weights of a replaced model stay: one who has just read that model, and
is about to open them, finds them."""

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
    """Some files that are written together.

    Attributes:
        targets: What they are to be called.
        token: What tells this write from any other.
        drafts: What they are called for now, in the same order.
        about: What tells of the files that they replace, and goes with those.
        done: Whether they have their names.
    """

    targets: Sequence[Path]
    about: Sequence[Path] = ()
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    drafts: list[Draft] = field(default_factory=list)
    done: bool = False
    _held: dict[Path, Hold] = field(default_factory=dict)
    _data: list[Path] = field(default_factory=list)
    _replaced: list[Path] = field(default_factory=list)

    @property
    def folders(self) -> list[Path]:
        """Where they are."""
        return sorted({target.parent for target in self.targets})

    def data_name(self, name: str) -> str:
        """The name of a file of weights that belong to ``name``."""
        return f"{name}.{self.token}.data"

    def put_data(self, name: str, chunks: Iterable[Chunk]) -> None:
        """Write the file of weights that :meth:`data_name` has named, beside the first target."""
        path = self.targets[0].parent / name
        self._data.append(path)  # nobody else has this name
        with path.open("xb"):
            pass
        write(path, chunks)
        path.chmod(0o666 & ~umask())
        to_disk(path)

    def _open(self) -> None:
        for target in self.targets:
            path = part(target, self.token)
            self._held[path] = Hold.create(path)
            self.drafts.append(Draft(path))

    def _put(self) -> None:
        """Give each draft its name; on an error, all names are as they were."""
        for draft, target in zip(self.drafts, self.targets, strict=True):
            mode = target.stat().st_mode if target.exists() else 0o666 & ~umask()
            to_disk(draft.path)
            draft.path.chmod(mode)
        for folder in self.folders:
            to_disk(folder)  # the weights have their name before a model that refers to them
        with ExitStack() as locks:
            for folder in self.folders:
                locks.enter_context(alone_in(folder))
            self._mark_replaced()
            with signals.waiting():
                self._rename()
        for folder in self.folders:
            to_disk(folder)
        if self._replaced:
            time.sleep(GRACE)

    def _mark_replaced(self) -> None:
        """Say of the weights of models that are about to be replaced that they may go."""
        for target in self.targets:
            tokens = {x for x, _ in data_in(target.parent)} - {self.token}
            if tokens:
                with contextlib.suppress(OSError):  # what nobody can read needs none of them
                    tokens = mentioned([target], tokens)
            for token in tokens:
                path = part(target, token)
                if path not in self._held:
                    with contextlib.suppress(FileExistsError):  # another write says so already
                        self._held[path] = Hold.create(path)
                        self._replaced.append(path)

    def _rename(self) -> None:
        backups = []
        with ExitStack() as undo:
            for path in self.about:  # first: at no moment it stands beside what it is not of
                backup = part(path, secrets.token_hex(8))
                with contextlib.suppress(OSError):  # who writes it anew will say why
                    renamed(path, backup)
                    backups.append(backup)
                    undo.callback(renamed, backup, path)
            for draft, target in zip(self.drafts, self.targets, strict=True):
                if target == self.targets[-1]:  # nothing can go wrong after it
                    pass
                elif target.exists():
                    backups.append(backup := part(target, secrets.token_hex(8)))
                    _copy_of(target, backup)
                    undo.callback(_put_back, backup, target)
                else:
                    undo.callback(target.unlink, missing_ok=True)
                self._held[draft.path].rename(target)
            undo.pop_all()
        self.done = True
        for draft in self.drafts:
            del self._held[draft.path]
        for backup in backups:
            removed(backup)  # else the next write does

    def _clear(self) -> None:
        """Remove what has not got its name. What cannot be removed now, the next write removes."""
        with signals.waiting():
            gone = self.done
            if not gone and not self._stranded():
                gone = sum(map(removed, self._data)) == len(self._data)
            for path, hold in self._held.items():
                if gone and not (self.done and path in self._replaced):
                    hold.remove(path)
                else:
                    hold.release()
            self._held.clear()
        if self.done and self._replaced:
            for folder in self.folders:
                sweep(folder)

    def _stranded(self) -> bool:
        """Whether a new model has a name that could not be taken from it; it needs its weights."""
        try:
            return bool(self._data and mentioned(self.targets, {self.token}))
        except OSError:
            return True


@contextmanager
def writing(paths: Sequence[Path], about: Sequence[Path] = ()) -> Iterator[Write]:
    """Drafts that become ``paths`` if the block keeps all of them, and vanish otherwise.

    What is ``about`` the files of before is removed when they are replaced.

    If one cannot get its name, those that have theirs give it back to what was there before. Only
    the death of the process in the middle of that leaves it undone; each name then stands for the
    old file or for the new one.

    Raises:
        KeyboardInterrupt: With the paths, if it came when they were written already.
        ModelError: A path is no place for a file, or the folder or the disk does not allow it.
    """
    made = Write(
        [target_of(path) for path in paths], [target_of(path) for path in about if path.exists()]
    )
    try:
        try:
            for folder in made.folders:
                sweep(folder)
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
        raise cannot(error, *paths) from error


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
        raise ModelError(
            f"{path}: no name on Windows has {' or '.join(wrong)} in it; choose another"
        )


def _copy_of(path: Path, copy: Path) -> None:
    try:
        copy.hardlink_to(path)
    except OSError:  # a file system without links
        try:
            shutil.copy2(path, copy)
        except BaseException:
            removed(copy)
            raise


def _put_back(backup: Path, target: Path) -> None:
    backup.replace(target)
    removed(backup)  # it stays where both names are of one file: nothing had come in its place


def to_disk(path: Path) -> None:
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
