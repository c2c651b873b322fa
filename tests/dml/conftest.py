"""The tests of this folder need the real DirectML, one at a time; elsewhere they say what lacks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from graphfix.errors import GraphfixError
from graphfix.providers.table import variable_of
from graphfix.runtime import process, python
from tests.device_items import mark_items

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent


def _require_directml() -> None:
    """Raise if there is no DirectML, of any version."""
    if not python.has_provider("dml"):
        python.find_python("dml")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_items(items, HERE, "dml", _require_directml)


@pytest.fixture(autouse=True, scope="module")
def _end() -> Iterator[None]:
    yield
    process.stop_all()


@pytest.fixture
def older_directml(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test on onnxruntime-directml: what it is about is right in the DirectML after it."""
    monkeypatch.setenv(variable_of("dml", "VERSION"), "directml")
    try:
        python.runner_for("dml")
    except GraphfixError as error:
        pytest.skip(str(error))
