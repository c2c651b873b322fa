"""What does not load in float16, or reaches beyond it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from graphfix.errors import ModelError
from graphfix.half import ranges
from graphfix.half.trials import Kept, name_of
from graphfix.model.values import nodes_of
from graphfix.runtime.session import Session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphfix.feeds.case import Case
    from graphfix.half.trials import Trials

_ROUNDS = 5


def loading(trials: Trials) -> Kept | None:
    """What must stay for ONNX Runtime to load the model; None if it does not load at all."""
    kept = Kept()
    for _ in range(_ROUNDS):
        try:
            Session(trials.candidate(kept), optimize=False).close()
        except ModelError as error:
            named = [x for x in trials.nodes if x.name and x.name in str(error)]
            new = {name_of(x): "ONNX Runtime does not load it in float16" for x in named}
            if not named or set(new) <= set(kept.reasons):
                return None
            kept = kept.more(new)
        else:
            return kept
    return None


def overflowing(trials: Trials, kept: Kept, cases: Sequence[Case]) -> dict[str, str]:
    """The nodes around what float16 does not hold, and those that a device would overflow inside.

    Args:
        trials: The model.
        kept: What stays already.
        cases: Inputs.
    """
    found: dict[str, str] = {}
    for _ in range(_ROUNDS):
        trials.tell(f"float16: ranges with {len(kept)} kept")
        candidate = trials.candidate(kept)
        half = _halves(candidate)
        new: dict[str, str] = {}
        for case in cases:
            new = {**_beyond(trials, candidate, half, case), **new}
        if set(new) <= set(found):
            break
        found = {**new, **found}
        kept = kept.more(found)
    return found


def _beyond(trials: Trials, candidate: ir.Model, half: set[str], case: Case) -> dict[str, str]:
    """In one case, and where it begins: what takes an infinite number makes more of them."""
    found: dict[str, str] = {}
    lost: set[str] = set()
    seen = set(shared := trials.shared(candidate))
    for name, ours, theirs in trials.stream(candidate, case).pairs(shared):
        gap = ranges.gap_of(name, ours, theirs)
        if gap is None:
            continue
        begins = gap.lost and lost.isdisjoint(_given(trials, name, seen))
        if gap.lost:
            lost.add(name)
        if begins or (name in half and ranges.is_near(ours)):
            why = f"{name!r} reaches {gap.largest:.3g}"
            if gap.lost:
                why = f"{name!r} is beyond float16 at {gap.lost:,} places"
            for node in _around(trials, name):
                found.setdefault(name_of(node), why)
        for node in trials.takers.get(name, ()):
            for why in ranges.inside(node, ours) if ranges.looks_inside(node) else ():
                found.setdefault(name_of(node), why)
    return found


def _given(trials: Trials, name: str, seen: set[str]) -> set[str]:
    """What a tensor is made of, as far back as it was seen: a needless Cast was not."""
    found: set[str] = set()
    pending, done = [name], {name}
    while pending:
        maker = trials.makers.get(pending.pop())
        for value in maker.inputs if maker is not None else ():
            if value is None or not value.name or value.name in done:
                continue
            done.add(value.name)
            (found.add if value.name in seen else pending.append)(value.name)
    return found


def _around(trials: Trials, name: str) -> list[ir.Node]:
    """What makes a tensor and what takes it."""
    maker = trials.makers.get(name)
    nodes = [*([maker] if maker is not None else ()), *trials.takers.get(name, ())]
    return [x for x in nodes if any(v.dtype in (ir.DataType.FLOAT, None) for v in x.outputs)]


def _halves(model: ir.Model) -> set[str]:
    return {
        x.name
        for node in nodes_of(model.graph)
        for x in node.outputs
        if x.name and x.dtype == ir.DataType.FLOAT16
    }
