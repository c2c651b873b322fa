"""What is done with each model: stages, one function each, that give plain data.

A stage gets the :class:`ZooJob` and returns a dict for JSON. One key of it means something to
others: ``figures`` (see :mod:`graphfix.model_zoo.figures`) goes into the table and to the gates.
A new stage is a function here, and a line in ``STAGES``.
"""

import dataclasses
import time
from collections import Counter

from graphfix.benchmark import bench as measure
from graphfix.engine import pipeline
from graphfix.errors import GraphfixError
from graphfix.files import io
from graphfix.job import checking, planning
from graphfix.lengths.length_input import LengthInput
from graphfix.model_zoo import clock, figures
from graphfix.model_zoo.device import directml, placement
from graphfix.model_zoo.figures import PLACED, Json, figure
from graphfix.model_zoo.zoo_job import Stage, ZooJob
from graphfix.probing.padded import padded


def run(job: ZooJob) -> dict[str, Json]:
    """Do all stages in order; one that fails says why, and those that need its result why not."""
    for stage in STAGES:
        if stage.only_dml and job.ep != "dml":
            result: Json = {"skipped": "measured on DirectML only: --ep dml"}
        elif stage.needs_after and not job.after.is_file():
            result = {"skipped": "there is no repaired model"}
        else:
            job.tell(stage.name)
            result = _timed(stage, job)
        why = result.get("skipped") or result.get("error")
        if why is not None:
            result["figures"] = {name: figure(None, None, why) for name in stage.measures}
        job.results[stage.name] = result
    return job.results


def _timed(stage: Stage, job: ZooJob) -> Json:
    start = time.perf_counter()
    try:
        result = stage.work(job)
    except GraphfixError as error:
        result = {"error": str(error)}
    except Exception as error:  # a fault of ours, in one model of many: the others go on
        result = {"error": f"unexpected {type(error).__name__}: {error}"}
    return {**result, "seconds": round(time.perf_counter() - start, 3)}


def repair(job: ZooJob) -> Json:
    """Repair and verify, as ``graphfix run`` does; the result is its report."""
    report = job.repaired(job.after)
    data = report.to_json()
    # Where the files were for a moment, perhaps on another machine, says nothing later.
    data.update(source=job.before.name, output=None)
    worst = None if report.verdict is None else report.verdict.worst
    gap = None if worst is None else worst.max_abs
    measured = {"worst": figure(None, gap, "the original is what is compared with")}
    return {**data, "figures": measured}


def check(job: ZooJob) -> Json:
    """What ``graphfix check`` finds before and after, and what is counted without its eyes."""
    sides: dict[str, Json] = {}
    for side, path in (("before", job.before), ("after", job.after)):
        if not path.is_file():
            continue
        model = io.load(path)
        found = [dataclasses.asdict(f) for f in checking.check(model, job.recipe.passes)]
        sides[side] = {
            "findings": found,
            "left": dict(Counter(f["rule"] for f in found if f["severity"] != "note")),
            "counts": {
                "mask-wheres": figures.mask_wheres(model),
                "dynamic-reshapes": figures.dynamic_reshapes(model),
                "findings": sum(f["severity"] != "note" for f in found),
                "nodes": sum(pipeline.count_ops(model).values()),
            },
        }
    before, after = sides["before"]["counts"], sides.get("after", {}).get("counts", {})
    why = "there is no repaired model"
    counted = {name: figure(before[name], after.get(name), why) for name in before}
    return {**sides, "figures": counted}


def plan(job: ZooJob) -> Json:
    """Where the nodes of both will run on DirectML, predicted on any machine."""
    found: Json = {
        "before": planning.glance(job.before),
        "after": planning.glance(job.after) if job.after.is_file() else None,
    }
    first, second = ((found[side] or {"run": {}})["run"] for side in ("before", "after"))
    why = "ONNX Runtime rejects it" if job.after.is_file() else "there is no repaired model"
    pairs = {name: (first.get(key), second.get(key)) for name, key in _FORESEEN.items()}
    return {"plan": found, "figures": {name: figure(*pair, why) for name, pair in pairs.items()}}


_FORESEEN = {"fused-graphs": "graphs", "copies": "copies", "cpu-nodes": "cpu"}


def padding(job: ZooJob) -> Json:
    """What padding does to the clip: as exported, and after the repair if that was told lengths."""
    if LengthInput.of(io.load(job.after)) is None:
        return {"skipped": "no padding pass was run, see ilens-mask"}
    dims = job.recipe.dims or None
    loose = padded(job.before, dims=dims, tolerance=job.tolerance)
    tight = padded(job.after, original=job.before, dims=dims, tolerance=job.tolerance, ep=job.ep)
    gaps = [None if x.worst is None else float(x.worst.diff.max_abs) for x in (loose, tight)]
    return {
        "before": loose.to_json(),
        "after": tight.to_json(),
        "figures": {"padding": figure(gaps[0], gaps[1], "nothing was compared")},
    }


def bench(job: ZooJob) -> Json:
    """How long both take: one model a process, processes in turn."""
    asked, careful = job.recipe.bench, bool(job.recipe.bench.get("careful"))
    said: Json = {name: asked.get(name) for name in ("dims", "other", "processes", "runs")}
    known = None if careful else clock.today(job.ep)
    done = measure.bench(
        [job.before, job.after],
        ep=job.ep,
        **said,
        seconds=None if careful or job.ep == "dml" else _QUICK_SECONDS,
        careful=careful,
        fixed=False,  # the page looks at the first setup alone
        copy=known is None,
        tolerance=job.tolerance,
        progress=job.tell,
    )
    claim = done.models[1].claim
    why = next((one.error for one in done.models if one.error), "the original is what it is of")
    if claim is None or claim.ratio is None:
        ratio = figure(None, None, why if claim is None else f"{figures.CANNOT_TELL}: {claim.why}")
    else:
        ratio = figure(None, claim.ratio.value, why)
        ratio["interval"] = (claim.ratio.low, claim.ratio.high)
    found = done.to_json()
    found["models"] = [
        # The page and the gates look at the first setup: any shape, or the only one there is.
        {**one, "model": side, **next(iter(one["setups"].values()), {}), "ok": one["ok"]}
        for one, side in zip(found["models"], ("before", "after"), strict=True)
    ]
    same = found["models"][0].get("copy", {}).get("steady")
    if same is not None:
        clock.keep(job.ep, same)
    return {**found, "clock": known, "careful": careful, "figures": {"ratio": ratio}}


_QUICK_SECONDS = 0.02
"""How long steady runs go on in a process that says first what the careful clock may say better."""
COUNTED = ("mask-wheres", "dynamic-reshapes", "findings", "nodes")

STAGES = (
    Stage("repair", repair, ("worst",), needs_after=False),
    Stage("check", check, COUNTED, needs_after=False),
    Stage("plan", plan, PLACED, needs_after=False),
    Stage("padding", padding, ("padding",)),
    Stage("directml", directml, ("crashes", "worst"), only_dml=True),
    Stage("placement", placement, PLACED, only_dml=True),
    Stage("bench", bench, ("ratio",)),
)
