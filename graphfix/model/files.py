"""Files that come into being whole or not at all, streamed from ranges of others."""

from __future__ import annotations

import errno
import os
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from graphfix.errors import ModelError, UsageError
from graphfix.model.wire import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from graphfix.model.wire import Chunk

_BUFFER = 1 << 24


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


@contextmanager
def replacing(path: Path) -> Iterator[Draft]:
    """A draft that becomes ``path`` if the block keeps it, and vanishes otherwise.

    Raises:
        ModelError: The folder or the disk does not allow it.
    """
    with replacing_together([path]) as (draft,):
        yield draft


@contextmanager
def replacing_together(paths: Sequence[Path]) -> Iterator[list[Draft]]:
    """Drafts that become ``paths`` if the block keeps all of them, and vanish otherwise.

    If one cannot get its name, those that have theirs give it back to what was there before. Only
    the death of the process in the middle of that leaves it undone; no file is then half written.

    Raises:
        ModelError: A folder or the disk does not allow it.
    """
    for path in paths:
        if not path.parent.is_dir():
            raise ModelError(f"{path}: there is no folder {path.parent}; make it first")
        if path.is_dir():
            raise ModelError(f"{path}: is a folder; name a file in it")
    drafts: list[Draft] = []
    try:
        for path in paths:
            handle, name = tempfile.mkstemp(
                dir=path.parent, prefix=f".{path.stem}.", suffix=".part"
            )
            os.close(handle)
            drafts.append(Draft(Path(name)))
        yield drafts
        if all(draft.kept for draft in drafts):
            _put(drafts, paths)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "; free some space or name another folder with -o" if full else ""
        names = ", ".join(map(str, paths))
        raise ModelError(
            f"{names}: cannot be written: {error.strerror or error}{advice}"
        ) from error
    finally:
        for draft in drafts:
            draft.path.unlink(missing_ok=True)


def _put(drafts: Sequence[Draft], paths: Sequence[Path]) -> None:
    """Give each draft its name; on an error, all names are as they were."""
    for draft, path in zip(drafts, paths, strict=True):
        mode = path.stat().st_mode if path.exists() else 0o666 & ~umask()
        with draft.path.open("rb+") as file:
            os.fsync(file.fileno())
        draft.path.chmod(mode)
    set_aside: list[Path] = []
    with ExitStack() as undo:
        for draft, path in zip(drafts, paths, strict=True):
            if path == paths[-1]:  # nothing can go wrong after it: one file is simply replaced
                pass
            elif path.exists():
                earlier = path.with_name(f".{path.name}.earlier")
                path.replace(earlier)
                undo.callback(earlier.replace, path)
                set_aside.append(earlier)
            else:
                undo.callback(path.unlink, missing_ok=True)
            draft.path.replace(path)
        undo.pop_all()
    for earlier in set_aside:
        earlier.unlink()


def refuse_overwrite(source: Path | None, target: Path) -> None:
    """Raise UsageError if ``target`` is the very file that is being repaired."""
    if source is not None and target.exists() and target.samefile(source):
        raise UsageError(f"{target} is the input itself; name another file with -o")


def write(path: Path, chunks: Iterable[Chunk]) -> None:
    """Write ``chunks`` to ``path``; ranges of files are never held in memory."""
    sources: dict[str, BinaryIO] = {}
    try:
        with path.open("wb", buffering=0) as out:
            for chunk in chunks:
                if isinstance(chunk, Span):
                    if chunk.path not in sources:
                        sources[chunk.path] = Path(chunk.path).open("rb", buffering=0)  # noqa: SIM115
                    _copy(sources[chunk.path], chunk, out)
                else:
                    _write_all(out, memoryview(chunk))
    finally:
        for source in sources.values():
            source.close()


def _write_all(out: BinaryIO, data: memoryview) -> None:
    while data:
        data = data[out.write(data) :]


def _copy(source: BinaryIO, span: Span, out: BinaryIO) -> None:
    """Copy a range; in the kernel where there is a way, so that file systems may share blocks."""
    at, left = span.offset, span.length
    in_kernel = hasattr(os, "copy_file_range")
    while left:
        if in_kernel:
            try:
                done = os.copy_file_range(source.fileno(), out.fileno(), left, offset_src=at)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise
                in_kernel = False  # another file system, or a kernel that cannot
                continue
        else:
            source.seek(at)
            data = source.read(min(left, _BUFFER))
            _write_all(out, memoryview(data))
            done = len(data)
        if not done:
            raise ModelError(f"{span.path}: ends before byte {span.offset + span.length:,}")
        at, left = at + done, left - done


def umask() -> int:
    """What the user's files are not allowed."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
