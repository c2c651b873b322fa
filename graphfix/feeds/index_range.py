"""Range of an input that is used as indices, found by computing the graph in between.

Exports wrap negative ids, add offsets of codebooks or cut out rows first: Less, Add, Mul and Where
in front of a Gather. The numbers that arrive at the Gather say which input numbers are in range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.facts.symbolic.expressions import Dim
from graphfix.feeds.graph_uses import KEEPS_RANGE, cast_type, node_title
from graphfix.feeds.laws import BINARY, TESTS, UNARY, Law, Numbers, apply_law
from graphfix.graph.constants import const_of, scalar_of
from graphfix.graph.nodes import attr_int, is_op
from graphfix.graph.walks import opset_of
from graphfix.ops.axes import axis_of

Dims = Callable[[ir.Value | None], Sequence[Dim] | None]

# Not MaxUnpool: its indices count through several axes at once.
_TAKES_INDICES = ops.TAKES_INDICES - ops.named("MaxUnpool")
_COUNTS_THROUGH_AXES = ops.named("GatherND ScatterND")
# One tensor among others: each element of the result comes from one of them.
_JOINS = ops.SCATTERS | ops.named("Concat")
_KEEPS_NUMBERS = KEEPS_RANGE | ops.named("Clip")
# Constants of more elements are not computed with.
_MOST_CONSTANT_ELEMENTS = 64
_MOST_IDS_TRIED = 1 << 20
# The numbers that are followed through the graph, and the index of 0 among them.
_ZERO = 64
_NUMBERS_AROUND_ZERO = np.arange(-_ZERO, _ZERO + 1, dtype=np.float64)


class IndexRange(NamedTuple):
    """Integers to feed: ``low <= x < high``, and below the sizes ``below`` of the same run.

    Attributes:
        low: The smallest valid number.
        high: One more than the largest valid number.
        below: Symbolic sizes that the numbers stay below, too.
        node: The operator that takes the indices, and its name.
        writes: Whether something is written at the indices, so that none may come twice.
        wraps: Whether twice as many numbers are valid, as a Mod or a Clip brings them to an index.
    """

    low: int
    high: int
    below: tuple[ir.SymbolicDim, ...]
    node: str
    writes: bool = False
    wraps: bool = False


def find_index_range(start: ir.Value, dims: Dims) -> IndexRange | None:
    """Return the range of an integer input that becomes indices, or None if it does not.

    Args:
        start: The input.
        dims: Returns the dims of a tensor; called only for tensors that are indexed.
    """
    trail = _Trail(start)
    values = trail.map_numbers(_NUMBERS_AROUND_ZERO)
    ends = [(node, x) for node, x in trail.ends if x in values and not _is_partial(values[x])]
    if not ends:
        return None
    limits = [(indices, limit) for node, indices in ends for limit in _index_limits(node, dims)]
    low, below = _symbolic_bounds(limits, values)
    high, end = 1 << 30 if below else 1, 0
    if sizes := _smallest_sizes(limits):
        low, high, end = _valid_bounds(trail, sizes)
    writes = any(node in ops.SCATTERS for node, _ in ends)
    wraps = not below and end >= 2 * high - low
    return IndexRange(low, max(high, low + 1), below, node_title(ends[0][0]), writes, wraps)


def _smallest_sizes(limits: Iterable[tuple[ir.Value, Dim]]) -> dict[ir.Value, int]:
    """Return the smallest size that is a number, for each tensor of indices that has one."""
    sizes: dict[ir.Value, int] = {}
    for indices, size in limits:
        if isinstance(size, int):
            sizes[indices] = min(size, sizes.get(indices, size))
    return sizes


def _symbolic_bounds(
    limits: Iterable[tuple[ir.Value, Dim]], values: Mapping[ir.Value, Numbers]
) -> tuple[int, tuple[ir.SymbolicDim, ...]]:
    """Return the lowest valid number, and sizes known in a run that the numbers stay below."""
    low = 0
    below: list[ir.SymbolicDim] = []
    for indices, size in limits:
        shift = _shift_of(values[indices]) if isinstance(size, ir.SymbolicDim) else None
        if isinstance(size, ir.SymbolicDim) and shift is not None:
            below.append(size - shift if shift else size)
            low = max(low, -shift)
    return low, tuple(below)


def _is_partial(values: Numbers) -> bool:
    """Return whether some numbers become known ones and others do not."""
    unknown = np.isnan(values[_ZERO:])
    return bool(unknown.any() and not unknown.all())


def _shift_of(values: Numbers) -> int | None:
    """Return the number added to the input before it is an index; None if the input is scaled up.

    0 if the number is unknown.
    """
    at_zero, at_one = values[_ZERO : _ZERO + 2].max(axis=1)
    if at_one - at_zero > 1:
        return None
    return 0 if np.isnan(at_zero) else int(at_zero)


def _valid_bounds(trail: _Trail, sizes: dict[ir.Value, int]) -> tuple[int, int, int]:
    """Return the lowest valid number, one past the highest that reaches a new index, and the end.

    The end is one past the highest valid number, of those that were tried.
    """
    grid = np.arange(
        -_ZERO, min(2 * max(sizes.values()) + _ZERO, _MOST_IDS_TRIED), dtype=np.float64
    )
    values = trail.map_numbers(grid)
    # If an unknown number is added, indices in the first half are most likely in range.
    indices = [
        np.where(np.isnan(values[x][_ZERO:]).all(), 2 * grid[:, None], values[x]) for x in sizes
    ]
    fits = [(f >= 0) & (f < size) for f, size in zip(indices, sizes.values(), strict=True)]
    fit = np.logical_and.reduce([x.all(axis=1) for x in fits])
    if not fit[_ZERO:].any():
        return 0, 1, 1
    first = _ZERO + int(np.argmax(fit[_ZERO:]))
    last = first + int(np.argmin(np.append(fit[first:], False))) - 1
    while first and fit[first - 1] and all((f[first - 1] < f[first]).all() for f in indices):
        first -= 1
    low, high = first - _ZERO, last - _ZERO + 1
    top = [f[first : last + 1].max(axis=1) for f in indices]
    if first < last and all((f == f[0]).all() for f in top):
        return max(low, 0), min(sizes.values()), high
    # Past the largest index nothing new is reached: of x % 5 no more than 0 to 4 are fed.
    reach = max(low + int(np.argmax(f)) for f in top)
    return low, high if reach == high - 1 else reach + 1, high


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
    if node in _COUNTS_THROUGH_AXES:
        indices = dims(node.inputs[1])
        count = indices[-1] if indices and isinstance(indices[-1], int) else 1
        first = attr_int(node, "batch_dims", 0)
        yield from table_dims[first : first + count]
        return
    axis = axis_of(node, len(table_dims), opset_of(node.graph) if node.graph else 1)
    if axis is not None:
        yield table_dims[axis] - _written_length(node, axis, dims) + 1


def _written_length(node: ir.Node, axis: int, dims: Dims) -> Dim:
    """Return how many places one index addresses: those of the update in a TensorScatter."""
    if not is_op(node, "TensorScatter"):
        return 1
    update_dims = dims(node.inputs[1])
    return update_dims[axis] if update_dims else 1


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
            (n, x)
            for n, i, x in inputs
            if x in self._below and n in _TAKES_INDICES and i in ops.index_inputs(n)
        ]

    def map_numbers(self, grid: Numbers) -> dict[ir.Value, Numbers]:
        """Return what each number of ``grid`` becomes at each tensor; NaN where unknown."""
        values = {self._start: grid[:, None]}
        for node in self._nodes:
            if node.domain not in ("", "ai.onnx"):
                continue
            operands = [self._operand_values(x, values) for x in node.inputs]
            outputs = _compute_node(node, operands, [x in values for x in node.inputs])
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
        if (
            array is None
            or array.dtype.kind not in "biuf"
            or not 0 < array.size <= _MOST_CONSTANT_ELEMENTS
        ):
            return np.full((1, 1), np.nan)
        return array.astype(np.float64).reshape(1, -1)


def _compute_node(
    node: ir.Node, operands: list[Numbers | None], followed: list[bool]
) -> Numbers | None:
    """Return the numbers of a node's output; None if an element depends on several of them.

    Args:
        node: An operator of the standard domain.
        operands: The numbers of its inputs; None if they cannot be followed.
        followed: Whether each input is on the trail.
    """
    first = operands[0] if operands else None
    if node in _JOINS:
        indices = ops.index_inputs(node)
        data = [x for i, x in enumerate(operands) if followed[i] and i not in indices]
        return data[0] if data else None
    if node in _KEEPS_NUMBERS and followed[0] and first is not None:
        return _cast_numbers(first, cast_type(node)) if node in ops.CASTS else first
    if node.op_type in UNARY and first is not None:
        return _apply_or_none(UNARY[node.op_type], first)
    return _combine_operands(node, operands, followed)


def _combine_operands(
    node: ir.Node, operands: list[Numbers | None], followed: list[bool]
) -> Numbers | None:
    """Return the result of a Where or of an operator with two operands, if all are followed."""
    numbers = [x for x in operands if x is not None]
    if len(numbers) < len(operands):
        return None
    if is_op(node, "Where"):
        return _compute_where(numbers[0], numbers[1], numbers[2], followed)
    return _compute_binary(node.op_type, *numbers) if len(numbers) == 2 else None


def _cast_numbers(numbers: Numbers, to: ir.DataType | None) -> Numbers:
    if to == ir.DataType.BOOL:
        return np.where(np.isnan(numbers), numbers, numbers != 0)
    return np.trunc(numbers) if to is not None and to.is_integer() else numbers


def _compute_binary(op: str, a: Numbers, b: Numbers) -> Numbers | None:
    if op not in BINARY or (op in TESTS and (np.isnan(a).any() or np.isnan(b).any())):
        return None
    result = _apply_or_none(BINARY[op], a, b)
    is_whole = all((np.isnan(x) | (x == np.trunc(x))).all() for x in (a, b))
    return np.trunc(result) if op == "Div" and is_whole and result is not None else result


def _compute_where(
    condition: Numbers, yes: Numbers, no: Numbers, followed: list[bool]
) -> Numbers | None:
    if np.isnan(condition).any():  # another input decides
        return yes if followed[1] else no if followed[2] else None
    if not any(followed[1:]) and np.isnan(yes).all() and np.isnan(no).all():
        return None
    return _apply_or_none(np.where, condition != 0, yes, no)


def _apply_or_none(law: Law, *numbers: Numbers) -> Numbers | None:
    try:
        return apply_law(law, *numbers)
    except ValueError:  # two sets of constants of different sizes
        return None
