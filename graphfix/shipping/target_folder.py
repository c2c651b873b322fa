"""The target folder of ``graphfix ship``: what may be replaced."""

import os
from pathlib import Path

from graphfix.errors import ModelError, UsageError
from graphfix.shipped.manifest import NAME
from graphfix.shipped.manifest_file import listed_files

_REPORT = "report.html"  # made by graphfix 0.2


def require_replaceable(source: Path, folder: Path) -> None:
    """Refuse a folder that is not ours to replace, or whose files a session cannot open.

    Raises:
        UsageError: It holds something that ``graphfix ship`` did not make, or is no folder; or a
            name is in no Unicode, and files are called after the model.
    """
    for path in (Path(source.name), folder):
        try:
            str(path).encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"{path}: the name is not in UTF-8, and ONNX Runtime opens no file of such a name; "
                "rename it"
            ) from None
    nearest = next(x for x in (folder, *folder.absolute().parents) if x.exists())
    if not os.access(nearest, os.W_OK):
        raise UsageError(f"-o {folder}: {nearest} is read-only; name a folder elsewhere")
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(f"-o {folder}: is a file; name a folder")
    existing = {x.name for x in folder.iterdir()}
    if not existing:
        return
    try:
        ours = {NAME, _REPORT, *listed_files(folder)}
    except ModelError:
        raise UsageError(
            f"-o {folder}: is not empty, and 'graphfix ship' did not make it; name another folder"
        ) from None
    if strange := sorted(existing - ours):
        raise UsageError(
            f"-o {folder}: holds {', '.join(strange[:3])}, which 'graphfix ship' did not make; "
            "move it away, or name another folder"
        )
    if source.resolve().parent == folder.resolve():
        raise UsageError(f"-o {folder}: holds the model itself; name another folder")
