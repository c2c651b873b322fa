"""The inputs of a model with their roles, and which of their dims must have the same size.

Exporters name dims badly: one batch is ``s72`` in one input and ``s43`` in the next. Two symbols
are put into one group if the graph adds, compares or joins tensors that have them, and otherwise
by what they are for: the first dim of every input is the same batch, and a mask is as long as what
it masks.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from graphfix.errors import FeedError
from graphfix.feeds.roles import Role, roles_of
from graphfix.model.shapes import Shapes, shapes_of
from graphfix.model.symbolic import Dim
from graphfix.model.values import is_op

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import numpy.typing as npt

Tie = Literal["graph", "one-time", "past"]
"""How symbols that nothing in the graph relates are tied: by role; all times the same; a mask as
long as the cache and the new tokens together."""


@dataclass(frozen=True)
class Input:
    """One input of the model.

    Attributes:
        name: Its name.
        dtype: Its element type.
        dims: Its dims; every symbol is an identifier.
        role: What it is for.
        rows: The axis of the batch, or None.
        time: The axis along which it is ragged, or None.
        problem: Why it cannot be made up, if so.
    """

    name: str
    dtype: npt.DTypeLike
    dims: tuple[Dim, ...]
    role: Role
    rows: int | None = None
    time: int | None = None
    problem: str = ""

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Its shape, in elements, for sizes of all symbols."""
        return tuple(size_of(d, sizes) for d in self.dims)


def size_of(dim: Dim, sizes: Mapping[str, int]) -> int:
    """The number that ``dim`` is for these sizes.

    Raises:
        FeedError: A symbol in it has no size, or the size would be negative.
    """
    known = dim if isinstance(dim, int) else dim.evaluate(sizes)
    if not isinstance(known, int) or known < 0:
        raise FeedError(f"the dim {dim} has no size at {dict(sizes)}; give one with --dims")
    return known


def symbols(dim: Dim) -> frozenset[str]:
    """The names in ``dim``."""
    return frozenset() if isinstance(dim, int) else dim.free_symbols()


@dataclass
class _Ties:
    """Disjoint sets of symbols, and symbols that are expressions of others."""

    parent: dict[str, str] = field(default_factory=dict)
    derived: dict[str, ir.SymbolicDim] = field(default_factory=dict)

    def find(self, name: str) -> str:
        while (up := self.parent.get(name, name)) != name:
            name = up
        return name

    def join(self, a: str, b: str) -> None:
        a, b = self.find(a), self.find(b)
        if a != b:
            self.parent[b] = a


class Signature:
    """What has to be fed to a model.

    Args:
        model: The model; it is not changed.
        tie: How to tie symbols that nothing in the graph relates.

    Attributes:
        inputs: Every input that has no default.
        batch: The group of the batch, or None.
        times: The groups of symbols that vary, other than the batch; the most important first.
        past: Those of ``times`` that are the lengths of caches, which may be 0.
    """

    def __init__(self, model: ir.Model, tie: Tie = "graph") -> None:
        self._model = _scratch(model)
        self._names = _rename_dims(self._model)
        roles = roles_of(self._model)
        self.inputs = [_input(v, roles) for v in self._model.graph.inputs if v.name in roles]
        self._ties = _Ties()
        self._shapes: Shapes | None = None
        self._batch = self._find_batch()
        self.inputs = [self._with_axes(x) for x in self.inputs]
        self._tie(tie)
        self.batch = self._ties.find(min(self._batch)) if self._batch else None
        self.times, self.past = self._order_times()

    @property
    def shapes(self) -> Shapes:
        """Symbolic shapes in the symbols of :attr:`inputs`; inferred when first asked for."""
        if self._shapes is None:
            self._shapes = shapes_of(self._model)
        return self._shapes

    def output_dims(self) -> dict[str, tuple[Dim, ...] | None]:
        """The inferred dims of each graph output, in the symbols of :attr:`inputs`."""
        return {v.name or "": self.shapes.dims(v) for v in self._model.graph.outputs}

    def value_dims(self) -> dict[str, tuple[Dim, ...]]:
        """The inferred dims of every tensor of the main graph that a node makes."""
        found: dict[str, tuple[Dim, ...]] = {}
        for node in self._model.graph:
            for value in node.outputs:
                dims = self.shapes.dims(value)
                if dims is not None and value.name:
                    found[value.name] = dims
        return found

    def group(self, symbol: str) -> str:
        """The name that stands for all symbols of the same size as ``symbol``."""
        return self._ties.find(symbol)

    def members(self, group: str) -> list[str]:
        """Every input symbol of ``group``."""
        return [s for s in self.symbols() if self._ties.find(s) == group]

    def symbols(self) -> list[str]:
        """Every symbol of the inputs, in order of appearance."""
        found = dict.fromkeys(s for x in self.inputs for d in x.dims for s in sorted(symbols(d)))
        return list(found)

    def sizes(self, groups: Mapping[str, int]) -> dict[str, int]:
        """The size of each symbol, for a size of each group."""
        known = {s: groups[self.group(s)] for s in self.symbols() if s not in self._ties.derived}
        for symbol, dim in self._ties.derived.items():
            known[symbol] = size_of(dim, known)
        return known

    def user_name(self, symbol: str) -> str:
        """The model's own name of a symbol."""
        return self._names.get(symbol, symbol)

    def symbol_of(self, name: str) -> str | None:
        """The symbol that a user calls ``name``, if there is one."""
        for symbol in self.symbols():
            if name in (symbol, self.user_name(symbol)):
                return symbol
        return None

    def time_of(self, item: Input) -> str | None:
        """The group along which ``item`` is ragged."""
        if item.time is not None:
            plain = _plain(item.dims[item.time])
            if plain is None:
                return None
            derived = self._ties.derived.get(plain)
            if derived is not None:
                return self._main_of(derived)
            return self.group(plain)
        if item.role.kind in ("lengths", "relative-lengths", "cu-lengths"):
            partner = self._partner(item)
            return None if partner is None else self.time_of(partner)
        return None

    # How the groups are found

    def _main_of(self, dim: ir.SymbolicDim) -> str | None:
        """The group of new tokens in a sum such as ``past + tokens``."""
        groups = {self.group(s) for s in dim.free_symbols()}
        return next((t for t in self.times if t in groups and t not in self.past), None)

    def _find_batch(self) -> set[str]:
        """The symbols that are a batch: first dims, unless they are also seen elsewhere."""
        later = {s for x in self.inputs for d in x.dims[1:] for s in symbols(d)}
        sure = {
            s
            for x in self.inputs
            if x.role.kind in ("lengths", "relative-lengths") and x.dims
            if (s := _plain(x.dims[0]))
        }
        found = set(sure)
        for item in self.inputs:
            first = _plain(item.dims[0]) if item.dims else None
            elsewhere = {s for d in item.dims[1:] for s in symbols(d)}
            if first is None or first in later or sure & elsewhere:
                continue
            named = re.search(r"batch|^(b|bs|n)$", self.user_name(first), re.IGNORECASE)
            if len(item.dims) > 2 or (len(item.dims) == 2 and elsewhere) or named:
                found.add(first)
        if found:  # one number or one vector a row, beside inputs that have rows
            found |= {
                s
                for x in self.inputs
                if x.role.kind != "data" and len(x.dims) in (1, 2) and not _later(x)
                if (s := _plain(x.dims[0])) and s not in later
            }
        return found

    def _with_axes(self, item: Input) -> Input:
        batch = self._batch
        rows = 0 if item.dims and self._is_row(item) else None
        for axis, dim in enumerate(item.dims):
            if _plain(dim) in batch:
                rows = axis
        free = [
            a
            for a, d in enumerate(item.dims)
            if a != rows and not isinstance(d, int) and not symbols(d) <= batch
        ]
        time: int | None = None
        if item.role.kind == "mask":
            fixed = [a for a, d in enumerate(item.dims) if a != rows and d != 1]
            time = free[-1] if free else (fixed[-1] if fixed else None)
        elif item.role.kind in ("data", "tokens", "positions") and free:
            time = free[0]
        return replace(item, rows=rows, time=time)

    def _is_row(self, item: Input) -> bool:
        """Whether a first dim that is a number is a batch of fixed size."""
        return isinstance(item.dims[0], int) and (len(item.dims) > 1 or item.dims[0] == 1)

    def _tie(self, tie: Tie) -> None:
        for symbol in self._batch:
            self._ties.join(min(self._batch), symbol)
        if len({self.group(s) for s in self.symbols()} - {self.group(s) for s in self._batch}) > 1:
            self._tie_by_graph()
        self._tie_caches()
        self.times, self.past = self._order_times()
        if tie == "past":
            self._tie_to_past()
        if tie == "one-time":
            rest = [t for t in self.times if t not in self.past]
            for other in rest[1:]:
                self._ties.join(rest[0], other)
        else:
            self._tie_masks()

    def _tie_by_graph(self) -> None:
        known = set(self.symbols())
        alone = _only_in_masks(self.inputs)
        for a, b in _equations(self._model, self.shapes):
            if not (symbols(a) and symbols(b) and symbols(a) | symbols(b) <= known):
                continue
            left, right = _plain(a), _plain(b)
            if left and right:
                if (left in self._batch) == (right in self._batch):
                    self._ties.join(left, right)
                continue
            for plain, other in ((left, b), (right, a)):
                if plain is None or plain not in alone or plain in symbols(other):
                    continue
                if isinstance(other, ir.SymbolicDim):
                    self._ties.derived.setdefault(plain, other)

    def _tie_caches(self) -> None:
        """Caches are several inputs of one kind, tied unless two names each recur.

        Dynamo gives the keys and values of one cache several names, at its own discretion; two
        names that recur are two caches, such as those of self- and cross-attention.
        """
        self._caches: set[str] = set()
        kinds: dict[tuple[object, ...], list[str]] = {}
        past: set[str] = set()
        for item in self.inputs:
            kind = _cache_kind(item)
            symbol = _plain(item.dims[item.time]) if kind and item.time is not None else None
            if kind and symbol:
                kinds.setdefault(kind, []).append(symbol)
                if _is_continued(self._model, item.name):
                    past.add(symbol)
        for names in kinds.values():
            often = {s for s, n in Counter(names).items() if n > 1}
            self._caches |= often
            alike = often | (past & set(names)) if often else set(names)
            if len(often) < 2 and len(names) > 1:
                self._caches |= alike
                first = min(alike)
                for name in alike - {first}:
                    self._ties.join(first, name)

    def _order_times(self) -> tuple[list[str], set[str]]:
        """The groups that vary besides the batch: those of data first, of masks last."""
        batch = {self.group(s) for s in self._batch}
        past = {self.group(s) for s in self._caches}
        order = {"data": 0, "tokens": 1, "positions": 2, "mask": 3}
        ranked = sorted(self.inputs, key=lambda x: order.get(x.role.kind, 4))
        names = [s for x in ranked for d in x.dims for s in sorted(symbols(d))]
        groups = dict.fromkeys(self.group(s) for s in names if s not in self._ties.derived)
        times = [g for g in groups if g not in batch]
        # A cache is not what a model is about, and must not come before the tokens.
        return sorted(times, key=lambda g: g in past), past

    def _tie_masks(self) -> None:
        alone = _only_in_masks(self.inputs) - self._ties.derived.keys()
        for item in self.inputs:
            partner = self._partner(item) if item.role.kind == "mask" else None
            if partner is None or partner.time is None:
                continue
            target = _plain(partner.dims[partner.time])
            for axis, dim in enumerate(item.dims):
                symbol = _plain(dim)
                if target is None or symbol is None or axis == item.rows or symbol not in alone:
                    continue
                if self.group(symbol) not in self._targets():
                    self._ties.join(target, symbol)

    def _targets(self) -> set[str]:
        """Groups that something other than a mask already has."""
        masks = _only_in_masks(self.inputs)
        return {self.group(s) for s in self.symbols() if s not in masks}

    def _tie_to_past(self) -> None:
        tokens = next((t for t in self.times if t not in self.past), None)
        past = next(iter(sorted(self.past)), None)
        if tokens is None or past is None:
            return
        total = ir.SymbolicDim(past) + ir.SymbolicDim(tokens)
        for symbol in _only_in_masks(self.inputs) - self._batch:
            if self.group(symbol) not in self._targets():
                self._ties.derived.setdefault(symbol, total)

    def _partner(self, item: Input) -> Input | None:
        """The input that a mask or length is about.

        The one before it whose name is most like its own; only the order where names say nothing.
        """
        of = [x for x in self.inputs if x.role.kind in ("data", "tokens") and x.time is not None]
        of = [x for x in of if not (symbols(x.dims[x.time or 0]) & self._caches)] or of
        if not of:
            return None
        here = self.inputs.index(next(x for x in self.inputs if x.name == item.name))

        def likeness(x: Input) -> tuple[int, int]:
            pairs = zip(x.name.lower(), item.name.lower(), strict=False)
            common = sum(1 for _ in itertools.takewhile(lambda p: p[0] == p[1], pairs))
            return (common, -abs(here - self.inputs.index(x)))

        return max(of, key=likeness)


def dim_name(value: ir.Value, axis: int) -> str:
    """What a user calls a symbolic dim of an input; one without a name is called by its place."""
    dim = value.shape[axis] if value.shape is not None else None
    named = dim.value if isinstance(dim, ir.SymbolicDim) else None
    return named or _identifier(f"{value.name}_{axis}")


def _scratch(model: ir.Model) -> ir.Model:
    """A copy to rename dims in, with local functions inlined; weights are shared, not copied."""
    copy = model.clone()
    if copy.functions:
        InlinePass()(copy)
    return copy


def _rename_dims(model: ir.Model) -> dict[str, str]:
    """Give every symbolic dim of the inputs a name that is an identifier; new name -> old name.

    An expression such as ``past + 1`` stays one if its symbols are dims by themselves; a name
    such as ``batch-size`` only looks like one.
    """
    alone = {
        d.value
        for v in model.graph.inputs
        for d in v.shape or ()
        if isinstance(d, ir.SymbolicDim) and d.value and d.value.isidentifier()
    }
    names: dict[str, str] = {}
    for value in model.graph.inputs:
        if value.shape is None:
            continue
        dims = [_renamed(d, dim_name(value, a), alone, names) for a, d in enumerate(value.shape)]
        value.shape = ir.Shape(dims)
    return names


def _renamed(dim: Dim, fallback: str, alone: Iterable[str], names: dict[str, str]) -> Dim:
    if isinstance(dim, int):
        return dim
    if not dim.value:
        return ir.SymbolicDim(fallback)
    if dim.value.isidentifier():
        return dim
    try:
        parts = dim.free_symbols()
    except ValueError:
        parts = frozenset()
    if parts and parts <= set(alone):
        return dim
    new = _identifier(dim.value)
    names[new] = dim.value
    return ir.SymbolicDim(new)


def _identifier(name: str) -> str:
    clean = re.sub(r"\W", "_", name, flags=re.ASCII)
    return clean if clean.isidentifier() else f"d_{clean}"


def _input(value: ir.Value, roles: Mapping[str, Role]) -> Input:
    name = value.name or ""
    if not isinstance(value.type, ir.TensorType) or value.dtype == ir.DataType.STRING:
        return Input(name, object, (), roles[name], problem=f"its type is {value.type}")
    dtype = value.type.dtype.numpy()
    if value.shape is None:
        return Input(name, dtype, (), roles[name], problem="the model does not say its rank")
    return Input(name, dtype, tuple(value.shape), roles[name])


def _plain(dim: Dim) -> str | None:
    """The name of a dim that is one symbol and nothing else."""
    if isinstance(dim, int) or dim.value is None or not dim.value.isidentifier():
        return None
    return dim.value


def _later(item: Input) -> bool:
    return any(symbols(d) for d in item.dims[1:])


def _only_in_masks(inputs: Iterable[Input]) -> set[str]:
    masks: set[str] = set()
    others: set[str] = set()
    for item in inputs:
        (masks if item.role.kind == "mask" else others).update(*map(symbols, item.dims))
    return masks - others


def _is_continued(model: ir.Model, name: str) -> bool:
    """Whether the graph joins something to the end of an input, as it does with a cache."""
    value = next(x for x in model.graph.inputs if x.name == name)
    return any(is_op(node, "Concat") and index == 0 for node, index in value.uses())


def _cache_kind(item: Input) -> tuple[object, ...] | None:
    """What caches of the same kind have in common; None for what is no cache."""
    if item.role.kind != "data" or len(item.dims) < 4 or item.time is None:
        return None
    numbers = [d if isinstance(d, int) else None for d in item.dims]
    return (np.dtype(item.dtype).name, item.time, *numbers)


_SAME_SHAPE = frozenset(
    {"Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "And", "Or", "Xor", "Equal", "Less", "Mod"}
    | {"LessOrEqual", "Greater", "GreaterOrEqual", "Where", "PRelu"}
)


def _equations(model: ir.Model, shapes: Shapes) -> Iterator[tuple[Dim, Dim]]:
    """Pairs of dims that the graph needs to be equal (or one of them 1)."""
    for value in model.graph.inputs:  # what inference has learnt of the dims themselves
        yield from zip(value.shape or (), shapes.dims(value) or (), strict=False)
    for node in model.graph.all_nodes():
        known = [dims for x in node.inputs if (dims := shapes.dims(x)) is not None]
        if node.op_type in _SAME_SHAPE:
            for a, b in itertools.combinations(known, 2):
                yield from zip(reversed(a), reversed(b), strict=False)
        elif node.op_type == "MatMul" and len(known) == 2:
            a, b = known
            if len(a) > 1 and len(b) > 1:
                yield a[-1], b[-2]
                yield from zip(reversed(a[:-2]), reversed(b[:-2]), strict=False)
        elif node.op_type == "Concat" and len({len(x) for x in known}) == 1:
            axis = node.attributes["axis"].as_int() % max(len(known[0]), 1)
            for a, b in itertools.pairwise(known):
                yield from (pair for i, pair in enumerate(zip(a, b, strict=True)) if i != axis)
