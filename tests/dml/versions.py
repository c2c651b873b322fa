"""Tables of what was run on versions of the provider: equal lines of several versions are one."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Line = tuple[str, ...]


def lines_in(path: Path, version: str) -> list[Line]:
    """Return the lines of a version in a table, without their versions."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    return [tuple(line) for *line, versions in rows if version in versions.split()]


def merge_lines(lines: Sequence[Line], version: str, path: Path) -> list[Line]:
    """Return a version's lines with those of the other versions in a table, in no order.

    The last cell of each has the versions that it holds for.
    """
    versions: dict[Line, set[str]] = {line: {version} for line in lines}
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            for *line, others in list(csv.reader(file))[1:]:
                if kept := set(others.split()) - {version}:
                    versions.setdefault(tuple(line), set()).update(kept)
    return [(*line, " ".join(sorted(x, key=_parts_of))) for line, x in versions.items()]


def _parts_of(version: str) -> list[int]:
    return [int(x) for x in version.split(".")]


def write_table(
    path: Path, columns: Sequence[str], lines: Sequence[Line], order: Callable[[Line], object]
) -> None:
    """Write lines below their header, sorted."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(sorted(lines, key=lambda line: (order(line), line)))  # type: ignore[operator]
