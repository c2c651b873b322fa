"""Plant known defects of a provider into exports, and reduce them again.

Run as ``python -m bench.reduce_defects [--ep dml] [--count 40] [--seed N] [--models FOLDER]``.
A defect is a row of the edge table that differs on DirectML. Its node is put into an export that is
repaired: what it reads depends on a tensor in the middle, what it gives is part of the last output.
Each result is a line of ``build/reduce_defects.jsonl``; what is there is not run again.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

import graphfix
from graphfix.errors import GraphfixError
from graphfix.feeds.case_search import make_cases
from tests.survey.edge_cases import OPSET, Graph, graphs

ROOT = Path(__file__).resolve().parents[1]
EDGES = ROOT / "graphfix" / "providers" / "directml" / "edges.csv"
RESULTS = ROOT / "build" / "reduce_defects.jsonl"
BUDGET = 60.0


def defects_to_plant(count: int, seed: int) -> list[tuple[Graph, str]]:
    """Draw defects of the edge table, of as many operators as there are, the types mixed."""
    with EDGES.open(encoding="utf-8", newline="") as file:
        rows = [x for x in csv.DictReader(file) if x["verdict"] in ("differs", "fails")]
    graph_of = {(x.op, x.dtype): x for x in graphs()}
    drawn = random.Random(seed)
    drawn.shuffle(rows)
    by_op: dict[str, list[tuple[Graph, str]]] = {}
    for row in rows:
        graph = graph_of[row["op"], row["dtype"]]
        if graph.edges[row["edge"]] and row["edge"] != "empty":
            by_op.setdefault(graph.op, []).append((graph, row["edge"]))
    rounds = max(len(x) for x in by_op.values())
    mixed = [x[i] for i in range(rounds) for x in by_op.values() if i < len(x)]
    return mixed[:count]


def plant_defect(proto: onnx.ModelProto, graph: Graph, edge: str) -> onnx.ModelProto:
    """Return a copy of an export with the node of a defect in its middle."""
    planted = onnx.ModelProto()
    planted.CopyFrom(proto)
    opset = next(x.version for x in planted.opset_import if x.domain in ("", "ai.onnx"))
    if opset != OPSET:
        planted = onnx.version_converter.convert_version(planted, OPSET)
    body = planted.graph
    middle, end = _float_tensors(planted)
    place = 1 + next(i for i, x in enumerate(body.node) if middle in x.output)
    nodes = [
        helper.make_node("Shape", [middle], ["defect.shape"]),
        helper.make_node("Size", ["defect.shape"], ["defect.rank"]),
        helper.make_node("Less", ["defect.rank", "defect.limit"], ["defect.true"]),
    ]
    constants = {"defect.limit": np.array(99, np.int64)}
    constants |= {f"defect.{name}": array for name, array in graph.constants.items()}
    for name, array in graph.edges[edge].items():
        constants |= {f"defect.{name}.edge": array, f"defect.{name}.plain": np.ones_like(array)}
        nodes.append(
            helper.make_node(
                "Where",
                ["defect.true", f"defect.{name}.edge", f"defect.{name}.plain"],
                [f"defect.{name}"],
            )
        )
    wires = [x and f"defect.{x}" for x in graph.wires or graph.edges[edge]]
    outputs = [f"defect.out{i}" for i in range(graph.outputs)]
    nodes.append(helper.make_node(graph.op, wires, outputs, "the_defect", **graph.attributes))
    tail = [
        helper.make_node("Cast", [outputs[0]], ["defect.float"], to=TensorProto.FLOAT),
        helper.make_node("Reshape", ["defect.float", "defect.flat"], ["defect.row"]),
        helper.make_node("Reshape", [end, "defect.flat"], ["defect.end"]),
        helper.make_node("Concat", ["defect.row", "defect.end"], ["defect.result"], axis=0),
    ]
    constants["defect.flat"] = np.array([-1], np.int64)
    before, after = body.node[:place], body.node[place:]
    del body.node[:]
    body.node.extend([*before, *nodes, *after, *tail])
    body.initializer.extend(numpy_helper.from_array(x, name) for name, x in constants.items())
    del body.output[:]
    body.output.append(helper.make_tensor_value_info("defect.result", TensorProto.FLOAT, ["n"]))
    return planted


def _float_tensors(proto: onnx.ModelProto) -> tuple[str, str]:
    """Return a tensor in the middle of an export, and its last output of floats."""
    floats = [
        x.name for x in proto.graph.output if x.type.tensor_type.elem_type == TensorProto.FLOAT
    ]
    names = [x for node in proto.graph.node for x in node.output if x]
    return names[len(names) // 2], floats[-1]


def reduce_defect(path: Path, graph: Graph, edge: str, ep: str, folder: Path) -> dict[str, Any]:
    """Reduce an export with a planted defect, and return what was seen."""
    export = ir.from_proto(onnx.load(path))  # with its weights
    graphfix.run(export, "directml")  # so that nothing else fails
    planted = plant_defect(ir.to_proto(export), graph, edge)
    file = folder / "planted.onnx"
    onnx.save(planted, file)
    feeds = make_cases(graphfix.load(path))[0].feeds
    begin = time.monotonic()
    result = graphfix.reduce(file, ep=ep, feeds=feeds, budget=BUDGET)
    seconds = time.monotonic() - begin
    ops = [x.op_type for x in result.model.graph]
    return {
        "before": len(planted.graph.node),
        "nodes": len(ops),
        "ops": ops,
        "has_defect": graph.op in ops,
        "tries": result.tries,
        "seconds": round(seconds, 1),
        "failure": result.failure.text,
        "passes": list(result.passes),
    }


def iter_exports(folder: Path, seed: int) -> Iterator[Path]:
    """Yield exports that are float32 and of a moderate size, in an order drawn at random."""
    files = sorted(folder.rglob("*.onnx"))
    random.Random(seed).shuffle(files)
    yield from (x for x in files if "+" not in x.name)


def main() -> int:
    """Reduce planted defects, and print how many became small."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ep", default="dml")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=60)
    parser.add_argument("--models", type=Path, default=ROOT / "models")
    options = parser.parse_args()
    RESULTS.parent.mkdir(exist_ok=True)
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    rows = {x["defect"]: x for x in map(json.loads, lines)}
    exports = list(iter_exports(options.models, options.seed))
    for number, (graph, edge) in enumerate(defects_to_plant(options.count, options.seed)):
        name = f"{options.ep}: {graph.op} {graph.dtype} {edge}"
        if name in rows:
            continue
        path = exports[number % len(exports)]
        row: dict[str, Any] = {"defect": name, "model": path.parent.name + "/" + path.name}
        try:
            row |= reduce_defect(path, graph, edge, options.ep, RESULTS.parent)
        except GraphfixError as error:  # often it does not show where it was put
            row["error"] = str(error)[:300]
        rows[name] = row
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)
    reduced = [x for x in rows.values() if "nodes" in x]
    small = [x for x in reduced if x["nodes"] <= 5 and x["has_defect"]]
    print(f"{len(small)} of {len(reduced)} that fail have at most 5 nodes, the defect among them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
