"""Sizes at which a graph decides: a remainder, a whole part, a comparison with a number.

A window of 11, a chunk of 16 or a table of 50 rows is seldom met by chance, so the numbers are read
off the nodes that compute with sizes, in both models that are compared.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from graphfix import ops
from graphfix.facts.shapes import Shapes, is_in_input_sizes, shapes_of
from graphfix.facts.symbolic.expressions import Dim, Ints, compile_dim, replace_symbols
from graphfix.feeds.input import symbols
from graphfix.feeds.signature import Signature
from graphfix.graph.constants import scalar_of
from graphfix.graph.nodes import is_op
from graphfix.spec.quoting import quote_name

Mask = npt.NDArray[np.bool_]

_WORD = re.compile(r"[^\W\d]\w*")
_LARGEST = 1 << 16
# Of a modulus up to this that only the repaired model has, every remainder is a target.
_SMALL_MODULUS = 16
_LEADS_ON = ops.CASTS | ops.MOVES_ELEMENTS
# How many targets are taken from a graph, and how many pairs of them.
_MOST, _MOST_PAIRS = 24, 12


@dataclass(frozen=True)
class SizeTarget:
    """What a case should meet: ``dim - other == number``, or that modulo a number.

    Attributes:
        dim: An expression of the sizes of a signature.
        number: What it should be.
        modulus: What it is divided by; 0 if it is not.
        other: Another expression that it is compared with.
    """

    dim: Dim
    number: int
    modulus: int = 0
    other: Dim = 0

    def are_met(self, sizes: Mapping[str, Ints]) -> Mask:
        """Return at which of several sizes it is met, given by symbol."""
        size = compile_dim(self.dim)(sizes) - compile_dim(self.other)(sizes)
        met: Mask = (size % self.modulus if self.modulus else size) == self.number
        return met

    @property
    def symbols(self) -> frozenset[str]:
        """Return the symbols in it."""
        return symbols(self.dim) | symbols(self.other)

    def describe(self, user_name: Callable[[str], str]) -> str:
        """Return it in words, with the user's names."""
        # In the text: a name such as "batch size" is none that an expression can hold.
        names = {x: quote_name(user_name(x)) for x in self.symbols}
        dim, other = (
            _WORD.sub(lambda match: names.get(match[0], match[0]), str(x))
            for x in (self.dim, self.other)
        )
        left = f"{dim} - {other}" if self.other else dim
        modulus = f" modulo {self.modulus}" if self.modulus else ""
        return f"{left}{modulus} = {self.number}"


class _Decision(NamedTuple):
    """A node that computes with sizes: with a number, or one with another.

    Attributes:
        node: The node.
        value: What may be a size.
        number: The number beside it; None if that is another value.
        other: The other value.
    """

    node: ir.Node
    value: ir.Value
    number: int | None
    other: ir.Value

    @property
    def key(self) -> tuple[str, int | None]:
        """Return what makes it the same decision in two models."""
        return self.node.op_type, self.number


def find_size_targets(
    signature: Signature, repaired: ir.Model | None = None
) -> list[tuple[SizeTarget, ...]]:
    """Return what the sizes of cases should meet, each once; what is to be met together at the end.

    Args:
        signature: The inputs of the original.
        repaired: The model that is compared with it; what only this one decides counts, too.
    """
    own = list(_iter_decisions(signature.model))
    targets = list(_iter_targets(own, signature.shapes, all_remainders=False)) if own else []
    known = {x.key for x in own}
    others = [] if repaired is None else _iter_decisions(repaired)
    new = [x for x in others if x.key not in known]
    if new and repaired is not None:
        found = _iter_targets(new, shapes_of(repaired), all_remainders=True)
        targets = [*_in_symbols_of(signature, found), *targets]
    own_symbols = {*signature.symbols()}
    usable = [x for x in dict.fromkeys(targets) if x.symbols and x.symbols <= own_symbols][:_MOST]
    return [*((x,) for x in usable), *_pairs_of(usable)]


def _pairs_of(targets: Sequence[SizeTarget]) -> list[tuple[SizeTarget, ...]]:
    """Return pairs of sizes that a graph compares with numbers, which it may ask for together."""
    compared = [x for x in targets if not x.modulus and not x.other]
    pairs = (
        pair
        for pair in itertools.combinations(compared, 2)
        if not pair[0].symbols & pair[1].symbols
    )
    return list(itertools.islice(pairs, _MOST_PAIRS))


def _in_symbols_of(signature: Signature, targets: Iterable[SizeTarget]) -> Iterator[SizeTarget]:
    """Yield targets in the symbols of a signature, from those in the user's names."""
    for target in targets:
        own = {name: signature.symbol_of(name) for name in target.symbols}
        names = {name: ir.SymbolicDim(x) for name, x in own.items() if x is not None}
        if len(names) == len(own):
            dim, other = (replace_symbols(x, names) for x in (target.dim, target.other))
            yield replace(target, dim=dim, other=other)


def _iter_decisions(model: ir.Model) -> Iterator[_Decision]:
    """Yield what a model that reads sizes compares, or divides by a number."""
    if not any(is_op(x, "Shape", "Size") for x in model.graph):
        return
    for node in model.graph:
        if len(node.inputs) == 2 and (node in ops.COMPARISONS or is_op(node, "Mod", "Div")):
            first, second = node.inputs
            yield from _decisions_between(node, first, second)
            yield from _decisions_between(node, second, first)


def _decisions_between(
    node: ir.Node, value: ir.Value | None, other: ir.Value | None
) -> Iterator[_Decision]:
    """Yield what a node decides by a value and its other input: one that is a number, or none."""
    if value is None or other is None:
        return
    number, is_second = scalar_of(other), other is node.inputs[1]
    compares = node in ops.COMPARISONS
    if number is None:
        if compares and is_second and scalar_of(value) is None:
            yield _Decision(node, value, None, other)
        return
    may_be_size = float(number).is_integer() and 0 <= number < _LARGEST
    if may_be_size and (compares or (is_second and number > 1)):
        yield _Decision(node, value, int(number), other)


def _iter_targets(
    decisions: Iterable[_Decision], shapes: Shapes, *, all_remainders: bool
) -> Iterator[SizeTarget]:
    for node, value, number, other in decisions:
        dims = _sizes_in(value, shapes)
        if number is None:
            for dim, other_dim in zip(dims, _sizes_in(other, shapes), strict=False):
                yield from (SizeTarget(dim, x, 0, other_dim) for x in (0, 1, -1))
            continue
        for dim in dims:
            if node in ops.COMPARISONS:
                # Sizes of 0 are not tried, but less of what follows from sizes may be.
                least = int(isinstance(dim, ir.SymbolicDim) and dim.value in symbols(dim))
                near = (number + x for x in (0, 1, -1))
                yield from (SizeTarget(dim, x) for x in near if x >= least)
            else:
                every = all_remainders and number <= _SMALL_MODULUS
                remainders = range(number) if every else (0, number - 1)
                yield from (SizeTarget(dim, x, number) for x in remainders)


def _sizes_in(value: ir.Value | None, shapes: Shapes) -> tuple[Dim, ...]:
    """Return the sizes that a value holds, cast or moved, or up to which a Range counts."""
    while value is not None:
        dims = shapes.known_elements(value)
        if dims is not None and all(map(is_in_input_sizes, dims)):
            return dims
        node = value.producer()
        if node is None or not (node in _LEADS_ON or is_op(node, "Range")):
            return ()
        value = node.inputs[1 if is_op(node, "Range") else 0]
    return ()
