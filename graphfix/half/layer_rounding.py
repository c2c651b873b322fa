"""The course of float16's error through the layers: how far each inner tensor is from float32."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from graphfix.half import float16_range
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
        of its largest element, and ``leads_out``, whether that is more than an output may differ.
    """
    candidate = trials.candidate(kept)
    found: list[dict[str, Any]] = []
    for name, ours, theirs in trials.stream(candidate, case).pairs(trials.shared(candidate)):
        gap, node = float16_range.gap_of(ours, theirs), trials.makers.get(name)
        if gap is not None and node is not None:
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
    edges = [i * len(found) // _POINTS for i in range(_POINTS + 1)]
    bins = (found[i:j] for i, j in itertools.pairwise(edges) if i < j)
    points = [max(some, key=lambda point: float(point["relative"])) for some in bins]
    told = {"case": case.name, "allowed": allowed, "count": len(found)}
    return {**told, "points": points, "sites": []}
