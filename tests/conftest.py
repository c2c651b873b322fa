"""What tests of several rooms need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from graphfix import pipeline
from tests import links

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# How long an example takes says something of the machine, and nothing of the code.
settings.register_profile("graphfix", deadline=None)
settings.load_profile("graphfix")


@pytest.fixture(scope="session", autouse=True)
def a_pass_that_raises_is_a_failure() -> Iterator[None]:
    """Users get the rest of the repairs where a pass raises; a test has to see it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "may_go", lambda *_: False)
        yield


@pytest.fixture
def symlink() -> Callable[[Path, Path | str], None]:
    """Make a link to a file, or skip the test."""
    return links.symlink
