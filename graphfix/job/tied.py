"""A dim is fixed, and others must be the same size: they are fixed with it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from graphfix import registry
from graphfix.model import io
from graphfix.quoting import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from graphfix.core import Check
    from graphfix.job.task import Task
    from graphfix.report import Report

_PASS = "fix-dims"


def is_open(task: Task, report: Report) -> bool:
    """Whether a proof found dims open that are tied to one that ``fix-dims`` has fixed.

    That is seen only where the original is run: a result that is not verified leaves them open.
    """
    return report.ok and bool(_tied(report)) and any(x.name == _PASS for x in task.chosen)


def fixing_all(task: Task, report: Report) -> Task | None:
    """The task with those dims fixed as well; None if none are open."""
    if not is_open(task, report):
        return None
    more, chosen = _tied(report), list(task.chosen)
    places = [i for i, x in enumerate(chosen) if x.name == _PASS]
    chosen[places[-1]] = _with(chosen[places[-1]], more)
    return task.of(chosen, io.load(task.source))


def noted(report: Report, before: Report) -> Report:
    """A report that says why more dims were fixed than had been asked for.

    Args:
        report: What was done at last.
        before: What was found when they were open.
    """
    assert report.verdict is not None
    assert before.verdict is not None
    names = ", ".join(f"{quoted(name)}={size}" for name, size in _tied(before).items())
    told = [*_notes(before), f"so {_PASS} has fixed {names}, too"]
    notes = dict.fromkeys((*told, *_notes(report)))
    return dataclasses.replace(report, verdict={**report.verdict, "notes": list(notes)})


def _with(fixing: Check, more: Mapping[str, int]) -> Check:
    return registry.get_pass(_PASS, dims=(*getattr(fixing, "dims", ()), *more.items()))


def _tied(report: Report) -> dict[str, int]:
    found = (report.verdict or {}).get("tied", {})
    return found if isinstance(found, dict) else {}


def _notes(report: Report) -> list[str]:
    found = (report.verdict or {}).get("notes", [])
    return found if isinstance(found, list) else []
