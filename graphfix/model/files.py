"""Files that are streamed from ranges of others, and which of them must stay as they are."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from graphfix.errors import ModelError, UsageError
from graphfix.model.wire import Span

if TYPE_CHECKING:
    from collections.abc import Iterable

    from graphfix.model.wire import Chunk

_BUFFER = 1 << 24


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


def refuse_overwrite(inputs: Iterable[Path], target: Path) -> None:
    """Raise UsageError if ``target`` is a file that is read: the model, or weights of it.

    Args:
        inputs: The file of the model, then those that it refers to.
        target: What is to be written.
    """
<<<<<<< HEAD
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
=======
    for i, source in enumerate(inputs):
        if target.exists() and source.exists() and target.samefile(source):
            what = f"holds weights of the input ({source})" if i else "is the input itself"
            raise UsageError(f"{target} {what}; name another file with -o")
>>>>>>> 094e093 (Each write has a token: weights in a file of its name, swept when nobody wants them; one gate for every file a model refers to)


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
<<<<<<< HEAD


def umask() -> int:
    """What the user's files are not allowed."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
=======
>>>>>>> 094e093 (Each write has a token: weights in a file of its name, swept when nobody wants them; one gate for every file a model refers to)
