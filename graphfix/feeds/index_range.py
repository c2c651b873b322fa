"""Which whole numbers may be fed to an input that ends as indices: the graph between is computed.

Exports wrap negative ids, add offsets of codebooks or cut rows out on the way: Less, Add, Mul and
Where in front of a Gather. What the input's numbers become there says which of them are in range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from graphfix.facts.symbolic.expressions import Dim
from graphfix.feeds.graph_uses import THROUGH, say
from graphfix.feeds.laws import BINARY, TESTS, UNARY, Law, Numbers, result
from graphfix.graph.constants import const_of, scalar_of
from graphfix.graph.nodes import attr_int, is_op

Dims = Callable[[ir.Value | None], Sequence[Dim] | None]

# (operator, input) that takes indices of the first input; of OneHot, classes.
_INDICES = frozenset(
    {("Gather", 1), ("GatherElements", 1), ("GatherND", 1), ("OneHot", 0)}
    | {("ScatterND", 1), ("ScatterElements", 1), ("Scatter", 1)}
)
_SCATTER = frozenset({"ScatterND", "ScatterElements", "Scatter"})
# Constants of more elements are not computed with.
_MOST_NUMBERS = 64
# No more than so many ids are tried.
_MOST = 1 << 20
_AT = 64
_NEAR = np.arange(-_AT, _AT + 1, dtype=np.float64)


class IndexRange(NamedTuple):
    """What may be fed: ``low <= x < high``, and ``x`` below each of ``below`` in the same run."""

    low: int
    high: int
    below: tuple[ir.SymbolicDim, ...]
    node: str


def index_range(start: ir.Value, dims: Dims) -> IndexRange | None:
    """The range of an integer input that becomes indices; None if it does not.

    Args:
        start: The input.
        dims: Gives the dims of a tensor; asked only of what is indexed.
    """
    trail = _Trail(start)
    made = trail.numbers(_NEAR)
    ends = [(node, x) for node, x in trail.ends if x in made and not _is_partial(made[x])]
    if not ends:
        return None
    sizes: dict[ir.Value, int] = {}
    below: list[ir.SymbolicDim] = []
    low = 0
    for node, x in ends:
        found = list(_sizes(node, dims))
        if numbers := [d for d in found if isinstance(d, int)]:
            sizes[x] = min(*numbers, sizes.get(x, numbers[0]))
        zero, one = made[x][_AT : _AT + 2].max(axis=1)
        symbolic = [d for d in found if isinstance(d, ir.SymbolicDim)]
        if symbolic and not one - zero > 1:
            shift = 0 if np.isnan(zero) else int(zero)
            below += [d - shift if shift else d for d in symbolic]
            low = max(low, -shift)
    high = 1 << 30 if below else 1
    if sizes:
        low, high = _bounds(trail, sizes)
    return IndexRange(low, max(high, low + 1), tuple(below), say(ends[0][0]))


def _is_partial(made: Numbers) -> bool:
    """Whether some numbers become known ones and others do not: it selects, and counts nothing."""
    unknown = np.isnan(made[_AT:])
    return bool(unknown.any() and not unknown.all())


def _bounds(trail: _Trail, sizes: dict[ir.Value, int]) -> tuple[int, int]:
    """The numbers that are in range at each end, from 0 up if 0 is; as many as change something."""
    grid = np.arange(-_AT, min(2 * max(sizes.values()) + _AT, _MOST), dtype=np.float64)
    found = trail.numbers(grid)
    # Where something is added that is not known, the first half has the best chances.
    made = [np.where(np.isnan(found[x][_AT:]).all(), 2 * grid[:, None], found[x]) for x in sizes]
    fits = [(f >= 0) & (f < size) for f, size in zip(made, sizes.values(), strict=True)]
    fit = np.logical_and.reduce([x.all(axis=1) for x in fits])
    if not fit[_AT:].any():
        return 0, 1
    first = _AT + int(np.argmax(fit[_AT:]))
    last = first + int(np.argmin(np.append(fit[first:], False))) - 1
    while first and fit[first - 1] and all((f[first - 1] < f[first]).all() for f in made):
        first -= 1
    low, high = first - _AT, last - _AT + 1
    top = [f[first : last + 1].max(axis=1) for f in made]
    if first < last and all((f == f[0]).all() for f in top):
        return max(low, 0), min(sizes.values())
    # Past the largest index nothing new is reached: of x % 5 no more than 0 to 4 are fed.
    reach = max(low + int(np.argmax(f)) for f in top)
    return low, high if reach == high - 1 else reach + 1


def _sizes(node: ir.Node, dims: Dims) -> Iterator[Dim]:
    """The sizes that indices have to stay below."""
    if is_op(node, "OneHot"):
        depth = scalar_of(node.inputs[1])
        if depth is not None:
            yield int(depth)
        return
    known = dims(node.inputs[0])
    if not known:
        return
    if not is_op(node, "GatherND", "ScatterND"):
        yield known[attr_int(node, "axis", 0) % len(known)]
        return
    indices = dims(node.inputs[1])
    count = indices[-1] if indices and isinstance(indices[-1], int) else 1
    first = attr_int(node, "batch_dims", 0)
    yield from known[first : first + count]


class _Trail:
    """What an input's numbers become, as long as each comes from one of them.

    Attributes:
        ends: The nodes that take them as indices, with the tensors.
    """

    def __init__(self, start: ir.Value) -> None:
        self._start = start
        self._below = {start}
        self._nodes: list[ir.Node] = []
        for node in start.graph.all_nodes() if start.graph is not None else ():
            if not self._below.isdisjoint(node.inputs):
                self._nodes.append(node)
                self._below.update(node.outputs)
        inputs = ((node, i, x) for node in self._nodes for i, x in enumerate(node.inputs))
        self.ends = [
            (n, x) for n, i, x in inputs if x in self._below and (n.op_type, i) in _INDICES
        ]

    def numbers(self, grid: Numbers) -> dict[ir.Value, Numbers]:
        """What each of ``grid`` becomes; NaN where something else is added that is not known."""
        found = {self._start: grid[:, None]}
        for node in self._nodes:
            if node.domain not in ("", "ai.onnx"):
                continue
            made = _computed(node, [self._taken(x, found) for x in node.inputs], found)
            if made is not None and len(made) == len(grid):
                found.update(dict.fromkeys(node.outputs, made))
        self._nodes = [x for x in self._nodes if x.outputs[0] in found]
        return found

    def _taken(self, value: ir.Value | None, found: dict[ir.Value, Numbers]) -> Numbers | None:
        """What a node takes; None where it comes from the input in some other way."""
        if value is None or value in self._below:
            return None if value is None else found.get(value)
        array = const_of(value)
        if array is None or array.dtype.kind not in "biuf" or not 0 < array.size <= _MOST_NUMBERS:
            return np.full((1, 1), np.nan)
        return array.astype(np.float64).reshape(1, -1)


def _computed(
    node: ir.Node, given: list[Numbers | None], found: dict[ir.Value, Numbers]
) -> Numbers | None:
    """What a node makes of numbers; None if that is not one of them each."""
    op, on = node.op_type, [x in found for x in node.inputs]
    first = given[0] if given else None
    if op == "Cast" and first is not None and on[0]:
        to = ir.DataType(attr_int(node, "to", ir.DataType.FLOAT))
        if to == ir.DataType.BOOL:
            return np.where(np.isnan(first), first, first != 0)
        return np.trunc(first) if to.is_integer() else first
    if op in ("Concat", *_SCATTER):
        parts = (x for i, x in enumerate(given) if on[i] and not (op in _SCATTER and i == 1))
        return next(parts, None)
    if (op in THROUGH or op in ("Clip", "Gather")) and on[0]:
        return first
    if op in UNARY and first is not None:
        return _each(UNARY[op], first)
    if len(given) < 2 or any(x is None for x in given):
        return None
    a, b, *rest = (x for x in given if x is not None)
    if op == "Where":
        return _chosen(a, b, rest[0], on)
    if op not in BINARY or rest or (op in TESTS and (np.isnan(a).any() or np.isnan(b).any())):
        return None
    made = _each(BINARY[op], a, b)
    whole = op == "Div" and all((np.isnan(x) | (x == np.trunc(x))).all() for x in (a, b))
    return np.trunc(made) if whole and made is not None else made


def _chosen(condition: Numbers, yes: Numbers, no: Numbers, on: list[bool]) -> Numbers | None:
    if np.isnan(condition).any():  # another input decides
        return yes if on[1] else no if on[2] else None
    if not on[1] and not on[2] and np.isnan(yes).all() and np.isnan(no).all():
        return None
    return _each(np.where, condition != 0, yes, no)


def _each(law: Law, *numbers: Numbers) -> Numbers | None:
    try:
        return result(law, *numbers)
    except ValueError:  # two sets of constants of different sizes
        return None
