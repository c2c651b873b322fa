"""The first reason that a guard has."""

from __future__ import annotations

import pytest

from graphfix.passes.common.guards import first_reason


def test_the_first_reason_ends_it() -> None:
    def stop(_: int) -> str | None:
        pytest.fail("a guard behind a reason ran")

    guards = [lambda x: f"{x} is odd" if x % 2 else None, stop]
    assert first_reason(guards, 3) == "3 is odd"
    assert first_reason(guards[:1], 2) is None
