"""What reaches beyond float16, and where that begins."""

from collections.abc import Sequence

import onnx_ir as ir

from graphfix.feeds.case import Case
from graphfix.graph.walks import nodes_of
from graphfix.half import float16_range
from graphfix.half.trials import Kept, Trials, name_of

_ROUNDS = 5


def overflowing(trials: Trials, kept: Kept, cases: Sequence[Case]) -> dict[str, str]:
    """The nodes around what float16 does not hold, and those that a device would overflow inside.

    Args:
        trials: The model.
        kept: What stays already.
        cases: Inputs.
    """
    found: dict[str, str] = {}
    for _ in range(_ROUNDS):
        trials.tell(f"converting to float16: ranges with {len(kept)} kept")
        candidate = trials.candidate(kept)
        new: dict[str, str] = {}
        for case in cases:
            new = {**_beyond(trials, candidate, case), **new}
        if set(new) <= set(found):
            break
        found = {**new, **found}
        kept = kept.more(found)
    return found


def _beyond(trials: Trials, candidate: ir.Model, case: Case) -> dict[str, str]:
    """In one case, and where it begins: what takes an infinite number makes more of them."""
    found: dict[str, str] = {}
    lost: set[str] = set()
    made = (x for node in nodes_of(candidate.graph) for x in node.outputs)
    half = {x.name for x in made if x.dtype == ir.DataType.FLOAT16}
    for name, ours, theirs in trials.stream(candidate, case).pairs(trials.shared(candidate)):
        gap = float16_range.gap_of(ours, theirs)
        if gap is None:
            continue
        maker, takers = trials.makers.get(name), trials.takers.get(name, [])
        begins = maker is None or not any(x is not None and x.name in lost for x in maker.inputs)
        if gap.lost:
            lost.add(name)
        if (gap.lost and begins) or (name in half and float16_range.is_near(ours)):
            why = f"{name!r} reaches {gap.largest:.3g}"
            if gap.lost:
                why = f"{name!r} is beyond float16 at {gap.lost:,} places"
            for node in (maker, *takers):
                if node and any(x.dtype in (ir.DataType.FLOAT, None) for x in node.outputs):
                    found.setdefault(name_of(node), why)
        for node in takers:
            if (why := float16_range.fault_inside(node, ours)) and name_of(node) not in found:
                found[name_of(node)] = why
    return found
