"""Every operator and type that real exports use, at edge values: DirectML against the CPU.

``make edges`` (or ``python tests/dml/edges.py [OP ...]``) writes edges.csv of its facts: one row
for each operator, element type and kind of edge. Each graph has one node; it runs on the real
DirectML, in another process, so that a crash is a row, and on ONNX Runtime's CPU provider. The
verdicts: ``same``; ``differs``; ``undefined``, a difference where ONNX promises nothing; ``fails``,
with what was said; ``none``, for which DirectML has no kernel.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from edge_cases import OPSET, Array, Graph, graphs
from onnx import helper

from graphfix.errors import GraphfixError
from graphfix.ops.schemas import schema_of
from graphfix.providers import kernels
from graphfix.providers.directml import kernel_table
from graphfix.runtime import process
from graphfix.runtime.local_session import Session
from graphfix.runtime.run_errors import RunError

if TYPE_CHECKING:
    from collections.abc import Sequence

TABLE = Path(__file__).parents[2] / "graphfix" / "providers" / "directml" / "edges.csv"
COLUMNS = ("op", "opset", "dtype", "edge", "verdict", "difference", "returned")
# A share of the largest number for float32; sums and functions are rounded differently.
# So many nodes share a session. With 12, the software driver was seen to return what lay in memory.
_TOGETHER = 1
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


def model_of(group: Sequence[Graph]) -> onnx.ModelProto:
    """Graphs as a model with one node for each, side by side; all inputs have symbolic dims."""
    inputs, nodes, constants, outputs = [], [], [], []
    for k, graph in enumerate(group):
        first = next(iter(graph.edges.values()))
        for name, x in first.items():
            dtype = helper.np_dtype_to_tensor_dtype(x.dtype)
            dims = [f"g{k}{name}{i}" for i in range(x.ndim)]
            inputs.append(helper.make_tensor_value_info(f"g{k}{name}", dtype, dims))
        made = [f"g{k}out{i}" for i in range(graph.outputs)]
        wires = [f"g{k}{x}" for x in graph.wires or first]
        nodes.append(helper.make_node(graph.op, wires, made, **graph.attributes))
        constants += [
            onnx.numpy_helper.from_array(x, f"g{k}{name}") for name, x in graph.constants.items()
        ]
        outputs += [onnx.ValueInfoProto(name=x) for x in made]
    body = helper.make_graph(nodes, "edges", inputs, outputs, constants)
    return helper.make_model(body, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def has_kernel(graph: Graph, proto: onnx.ModelProto) -> bool:
    """Whether DirectML takes the operator with these types."""
    since = kernels.since_version(graph.op, "", OPSET)
    kernel = None if since is None else kernel_table.kernel_for(graph.op, "", since)
    if kernel is None:
        return False
    schema = schema_of(graph.op, OPSET)
    assert schema is not None
    types = {x.name: x.type.tensor_type.elem_type for x in proto.graph.input}
    types |= {x.name: x.data_type for x in proto.graph.initializer}
    for i, name in enumerate(proto.graph.node[0].input):
        formal = schema.inputs[min(i, len(schema.inputs) - 1)]
        if name and not kernel.accepts_type(
            str(formal.type_str), kernel_table.ir.DataType(types[name])
        ):
            return False
    to = graph.attributes.get("to")
    return to is None or kernel.accepts_type("T2", kernel_table.ir.DataType(to))


@dataclass
class Job:
    """A graph that DirectML has a kernel for, and what the CPU says at each edge that it runs."""

    graph: Graph
    want: dict[str, dict[str, Array]]

    def row(self, edge: str, verdict: str, difference: str = "", returned: str = "") -> Row:
        """A line of the table."""
        return Row(self.graph.op, self.graph.dtype, edge, verdict, difference, returned)


def prepared(graph: Graph, folder: Path) -> Job | Row:
    """The graph run on the CPU, or the line that says why it is not compared with DirectML."""
    proto = model_of([graph])
    if not has_kernel(graph, proto):
        return Row(graph.op, graph.dtype, "all", "none")
    path = folder / "cpu.onnx"
    onnx.save(proto, path)
    job = Job(graph, {})
    try:
        with Session(path, optimize=False) as session:
            for edge, feeds in graph.edges.items():
                with contextlib.suppress(RunError):  # the CPU refuses these numbers
                    job.want[edge] = session.run({f"g0{k}": x for k, x in feeds.items()})
    except GraphfixError as error:
        return Row(graph.op, graph.dtype, "all", "none", "", f"no CPU kernel: {error}"[:120])
    return job


def study(jobs: Sequence[Job], folder: Path) -> list[Row]:
    """Run graphs on DirectML, in one session; each alone if one of them fails."""
    path = folder / "dml.onnx"
    onnx.save(model_of([job.graph for job in jobs]), path)
    rows: list[Row] = []
    done = 0
    rounds = max(len(job.want) for job in jobs)
    try:
        with Session(path, ep="dml", optimize=False) as session:
            for done in range(rounds):
                edges = [list(job.want)[min(done, len(job.want) - 1)] for job in jobs]
                feeds = {
                    f"g{k}{name}": x
                    for k, (job, edge) in enumerate(zip(jobs, edges, strict=True))
                    for name, x in job.graph.edges[edge].items()
                }
                got = session.run(feeds)
                for k, (job, edge) in enumerate(zip(jobs, edges, strict=True)):
                    if done < len(job.want):
                        rows.append(judged(job, edge, {x: got[x] for x in got if _is_of(x, k)}))
    except GraphfixError as error:
        if len(jobs) > 1:
            return [row for job in jobs for row in study([job], folder)]
        edge = list(jobs[0].want)[done] if rows or done else next(iter(jobs[0].want))
        rows.append(jobs[0].row(edge, "fails", "", str(error)[:120]))
        if rest := dict(list(jobs[0].want.items())[done + 1 :]):
            rows += study([Job(jobs[0].graph, rest)], folder)
    return rows


def _is_of(name: str, k: int) -> bool:
    return name.startswith(f"g{k}out")


def judged(job: Job, edge: str, got: dict[str, Array]) -> Row:
    """The line for one edge."""
    feeds = job.graph.edges[edge]
    want = {f"out{i}": x for i, x in enumerate(job.want[edge].values())}
    verdict, gap, sample = compare(want, dict(zip(want, got.values(), strict=True)), feeds)
    if verdict == "differs" and edge in job.graph.undefined:
        verdict = "undefined"
    return job.row(edge, verdict, gap, sample)


def compare(
    want: dict[str, Array], got: dict[str, Array], feeds: dict[str, Array]
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


def float_gap(x: Array, y: Array, close: float) -> tuple[Array, float]:
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
    with tempfile.TemporaryDirectory(prefix="graphfix-edges-") as scratch:
        folder = Path(scratch)
        found = [prepared(graph, folder) for graph in wanted]
        rows = [x for x in found if isinstance(x, Row)]
        jobs = [x for x in found if isinstance(x, Job) and x.want]
        for start in range(0, len(jobs), _TOGETHER):
            group = jobs[start : start + _TOGETHER]
            print(f"{start} of {len(jobs)}: {group[0].graph.op}", file=sys.stderr, flush=True)
            new = study(group, folder)
            rows += new
            for row in new:
                if row.verdict in ("differs", "fails"):
                    print(
                        f"{row.op:20} {row.dtype:14} {row.edge:12} {row.verdict:8} {row.returned}"
                    )
            sys.stdout.flush()
    process.stop_all()
    if not options.ops:
        with TABLE.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            lines = [[str(getattr(row, x)) for x in COLUMNS] for row in rows]
            writer.writerows(sorted(lines, key=lambda line: (line[0], line[2])))
    print(dict(Counter(row.verdict for row in rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
