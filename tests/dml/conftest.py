"""The tests of this folder need the real DirectML, one at a time; elsewhere they say what lacks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from graphfix.errors import GraphfixError
from graphfix.providers.table import variable_of
from graphfix.runtime import process, python

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent


def _lacking() -> str:
    try:
        if not python.has_provider("dml"):
            python.find_python("dml")
    except GraphfixError as error:
        return str(error)
    return ""


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip them where DirectML is unavailable; --dist loadgroup gives one worker them all."""
    mine = [item for item in items if HERE in item.path.parents]
    why = _lacking() if mine else ""
    for item in mine:
        item.add_marker(pytest.mark.xdist_group("dml"))
        if why:
            item.add_marker(pytest.mark.skip(reason=why))


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
