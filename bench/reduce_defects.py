"""Plant known defects of a provider into exports, and reduce them again.

Run as ``python -m bench.reduce_defects [--ep dml] [--count 28] [--seed N] [--models FOLDER ...]``.
A defect that does not fail where it was put is not counted, and the next one takes its place. With
``--ep cpu`` one node of a repaired export is broken, and held to the export. Each result is a line
of ``build/reduce_defects.jsonl``; what is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

import graphfix
from bench.planted_defects import (
    NODE,
    broken_repairs,
    defects_to_plant,
    moderate_exports,
    name_of,
    plant_defect,
    shows_alone,
)
from graphfix.errors import GraphfixError
from graphfix.feeds.case_search import make_cases
from graphfix.providers.table import Ep
from graphfix.reducing.reduction import Reduction
from graphfix.runtime import process
from tests.survey.case import Case

Work = Callable[[float], dict[str, Any]]

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "build" / "reduce_defects.jsonl"
SMALL = 5
"""So many nodes at most are small."""


def works_of(ep: Ep, seed: int, exports: Sequence[Path]) -> Iterator[tuple[str, Path, Work]]:
    """Yield what defects are called, where they go, and what plants and reduces them."""
    if ep != "cpu":
        for number, case in enumerate(defects_to_plant(ep, seed)):
            path = exports[number % len(exports)]
            yield f"{ep}: {name_of(case)}", path, partial(reduce_defect, path, case, ep)
        return
    for number, path in enumerate(exports):
        for kind, tensor, broken in broken_repairs(path, seed + number):
            work = partial(reduce_repair, path, broken, tensor)
            yield f"{ep}: {kind} {path.stem} {tensor}", path, work


def reduce_defect(path: Path, case: Case, ep: Ep, budget: float) -> dict[str, Any]:
    """Reduce an export with a planted defect, and return what was seen."""
    if ep == "webgpu" and not shows_alone(case, ep):
        return {"error": "it does not fail alone"}
    planted = plant_defect(path, case)
    file = RESULTS.parent / "planted.onnx"
    onnx.save(planted, file)
    feeds = make_cases(graphfix.load(path))[0].feeds
    begin = time.monotonic()
    result = graphfix.reduce(file, ep=ep, feeds=feeds, budget=budget)
    seconds = time.monotonic() - begin
    return _row_of(result, seconds, is_there=NODE in {x.name for x in result.model.graph})


def reduce_repair(path: Path, broken: ir.Model, tensor: str, budget: float) -> dict[str, Any]:
    """Reduce a broken repair, held to its export, and return what was seen."""
    file = RESULTS.parent / "broken.onnx"
    graphfix.save(broken, file)
    begin = time.monotonic()
    result = graphfix.reduce(file, ep="cpu", original=path, budget=budget)
    seconds = time.monotonic() - begin
    made = {x.name for node in result.model.graph for x in node.outputs}
    return _row_of(result, seconds, is_there=tensor in made)


def _row_of(result: Reduction, seconds: float, *, is_there: bool) -> dict[str, Any]:
    ops = [x.op_type for x in result.model.graph]
    return {
        "before": result.nodes_before,
        "nodes": len(ops),
        "ops": ops,
        "has_defect": is_there,
        "tries": result.tries,
        "seconds": round(seconds, 1),
        "spent": result.spent,
        "failure": result.failure.text[:200],
        "passes": list(result.passes),
    }


def main() -> int:
    """Reduce planted defects, and print how many became small."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ep", default="dml")
    parser.add_argument("--count", type=int, default=28)
    parser.add_argument("--seed", type=int, default=60)
    parser.add_argument("--models", type=Path, nargs="+", default=[ROOT / "models"])
    parser.add_argument("--budget", type=float, default=60.0, help="for each reduction")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    RESULTS.parent.mkdir(exist_ok=True)
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    rows = {x["defect"]: x for x in map(json.loads, lines)}
    counted = 0
    exports = moderate_exports(options.models, options.seed)
    for name, path, work in works_of(options.ep, options.seed, exports):
        if counted >= options.count or time.monotonic() > end:
            break
        if name not in rows:
            row: dict[str, Any] = {"defect": name, "model": f"{path.parent.name}/{path.name}"}
            try:
                row |= work(options.budget)
            except (GraphfixError, ValueError) as error:  # often it does not show where it was put
                row["error"] = str(error)[:300]
            rows[name] = row
            with RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)
        counted += "nodes" in rows[name]
    process.stop_all()
    print(summary_of([x for x in rows.values() if x["defect"].startswith(f"{options.ep}:")]))
    return 0


def summary_of(rows: list[dict[str, Any]]) -> str:
    """Return how many defects became small, and how long that took."""
    reduced = [x for x in rows if "nodes" in x]
    small = [x for x in reduced if x["nodes"] <= SMALL and x["has_defect"] and x["seconds"] <= 60]
    seconds = sorted(x["seconds"] for x in reduced) or [0.0]
    return (
        f"{len(small)} of {len(reduced)} that fail have at most {SMALL} nodes within 60 s, the "
        f"defect among them; {seconds[len(seconds) // 2]} s in the median, {seconds[-1]} at most; "
        f"{len(rows) - len(reduced)} were not counted"
    )


if __name__ == "__main__":
    sys.exit(main())
