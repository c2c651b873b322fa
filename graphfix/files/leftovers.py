"""What writes that died have left in a folder, known by its names, and removed.

A write has a token, and a lock file ``.graphfix.TOKEN.lock`` that its process holds. Where nobody
holds that file, its process has died, and all that has the token goes: drafts ``.NAME.TOKEN.part``
and ``.NAME.TOKEN.new``, and weights ``NAME.TOKEN.data`` if no model in the folder refers to them.
"""

import contextlib
import re
from collections.abc import Collection, Iterable
from pathlib import Path

from graphfix.files.file_lock import release, removed, removed_folder, renamed, take

_DRAFT = re.compile(r"\.(.+)\.([0-9a-f]{16})\.(lock|part|new|old)")
_DATA = re.compile(r".+\.([0-9a-f]{16})\.data")
_MODEL_LIMIT = 1 << 31  # no model is longer, so nothing that is longer refers to weights
_BUFFER = 1 << 22


def part(target: Path, token: str, kind: str = "part") -> Path:
    """A hidden name beside ``target``, no longer than file systems allow."""
    name = target.name.encode(errors="ignore")[:200].decode(errors="ignore")
    return target.with_name(f".{name}.{token}.{kind}")


def lock_file(folder: Path, token: str) -> Path:
    """The file that a write holds as long as it is at work in ``folder``."""
    return part(folder / "graphfix", token, "lock")


def sweep(folder: Path, tokens: Collection[str] = ()) -> None:
    """Remove what writes that died have left in ``folder``. What cannot be removed now stays.

    Args:
        folder: The folder.
        tokens: Those of writes that may have left weights alone: on Windows a lock file goes with
            its lock.
    """
    with contextlib.suppress(OSError):  # the folder cannot be listed, or a model in it not be read
        names = [match for x in folder.iterdir() if (match := _DRAFT.fullmatch(x.name))]
        for token in {*tokens, *(match[2] for match in names)}:
            lock = take(lock_file(folder, token))
            if lock is not None:
                gone = False
                try:
                    gone = _remove(folder, token, [x for x in names if x[2] == token])
                finally:
                    release(lock, remove=gone)


def _remove(folder: Path, token: str, names: Iterable[re.Match[str]]) -> bool:
    """Remove what has a token, its lock file excepted; whether all of it is gone."""
    gone = True
    for match in names:
        name, _, kind = match.groups()
        path = folder / match[0]
        if kind == "part":
            gone &= removed(path)
        elif kind == "old" and not (folder / name).exists():
            renamed(path, folder / name)  # it was put aside, and nothing came in its place
        elif kind in ("new", "old"):
            gone &= removed_folder(path)
    data = [path for found, path in data_in(folder) if found == token]
    if gone and data and not mentioned(_others(folder), {token}):
        gone = sum(map(removed, data)) == len(data)
    return gone


def data_in(folder: Path) -> list[tuple[str, Path]]:
    """The tokens and paths of the files of weights that graphfix has written."""
    return [(found[1], x) for x in folder.iterdir() if (found := _DATA.fullmatch(x.name))]


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


def _others(folder: Path) -> list[Path]:
    """What could be a model that refers to weights in ``folder``."""
    return [x for x in folder.iterdir() if not any(y.fullmatch(x.name) for y in (_DRAFT, _DATA))]
