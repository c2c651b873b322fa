"""No profile adds a kernel to a run: generated graphs, planned before and after.

``GRAPHFIX_GRAPHS=5000`` (``make graphs`` runs that many of other kinds) takes that many here, too.
"""

from __future__ import annotations

import os

import onnx_ir as ir
import pytest
from onnx_ir.passes.common import RemoveUnusedNodesPass

import graphfix
from graphfix.errors import ModelError
from graphfix.job import planning
from graphfix.providers.plan import ProviderPlan
from tests.lengths.catalogue import generated
from tests.lengths.steps import STEPS

COUNT = int(os.environ.get("GRAPHFIX_GRAPHS", "0"))
QUICK = 24
# What DirectML refuses or computes wrong costs a kernel to repair. cumsum-index makes two of a
# Range, and makes up for that only where what computes the limit goes with it.
COST = {"convtranspose-2d", "pad-slice", "cumsum-index"}


def planned(model: ir.Model) -> ProviderPlan | None:
    try:
        return planning.plan(model)
    except ModelError:  # the newest operators have no kernel yet
        return None


def kernels(plan: ProviderPlan) -> tuple[int, int, int]:
    """Of a run, on the device, and recompiled at another length."""
    device = plan.steps_on("graph", "dml")
    return device + plan.steps_on("cpu"), device, plan.recompiled


@pytest.mark.parametrize("seed", range(QUICK))
def test_no_profile_adds_a_kernel(seed: int) -> None:
    for number in range(seed, max(COUNT, QUICK), QUICK):
        proto, names, _ = generated(number, steps=STEPS)
        before, repaired, fused = (ir.from_proto(proto) for _ in range(3))
        for model in (before, repaired, fused):
            RemoveUnusedNodesPass()(model)  # a kernel of which nobody reads what it makes
        plans = [planned(before)]
        if plans[0] is None:
            continue
        report = graphfix.run(repaired, "directml")
        graphfix.run(fused, "fast")
        plans += [planned(repaired), planned(fused)]
        assert plans[1] is not None
        assert plans[2] is not None
        counts = [kernels(x) for x in plans if x is not None]
        told = f"seed {number} ({', '.join(names)}): {counts}"
        if not COST & {x.name for x in report.passes if x.changes}:
            assert counts[1][0] <= counts[0][0], told
        assert all(a <= b for a, b in zip(counts[2], counts[1], strict=True)), told
