"""Every operator and type that real exports use, at edge values: a provider against the CPU.

``make edges`` (or ``python -m tests.survey.edges --ep dml [OP ...]``) writes edges.csv of the
provider's facts: one row for each operator, element type and kind of edge. Each graph has one node;
it runs on the real provider, in another process, so that a crash is a row, and on ONNX Runtime's
CPU provider. The verdicts: ``same``; ``differs``; ``undefined``, a difference where ONNX promises
nothing; ``fails``, with what was said; ``none``, for which the provider has no kernel.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper

from graphfix.errors import GraphfixError
from graphfix.runtime import process
from graphfix.runtime.local_session import Session
from graphfix.runtime.run_errors import RunError
from tests.survey.edge_cases import OPSET, Array, Graph, graphs
from tests.survey.journal import add_lines, read_journal
from tests.survey.surveyed import Surveyed, named
from tests.survey.versions import merge_lines, write_table

if TYPE_CHECKING:
    from collections.abc import Sequence

COLUMNS = ("op", "opset", "dtype", "edge", "verdict", "difference", "returned", "versions")
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


@dataclass
class Job:
    """A graph that the provider has a kernel for, and what the CPU says at each edge."""

    graph: Graph
    want: dict[str, dict[str, Array]]

    def row(self, edge: str, verdict: str, difference: str = "", returned: str = "") -> Row:
        """A line of the table."""
        return Row(self.graph.op, self.graph.dtype, edge, verdict, difference, returned)


def prepared(graph: Graph, device: Surveyed, folder: Path) -> Job | Row:
    """The graph run on the CPU, or the line that says why it is not compared with the provider."""
    proto = model_of([graph])
    if not device.takes(proto):
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


def study(job: Job, device: Surveyed, folder: Path) -> list[Row]:
    """Run a graph on the provider at each of its edges."""
    path = folder / "device.onnx"
    onnx.save(model_of([job.graph]), path)
    rows: list[Row] = []
    if not (edges := list(job.want)):  # the CPU refuses them all
        return rows
    try:
        with Session(path, ep=device.ep, optimize=False) as session:
            for edge in edges:
                feeds = {f"g0{name}": x for name, x in job.graph.edges[edge].items()}
                rows.append(judged(job, edge, session.run(feeds)))
    except GraphfixError as error:
        rows.append(job.row(edges[len(rows)], "fails", "", str(error)[:120]))
        if rest := {edge: job.want[edge] for edge in edges[len(rows) :]}:
            rows += study(Job(job.graph, rest), device, folder)
    return rows


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
    """Run what was not run; write the table when all is done, and print what differs or fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ep", type=named, default="dml", metavar="NAME",
                        help="the provider, or a version: dml, windowsml, webgpu")  # fmt: skip
    parser.add_argument("ops", nargs="*", help="operators; all by default, else only printed")
    parser.add_argument("--seconds", type=float, default=float("inf"), metavar="N",
                        help="stop after so long; exit code 3 if graphs are left")  # fmt: skip
    options = parser.parse_args(argv)
    wanted = [x for x in graphs() if not options.ops or x.op in options.ops]
    end = time.monotonic() + options.seconds
    device: Surveyed = options.ep
    version, journal = device.version, device.journal("edges")
    done = _read_journal(journal)
    with tempfile.TemporaryDirectory(prefix="graphfix-edges-") as scratch:
        for graph in wanted:
            if (graph.op, graph.dtype) in done or time.monotonic() > end:
                continue
            outcome = prepared(graph, device, Path(scratch))
            rows = [outcome] if isinstance(outcome, Row) else study(outcome, device, Path(scratch))
            lines = [tuple(str(getattr(row, x)) for x in COLUMNS[:-1]) for row in rows]
            add_lines(journal, lines)
            done[graph.op, graph.dtype] = lines
    process.stop_all()
    here = [done.get((graph.op, graph.dtype)) for graph in wanted]
    print(f"{version}: {len(here) - here.count(None)} of {len(here)} graphs", file=sys.stderr)
    if None in here:
        return 3
    lines = [line for lines in here if lines for line in lines]
    for line in lines:
        if line[4] in ("differs", "fails"):
            print(*line, sep=" | ")
    print(dict(Counter(line[4] for line in lines)))
    if not options.ops:
        path = device.table("edges")
        table = merge_lines(lines, version, path)
        write_table(path, COLUMNS, table, lambda line: (line[0], line[2], line[3]))
    return 0


def _read_journal(path: Path) -> dict[tuple[str, str], list[tuple[str, ...]]]:
    """Return the lines of each graph that was run, by its operator and type."""
    lines: dict[tuple[str, str], list[tuple[str, ...]]] = defaultdict(list)
    for line in read_journal(path):
        lines[line[0], line[2]].append(tuple(line))
    return dict(lines)


if __name__ == "__main__":
    sys.exit(main())
