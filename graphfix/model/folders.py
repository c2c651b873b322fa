"""Folders that come into being whole or not at all, as files do in :mod:`graphfix.model.drafts`.

A folder with something in it cannot be replaced by a rename. Linux and macOS exchange the names of
two instead: at any moment the name stands for the earlier folder or for the new one. Elsewhere the
earlier one is put aside first; if the process dies just then, the next write puts it back.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from graphfix.errors import ModelError
from graphfix.model import signals
from graphfix.model.drafts import Draft, cannot, refuse_name, to_disk
from graphfix.model.files import umask
from graphfix.model.holds import Hold, alone_in, removed_folder, renamed
from graphfix.model.sweeping import part, sweep

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HERE, _EXCHANGE = -100, 2  # AT_FDCWD, RENAME_EXCHANGE; of macOS RENAME_SWAP


@contextmanager
def replacing(path: Path) -> Iterator[Draft]:
    """A new folder that becomes ``path`` if the block keeps it, and vanishes otherwise.

    Raises:
        KeyboardInterrupt: With the path, if it came when the folder had its name already.
        ModelError: Its name, the folder around it or the disk does not allow it.
    """
    refuse_name(path)
    real = path.resolve()
    token = secrets.token_hex(8)
    draft, earlier = (Draft(real.with_name(f".{real.name}.{token}.{x}")) for x in ("new", "old"))
    hold: Hold | None = None
    done = False
    around = [x for x in real.parents if not x.exists()]
    try:
        try:
            real.parent.mkdir(parents=True, exist_ok=True)
            sweep(real.parent)
            hold = Hold.create(part(real, token))
            draft.path.mkdir()
            yield draft
            if draft.kept:
                draft.path.chmod(0o777 & ~umask())
                to_disk(draft.path)
                with alone_in(real.parent), signals.waiting():
                    _put(draft.path, real, earlier.path)
                    done = True
                to_disk(real.parent)
        finally:
            left = [x.path for x in (draft, earlier)]
            for path_ in left:
                removed_folder(path_)
            with signals.waiting():
                if hold is not None and any(x.exists() for x in left):
                    hold.release()  # the next write removes it
                elif hold is not None:
                    hold.remove(part(real, token))
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
    """Give ``made`` the name ``folder``; what had it is then at one of the other two."""
    if not folder.exists():
        renamed(made, folder)
    elif not _exchanged(made, folder):
        try:
            renamed(folder, earlier)
            try:
                renamed(made, folder)
            except OSError:
                renamed(earlier, folder)
                raise
        except OSError as error:
            reason = error.strerror or error
            raise ModelError(
                f"{folder}: cannot be replaced: {reason}; close what uses it"
            ) from error


def _exchanged(one: Path, other: Path) -> bool:
    """Exchange the names of two folders; False where there is no way to."""
    try:
        if sys.platform == "linux":
            done = ctypes.CDLL(None).renameat2(
                _HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE
            )
        elif sys.platform == "darwin":
            done = ctypes.CDLL(None).renamex_np(os.fsencode(one), os.fsencode(other), _EXCHANGE)
        else:
            return False
    except (OSError, AttributeError):  # a C library without it
        return False
    return bool(done == 0)
