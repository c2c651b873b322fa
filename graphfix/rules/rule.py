"""The base class of rules: a hazard on an execution provider that no pass looks for.

A pass is a rule already: what it matches is a finding, and the pass is its repair. Rules cover the
other hazards. A rule is a :class:`graphfix.core.Check` whose docstring is its manual, with Why:,
Flagged: and Clean:, and the tests run the two models.
"""

import abc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from graphfix.core import Check, Finding, Match, Severity, Skip
from graphfix.facts.view import View
from graphfix.graph.text import module_path, node_label
from graphfix.providers.table import Ep


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
    """A check that flags hazards on an execution provider."""

    providers: ClassVar[tuple[Ep, ...]] = ("dml",)
    """The providers on which it matters."""

    repaired_by: ClassVar[str | None] = None
    """The pass that finds the same sites; if both are selected, only the rule reports."""
    matched_by: ClassVar[tuple[str, ...]] = ()
    """The passes that repair some of the flagged nodes; a report names one where it has a site."""

    @abc.abstractmethod
    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Yield every place that is flagged, in the order of the graph."""

    def find_hazards_on(self, view: View, ep: Ep) -> Iterator[Hazard]:
        """Yield every place that is flagged on one of its providers, where they differ."""
        del ep
        yield from self.find_hazards(view)

    def sites(self, model: ir.Model) -> Iterator[Hazard]:
        """Yield every place that is flagged."""
        yield from self.find_hazards(View(model))

    def finding(self, site: Match | Skip) -> Finding:
        """Return a hazard as a line for ``check``."""
        if not isinstance(site, Hazard):
            return super().finding(site)
        at, module = site.at or node_label(site.node), ".".join(module_path(site.node))
        return Finding(self.name, site.severity, at, site.message, site.fix, module)


def is_fixed(value: ir.Value | None, view: View) -> bool:
    """Return whether ONNX Runtime knows a value when the session is made; an absent one counts."""
    return value is None or value in view.constant_values


def is_folded(node: ir.Node, view: View) -> bool:
    """Return whether a node is gone before anything runs: all that it reads is fixed."""
    inputs = node.inputs
    return node.op_type == "Constant" or bool(inputs and all(is_fixed(x, view) for x in inputs))
