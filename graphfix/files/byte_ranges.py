"""Files that are streamed from ranges of others, and which of them must stay as they are."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from graphfix.errors import ModelError, UsageError
from graphfix.files.wire import Chunk, Narrow, Span
from graphfix.paths import StrPath

_BUFFER = 1 << 24
PIECE = 1 << 18
"""Elements of what is converted on the way: it stays in the processor's cache."""


@dataclass(frozen=True)
class Stamp:
    """Which file it was, and in which state: another content has another stamp.

    Attributes:
        device: Of ``stat``, as the others.
        inode: A file that is put in the place of another has another one.
        size: In bytes.
        time: Of the last change, in nanoseconds.
    """

    device: int
    inode: int
    size: int
    time: int

    @classmethod
    def of(cls, path: Path) -> Stamp | None:
        """The stamp of a file, or None if there is none."""
        try:
            found = path.stat()
        except OSError:
            return None
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def refuse_overwrite(
    inputs: Iterable[Path], target: Path, others: Iterable[StrPath | None] = ()
) -> None:
    """Raise UsageError if ``target`` is a file that is read, by whatever name.

    Args:
        inputs: The file of the model, then those that it refers to.
        target: What is to be written.
        others: What else is read for the work, such as feeds.
    """
    for i, source in enumerate(inputs):
        if _are_one(target, source):
            what = f"holds weights of the input ({source})" if i else "is the input itself"
            raise UsageError(f"{target} {what}; name another file with -o")
    for other in others:
        if other is not None and _are_one(target, Path(other)):
            raise UsageError(f"{target} is read for this work ({other}); name another file with -o")


def _are_one(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def write(path: Path, chunks: Iterable[Chunk]) -> None:
    """Write ``chunks`` to ``path``; ranges of files are never held in memory."""
    sources: dict[str, FileIO] = {}
    try:
        with path.open("wb", buffering=0) as out:
            for chunk in chunks:
                if isinstance(chunk, Span):
                    if chunk.path not in sources:
                        sources[chunk.path] = Path(chunk.path).open("rb", buffering=0)  # noqa: SIM115
                    move = _narrow if isinstance(chunk, Narrow) else _copy
                    move(sources[chunk.path], chunk, out)
                else:
                    _write_all(out, memoryview(chunk))
    finally:
        for source in sources.values():
            source.close()


def _write_all(out: FileIO, data: memoryview) -> None:
    while data:
        data = data[out.write(data) :]


def _copy(source: FileIO, span: Span, out: FileIO) -> None:
    """Copy a range."""
    short = ModelError(f"{span.path}: ends before byte {span.offset + span.length:,}")
    source.seek(span.offset)
    for data in blocks(source, span.length, short):
        _write_all(out, memoryview(data))


def blocks(source: BinaryIO, count: int, short: Exception) -> Iterator[bytes]:
    """So many bytes of a file, a piece at a time; ``short`` is raised where they are not there."""
    left = count
    while left:
        data = source.read(min(left, _BUFFER))
        if not data:
            raise short
        yield data
        left -= len(data)


def _narrow(source: FileIO, span: Span, out: FileIO) -> None:
    """Copy float32 as float16."""
    count = span.length // 2
    half = np.empty(min(count, PIECE), "<f2")
    short = ModelError(f"{span.path}: ends before byte {span.offset + 2 * span.length:,}")
    source.seek(span.offset)
    with np.errstate(over="ignore"):
        for wide in floats(source, count, short):
            half[: wide.size] = wide
            _write_all(out, half[: wide.size].view(np.uint8).data)


def floats(source: FileIO, count: int, short: Exception) -> Iterator[npt.NDArray[np.float32]]:
    """So many float32 of a file, a piece at a time; ``short`` is raised where they are not there.

    The same memory holds each piece: new pages cost as much as converting what is put into them.
    """
    left = 4 * count
    piece = np.empty(min(count, PIECE), "<f4")
    data = piece.view(np.uint8).data
    while left:
        done = source.readinto(data[:left])
        if not done or done % 4:
            raise short
        yield piece[: done // 4]
        left -= done


def umask() -> int:
    """What the user's files are not allowed."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
