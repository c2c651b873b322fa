"""The rule of each operator against ONNX Runtime: generated graphs, clips in poisoned containers.

Where the analysis says that padding is harmless, or writes a repair, what is valid of each output
must be what the clip gives alone. ``GRAPHFIX_GRAPHS=5000`` (``make graphs``) runs that many.
"""

from __future__ import annotations

import os
import zlib
from collections import Counter

import onnx_ir as ir
import pytest

from graphfix.lengths.analysis import Analysis, analyse
from graphfix.lengths.length_source import find_length_source
from graphfix.lengths.tail_state import size_expr, size_of
from tests.lengths.catalogue import ALL, MASKED, alone, generated
from tests.lengths.padding import TIMES, hold

COUNT = int(os.environ.get("GRAPHFIX_GRAPHS", "0"))
QUICK = 4
ALONE = 4
REFUSED = {"fold", "cumulative", "rows_mixed"}
"""Steps that are refused whenever rows of a batch have lengths of their own."""
REFUSED |= {
    "backwards",
    "both_ways",
    "by_size",
    "mask_longest",
    "other_kinds",
    "padded_table",
}
"""And those of which more than half are."""


def seeds(step: str, count: int) -> list[int]:
    start = zlib.crc32(step.encode())
    return [start + i for i in range(count)]


@pytest.mark.parametrize("step", sorted(ALL))
def test_padding_stays_out(step: str) -> None:
    count = max(QUICK, COUNT // len(ALL))
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


def test_most_are_seen_through() -> None:
    """A rule that refuses all is never wrong: how many graphs of one step are not refused."""
    outcomes: dict[str, Counter[str]] = {}
    for step in sorted(ALL):
        outcomes[step] = Counter()
        for seed in seeds(step, ALONE):
            model = ir.from_proto(alone(seed, step))
            found = analyse(
                model, find_length_source(model, "x.1", "mask" if step in MASKED else "")
            )
            kind = "refused" if found.refusals else "repaired" if found.repairs else "safe"
            outcomes[step][kind] += 1
            check_sizes(found, f"{step} {seed}")
    vain = {step for step, kinds in outcomes.items() if kinds["refused"] == ALONE}
    assert vain <= REFUSED
    total = sum(outcomes.values(), Counter())
    assert total["repaired"] > 0.3 * total.total(), total
    assert total["refused"] < 0.3 * total.total(), total


def check_sizes(found: Analysis, graph: str) -> None:
    """What a rule takes for the axes of a tensor is as long as its shape says."""
    for value, state in found.states.items():
        dims = found.source.shapes.dims(value)
        if state is None or state.axes is None or state.places is not None or dims is None:
            continue
        where = f"{value.producer()} of {graph}"
        assert len(dims) == state.rank, where
        for dim, axis in zip(dims, state.axes, strict=True):
            for clip in () if state.counts_padding else (23, 24, 37):
                told, known = (
                    x.subs({y: clip if y.name in TIMES else 1 for y in x.free_symbols})
                    for x in (size_of(axis), size_expr(str(dim)))
                )
                assert told == known, where
