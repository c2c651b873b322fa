"""Contents of small integer tensors: the arithmetic that exporters compute shapes with.

Such as the ``Where(Equal(shape, -1), 1, shape)`` of TorchScript's Expand.
"""

import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import sympy
from onnx_shape_inference import ShapeInferenceContext as Context

from graphfix.facts.symbolic.expressions import (
    Array,
    array_of_exprs,
    bool_expr,
    integers_in,
    items_of,
)
from graphfix.facts.symbolic.inferred import MAX_SHAPE_ELEMENTS, Facts
from graphfix.facts.symbolic.quotients import floor_division
from graphfix.graph.dims import static_dims
from graphfix.graph.nodes import attr_int, attr_ints, tensor_of_attr
from graphfix.ops.slices import cuts_of_slice, python_slice

Evaluator = Callable[[Facts, Context, ir.Node, list[Array]], Array | None]
ElementRule = Callable[[Facts, Context, sympy.Expr, sympy.Expr], sympy.Expr | None]


def _elementwise_evaluator(compute: ElementRule) -> Evaluator:
    def evaluate(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
        result = args[0]
        for operand in args[1:]:
            a, b = np.broadcast_arrays(result, operand)
            items = [compute(facts, ctx, x, y) for x, y in zip(a.flat, b.flat, strict=True)]
            result = array_of_exprs(
                [facts.new_unknown(ctx) if x is None else x for x in items], a.shape
            )
        return result

    return evaluate


def _divide_toward_zero(
    facts: Facts, ctx: Context, a: sympy.Expr, b: sympy.Expr
) -> sympy.Expr | None:
    # ONNX rounds to zero, floor does not: equal only for a quotient that is not negative.
    if not facts.is_at_least(ctx, b, 1):
        return None
    quotient = sympy.floor(a / b)
    if facts.is_at_least(ctx, a, 0) or facts.is_at_least(ctx, quotient, 0):
        return quotient
    if facts.is_at_least(ctx, a + b, 1):  # -1 / 2 is 0
        return sympy.Max(0, quotient)
    if facts.is_at_least(ctx, -a, 0):
        return -sympy.floor(-a / b)
    if not b.is_Integer or len(a.free_symbols) != 1 or a.has(sympy.Max, sympy.floor):
        return None
    return sympy.Max(0, quotient) - sympy.Max(0, sympy.floor(-a / b))


def _evaluate_sub(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    rounded = floor_division(node)
    numbers = None if rounded is None else facts.read_contents(ctx, rounded[0])
    if rounded is not None and numbers is not None:
        items = [sympy.floor(x / rounded[1]) for x in items_of(numbers)]
        out_shape = node.outputs[0].shape  # a number by one in a list is one in a list
        return array_of_exprs(
            items, numbers.shape if out_shape is None or len(items) > 1 else [1] * len(out_shape)
        )
    return _evaluate_difference(facts, ctx, node, args) if len(args) == 2 else None


_evaluate_difference = _elementwise_evaluator(lambda facts, ctx, a, b: a - b)


def _compute_modulo(facts: Facts, ctx: Context, a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
    return sympy.Mod(a, b) if facts.is_at_least(ctx, b, 1) and facts.is_of_sizes(ctx, a) else None


def _compute_less(facts: Facts, ctx: Context, a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
    if facts.is_at_least(ctx, b - a, 1):
        return bool_expr(True)
    return bool_expr(False) if facts.is_at_least(ctx, a - b, 0) else None


def _compute_less_equal(
    facts: Facts, ctx: Context, a: sympy.Expr, b: sympy.Expr
) -> sympy.Expr | None:
    greater = _compute_less(facts, ctx, b, a)
    return None if greater is None else 1 - greater


def _compute_equal(facts: Facts, ctx: Context, a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
    if a == b:
        return bool_expr(True)
    return (
        bool_expr(False)
        if facts.is_at_least(ctx, a - b, 1) or facts.is_at_least(ctx, b - a, 1)
        else None
    )


def _extreme_evaluator(sign: int) -> Evaluator:
    def pick_extreme(facts: Facts, ctx: Context, a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
        for lhs, rhs in ((a, b), (b, a)):
            if facts.is_at_least(ctx, sign * (lhs - rhs), 0):
                return lhs
        if not (facts.is_of_sizes(ctx, a) and facts.is_of_sizes(ctx, b)):
            return None
        return sympy.Max(a, b) if sign > 0 else sympy.Min(a, b)

    return _elementwise_evaluator(pick_extreme)


def _evaluate_clip(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    arrays = iter(args)
    operands = (None if x is None else next(arrays) for x in node.inputs)
    result, low, high = [*operands, None, None][:3]
    for sign, bound in ((1, low), (-1, high)):
        if result is not None and bound is not None:
            result = _extreme_evaluator(sign)(facts, ctx, node, [result, bound])
    return result


def _evaluate_where(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    cond, x, y = np.broadcast_arrays(*args)
    items: list[sympy.Expr] = []
    for c, a, b in zip(cond.flat, x.flat, y.flat, strict=True):
        chosen = (a if c == 1 else b) if c.is_Integer or a == b else None
        items.append(facts.new_unknown(ctx) if chosen is None else chosen)
    return array_of_exprs(items, cond.shape)


def _evaluate_not(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    return array_of_exprs([1 - x for x in items_of(args[0])], args[0].shape)


def _evaluate_cast(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    if node.outputs[0].dtype != ir.DataType.BOOL:
        return args[0]
    equal_zero = [_compute_equal(facts, ctx, x, sympy.S.Zero) for x in args[0].flat]
    return array_of_exprs(
        [facts.new_unknown(ctx) if x is None else 1 - x for x in equal_zero], args[0].shape
    )


def _evaluate_shape(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    data = node.inputs[0]
    if data is None or data.shape is None:
        return None
    dims = facts.dims_as_sizes(data.shape)
    dims = dims[attr_int(node, "start", 0) : attr_int(node, "end", len(dims))]
    return array_of_exprs(dims, [len(dims)])


def _evaluate_size(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    dims = _evaluate_shape(facts, ctx, node, args)
    return None if dims is None else array_of_exprs([sympy.Mul(*dims)], [])


def _evaluate_gather(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    indices = integers_in(args[1])
    axis = attr_int(node, "axis", 0)
    if indices is None or args[0].ndim == 0:
        return None
    if any(not -args[0].shape[axis] <= x < args[0].shape[axis] for x in indices):
        return None
    # A take with a scalar index gives the element itself, not an array.
    elements = np.take(args[0], np.array(indices, int), axis=axis)
    return elements.reshape((*args[0].shape[:axis], *args[1].shape, *args[0].shape[axis:][1:]))


def _evaluate_concat(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    parts = []
    for value in node.inputs:
        part = facts.elements_or_unknowns(ctx, value)
        if part is None:
            return None
        parts.append(part)
    return np.concatenate(parts, axis=attr_int(node, "axis", 0))


def _evaluate_slice(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    data = args[0]
    cuts = cuts_of_slice(
        node, data.ndim, lambda value: integers_in(facts.read_contents(ctx, value))
    )
    if cuts is None or any(cut.step == 0 for cut in cuts.values()):
        return None
    index = [slice(None)] * data.ndim
    for axis, cut in cuts.items():
        index[axis] = python_slice(cut, data.shape[axis])
    return data[tuple(index)]


def _evaluate_range(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    numbers = [integers_in(x) for x in args]
    bounds = [x[0] for x in numbers if x is not None and len(x) == 1]
    if len(bounds) != 3 or bounds[2] == 0 or len(range(*bounds)) > MAX_SHAPE_ELEMENTS:
        return None
    return np.array([sympy.Integer(x) for x in range(*bounds)], dtype=object)


def _evaluate_reshape(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    dims = static_dims(node.outputs[0].shape)
    return None if dims is None or math.prod(dims) != args[0].size else args[0].reshape(dims)


def _evaluate_expand(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    shape = integers_in(args[1])
    if shape is None or math.prod(shape) > MAX_SHAPE_ELEMENTS:
        return None
    return np.broadcast_to(args[0], np.broadcast_shapes(args[0].shape, tuple(shape)))


def _evaluate_constant_of_shape(
    facts: Facts, ctx: Context, node: ir.Node, args: list[Array]
) -> Array | None:
    shape, fill = integers_in(args[0]), node.attributes.get("value")
    if shape is None or fill is None or math.prod(shape) > MAX_SHAPE_ELEMENTS:
        return None
    number = sympy.Integer(int(tensor_of_attr(fill).numpy().reshape(-1)[0]))
    return array_of_exprs([number] * math.prod(shape), shape)


def _evaluate_reduce_prod(
    facts: Facts, ctx: Context, node: ir.Node, args: list[Array]
) -> Array | None:
    if args[0].ndim != 1:
        return None
    return array_of_exprs([sympy.Mul(*args[0])], [1] * attr_int(node, "keepdims", 1))


EVALUATORS: dict[str, Evaluator] = {
    **dict.fromkeys(("Add", "Sum"), _elementwise_evaluator(lambda facts, ctx, a, b: a + b)),
    "Sub": _evaluate_sub,
    "Mul": _elementwise_evaluator(lambda facts, ctx, a, b: a * b),
    "Div": _elementwise_evaluator(_divide_toward_zero),
    "Mod": lambda facts, ctx, node, args: (
        None
        if attr_int(node, "fmod", 0)
        else _elementwise_evaluator(_compute_modulo)(facts, ctx, node, args)
    ),
    "Min": _extreme_evaluator(-1),
    "Max": _extreme_evaluator(1),
    "Clip": _evaluate_clip,
    "Equal": _elementwise_evaluator(_compute_equal),
    "Less": _elementwise_evaluator(_compute_less),
    "Greater": _elementwise_evaluator(lambda facts, ctx, a, b: _compute_less(facts, ctx, b, a)),
    "LessOrEqual": _elementwise_evaluator(_compute_less_equal),
    "GreaterOrEqual": _elementwise_evaluator(
        lambda facts, ctx, a, b: _compute_less_equal(facts, ctx, b, a)
    ),
    "And": _elementwise_evaluator(lambda facts, ctx, a, b: a * b),
    "Or": _elementwise_evaluator(lambda facts, ctx, a, b: a + b - a * b),
    "Xor": _elementwise_evaluator(lambda facts, ctx, a, b: a + b - 2 * a * b),
    "Not": _evaluate_not,
    # Of a scalar numpy would give the number itself, not an array.
    "Neg": lambda facts, ctx, node, args: array_of_exprs(
        [-x for x in items_of(args[0])], args[0].shape
    ),
    "Where": _evaluate_where,
    **dict.fromkeys(("Cast", "CastLike"), _evaluate_cast),
    "Shape": _evaluate_shape,
    "Size": _evaluate_size,
    "Gather": _evaluate_gather,
    "Concat": _evaluate_concat,
    "Slice": _evaluate_slice,
    **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze"), _evaluate_reshape),
    "Transpose": lambda facts, ctx, node, args: np.transpose(args[0], attr_ints(node, "perm")),
    "Identity": lambda facts, ctx, node, args: args[0],
    "Expand": _evaluate_expand,
    "ConstantOfShape": _evaluate_constant_of_shape,
    "Range": _evaluate_range,
    "ReduceProd": _evaluate_reduce_prod,
    # The library carries contents through these; ours do not know how, so they end there.
    **dict.fromkeys(("Ceil", "Floor"), lambda facts, ctx, node, args: None),
}
