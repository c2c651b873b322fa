"""Journals: tables without a header that grow line by line, so that a run goes on where it was."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path


def read_journal(path: Path) -> list[list[str]]:
    """Return the lines of a journal; one that a kill cut short is taken out of it."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if text and not text.endswith("\n"):
        text = text[: text.rfind("\n") + 1]
        path.write_text(text, encoding="utf-8")
    return list(csv.reader(io.StringIO(text, newline="")))


def add_lines(path: Path, lines: Iterable[Sequence[str]]) -> None:
    """Write lines at the end of a journal, which is made with its folder if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(lines)
