"""Removal of files that crashed writes left in a folder, known by their names.

A write has a token, and a lock file ``.graphfix.TOKEN.lock`` that its process holds. Where nobody
holds that file, its process has died, and all that has the token goes: drafts ``.NAME.TOKEN.part``
and ``.NAME.TOKEN.new``, and weights ``NAME.TOKEN.data`` if no model in the folder refers to them.
"""

import contextlib
import re
from collections.abc import Collection, Iterable
from pathlib import Path

from graphfix.files.file_lock import (
    acquire_lock,
    release_lock,
    remove_file,
    remove_folder,
    rename_path,
)

_DRAFT = re.compile(r"\.(.+)\.([0-9a-f]{16})\.(lock|part|new|old)")
_DATA = re.compile(r".+\.([0-9a-f]{16})\.data")
_MODEL_LIMIT = 1 << 31  # no model is longer, so nothing that is longer refers to weights
_BUFFER = 1 << 22


def part_path(target: Path, token: str, kind: str = "part") -> Path:
    """Return a hidden path beside ``target``, no longer than file systems allow."""
    name = target.name.encode(errors="ignore")[:200].decode(errors="ignore")
    return target.with_name(f".{name}.{token}.{kind}")


def lock_path(folder: Path, token: str) -> Path:
    """Return the file that a write locks as long as it is at work in ``folder``."""
    return part_path(folder / "graphfix", token, "lock")


def sweep_leftovers(folder: Path, tokens: Collection[str] = ()) -> None:
    """Remove what writes that died have left in ``folder``. What cannot be removed now stays.

    Args:
        folder: The folder.
        tokens: Those of writes that may have left weights alone: on Windows a lock file goes with
            its lock.
    """
    with contextlib.suppress(OSError):  # the folder cannot be listed, or a model in it not be read
        names = [match for x in folder.iterdir() if (match := _DRAFT.fullmatch(x.name))]
        for token in {*tokens, *(match[2] for match in names)}:
            lock = acquire_lock(lock_path(folder, token))
            if lock is not None:
                all_removed = False
                try:
                    all_removed = _remove_token(folder, token, [x for x in names if x[2] == token])
                finally:
                    release_lock(lock, remove=all_removed)


def _remove_token(folder: Path, token: str, names: Iterable[re.Match[str]]) -> bool:
    """Remove what has a token, except its lock file; return whether all of it is gone."""
    all_removed = True
    for match in names:
        name, _, kind = match.groups()
        path = folder / match[0]
        if kind == "part":
            all_removed &= remove_file(path)
        elif kind == "old" and not (folder / name).exists():
            rename_path(path, folder / name)  # it was put aside, and nothing came in its place
        elif kind in ("new", "old"):
            all_removed &= remove_folder(path)
    data = [path for owner, path in data_files(folder) if owner == token]
    if all_removed and data and not mentioned_tokens(_possible_models(folder), {token}):
        all_removed = sum(map(remove_file, data)) == len(data)
    return all_removed


def data_files(folder: Path) -> list[tuple[str, Path]]:
    """Return the tokens and paths of the files of weights that graphfix has written."""
    return [(match[1], x) for x in folder.iterdir() if (match := _DATA.fullmatch(x.name))]


def mentioned_tokens(files: Iterable[Path], tokens: Collection[str]) -> set[str]:
    """Return those of ``tokens`` that stand somewhere in ``files``.

    Raises:
        OSError: One of them cannot be read.
    """
    mentions: set[str] = set()
    for path in files:
        if not path.is_file() or path.stat().st_size >= _MODEL_LIMIT:
            continue
        with path.open("rb") as file:
            end = b""
            while block := file.read(_BUFFER):
                window = end + block
                mentions |= {x for x in tokens if x not in mentions and x.encode() in window}
                end = window[-16:]
    return mentions


def _possible_models(folder: Path) -> list[Path]:
    """Return what could be a model that refers to weights in ``folder``."""
    return [x for x in folder.iterdir() if not any(y.fullmatch(x.name) for y in (_DRAFT, _DATA))]
