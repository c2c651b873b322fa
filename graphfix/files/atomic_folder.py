"""Folders that come into being whole or not at all, as files do in
:mod:`graphfix.files.atomic_file`.

A folder with something in it cannot be replaced by a rename. So the earlier one is put aside first;
if the process dies just then, the next write puts it back.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import BaseFileLock

from graphfix.errors import ModelError
from graphfix.files.atomic_file import Draft, cannot, locked, refuse_name, to_disk
from graphfix.files.byte_ranges import umask
from graphfix.files.file_lock import release, renamed
from graphfix.files.leftovers import part, sweep


@contextmanager
def replacing(path: Path) -> Iterator[Draft]:
    """A new folder that becomes ``path`` if the block keeps it, and vanishes otherwise.

    Raises:
        KeyboardInterrupt: With the path, if it came when the folder had its name already.
        ModelError: Its name, the folder around it or the disk does not allow it.
    """
    refuse_name(path)
    real = path.resolve()
    around = [x for x in real.parents if not x.exists()]
    locks: list[BaseFileLock] = []
    done = False
    try:
        try:
            real.parent.mkdir(parents=True, exist_ok=True)
            sweep(real.parent)
            token = locked(real.parent, locks)
            draft = Draft(part(real, token, "new"))
            draft.path.mkdir()
            yield draft
            if draft.kept:
                draft.path.chmod(0o777 & ~umask())
                to_disk(draft.path)
                _put(draft.path, real, part(real, token, "old"))
                done = True
                to_disk(real.parent)
        finally:
            for lock in locks:
                release(lock, remove=False)
            sweep(real.parent)
            for folder in () if done else around:  # what was made for it, the innermost first
                with suppress(OSError):
                    folder.rmdir()
    except KeyboardInterrupt:
        if done:
            raise KeyboardInterrupt(str(path)) from None
        raise
    except OSError as error:
        raise cannot(error, path) from error


def _put(made: Path, folder: Path, earlier: Path) -> None:
    """Give ``made`` the name ``folder``; what had it is then called ``earlier``."""
    try:
        if folder.exists():
            renamed(folder, earlier)
        try:
            renamed(made, folder)
        except OSError:
            if earlier.exists():
                renamed(earlier, folder)
            raise
    except OSError as error:
        reason = error.strerror or error
        raise ModelError(f"{folder}: cannot be replaced: {reason}; close what uses it") from error
