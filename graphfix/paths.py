"""A path as a caller gives it."""

import os
from pathlib import Path

from graphfix.errors import UsageError

StrPath = str | os.PathLike[str]


def require_path(path: StrPath) -> Path:
    """Return the path of what has to be a file or a folder.

    Raises:
        UsageError: It is none.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise UsageError(f"{type(path).__name__} is no path; save the model, and give its file")
    return Path(path)
