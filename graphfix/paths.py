"""A path as a caller gives it, and the folder for what is remembered of this machine."""

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


def user_cache_folder() -> Path:
    """Return the folder for what graphfix remembers of this machine; it may not be there yet.

    Raises:
        RuntimeError: The user has no home.
    """
    cache_home = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME")
    return (Path(cache_home) if cache_home else Path.home() / ".cache") / "graphfix"
