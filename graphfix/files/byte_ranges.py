"""Files written from byte ranges of others, and checks that no input is overwritten."""

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
from graphfix.files.wire import Chunk, Float16Span, Span
from graphfix.paths import StrPath

_BUFFER = 1 << 24
PIECE = 1 << 18
"""Elements of what is converted on the way: it stays in the processor's cache."""


@dataclass(frozen=True)
class FileStamp:
    """Identity and state of a file: another content has another stamp.

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
    def of_file(cls, path: Path) -> FileStamp | None:
        """Return the stamp of a file, or None if there is none."""
        try:
            status = path.stat()
        except OSError:
            return None
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def refuse_overwrite(
    inputs: Iterable[Path], target: Path, extra_inputs: Iterable[StrPath | None] = ()
) -> None:
    """Raise UsageError if ``target`` is a file that is read, by whatever name.

    Args:
        inputs: The file of the model, then those that it refers to.
        target: What is to be written.
        extra_inputs: What else is read for the work, such as feeds.
    """
    for i, source in enumerate(inputs):
        if _is_same_file(target, source):
            relation = f"holds weights of the input ({source})" if i else "is the input itself"
            raise UsageError(f"{target} {relation}; name another file with -o")
    for extra_input in extra_inputs:
        if extra_input is not None and _is_same_file(target, Path(extra_input)):
            raise UsageError(
                f"{target} is read for this work ({extra_input}); name another file with -o"
            )


def _is_same_file(lhs: Path, rhs: Path) -> bool:
    return lhs.exists() and rhs.exists() and lhs.samefile(rhs)


def write_chunks(path: Path, chunks: Iterable[Chunk]) -> None:
    """Write ``chunks`` to ``path``; ranges of files are never held in memory."""
    sources: dict[str, FileIO] = {}
    try:
        with path.open("wb", buffering=0) as out:
            for chunk in chunks:
                if isinstance(chunk, Span):
                    if chunk.path not in sources:
                        sources[chunk.path] = Path(chunk.path).open("rb", buffering=0)  # noqa: SIM115
                    copy_span = _copy_as_float16 if isinstance(chunk, Float16Span) else _copy_span
                    copy_span(sources[chunk.path], chunk, out)
                else:
                    _write_all(out, memoryview(chunk))
    finally:
        for source in sources.values():
            source.close()


def _write_all(out: FileIO, data: memoryview) -> None:
    while data:
        data = data[out.write(data) :]


def _copy_span(source: FileIO, span: Span, out: FileIO) -> None:
    """Copy a range."""
    short = ModelError(f"{span.path}: ends before byte {span.offset + span.length:,}")
    source.seek(span.offset)
    for data in read_blocks(source, span.length, short):
        _write_all(out, memoryview(data))


def read_blocks(source: BinaryIO, count: int, short: Exception) -> Iterator[bytes]:
    """Yield so many bytes of a file, in pieces; raise ``short`` where they are not there."""
    remaining = count
    while remaining:
        data = source.read(min(remaining, _BUFFER))
        if not data:
            raise short
        yield data
        remaining -= len(data)


def _copy_as_float16(source: FileIO, span: Span, out: FileIO) -> None:
    """Copy float32 as float16."""
    count = span.length // 2
    half = np.empty(min(count, PIECE), "<f2")
    short = ModelError(f"{span.path}: ends before byte {span.offset + 2 * span.length:,}")
    source.seek(span.offset)
    with np.errstate(over="ignore"):
        for wide in read_float32(source, count, short):
            half[: wide.size] = wide
            _write_all(out, half[: wide.size].view(np.uint8).data)


def read_float32(source: FileIO, count: int, short: Exception) -> Iterator[npt.NDArray[np.float32]]:
    """Yield so many float32 of a file, in pieces; raise ``short`` where they are not there.

    The same memory holds each piece: new pages cost as much as converting what is put into them.
    """
    remaining = 4 * count
    piece = np.empty(min(count, PIECE), "<f4")
    data = piece.view(np.uint8).data
    while remaining:
        received = source.readinto(data[:remaining])
        if not received or received % 4:
            raise short
        yield piece[: received // 4]
        remaining -= received


def current_umask() -> int:
    """Return the umask of the process."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
