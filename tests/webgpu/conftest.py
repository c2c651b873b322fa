"""The tests of this folder need a WebGPU device; elsewhere they say what lacks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from graphfix.runtime import process
from tests.devices import need_device

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    need_device("webgpu", items, HERE)


@pytest.fixture(autouse=True, scope="module")
def _end() -> Iterator[None]:
    yield
    process.stop_all()
