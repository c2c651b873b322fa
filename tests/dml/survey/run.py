"""Run the survey on the real DirectML: ``make survey``, into survey.csv of its facts.

Each case is a node with inputs. Those of one opset share a session, twelve at a time, as long as
all outputs are right; a case of another session is run alone before it is believed. One line is
one kind of one operator and type: how many cases it has, how many are right, and the first that
is not. The verdicts: ``right``; ``differs``; ``fails``, with the code; ``dies``; ``cpu``, for which
DirectML has no kernel; ``unknown``, which the CPU does not run, so that nothing is compared.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[3]))

from edges import float_gap

from graphfix.errors import GraphfixError
from graphfix.facts.view import View
from graphfix.providers.directml.placement import PlacementRules
from graphfix.providers.directml.support_queries import refusal_reason
from graphfix.runtime import process
from graphfix.runtime.local_session import Session
from graphfix.runtime.run_errors import RunDiedError, RunError
from tests.dml.survey import along_axes, contrib, elementwise, layout, windows
from tests.dml.survey.case import Array, Case, model_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TABLE = Path(__file__).parents[3] / "graphfix" / "providers" / "directml" / "survey.csv"
COLUMNS = ("op", "kind", "dtype", "opsets", "cases", "verdict", "worst", "seen", "version")
MODULES = (elementwise, along_axes, windows, layout, contrib)
_TOGETHER = 12
_CLOSE = {"float16": 4e-3, "float32": 1e-4, "float64": 1e-4}
_ORDER = ("right", "cpu", "unknown", "differs", "fails", "dies")


@dataclass(frozen=True)
class Outcome:
    """What came of a case."""

    verdict: str
    worst: float = 0.0
    seen: str = ""


def outcomes(cases: Sequence[Case], folder: Path) -> Iterator[tuple[Case, Outcome]]:
    """Run cases, those of one opset together, and those that are not right alone."""
    ready: dict[tuple[int, bool], list[tuple[Case, list[Array]]]] = defaultdict(list)
    for case in cases:
        if not _has_kernel(case):
            yield case, Outcome("cpu")
            continue
        try:
            want = _run([case], folder, "cpu")
        except GraphfixError:
            yield case, Outcome("unknown")
            continue
        has_empty = any(x is not None and not x.size for x in (*case.inputs, *want))
        ready[case.opset, has_empty].append((case, want))
    for (_, has_empty), group in ready.items():
        step = 1 if has_empty else _TOGETHER
        for start in range(0, len(group), step):
            yield from _believed(group[start : start + step], folder)
        print(f"{time.strftime('%H:%M:%S')} {len(group)} cases", file=sys.stderr, flush=True)


def _believed(
    group: Sequence[tuple[Case, list[Array]]], folder: Path
) -> Iterator[tuple[Case, Outcome]]:
    cases = [case for case, _ in group]
    try:
        found = _run(cases, folder, "dml")
    except GraphfixError as error:
        if len(group) > 1:
            middle = len(group) // 2
            yield from _believed(group[:middle], folder)
            yield from _believed(group[middle:], folder)
            return
        dead = isinstance(error, RunDiedError)
        yield cases[0], Outcome("dies" if dead else "fails", seen=_code_of(str(error)))
        return
    for case, want in group:
        got, found = found[: len(want)], found[len(want) :]
        outcome = _compare(want, got)
        if outcome.verdict != "right" and len(group) > 1:
            yield from _believed([(case, want)], folder)
        else:
            yield case, outcome


def _run(cases: Sequence[Case], folder: Path, ep: str) -> list[Array]:
    proto, feeds = model_of(cases)
    path = folder / f"{ep}.onnx"
    onnx.save(proto, path)
    options = {"ep": "dml"} if ep == "dml" else {}
    with Session(path, optimize=False, **options) as session:
        if ep == "dml" and any(not x.size for x in feeds.values()):
            full = {k: np.ones([d or 5 for d in x.shape]).astype(x.dtype) for k, x in feeds.items()}
            for _ in range(2):  # so that something lies in memory
                try:
                    session.run(full)
                except RunError:
                    break
        return [*session.run(feeds).values()]


def _has_kernel(case: Case) -> bool:
    model = ir.from_proto(model_of([case])[0])
    (node,), shapes = model.graph, View(model).shapes
    kernel = PlacementRules(model.graph.opset_imports, shapes).kernel_of(node)
    return kernel is not None and refusal_reason(node, kernel, shapes) is None


def _compare(want: Sequence[Array], got: Sequence[Array]) -> Outcome:
    worst, wrong, seen = 0.0, False, ""
    for x, y in zip(want, got, strict=True):
        if x.shape != y.shape:
            return Outcome("differs", seen=f"shape {[*y.shape]}, CPU {[*x.shape]}")
        if not x.size:
            continue
        a, b = x.reshape(-1), y.reshape(-1)
        if x.dtype.kind == "f":
            bad, gap = float_gap(a, b, _CLOSE[x.dtype.name])
        else:
            bad = a != b
            gap = float(max((abs(int(p) - int(q)) for p, q in zip(a[bad], b[bad], strict=True)),
                            default=0))  # fmt: skip
        worst = max(worst, gap)
        if bad.any() and not wrong:
            at = int(np.flatnonzero(bad)[0])
            wrong, seen = True, f"{b[at]}, CPU {a[at]}"
    return Outcome("differs" if wrong else "right", worst, seen)


def _code_of(text: str) -> str:
    code = re.search(r"\b(8[0-9A-F]{7})\b", text)
    return code.group(1) if code else " ".join(text.split())[:80]


def table(found: Sequence[tuple[Case, Outcome]], version: str) -> list[list[str]]:
    """One line for each kind, type and verdict."""
    kinds: dict[tuple[str, str, str], list[tuple[Case, Outcome]]] = defaultdict(list)
    for case, outcome in found:
        kinds[case.op, case.kind, outcome.verdict].append((case, outcome))
    lines = []
    for (op, kind, verdict), group in kinds.items():
        dtypes = " ".join(sorted({case.dtype for case, _ in group}))
        opsets = " ".join(map(str, sorted({case.opset for case, _ in group})))
        worst = max(outcome.worst for _, outcome in group)
        seen = next((outcome.seen for _, outcome in group if outcome.seen), "")
        gap = f"{worst:.2g}" if verdict == "differs" else ""
        lines.append([op, kind, dtypes, opsets, str(len(group)), verdict, gap, seen, version])
    return sorted(lines, key=lambda x: (x[0], x[1], _ORDER.index(x[5])))


def sample(cases: Sequence[Case]) -> list[Case]:
    """One case of each kind of each operator; two of contrib's and of values, one in float16."""
    chosen: dict[tuple[str, str, bool], Case] = {}
    for case in cases:
        is_half = case.dtype == "float16" and ("." in case.op or "value" in case.kind)
        chosen.setdefault((case.op, case.kind, is_half), case)
    return [*chosen.values()]


def main(argv: list[str] | None = None) -> int:
    """Write the table, and print what is not right."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ops", nargs="*", help="operators; all by default, else only printed")
    parser.add_argument("--every", action="store_true", help="every case, not one of each kind")
    options = parser.parse_args(argv)
    cases = [x for module in MODULES for x in module.cases()]
    cases = cases if options.every or options.ops else sample(cases)
    wanted = [x for x in cases if not options.ops or x.op in options.ops]
    print(f"{len(wanted)} cases", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="graphfix-survey-") as scratch:
        found = list(outcomes(wanted, Path(scratch)))
    process.stop_all()
    lines = table(found, "1.24.4")
    for line in lines:
        if line[5] not in ("right", "cpu", "unknown"):
            print(*line, sep=" | ")
    if not options.ops:
        with TABLE.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows(lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
