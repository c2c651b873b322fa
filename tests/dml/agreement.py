"""How often ``graphfix plan`` is right, over a zoo of models, compared with the real DirectML.

Run as ``python tests/dml/agreement.py [NAME ...]`` or ``make agreement``. Each model is planned and
asked of DirectML as it was exported, after the profile ``directml`` and with its dims fixed, after
``fast`` and with its dims fixed; a node is right if it is where it was predicted (in a fused graph,
on DirectML by itself, on the CPU, or gone), a model if the numbers of its fused graphs and of its
kernels are exact.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx_ir as ir

import graphfix
from graphfix.directml.agreement import Agreement, compare
from graphfix.errors import GraphfixError
from graphfix.job.planning import plan
from graphfix.runtime import process, python
from graphfix.runtime.assignment import Placement, placement

ROOT = Path(os.environ.get("GRAPHFIX_ZOO", Path(__file__).parents[3] / "shared" / "zoo"))
# Each by the profile that makes it, and whether the dims are fixed then.
STATES = {
    "exported": ("", False),
    "repaired": ("directml", False),
    "fixed": ("directml", True),
    "fast": ("fast", False),
    "fast-fixed": ("fast", True),
}


@dataclass
class Row:
    """One model in one state."""

    name: str
    state: str
    agreement: Agreement | None = None
    error: str = ""
    wrong: Counter[str] = field(default_factory=Counter)


def rows(names: list[str]) -> list[dict[str, Any]]:
    """The zoo's models that ONNX Runtime loads."""
    file = ROOT / "models.jsonl"
    if not file.is_file():
        return []
    found = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return [x for x in found if not names or x["name"] in names]


def recipes() -> Any:
    """The zoo's own maker of inputs."""
    spec = importlib.util.spec_from_file_location("recipes", ROOT / "recipes.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sizes(row: dict[str, Any]) -> dict[str, int]:
    """The size of each symbolic dim in the first case of the model's recipe."""
    feeds = recipes().gen_inputs(row["recipe"], row["recipe"]["cases"][0]["name"])
    found: dict[str, int] = {}
    for given in row["inputs"]:
        for dim, size in zip(given["shape"], feeds[given["name"]].shape, strict=True):
            if isinstance(dim, str):
                found.setdefault(dim, size)
    return found


def asked(model: ir.Model, keep: Path | None, name: str) -> Placement:
    """What DirectML says of a model; or what it said before, if that was kept."""
    if keep is None:
        return placement(model)
    graph, facts = keep / f"{name}.onnx", keep / f"{name}.json"
    if not facts.is_file():
        found = placement(model)
        ir.save(found.model, graph)
        known = dataclasses.asdict(dataclasses.replace(found, model=None))
        facts.write_text(json.dumps(known | {"fused": sorted(found.fused)}))
    known = json.loads(facts.read_text())
    known |= {"graphs": tuple(known["graphs"]), "fused": frozenset(known["fused"])}
    return Placement(**{**known, "model": ir.load(graph)})


def study(row: dict[str, Any], state: str, keep: Path | None) -> Row:
    """Plan one model in one state, ask DirectML, compare."""
    result = Row(row["name"], state)
    try:
        model = graphfix.load(ROOT / "models" / f"{row['name']}.onnx")
        profile, fixed = STATES[state]
        if profile:
            graphfix.run(model, profile)
        if fixed:
            given = ":".join(f"{k}={v}" for k, v in sizes(row).items())
            if not given:
                result.error = "has no symbolic dim"
                return result
            graphfix.run(model, f"fix-dims:{given}")
        predicted = plan(model)
        result.agreement = compare(predicted, model, asked(model, keep, f"{row['name']}.{state}"))
    except GraphfixError as error:
        result.error = str(error)
    return result


def main(argv: list[str] | None = None) -> int:
    """Print the figures; 1 if they are below what is promised."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="models of the zoo; all by default")
    parser.add_argument("--state", choices=STATES, action="append", help="all by default")
    parser.add_argument(
        "--keep", type=Path, help="a folder for what DirectML said, which is asked once"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="every wrong node")
    options = parser.parse_args(argv)
    todo = rows(options.names)
    if not todo:
        print(f"no zoo at {ROOT}; set GRAPHFIX_ZOO", file=sys.stderr)
        return 2
    try:
        if not python.native():
            python.find()
    except GraphfixError as error:
        print(error, file=sys.stderr)
        return 2
    done: list[Row] = []
    for state in options.state or STATES:
        for row in todo:
            done.append(study(row, state, options.keep))
            show(done[-1], verbose=options.verbose)
    process.stop_all()
    return summary(done)


def show(row: Row, *, verbose: bool) -> None:
    """One line for a model, and what is wrong about it."""
    if row.agreement is None:
        print(f"{row.name:44} {row.state:9} left out: {row.error[:60]}", flush=True)
        return
    a = row.agreement
    print(
        f"{row.name:44} {row.state:9} {a.right:4}/{a.total:<4} "
        f"graphs {a.graphs[0]}/{a.graphs[1]} copies {a.copies[0]}/{a.copies[1]} "
        f"steps {a.steps[0]}/{a.steps[1]}",
        flush=True,
    )
    seen = Counter(f"{x.op}: predicted {x.predicted}, is {x.found} ({x.why})" for x in a.wrong)
    for text, times in seen.most_common(None if verbose else 3):
        print(f"    {times} x {text}")


def summary(done: list[Row]) -> int:
    """The figures over all models."""
    known = [x.agreement for x in done if x.agreement is not None]
    right, total = sum(x.right for x in known), sum(x.total for x in known)
    exact = sum(x.graphs[0] == x.graphs[1] for x in known)
    copies = sum(x.copies[0] == x.copies[1] for x in known)
    steps = sum(x.steps[0] == x.steps[1] for x in known)
    print(f"\nnodes placed right: {right} of {total}, {100 * right / max(total, 1):.2f} %")
    print(f"models with the exact number of fused graphs: {exact} of {len(known)}")
    print(f"models with the exact number of copies: {copies} of {len(known)}")
    print(f"models with the exact number of kernels: {steps} of {len(known)}")
    left = Counter(x.error for x in done if x.agreement is None)
    for reason, times in left.most_common():
        print(f"left out: {times} x {reason[:120]}")
    causes: Counter[str] = Counter()
    for one in known:
        causes.update(f"{x.op}: predicted {x.predicted}, is {x.found}" for x in one.wrong)
    for cause, times in causes.most_common(12):
        print(f"  {times:4} {cause}")
    good = right >= 0.99 * total and min(exact, steps) >= 0.9 * len(known)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
