"""Run the survey on the real DirectML: ``make survey``, into survey.csv of its facts.

Each case is a node with inputs. Those of one opset share a session, twelve at a time, as long as
all outputs are right; a case of another session is run alone before it is believed. What came of a
case is kept in build/survey/, a file a version, and not run again: a survey that was stopped, or
that ``--seconds`` ends, goes on where it was. One line of the table is one kind of one operator and
verdict: how many cases there are, the first of them that is not right, and the versions of the
provider that say the same. The verdicts: ``right``; ``differs``; ``fails``, with the code;
``dies``; ``cpu``, for which DirectML has no kernel; ``unknown``, which the CPU does not run, so
that nothing is compared.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
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
from graphfix.runtime.python import runner_for
from graphfix.runtime.remote import RemoteSession
from graphfix.runtime.run_errors import LoadDiedError, RunDiedError, RunError
from tests.dml.survey import along_axes, contrib, elementwise, layout, windows
from tests.dml.survey.case import Array, Case, model_of
from tests.dml.survey.journal import Journal, Outcome
from tests.dml.survey.table import COLUMNS, WRONG, lines_of, order
from tests.dml.versions import lines_in, merge_lines, write_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from graphfix.runtime.process import Runner

ROOT = Path(__file__).parents[3]
TABLE = ROOT / "graphfix" / "providers" / "directml" / "survey.csv"
MODULES = (elementwise, along_axes, windows, layout, contrib)
_TOGETHER = 12
# A session of small nodes leaves some 100 MB under Wine, and a process takes seconds to start.
_SESSIONS = 25
_CLOSE = {"float16": 4e-3, "float32": 1e-4, "float64": 1e-4}


@dataclasses.dataclass(frozen=True)
class Rig:
    """The two providers, and a folder for models."""

    directml: Runner
    cpu: Runner
    folder: Path

    def run(self, cases: Sequence[Case], ep: str) -> list[Array]:
        """Return the outputs of cases in one session.

        Raises:
            GraphfixError: It is not made, or does not run.
        """
        proto, feeds = model_of(cases)
        path = self.folder / f"{ep}.onnx"
        onnx.save(proto, path)
        runner = self.directml if ep == "dml" else self.cpu
        with RemoteSession(path, runner, optimize=False, bounded=True) as session:
            if ep == "dml" and any(not x.size for x in feeds.values()):
                full = {k: np.ones([d or 5 for d in x.shape]).astype(x.dtype)
                        for k, x in feeds.items()}  # fmt: skip
                for _ in range(2):  # so that something lies in memory
                    try:
                        session.run(full)
                    except RunError:
                        break
            return [*session.run(feeds).values()]


def outcomes(cases: Sequence[Case], rig: Rig) -> Iterator[tuple[Case, Outcome]]:
    """Run cases, those of one opset together, and those that are not right alone."""
    groups: dict[int, list[Case]] = defaultdict(list)
    for case in cases:
        groups[case.opset].append(case)
    for group in groups.values():
        for start in range(0, len(group), _TOGETHER):
            yield from _compared(group[start : start + _TOGETHER], rig)


def _compared(cases: Sequence[Case], rig: Rig) -> Iterator[tuple[Case, Outcome]]:
    ready: list[tuple[Case, list[Array]]] = []
    for case in cases:
        if not _has_kernel(case):
            yield case, Outcome("cpu")
            continue
        try:
            want = rig.run([case], "cpu")
        except GraphfixError:
            yield case, Outcome("unknown")
            continue
        if any(x is not None and not x.size for x in (*case.inputs, *want)):
            yield from _believed([(case, want)], rig)
        else:
            ready.append((case, want))
    yield from _believed(ready, rig)


def _believed(
    group: Sequence[tuple[Case, list[Array]]], rig: Rig
) -> Iterator[tuple[Case, Outcome]]:
    if not group:
        return
    cases = [case for case, _ in group]
    try:
        found = rig.run(cases, "dml")
    except GraphfixError as error:
        if len(group) > 1:
            middle = len(group) // 2
            yield from _believed(group[:middle], rig)
            yield from _believed(group[middle:], rig)
            return
        dead = isinstance(error, RunDiedError | LoadDiedError)
        yield cases[0], Outcome("dies" if dead else "fails", seen=_code_of(str(error)))
        return
    for case, want in group:
        got, found = found[: len(want)], found[len(want) :]
        outcome = _compare(want, got)
        if outcome.verdict != "right" and len(group) > 1:
            yield from _believed([(case, want)], rig)
        else:
            yield case, outcome


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


def sample(cases: Sequence[Case]) -> list[Case]:
    """Return a case of each kind of each operator; of contrib and of values one in float16, too."""
    chosen: dict[tuple[str, str, bool], Case] = {}
    for case in cases:
        is_half = case.dtype == "float16" and ("." in case.op or "value" in case.kind)
        chosen.setdefault((case.op, case.kind, is_half), case)
    return [*chosen.values()]


def main(argv: list[str] | None = None) -> int:
    """Run what was not run; write the table when all is done, and print what is not right."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ops", nargs="*", help="operators; all by default, else only printed")
    parser.add_argument("--every", action="store_true", help="every case, not one of each kind")
    parser.add_argument("--seconds", type=float, default=float("inf"), metavar="N",
                        help="stop after so long; exit code 3 if cases are left")  # fmt: skip
    parser.add_argument("--write", action="store_true",
                        help="write the table of what was run, though cases are left")  # fmt: skip
    options = parser.parse_args(argv)
    cases = [x for module in MODULES for x in module.cases()]
    cases = cases if options.every or options.ops else sample(cases)
    cases = [x for x in cases if not options.ops or x.op in options.ops]
    end = time.monotonic() + options.seconds
    runner = dataclasses.replace(runner_for("dml"), sessions=_SESSIONS)
    version = process.worker_for(runner).about["onnxruntime"]
    journal = Journal(ROOT / "build" / "survey" / f"{version}.csv")
    waiting = [x for x in cases if journal.get(x) is None]
    with tempfile.TemporaryDirectory(prefix="graphfix-survey-") as scratch:
        rig = Rig(runner, runner_for("cpu"), Path(scratch))
        for case, outcome in outcomes(waiting, rig):
            journal.add(case, outcome)
            if time.monotonic() > end:
                break
    process.stop_all()
    found = [(x, outcome) for x in cases if (outcome := journal.get(x)) is not None]
    lines = lines_of(found)
    print(f"{version}: {len(found)} of {len(cases)} cases", file=sys.stderr)
    if len(found) < len(cases) and not options.write:
        return 3
    for line in lines:
        if line[5] in WRONG:
            print(*line, sep=" | ")
    print(dict(Counter(outcome.verdict for _, outcome in found)))
    if not options.ops:
        kinds = {line[:2] for line in lines}
        lines += [x for x in lines_in(TABLE, version) if x[:2] not in kinds]  # run another time
        write_table(TABLE, COLUMNS, merge_lines(lines, version, TABLE), order)
    return 0


if __name__ == "__main__":
    sys.exit(main())
