"""Sizes that a graph dictates: solved from what must be equal, before any size is tried.

A relation of one symbol says which sizes it may have: one (``10`` for the rows of a weight), a few
(``floor((T - 3) / 2) + 1`` is 10 at 21 and 22), or every other (``T`` is ``2*floor(T/2)``). Those
of several symbols, such as ``heads * dim = 64``, leave choices that fit each other.

What must be equal only where nothing broadcasts, where a Loop has rounds or where a branch is
taken, is a wish, see :data:`Wishes`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Literal

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from graphfix.facts.shapes import input_dim_symbols, shapes_of
from graphfix.facts.size_relations import GraphRelations, SizeRelation, relations_of
from graphfix.facts.symbolic.expressions import (
    Dim,
    compile_dim,
    linear_solution,
    replace_symbols,
    symbols_of,
    without_common_factors,
)
from graphfix.facts.symbolic.trials import Sizes
from graphfix.graph.dim_spelling import DimSpelling
from graphfix.graph.walks import opset_of
from graphfix.spec.quoting import quote_name
from graphfix.wording import Row

Wishes = Literal["none", "usual", "branches"]
"""Which wishes are granted: none, so that only what no run can do without holds; that what
broadcasts is equal, and that a Loop has rounds; that each branch of an If can be taken, too."""

# Sizes are solved by trying them all: up to the first, or up to the second if none of those fits.
_RANGES = (1 << 17, 1 << 20)
# Letters of a size that is reckoned with.
_LONGEST_TEXT = 120
# How many combinations of sizes are tried to find one that fits all relations.
_MOST_TRIES = 600
# How many sizes of a symbol are tried on either side of what is wanted: where the others follow
# from it, and where relations already say which it may have.
_FEW, _NEAREST = 8, 128
_MOST_SHOWN = 3


@dataclass(frozen=True)
class ForcedSize:
    """The one size that a symbol may have.

    Attributes:
        size: The size.
        source: The weight or the node that wants it.
        sure: Whether the model runs at no other: none that broadcasts, or passes a branch by.
    """

    size: int
    source: str
    sure: bool = True

    @property
    def may_be_thawed(self) -> bool:
        """Return whether a node wants it and no weight, so that a trace may have fixed it."""
        return self.source.endswith("'")

    def __str__(self) -> str:
        return f"{self.size}, from {self.source}" + ("" if self.sure else "; others may run")


def forced_texts(forced: Mapping[str, ForcedSize]) -> list[str]:
    """Return each dim with its size and what wants it, in words for a user."""
    return [f"{quote_name(name)} = {size}" for name, size in forced.items()]


def forced_row(forced: Mapping[str, ForcedSize], *, verbose: bool = True) -> list[Row]:
    """Return the dims that may have one size only as one row of a result, or none."""
    texts = forced_texts(forced)
    if not texts:
        return []
    shown = texts if verbose else texts[:_MOST_SHOWN]
    more = f"; {len(texts) - len(shown)} more (-v)" if len(shown) < len(texts) else ""
    return [Row("forced", f"{'; '.join(shown)}{more}")]


@dataclass(frozen=True)
class _Restriction:
    """The sizes that a symbol may have, and what wants it."""

    sizes: Sizes
    source: str

    @property
    def text(self) -> str:
        few = " or ".join(map(str, self.sizes[:_MOST_SHOWN]))
        shown = few if 0 < len(self.sizes) <= _MOST_SHOWN else "another size"
        return f"{shown} for {self.source}"


@dataclass(frozen=True)
class SizeRules:
    """Which sizes the symbols of a graph's inputs may have together.

    Attributes:
        forced: The symbols that may have one size only.
        coupled: The relations of several symbols.
        contradictions: For a symbol that may have no size, what wants what.
    """

    forced: Mapping[str, ForcedSize] = field(default_factory=dict)
    coupled: tuple[_Relation, ...] = ()
    contradictions: Mapping[str, str] = field(default_factory=dict)
    _restrictions: Mapping[str, tuple[_Restriction, ...]] = field(default_factory=dict)

    @cached_property
    def _allowed(self) -> dict[str, Sizes]:
        return {k: _common_sizes(x) for k, x in self._restrictions.items()}

    def allows_more(self, symbol: str, size: int) -> bool:
        """Return whether a symbol may have a larger size."""
        sizes = self._allowed.get(symbol)
        return sizes is None or len(sizes) == 0 or int(sizes[-1]) > size

    def rename(self, names: Mapping[str, Dim]) -> SizeRules:
        """Return the rules of other symbols, each of which stands for some of these.

        Args:
            names: What each symbol is in the others; one that is missing keeps its name.
        """
        restrictions: dict[str, tuple[_Restriction, ...]] = {}
        relations = [
            replace(x, a=replace_symbols(x.a, names), b=replace_symbols(x.b, names))
            for x in self.coupled
        ]
        for name, wishes in self._restrictions.items():
            dim = names.get(name, ir.SymbolicDim(name))
            if not isinstance(dim, int) and dim.value is not None and dim.value.isidentifier():
                restrictions[dim.value] = (*restrictions.get(dim.value, ()), *wishes)
        return _solve([x for x in relations if str(x.a) != str(x.b)], restrictions)

    def fit(self, wanted: Mapping[str, int], keep: Collection[str] = ()) -> dict[str, int]:
        """Return sizes that satisfy all relations, near those that are wanted.

        Args:
            wanted: A size for each symbol, the most important first.
            keep: The symbols that keep their size whatever the relations say.

        Returns:
            The wanted sizes where none were found.
        """
        if not wanted or not (self._restrictions or self.coupled):
            return dict(wanted)
        order = sorted(wanted, key=lambda name: name not in keep)
        sizes = next(islice(self._combine(order, dict(wanted), keep), 1), None)
        return dict(wanted) if sizes is None else {name: sizes[name] for name in wanted}

    def equal_sizes(self, wanted: Mapping[str, int]) -> dict[str, int] | None:
        """Return sizes at which symbols that share a relation are equal, as a square image's are.

        Args:
            wanted: A size for each symbol.

        Returns:
            None if no relation has several symbols, or none allows it.
        """
        if not self.coupled:
            return None
        names = set().union(*(x.symbols for x in self.coupled))
        alike = {name: ir.SymbolicDim("n") for name in names}
        relations = [replace(x, a=replace_symbols(x.a, alike)) for x in self.coupled]
        relations = [replace(x, b=replace_symbols(x.b, alike)) for x in relations]
        if any(x.symbols != {"n"} for x in relations):
            return None
        least = min((wanted[x] for x in names if x in wanted), default=1)
        size = _size_near(least, relations)
        if size is None:
            return None
        return {name: size if name in names else n for name, n in wanted.items()}

    def _combine(
        self, order: Sequence[str], wanted: Mapping[str, int], keep: Collection[str]
    ) -> Iterator[dict[str, int]]:
        """Yield combinations of sizes that fit, each symbol's nearest to what is wanted first."""
        pending: list[tuple[dict[str, int], Iterator[int]]] = [
            ({}, self._candidates(order[0], wanted, {}, keep))
        ]
        for _ in range(_MOST_TRIES):
            if not pending:
                return
            sizes, candidates = pending[-1]
            size = next(candidates, None)
            if size is None:
                pending.pop()
                continue
            more = {**sizes, order[len(sizes)]: size}
            if len(more) == len(order):
                yield more
            else:
                name = order[len(more)]
                pending.append((more, self._candidates(name, wanted, more, keep)))

    def _candidates(
        self,
        name: str,
        wanted: Mapping[str, int],
        sizes: Mapping[str, int],
        keep: Collection[str],
    ) -> Iterator[int]:
        if name in keep:
            return iter((wanted[name],))
        least = min(1, wanted[name])
        allowed = self._allowed.get(name)
        mentions = [x for x in self.coupled if name in x.symbols and x.symbols <= wanted.keys()]
        decided = [x for x in mentions if x.symbols <= {*sizes, name}]
        if allowed is None and not mentions:
            return iter((wanted[name],))
        if allowed is None and not decided:
            return _near(wanted[name], least)
        grid = np.arange(_RANGES[0], dtype=np.int64) if allowed is None else allowed
        for relation in decided:
            grid = grid[relation.holds({**sizes, name: grid})]
        grid = grid[grid >= least]
        above = grid[grid >= wanted[name]]
        below = grid[grid < wanted[name]][::-1]
        return map(int, (*above[:_NEAREST], *below[:_NEAREST]))


def _near(size: int, least: int) -> Iterator[int]:
    """Return some sizes near one, and 1."""
    above, below = range(size, size + _FEW), range(size - 1, max(least, size - _FEW), -1)
    return iter(dict.fromkeys((size, 1, *above, *below)))


@dataclass(frozen=True)
class _Relation:
    """Two sizes that are equal; or one of them is 1, where they may broadcast.

    Attributes:
        a: One size.
        b: The other.
        source: What wants it.
        broadcasts: Whether 1 is as good.
        meets: Whether they meet in a node that broadcasts: beside a 1 any size is right.
    """

    a: Dim
    b: Dim
    source: str
    broadcasts: bool
    meets: bool = False

    @property
    def says_something(self) -> bool:
        """Return whether some size may be wrong."""
        return bool(self.symbols) and not (self.meets and 1 in (self.a, self.b))

    @cached_property
    def symbols(self) -> frozenset[str]:
        return symbols_of(self.a) | symbols_of(self.b)

    def holds(self, sizes: Mapping[str, int | Sizes]) -> npt.NDArray[np.bool_]:
        """Return where it holds, for arrays of sizes."""
        arrays = {name: np.asarray(n, np.int64) for name, n in sizes.items()}
        with np.errstate(all="ignore"):
            a, b = (compile_dim(x)(arrays) for x in (self.a, self.b))
        equal = (a == b) & (a >= 0)
        if self.broadcasts:
            equal = equal | ((a == 1) & (b >= 0)) | ((b == 1) & (a >= 0))
        count = max((x.size for x in arrays.values()), default=1)
        return np.broadcast_to(equal, np.shape(equal) or (count,))


def forced_sizes_of(model: ir.Model) -> Mapping[str, ForcedSize]:
    """Return the sizes that a graph dictates, by the file's names of dims."""
    symbols = input_dim_symbols(model)
    if not symbols:
        return {}
    relations = relations_of(model.graph, shapes_of(model), opset_of(model))
    forced, spelling = solve_sizes(relations, symbols).forced, DimSpelling(model)
    return {spelling.name_of(symbol): size for symbol, size in forced.items()}


def solve_sizes(
    relations: GraphRelations, symbols: Collection[str], granted: Wishes = "usual"
) -> SizeRules:
    """Return which sizes the symbols of a graph's inputs may have.

    Args:
        relations: The relations of the graph.
        symbols: The symbols of the inputs; a relation with another is left out.
        granted: Which wishes are granted.
    """
    known, strict = frozenset(symbols), granted != "none"
    pending = _relations_in(relations.always, known, strict=strict)
    rules_without = None
    if strict:
        rules_without = solve_sizes(relations, symbols, "none")
        pending += _relations_in(relations.wishes, known, strict=True)
    if granted == "branches":
        inside = _relations_in(relations.in_branches(), known, strict=True)
        pending += (x for x in inside if len(x.symbols) == 1)
    rules = _solve(pending, _restrictions_of_branches(relations, known))
    return rules if rules_without is None else _without_lost_wishes(rules, rules_without)


def _without_lost_wishes(rules: SizeRules, without: SizeRules) -> SizeRules:
    """Return rules without the wishes that contradict others.

    Args:
        rules: The rules with all wishes.
        without: The rules with none.
    """
    lost = rules.contradictions.keys() - without.contradictions.keys()
    forced = {
        name: replace(x, sure=name in without.forced)
        for name, x in rules.forced.items()
        if name not in lost
    }
    allowed = {
        name: without._restrictions.get(name, ()) if name in lost else x
        for name, x in rules._restrictions.items()
    }
    return SizeRules(
        {**forced, **{name: without.forced[name] for name in lost if name in without.forced}},
        rules.coupled,
        without.contradictions,
        {name: x for name, x in allowed.items() if x},
    )


def _restrictions_of_branches(
    relations: GraphRelations, known: frozenset[str]
) -> dict[str, tuple[_Restriction, ...]]:
    """Return what each If wants whichever of its branches is taken."""
    restrictions: dict[str, tuple[_Restriction, ...]] = {}
    for branches in relations.branches:
        solved = [solve_sizes(x, known, "none") for x in branches]
        runs = [x for x in solved if not x.contradictions]  # another branch is never taken
        for name in set.intersection(*({*x._restrictions} for x in runs)) if runs else ():
            union = np.unique(np.concatenate([x._allowed[name] for x in runs]))
            source = runs[0]._restrictions[name][0].source
            restrictions[name] = (*restrictions.get(name, ()), _Restriction(union, source))
    return restrictions


def _relations_in(
    relations: Iterable[SizeRelation], known: frozenset[str], *, strict: bool
) -> list[_Relation]:
    """Return the relations that say something of known symbols, each once."""
    unique: dict[tuple[object, ...], _Relation] = {}
    for relation in relations:
        a, b = relation.a, relation.b
        names = symbols_of(a) | symbols_of(b)
        if not names or not names <= known or len(f"{a}{b}") > 2 * _LONGEST_TEXT:
            continue
        broadcasts = relation.broadcasts and not strict
        key = (str(a), str(b), broadcasts)
        if key in unique or str(a) == str(b):
            continue
        unique[key] = _Relation(a, b, relation.source, broadcasts, relation.broadcasts)
    reduced = (x if x.broadcasts else _without_common_factors(x) for x in unique.values())
    return [x for x in reduced if x.says_something]


def _without_common_factors(relation: _Relation) -> _Relation:
    a, b = without_common_factors(relation.a, relation.b)
    return replace(relation, a=a, b=b)


def _size_near(least: int, relations: Iterable[_Relation]) -> int | None:
    """Return the size of the one symbol of some relations that is next above one, else below."""
    solutions = [_solutions(x) for x in relations]
    common = _common_sizes([_Restriction(x, "") for x in solutions if x is not None])
    common = common[common > 0]
    if len(common) == 0:
        return None
    above = common[common >= least]
    return int(above[0] if len(above) else common[-1])


def _solve(
    pending: Sequence[_Relation], restrictions: dict[str, tuple[_Restriction, ...]]
) -> SizeRules:
    """Solve the relations of one symbol, put in what they dictate, and go on with the others."""
    forced: dict[str, ForcedSize] = {}
    contradictions: dict[str, str] = {}
    while True:
        single = [x for x in pending if len(x.symbols) == 1]
        pending = [x for x in pending if len(x.symbols) > 1]
        for relation in single:
            _add_restriction(restrictions, relation)
        new: dict[str, ForcedSize] = {}
        for name, wishes in restrictions.items():
            sizes = _common_sizes(wishes)
            if len(sizes) == 0:
                contradictions.setdefault(name, _contradiction(wishes))
            elif len(sizes) == 1 and name not in forced:
                source = min(wishes, key=lambda x: len(x.sizes)).source
                new[name] = ForcedSize(int(sizes[0]), source)
        if not new:
            return SizeRules(forced, tuple(pending), contradictions, restrictions)
        forced |= new
        numbers: dict[str, Dim] = {name: x.size for name, x in new.items()}
        put_in = (
            replace(x, a=replace_symbols(x.a, numbers), b=replace_symbols(x.b, numbers))
            for x in pending
        )
        pending = [x for x in put_in if x.says_something]


def _add_restriction(
    restrictions: dict[str, tuple[_Restriction, ...]], relation: _Relation
) -> None:
    """Add what a relation of one symbol allows, unless that is all or 0 alone."""
    (name,) = relation.symbols
    sizes = _solutions(relation)
    if sizes is not None and not (len(sizes) == 1 and sizes[0] == 0):  # 0 is of no use
        allowed = _Restriction(sizes, relation.source)
        restrictions[name] = (*restrictions.get(name, ()), allowed)


def _contradiction(wishes: Sequence[_Restriction]) -> str:
    """Return what wants which size, of those that have none in common."""
    hopeless = next((x for x in wishes if len(x.sizes) == 0), None)
    if hopeless is not None:
        return f"none suits {hopeless.source}"
    for place, first in enumerate(wishes):
        for second in wishes[place + 1 :]:
            if len(_common_sizes([first, second])) == 0:
                return f"it has to be {first.text}, and {second.text}"
    return f"it has to be {', and '.join(x.text for x in wishes)}"


def _common_sizes(restrictions: Sequence[_Restriction]) -> Sizes:
    if not restrictions:
        return np.arange(_RANGES[0], dtype=np.int64)
    sizes = restrictions[0].sizes
    for more in restrictions[1:]:
        sizes = np.intersect1d(sizes, more.sizes, assume_unique=True)
    return sizes


def _solutions(relation: _Relation) -> Sizes | None:
    """Return the sizes of its one symbol at which a relation holds; None if at all of them."""
    if relation.broadcasts:
        pairs = ((relation.a, relation.b), (relation.a, 1), (1, relation.b))
        ways = [replace(relation, a=a, b=b, broadcasts=False) for a, b in pairs]
        each = [_solutions(x) for x in ways if x.symbols]
        known = [x for x in each if x is not None]
        return None if len(known) < len(each) else np.unique(np.concatenate(known))
    size = linear_solution(relation.a, relation.b)
    if size is not None:
        return np.array([size] if size >= 0 else [], np.int64)
    (name,) = relation.symbols
    for count in _RANGES:
        sizes = np.arange(count, dtype=np.int64)
        holds = relation.holds({name: sizes})
        if holds[1:].all():
            return None
        if holds.any():
            return sizes[holds]
    return np.array([], np.int64)
