"""What tests of several rooms need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests import links

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# How long an example takes says something of the machine, and nothing of the code.
settings.register_profile("graphfix", deadline=None)
settings.load_profile("graphfix")


@pytest.fixture
def symlink() -> Callable[[Path, Path | str], None]:
    """Make a link to a file, or skip the test."""
    return links.symlink
