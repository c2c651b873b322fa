"""Dims of the inputs that must have the same size, from the graph and from input roles.

Two symbols are put into one group if the graph adds, compares or joins tensors that have them, or
because of their role: the first dim of every input is the same batch, and a mask is as long as the
data that it masks.
"""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, get_args

import numpy as np
import onnx_ir as ir

from graphfix.facts.shapes import Shapes
from graphfix.facts.size_relations import relations_of
from graphfix.facts.symbolic.expressions import Dim
from graphfix.facts.symbolic.sums import subtract_dims
from graphfix.feeds.input import Input, all_symbols, single_symbol, symbols
from graphfix.feeds.name_groups import NameGroups
from graphfix.feeds.states import find_states
from graphfix.graph.nodes import is_op
from graphfix.graph.walks import opset_of

Tie = Literal["graph", "one-time", "past", "rows"]
"""How symbols that nothing in the graph relates are tied: by role; all times the same; a mask as
long as the cache and the new tokens together; all but the first time the batch, as ``S`` of a state
beside the ``N`` of an input, which only the kernel knows to be one."""
TIES: tuple[Tie, ...] = get_args(Tie)


class DimGroups:
    """Groups of symbols with the same size, and symbols that are expressions of others.

    Args:
        model: The model, with dims renamed.
        inputs: Its inputs, with their axes.
        batch: The symbols that are a batch.
        tie: How to tie symbols that nothing in the graph relates.
        shapes: Returns symbolic shapes; called only if something has to be tied by them.

    Attributes:
        derived: Symbols that are expressions of others.
        times: The groups that vary, other than the batch; the most important first.
        past: Those of ``times`` that are the lengths of caches, which may be 0.
    """

    def __init__(
        self,
        model: ir.Model,
        inputs: Sequence[Input],
        batch: set[str],
        tie: Tie,
        shapes: Callable[[], Shapes],
    ) -> None:
        self._model, self._inputs, self._batch, self._shapes = model, inputs, batch, shapes
        self._groups = NameGroups()
        self.derived: dict[str, ir.SymbolicDim] = {}
        self.symbols = all_symbols(inputs)
        self._tie_symbols(tie)
        self.times, self.past = self._order_times()

    def group_of(self, name: str) -> str:
        """Return the symbol that represents all symbols of the same size as ``name``."""
        return self._groups.of(name)

    def _tie_symbols(self, tie: Tie) -> None:
        for symbol in self._batch:
            self._groups.join(min(self._batch), symbol)
        if (
            len({self.group_of(s) for s in self.symbols} - {self.group_of(s) for s in self._batch})
            > 1
        ):
            self._tie_by_graph()
        self._tie_caches()
        self.times, self.past = self._order_times()
        if tie == "past":
            self._tie_to_past()
        fresh_times = [t for t in self.times if t not in self.past]
        if tie == "rows" and self._batch:
            for time in fresh_times[1:]:
                self._groups.join(min(self._batch), time)
        elif tie == "one-time":
            for time in fresh_times[1:]:
                self._groups.join(fresh_times[0], time)
        else:
            self._tie_masks()

    def _tie_by_graph(self) -> None:
        input_symbols = set(self.symbols)
        mask_symbols = _mask_only_symbols(self._inputs)
        computed: list[tuple[str, ir.SymbolicDim]] = []
        for a, b in _equal_dims(self._model, self._shapes()):
            if not (symbols(a) and symbols(b) and symbols(a) | symbols(b) <= input_symbols):
                continue
            lhs, rhs = single_symbol(a), single_symbol(b)
            if lhs and rhs:
                if (lhs in self._batch) == (rhs in self._batch):
                    self._groups.join(lhs, rhs)
                continue
            for symbol, dim in ((lhs, b), (rhs, a)):
                if symbol is None or isinstance(dim, int) or symbol in symbols(dim):
                    continue
                if symbol in mask_symbols:
                    self.derived.setdefault(symbol, dim)
                elif not symbols(dim) & mask_symbols:
                    # A mask follows from data, never data from it.
                    computed.append((symbol, dim))
        for symbol, dim in computed:
            if self._may_be_derived(symbol, dim):
                self.derived[symbol] = dim

    def _may_be_derived(self, symbol: str, dim: ir.SymbolicDim) -> bool:
        """Return whether a size of its own, such as that of a second input, follows from others."""
        if symbol in self._batch or symbol in self.derived or symbols(dim) & self.derived.keys():
            return False
        group = self.group_of(symbol)
        is_alone = all(s == symbol or self.group_of(s) != group for s in self.symbols)
        return is_alone and not any(symbol in symbols(x) for x in self.derived.values())

    def _tie_caches(self) -> None:
        """Tie the lengths of caches of one kind, unless two names each recur.

        Dynamo gives the keys and values of one cache several names, at its own discretion; two
        names that recur are two caches, such as those of self- and cross-attention. The former are
        continued, and the latter are not. Keys and values that are continued by the same entries,
        and not cut, are one length, since both begin with none.
        """
        self._caches: set[str] = set()
        kinds: dict[tuple[object, ...], list[str]] = {}
        past: set[str] = set()
        states = {state.input: state.output for state in find_states(self._model)}
        state_symbols: set[str] = set()
        for item in self._inputs:
            kind = _cache_kind(item, grows=self._grows_by_step(item, states.get(item.name)))
            symbol = single_symbol(item.dims[item.time]) if kind and item.time is not None else None
            if kind and symbol:
                kinds.setdefault(kind, []).append(symbol)
                if _is_continued(self._model, item.name):
                    past.add(symbol)
                if item.name in states:
                    state_symbols.add(symbol)
        for names in kinds.values():
            if len(names) == 1:  # an image is joined to something, too
                self._caches |= past & set(names) & state_symbols
            else:
                self._tie_caches_of_kind(names, past, states)

    def _tie_caches_of_kind(
        self, names: Sequence[str], past: set[str], states: Mapping[str, str]
    ) -> None:
        """Tie the lengths of two or more caches, given the symbols of those that are continued."""
        recurring = {s for s, n in Counter(names).items() if n > 1}
        self._caches |= recurring
        if len(recurring) > 1:
            growths = {x: self._growth_of(x, states) for x in sorted(recurring & past)}
            for name, growth in growths.items():
                first = next(x for x, other in growths.items() if other == growth)
                if growth is not None:
                    self._groups.join(first, name)
            self._tie_namesakes(recurring - past)
            return
        alike = recurring | (past & set(names)) if recurring else set(names)
        self._caches |= alike
        for tied_symbols in (alike & past, alike - past):  # of self- and of cross-attention
            for name in tied_symbols:
                self._groups.join(min(tied_symbols), name)

    def _tie_namesakes(self, names: set[str]) -> None:
        """Tie the lengths of caches of one encoder's output: ``cross_k0`` and ``cross_k1``."""
        by_words: dict[frozenset[str], str] = {}
        for name in sorted(names):
            items = [x.name for x in self._inputs if name in {single_symbol(d) for d in x.dims}]
            words = frozenset(re.sub(r"\d+", "", x) for x in items)
            self._groups.join(by_words.setdefault(words, name), name)

    def _growth_of(self, symbol: str, states: Mapping[str, str]) -> Dim | None:
        """Return by how many entries the caches of a length grow; None if not all by as many."""
        outputs = {x.name: x for x in self._model.graph.outputs}
        growths: list[Dim | None] = []
        for item in self._inputs:
            axis, output = item.time, states.get(item.name)
            if axis is None or output is None or single_symbol(item.dims[axis]) != symbol:
                continue
            dims = self._shapes().dims(outputs[output])
            known = dims is not None and len(dims) == len(item.dims)
            growth = subtract_dims(dims[axis], item.dims[axis]) if dims and known else None
            # A cache that the model cuts has its length in what it grows by.
            growths.append(None if growth is None or symbol in symbols(growth) else growth)
        return growths[0] if growths and all(x == growths[0] for x in growths) else None

    def _grows_by_step(self, item: Input, output: str | None) -> bool:
        """Return whether an input comes back longer: keys of ``[B * H, D, P]``, not Conv frames."""
        if output is None or item.time is None or not _is_continued(self._model, item.name):
            return False
        dims = self._shapes().dims(next(x for x in self._model.graph.outputs if x.name == output))
        if dims is None or len(dims) != len(item.dims):
            return False
        return symbols(item.dims[item.time]) < symbols(dims[item.time])

    def _order_times(self) -> tuple[list[str], set[str]]:
        """Return the groups that vary besides the batch, data first, masks last; and the caches."""
        batch = {self.group_of(s) for s in self._batch}
        past = {self.group_of(s) for s in self._caches}
        order = {"data": 0, "tokens": 1, "positions": 2, "mask": 3}
        ranked = sorted(self._inputs, key=lambda x: order.get(x.role.kind, 4))
        names = [s for x in ranked for d in x.dims for s in sorted(symbols(d))]
        groups = dict.fromkeys(self.group_of(s) for s in names if s not in self.derived)
        # Caches come last: they are never the time that a model is about.
        return sorted([g for g in groups if g not in batch], key=lambda g: g in past), past

    def _tie_masks(self) -> None:
        mask_symbols = _mask_only_symbols(self._inputs) - self.derived.keys()
        for item in self._inputs:
            partner = self.described_input(item) if item.role.kind == "mask" else None
            if partner is None or partner.time is None:
                continue
            target = single_symbol(partner.dims[partner.time])
            for axis, dim in enumerate(item.dims):
                symbol = single_symbol(dim)
                if (
                    target is None
                    or symbol is None
                    or axis == item.rows
                    or symbol not in mask_symbols
                ):
                    continue
                if self.group_of(symbol) not in self._content_groups():
                    self._groups.join(target, symbol)

    def _content_groups(self) -> set[str]:
        """Return the groups that something other than a mask has."""
        masks = _mask_only_symbols(self._inputs)
        return {self.group_of(s) for s in self.symbols if s not in masks}

    def _tie_to_past(self) -> None:
        tokens = next((t for t in self.times if t not in self.past), None)
        past = next(iter(sorted(self.past)), None)
        if tokens is None or past is None:
            return
        total = ir.SymbolicDim(past) + ir.SymbolicDim(tokens)
        of_others = {
            s
            for x in self._inputs
            if self._is_named_after_other(x, tokens)
            for s in all_symbols([x])
        }
        for symbol in _mask_only_symbols(self._inputs) - self._batch - {*of_others}:
            if self.group_of(symbol) not in self._content_groups():
                self.derived.setdefault(symbol, total)

    def _is_named_after_other(self, item: Input, tokens: str) -> bool:
        """Return whether a mask has its name from data beside the tokens: an encoder's output."""
        partner = self.described_input(item) if item.role.kind == "mask" else None
        if partner is None or partner.time is None or partner.name[:3] != item.name[:3]:
            return False
        return single_symbol(partner.dims[partner.time]) not in {
            x for x in self.symbols if self.group_of(x) == tokens
        }

    def described_input(self, item: Input) -> Input | None:
        """Return the data or token input that a mask or length describes, or None.

        The one before it whose name is most like its own; only the order where names say nothing.
        """
        content = [
            x for x in self._inputs if x.role.kind in ("data", "tokens") and x.time is not None
        ]
        content = [
            x for x in content if not (symbols(x.dims[x.time or 0]) & self._caches)
        ] or content
        if not content:
            return None
        position = self._inputs.index(next(x for x in self._inputs if x.name == item.name))

        def name_likeness(x: Input) -> tuple[int, int]:
            pairs = zip(x.name.lower(), item.name.lower(), strict=False)
            common = sum(1 for _ in itertools.takewhile(lambda p: p[0] == p[1], pairs))
            return (common, -abs(position - self._inputs.index(x)))

        return max(content, key=name_likeness)


def _mask_only_symbols(inputs: Iterable[Input]) -> set[str]:
    masks, content = set[str](), set[str]()
    for item in inputs:
        (masks if item.role.kind == "mask" else content).update(*map(symbols, item.dims))
    return masks - content


def _is_continued(model: ir.Model, name: str) -> bool:
    """Return whether the graph appends something to an input, as it does to a cache.

    Rows of a cache may be chosen again first, by the beams that go on.
    """
    value = next(x for x in model.graph.inputs if x.name == name)
    values = [value, *(x.outputs[0] for x, i in value.uses() if i == 0 and is_op(x, "Gather"))]
    return any(is_op(x, "Concat") and i == 0 for value in values for x, i in value.uses())


def _cache_kind(item: Input, *, grows: bool) -> tuple[object, ...] | None:
    """Return dtype, time axis and fixed sizes, which caches of one kind share; else None."""
    if item.role.kind != "data" or len(item.dims) < (3 if grows else 4) or item.time is None:
        return None
    numbers = [d if isinstance(d, int) else None for d in item.dims]
    return (np.dtype(item.dtype).name, item.time, *numbers)


def _equal_dims(model: ir.Model, shapes: Shapes) -> Iterator[tuple[Dim, Dim]]:
    """Yield pairs of dims that the graph needs to be equal, up to broadcasting."""
    for value in model.graph.inputs:  # inference may know more than the model declares
        yield from zip(value.shape or (), shapes.dims(value) or (), strict=False)
    relations = relations_of(model.graph, shapes, opset_of(model))
    yield from ((x.a, x.b) for x in relations.all_relations())
