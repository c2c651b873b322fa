"""What the tests of the zoo leave in a user's folder stays in one of theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session", autouse=True)
def _no_clock_of_today(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Also in the processes that do the work on a model."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
            patch.setenv(name, str(tmp_path_factory.mktemp("user")))
        yield
