"""The stages of the work on each model: one function each, which returns plain data.

A stage gets the :class:`ZooJob` and returns a dict for JSON. One key of it means something to
others: ``figures`` (see :mod:`graphfix.model_zoo.figures`) goes into the table and to the gates.
A new stage is a function here, and a line in ``STAGES``.
"""

import dataclasses
import time
from collections import Counter

from graphfix.benchmark import bench as measure
from graphfix.benchmark.timing import doubt_claim
from graphfix.engine import pipeline
from graphfix.errors import GraphfixError
from graphfix.files import io
from graphfix.job import checking, planning
from graphfix.lengths.length_input import LengthInput
from graphfix.model_zoo import clock, figures
from graphfix.model_zoo.device import profile_placement, run_on_device
from graphfix.model_zoo.figures import PLACED, Json, make_figure
from graphfix.model_zoo.zoo_job import Stage, ZooJob
from graphfix.probing.padded import padded
from graphfix.providers.table import predicted_provider


def run_stages(job: ZooJob) -> dict[str, Json]:
    """Run all stages in order; a stage that fails or is skipped says why."""
    for stage in STAGES:
        if stage.on_device and job.ep == "cpu":
            result: Json = {"skipped": "measured on a device only, such as --ep dml"}
        elif stage.needs_after and not job.after.is_file():
            result = {"skipped": "there is no repaired model"}
        else:
            job.tell(stage.name)
            result = _run_stage(stage, job)
        reason = result.get("skipped") or result.get("error")
        if reason is not None:
            result["figures"] = {name: make_figure(None, None, reason) for name in stage.measures}
        job.results[stage.name] = result
    return job.results


def _run_stage(stage: Stage, job: ZooJob) -> Json:
    start = time.perf_counter()
    try:
        result = stage.work(job)
    except GraphfixError as error:
        result = {"error": str(error)}
    except Exception as error:  # a fault of ours, in one model of many: the others go on
        result = {"error": f"unexpected {type(error).__name__}: {error}"}
    return {**result, "seconds": round(time.perf_counter() - start, 3)}


def repair_model(job: ZooJob) -> Json:
    """Repair and verify, as ``graphfix run`` does; the result is its report."""
    report = job.repair_into(job.after)
    data = report.to_json()
    # Where the files were for a moment, perhaps on another machine, says nothing later.
    data.update(source=job.before.name, output=None)
    worst = None if report.verdict is None else report.verdict.worst
    gap = None if worst is None else worst.max_abs
    measured = {"worst": make_figure(None, gap, "the original is what is compared with")}
    return {**data, "figures": measured}


def check_models(job: ZooJob) -> Json:
    """Run ``graphfix check`` before and after the repair, and count nodes and findings."""
    sides: dict[str, Json] = {}
    for side, path in (("before", job.before), ("after", job.after)):
        if not path.is_file():
            continue
        model = io.load(path)
        passes = pipeline.resolve_passes(job.recipe.passes, job.ep)
        found = checking.check(model, passes, ep=predicted_provider(job.ep))
        findings = [dataclasses.asdict(x) for x in found]
        sides[side] = {
            "findings": findings,
            "left": dict(Counter(f["rule"] for f in findings if f["severity"] != "note")),
            "counts": {
                "mask-wheres": figures.count_mask_wheres(model),
                "dynamic-reshapes": figures.count_dynamic_reshapes(model),
                "findings": sum(f["severity"] != "note" for f in findings),
                "nodes": sum(pipeline.count_ops(model).values()),
            },
        }
    before, after = sides["before"]["counts"], sides.get("after", {}).get("counts", {})
    reason = "there is no repaired model"
    counted = {name: make_figure(before[name], after.get(name), reason) for name in before}
    return {**sides, "figures": counted}


def plan_models(job: ZooJob) -> Json:
    """Predict where the nodes of both models run on the provider; works on any machine."""
    ep = predicted_provider(job.ep)
    plans: Json = {
        "before": planning.plan_summary(job.before, ep),
        "after": planning.plan_summary(job.after, ep) if job.after.is_file() else None,
    }
    first, second = ((plans[side] or {"run": {}})["run"] for side in ("before", "after"))
    reason = "ONNX Runtime rejects it" if job.after.is_file() else "there is no repaired model"
    pairs = {name: (first.get(key), second.get(key)) for name, key in _PREDICTED.items()}
    return {
        "plan": plans,
        "figures": {name: make_figure(*pair, reason) for name, pair in pairs.items()},
    }


_PREDICTED = {"fused-graphs": "graphs", "copies": "copies", "cpu-nodes": "cpu"}


def measure_padding(job: ZooJob) -> Json:
    """Measure what padding changes: before the repair, and after it if lengths are fed."""
    if LengthInput.from_metadata(io.load(job.after)) is None:
        return {"skipped": "no padding pass was run, see ilens-mask"}
    dims = job.recipe.dims or None
    loose = padded(job.before, dims=dims, tolerance=job.tolerance)
    tight = padded(job.after, original=job.before, dims=dims, tolerance=job.tolerance, ep=job.ep)
    gaps = [None if x.worst is None else float(x.worst.diff.max_abs) for x in (loose, tight)]
    return {
        "before": loose.to_json(),
        "after": tight.to_json(),
        "figures": {"padding": make_figure(gaps[0], gaps[1], "nothing was compared")},
    }


def time_models(job: ZooJob) -> Json:
    """Time both models: one model a process, alternately."""
    settings, careful = job.recipe.bench, bool(job.recipe.bench.get("careful"))
    options: Json = {name: settings.get(name) for name in ("dims", "other", "processes", "runs")}
    todays_ratio = None if careful else clock.load_todays_ratio(job.ep)
    result = measure.bench(
        [job.before, job.after],
        ep=job.ep,
        **options,
        seconds=None if careful or job.ep != "cpu" else _QUICK_SECONDS,
        careful=careful,
        fixed=False,  # the page looks at the first setup alone
        copy=todays_ratio is None,
        tolerance=job.tolerance,
        progress=job.tell,
    )
    claim = result.models[1].claim
    if claim is not None and claim.ratio is not None and todays_ratio is not None:
        copy_values = (todays_ratio[x] for x in ("value", "low", "high"))
        claim = doubt_claim(claim.ratio, *copy_values)
    reason = next(
        (model.error for model in result.models if model.error), "the original is what it is of"
    )
    if claim is None or claim.ratio is None:
        ratio = make_figure(
            None, None, reason if claim is None else f"{figures.CANNOT_TELL}: {claim.why}"
        )
    else:
        ratio = make_figure(None, claim.ratio.value, reason)
        ratio["interval"] = (claim.ratio.low, claim.ratio.high)
    data = result.to_json()
    data["models"] = [
        # The page and the gates look at the first setup: any shape, or the only one there is.
        {**model, "model": side, **next(iter(model["setups"].values()), {}), "ok": model["ok"]}
        for model, side in zip(data["models"], ("before", "after"), strict=True)
    ]
    copy_ratio = data["models"][0].get("copy", {}).get("steady")
    if copy_ratio is not None:
        clock.save_ratio(job.ep, copy_ratio)
    return {**data, "clock": todays_ratio, "careful": careful, "figures": {"ratio": ratio}}


_QUICK_SECONDS = 0.02
"""How long steady runs go on in a process that says first what the careful clock may say better."""
COUNTED = ("mask-wheres", "dynamic-reshapes", "findings", "nodes")

STAGES = (
    Stage("repair", repair_model, ("worst",), needs_after=False),
    Stage("check", check_models, COUNTED, needs_after=False),
    Stage("plan", plan_models, PLACED, needs_after=False),
    Stage("padding", measure_padding, ("padding",)),
    Stage("device", run_on_device, ("crashes", "worst"), on_device=True),
    Stage("placement", profile_placement, PLACED, on_device=True),
    Stage("bench", time_models, ("ratio",)),
)
