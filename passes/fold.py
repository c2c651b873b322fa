"""fold: the manual is the docstring of the class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from graphfix.build import Builder
from graphfix.core import Change, Match, Pass, Safety
from graphfix.model.text import path_of
from graphfix.model.values import nodes_of
from graphfix.model.view import View

from ._fold_chains import chain
from ._fold_constants import constant, decided_if
from ._fold_equal import Equal
from ._fold_look import Found, Look
from ._fold_sizes import Sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    import onnx_ir as ir

    Rule = Callable[[ir.Node, Look], Found | None]

# What one round makes, the next may go on with; a chain of this many links would be a wonder.
_ROUNDS = 50


@dataclass(frozen=True)
class FoldSite(Match):
    """A node that can go, or be had for less; ``found`` says how."""

    found: Found


@dataclass(frozen=True)
class Fold(Pass):
    """What is constant, equal or undone again is computed once, or not at all."""

    name: ClassVar[str] = "fold"
    safety: ClassVar[Safety] = "exact"
    keeps_shapes: ClassVar[bool] = True

    def sites(self, model: ir.Model) -> Iterator[FoldSite]:
        """Every node that a first round would replace."""
        look = Look(View(model))
        rules: tuple[Rule, ...] = (*_rules(look), Sizes(look))
        for node in _nodes(model):
            found = _first(rules, node, look)
            if found is not None:
                yield FoldSite(node, found)

    def repair(self, model: ir.Model) -> Iterator[Change]:
        """Node by node until nothing is left; then sizes, of which all are planned at once."""
        for _ in range(_ROUNDS):
            changed = yield from self._round(model, _rules)
            if not changed:
                changed = yield from self._round(model, lambda look: (Sizes(look),))
            if not changed:
                return

    def message(self, site: Match) -> str:
        """What can be done with it."""
        return site.found.what if isinstance(site, FoldSite) else super().message(site)

    def _round(
        self, model: ir.Model, make: Callable[[Look], tuple[Rule, ...]]
    ) -> Generator[Change, None, bool]:
        """Show each node to each rule; whether any was replaced."""
        view = View(model)
        look, builder = Look(view), Builder(self.name, view)
        rules, changed = make(look), False
        for node in list(_nodes(model)):
            if node.graph is None:  # went with an earlier one
                continue
            found = _first(rules, node, look)
            if found is None:
                continue
            at, tensor = path_of(node), node.outputs[0].name or ""
            builder.start(node)
            values = found.build(builder)
            if values[0] is node.outputs[0]:  # it turns out to be as it should be
                continue
            removed, added = builder.commit(*values)
            changed = True
            yield Change(self.name, at, tensor, removed, added)
        return changed


def _rules(look: Look) -> tuple[Rule, ...]:
    """What looks at one node at a time, in the order in which a node is shown to them."""
    return (decided_if, constant, Equal(), chain)


def _first(rules: tuple[Rule, ...], node: ir.Node, look: Look) -> Found | None:
    return next((x for rule in rules if (x := rule(node, look)) is not None), None)


def _nodes(model: ir.Model) -> Iterator[ir.Node]:
    for graph in (model.graph, *(x.graph for x in model.functions.values())):
        yield from nodes_of(graph)
