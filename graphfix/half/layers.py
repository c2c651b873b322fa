"""The course of float16's error through the layers: how far each inner tensor is from float32."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from graphfix.half import ranges
from graphfix.model.text import module_path

if TYPE_CHECKING:
    from graphfix.feeds.case import Case
    from graphfix.half.trials import Kept, Trials

# Of more tensors than this the worst of so many groups of neighbours is told.
_POINTS = 240


def course(trials: Trials, kept: Kept, case: Case, allowed: float) -> dict[str, object]:
    """How far the tensors of a candidate are, where each is rounded as a device does.

    Args:
        trials: The model.
        kept: What stays.
        case: The input.
        allowed: What an output may differ, as a share of its largest element.

    Returns:
        ``case``; ``count``, of tensors; ``points``: the worst of each of some groups of
        neighbours with ``at``, its place among all, ``relative``, its worst difference as a share
        of its largest element, and ``leads_out``, whether that is more than an output may differ;
        and ``sites``: where numbers are lost first, with what was a number and is none.
    """
    candidate = trials.candidate(kept)
    found: list[dict[str, object]] = []
    sites: list[dict[str, object]] = []
    lost = False
    for name, ours, theirs in trials.stream(candidate, case).pairs(trials.shared(candidate)):
        gap = ranges.gap_of(name, ours, theirs)
        node = trials.makers.get(name)
        if gap is None or node is None:
            continue
        error = math.inf if gap.lost else gap.error
        found.append(
            {
                "at": len(found),
                "tensor": name,
                "op": node.op_type,
                "module": "/".join(module_path(node)),
                "max_abs": error * gap.largest,
                "scale": gap.largest,
                "relative": error,
                "leads_out": error > allowed,
            }
        )
        if gap.lost and not lost:
            lost = True
            site = {"at": len(found) - 1, "tensor": name, "node": node.name, "op": node.op_type}
            sites.append({**site, "max_abs": math.inf, "scale": gap.largest})
    edges = [i * len(found) // _POINTS for i in range(_POINTS + 1)]
    bins = (found[i:j] for i, j in itertools.pairwise(edges) if i < j)
    return {
        "case": case.name,
        "allowed": allowed,
        "count": len(found),
        "points": [max(some, key=_error) for some in bins],
        "sites": sites,
    }


def _error(point: dict[str, object]) -> float:
    error = point["relative"]
    return error if isinstance(error, float) else 0.0
