"""What ``graphfix check`` finds in the original, and what is left of it in what was made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphfix.job import checking
from graphfix.wording import plural

if TYPE_CHECKING:
    from collections.abc import Iterable

    import onnx_ir as ir

    from graphfix.core import Finding
    from graphfix.engine.report import Hazards


@dataclass(frozen=True)
class Checked:
    """Errors and warnings, before and after; notes are not counted.

    Attributes:
        before: What the original has on DirectML.
        after: What is left in any container, each once.
    """

    before: tuple[Finding, ...]
    after: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """What may keep a container from running."""
        return tuple(x for x in self.after if x.severity == "error")

    def to_json(self) -> Hazards:
        """As plain data."""
        names = ("rule", "severity", "at", "message")
        had, left = (
            [{name: getattr(x, name) for name in names} for x in found]
            for found in (self.before, self.after)
        )
        return {
            "before": _counted(self.before),
            "after": _counted(self.after),
            "had": [x for x in had if x["severity"] == "error"],
            "left": left,
        }

    def __str__(self) -> str:
        return f"on DirectML {_told(self.before)} in the original; {_told(self.after)} left"


def checked(original: ir.Model, containers: Iterable[ir.Model]) -> Checked:
    """Look for hazards in the original and in what becomes of it; nothing is run or edited."""
    before = tuple(_found(original))
    found = (before if model is original else _found(model) for model in containers)
    return Checked(before, tuple({(x.rule, x.at): x for one in found for x in one}.values()))


def _found(model: ir.Model) -> list[Finding]:
    return [x for x in checking.check(model) if x.severity != "note"]


def _counted(found: Iterable[Finding]) -> dict[str, int]:
    severities = [x.severity for x in found]
    return {kind: severities.count(kind) for kind in ("error", "warning")}


def _told(found: Iterable[Finding]) -> str:
    counts = [plural(n, kind) for kind, n in _counted(found).items() if n]
    return " and ".join(counts) or "nothing"
