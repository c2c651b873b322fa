"""The folder for temporary files: what is said when it takes none."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

from graphfix.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def scratch() -> Iterator[None]:
    """Around what writes there: an error is of that folder, and of no file of the user's.

    Raises:
        UsageError: Something could not be written.
    """
    try:
        yield
    except OSError as error:
        folder = tempfile.tempdir or "the folder for temporary files"
        variable = "TEMP" if os.name == "nt" else "TMPDIR"
        raise UsageError(
            f"{folder}: cannot be written: {error.strerror or error}; free some space there, or "
            f"name another folder for temporary files in {variable}"
        ) from error
