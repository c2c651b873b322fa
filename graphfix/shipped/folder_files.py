"""The files of a shipped folder: they lie in it, and have the content that the manifest says."""

import hashlib
import os
import stat
from pathlib import Path

from graphfix.errors import ModelError
from graphfix.shipped.manifest import NAME, FileRecord, Manifest
from graphfix.shipped.manifest_file import read_manifest

_COPY = "copy what the links lead to, cp -rL FOLDER COPY, and open the copy"


def record_of(path: Path) -> FileRecord:
    """Return the name, the size and the hash of a file; it is read as a stream.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        return FileRecord(path.name, size, hashlib.file_digest(file, "sha256").hexdigest())


def open_folder(folder: Path, *, check_hashes: bool = True) -> Manifest:
    """Return the manifest of a folder whose files are what it says.

    Args:
        folder: The folder.
        check_hashes: Whether every byte is read, and the hash of each file compared; a gigabyte
            takes about a second. Their sizes are compared in any case.

    Raises:
        ModelError: A file is missing, is a link, or has another content; or the manifest is none.
    """
    require_file(folder, NAME)
    manifest = read_manifest(folder)
    for record in manifest.files:
        _require_record(folder, record, check_hashes=check_hashes)
    return manifest


def require_file(folder: Path, name: str) -> int:
    """Return the size of a file in a folder.

    Raises:
        ModelError: It is missing, or no regular file, as a link that may lead out of the folder.
    """
    path = folder / name
    try:
        status = path.lstat()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ModelError(
            f"{path}: cannot be read: {reason}; name a folder that 'graphfix ship' made, with all "
            "of its files"
        ) from error
    if stat.S_ISLNK(status.st_mode):
        raise ModelError(f"{path}: is a link, which may lead out of the folder; {_COPY}")
    if not stat.S_ISREG(status.st_mode):
        raise ModelError(f"{path}: is no file; ship the model again")
    return status.st_size


def _require_record(folder: Path, record: FileRecord, *, check_hashes: bool) -> None:
    path = folder / record.name
    size = require_file(folder, record.name)
    if size != record.bytes:
        raise ModelError(
            f"{path}: has {size:,} bytes, and {record.bytes:,} by {NAME}: it was changed, or "
            "copied in part; copy the folder or ship the model again"
        )
    if not check_hashes:
        return
    try:
        digest = record_of(path).sha256
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from error
    if digest != record.sha256:
        raise ModelError(
            f"{path}: has the SHA-256 {digest[:16]}..., and {record.sha256[:16]}... by {NAME}: it "
            "was changed; copy the folder or ship the model again"
        )
