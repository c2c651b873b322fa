"""Tensors that reach beyond float16, and where that begins."""

from collections.abc import Sequence

import onnx_ir as ir

from graphfix.feeds.case import Case
from graphfix.graph.walks import nodes_of
from graphfix.half import float16_range
from graphfix.half.trials import KeepSet, Trials, first_tensor_name

_ROUNDS = 5


def find_overflows(trials: Trials, keep_set: KeepSet, cases: Sequence[Case]) -> dict[str, str]:
    """Find the nodes around what float16 does not hold, and those that overflow inside.

    Args:
        trials: The model.
        keep_set: What stays already.
        cases: Inputs.
    """
    reasons: dict[str, str] = {}
    for _ in range(_ROUNDS):
        trials.tell(f"converting to float16: ranges with {len(keep_set)} kept")
        candidate = trials.build_candidate(keep_set)
        new: dict[str, str] = {}
        for case in cases:
            new = {**_overflows_in_case(trials, candidate, case), **new}
        if set(new) <= set(reasons):
            break
        reasons = {**new, **reasons}
        keep_set = keep_set.with_reasons(reasons)
    return reasons


def _overflows_in_case(trials: Trials, candidate: ir.Model, case: Case) -> dict[str, str]:
    """Find them in one case, where they begin: an infinite input makes more infinities."""
    reasons: dict[str, str] = {}
    lost: set[str] = set()
    outputs = (x for node in nodes_of(candidate.graph) for x in node.outputs)
    half = {x.name for x in outputs if x.dtype == ir.DataType.FLOAT16}
    for name, ours, theirs in trials.stream_tensors(candidate, case).iter_pairs(
        trials.shared_tensors(candidate)
    ):
        gap = float16_range.measure_gap(ours, theirs)
        if gap is None:
            continue
        maker, takers = (
            trials.producer_by_tensor.get(name),
            trials.consumers_by_tensor.get(name, []),
        )
        begins = maker is None or not any(x is not None and x.name in lost for x in maker.inputs)
        if gap.lost:
            lost.add(name)
        if (gap.lost and begins) or (name in half and float16_range.is_near_limit(ours)):
            reason = f"{name!r} reaches {gap.largest:.3g}"
            if gap.lost:
                reason = f"{name!r} is beyond float16 at {gap.lost:,} places"
            for node in (maker, *takers):
                if node and any(x.dtype in (ir.DataType.FLOAT, None) for x in node.outputs):
                    reasons.setdefault(first_tensor_name(node), reason)
        for node in takers:
            if (reason := float16_range.norm_fault(node, ours)) and first_tensor_name(
                node
            ) not in reasons:
                reasons[first_tensor_name(node)] = reason
    return reasons
