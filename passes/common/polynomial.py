"""Arithmetic with constants read as a polynomial: whatever the order, it is one and the same."""

import functools
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from graphfix.facts.view import View
from graphfix.graph.constants import const_of, number_in
from graphfix.graph.nodes import attr_int, is_op

Powers = tuple[int, ...]
Polynomial = Mapping[Powers, float]
"""The factor of each product of powers: ``3 * x * y**2`` in x and y is ``{(1, 2): 3}``."""

_DEGREE = 4
_NODES = 24

# How far a number that is written in a type may be from what is meant.
_SLACK = {ir.DataType.FLOAT: 1e-5, ir.DataType.FLOAT16: 2e-3}


class Reader:
    """Reads tensors as polynomials in a few of them, the atoms.

    Attributes:
        nodes: The nodes that were read: what computes the polynomial.
    """

    def __init__(self, view: View, *atoms: ir.Value) -> None:
        self._view = view
        self._atoms = atoms
        self._rank = view.shapes.rank(atoms[0])
        self.nodes: dict[ir.Node, None] = {}

    def read(self, value: ir.Value | None) -> Polynomial | None:
        """``value`` as a polynomial; None if it is not one, or one of too many nodes."""
        if value is None:
            return None
        for i, atom in enumerate(self._atoms):
            if value is atom:
                return {tuple(int(i == j) for j in range(len(self._atoms))): 1.0}
        number = number_of(value, self._rank)
        if number is not None:
            return {(0,) * len(self._atoms): number}
        node = value.producer()
        if node is None or len(self.nodes) > _NODES:
            return None
        if not is_op(node, "Add", "Sub", "Mul", "Div", "Pow", "Neg"):
            return None
        self.nodes[node] = None
        read = [self.read(x) for x in node.inputs]
        terms = [x for x in read if x is not None]
        return _combined(node.op_type, terms) if len(terms) == len(read) else None


def _combined(op_type: str, terms: Sequence[Polynomial]) -> Polynomial | None:
    first, second = terms[0], terms[-1]
    if op_type == "Neg":
        return _scaled(first, -1)
    if op_type == "Add":
        return _sum(first, second)
    if op_type == "Sub":
        return _sum(first, _scaled(second, -1))
    if op_type == "Mul":
        return _product(first, second)
    number = _number_in(second)
    if number is None:
        return None
    if op_type == "Div":
        return _scaled(first, 1 / number) if number else None
    if number not in range(1, _DEGREE + 1):
        return None
    return functools.reduce(_product, [first] * int(number))


def _sum(a: Polynomial, b: Polynomial) -> Polynomial:
    found = {key: a.get(key, 0.0) + b.get(key, 0.0) for key in {**a, **b}}
    return {key: value for key, value in found.items() if value}


def _scaled(a: Polynomial, factor: float) -> Polynomial:
    return {key: value * factor for key, value in a.items()}


def _product(a: Polynomial, b: Polynomial) -> Polynomial:
    found: dict[Powers, float] = {}
    for left, x in a.items():
        for right, y in b.items():
            key = tuple(i + j for i, j in zip(left, right, strict=True))
            if sum(key) <= _DEGREE:
                found[key] = found.get(key, 0.0) + x * y
            else:
                found[(_DEGREE + 1,) * len(key)] = float("nan")  # equal to no polynomial
    return found


def _number_in(a: Polynomial) -> float | None:
    if len(a) != 1:
        return None
    ((key, value),) = a.items()
    return value if not any(key) else None


def number_of(value: ir.Value | None, rank: int | None = 0) -> float | None:
    """The number that ``value`` is, if it is a constant of one element; through Casts.

    Args:
        value: The tensor.
        rank: The rank of what it is to be combined with, whose shape it may not change; None if
            that is not known, and only a constant of rank 0 is sure not to.
    """
    array = const_of(value)
    if array is None and value is not None:
        node = value.producer()
        if is_op(node, "Cast") and not node.attributes["to"].is_ref():
            array = const_of(node.inputs[0])
            dtype = ir.DataType(attr_int(node, "to", 0))
            if array is not None and not dtype.is_floating_point():
                return None
            if array is not None and dtype.itemsize > 1:
                array = array.astype(dtype.numpy())
    if array is None or array.size != 1 or array.ndim > (rank or 0):
        return None
    number = number_in(array)
    return None if number is None or not np.isfinite(number) else float(number)


def close(a: Polynomial, b: Polynomial, dtype: ir.DataType, slack: float = 0.0) -> bool:
    """Whether two polynomials have the same products, with the same factors.

    Args:
        a: One.
        b: The other.
        dtype: The type that the factors are written in.
        slack: How far a factor may be off; by default as far as the type makes it.
    """
    within = slack or _SLACK[dtype]
    return a.keys() == b.keys() and all(abs(a[k] - b[k]) <= within * abs(b[k]) for k in b)
