"""Input dims with different names and one size, since exporters name the dims of each input again.

A graph shows that two dims are equal where it broadcasts one against the other, looks up every
element of one input along the other, reshapes one to the shape of the other, or compares the count
of a mask with a number of frames by the same arithmetic. Two dims that are broadcast are equal, or
one of them is 1; the aliases hold for runs in which they are equal.
"""

from collections.abc import Iterator, Sequence

import onnx_ir as ir
import sympy

from graphfix import ops
from graphfix.facts.mask_lookups import identity_lookup
from graphfix.facts.shapes import Shapes
from graphfix.facts.symbolic.expressions import Dim, expr_of, symbols_of
from graphfix.graph.nodes import is_op
from graphfix.lengths.mask_counts import pairs_from_mask_counts

Pair = tuple[str, str]


class DimAliases:
    """Names of dims that stand for one size, as far as the graph shows it."""

    def __init__(self, model: ir.Model, shapes: Shapes) -> None:
        self._model, self._shapes = model, shapes
        self._parents: dict[str, str] | None = None

    def are_equal(self, a: str, b: str) -> bool:
        """Return whether two names stand for one size."""
        return a == b or self._representative_of(a) == self._representative_of(b)

    def _representative_of(self, name: str) -> str:
        """Return the name that stands for all names of the same size."""
        if self._parents is None:
            self._parents = {}
            for node in self._model.graph:
                self._merge_pairs(_equal_names(node, self._shapes))
            self._merge_pairs(pairs_from_mask_counts(self._model, self._shapes))
        while name in self._parents:
            name = self._parents[name]
        return name

    def _merge_pairs(self, pairs: Iterator[Pair]) -> None:
        for pair in pairs:
            a, b = map(self._representative_of, pair)
            if a != b and self._parents is not None:
                self._parents[a] = b


def single_symbol(dim: Dim) -> str:
    """Return the symbol that a dim consists of, or "" if it is anything else."""
    names = symbols_of(dim)
    return next(iter(names)) if len(names) == 1 and str(dim) in names else ""


def _equal_names(node: ir.Node, shapes: Shapes) -> Iterator[Pair]:
    if node in ops.BROADCASTS:
        for column in zip(*((shapes.dims(x) or ())[::-1] for x in node.inputs), strict=False):
            yield from _equal_names_in_column(column)
    elif is_op(node, "Reshape"):
        yield from _equal_names_of_reshape(node, shapes)
    elif is_op(node, "Gather", "GatherND"):
        lookup = identity_lookup(node, shapes)
        for i, dim in enumerate(() if lookup is None else shapes.dims(lookup.table) or ()):
            # The table may be longer than the lookup, whose result does not depend on the rest.
            if (
                lookup is not None
                and single_symbol(dim)
                and (name := single_symbol(lookup.shape[lookup.index_axes[i]]))
            ):
                yield single_symbol(dim), name


def _equal_names_in_column(dims: Sequence[Dim]) -> Iterator[Pair]:
    """Yield pairs of names that broadcast, and of a name with the ``Min`` that it is part of."""
    for own in filter(None, map(single_symbol, dims)):
        for dim in dims:
            least = expr_of(dim)
            cut = isinstance(least, sympy.Min) and own in map(str, least.args)  # Min(B, C) is B
            yield from ((own, str(x)) for x in (least.args if cut else (least,)) if x.is_Symbol)


def _equal_names_of_reshape(node: ir.Node, shapes: Shapes) -> Iterator[Pair]:
    """Yield the pairs C, B and S, T where a Reshape turns ``[C, S]`` into ``[B, 1, 1, T]``."""
    sides = map(shapes.dims, (node.inputs[0], node.outputs[0]))
    before, after = ([x for x in dims or () if x != 1] for dims in sides)
    if len(before) != len(after):
        return
    pairs = [(a, b) for a, b in zip(before, after, strict=True) if str(a) != str(b)]
    if all(single_symbol(a) and single_symbol(b) for a, b in pairs):
        yield from ((single_symbol(a), single_symbol(b)) for a, b in pairs)
