"""Which whole numbers may be fed to an input that ends as indices: the graph between is computed.

Exports wrap negative ids, add offsets of codebooks or cut rows out on the way: Less, Add, Mul and
Where in front of a Gather. What the input's numbers become there says which of them are in range.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from graphfix.feeds.graph_uses import THROUGH, say
from graphfix.feeds.laws import BINARY, UNARY
from graphfix.model.values import attr_int, const_of, is_op, scalar_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from graphfix.model.symbolic import Dim

    Numbers = npt.NDArray[np.float64]
    Dims = Callable[[ir.Value | None], Sequence[Dim] | None]

# (operator, input) that takes indices of the first input; of OneHot, classes.
_INDICES = frozenset(
    {("Gather", 1), ("GatherElements", 1), ("GatherND", 1), ("OneHot", 0)}
    | {("ScatterND", 1), ("ScatterElements", 1), ("Scatter", 1)}
)
_SCATTER = frozenset({"ScatterND", "ScatterElements", "Scatter"})
_TESTS = frozenset(
    {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor"}
)
# Constants of more elements are not computed with.
_MOST_NUMBERS = 64
_NEAR = np.arange(-64, 65, dtype=np.float64)


@dataclass(frozen=True)
class IndexRange:
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
    ends = [(n, x) for n, x in trail.ends if (f := made.get(x)) is not None and not _is_partial(f)]
    if not ends:
        return None
    sizes = {x: list(_sizes(node, dims)) for node, x in ends}
    known = {x: min((d for d in s if isinstance(d, int)), default=None) for x, s in sizes.items()}
    numbers = [size for size in known.values() if size is not None]
    low, high = _bounds(trail, known) if numbers else (0, 1)
    below = []
    for x, found in sizes.items():
        shift = np.unique(made[x] - _NEAR[:, None])[:1] if _is_line(made[x]) else np.zeros(1)
        symbolic = [d for d in found if isinstance(d, ir.SymbolicDim)]
        below += [d - int(shift[0]) if shift[0] else d for d in symbolic]
        if symbolic and _is_line(made[x]):
            low = max(low, -int(shift[0]))
    if below and not numbers:
        high = 1 << 30
    return IndexRange(low, max(high, low + 1), tuple(below), say(ends[0][0]))


def _is_partial(made: Numbers) -> bool:
    """Whether some numbers become known ones and others do not: it selects, and counts nothing."""
    unknown = np.isnan(made[_NEAR >= 0])
    return bool(unknown.any() and not unknown.all())


def _is_line(made: Numbers) -> bool:
    return len(np.unique((made - _NEAR[:, None])[64:])) == 1


def _bounds(trail: _Trail, known: dict[ir.Value, int | None]) -> tuple[int, int]:
    """The numbers that are in range at each end, from 0 up if 0 is; as many as change something."""
    sizes = {x: size for x, size in known.items() if size is not None}
    most = max(sizes.values())

    def allowed(grid: Numbers) -> tuple[npt.NDArray[np.bool_], list[Numbers]]:
        found = trail.numbers(grid)
        made = [found[x] for x in sizes]
        fits = [
            np.isnan(f) & (grid < max(size // 2, 1))[:, None] if np.isnan(f).all() else f < size
            for f, size in zip(made, sizes.values(), strict=True)
        ]
        inside = [(f >= 0) | np.isnan(f) for f in made]
        both = [a.all(axis=1) & b.all(axis=1) for a, b in zip(fits, inside, strict=True)]
        return np.logical_and.reduce(both), made

    near = _NEAR + most
    grid = np.unique(np.concatenate([_NEAR, near, np.rint(np.linspace(0, 4 * most + 64, 64))]))
    fits, made = allowed(grid)
    at = np.flatnonzero(fits & (grid >= 0))
    if not len(at):
        return 0, 1
    first = last = int(at[0])
    while first and fits[first - 1] and all((f[first - 1] < f[first]).all() for f in made):
        first -= 1
    while last + 1 < len(grid) and fits[last + 1]:
        last += 1
    low, high = int(grid[first]), int(grid[last])
    if last + 1 < len(grid) and grid[last + 1] - high > 1:
        between = np.arange(high, min(grid[last + 1], high + (1 << 16)))
        inner, _ = allowed(between)
        high += int(np.argmin(np.append(inner, False))) - 1
    top = [f[first : last + 1].max(axis=1) for f in made if not np.isnan(f).all()]
    if first == last or not top:
        return low, high + 1
    if all((f == f[0]).all() for f in top):
        return max(low, 0), min(sizes.values())
    # Past the largest index nothing new is reached: of x % 5 no more than 0 to 4 are fed.
    reach = max(int(grid[first + int(np.argmax(f))]) for f in top)
    return low, 1 + (high if reach == int(grid[last]) else reach)


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
        self._nodes: list[ir.Node] = []
        self._below: set[ir.Value] = {start}
        self.ends: list[tuple[ir.Node, ir.Value]] = []
        self._follow()

    def _follow(self) -> None:
        """Everything below the input, each node behind those that it takes something from."""
        done: list[ir.Node] = []
        seen: set[ir.Node] = set()
        stack: list[tuple[ir.Node | None, Iterator[ir.Node]]] = [(None, _users(self._start))]
        while stack:
            node, users = stack[-1]
            user = next(users, None)
            if user is None:
                stack.pop()
                if node is not None:
                    done.append(node)
            elif user not in seen:
                seen.add(user)
                self._below.update(user.outputs)
                stack.append((user, (x for value in user.outputs for x in _users(value))))
        self._nodes = done[::-1]
        for node in self._nodes:
            for index, value in enumerate(node.inputs):
                if value in self._below and (node.op_type, index) in _INDICES:
                    self.ends.append((node, value))

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


def _users(value: ir.Value) -> Iterator[ir.Node]:
    return iter([node for node, _ in value.uses()])


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
    if op == "Clip" and first is not None and on[0]:
        low, high = (scalar_of(x) for x in [*node.inputs[1:], None, None][:2])
        return np.clip(first, -np.inf if low is None else low, np.inf if high is None else high)
    if op in ("Concat", *_SCATTER):
        parts = (x for i, x in enumerate(given) if on[i] and not (op in _SCATTER and i == 1))
        return next(parts, None)
    if (op in THROUGH or op == "Gather") and on[0]:
        return first
    if op in UNARY and first is not None:
        return _each(lambda a, _: UNARY[op](a), first, first)
    if len(given) < 2 or any(x is None for x in given):
        return None
    a, b, *rest = (x for x in given if x is not None)
    if op == "Where":
        return _chosen(a, b, rest[0], on)
    if op not in BINARY or rest:
        return None
    made = _each(BINARY[op], a, b)
    if made is not None and op == "Mul":
        made = np.where((a == 0) | (b == 0), 0.0, made)
    if made is not None and op == "Div" and all(_is_whole(x) for x in (a, b)):
        made = np.trunc(made)
    return None if made is not None and op in _TESTS and np.isnan(made).any() else made


def _chosen(condition: Numbers, yes: Numbers, no: Numbers, on: list[bool]) -> Numbers | None:
    if np.isnan(condition).any():  # another input decides
        return yes if on[1] else no if on[2] else None
    if not on[1] and not on[2] and np.isnan(yes).all() and np.isnan(no).all():
        return None
    try:
        return np.where(condition != 0, yes, no)
    except ValueError:
        return None


def _each(law: Callable[[float, float], float], a: Numbers, b: Numbers) -> Numbers | None:
    try:
        a, b = np.broadcast_arrays(a, b)
    except ValueError:  # two sets of constants of different sizes
        return None
    known = ~(np.isnan(a) | np.isnan(b))
    made = np.full(a.shape, np.nan)
    made[known] = [law(x, y) for x, y in zip(a[known].tolist(), b[known].tolist(), strict=True)]
    return made


def _is_whole(numbers: Numbers) -> bool:
    return bool((np.isnan(numbers) | (numbers == np.trunc(numbers))).all())
