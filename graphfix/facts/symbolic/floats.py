"""Sizes on their way through floats: ``int(ceil(T / 160))``, as exporters of integers write it.

What floats hold is followed as a fraction of a size, if rounding to float32 changes neither its
floor nor its ceiling for lengths up to a million; what is rounded otherwise is not known.
"""

import functools
from fractions import Fraction

import numpy as np
import onnx_ir as ir
import sympy
from onnx_shape_inference import ShapeInferenceContext as Context

from graphfix.facts.symbolic.expressions import Array, array_of, items_of
from graphfix.facts.symbolic.inferred import FLOATS, INTEGERS, Facts
from graphfix.facts.symbolic.integer_contents import EVALUATORS

_HANDS_ON = frozenset(
    {"Concat", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
)


def floats_of(facts: Facts, ctx: Context, node: ir.Node) -> Array | None:
    """What a small float tensor holds, as fractions of sizes; None where that is not known."""
    args = [facts.read(ctx, x) for x in node.inputs]
    known = [x for x in args if x is not None]
    first = known[0] if known else None
    if first is None or len(known) < len(args):
        return None
    if node.op_type in _HANDS_ON:
        return EVALUATORS[node.op_type](facts, ctx, node, known)
    if node.op_type == "Cast":
        return first if all(map(_is_line, items_of(first))) else None
    if node.op_type in ("Ceil", "Floor"):
        sign = -1 if node.op_type == "Ceil" else 1
        return array_of([sign * sympy.floor(sign * x) for x in items_of(first)], first.shape)
    if node.op_type not in ("Add", "Div", "Mul", "Sub") or len(known) != 2:
        return None
    a, b = np.broadcast_arrays(*known)
    items = [_combined(node.op_type, x, y) for x, y in zip(a.flat, b.flat, strict=True)]
    found = [x for x in items if x is not None]
    return array_of(found, a.shape) if len(found) == len(items) else None


def whole_of(facts: Facts, ctx: Context, node: ir.Node) -> Array | None:
    """What a Cast to integers makes of floats: they are cut, which rounds down from above 0."""
    held = facts.read(ctx, node.inputs[0])
    if held is None or node.outputs[0].dtype not in INTEGERS[:2]:
        return None
    items: list[sympy.Expr] = []
    for x in items_of(held):
        if is_whole(x):
            items.append(x)
        else:
            items.append(sympy.floor(x) if facts.at_least(ctx, x, 0) else facts.fresh(ctx))
    return array_of(items, held.shape)


def is_of_floats(node: ir.Node) -> bool:
    """Whether a node computes integers or truths from floats."""
    return any(x is not None and x.dtype in FLOATS for x in node.inputs)


def _combined(op_type: str, a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
    if op_type in ("Add", "Sub"):
        exact = all(is_whole(x) for x in (a, b)) or (b.is_Integer and abs(b) < 1000)
        return (a + b if op_type == "Add" else a - b) if exact and _is_line(a - b) else None
    if op_type == "Mul" and a.is_Number:
        a, b = b, a
    if not b.is_Rational or not is_whole(a) or b == 0:
        return None
    ratio = factor(float(b), divides=op_type == "Div")
    return None if ratio is None else a * ratio


def is_whole(x: sympy.Expr) -> bool:
    """Whether a quotient of sizes is a size."""
    return bool(sympy.fraction(sympy.together(x))[1] == 1)


def _is_line(x: sympy.Expr) -> bool:
    """Whether it is a length, not an area, which may be more than float32 can tell apart."""
    return len(x.free_symbols) <= 1 and not any(part.is_Pow for part in sympy.preorder_traversal(x))


@functools.lru_cache(maxsize=256)
def factor(number: float, *, divides: bool) -> sympy.Rational | None:
    """What a length is multiplied with, if float32 does not matter up to a million."""
    plain = Fraction(number).limit_denominator(1000)
    if plain == 0 or abs(float(plain) - number) > 1e-7 * abs(number):
        return None
    ratio = 1 / plain if divides else plain
    lengths = np.arange(-4096, 1 << 20)
    exact = np.float32(number)
    short = lengths.astype(np.float32)
    found = short / exact if divides else short * exact
    above = lengths * ratio.numerator
    down, up = above // ratio.denominator, -(-above // ratio.denominator)
    same = (np.floor(found) == down).all() and (np.ceil(found) == up).all()
    return sympy.Rational(ratio.numerator, ratio.denominator) if same else None
