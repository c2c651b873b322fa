"""How long a run may take."""

from __future__ import annotations

import pytest

from graphfix.runtime import time_limits
from graphfix.runtime.time_limits import run_seconds


@pytest.mark.parametrize(
    ("text", "seconds"), [(None, 120), ("3", 3), ("0.5", 0.5), ("0", 0.1), ("-1", 0.1), ("x", 120)]
)
def test_how_long_a_run_may_take(
    text: str | None, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(time_limits.SECONDS, raising=False)
    if text is not None:
        monkeypatch.setenv(time_limits.SECONDS, text)
    assert run_seconds() == seconds
