"""Folders that are written whole or not at all, as :mod:`graphfix.files.atomic_file` writes files.

A folder with something in it cannot be replaced by a rename. So the earlier one is put aside first;
if the process dies just then, the next write puts it back.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import BaseFileLock

from graphfix.errors import ModelError
from graphfix.files.atomic_file import (
    Draft,
    flush_to_disk,
    lock_new_token,
    refuse_windows_name,
    write_error,
)
from graphfix.files.byte_ranges import current_umask
from graphfix.files.file_lock import release_lock, rename_path
from graphfix.files.leftovers import part_path, sweep_leftovers


@contextmanager
def draft_folder(path: Path) -> Iterator[Draft]:
    """Yield a new folder that becomes ``path`` if the block keeps it, and vanishes otherwise.

    Raises:
        KeyboardInterrupt: With the path, if it came when the folder had its name already.
        ModelError: Its name, the folder around it or the disk does not allow it.
    """
    refuse_windows_name(path)
    real = path.resolve()
    missing_parents = [x for x in real.parents if not x.exists()]
    locks: list[BaseFileLock] = []
    committed = False
    try:
        try:
            real.parent.mkdir(parents=True, exist_ok=True)
            sweep_leftovers(real.parent)
            token = lock_new_token(real.parent, locks)
            draft = Draft(part_path(real, token, "new"))
            draft.path.mkdir()
            yield draft
            if draft.kept:
                draft.path.chmod(0o777 & ~current_umask())
                flush_to_disk(draft.path)
                _swap_in(draft.path, real, part_path(real, token, "old"))
                committed = True
                flush_to_disk(real.parent)
        finally:
            for lock in locks:
                release_lock(lock, remove=False)
            sweep_leftovers(real.parent)
            # The folders that were created for it, the innermost first.
            for folder in () if committed else missing_parents:
                with suppress(OSError):
                    folder.rmdir()
    except KeyboardInterrupt:
        if committed:
            raise KeyboardInterrupt(str(path)) from None
        raise
    except OSError as error:
        raise write_error(error, path) from error


def _swap_in(new_folder: Path, folder: Path, earlier: Path) -> None:
    """Rename ``new_folder`` to ``folder``; what had that name is then called ``earlier``."""
    try:
        if folder.exists():
            rename_path(folder, earlier)
        try:
            rename_path(new_folder, folder)
        except OSError:
            if earlier.exists():
                rename_path(earlier, folder)
            raise
    except OSError as error:
        reason = error.strerror or error
        raise ModelError(f"{folder}: cannot be replaced: {reason}; close what uses it") from error
