"""Plant faults into repaired graphs and count what ``graphfix verify`` tells. ``make mutants``.

For each model: repair it, plant one fault at a time in the repaired graph, verify that against the
original. A fault in the graph counts only if it changes an output at all, at some size: another set
of inputs, with other sizes, decides that.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from conditions import condition_faults
from ingraph import graph_faults, plant, sample

import graphfix
from graphfix.engine import pipeline
from graphfix.errors import GraphfixError
from graphfix.feeds.case_search import search_cases
from graphfix.proof.verify import verify
from graphfix.runtime.compared_session import open_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "verification-mutants.md"
# Sizes that decide whether a fault changes anything; other than those that verify uses.
_SIZES = (3, 5, 8, 13, 17, 31, 48, 64, 100)
_SEED = 11
# Seconds: a verdict that a busy machine cuts short says nothing of verification.
_BUDGET = 3600.0


@dataclass(frozen=True)
class Outcome:
    """One planted fault.

    Attributes:
        model: The model's name.
        sort: ``condition`` or ``graph``.
        kind: Its kind.
        at: The node, for a fault in the graph.
        told: Whether verification told it.
        reason: What verification said, or why a fault that was not told could not be.
        held: Whether its condition held for some input that the model runs.
    """

    model: str
    sort: str
    kind: str
    at: str
    told: bool
    reason: str
    held: bool = True


def survey(path: Path, name: str, each: int) -> Iterator[Outcome]:
    """Every fault of one model."""
    before, after = graphfix.load(path), graphfix.load(path)
    report = pipeline.run(after, pipeline.resolve_passes(pipeline.DEFAULT))
    judge = Judge(after)
    for kind, make in condition_faults(after):
        wrong = make(after)
        found = _tried(name, "condition", kind, "", before, wrong, report.safety)
        if not found.told and not judge.changes(wrong):
            found = replace(found, held=False)
        yield found
    for kind, place, change in sample(list(graph_faults(after)), each):
        node = list(after.graph)[place]
        wrong = plant(after, place, change)
        if wrong is None or not judge.changes(wrong):
            continue
        at = f"{node.op_type} {node.name or node.outputs[0].name!r}"
        found = _tried(name, "graph", kind, at, before, wrong, report.safety)
        if not found.told:
            reason = f"the largest difference is {judge.worst:.2g}"
            found = replace(found, reason=reason)
        yield found


def _tried(
    name: str, sort: str, kind: str, at: str, before: ir.Model, wrong: ir.Model, safety: str
) -> Outcome:
    verdict = verify(before, wrong, safety=safety, budget=_BUDGET, locate=False)  # type: ignore[arg-type]
    reason = str(verdict) if not verdict.ok else f"not tried: {', '.join(verdict.not_tried)}"
    return Outcome(name, sort, kind, at, not verdict.ok, reason)


class Judge:
    """Says whether a fault changes an output at all, at some size.

    Args:
        right: The repaired model without the fault.
    """

    def __init__(self, right: ir.Model) -> None:
        self._right: dict[str, dict[str, np.ndarray]] = {}
        self.worst = 0.0
        names = [d.value for v in right.graph.inputs for d in v.shape or () if hasattr(d, "value")]
        with open_session(right) as session:

            def run(case: object) -> None:
                self._right[case.name] = session.run(case.feeds)

            for dims in ({n: _SIZES for n in dict.fromkeys(names) if n}, {}):
                try:
                    self._cases = search_cases(right, run, dims=dims, seed=_SEED, cover=True)
                    break
                except GraphfixError:
                    continue

    def changes(self, wrong: ir.Model) -> bool:
        self.worst = 0.0
        try:
            with open_session(wrong) as session:
                for case in self._cases:
                    self._compare(self._right[case.name], session.run(case.feeds))
        except GraphfixError:
            return True  # it does not even load or run
        return self.worst > 0

    def _compare(self, right: dict[str, np.ndarray], wrong: dict[str, np.ndarray]) -> None:
        for name, one in right.items():
            two = wrong.get(name)
            if two is None or one.shape != two.shape or one.dtype != two.dtype:
                self.worst = float("inf")
            elif one.dtype.kind in "fV":
                a, b = one.astype(np.float64), two.astype(np.float64)
                same = (a == b) | (np.isnan(a) & np.isnan(b))
                with np.errstate(invalid="ignore"):
                    gap = np.where(same, 0.0, np.abs(a - b))
                self.worst = max(self.worst, float(np.nan_to_num(gap, nan=np.inf).max(initial=0)))
            elif (one != two).any():
                self.worst = float("inf")


def models() -> list[tuple[str, Path]]:
    found = [(p.parent.name, p) for p in sorted((ROOT / "models").glob("*/model.onnx"))]
    zoo = os.environ.get("GRAPHFIX_ZOO")
    if zoo:
        found += [(p.stem, p) for p in sorted((Path(zoo) / "models").glob("*.onnx"))]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only models whose name has one of these in it")
    parser.add_argument("--each", type=int, default=4, help="faults of a kind in each graph")
    parser.add_argument("--every", type=int, default=1, help="only each so-manieth model")
    parser.add_argument("--log", type=Path, default=ROOT / "build" / "mutants.jsonl")
    parser.add_argument("--resume", action="store_true", help="go on behind the log")
    parser.add_argument("--page", action="store_true", help="write docs/verification-mutants.md")
    options = parser.parse_args()
    chosen = [
        (name, path)
        for name, path in models()
        if not options.names or any(x in name for x in options.names)
    ][:: options.every]
    options.log.parent.mkdir(parents=True, exist_ok=True)
    done = finished(options.log) if options.resume else {}
    outcomes = [x for name, _ in chosen for x in done.get(name, ())]
    with options.log.open("w", encoding="utf-8") as log:
        for name, ended in done.items():
            log.writelines(json.dumps(asdict(x)) + "\n" for x in ended)
            log.write(json.dumps({"done": name}) + "\n")
        log.flush()
        for name, path in chosen:
            if name in done:
                continue
            start, count = time.monotonic(), len(outcomes)
            try:
                for one in survey(path, name, options.each):
                    outcomes.append(one)
                    log.write(json.dumps(asdict(one)) + "\n")
                    log.flush()
            except GraphfixError as error:
                print(f"{name}: {error}", flush=True)
                continue
            log.write(json.dumps({"done": name}) + "\n")
            log.flush()
            new = outcomes[count:]
            new = [x for x in new if x.held]
            told = sum(x.told for x in new)
            seconds = time.monotonic() - start
            print(f"{name}: {told} of {len(new)} told, {seconds:.0f} s", flush=True)
            for one in new:
                if not one.told and one.held:
                    print(f"  not told: {one.kind} {one.at}: {one.reason}", flush=True)
    print(table(outcomes))
    if options.page:
        PAGE.write_text(page(outcomes, len(chosen)), encoding="utf-8")


def finished(log: Path) -> dict[str, list[Outcome]]:
    """Return the outcomes of each model that an earlier survey came to the end of."""
    rows = [json.loads(x) for x in log.read_text(encoding="utf-8").splitlines()]
    names = [row["done"] for row in rows if "done" in row]
    outcomes = [Outcome(**row) for row in rows if "done" not in row]
    return {name: [x for x in outcomes if x.model == name] for name in names}


def table(outcomes: list[Outcome]) -> str:
    """The share that was told, by kind, as a table of Markdown."""
    planted, told = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for one in outcomes:
        if not one.held:
            continue
        planted[one.sort, one.kind] += 1
        told[one.sort, one.kind] += one.told
    lines = ["| where | kind | planted | told |", "| --- | --- | ---: | ---: |"]
    for sort, words in (("condition", "every output, if"), ("graph", "in the graph")):
        for (own, kind), count in planted.items():
            if own == sort:
                lines.append(f"| {words} | {kind} | {count} | {told[own, kind]} |")
        total = sum(n for (own, _), n in planted.items() if own == sort)
        all_told = sum(n for (own, _), n in told.items() if own == sort)
        lines.append(f"| {words} | **all** | {total} | {all_told} |")
    return "\n".join(lines)


def page(outcomes: list[Outcome], count: int) -> str:
    missed = [x for x in outcomes if not x.told and x.held]
    never = Counter(x.kind for x in outcomes if not x.held)
    words = ", ".join(f"{kind} ({n})" for kind, n in never.items()) or "none"
    lines = [f"- {x.model}, {x.kind}{f', at {x.at}' if x.at else ''}: {x.reason}" for x in missed]
    text = "\n".join(lines) or "None."
    return PAGE_TEXT.format(count=count, table=table(outcomes), missed=text, never=words)


PAGE_TEXT = """\
# What verification tells

`make mutants` wrote this page. Each of {count} models was repaired, one fault at a time was planted
in the repaired graph, and `graphfix verify` compared that with the original. A fault in the graph
counts if it changes any output at all at some size, by however little.

{table}

Conditions that no input of the model makes hold, such as T > 64 where a table of positions ends at
48, do not count: {never}.

## What was not told, and why

{missed}
"""

if __name__ == "__main__":
    main()
