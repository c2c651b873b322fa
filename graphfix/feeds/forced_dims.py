"""Dims of the inputs whose size the graph dictates, written as numbers into a model."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from graphfix.facts.forced_sizes import ForcedSize, SizeRules, Wishes, solve_sizes
from graphfix.facts.shapes import drop_shapes, infer, shapes_of
from graphfix.facts.size_relations import GraphRelations, relations_of
from graphfix.facts.symbolic.expressions import Dim, replace_symbols, symbols_of
from graphfix.feeds.input import single_symbol
from graphfix.feeds.name_groups import NameGroups
from graphfix.graph.walks import opset_of

# What is forced may dictate more: each round takes an inference.
_MOST_ROUNDS = 3


def fix_forced_dims(model: ir.Model, granted: Wishes) -> tuple[dict[str, ForcedSize], SizeRules]:
    """Write the sizes that a graph dictates into the shapes of its inputs.

    Args:
        model: A copy of a model, with names for all dims; it is changed.
        granted: Which wishes of the graph are granted.

    Returns:
        What was written, by symbol, and the rules for the other symbols.
    """
    forced: dict[str, ForcedSize] = {}
    rules = SizeRules()
    for _ in range(_MOST_ROUNDS):
        names = {s for x in model.graph.inputs for dim in x.shape or () for s in symbols_of(dim)}
        if not names:
            break
        relations = relations_of(model.graph, shapes_of(model), opset_of(model))
        rules = solve_sizes(relations, names, granted)
        new = {name: x for name, x in rules.forced.items() if name in names}
        if not new and granted != "none":
            new = _forced_if_equal_dims_are_one(model, relations, names, granted)
        if not new:
            break
        forced |= new
        _write_sizes(model, new)
    return forced, rules


def _forced_if_equal_dims_are_one(
    model: ir.Model, relations: GraphRelations, names: Collection[str], granted: Wishes
) -> dict[str, ForcedSize]:
    """Return what a graph dictates where dims that it adds or compares are one size.

    The sum of ``[B, C]`` and ``[N, D]`` has sizes of its own, as one of both may broadcast: only
    where C is D does a weight behind it say what they are.
    """
    pairs = [(x.a, x.b) for x in relations.all_relations()]
    if not any(_hides_number(a, b, names) for a, b in pairs):
        return {}
    groups = NameGroups()
    for a, b in pairs:
        lhs, rhs = single_symbol(a), single_symbol(b)
        if lhs in names and rhs in names and lhs is not None and rhs is not None:
            groups.join(*sorted((groups.of(lhs), groups.of(rhs))))
    if not groups:
        return {}
    first_names = {name: first for name in names if (first := groups.of(name)) != name}
    shapes = infer(model, first_names)
    rules = solve_sizes(relations_of(model.graph, shapes, opset_of(model)), names, granted)
    forced = {name: rules.forced.get(groups.of(name)) for name in names}
    return {name: replace(size, sure=False) for name, size in forced.items() if size is not None}


def _hides_number(a: Dim, b: Dim, names: Collection[str]) -> bool:
    """Return whether a number must be equal to a size that is not made of the inputs' dims."""
    is_hidden = not symbols_of(a) | symbols_of(b) <= set(names)
    return is_hidden and (isinstance(a, int) or isinstance(b, int))


def _write_sizes(model: ir.Model, forced: Mapping[str, ForcedSize]) -> None:
    numbers: dict[str, Dim] = {name: x.size for name, x in forced.items()}
    for value in model.graph.inputs:
        if value.shape is not None:
            value.shape = ir.Shape([replace_symbols(x, numbers) for x in value.shape])
    drop_shapes(model)


def group_rules(
    rules: SizeRules,
    symbols: Sequence[str],
    group_of: Callable[[str], str],
    derived: Mapping[str, Dim],
) -> SizeRules:
    """Return rules of symbols as rules of the groups that have the same size.

    Args:
        rules: The rules.
        symbols: The symbols of the inputs.
        group_of: Returns the group of a symbol.
        derived: Symbols that are expressions of others.
    """
    groups: dict[str, Dim] = {s: ir.SymbolicDim(group_of(s)) for s in symbols if s not in derived}
    groups |= {s: replace_symbols(dim, groups) for s, dim in derived.items()}
    return rules.rename(groups)
