"""What is left in the zoo after graphfix, counted without graphfix's own eyes.

Run as ``python tests/exports/counts.py [NAME ...]``, or ``make counts``. Of each: mask Wheres,
the index Ranges and the head Reshapes before and after the profile, counted on the plain protobuf,
the reason for every one that is left, and the worst difference between the outputs before and
after, at each of the recipe's lengths.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib.util
import json
import os
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx import numpy_helper

import graphfix
from graphfix.feeds.full_lengths import add_full_lengths

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(os.environ.get("GRAPHFIX_ZOO", Path(__file__).parents[3] / "shared" / "zoo"))
# Layout and element-wise operators that scores pass on their way to a Softmax.
THROUGH = frozenset(
    {"Add", "Sub", "Mul", "Div", "Cast", "Reshape", "Transpose", "Unsqueeze", "Squeeze", "Expand"}
    | {"Identity", "Min", "Max", "Clip", "Slice", "Concat", "Flatten", "Where"}
)
INDEX = ("Reshape", "Unsqueeze", "Expand")


class Plain:
    """A model as protobuf, with who makes and who uses each tensor."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.nodes = list(_all_nodes(model.graph))
        self.makes = {name: node for node in self.nodes for name in node.output}
        self.uses: dict[str, list[onnx.NodeProto]] = {}
        for node in self.nodes:
            for name in node.input:
                self.uses.setdefault(name, []).append(node)
        given = {x.name for x in model.graph.input}
        self.constants = {
            x.name: numpy_helper.to_array(x)
            for x in model.graph.initializer
            if x.name not in given and int(np.prod(x.dims, dtype=np.int64)) <= 4096
        }
        for node in self.nodes:
            if node.op_type == "Constant":
                self.constants[node.output[0]] = _constant(node)

    def masks(self) -> list[onnx.NodeProto]:
        """Every Where with a very low fill whose output reaches a Softmax."""
        return [
            node
            for node in self.nodes
            if node.op_type == "Where"
            and any(self._is_low(name) for name in node.input[1:])
            and self._reaches_softmax(node.output[0])
        ]

    def ranges(self) -> list[onnx.NodeProto]:
        """Every Reshape, Unsqueeze or Expand of a Range that is not fixed, through Casts."""
        return [
            node for node in self.nodes if node.op_type in INDEX and self._from_range(node.input[0])
        ]

    def reshapes(self) -> list[onnx.NodeProto]:
        """Every Reshape whose target is computed."""
        return [
            node
            for node in self.nodes
            if node.op_type == "Reshape" and node.input[1] not in self.constants
        ]

    def _is_low(self, name: str) -> bool:
        array = self.constants.get(name)
        node = self.makes.get(name)
        if array is None and node is not None and node.op_type in ("Expand", "Unsqueeze"):
            return self._is_low(node.input[0])
        if array is None and node is not None and node.op_type == "ConstantOfShape":
            array = _constant(node)
        return (
            array is not None
            and array.dtype.kind == "f"
            and array.size > 0
            and bool((array.astype(np.float64) <= -1e3).all())
        )

    def _reaches_softmax(self, name: str) -> bool:
        pending, seen = [name], {name}
        while pending:
            for node in self.uses.get(pending.pop(), []):
                if node.op_type == "Softmax":
                    return True
                for made in node.output if node.op_type in THROUGH else ():
                    if made not in seen:
                        seen.add(made)
                        pending.append(made)
        return False

    def _from_range(self, name: str) -> bool:
        node = self.makes.get(name)
        while node is not None and node.op_type in ("Cast", "Identity"):
            node = self.makes.get(node.input[0])
        if node is None or node.op_type != "Range":
            return False
        return not all(x in self.constants for x in node.input)


def _all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _all_nodes(attribute.g)


def _constant(node: onnx.NodeProto) -> np.ndarray:
    for attribute in node.attribute:
        if attribute.name == "value":
            return numpy_helper.to_array(attribute.t)
        value = onnx.helper.get_attribute_value(attribute)
        return np.asarray(value)
    return np.zeros(1, np.float32)


@dataclass
class Row:
    """One model, before and after."""

    name: str
    before: dict[str, int]
    after: dict[str, int]
    reasons: dict[str, Counter[str]]
    difference: float | None = None
    errors: list[str] = field(default_factory=list)


def models() -> list[dict[str, Any]]:
    """The rows of models.jsonl, or none where there is no zoo."""
    file = ROOT / "models.jsonl"
    if not file.is_file():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def recipes() -> Any:
    """The zoo's own maker of inputs."""
    spec = importlib.util.spec_from_file_location("recipes", ROOT / "recipes.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def count(model: onnx.ModelProto) -> dict[str, int]:
    """The three kinds of site in a model."""
    plain = Plain(model)
    return {
        "masks": len(plain.masks()),
        "ranges": len(plain.ranges()),
        "reshapes": len(plain.reshapes()),
    }


def session(proto: onnx.ModelProto) -> ort.InferenceSession:
    """A session on the CPU that says nothing."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return ort.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


class RejectedError(Exception):
    """ONNX Runtime does not load an export as it was given.

    1.24.4 rejects LayerNormalizations in float16 that are written out with constants of their own:
    its fusion asks for the input ``InsertedPrecisionFreeCast_...`` under the name of before.
    """


@functools.lru_cache(maxsize=2)  # the tests of one model follow each other
def asked(name: str) -> list[tuple[dict[str, np.ndarray], list[np.ndarray]]]:
    """Inputs and outputs of a model as it was exported, a pair for each case of its recipe.

    It runs here: the zoo's golden outputs came from another machine, whose int8 kernels differ.
    """
    row = next(x for x in models() if x["name"] == name)
    try:
        ran = session(onnx.load(_file(name)))
    except Exception as error:
        raise RejectedError(str(error)[:200]) from error
    maker = recipes()
    golden = np.load(ROOT / "golden" / f"{name}.npz")
    cases = {key.split("|")[0] for key in golden}
    pairs = []
    for case in row["recipe"]["cases"]:
        if case["name"] not in cases:  # the model cannot run this case as it was exported
            continue
        # A recipe may name an input that the exporter dropped because nothing used it.
        feeds = maker.gen_inputs(row["recipe"], case["name"])
        feeds = {x.name: feeds[x.name] for x in ran.get_inputs()}
        pairs.append((feeds, ran.run(None, feeds)))
    return pairs


def worst_difference(name: str, fixed: onnx.ModelProto) -> float:
    """The worst difference between a model and what it became, over every case of the recipe."""
    ran, graph, worst = session(fixed), ir.from_proto(fixed), 0.0
    for feeds, wanted in asked(name):
        for want, got in zip(wanted, ran.run(None, add_full_lengths(graph, feeds)), strict=True):
            if want.shape != got.shape:
                return float("inf")
            there = np.isfinite(want)
            gap = np.abs(got[there].astype(np.float64) - want[there].astype(np.float64))
            worst = max(worst, float(gap.max(initial=0.0)))
    return worst


def study(row: dict[str, Any], spec: str = "directml") -> Row:
    """Repair one model of the zoo and count what is left."""
    model = graphfix.load(_file(row["name"]))
    given = onnx.load(_file(row["name"]))
    before = _bytes(model)
    report = graphfix.run(model, spec)
    fixed = ir.to_proto(model)
    reasons = {p.name: Counter(why for _, why in p.skips) for p in report.passes}
    result = Row(row["name"], count(given), count(fixed), reasons)
    if _bytes(model) == before:  # byte for byte: nothing that could run otherwise
        result.difference = 0.0
        return result
    if graphfix.run(model, spec).changed:
        result.errors.append("a second run changes the graph again")
    if row["status"] == "ok":
        result.difference = worst_difference(row["name"], fixed)
    return result


def _file(name: str) -> Path:
    return ROOT / "models" / f"{name}.onnx"


def _bytes(model: ir.Model) -> bytes:
    return ir.to_proto(model).SerializeToString(deterministic=True)


def main(argv: list[str] | None = None) -> int:
    """Print the table; 1 if a repair changed the numbers or a second run changed the graph."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="models of the zoo; all by default")
    parser.add_argument("-p", "--passes", default="directml")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--atol", type=float, default=1e-4)
    options = parser.parse_args(argv)
    rows = [r for r in models() if not options.names or r["name"] in options.names]
    if not rows:
        print(f"no zoo at {ROOT}; set GRAPHFIX_ZOO", file=sys.stderr)
        return 2
    studied = [study(row, options.passes) for row in rows]
    if options.json:
        print(json.dumps([dataclasses.asdict(r) for r in studied], indent=1))
    else:
        show(studied)
    bad = [r for r in studied if r.errors or (r.difference or 0.0) > options.atol]
    for r in bad:
        print(f"{r.name}: difference {r.difference}, {r.errors}", file=sys.stderr)
    return 1 if bad else 0


def show(rows: list[Row]) -> None:
    """The table, the sums, and the reason for every site that is left."""
    print(f"{'model':44} {'masks':>9} {'ranges':>9} {'reshapes':>9} {'worst':>9}")
    for r in rows:
        pairs = [f"{r.before[k]}→{r.after[k]}" for k in r.before]
        gap = "-" if r.difference is None else f"{r.difference:.1e}"
        print(f"{r.name:44} {pairs[0]:>9} {pairs[1]:>9} {pairs[2]:>9} {gap:>9}")
    for kind in ("masks", "ranges", "reshapes"):
        before, after = (sum(getattr(r, x)[kind] for r in rows) for x in ("before", "after"))
        print(f"{kind}: {before} before, {after} after")
    reasons: dict[str, Counter[str]] = {}
    for r in rows:
        for name, counted in r.reasons.items():
            reasons.setdefault(name, Counter()).update(counted)
    for name, counted in reasons.items():
        print(f"\nleft alone by {name}:")
        for why, times in counted.most_common():
            print(f"  {times:4} {why}")


if __name__ == "__main__":
    sys.exit(main())
