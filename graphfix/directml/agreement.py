"""How far a plan agrees with what DirectML did, node by node."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from graphfix.directml import node_tracing

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

    from graphfix.directml.plan import Plan, Where

DML = "DmlExecutionProvider"


class Placed(Protocol):
    """What is known of a session; :class:`graphfix.runtime.assignment.Placement` is one."""

    @property
    def model(self) -> ir.Model:
        """The graph after ONNX Runtime's optimizer, before DirectML's graph fusion."""

    @property
    def provider(self) -> Mapping[str, str]:
        """The provider of each of its nodes, by name."""

    @property
    def fused(self) -> frozenset[str]:
        """The names of the nodes in fused graphs."""

    @property
    def graphs(self) -> tuple[str, ...]:
        """The names of the fused graphs."""

    @property
    def copies(self) -> int:
        """How many copies between devices there are."""

    @property
    def kernels(self) -> int:
        """How many nodes a run has, copies among them."""


@dataclass(frozen=True)
class Wrong:
    """A node that is not where it was predicted."""

    at: str
    op: str
    predicted: Where
    found: Where
    why: str


@dataclass(frozen=True)
class Agreement:
    """A plan beside the truth; pairs are (predicted, found).

    Attributes:
        right: How many nodes are where they were predicted.
        total: How many nodes there are.
        graphs: The number of fused graphs.
        copies: The number of copies between devices.
        steps: The number of all kernels per run.
        wrong: The nodes that are elsewhere.
    """

    right: int
    total: int
    graphs: tuple[int, int]
    copies: tuple[int, int]
    steps: tuple[int, int]
    wrong: tuple[Wrong, ...]

    def to_json(self) -> dict[str, Any]:
        """The agreement as JSON has it."""
        return asdict(self)


def compare(plan: Plan, model: ir.Model, truth: Placed) -> Agreement:
    """Hold a plan of ``model`` against what a session did."""
    fates = node_tracing.fates(model, truth.model)
    found = [_where(fate, truth) for fate in fates.values()]
    wrong = tuple(
        Wrong(place.at, place.op, place.where, where, place.why)
        for place, where in zip(plan.places, found, strict=True)
        if place.where != where
    )
    return Agreement(
        right=len(found) - len(wrong),
        total=len(found),
        graphs=(plan.steps_on("graph"), len(truth.graphs)),
        copies=(plan.steps_on("copy"), truth.copies),
        steps=(len(plan.steps), truth.kernels),
        wrong=wrong,
    )


def _where(fate: node_tracing.Fate, truth: Placed) -> Where:
    if fate.node is None:
        return "gone"
    name = fate.node.name or ""
    if name in truth.fused:
        return "fused"
    return "dml" if truth.provider.get(name) == DML else "cpu"
