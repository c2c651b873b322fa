"""What tests of several rooms need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# How long an example takes says something of the machine, and nothing of the code.
settings.register_profile("graphfix", deadline=None)
settings.load_profile("graphfix")


@pytest.fixture
def symlink() -> Callable[[Path, Path], None]:
    """Make a link to a file; on Windows that is a privilege, and without it the test is skipped."""

    def make(link: Path, target: Path) -> None:
        try:
            link.symlink_to(target)
        except OSError as error:
            pytest.skip(f"no symbolic links here: {error}")

    return make
