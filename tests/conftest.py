"""What tests of several rooms need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def symlink() -> Callable[[Path, Path], None]:
    """Make a link to a file; on Windows that is a privilege, and without it the test is skipped."""

    def make(link: Path, target: Path) -> None:
        try:
            link.symlink_to(target)
        except OSError as error:
            pytest.skip(f"no symbolic links here: {error}")

    return make
