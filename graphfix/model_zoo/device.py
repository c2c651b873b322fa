"""The stages that run a model on a provider: does it run and agree, where does each node run?"""

from pathlib import Path

from graphfix.errors import ModelError
from graphfix.feeds.case import Case
from graphfix.feeds.case_search import make_cases
from graphfix.feeds.full_lengths import add_full_lengths
from graphfix.feeds.signature import Signature
from graphfix.feeds.user_feeds import case_from_feeds
from graphfix.files import io
from graphfix.model_zoo.figures import PLACED, Json, make_figure
from graphfix.model_zoo.zoo_job import ZooJob
from graphfix.proof.allowance import USUAL
from graphfix.proof.compare import compare
from graphfix.providers.table import PROVIDERS, Ep
from graphfix.runtime.local_session import Session
from graphfix.runtime.port import Feeds
from graphfix.runtime.process import stop_all
from graphfix.runtime.profiling import NodePlacement, read_placement
from graphfix.runtime.python import runner_for
from graphfix.runtime.remote import RemoteSession
from graphfix.runtime.run_errors import RunError


def run_on_device(job: ZooJob) -> Json:
    """Run both models on the provider, and compare them with the original on the CPU."""
    before = _run_original(job)
    target = job.after.with_name("device.onnx")
    verdict = job.repair_into(target, job.ep).verdict
    target.unlink(missing_ok=True)
    assert verdict is not None
    crashed, worst = bool(verdict.reason), verdict.worst
    gap = None if worst is None else worst.max_abs
    reason = before["reason"] if before["crashes"] else verdict.reason
    crashes = make_figure(int(before["crashes"]), int(crashed))
    measured = {"crashes": crashes, "worst": make_figure(before["worst"], gap, reason)}
    return {"before": before, "after": verdict.to_json(), "figures": measured}


def _run_original(job: ZooJob) -> Json:
    """Run the original on the provider, at the first sizes that it runs at on the CPU."""
    worst = 0.0
    cases = _recipe_cases(job)
    with Session(job.before, optimize=False) as cpu_session:
        expected = {case.name: cpu_session.run(case.feeds) for case in cases}
    try:
        with Session(job.before, ep=job.ep) as device_session:
            for case in cases:
                job.tell(f"as given on {PROVIDERS[job.ep].label}, {case.name}")
                outputs = device_session.run(case.feeds)
                for name, array in expected[case.name].items():
                    if name in outputs:
                        gap = compare(name, case.name, array, outputs[name], job.tolerance or USUAL)
                        worst = max(worst, gap.max_abs)
    except (ModelError, RunError) as error:
        stop_all()  # a device that failed once may fail the next model
        return {"crashes": True, "reason": str(error), "worst": None}
    return {"crashes": False, "reason": "", "worst": worst}


def _recipe_cases(job: ZooJob) -> list[Case]:
    """Return the inputs of the recipe, or inputs made for its sizes."""
    if job.recipe.feeds is not None:
        return [case_from_feeds(job.recipe.feeds, Signature(io.load(job.before)))]
    return make_cases(job.before, dims=job.recipe.dims or None)


def profile_placement(job: ZooJob) -> Json:
    """Profile which provider runs each node, in the order they run."""
    case, device_name = _recipe_cases(job)[0], PROVIDERS[job.ep].ort_name
    sides: dict[str, Json] = {}
    for side, path in (("before", job.before), ("after", job.after)):
        reason = job.results.get("device", {}).get(side, {}).get("reason", "")
        profile = NodePlacement()
        try:
            if not reason:
                profile = _profile_run(path, job.ep, add_full_lengths(io.load(path), case.feeds))
        except (ModelError, RunError) as error:
            reason = str(error)
        on_cpu = sum(x.provider != device_name for x in profile.nodes)
        counts = {
            "fused-graphs": profile.fused_count,
            "copies": profile.copy_count,
            "cpu-nodes": on_cpu,
        }
        nodes = [
            {"name": x.name, "op": x.op, "on": job.ep if x.provider == device_name else "cpu"}
            for x in profile.nodes
        ]
        sides[side] = {"error": reason, "nodes": nodes, "counts": {} if reason else counts}
    reason = sides["before"]["error"] or sides["after"]["error"]
    first, second = sides["before"]["counts"], sides["after"]["counts"]
    return {
        **sides,
        "dims": case.dims,
        "figures": {
            name: make_figure(first.get(name), second.get(name), reason) for name in PLACED
        },
    }


def _profile_run(model: Path, ep: Ep, feeds: Feeds) -> NodePlacement:
    with RemoteSession(model, runner_for(ep), profile=True) as session:
        session.run(feeds)
        return read_placement(session.end_profile())
