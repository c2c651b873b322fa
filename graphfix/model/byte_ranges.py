"""Files that are streamed from ranges of others, and which of them must stay as they are."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import numpy as np

from graphfix.errors import ModelError, UsageError
from graphfix.model.wire import Chunk, Narrow, Span
from graphfix.paths import StrPath

_BUFFER = 1 << 24
# What is converted on the way stays in the processor's cache.
_NARROWED = 1 << 20


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
    left = span.length
    source.seek(span.offset)
    while left:
        data = source.read(min(left, _BUFFER))
        if not data:
            raise ModelError(f"{span.path}: ends before byte {span.offset + span.length:,}")
        _write_all(out, memoryview(data))
        left -= len(data)


def _narrow(source: FileIO, span: Span, out: FileIO) -> None:
    """Copy float32 as float16."""
    left = 2 * span.length
    # The same memory for each piece: new pages cost as much as converting what is put into them.
    wide = np.empty(min(left, _NARROWED) // 4, "<f4")
    half = np.empty(wide.size, "<f2")
    data = wide.view(np.uint8).data
    source.seek(span.offset)
    with np.errstate(over="ignore"):
        while left:
            done = source.readinto(data[:left])
            if not done or done % 4:
                raise ModelError(f"{span.path}: ends before byte {span.offset + 2 * span.length:,}")
            half[: done // 4] = wide[: done // 4]
            _write_all(out, half[: done // 4].view(np.uint8).data)
            left -= done


def umask() -> int:
    """What the user's files are not allowed."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
