"""Files made of one export: what DirectML would do with them, and whether they compute the same.

    python bench/judge.py cpu EXPORT.onnx FILE.onnx ...
    python bench/judge.py dml EXPORT.onnx FILE.onnx ...

``cpu`` predicts kernels and errors of each file as ``graphfix plan`` and ``graphfix check`` do, and
compares it with the export on the CPU as ``graphfix verify`` does; ``dml`` runs it on DirectML at
the longest and the shortest usual size. All in one process, because making inputs and running the
export takes longer than the files do. A line of JSON is printed for each file, at once, so that
what a process found before it died is kept.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, cast

from graphfix.errors import GraphfixError
from graphfix.feeds.case import Case
from graphfix.feeds.case_search import make_cases
from graphfix.files import io
from graphfix.float16_search.trials import extreme_cases
from graphfix.job.checking import check
from graphfix.job.comparing import verify
from graphfix.job.planning import plan
from graphfix.proof.verify import BaselineCache, Options
from graphfix.providers.table import Ep
from graphfix.runtime import process

Json = dict[str, Any]


def predict(path: Path) -> Json:
    """Return the predicted kernels and errors of a run on DirectML, or why there are none."""
    try:
        prediction = plan(path)
        errors = [x for x in check(path, ep="dml") if x.severity == "error"]
    except GraphfixError as error:
        return {"kernels": None, "why": str(error)}
    return {
        "kernels": prediction.on_device,
        "cpu": prediction.steps_on("cpu"),
        "copies": prediction.steps_on("copy"),
        "recompiled": prediction.recompiled,
        "errors": len(errors),
        "why": "",
    }


def compare(ep: Ep, export: Path, path: Path, options: Options) -> Json:
    """Return whether a file runs on a provider, and computes what the export does on the CPU."""
    try:
        verdict = verify(export, path, ep=ep, locate=False, brief=True, **options)
    except GraphfixError as error:
        return {"ok": False, "runs": False, "worst": None, "why": str(error)}
    worst = verdict.worst
    return {
        "ok": verdict.ok,
        "runs": not verdict.reason,
        "worst": None if worst is None else worst.max_abs,
        "why": "" if verdict.ok else str(verdict),
    }


def main(ep: str, export: Path, files: list[Path]) -> None:
    """Judge each file."""
    provider = cast(Ep, ep)
    options: Options = {"held": BaselineCache()}
    if provider == "dml":
        cases: list[Case] = extreme_cases(list(make_cases(io.load(export))))
        options["cases"] = cases
    for path in files:
        found = compare(provider, export, path, options)
        if provider == "dml" and not found["runs"]:
            process.stop_all()  # a device that failed once may fail the next file
        print(json.dumps({"run": found, **({} if provider == "dml" else {"plan": predict(path)})}))
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), [Path(x) for x in sys.argv[3:]])
