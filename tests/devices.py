"""What the tests that need a device share: they run one at a time, or say what lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from graphfix.errors import GraphfixError
from graphfix.runtime.python import require_provider

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from graphfix.providers.table import Ep


def need_device(ep: Ep, items: Iterable[pytest.Item], folder: Path) -> None:
    """Skip the tests of a folder where a provider is unavailable, with the reason.

    By a group of the provider's name, --dist loadgroup gives them all to one worker.
    """
    mine = [item for item in items if folder in item.path.parents]
    why = lack_of(ep) if mine else ""
    for item in mine:
        item.add_marker(pytest.mark.xdist_group(ep))
        if why:
            item.add_marker(pytest.mark.skip(reason=why))


def lack_of(ep: Ep) -> str:
    """Return why a provider is unavailable here, and how to get it; "" if it is there."""
    try:
        require_provider(ep)
    except GraphfixError as error:
        return str(error)
    return ""
