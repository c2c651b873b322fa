"""Range of an input that is used as indices, from computing the graph in between.

Exports wrap negative ids, add offsets of codebooks or cut rows out on the way: Less, Add, Mul and
Where in front of a Gather. What the input's numbers become there says which of them are in range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from graphfix.facts.symbolic.expressions import Dim
from graphfix.feeds.graph_uses import THROUGH, describe_node
from graphfix.feeds.laws import BINARY, TESTS, UNARY, Law, Numbers, apply_law
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
    """Integers to feed: ``low <= x < high``, and ``x`` below each of ``below`` in the run."""

    low: int
    high: int
    below: tuple[ir.SymbolicDim, ...]
    node: str


def find_index_range(start: ir.Value, dims: Dims) -> IndexRange | None:
    """Return the range of an integer input that becomes indices, or None if it does not.

    Args:
        start: The input.
        dims: Gives the dims of a tensor; asked only of what is indexed.
    """
    trail = _Trail(start)
    values = trail.map_numbers(_NEAR)
    ends = [(node, x) for node, x in trail.ends if x in values and not _is_partial(values[x])]
    if not ends:
        return None
    sizes: dict[ir.Value, int] = {}
    below: list[ir.SymbolicDim] = []
    low = 0
    for node, x in ends:
        limits = list(_index_limits(node, dims))
        if numbers := [d for d in limits if isinstance(d, int)]:
            sizes[x] = min(*numbers, sizes.get(x, numbers[0]))
        at_zero, at_one = values[x][_AT : _AT + 2].max(axis=1)
        symbolic = [d for d in limits if isinstance(d, ir.SymbolicDim)]
        if symbolic and not at_one - at_zero > 1:
            shift = 0 if np.isnan(at_zero) else int(at_zero)
            below += [d - shift if shift else d for d in symbolic]
            low = max(low, -shift)
    high = 1 << 30 if below else 1
    if sizes:
        low, high = _valid_bounds(trail, sizes)
    return IndexRange(low, max(high, low + 1), tuple(below), describe_node(ends[0][0]))


def _is_partial(values: Numbers) -> bool:
    """Return whether some numbers become known ones and others do not."""
    unknown = np.isnan(values[_AT:])
    return bool(unknown.any() and not unknown.all())


def _valid_bounds(trail: _Trail, sizes: dict[ir.Value, int]) -> tuple[int, int]:
    """Return the lowest valid number and one past the highest that reaches a new index."""
    grid = np.arange(-_AT, min(2 * max(sizes.values()) + _AT, _MOST), dtype=np.float64)
    values = trail.map_numbers(grid)
    # Where something is added that is not known, the first half has the best chances.
    indices = [
        np.where(np.isnan(values[x][_AT:]).all(), 2 * grid[:, None], values[x]) for x in sizes
    ]
    fits = [(f >= 0) & (f < size) for f, size in zip(indices, sizes.values(), strict=True)]
    fit = np.logical_and.reduce([x.all(axis=1) for x in fits])
    if not fit[_AT:].any():
        return 0, 1
    first = _AT + int(np.argmax(fit[_AT:]))
    last = first + int(np.argmin(np.append(fit[first:], False))) - 1
    while first and fit[first - 1] and all((f[first - 1] < f[first]).all() for f in indices):
        first -= 1
    low, high = first - _AT, last - _AT + 1
    top = [f[first : last + 1].max(axis=1) for f in indices]
    if first < last and all((f == f[0]).all() for f in top):
        return max(low, 0), min(sizes.values())
    # Past the largest index nothing new is reached: of x % 5 no more than 0 to 4 are fed.
    reach = max(low + int(np.argmax(f)) for f in top)
    return low, high if reach == high - 1 else reach + 1


def _index_limits(node: ir.Node, dims: Dims) -> Iterator[Dim]:
    """Yield the sizes that the indices of a node have to stay below."""
    if is_op(node, "OneHot"):
        depth = scalar_of(node.inputs[1])
        if depth is not None:
            yield int(depth)
        return
    table_dims = dims(node.inputs[0])
    if not table_dims:
        return
    if not is_op(node, "GatherND", "ScatterND"):
        yield table_dims[attr_int(node, "axis", 0) % len(table_dims)]
        return
    indices = dims(node.inputs[1])
    count = indices[-1] if indices and isinstance(indices[-1], int) else 1
    first = attr_int(node, "batch_dims", 0)
    yield from table_dims[first : first + count]


class _Trail:
    """Numbers of an input, followed while each tensor element depends on one of them.

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

    def map_numbers(self, grid: Numbers) -> dict[ir.Value, Numbers]:
        """Return what each number of ``grid`` becomes at each tensor; NaN where unknown."""
        values = {self._start: grid[:, None]}
        for node in self._nodes:
            if node.domain not in ("", "ai.onnx"):
                continue
            outputs = _compute_node(
                node, [self._operand_values(x, values) for x in node.inputs], values
            )
            if outputs is not None and len(outputs) == len(grid):
                values.update(dict.fromkeys(node.outputs, outputs))
        self._nodes = [x for x in self._nodes if x.outputs[0] in values]
        return values

    def _operand_values(
        self, value: ir.Value | None, values: dict[ir.Value, Numbers]
    ) -> Numbers | None:
        """Return the numbers a node reads from ``value``, or None if they cannot be followed."""
        if value is None or value in self._below:
            return None if value is None else values.get(value)
        array = const_of(value)
        if array is None or array.dtype.kind not in "biuf" or not 0 < array.size <= _MOST_NUMBERS:
            return np.full((1, 1), np.nan)
        return array.astype(np.float64).reshape(1, -1)


def _compute_node(
    node: ir.Node, operands: list[Numbers | None], values: dict[ir.Value, Numbers]
) -> Numbers | None:
    """Compute the output of a node, or None if an element depends on several numbers."""
    op, on = node.op_type, [x in values for x in node.inputs]
    first = operands[0] if operands else None
    if op == "Cast" and first is not None and on[0]:
        to = ir.DataType(attr_int(node, "to", ir.DataType.FLOAT))
        if to == ir.DataType.BOOL:
            return np.where(np.isnan(first), first, first != 0)
        return np.trunc(first) if to.is_integer() else first
    if op in ("Concat", *_SCATTER):
        parts = (x for i, x in enumerate(operands) if on[i] and not (op in _SCATTER and i == 1))
        return next(parts, None)
    if (op in THROUGH or op in ("Clip", "Gather")) and on[0]:
        return first
    if op in UNARY and first is not None:
        return _apply_or_none(UNARY[op], first)
    if len(operands) < 2 or any(x is None for x in operands):
        return None
    a, b, *extra = (x for x in operands if x is not None)
    if op == "Where":
        return _compute_where(a, b, extra[0], on)
    if op not in BINARY or extra or (op in TESTS and (np.isnan(a).any() or np.isnan(b).any())):
        return None
    quotient = _apply_or_none(BINARY[op], a, b)
    is_integer = op == "Div" and all((np.isnan(x) | (x == np.trunc(x))).all() for x in (a, b))
    return np.trunc(quotient) if is_integer and quotient is not None else quotient


def _compute_where(condition: Numbers, yes: Numbers, no: Numbers, on: list[bool]) -> Numbers | None:
    if np.isnan(condition).any():  # another input decides
        return yes if on[1] else no if on[2] else None
    if not on[1] and not on[2] and np.isnan(yes).all() and np.isnan(no).all():
        return None
    return _apply_or_none(np.where, condition != 0, yes, no)


def _apply_or_none(law: Law, *numbers: Numbers) -> Numbers | None:
    try:
        return apply_law(law, *numbers)
    except ValueError:  # two sets of constants of different sizes
        return None
