"""Every operator and type that real exports use, at edge values: DirectML against the CPU.

``make edges`` (or ``python tests/dml/edges.py [OP ...]``) writes graphfix/directml/edges.csv: one
row for each operator, element type and kind of edge. Each graph has one node; it runs on the real
DirectML in another process, so that a crash is a row, and on ONNX Runtime's CPU provider. The
verdicts: ``same``; ``differs``; ``undefined``, a difference where ONNX promises nothing; ``fails``
with what was said; ``none``, for which DirectML has no kernel.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from edge_cases import OPSET, Graph, graphs
from onnx import TensorProto, helper

from graphfix.directml import facts
from graphfix.errors import GraphfixError
from graphfix.measure import runner
from graphfix.measure.runtime import Session

TABLE = Path(__file__).parents[2] / "graphfix" / "directml" / "edges.csv"
COLUMNS = ("op", "opset", "dtype", "edge", "verdict", "difference", "returned")
# A share of the largest number for float32; sums and functions are rounded differently.
_CLOSE = {"float16": 4e-3, "float32": 1e-4, "float64": 1e-4}


@dataclass
class Row:
    """One line of the table."""

    op: str
    dtype: str
    edge: str
    verdict: str
    difference: str = ""
    returned: str = ""
    opset: int = field(default=OPSET)


def model_of(graph: Graph) -> onnx.ModelProto:
    """The graph as a model of one node, whose inputs have symbolic dims."""
    first = next(iter(graph.edges.values()))
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(x.dtype), [f"{name}{i}" for i in range(x.ndim)]
        )
        for name, x in first.items()
    ]
    outputs = [f"out{i}" for i in range(graph.outputs)]
    node = helper.make_node(graph.op, graph.wires or list(first), outputs, **graph.attributes)
    constants = [onnx.numpy_helper.from_array(x, name) for name, x in graph.constants.items()]
    made = [helper.make_tensor_value_info(x, TensorProto.UNDEFINED, None) for x in outputs]
    for info in made:
        info.ClearField("type")
    body = helper.make_graph([node], graph.op, inputs, made, constants)
    return helper.make_model(body, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def has_kernel(graph: Graph, proto: onnx.ModelProto) -> bool:
    """Whether DirectML takes the operator with these types."""
    since = facts.since_version(graph.op, "", OPSET)
    kernel = None if since is None else facts.kernel_for(graph.op, "", since)
    if kernel is None:
        return False
    schema = facts.schema_of(graph.op, "", OPSET)
    assert schema is not None
    types = {x.name: x.type.tensor_type.elem_type for x in proto.graph.input}
    types |= {x.name: x.data_type for x in proto.graph.initializer}
    for i, name in enumerate(proto.graph.node[0].input):
        formal = schema.inputs[min(i, len(schema.inputs) - 1)]
        if name and not kernel.takes(str(formal.type_str), facts.ir.DataType(types[name])):
            return False
    to = graph.attributes.get("to")
    return to is None or kernel.takes("T2", facts.ir.DataType(to))


def study(graph: Graph, folder: Path) -> list[Row]:
    """Run one graph at each of its edges on both providers."""
    proto = model_of(graph)
    path = folder / "edge.onnx"
    onnx.save(proto, path)
    names = {"op": graph.op, "dtype": graph.dtype}
    if not has_kernel(graph, proto):
        return [Row(**names, edge="all", verdict="none")]
    rows = []
    try:
        cpu = Session(path, optimize=False)
    except GraphfixError as error:
        return [Row(**names, edge="all", verdict="none", returned=f"no CPU kernel: {error}"[:120])]
    try:
        dml = Session(path, ep="dml", optimize=False)
    except GraphfixError as error:
        return [Row(**names, edge="all", verdict="fails", returned=str(error)[:120])]
    with cpu, dml:
        for edge, feeds in graph.edges.items():
            try:
                want = cpu.run(feeds)
            except GraphfixError:
                continue  # the CPU refuses these numbers: nothing to hold against
            try:
                got = dml.run(feeds)
            except GraphfixError as error:
                rows.append(Row(**names, edge=edge, verdict="fails", returned=str(error)[:120]))
                continue
            verdict, gap, sample = compare(want, got, feeds)
            if verdict == "differs" and edge in graph.undefined:
                verdict = "undefined"
            rows.append(Row(**names, edge=edge, verdict=verdict, difference=gap, returned=sample))
    return rows


def compare(
    want: dict[str, Any], got: dict[str, Any], feeds: dict[str, Any]
) -> tuple[str, str, str]:
    """The verdict, the largest difference, and the first place that differs."""
    worst = 0.0
    for name, a in want.items():
        b = got[name]
        if a.shape != b.shape:
            return "differs", "", f"shape {list(b.shape)}, CPU {list(a.shape)}"
        if a.size == 0:
            continue
        x, y = a.reshape(-1), b.reshape(-1)
        if a.dtype.kind == "f":
            bad, gap = float_gap(x, y, _CLOSE[a.dtype.name])
        else:
            bad = x != y
            gap = max(
                (abs(int(p) - int(q)) for p, q in zip(x[bad], y[bad], strict=True)), default=0
            )
        worst = max(worst, float(gap))
        if bad.any():
            at = int(np.flatnonzero(bad)[0])
            given = next(iter(feeds.values()))
            source = f"{given.reshape(-1)[at]} -> " if given.shape == a.shape else f"[{at}] "
            return "differs", f"{gap:.4g}", f"{source}{y[at]}, CPU {x[at]}"
    return "same", f"{worst:.2g}" if worst else "0", ""


def float_gap(x: Any, y: Any, close: float) -> tuple[Any, float]:
    """Where two arrays differ by more than rounding, and by how much where both are finite."""
    with np.errstate(all="ignore"):
        p, q = x.astype(np.float64), y.astype(np.float64)
        finite = np.isfinite(p) & np.isfinite(q)
        gap = np.where(finite, np.abs(p - q), 0.0)
        scale = np.maximum(1.0, np.abs(np.where(np.isfinite(p), p, 0.0)))
        odd = ~finite & ~((p == q) | (np.isnan(p) & np.isnan(q)))
    return odd | (gap > close * scale), float(gap.max(initial=0.0))


def main(argv: list[str] | None = None) -> int:
    """Write the table, and print what differs or fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ops", nargs="*", help="operators; all by default, else only printed")
    options = parser.parse_args(argv)
    wanted = [x for x in graphs() if not options.ops or x.op in options.ops]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="graphfix-edges-") as folder:
        for graph in wanted:
            rows += study(graph, Path(folder))
            print(f"\r{graph.op} {graph.dtype}".ljust(60), end="", file=sys.stderr, flush=True)
    runner.stop_all()
    print(file=sys.stderr)
    if not options.ops:
        with TABLE.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows([getattr(row, x) for x in COLUMNS] for row in rows)
    for row in rows:
        if row.verdict in ("differs", "fails"):
            print(f"{row.op:20} {row.dtype:14} {row.edge:12} {row.verdict:8} {row.returned}")
    print(dict(Counter(row.verdict for row in rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
