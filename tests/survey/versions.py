"""Tables of what was run on versions of the provider: equal lines of several versions are one."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from graphfix.providers.versions import version_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Line = tuple[str, ...]


def lines_in(path: Path, version: str) -> list[Line]:
    """Return the lines of a version in a table, without their versions."""
    return [tuple(line) for *line, versions in _rows_of(path) if version in versions.split()]


def _rows_of(path: Path) -> list[list[str]]:
    """Return the lines of a table below its header; none where it is not there yet."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))[1:]


def merge_lines(lines: Sequence[Line], version: str, path: Path) -> list[Line]:
    """Return a version's lines with those of the other versions in a table, in no order.

    The last cell of each has the versions that it holds for.
    """
    versions: dict[Line, set[str]] = {line: {version} for line in lines}
    for *line, others in _rows_of(path):
        if kept := set(others.split()) - {version}:
            versions.setdefault(tuple(line), set()).update(kept)
    return [(*line, " ".join(sorted(x, key=version_key))) for line, x in versions.items()]


def write_table(
    path: Path, columns: Sequence[str], lines: Sequence[Line], order: Callable[[Line], object]
) -> None:
    """Write lines below their header, sorted."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(sorted(lines, key=lambda line: (order(line), line)))  # type: ignore[operator]
