"""All searches and proofs of a task share its time."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphfix.job import task


def test_a_search_takes_half_of_what_is_left_and_a_proof_a_third_at_least(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(task.time, "monotonic", lambda: now[0])
    work = task.Task(Path("m.onnx"), budget=30.0)
    assert (work.proof_seconds, work.limit_search(7).seconds) == (30.0, 15.0)
    now[0] += 12.0
    later = work.with_passes((), None)  # type: ignore[arg-type]
    assert (later.proof_seconds, later.limit_search(7).seconds) == (18.0, 9.0)
    assert not later.is_late
    now[0] += 9.0
    assert (later.proof_seconds, later.limit_search(7).seconds) == (10.0, 5.0)
    assert later.is_late
    spending = later.limit_search(7)
    assert (spending.most, spending.total) == (7, 30.0)
