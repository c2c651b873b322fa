"""A model beside its own copy: what that says of this machine's clock, for a day."""

from __future__ import annotations

import json
import os
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from graphfix.benchmark.timing import CONFIDENCE
from graphfix.model_zoo import clock

if TYPE_CHECKING:
    from pathlib import Path

RATIO = {"value": 1.0, "low": 0.98, "high": 1.02, "confidence": CONFIDENCE}


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_windows = os.name == "nt"
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / ("user" if on_windows else "other")))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ("other" if on_windows else "user")))


def ratio_file(tmp_path: Path) -> Path:
    return tmp_path / "user" / "graphfix" / "clock-cpu.json"


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({}, True),
        ({"low": 1.0}, True),
        ({"high": 1.0}, True),
        ({"low": 1.001}, False),
        ({"high": 0.999}, False),
        ({"confidence": CONFIDENCE - 0.01}, False),
    ],
)
def test_only_a_clock_that_can_be_trusted_is_kept(
    change: dict[str, float], kept: bool, tmp_path: Path
) -> None:
    for _ in range(2):
        clock.save_ratio("cpu", {**RATIO, **change})
    loaded = clock.load_todays_ratio("cpu")
    assert (loaded is not None) is kept
    assert loaded is None or loaded == {x: {**RATIO, **change}[x] for x in ("value", "low", "high")}
    assert clock.load_todays_ratio("dml") is None
    assert ratio_file(tmp_path).is_file() is kept


@pytest.mark.parametrize(
    "stored",
    [
        "no JSON",
        "[]",
        "{}",
        json.dumps({**RATIO, "day": (date.today() - timedelta(days=1)).isoformat()}),
        json.dumps({**RATIO, "low": "x", "day": date.today().isoformat()}),
        json.dumps({"value": 1.0, "day": date.today().isoformat()}),
    ],
)
def test_what_is_of_another_day_or_damaged_is_not_believed(stored: str, tmp_path: Path) -> None:
    file = ratio_file(tmp_path)
    file.parent.mkdir(parents=True)
    file.write_text(stored, encoding="utf-8")
    assert clock.load_todays_ratio("cpu") is None


def test_a_folder_that_cannot_be_written_to_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "user").write_text("a file")
    clock.save_ratio("cpu", RATIO)
    assert clock.load_todays_ratio("cpu") is None


def test_without_a_setting_it_lies_in_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name)
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path))
    clock.save_ratio("cpu", RATIO)
    stored: dict[str, Any] = json.loads(
        (tmp_path / ".cache" / "graphfix" / "clock-cpu.json").read_text(encoding="utf-8")
    )
    assert stored == {**RATIO, "day": date.today().isoformat()}
