"""What ``graphfix check`` finds in the original, and what is left of it in what was made."""

from collections.abc import Iterable
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.core import Finding, Findings
from graphfix.engine.report import Hazards
from graphfix.job import checking


@dataclass(frozen=True)
class Checked:
    """Errors and warnings, before and after; notes are not counted.

    Attributes:
        before: What the original has on DirectML.
        after: What is left in any container, each once.
    """

    before: Findings
    after: Findings

    @property
    def errors(self) -> tuple[Finding, ...]:
        """What may keep a container from running."""
        return tuple(x for x in self.after if x.severity == "error")

    def to_json(self) -> Hazards:
        """As plain data."""
        names = ("rule", "severity", "at", "message")
        both = (self.before, self.after)
        had, left = ([{name: getattr(x, name) for name in names} for x in found] for found in both)
        return {
            "before": _counted(self.before),
            "after": _counted(self.after),
            "had": [x for x in had if x["severity"] == "error"],
            "left": left,
        }

    def __str__(self) -> str:
        before, after = (x.line.replace("no hazard", "nothing") for x in (self.before, self.after))
        return f"on DirectML {before} in the original; {after} left"


def checked(original: ir.Model, containers: Iterable[ir.Model]) -> Checked:
    """Look for hazards in the original and in what becomes of it; nothing is run or edited."""
    before = _found(original)
    found = (before if model is original else _found(model) for model in containers)
    return Checked(before, Findings({(x.rule, x.at): x for one in found for x in one}.values()))


def _found(model: ir.Model) -> Findings:
    return Findings(x for x in checking.check(model) if x.severity != "note")


def _counted(found: Findings) -> dict[str, int]:
    return {kind: found.counted[kind] for kind in ("error", "warning")}
