"""Run the survey on a real provider: ``make survey``, into survey.csv of its facts.

Each case is a node with inputs. Those of one opset share a session, twelve at a time, as long as
all outputs are right; a case of another session is run alone before it is believed. What came of a
case is kept in build/survey/, a file a version, and not run again: a survey that was stopped, or
that ``--seconds`` ends, goes on where it was. One line of the table is one kind of one operator and
verdict: how many cases there are, the first of them that is not right, and the versions of the
provider that say the same. The verdicts: ``right``; ``differs``; ``fails``, with the code;
``dies``; ``cpu``, for which it has no kernel; ``unknown``, which the CPU does not run, so
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

from graphfix.errors import GraphfixError
from graphfix.runtime import process
from graphfix.runtime.python import runner_for
from graphfix.runtime.remote import RemoteSession
from graphfix.runtime.run_errors import LoadDiedError, RunDiedError, RunError
from tests.survey import along_axes, contrib, elementwise, layout, recurrent, sizes, windows
from tests.survey.case import Array, Case, Kernels, model_of
from tests.survey.edges import float_gap
from tests.survey.outcomes import Journal, Outcome
from tests.survey.surveyed import Surveyed, named
from tests.survey.table import COLUMNS, WRONG, lines_of, order
from tests.survey.versions import lines_in, merge_lines, write_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from graphfix.runtime.process import Runner

MODULES = (elementwise, along_axes, windows, layout, contrib, recurrent, sizes)
_TOGETHER = 12
_CLOSE = {"float16": 4e-3, "float32": 1e-4, "float64": 1e-4}


@dataclasses.dataclass(frozen=True)
class Rig:
    """The provider, the CPU beside it, and a folder for models."""

    device: Surveyed
    on_device: Runner
    on_cpu: Runner
    folder: Path

    def run(self, cases: Sequence[Case], runner: Runner) -> list[Array]:
        """Return the outputs of cases in one session.

        Raises:
            GraphfixError: It is not made, or does not run.
        """
        proto, feeds = model_of(cases)
        path = self.folder / "cases.onnx"
        onnx.save(proto, path)
        with RemoteSession(path, runner, optimize=False, bounded=True) as session:
            if runner is self.on_device and any(not x.size for x in feeds.values()):
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
        if not rig.device.takes(model_of([case])[0]):
            yield case, Outcome("cpu")
            continue
        try:
            want = rig.run([case], rig.on_cpu)
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
        found = rig.run(cases, rig.on_device)
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
    parser.add_argument("--ep", type=named, default="dml", metavar="NAME",
                        help="the provider, or a version: dml, windowsml, webgpu")  # fmt: skip
    parser.add_argument("ops", nargs="*", help="operators; all by default, else only printed")
    parser.add_argument("--every", action="store_true", help="every case, not one of each kind")
    parser.add_argument("--seconds", type=float, default=float("inf"), metavar="N",
                        help="stop after so long; exit code 3 if cases are left")  # fmt: skip
    parser.add_argument("--write", action="store_true",
                        help="write the table of what was run, though cases are left")  # fmt: skip
    options = parser.parse_args(argv)
    device: Surveyed = options.ep
    kernels = Kernels(device.kernels)
    cases = [x for module in MODULES for x in module.cases(kernels)]
    cases = cases if options.every or options.ops else sample(cases)
    cases = [x for x in cases if not options.ops or x.op in options.ops]
    end = time.monotonic() + options.seconds
    version, table = device.version, device.table("survey")
    journal = Journal(device.journal("survey"))
    waiting = [x for x in cases if journal.get(x) is None]
    with tempfile.TemporaryDirectory(prefix="graphfix-survey-") as scratch:
        rig = Rig(device, device.runner, runner_for("cpu"), Path(scratch))
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
        lines += [x for x in lines_in(table, version) if x[:2] not in kinds]  # run another time
        write_table(table, COLUMNS, merge_lines(lines, version, table), order)
    return 0


if __name__ == "__main__":
    sys.exit(main())
