"""The table of the survey: a line for each kind of case, with the versions that it holds for."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.survey.case import Case
    from tests.survey.outcomes import Outcome

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


def order(line: tuple[str, ...]) -> tuple[str, str, int]:
    """Return where a line stands: by operator, kind and verdict."""
    return line[0], line[1], _ORDER.index(line[5])
