"""The tests of this folder need the real DirectML, one at a time; elsewhere they say what lacks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from graphfix.providers.table import variable_of
from graphfix.runtime import process
from tests.devices import lack_of, need_device

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    need_device("dml", items, HERE)


@pytest.fixture(autouse=True, scope="module")
def _end() -> Iterator[None]:
    yield
    process.stop_all()


@pytest.fixture
def older_directml(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test on onnxruntime-directml: what it is about is right in the DirectML after it."""
    monkeypatch.setenv(variable_of("dml", "VERSION"), "directml")
    if why := lack_of("dml"):
        pytest.skip(why)
