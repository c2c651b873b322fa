"""Sizes computed through floats: ``int(ceil(T / 160))``, as exporters of integers write it.

What floats hold is followed as a fraction of a size, if rounding to float32 changes neither its
floor nor its ceiling for lengths up to a million; any other rounding makes it unknown.
"""

import functools
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import onnx_ir as ir
import sympy
from onnx_shape_inference import ShapeInferenceContext as Context

from graphfix.facts.symbolic.expressions import Array, array_of_exprs, items_of
from graphfix.facts.symbolic.inferred import FLOATS, INTEGERS, Facts
from graphfix.facts.symbolic.integer_contents import EVALUATORS
from graphfix.ops import CASTS, MOVES_ELEMENTS


def float_contents(facts: Facts, ctx: Context, node: ir.Node) -> Array | None:
    """Return what a small float tensor holds, as fractions of sizes; None where unknown."""
    args = [facts.read_contents(ctx, x) for x in data_inputs(node)]
    arrays = [x for x in args if x is not None]
    if not arrays or len(arrays) < len(args):
        return None
    if node in MOVES_ELEMENTS:
        evaluator = EVALUATORS.get(node.op_type)
        return None if evaluator is None else evaluator(facts, ctx, node, arrays)
    first = arrays[0]
    match node.op_type:
        case "Cast" | "CastLike":
            return first if all(map(_is_length, items_of(first))) else None
        case "Ceil":
            return array_of_exprs([-sympy.floor(-x) for x in items_of(first)], first.shape)
        case "Floor":
            return array_of_exprs([sympy.floor(x) for x in items_of(first)], first.shape)
        case "Add" | "Div" | "Mul" | "Sub" if len(arrays) == 2:
            return _combine_arrays(node.op_type, *arrays)
    return None


def integers_after_cast(facts: Facts, ctx: Context, node: ir.Node) -> Array | None:
    """Return what a Cast of floats to integers holds: they round down from above 0."""
    floats = facts.read_contents(ctx, node.inputs[0])
    if floats is None or node.outputs[0].dtype not in INTEGERS[:2]:
        return None
    items: list[sympy.Expr] = []
    for x in items_of(floats):
        if is_whole_size(x):
            items.append(x)
        else:
            items.append(sympy.floor(x) if facts.is_at_least(ctx, x, 0) else facts.new_unknown(ctx))
    return array_of_exprs(items, floats.shape)


def reads_floats(node: ir.Node) -> bool:
    """Return whether a node computes integers or truths from floats."""
    return any(x is not None and x.dtype in FLOATS for x in data_inputs(node))


def data_inputs(node: ir.Node) -> Sequence[ir.Value | None]:
    """Return the inputs whose elements a node reads: of the second a CastLike reads the type."""
    return node.inputs[:1] if node in CASTS else node.inputs


def _combine_arrays(op_type: str, a: Array, b: Array) -> Array | None:
    """Return a sum, difference, product or quotient of lengths; None if one is not known."""
    a, b = np.broadcast_arrays(a, b)
    items = [_combine_lengths(op_type, x, y) for x, y in zip(a.flat, b.flat, strict=True)]
    exprs = [x for x in items if x is not None]
    return array_of_exprs(exprs, a.shape) if len(exprs) == len(items) else None


def _combine_lengths(op_type: str, a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
    if op_type in ("Add", "Sub"):
        exact = all(is_whole_size(x) for x in (a, b)) or (b.is_Integer and abs(b) < 1000)
        return (a + b if op_type == "Add" else a - b) if exact and _is_length(a - b) else None
    if op_type == "Mul" and a.is_Number:
        a, b = b, a
    if not b.is_Rational or not is_whole_size(a) or b == 0:
        return None
    ratio = exact_factor(float(b), divides=op_type == "Div")
    return None if ratio is None else a * ratio


def is_whole_size(x: sympy.Expr) -> bool:
    """Return whether a quotient of sizes is a size."""
    return bool(sympy.fraction(sympy.together(x))[1] == 1)


def _is_length(x: sympy.Expr) -> bool:
    """Return whether it is a length, not an area, beyond what float32 can tell apart."""
    return len(x.free_symbols) <= 1 and not any(part.is_Pow for part in sympy.preorder_traversal(x))


@functools.lru_cache(maxsize=256)
def exact_factor(number: float, *, divides: bool) -> sympy.Rational | None:
    """Return what a length is multiplied with, if float32 does not matter up to a million."""
    plain = Fraction(number).limit_denominator(1000)
    if plain == 0 or abs(float(plain) - number) > 1e-7 * abs(number):
        return None
    ratio = 1 / plain if divides else plain
    lengths = np.arange(-4096, 1 << 20)
    exact = np.float32(number)
    short = lengths.astype(np.float32)
    products = short / exact if divides else short * exact
    above = lengths * ratio.numerator
    down, up = above // ratio.denominator, -(-above // ratio.denominator)
    is_exact = (np.floor(products) == down).all() and (np.ceil(products) == up).all()
    return sympy.Rational(ratio.numerator, ratio.denominator) if is_exact else None
