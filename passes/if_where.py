"""if-where: the manual is the docstring of the class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import onnx_ir as ir

from graphfix.core import Change, Match, NodePass, Safety, Skip
from graphfix.model.values import is_op

from ._branches import CONTROL, Cost, cost_of, is_used, last, reason_against

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphfix.build import Builder
    from graphfix.model.view import View

# So many kernels are nothing beside a graph that fuses once no If is in it.
_FUSED = 8


@dataclass(frozen=True)
class BranchSite(Match):
    """An If whose branches may both be computed.

    Attributes:
        condition: One boolean.
        branches: The branch that is taken if it is true, and the other.
    """

    condition: ir.Value
    branches: tuple[ir.Graph, ir.Graph]


@dataclass(frozen=True)
class IfWhere(NodePass[BranchSite]):
    """An If between two small branches computes both, and a Where takes one.

    The branches may hand on what is outside, hold constants, and compute element by element. Both
    give tensors of one type and one shape, whatever the sizes of the inputs are.

    Why:
        ONNX Runtime GraphPartitioner.cpp 380-395 and 490-497: one If, and no node of the graph that
        it is in fuses with another on DirectML. The If runs on the CPU, which waits for the
        condition; Where runs on the device, and can be part of a fused graph.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        last (float[B, T] x, bool is_last) => (float[B, T] y)
        <float half = {0.5}>
        {
            scaled = Mul (x, half)
            chosen = If (is_last) <
                then_branch = yes () => (float[B, T] a) { a = Identity (x) },
                else_branch = no () => (float[B, T] b) { b = Sub (x, scaled) }
            >
            y = Neg (chosen)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        last (float[B, T] x, bool is_last) => (float[B, T] y)
        <float half = {0.5}>
        {
            scaled = Mul (x, half)
            b = Sub (x, scaled)
            chosen = Where (is_last, x, b)
            y = Neg (chosen)
        }

    Safety:
        Exact: each branch computes what it did, of the same numbers, and every element is that of
        the branch that was taken; an infinity or a NaN in the other is not seen. Nothing is moved
        out of a branch that may fail where the branch is not taken: no division of integers, no
        index, no shape that is computed, no two shapes that are not seen to fit; no Loop, nothing
        random, nothing with a state. Left alone, too: shapes of the two that are not seen to be
        equal, sequences, what ONNX Runtime's CPU has no Where for, and branches that would take
        more kernels than a run takes now that goes through the shorter one, or more than eight
        where all sizes are fixed and no other control flow is left, since then the whole becomes
        one fused graph. An If whose condition is a constant is left to
        fold.
    """

    name: ClassVar[str] = "if-where"
    safety: ClassVar[Safety] = "exact"
    anchors: ClassVar[tuple[str, ...]] = ("If",)

    def match(self, node: ir.Node, view: View) -> BranchSite | Skip | None:
        """An If whose branches cannot fail, cost little and make the same kind of thing."""
        site = _site(node, view)
        if not isinstance(site, BranchSite):
            return site
        cost = cost_of(node, site.branches)
        if cost.after <= cost.before or (cost.after <= _FUSED and _would_fuse(node, view)):
            return site
        return Skip(node, _too_much(cost))

    def repair(self, model: ir.Model) -> Iterator[Change | Skip]:
        """Until nothing is left: an If around one that has become a Where may become one, too."""
        while True:
            skips: list[Skip] = []
            changed = False
            for event in super().repair(model):
                if isinstance(event, Skip):
                    skips.append(event)
                else:
                    changed = True
                    yield event
            if not changed:
                yield from skips
                return

    def message(self, site: Match) -> str:
        """What it costs, and what may stand there."""
        return "both branches are small and cannot fail: a Where could choose between them"

    def rewrite(self, match: BranchSite, op: Builder) -> ir.Value:
        """Both branches before the If, and a Where for each output."""
        site = match.node
        sides = [op.inline(branch) for branch in match.branches]
        chosen = []
        for i, old in enumerate(site.outputs):
            if i == 0 or is_used(old):
                new = op.Where(match.condition, *(last(made[i]) for made in sides))
                chosen.append(new)
                if i:
                    op.replace(old, new)
        for value in (x for made in sides for x in made):
            if last(value) is not value:
                op.drop(value)
        return chosen[0]


def _site(node: ir.Node, view: View) -> BranchSite | Skip | None:
    """An If that may become a Where, whatever that costs."""
    condition = node.inputs[0] if node.inputs else None
    names = ("then_branch", "else_branch")
    if condition is None or not all(x in node.attributes for x in names):
        return None
    given = [node.attributes[x] for x in names]
    if any(x.is_ref() for x in given):
        return None
    first, second = (x.as_graph() for x in given)
    reason = reason_against(node, condition, (first, second), view)
    if reason is None:
        return BranchSite(node, condition, (first, second))
    return Skip(node, reason) if reason else None


def _would_fuse(node: ir.Node, view: View) -> bool:
    """Whether the graph of an If is one of fixed sizes, with no control flow that has to stay."""
    graph = view.model.graph
    if node.graph is not graph:
        return False
    shapes = (x.shape for x in graph.inputs if not x.is_initializer())
    if any(x is None or not all(isinstance(dim, int) for dim in x) for x in shapes):
        return False
    control = [x for x in graph if is_op(x, *CONTROL)]
    return all(is_op(x, "If") and isinstance(_site(x, view), BranchSite) for x in control)


def _too_much(cost: Cost) -> str:
    return (
        f"both branches would take {cost.after} kernels, and now a run may take {cost.before}; "
        f"in a graph of fixed sizes (fix-dims), which then fuses, up to {_FUSED} may be"
    )
