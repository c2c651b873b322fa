"""The rule of each operator against ONNX Runtime: generated graphs, clips in poisoned containers.

Where the analysis says that padding is harmless, or writes a repair, what is valid of each output
must be what the clip gives alone. ``GRAPHFIX_GRAPHS=5000`` (``make graphs``) runs that many.
"""

from __future__ import annotations

import os
import zlib
from collections import Counter

import pytest

from tests.lengths.catalogue import generated
from tests.lengths.padding import hold
from tests.lengths.steps import STEPS

COUNT = int(os.environ.get("GRAPHFIX_GRAPHS", "0"))
QUICK = 4


def seeds(step: str, count: int) -> list[int]:
    start = zlib.crc32(step.encode())
    return [start + i for i in range(count)]


@pytest.mark.parametrize("step", sorted(STEPS))
def test_padding_stays_out(step: str) -> None:
    count = max(QUICK, COUNT // len(STEPS))
    outcomes: Counter[str] = Counter()
    leaks: list[str] = []
    for seed in seeds(step, count):
        model, names, batch = generated(seed, step)
        found = hold(model, seed, batch)
        outcomes[found.kind] += 1
        if found.kind == "leaks":
            leaks.append(f"seed {seed} ({', '.join(names)}): {found.what}")
    assert not leaks, "\n".join(leaks)
    if count >= 20:
        assert outcomes["safe"] + outcomes["repaired"], f"nothing was held: {dict(outcomes)}"
