"""Tests that need a provider: skipped where it is missing, and run by one worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from graphfix.errors import GraphfixError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def mark_items(
    items: list[pytest.Item], folder: Path, group: str, require: Callable[[], object]
) -> None:
    """Skip the tests of a folder if ``require`` raises; --dist loadgroup gives one worker all."""
    mine = [item for item in items if folder in item.path.parents]
    why = _lacking(require) if mine else ""
    for item in mine:
        item.add_marker(pytest.mark.xdist_group(group))
        if why:
            item.add_marker(pytest.mark.skip(reason=why))


def _lacking(require: Callable[[], object]) -> str:
    try:
        require()
    except GraphfixError as error:
        return str(error)
    return ""
