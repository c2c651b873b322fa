"""Compares the findings of ``graphfix check`` before and after a repair."""

from collections.abc import Iterable
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.core import Finding, Findings
from graphfix.engine.report import Hazards
from graphfix.job import checking
from graphfix.providers.table import PROVIDERS, DeviceEp


@dataclass(frozen=True)
class HazardComparison:
    """Errors and warnings on a provider, before and after; notes are not counted.

    Attributes:
        before: The findings in the original.
        after: The findings in any container, each once.
        ep: The provider.
    """

    before: Findings
    after: Findings
    ep: DeviceEp = "dml"

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Return the remaining errors, which may keep a container from running."""
        return tuple(x for x in self.after if x.severity == "error")

    def to_json(self) -> Hazards:
        """Return the result as plain data for JSON."""
        names = ("rule", "severity", "at", "message")
        sides = (self.before, self.after)
        had, remaining = (
            [{name: getattr(x, name) for name in names} for x in findings] for findings in sides
        )
        return {
            "before": _count_by_severity(self.before),
            "after": _count_by_severity(self.after),
            "had": [x for x in had if x["severity"] == "error"],
            "left": remaining,
        }

    def __str__(self) -> str:
        before, after = (x.line.replace("no hazard", "nothing") for x in (self.before, self.after))
        return f"on {PROVIDERS[self.ep].label} {before} in the original; {after} left"


def compare_hazards(
    original: ir.Model, containers: Iterable[ir.Model], ep: DeviceEp = "dml"
) -> HazardComparison:
    """Find hazards in the original and in its containers; nothing is run or edited."""
    before = _hazards_of(original, ep)
    findings_after = (before if x is original else _hazards_of(x, ep) for x in containers)
    return HazardComparison(
        before,
        Findings({(x.rule, x.at): x for findings in findings_after for x in findings}.values()),
        ep,
    )


def _hazards_of(model: ir.Model, ep: DeviceEp) -> Findings:
    return Findings(x for x in checking.check(model, ep=ep) if x.severity != "note")


def _count_by_severity(findings: Findings) -> dict[str, int]:
    return {kind: findings.counted[kind] for kind in ("error", "warning")}
