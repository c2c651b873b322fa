"""What small integer tensors hold: the arithmetic that exporters compute shapes with.

Such as the ``Where(Equal(shape, -1), 1, shape)`` of TorchScript's Expand.
"""

import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import sympy
from onnx_shape_inference import ShapeInferenceContext as Context

from graphfix.facts.symbolic.expressions import Array, array_of, items_of, truth, whole_numbers
from graphfix.facts.symbolic.inferred import SMALL, Facts
from graphfix.facts.symbolic.quotients import floored
from graphfix.graph.dims import numbers_in
from graphfix.graph.nodes import attr_int, attr_ints, tensor_in
from graphfix.ops.slicing import slice_of

Evaluator = Callable[[Facts, Context, ir.Node, list[Array]], Array | None]
Of = Callable[[Facts, Context, sympy.Expr, sympy.Expr], sympy.Expr | None]


def _elementwise(of: Of) -> Evaluator:
    def evaluate(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
        result = args[0]
        for other in args[1:]:
            a, b = np.broadcast_arrays(result, other)
            items = [of(facts, ctx, x, y) for x, y in zip(a.flat, b.flat, strict=True)]
            result = array_of([facts.fresh(ctx) if x is None else x for x in items], a.shape)
        return result

    return evaluate


def _divide(facts: Facts, ctx: Context, a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
    # ONNX rounds to zero, floor does not: equal only for a quotient that is not negative.
    if not facts.at_least(ctx, b, 1):
        return None
    quotient = sympy.floor(a / b)
    if facts.at_least(ctx, a, 0) or facts.at_least(ctx, quotient, 0):
        return quotient
    if facts.at_least(ctx, a + b, 1):  # -1 / 2 is 0
        return sympy.Max(0, quotient)
    if facts.at_least(ctx, -a, 0):
        return -sympy.floor(-a / b)
    if not b.is_Integer or len(a.free_symbols) != 1 or a.has(sympy.Max, sympy.floor):
        return None
    return sympy.Max(0, quotient) - sympy.Max(0, sympy.floor(-a / b))


def _subtract(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    rounded = floored(node)
    numbers = None if rounded is None else facts.read(ctx, rounded[0])
    if rounded is not None and numbers is not None:
        items = [sympy.floor(x / rounded[1]) for x in items_of(numbers)]
        made = node.outputs[0].shape  # a number by one in a list is one in a list
        return array_of(items, numbers.shape if made is None or len(items) > 1 else [1] * len(made))
    return _difference(facts, ctx, node, args) if len(args) == 2 else None


_difference = _elementwise(lambda facts, ctx, a, b: a - b)


def _modulo(facts: Facts, ctx: Context, a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
    return sympy.Mod(a, b) if facts.at_least(ctx, b, 1) and facts.is_dim(ctx, a) else None


def _less(facts: Facts, ctx: Context, a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
    if facts.at_least(ctx, b - a, 1):
        return truth(True)
    return truth(False) if facts.at_least(ctx, a - b, 0) else None


def _less_equal(facts: Facts, ctx: Context, a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
    greater = _less(facts, ctx, b, a)
    return None if greater is None else 1 - greater


def _same(facts: Facts, ctx: Context, a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
    if a == b:
        return truth(True)
    return truth(False) if facts.at_least(ctx, a - b, 1) or facts.at_least(ctx, b - a, 1) else None


def _extreme(sign: int) -> Evaluator:
    def pick(facts: Facts, ctx: Context, a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
        for one, other in ((a, b), (b, a)):
            if facts.at_least(ctx, sign * (one - other), 0):
                return one
        if not (facts.is_dim(ctx, a) and facts.is_dim(ctx, b)):
            return None
        return sympy.Max(a, b) if sign > 0 else sympy.Min(a, b)

    return _elementwise(pick)


def _clip(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    given = iter(args)
    places = (None if x is None else next(given) for x in node.inputs)
    result, low, high = [*places, None, None][:3]
    for sign, bound in ((1, low), (-1, high)):
        if result is not None and bound is not None:
            result = _extreme(sign)(facts, ctx, node, [result, bound])
    return result


def _where(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    cond, x, y = np.broadcast_arrays(*args)
    items: list[sympy.Expr] = []
    for c, a, b in zip(cond.flat, x.flat, y.flat, strict=True):
        chosen = (a if c == 1 else b) if c.is_Integer or a == b else None
        items.append(facts.fresh(ctx) if chosen is None else chosen)
    return array_of(items, cond.shape)


def _not(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    return array_of([1 - x for x in items_of(args[0])], args[0].shape)


def _cast(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    if node.outputs[0].dtype != ir.DataType.BOOL:
        return args[0]
    equal_zero = [_same(facts, ctx, x, sympy.S.Zero) for x in args[0].flat]
    return array_of([facts.fresh(ctx) if x is None else 1 - x for x in equal_zero], args[0].shape)


def _shape(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    data = node.inputs[0]
    if data is None or data.shape is None:
        return None
    dims = facts.take_dims(data.shape)
    dims = dims[attr_int(node, "start", 0) : attr_int(node, "end", len(dims))]
    return array_of(dims, [len(dims)])


def _size(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    dims = _shape(facts, ctx, node, args)
    return None if dims is None else array_of([sympy.Mul(*dims)], [])


def _gather(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    chosen = whole_numbers(args[1])
    axis = attr_int(node, "axis", 0)
    if chosen is None or args[0].ndim == 0:
        return None
    if any(not -args[0].shape[axis] <= x < args[0].shape[axis] for x in chosen):
        return None
    # A take with a scalar index gives the element itself, not an array.
    taken = np.take(args[0], np.array(chosen, int), axis=axis)
    return taken.reshape((*args[0].shape[:axis], *args[1].shape, *args[0].shape[axis:][1:]))


def _concat(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    parts = []
    for value in node.inputs:
        part = facts.elements(ctx, value)
        if part is None:
            return None
        parts.append(part)
    return np.concatenate(parts, axis=attr_int(node, "axis", 0))


def _slice(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    given = [whole_numbers(x) for x in args[1:]]
    starts, ends = given[0], given[1]
    axes = given[2] if len(given) > 2 else list(range(len(starts or ())))
    steps = given[3] if len(given) > 3 else [1] * len(starts or ())
    if starts is None or ends is None or axes is None or steps is None:
        return None
    index = [slice(None)] * args[0].ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        index[axis] = slice_of(start, end, step, args[0].shape[axis])
    return args[0][tuple(index)]


def _range(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    given = [whole_numbers(x) for x in args]
    known = [x[0] for x in given if x is not None and len(x) == 1]
    if len(known) != 3 or known[2] == 0 or len(range(*known)) > SMALL:
        return None
    return np.array([sympy.Integer(x) for x in range(*known)], dtype=object)


def _reshape_data(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    dims = numbers_in(node.outputs[0].shape)
    return None if dims is None or math.prod(dims) != args[0].size else args[0].reshape(dims)


def _expand_data(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    shape = whole_numbers(args[1])
    if shape is None or math.prod(shape) > SMALL:
        return None
    return np.broadcast_to(args[0], np.broadcast_shapes(args[0].shape, tuple(shape)))


def _filled(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    shape, fill = whole_numbers(args[0]), node.attributes.get("value")
    if shape is None or fill is None or math.prod(shape) > SMALL:
        return None
    number = sympy.Integer(int(tensor_in(fill).numpy().reshape(-1)[0]))
    return array_of([number] * math.prod(shape), shape)


def _product(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    if args[0].ndim != 1:
        return None
    return array_of([sympy.Mul(*args[0])], [1] * attr_int(node, "keepdims", 1))


EVALUATORS: dict[str, Evaluator] = {
    **dict.fromkeys(("Add", "Sum"), _elementwise(lambda facts, ctx, a, b: a + b)),
    "Sub": _subtract,
    "Mul": _elementwise(lambda facts, ctx, a, b: a * b),
    "Div": _elementwise(_divide),
    "Mod": lambda facts, ctx, node, args: (
        None if attr_int(node, "fmod", 0) else _elementwise(_modulo)(facts, ctx, node, args)
    ),
    "Min": _extreme(-1),
    "Max": _extreme(1),
    "Clip": _clip,
    "Equal": _elementwise(_same),
    "Less": _elementwise(_less),
    "Greater": _elementwise(lambda facts, ctx, a, b: _less(facts, ctx, b, a)),
    "LessOrEqual": _elementwise(_less_equal),
    "GreaterOrEqual": _elementwise(lambda facts, ctx, a, b: _less_equal(facts, ctx, b, a)),
    "And": _elementwise(lambda facts, ctx, a, b: a * b),
    "Or": _elementwise(lambda facts, ctx, a, b: a + b - a * b),
    "Xor": _elementwise(lambda facts, ctx, a, b: a + b - 2 * a * b),
    "Not": _not,
    # Of a scalar numpy would give the number itself, not an array.
    "Neg": lambda facts, ctx, node, args: array_of([-x for x in items_of(args[0])], args[0].shape),
    "Where": _where,
    "Cast": _cast,
    "Shape": _shape,
    "Size": _size,
    "Gather": _gather,
    "Concat": _concat,
    "Slice": _slice,
    **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze"), _reshape_data),
    "Transpose": lambda facts, ctx, node, args: np.transpose(args[0], attr_ints(node, "perm")),
    "Identity": lambda facts, ctx, node, args: args[0],
    "Expand": _expand_data,
    "ConstantOfShape": _filled,
    "Range": _range,
    "ReduceProd": _product,
    # The library carries contents through these; ours do not know how, so they end there.
    **dict.fromkeys(("Ceil", "Floor"), lambda facts, ctx, node, args: None),
}
