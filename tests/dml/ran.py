"""What DirectML did with a model, beside what was predicted."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from graphfix.feeds.case_search import make_cases
from graphfix.job import planning
from graphfix.providers.table import PROVIDERS
from graphfix.runtime.profiling import read_placement
from graphfix.runtime.python import runner_for
from graphfix.runtime.remote import RemoteSession

if TYPE_CHECKING:
    import onnx_ir as ir


def predicted(model: ir.Model) -> dict[str, int]:
    """How many fused graphs, nodes on DirectML and on the CPU, and copies are predicted."""
    plan = planning.plan(model)
    return {on: plan.steps_on(on) for on in ("graph", "dml", "cpu", "copy")}


def found(model: ir.Model) -> dict[str, int]:
    """How many of each ran."""
    case = make_cases(model)[0]
    with closing(RemoteSession(model, runner_for("dml"), profile=True)) as session:
        session.run(case.feeds)
        ran = read_placement(session.end_profile())
    on_device = ran.provider_counts.get(PROVIDERS["dml"].ort_name, 0)
    alone = on_device - ran.fused_count
    cpu = sum(ran.provider_counts.values()) - on_device
    return {"graph": ran.fused_count, "dml": alone, "cpu": cpu, "copy": ran.copy_count}
