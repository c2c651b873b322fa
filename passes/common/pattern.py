"""Patterns: a few nodes, written as the graph that they match.

They are written as a rewrite writes nodes, from the last one to its operands::

    quotient = shared.Div("x", "k", name="quotient")
    rounded_down = shared.Sub(quotient, own.Cast("has_rest")) | own.Floor(quotient)

A text names an operand; where a name stands twice, both are the same tensor. A number is a constant
of one element. The operands of an operator that commutes fit in any order, ``|`` is either of two,
and ``...`` any further inputs. What a graph alone does not tell, as sizes do, the caller asks of
the operands.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from types import EllipsisType

import onnx_ir as ir

from graphfix import ops
from graphfix.graph.constants import uniform_number
from graphfix.graph.nodes import is_op, producer_of

from .fold_view import constant_of, exclusive_producer

Bindings = Mapping[str, ir.Value]
"""The tensors of a match, by the names that the pattern gives them."""


class Pattern(abc.ABC):
    """What a tensor may be: an operand, a node with its inputs, or either of two patterns."""

    @abc.abstractmethod
    def bind(self, value: ir.Value | None, bindings: Bindings) -> Iterator[Bindings]:
        """Yield ``bindings`` and those of this pattern, for each way in which ``value`` fits it."""

    def __or__(self, other: Pattern) -> Pattern:
        return _Either(self, other)

    def matches(self, site: ir.Node | ir.Value | None) -> Iterator[Bindings]:
        """Yield each way in which a tensor, or the first output of a node, fits."""
        return self.bind(site.outputs[0] if isinstance(site, ir.Node) else site, {})

    def match(self, site: ir.Node | ir.Value | None) -> Bindings | None:
        """Return the first way in which a tensor, or the first output of a node, fits, or None."""
        return next(self.matches(site), None)


@dataclass(frozen=True)
class _Operand(Pattern):
    name: str
    where: Callable[[ir.Value], bool] | None

    def bind(self, value: ir.Value | None, bindings: Bindings) -> Iterator[Bindings]:
        if value is None or (self.where is not None and not self.where(value)):
            return
        if not self.name:
            yield bindings
        elif bindings.get(self.name, value) is value:
            yield {**bindings, self.name: value}


@dataclass(frozen=True)
class _Number(Pattern):
    number: float

    def bind(self, value: ir.Value | None, bindings: Bindings) -> Iterator[Bindings]:
        array = constant_of(value, 1)
        if array is not None and uniform_number(array) == self.number:
            yield bindings


@dataclass(frozen=True)
class _Either(Pattern):
    first: Pattern
    second: Pattern

    def bind(self, value: ir.Value | None, bindings: Bindings) -> Iterator[Bindings]:
        yield from self.first.bind(value, bindings)
        yield from self.second.bind(value, bindings)


@dataclass(frozen=True)
class _Made(Pattern):
    """A tensor that a node of the standard domain makes."""

    op_type: str
    inputs: Sequence[Pattern]
    has_more_inputs: bool
    exclusive: bool
    output: Pattern
    where: Callable[[ir.Node], bool] | None

    def bind(self, value: ir.Value | None, bindings: Bindings) -> Iterator[Bindings]:
        node = producer_of(value)
        if not is_op(node, self.op_type) or (self.where is not None and not self.where(node)):
            return
        if self.exclusive and exclusive_producer(value, self.op_type) is None:
            return
        if len(node.inputs) != len(self.inputs) and not self.has_more_inputs:
            return
        for named in self.output.bind(value, bindings):
            orders = permutations(self.inputs) if node in ops.COMMUTES else (self.inputs,)
            for inputs in orders:
                yield from _bind_all(inputs, node.inputs, named)


def _bind_all(
    patterns: Sequence[Pattern], values: Sequence[ir.Value | None], bindings: Bindings
) -> Iterator[Bindings]:
    """Yield each way in which the first values fit the patterns, one each."""
    if not patterns:
        yield bindings
    elif values:
        for bound in patterns[0].bind(values[0], bindings):
            yield from _bind_all(patterns[1:], values[1:], bound)


def operand(name: str = "", where: Callable[[ir.Value], bool] | None = None) -> Pattern:
    """Return the pattern of any tensor that ``where`` takes; without a name it is not bound."""
    return _Operand(name, where)


def _pattern_of(text: Pattern | str | float) -> Pattern:
    """Return an input as it is written in a pattern as a pattern."""
    if isinstance(text, str):
        return operand(text)
    return text if isinstance(text, Pattern) else _Number(text)


@dataclass(frozen=True)
class NodePatterns:
    """Makes patterns of nodes: ``shared.Mul("x", "y")`` is a product.

    Each takes patterns of its inputs; ``name``, for the tensor that the node makes; and ``where``,
    a question about the node, as for its attributes.

    Attributes:
        exclusive: Whether what the node makes has no other reader, and is no output of the graph.
    """

    exclusive: bool

    def __getattr__(self, op_type: str) -> Callable[..., Pattern]:
        """Return what makes the pattern of a node of an operator."""

        def make(
            *inputs: Pattern | str | float | EllipsisType,
            name: str = "",
            where: Callable[[ir.Node], bool] | None = None,
        ) -> Pattern:
            patterns = [_pattern_of(x) for x in inputs if not isinstance(x, EllipsisType)]
            return _Made(op_type, patterns, ... in inputs, self.exclusive, operand(name), where)

        return make


own = NodePatterns(exclusive=True)
"""Nodes that nothing but the pattern reads."""
shared = NodePatterns(exclusive=False)
"""Nodes that others may read as well."""
