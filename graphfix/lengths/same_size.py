"""Names of dims of inputs that stand for one size: exporters name the dims of each input again.

A graph says so where it takes two dims side by side, looks every element of one input up along the
other, gives one the shape of the other, or computes from the count of one what it holds against the
frames of the other, by the same arithmetic. Two that stand side by side are equal, or one of them
is 1; what is said of a model here is said of runs in which they are equal.
"""

from collections.abc import Iterator, Sequence

import onnx_ir as ir
import sympy

from graphfix.facts.mask_lookups import looked_up
from graphfix.facts.shapes import Shapes
from graphfix.facts.symbolic.expressions import Dim, expr_of, symbols_of
from graphfix.graph.nodes import is_op
from graphfix.lengths.mask_counts import meetings
from graphfix.ops.broadcast import BROADCAST

Pair = tuple[str, str]


class OneSize:
    """The names of a model that stand for one size, as far as its graph says so."""

    def __init__(self, model: ir.Model, shapes: Shapes) -> None:
        self._model, self._shapes = model, shapes
        self._found: dict[str, str] | None = None

    def are_one(self, a: str, b: str) -> bool:
        """Whether two names stand for one size."""
        return a == b or self._of(a) == self._of(b)

    def _of(self, name: str) -> str:
        """The name that stands for all that are one with it."""
        if self._found is None:
            self._found = {}
            for node in self._model.graph:
                self._join(_pairs(node, self._shapes))
            self._join(meetings(self._model, self._shapes))
        while name in self._found:
            name = self._found[name]
        return name

    def _join(self, pairs: Iterator[Pair]) -> None:
        for pair in pairs:
            a, b = map(self._of, pair)
            if a != b and self._found is not None:
                self._found[a] = b


def plain(dim: Dim) -> str:
    """The symbol that a dim is, if it is nothing else."""
    names = symbols_of(dim)
    return next(iter(names)) if len(names) == 1 and str(dim) in names else ""


def _pairs(node: ir.Node, shapes: Shapes) -> Iterator[Pair]:
    if is_op(node, *BROADCAST):
        for together in zip(*((shapes.dims(x) or ())[::-1] for x in node.inputs), strict=False):
            yield from _side_by_side(together)
    elif is_op(node, "Reshape"):
        yield from _reshaped(node, shapes)
    elif is_op(node, "Gather", "GatherND"):
        found = looked_up(node, shapes)
        for i, dim in enumerate(() if found is None else shapes.dims(found.table) or ()):
            # There are at least as many as are looked up, and the others are not looked at.
            if found is not None and plain(dim) and (name := plain(found.shape[found.at[i]])):
                yield plain(dim), name


def _side_by_side(dims: Sequence[Dim]) -> Iterator[Pair]:
    """Names that stand side by side, or one in a least size that stands beside another."""
    for own in filter(None, map(plain, dims)):
        for dim in dims:
            least = expr_of(dim)
            cut = isinstance(least, sympy.Min) and own in map(str, least.args)  # Min(B, C) is B
            yield from ((own, str(x)) for x in (least.args if cut else (least,)) if x.is_Symbol)


def _reshaped(node: ir.Node, shapes: Shapes) -> Iterator[Pair]:
    """``[C, S]`` as ``[B, 1, 1, T]``: with another name for each, and axes of 1 between them."""
    sides = map(shapes.dims, (node.inputs[0], node.outputs[0]))
    before, after = ([x for x in dims or () if x != 1] for dims in sides)
    if len(before) != len(after):
        return
    pairs = [(a, b) for a, b in zip(before, after, strict=True) if str(a) != str(b)]
    if all(plain(a) and plain(b) for a, b in pairs):
        yield from ((plain(a), plain(b)) for a, b in pairs)
