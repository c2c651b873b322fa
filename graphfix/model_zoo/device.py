"""The stages that run a model on DirectML: does it run and agree, and which node ran where?"""

from pathlib import Path

from graphfix.errors import ModelError
from graphfix.feeds.case import Case
from graphfix.feeds.case_search import make_cases
from graphfix.feeds.full_lengths import full_lengths
from graphfix.feeds.signature import Signature
from graphfix.feeds.user_feeds import given_case
from graphfix.files import io
from graphfix.model_zoo.figures import PLACED, Json, figure
from graphfix.model_zoo.zoo_job import ZooJob
from graphfix.proof.compare import compare
from graphfix.runtime.local_session import Session
from graphfix.runtime.port import Feeds
from graphfix.runtime.process import stop_all
from graphfix.runtime.profiling import Placed, placed
from graphfix.runtime.provider import DML
from graphfix.runtime.python import here
from graphfix.runtime.remote import RemoteSession
from graphfix.runtime.run_errors import RunError


def directml(job: ZooJob) -> Json:
    """Does each run on DirectML, and does it compute there what the original does on the CPU?"""
    before = _as_given(job)
    again = job.after.with_name("directml.onnx")
    verdict = job.repaired(again, "dml").verdict
    again.unlink(missing_ok=True)
    assert verdict is not None
    crashed, worst = bool(verdict.reason), verdict.worst
    gap = None if worst is None else worst.max_abs
    why = before["reason"] if before["crashes"] else verdict.reason
    crashes = figure(int(before["crashes"]), int(crashed))
    measured = {"crashes": crashes, "worst": figure(before["worst"], gap, why)}
    return {"before": before, "after": verdict.to_json(), "figures": measured}


def _as_given(job: ZooJob) -> Json:
    """The original on DirectML, at the first sizes that it runs at on the CPU."""
    worst = 0.0
    cases = _cases(job)
    with Session(job.before, optimize=False) as here:
        wanted = {case.name: here.run(case.feeds) for case in cases}
    try:
        with Session(job.before, ep="dml") as there:
            for case in cases:
                job.tell(f"as given on DirectML, {case.name}")
                outputs = there.run(case.feeds)
                for name, array in wanted[case.name].items():
                    if name in outputs:
                        gap = compare(name, case.name, array, outputs[name], job.tolerance)
                        worst = max(worst, gap.max_abs)
    except (ModelError, RunError) as error:
        stop_all()  # a device that failed once may fail the next model
        return {"crashes": True, "reason": str(error), "worst": None}
    return {"crashes": False, "reason": "", "worst": worst}


def _cases(job: ZooJob) -> list[Case]:
    """The inputs of the recipe, or made for its sizes."""
    if job.recipe.feeds is not None:
        return [given_case(job.recipe.feeds, Signature(io.load(job.before)))]
    return make_cases(job.before, dims=job.recipe.dims or None)


def placement(job: ZooJob) -> Json:
    """Which provider ran each node, in the order they ran, from ONNX Runtime's own profile."""
    case = _cases(job)[0]
    sides: dict[str, Json] = {}
    for side, path in (("before", job.before), ("after", job.after)):
        why, found = job.results.get("directml", {}).get(side, {}).get("reason", ""), Placed()
        try:
            if not why:
                found = _placed(path, full_lengths(io.load(path), case.feeds))
        except (ModelError, RunError) as error:
            why = str(error)
        on_cpu = sum(x.provider != DML for x in found.nodes)
        counts = {"fused-graphs": found.fused, "copies": found.copies, "cpu-nodes": on_cpu}
        nodes = [
            {"name": x.name, "op": x.op, "on": "dml" if x.provider == DML else "cpu"}
            for x in found.nodes
        ]
        sides[side] = {"error": why, "nodes": nodes, "counts": {} if why else counts}
    why = sides["before"]["error"] or sides["after"]["error"]
    first, second = sides["before"]["counts"], sides["after"]["counts"]
    return {
        **sides,
        "dims": case.dims,
        "figures": {name: figure(first.get(name), second.get(name), why) for name in PLACED},
    }


def _placed(model: Path, feeds: Feeds) -> Placed:
    with RemoteSession(model, here("dml"), profile=True) as session:
        session.run(feeds)
        return placed(session.profile())
