"""The table of the survey: a line for each kind of case, with the versions that it holds for."""

from __future__ import annotations

import csv
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.dml.survey.case import Case
    from tests.dml.survey.journal import Outcome

COLUMNS = ("op", "kind", "dtype", "opsets", "cases", "verdict", "worst", "seen", "versions")
WRONG = ("differs", "fails", "dies")
"""The verdicts of what a rule or a pass is for."""
_ORDER = ("right", "cpu", "unknown", *WRONG)


def lines_of(found: Sequence[tuple[Case, Outcome]]) -> list[tuple[str, ...]]:
    """Return a line for each operator, kind and verdict: all columns but the versions."""
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
        lines.append((op, kind, dtypes, opsets, str(len(group)), verdict, gap, seen))
    return lines


def merge_lines(
    lines: Sequence[tuple[str, ...]], version: str, path: Path
) -> list[tuple[str, ...]]:
    """Return a version's lines with those of the other versions in a table; equal ones are one."""
    versions: dict[tuple[str, ...], set[str]] = {line: {version} for line in lines}
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            for *line, others in list(csv.reader(file))[1:]:
                if kept := set(others.split()) - {version}:
                    versions.setdefault(tuple(line), set()).update(kept)
    found = [(*line, " ".join(sorted(x, key=_parts_of))) for line, x in versions.items()]
    return sorted(found, key=lambda x: (x[0], x[1], _ORDER.index(x[5]), x))


def _parts_of(version: str) -> list[int]:
    return [int(x) for x in version.split(".")]


def write_table(path: Path, lines: Sequence[tuple[str, ...]]) -> None:
    """Write the lines with their header."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(lines)
