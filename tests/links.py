"""Links in a file system, where there are any."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


def symlink(link: Path, target: Path | str) -> None:
    """Make a link to a file; on Windows that is a privilege, and without it the test is skipped."""
    try:
        link.symlink_to(target)
    except OSError as error:
        pytest.skip(f"no symbolic links here: {error}")
    if not link.is_symlink():  # CreateSymbolicLink of Wine 10 says that it did
        pytest.skip("no symbolic links here: none was made, and no error told")
