"""Search for tensors that float16 does not hold, and for the nodes that make and read them."""

from collections.abc import Callable, Collection, Sequence
from typing import TypeGuard

import onnx_ir as ir

from graphfix.feeds.case import Case
from graphfix.float16_search import float16_range
from graphfix.float16_search.trials import KeepSet, Trials, first_tensor_name
from graphfix.graph.walks import nodes_of, opset_of

_ROUNDS = 5


def find_overflows(
    trials: Trials,
    keep_set: KeepSet,
    cases: Sequence[Case],
    has_time: Callable[[], bool] = lambda: True,
) -> dict[str, str]:
    """Return why nodes must stay in float32, by the name of the first tensor of each.

    Those around a tensor that float16 does not hold, and norms whose sums it does not hold.

    Args:
        trials: The model and its candidates.
        keep_set: What stays in float32 already.
        cases: Inputs to run.
        has_time: Whether another case may be run; the first one is.
    """
    reasons: dict[str, str] = {}
    for _ in range(_ROUNDS):
        trials.tell(f"converting to float16: ranges with {len(keep_set)} kept")
        candidate = trials.build_candidate(keep_set)
        new: dict[str, str] = {}
        for i, case in enumerate(cases):
            if (i or reasons) and not has_time():
                break
            new = {**_overflows_in_case(trials, candidate, case), **new}
        if set(new) <= set(reasons):
            break
        reasons = {**new, **reasons}
        keep_set = keep_set.with_reasons(reasons)
    return reasons


def _overflows_in_case(trials: Trials, candidate: ir.Model, case: Case) -> dict[str, str]:
    """Return the same for one case, only where it begins: an infinity makes more of them."""
    reasons: dict[str, str] = {}
    overflowed: set[str] = set()
    opset = opset_of(trials.before)
    outputs = (x for node in nodes_of(candidate.graph) for x in node.outputs)
    half_tensors = {x.name for x in outputs if x.dtype == ir.DataType.FLOAT16}
    for name, ours, theirs in trials.stream_tensors(candidate, case).iter_pairs(
        trials.shared_tensors(candidate)
    ):
        gap = float16_range.measure_gap(ours, theirs)
        if gap is None:
            continue
        producer = trials.producer_by_tensor.get(name)
        consumers = trials.consumers_by_tensor.get(name, [])
        begins_here = gap.lost > 0 and not _reads_any(producer, overflowed)
        if gap.lost:
            overflowed.add(name)
        if begins_here or (name in half_tensors and float16_range.is_near_limit(ours)):
            reason = _overflow_reason(name, gap)
            for node in filter(_makes_floats, (producer, *consumers)):
                reasons.setdefault(first_tensor_name(node), reason)
        for node in consumers:
            if reason := float16_range.norm_fault(node, name, ours, opset):
                reasons.setdefault(first_tensor_name(node), reason)
    return reasons


def _reads_any(node: ir.Node | None, names: Collection[str]) -> bool:
    return node is not None and any(x is not None and x.name in names for x in node.inputs)


def _makes_floats(node: ir.Node | None) -> TypeGuard[ir.Node]:
    return node is not None and any(x.dtype in (ir.DataType.FLOAT, None) for x in node.outputs)


def _overflow_reason(name: str, gap: float16_range.RangeGap) -> str:
    if gap.lost:
        return f"{name!r} is beyond float16 at {gap.lost:,} places"
    return f"{name!r} reaches {gap.largest:.3g}"
