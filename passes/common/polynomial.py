"""Arithmetic with constants read as a polynomial, whatever the order of its operators."""

import functools
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from graphfix.facts.view import View
from graphfix.graph.constants import const_of, uniform_number
from graphfix.graph.nodes import attr_int, is_op

Powers = tuple[int, ...]
Polynomial = Mapping[Powers, float]
"""The factor of each product of powers: ``3 * x * y**2`` in x and y is ``{(1, 2): 3}``."""

_DEGREE = 4
_NODES = 24

# How far a number that is written in a type may be from what is meant.
_SLACK = {ir.DataType.FLOAT: 1e-5, ir.DataType.FLOAT16: 2e-3}


class PolynomialReader:
    """Reads tensors as polynomials in a few of them, the atoms.

    Attributes:
        nodes: The nodes that were read: they compute the polynomial.
    """

    def __init__(self, view: View, *atoms: ir.Value) -> None:
        self._view = view
        self._atoms = atoms
        self._rank = view.shapes.rank(atoms[0])
        self.nodes: dict[ir.Node, None] = {}

    def read(self, value: ir.Value | None) -> Polynomial | None:
        """Return ``value`` as a polynomial, or None if it is none, or of too many nodes."""
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
        operands = [self.read(x) for x in node.inputs]
        terms = [x for x in operands if x is not None]
        return _apply_operator(node.op_type, terms) if len(terms) == len(operands) else None


def _apply_operator(op_type: str, terms: Sequence[Polynomial]) -> Polynomial | None:
    first, second = terms[0], terms[-1]
    if op_type == "Neg":
        return _scale_polynomial(first, -1)
    if op_type == "Add":
        return _add_polynomials(first, second)
    if op_type == "Sub":
        return _add_polynomials(first, _scale_polynomial(second, -1))
    if op_type == "Mul":
        return _multiply_polynomials(first, second)
    number = _constant_term(second)
    if number is None:
        return None
    if op_type == "Div":
        return _scale_polynomial(first, 1 / number) if number else None
    if number not in range(1, _DEGREE + 1):
        return None
    return functools.reduce(_multiply_polynomials, [first] * int(number))


def _add_polynomials(a: Polynomial, b: Polynomial) -> Polynomial:
    total = {key: a.get(key, 0.0) + b.get(key, 0.0) for key in {**a, **b}}
    return {key: value for key, value in total.items() if value}


def _scale_polynomial(a: Polynomial, factor: float) -> Polynomial:
    return {key: value * factor for key, value in a.items()}


def _multiply_polynomials(a: Polynomial, b: Polynomial) -> Polynomial:
    product: dict[Powers, float] = {}
    for lhs_powers, x in a.items():
        for rhs_powers, y in b.items():
            key = tuple(i + j for i, j in zip(lhs_powers, rhs_powers, strict=True))
            if sum(key) <= _DEGREE:
                product[key] = product.get(key, 0.0) + x * y
            else:
                product[(_DEGREE + 1,) * len(key)] = float("nan")  # equal to no polynomial
    return product


def _constant_term(a: Polynomial) -> float | None:
    if len(a) != 1:
        return None
    ((key, value),) = a.items()
    return value if not any(key) else None


def number_of(value: ir.Value | None, rank: int | None = 0) -> float | None:
    """Return the number that ``value`` is, if a constant of one element, through Casts.

    Args:
        value: The tensor.
        rank: The rank of the tensor it is combined with, whose shape it may not change; None if
            unknown: then only constants of rank 0 count.
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
    number = uniform_number(array)
    return None if number is None or not np.isfinite(number) else float(number)


def are_close(a: Polynomial, b: Polynomial, dtype: ir.DataType, slack: float = 0.0) -> bool:
    """Return whether two polynomials have the same terms, with nearly the same factors.

    Args:
        a: One polynomial.
        b: The other.
        dtype: The type that the factors are written in.
        slack: The relative error allowed in a factor; by default that of the type.
    """
    within = slack or _SLACK[dtype]
    return a.keys() == b.keys() and all(abs(a[k] - b[k]) <= within * abs(b[k]) for k in b)
