"""What a rule is: a hazard on an execution provider that no pass looks for.

A pass is a rule already: what it matches is a finding, and the pass is its repair. A rule stands
for the rest. It is a :class:`graphfix.core.Check` whose docstring is its manual, with Why:,
Flagged: and Clean:, and the two models are run by the tests.
"""

import abc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import onnx_ir as ir

from graphfix.core import Check, Finding, Match, Severity, Skip
from graphfix.facts.view import View
from graphfix.graph.text import module_path, path_of

Provider = Literal["dml", "cpu"]
PROVIDERS: tuple[Provider, ...] = ("dml", "cpu")


@dataclass(frozen=True)
class Hazard(Match):
    """A place that a rule flags.

    Attributes:
        message: What is wrong with it, in one sentence in the model's own names.
        severity: ``error`` if it fails or computes something else, ``warning`` if it is slow or
            runs on the CPU, ``note`` if it only matters elsewhere.
        fix: The pass spec that repairs it, if there is one.
        at: Where it is, if not at the node.
    """

    message: str
    severity: Severity = "warning"
    fix: str | None = None
    at: str = ""


class Rule(Check):
    """A question asked of a model for the sake of an execution provider."""

    providers: ClassVar[tuple[Provider, ...]] = ("dml",)
    """The providers on which it matters."""

    repaired_by: ClassVar[str | None] = None
    """The pass that looks for the same; where both are asked, the rule speaks for it."""
    matched_by: ClassVar[str | None] = None
    """The pass that repairs some of what is flagged: who asks names it where it has a site."""

    @abc.abstractmethod
    def hazards(self, view: View) -> Iterator[Hazard]:
        """Every place that is flagged, in the order of the graph."""

    def sites(self, model: ir.Model) -> Iterator[Hazard]:
        """Every place that is flagged."""
        yield from self.hazards(View(model))

    def finding(self, site: Match | Skip) -> Finding:
        """A hazard as a line for ``check``."""
        if not isinstance(site, Hazard):
            return super().finding(site)
        at, module = site.at or path_of(site.node), ".".join(module_path(site.node))
        return Finding(self.name, site.severity, at, site.message, site.fix, module)


def is_fixed(value: ir.Value | None, view: View) -> bool:
    """Whether ONNX Runtime knows a value when the session is made; so is one that is not given."""
    return value is None or value in view.fixed


def is_folded(node: ir.Node, view: View) -> bool:
    """Whether a node is gone before anything runs: all that it reads is fixed."""
    given = node.inputs
    return node.op_type == "Constant" or bool(given and all(is_fixed(x, view) for x in given))
