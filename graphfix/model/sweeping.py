"""What writes that died have left in a folder, known by its names, and removed.

``.NAME.TOKEN.part`` is there as long as a write is at work, and held by its process. One that
nobody holds was left by a process that died, and all that has its token was, too: weights
``NAME.TOKEN.data``, if no model in the folder refers to them, and the folders ``.NAME.TOKEN.new``
and ``.NAME.TOKEN.old`` of :mod:`graphfix.model.folders`.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from graphfix.model import signals
from graphfix.model.holds import Hold, alone_in, removed, removed_folder

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

_PART = re.compile(r"\..+\.([0-9a-f]{16})\.part")
_DATA = re.compile(r".+\.([0-9a-f]{16})\.data")
_FOLDER = re.compile(r"\.(.+)\.([0-9a-f]{16})\.(new|old)")
_MODEL_LIMIT = 1 << 31  # no model is longer, so nothing that is longer refers to weights
_BUFFER = 1 << 22


def part(target: Path, token: str) -> Path:
    """A hidden name beside ``target``, no longer than file systems allow."""
    name = target.name.encode(errors="ignore")[:200].decode(errors="ignore")
    return target.with_name(f".{name}.{token}.part")


def sweep(folder: Path) -> None:
    """Remove what writes that died have left in ``folder``. What cannot be removed now stays.

    Nobody gives files their names meanwhile: what a write puts aside for that moment, it does not
    hold.
    """
    with alone_in(folder):
        _sweep(folder)


def _sweep(folder: Path) -> None:
    left: dict[Path, tuple[str, Hold]] = {}
    stuck: set[str] | None = None
    try:
        for path, token in _matching(folder, _PART):
            if (hold := Hold.take(path)) is not None:
                left[path] = token, hold
        stuck = _rest(folder, {token for token, _ in left.values()}, left) if left else set()
    except OSError:
        pass  # the folder cannot be listed, or what may be a model in it not be read
    finally:
        with signals.waiting():
            for path, (token, hold) in left.items():
                if stuck is None or token in stuck:
                    hold.release()  # it says to the next write, too, what there is to remove
                else:
                    hold.remove(path)


def _rest(folder: Path, tokens: Collection[str], parts: Collection[Path]) -> set[str]:
    """Remove what else has one of ``tokens``, the parts excepted; those that could not be."""
    stuck = set()
    data = [(token, path) for token, path in data_in(folder) if token in tokens]
    if data:
        used = mentioned(_others(folder, parts), {token for token, _ in data})
        stuck |= {token for token, path in data if token not in used and not removed(path)}
    with os.scandir(folder) as entries:
        folders = [
            (folder / entry.name, match)
            for entry in entries
            if (match := _FOLDER.fullmatch(entry.name)) and entry.is_dir(follow_symlinks=False)
        ]
    for path, match in folders:
        name, token, kind = match.groups()
        if token not in tokens:
            continue
        if kind == "old" and not (folder / name).exists():
            path.rename(folder / name)  # it was put aside, and nothing came in its place
            continue
        if not removed_folder(path):
            stuck.add(token)
    return stuck


def data_in(folder: Path) -> list[tuple[str, Path]]:
    """The tokens and paths of the files of weights that graphfix has written."""
    return [(token, path) for path, token in _matching(folder, _DATA)]


def mentioned(files: Iterable[Path], tokens: Collection[str]) -> set[str]:
    """Which of ``tokens`` stand somewhere in ``files``.

    Raises:
        OSError: One of them cannot be read.
    """
    found: set[str] = set()
    for path in files:
        if not path.is_file() or path.stat().st_size >= _MODEL_LIMIT:
            continue
        with path.open("rb") as file:
            end = b""
            while block := file.read(_BUFFER):
                whole = end + block
                found |= {x for x in tokens if x not in found and x.encode() in whole}
                end = whole[-16:]
    return found


def _matching(folder: Path, pattern: re.Pattern[str]) -> Iterator[tuple[Path, str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            match = pattern.fullmatch(entry.name)
            if match and entry.is_file(follow_symlinks=False):
                yield folder / entry.name, match[1]


def _others(folder: Path, but: Collection[Path]) -> Iterator[Path]:
    """What could be a model that refers to weights in ``folder``."""
    with os.scandir(folder) as entries:
        for entry in entries:
            path = folder / entry.name
            if path not in but and not _DATA.fullmatch(entry.name) and entry.is_file():
                yield path
