"""The tests of this folder need a WebGPU device; elsewhere they say what lacks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from graphfix.errors import GraphfixError
from graphfix.runtime import process, python

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent


def _lacking() -> str:
    try:
        python.require_provider("webgpu")
    except GraphfixError as error:
        return str(error)
    return ""


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip them where WebGPU is unavailable; --dist loadgroup gives one worker them all."""
    mine = [item for item in items if HERE in item.path.parents]
    why = _lacking() if mine else ""
    for item in mine:
        item.add_marker(pytest.mark.xdist_group("webgpu"))
        if why:
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(autouse=True, scope="module")
def _end() -> Iterator[None]:
    yield
    process.stop_all()
