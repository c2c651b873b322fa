"""Rules that onnx_shape_inference does not have, or has too bold, added through its own registry.

Too bold: it lets two different symbols broadcast to the first, reads ``x[:, :512]`` as 512 long,
and divides floats as integers. Lacking: what the integers hold that exporters compute shapes with,
such as the ``Where(Equal(shape, -1), 1, shape)`` of TorchScript's Expand.

Here a dim is what it is in every run that succeeds, for inputs with no dim of 0 (sizes are taken
to be positive when an expression is simplified). What is not known gets a symbol of its own.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import math
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import sympy  # type: ignore[import-untyped]
from onnx_shape_inference import registry
from onnx_shape_inference._symbolic_shapes import parse_symbolic_expression

from graphfix.model.values import attr_int, attr_ints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt
    from onnx_shape_inference import ShapeInferenceContext as Context

    Array = npt.NDArray[np.object_]
    Rule = Callable[[Context, ir.Node], None]
    Evaluator = Callable[["Facts", Context, ir.Node, list[Array]], Array | None]
    ShapeRule = Callable[["Facts", Context, ir.Node], None]

Dim = int | ir.SymbolicDim

# Shape tensors are small: what holds more is data.
_SMALL = 64
_INTEGERS = (ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL)

_facts: contextvars.ContextVar[Facts | None] = contextvars.ContextVar("facts", default=None)
_registered = False


class Facts:
    """What is learned of one model while its shapes are inferred.

    Attributes:
        contents: What small integer tensors hold, as arrays of expressions. True is 1.
        never_empty: Symbols that are at least 1 in every run that succeeds.
    """

    def __init__(self, graph: ir.Graph) -> None:
        self.contents: dict[ir.Value, Array] = {}
        self.never_empty: set[str] = set()
        self._graph = graph
        self._real: set[str] = set()
        self._positive: list[sympy.Expr] = []
        self._equal: list[tuple[sympy.Expr, sympy.Expr]] = []
        self._joins: dict[frozenset[str], ir.SymbolicDim] = {}
        self._parts: dict[str, frozenset[str]] = {}
        self._minted: set[str] = set()
        self._solved: dict[sympy.Symbol, sympy.Expr] | None = None

    def fresh(self, ctx: Context) -> sympy.Expr:
        """A number of which nothing is known."""
        dim = ctx.new_symbolic_dim()
        self._minted.add(str(dim))
        return expr_of(dim)

    def join(self, ctx: Context, a: Dim, b: Dim) -> Dim:
        """The dim that ``a`` and ``b`` broadcast to.

        That of two different symbols is a third: each may be 1 where the other is not.
        """
        if a == 1 or equal(a, b):
            return b
        if b == 1 or isinstance(a, int):
            return a
        if isinstance(b, int):
            return b
        for one, other in ((a, b), (b, a)):
            if _is_at_most(other, one):
                return one
        parts = frozenset.union(*(self._parts.get(str(x), frozenset([str(x)])) for x in (a, b)))
        found = self._joins.get(parts)
        if found is None:
            found = self._joins[parts] = ctx.new_symbolic_dim()
            self._parts[str(found)] = parts
            self._minted.add(str(found))
        return found

    def must_equal(self, node: ir.Node, a: sympy.Expr, b: sympy.Expr) -> None:
        """Note that ``node`` fails unless ``a`` is ``b``; a branch might not be run at all."""
        if node.graph is self._graph and a != b:
            self._equal.append((a, b))

    def must_be_positive(self, node: ir.Node, expr: sympy.Expr) -> None:
        """Note that ``node`` fails unless ``expr`` is at least 1."""
        if node.graph is self._graph and not expr.is_Integer and expr not in self._positive:
            self._positive.append(expr)
            self.never_empty.update(
                x.name for x in sympy.Mul.make_args(expr) if isinstance(x, sympy.Symbol)
            )

    def is_dim(self, ctx: Context, expr: sympy.Expr) -> bool:
        """Whether its symbols are sizes of tensors, not unknown numbers, perhaps negative."""
        return all(
            x.name in self._real or not ctx.is_generated_symbol(x.name) for x in expr.free_symbols
        )

    def at_least(self, ctx: Context, expr: sympy.Expr, least: int) -> bool:
        """Whether ``expr`` is at least ``least`` in every run that succeeds."""
        if expr.is_Integer:
            return bool(expr >= least)
        if not self.is_dim(ctx, expr):
            return False
        spare = expr - least
        return bool(spare.is_nonnegative) or any(
            bool((spare - x + 1).is_nonnegative) for x in self._positive
        )

    def read(self, ctx: Context, value: ir.Value | None) -> Array | None:
        """What ``value`` holds, if it is a small tensor of integers that is known."""
        if value is None or value.dtype not in _INTEGERS:
            return None
        if value in self.contents:
            return self.contents[value]
        node = value.producer()
        if (value.is_initializer() or (node and node.op_type == "Constant")) and (
            not value.is_graph_input()
        ):
            tensor = ir.convenience.get_const_tensor(value)
            if tensor is None or tensor.size > _SMALL:
                return None
            return _array([sympy.Integer(int(x)) for x in tensor.numpy().flat], list(tensor.shape))
        known = ctx.get_symbolic_value(value)
        if known is None or value.shape is None or len(value.shape) > 1:
            return None
        return _array([expr_of(x) for x in known], [len(known)] * len(value.shape))

    def unread(self, ctx: Context, value: ir.Value | None) -> Array | None:
        """As many unknown numbers as a shape tensor has elements."""
        if value is None or value.shape is None or len(value.shape) != 1:
            return None
        length = value.shape[0]
        if not isinstance(length, int) or length > _SMALL:
            return None
        return _array([self.fresh(ctx) for _ in range(length)], [length])

    def write(self, ctx: Context, value: ir.Value, array: Array | None) -> None:
        """Say what ``value`` holds; if None, also take back what the library thought."""
        value.const_value = None
        self.contents.pop(value, None)
        if array is None or array.size > _SMALL:
            guess = ctx.get_symbolic_value(value)
            if guess is not None:
                ctx.set_symbolic_value(value, [dim_of(self.fresh(ctx)) for _ in guess])
            return
        self.contents[value] = array
        if value.shape is None:
            value.shape = ir.Shape(array.shape)
        ctx.set_symbolic_value(value, [dim_of(x) for x in array.flat])

    def take_dims(self, shape: ir.Shape) -> list[sympy.Expr]:
        """The dims of a tensor, as expressions that are known to be sizes."""
        dims = [expr_of(x) for x in shape]
        for expr in dims:
            self._real.update(x.name for x in expr.free_symbols)
        return dims

    def resolve(self, dim: Dim) -> Dim:
        """``dim`` with every symbol replaced that the equalities determine."""
        if self._solved is None:
            self._solved = self._solve()
        if isinstance(dim, int) or dim.value is None or not self._solved:
            return dim
        expr = expr_of(dim)
        if expr.free_symbols.isdisjoint(self._solved):
            return dim
        return dim_of(expr.subs(self._solved))

    def _solve(self) -> dict[sympy.Symbol, sympy.Expr]:
        solved: dict[sympy.Symbol, sympy.Expr] = {}
        pending = self._equal
        while True:
            left = []
            for a, b in pending:
                a, b = a.subs(solved), b.subs(solved)
                found = self._isolate(a, b) or self._isolate(b, a)
                if found is None:
                    left.append((a, b))
                    continue
                symbol, expr = found
                solved = {k: v.subs(symbol, expr) for k, v in solved.items()}
                solved[symbol] = expr
            if len(left) == len(pending):
                return solved
            pending = left

    def _isolate(self, a: sympy.Expr, b: sympy.Expr) -> tuple[sympy.Symbol, sympy.Expr] | None:
        """A symbol of ours and what it is, if ``a == b`` says so: ``a`` is n * symbol."""
        number, rest = a.as_coeff_Mul()
        if not isinstance(rest, sympy.Symbol) or rest.name not in self._minted:
            return None
        expr = sympy.cancel(b / number)
        if expr.has(rest) or not expr.is_integer:
            return None
        return rest, expr


@contextlib.contextmanager
def learning(graph: ir.Graph) -> Iterator[Facts]:
    """Let the rules learn about the model with this main graph."""
    facts = Facts(graph)
    token = _facts.set(facts)
    try:
        yield facts
    finally:
        _facts.reset(token)


def register() -> None:
    """Add the rules to the registry of onnx_shape_inference; a second call does nothing.

    They do nothing either outside of :func:`learning`.
    """
    global _registered
    if _registered:
        return
    _registered = True
    for op_type in sorted({*_EVALUATORS, *_SHAPES}):
        for version in registry.version_boundaries("", op_type):
            library = registry.get("", op_type, version)
            if library is not None:
                registry.register("", op_type, version)(_rule(op_type, library))


def _rule(op_type: str, library: Rule) -> Rule:
    shape_rule, evaluator = _SHAPES.get(op_type), _EVALUATORS.get(op_type)

    def rule(ctx: Context, node: ir.Node) -> None:
        library(ctx, node)
        facts = _facts.get()
        if facts is None or not node.outputs:
            return
        if shape_rule is not None:
            shape_rule(facts, ctx, node)
        if evaluator is not None and node.outputs[0].dtype in _INTEGERS:
            arrays = [facts.read(ctx, x) for x in node.inputs if x is not None]
            known = [x for x in arrays if x is not None]
            array = None
            if len(known) == len(arrays) or op_type in ("Concat", "Shape", "Size"):
                array = evaluator(facts, ctx, node, known)
            facts.write(ctx, node.outputs[0], array)
        elif evaluator is not None:
            # The library carries integers through floats, where they may have been rounded.
            facts.write(ctx, node.outputs[0], None)

    return rule


@functools.lru_cache(maxsize=4096)
def _parsed(text: str) -> sympy.Expr:
    expr = parse_symbolic_expression(text)
    if text.count("floor(") < 2:
        return expr
    return expr.replace(lambda x: isinstance(x, sympy.floor), _unnested)


def _unnested(outer: sympy.Expr) -> sympy.Expr:
    """``floor((floor(x) + m) / n)`` as ``floor((x + m) / n)``, which is the same."""
    above, below = sympy.fraction(sympy.together(outer.args[0]))
    if not below.is_Integer:
        return outer
    for term in sympy.Add.make_args(sympy.expand(above)):
        if isinstance(term, sympy.floor):
            return sympy.floor(sympy.expand((above - term + term.args[0]) / below))
    return outer


def expr_of(dim: Dim) -> sympy.Expr:
    """A dim as an expression."""
    return sympy.Integer(dim) if isinstance(dim, int) else _parsed(str(dim))


def dim_of(expr: sympy.Expr) -> Dim:
    """An expression as a dim."""
    return int(expr) if expr.is_Integer else ir.SymbolicDim(str(expr))


def is_product_of(dim: Dim, symbols: frozenset[str]) -> bool:
    """Whether a dim is a positive number times some of ``symbols``."""
    number, rest = expr_of(dim).as_coeff_Mul()
    factors = sympy.Mul.make_args(rest)
    return bool(number > 0) and all(x == 1 or str(x) in symbols for x in factors)


def equal(a: Dim, b: Dim) -> bool:
    """Whether two dims are equal for all positive sizes of the inputs."""
    if isinstance(a, int) or isinstance(b, int):
        return a == b
    if a.value is None or b.value is None:
        return False
    return a.value == b.value or _equal_text(a.value, b.value)


@functools.lru_cache(maxsize=4096)
def _equal_text(a: str, b: str) -> bool:
    first, second = _parsed(a), _parsed(b)
    if first.free_symbols != second.free_symbols:
        return False
    return bool(first == second) or bool(sympy.simplify(first - second) == 0)


def _is_at_most(a: ir.SymbolicDim, b: ir.SymbolicDim) -> bool:
    """Whether ``a`` is ``b`` or a number of at least 2, whichever is less: 1 only if ``b`` is."""
    expr = expr_of(a)
    if not isinstance(expr, sympy.Min):
        return False
    return all(x == expr_of(b) or (x.is_Integer and x >= 2) for x in expr.args)


def _array(items: Sequence[sympy.Expr], shape: Sequence[object]) -> Array:
    array = np.empty(len(items), dtype=np.object_)
    array[:] = items
    return array.reshape([int(str(x)) for x in shape])


def _items(array: Array) -> list[sympy.Expr]:
    return list(array.flat)


def _whole(array: Array | None) -> list[int] | None:
    """The numbers in ``array``, if it holds nothing else."""
    items = None if array is None else _items(array)
    return None if items is None or not all(x.is_Integer for x in items) else [*map(int, items)]


def _bool(decided: bool) -> sympy.Expr:
    return sympy.Integer(int(decided))


# What integers hold ------------------------------------------------------------------------------


def _elementwise(
    of: Callable[[Facts, Context, sympy.Expr, sympy.Expr], sympy.Expr | None],
) -> Evaluator:
    def evaluate(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
        result = args[0]
        for other in args[1:]:
            a, b = np.broadcast_arrays(result, other)
            items = [of(facts, ctx, x, y) for x, y in zip(a.flat, b.flat, strict=True)]
            result = _array([facts.fresh(ctx) if x is None else x for x in items], a.shape)
        return result

    return evaluate


def _divide(facts: Facts, ctx: Context, a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
    # ONNX rounds to zero, floor does not: equal only for a quotient that is not negative.
    if not facts.at_least(ctx, b, 1):
        return None
    quotient = sympy.floor(a / b)
    if facts.at_least(ctx, a, 0) or facts.at_least(ctx, quotient, 0):
        return quotient
    return -sympy.floor(-a / b) if facts.at_least(ctx, -a, 0) else None


def _modulo(facts: Facts, ctx: Context, a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
    return sympy.Mod(a, b) if facts.at_least(ctx, b, 1) and facts.is_dim(ctx, a) else None


def _less(facts: Facts, ctx: Context, a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
    if facts.at_least(ctx, b - a, 1):
        return _bool(True)
    return _bool(False) if facts.at_least(ctx, a - b, 0) else None


def _less_equal(facts: Facts, ctx: Context, a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
    greater = _less(facts, ctx, b, a)
    return None if greater is None else 1 - greater


def _same(facts: Facts, ctx: Context, a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
    if a == b:
        return _bool(True)
    apart = facts.at_least(ctx, a - b, 1) or facts.at_least(ctx, b - a, 1)
    return _bool(False) if apart else None


def _extreme(sign: int) -> Evaluator:
    def pick(facts: Facts, ctx: Context, a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
        for one, other in ((a, b), (b, a)):
            if facts.at_least(ctx, sign * (one - other), 0):
                return one
        if not (facts.is_dim(ctx, a) and facts.is_dim(ctx, b)):
            return None
        return sympy.Max(a, b) if sign > 0 else sympy.Min(a, b)

    return _elementwise(pick)


def _where(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    cond, x, y = np.broadcast_arrays(*args)
    items = [
        (a if c == 1 else b) if c.is_Integer or a == b else facts.fresh(ctx)
        for c, a, b in zip(cond.flat, x.flat, y.flat, strict=True)
    ]
    return _array(items, cond.shape)


def _not(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    return _array([1 - x for x in _items(args[0])], args[0].shape)


def _cast(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    if node.outputs[0].dtype != ir.DataType.BOOL:
        return args[0]
    zero = sympy.Integer(0)
    equal_zero = [_same(facts, ctx, x, zero) for x in args[0].flat]
    items = [facts.fresh(ctx) if x is None else 1 - x for x in equal_zero]
    return _array(items, args[0].shape)


def _shape(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    data = node.inputs[0]
    if data is None or data.shape is None:
        return None
    dims = facts.take_dims(data.shape)
    end = attr_int(node, "end", len(dims))
    dims = dims[attr_int(node, "start", 0) : end]
    return _array(dims, [len(dims)])


def _size(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    data = node.inputs[0]
    if data is None or data.shape is None:
        return None
    return _array([sympy.Mul(*facts.take_dims(data.shape))], [])


def _gather(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    chosen = _whole(args[1])
    axis = attr_int(node, "axis", 0)
    if chosen is None or args[0].ndim == 0:
        return None
    if any(not -args[0].shape[axis] <= x < args[0].shape[axis] for x in chosen):
        return None
    # A take with a scalar index gives the element itself, not an array.
    taken = np.take(args[0], np.array(chosen, int), axis=axis)
    shape = (*args[0].shape[:axis], *args[1].shape, *args[0].shape[axis:][1:])
    result: Array = taken.reshape(shape)
    return result


def _concat(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    parts = []
    for value in node.inputs:
        part = facts.read(ctx, value)
        if part is None:
            part = facts.unread(ctx, value)
        if part is None:
            return None
        parts.append(part)
    joined: Array = np.concatenate(parts, axis=attr_int(node, "axis", 0))
    return joined


def _slice(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    given = [_whole(x) for x in args[1:]]
    starts, ends = given[0], given[1]
    axes = given[2] if len(given) > 2 else list(range(len(starts or ())))
    steps = given[3] if len(given) > 3 else [1] * len(starts or ())
    if starts is None or ends is None or axes is None or steps is None:
        return None
    index = [slice(None)] * args[0].ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        size = args[0].shape[axis]
        # Python takes -1 - size for "before the first"; anything lower it clamps as ONNX does.
        stop = None if step < 0 and end < -size else end
        index[axis] = slice(start, stop, step)
    return args[0][tuple(index)]


def _reshape_data(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    shape = node.outputs[0].shape
    if shape is None or not all(isinstance(x, int) for x in shape):
        return None
    dims = [x for x in shape if isinstance(x, int)]
    return args[0].reshape(dims) if math.prod(dims) == args[0].size else None


def _transpose(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    return np.transpose(args[0], attr_ints(node, "perm"))


def _identity(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    return args[0]


def _expand_data(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    shape = _whole(args[1])
    if shape is None or math.prod(shape) > _SMALL:
        return None
    return np.broadcast_to(args[0], np.broadcast_shapes(args[0].shape, tuple(shape)))


def _filled(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    shape, fill = _whole(args[0]), node.attributes.get("value")
    if shape is None or fill is None or math.prod(shape) > _SMALL:
        return None
    number = sympy.Integer(int(fill.as_tensor().numpy().reshape(-1)[0]))
    return _array([number] * math.prod(shape), shape)


def _product(facts: Facts, ctx: Context, node: ir.Node, args: list[Array]) -> Array | None:
    if args[0].ndim != 1:
        return None
    return _array([sympy.Mul(*args[0])], [1] * attr_int(node, "keepdims", 1))


_EVALUATORS: dict[str, Evaluator] = {
    "Add": _elementwise(lambda facts, ctx, a, b: a + b),
    "Sub": _elementwise(lambda facts, ctx, a, b: a - b),
    "Mul": _elementwise(lambda facts, ctx, a, b: a * b),
    "Sum": _elementwise(lambda facts, ctx, a, b: a + b),
    "Div": _elementwise(_divide),
    "Mod": lambda facts, ctx, node, args: (
        None if attr_int(node, "fmod", 0) else _elementwise(_modulo)(facts, ctx, node, args)
    ),
    "Min": _extreme(-1),
    "Max": _extreme(1),
    "Equal": _elementwise(_same),
    "Less": _elementwise(_less),
    "Greater": _elementwise(lambda facts, ctx, a, b: _less(facts, ctx, b, a)),
    "LessOrEqual": _elementwise(_less_equal),
    "GreaterOrEqual": _elementwise(lambda facts, ctx, a, b: _less_equal(facts, ctx, b, a)),
    "And": _elementwise(lambda facts, ctx, a, b: a * b),
    "Or": _elementwise(lambda facts, ctx, a, b: a + b - a * b),
    "Not": _not,
    "Neg": lambda facts, ctx, node, args: -args[0],
    "Where": _where,
    "Cast": _cast,
    "Shape": _shape,
    "Size": _size,
    "Gather": _gather,
    "Concat": _concat,
    "Slice": _slice,
    "Reshape": _reshape_data,
    "Squeeze": _reshape_data,
    "Unsqueeze": _reshape_data,
    "Transpose": _transpose,
    "Identity": _identity,
    "Expand": _expand_data,
    "ConstantOfShape": _filled,
    "ReduceProd": _product,
    # The library carries contents through these; ours do not know how, so they end there.
    "Floor": lambda facts, ctx, node, args: None,
    "Ceil": lambda facts, ctx, node, args: None,
}


# What shapes are ---------------------------------------------------------------------------------


def _set(value: ir.Value, dims: Sequence[Dim] | None) -> None:
    value.shape = None if dims is None else ir.Shape(dims)


def _broadcast(facts: Facts, ctx: Context, node: ir.Node) -> None:
    _join_shapes(facts, ctx, node.outputs[0], [x.shape for x in node.inputs if x is not None])


def _join_shapes(
    facts: Facts, ctx: Context, out: ir.Value, shapes: Sequence[ir.Shape | None]
) -> None:
    known = [list(x) for x in shapes if x is not None]
    if len(known) < len(shapes):
        return _set(out, None)
    rank = max(len(x) for x in known)
    dims: list[Dim] = [1] * rank
    for shape in known:
        padded = [1] * (rank - len(shape)) + shape
        dims = [facts.join(ctx, a, b) for a, b in zip(dims, padded, strict=True)]
    return _set(out, dims)


def _expand(facts: Facts, ctx: Context, node: ir.Node) -> None:
    data, target = node.inputs[0], facts.read(ctx, node.inputs[1])
    if target is None:
        target = facts.unread(ctx, node.inputs[1])
    if data is None or data.shape is None or target is None:
        return _set(node.outputs[0], None)
    shape = ir.Shape([dim_of(x) for x in target])
    return _join_shapes(facts, ctx, node.outputs[0], [data.shape, shape])


def _matmul(facts: Facts, ctx: Context, node: ir.Node) -> None:
    a, b = (None if x is None else x.shape for x in node.inputs[:2])
    if a is None or b is None or len(a) < 2 or len(b) < 2:
        return
    facts.must_equal(node, expr_of(a[-1]), expr_of(b[-2]))
    batch = ir.Value()
    _join_shapes(facts, ctx, batch, [ir.Shape(list(a)[:-2]), ir.Shape(list(b)[:-2])])
    if batch.shape is not None:
        _set(node.outputs[0], [*batch.shape, a[-2], b[-1]])


def _gemm(facts: Facts, ctx: Context, node: ir.Node) -> None:
    a, b = (None if x is None else x.shape for x in node.inputs[:2])
    if a is not None and b is not None and len(a) == len(b) == 2:
        inner = a[0 if attr_int(node, "transA", 0) else 1]
        other = b[1 if attr_int(node, "transB", 0) else 0]
        facts.must_equal(node, expr_of(inner), expr_of(other))


def _conv(facts: Facts, ctx: Context, node: ir.Node) -> None:
    # A window that is longer than what it slides over is an error, not an empty result.
    shape = node.outputs[0].shape
    for dim in list(shape)[2:] if shape is not None else []:
        facts.must_be_positive(node, expr_of(dim))


def _reshape(facts: Facts, ctx: Context, node: ir.Node) -> None:
    out, data = node.outputs[0], node.inputs[0]
    if data is None or len(node.inputs) < 2 or node.inputs[1] is None:
        return None
    target = facts.read(ctx, node.inputs[1])
    if target is None:
        target = facts.unread(ctx, node.inputs[1])
    if target is None:
        return _set(out, None)
    dims = None if data.shape is None else [expr_of(x) for x in data.shape]
    zero_copies = not attr_int(node, "allowzero", 0)
    result: list[sympy.Expr | None] = []
    for i, entry in enumerate(target):
        copied = dims[i] if dims is not None and i < len(dims) else None
        if entry == 0 and zero_copies:
            result.append(facts.fresh(ctx) if copied is None else copied)
        elif copied is not None and equal(dim_of(entry), dim_of(copied)):
            result.append(copied)
        else:  # an entry that may turn out to be 0 or -1 says nothing of the dim
            known = entry == 0 or facts.at_least(ctx, entry, 1)
            result.append(entry if known else None)
    unknown = [i for i, x in enumerate(result) if x is None]
    others = sympy.Mul(*(x for x in result if x is not None))
    total = None if dims is None else sympy.Mul(*dims)
    for i in unknown:
        result[i] = (
            None
            if len(unknown) > 1 or total is None
            else _quotient(facts, node, total, others, inferred=target[i] == -1)
        )
    final = [facts.fresh(ctx) if x is None else x for x in result]
    _set(out, [dim_of(x) for x in final])
    if total is None:
        return None
    if len(unknown) == 1 and target[unknown[0]] == -1:
        # The rest is not 0, or -1 would be ambiguous: what is common can be divided out.
        facts.must_be_positive(node, others)
        last = final[unknown[0]]
        above, below = sympy.fraction(sympy.cancel(total / others))
        facts.must_equal(node, above, below * last)
    else:
        facts.must_equal(node, total, sympy.Mul(*final))
    return None


def _quotient(
    facts: Facts, node: ir.Node, total: sympy.Expr, others: sympy.Expr, *, inferred: bool
) -> sympy.Expr | None:
    """The one dim that is left, if it is an expression."""
    if others == 0 or not (inferred or others.is_Integer):
        return None
    above, below = sympy.fraction(sympy.cancel(total / others))
    if not below.is_Integer:
        return None
    return sympy.floor(above / below)


def _slice_shape(facts: Facts, ctx: Context, node: ir.Node) -> None:
    data = node.inputs[0]
    if data is None or data.shape is None or len(node.inputs) < 3:
        return None
    given = [facts.read(ctx, x) if x is not None else None for x in node.inputs[1:]]
    starts, ends = given[0], given[1]
    result = list(data.shape)
    axes = _whole(given[2]) if len(given) > 2 and node.inputs[3] is not None else None
    if axes is None:
        if (len(given) > 2 and node.inputs[3] is not None) or (starts is None and ends is None):
            return _set(node.outputs[0], [dim_of(facts.fresh(ctx)) for _ in result])
        count = (starts if starts is not None else ends).size  # type: ignore[union-attr]
        axes = list(range(count))
    no_steps = len(given) < 4 or node.inputs[4] is None
    steps = [1] * len(axes) if no_steps else _whole(given[3])
    for i, axis in enumerate(axes):
        length = None
        if starts is not None and ends is not None and steps is not None:
            size = expr_of(data.shape[axis])
            length = _sliced(facts, ctx, size, starts.flat[i], ends.flat[i], steps[i])
        result[axis] = dim_of(facts.fresh(ctx) if length is None else length)
    return _set(node.outputs[0], result)


def _sliced(
    facts: Facts, ctx: Context, size: sympy.Expr, start: sympy.Expr, end: sympy.Expr, step: int
) -> sympy.Expr | None:
    """How many elements a slice has; None if it is not known where it begins or ends."""
    far = 2**31 - 1
    if step < 0:
        whole = step == -1 and (start == -1 or start >= far) and end <= -far
        if size.is_Integer and start.is_Integer and end.is_Integer:
            return sympy.Integer(len(range(*slice(int(start), int(end), step).indices(int(size)))))
        return size if whole else None
    if size.is_Integer and start.is_Integer and end.is_Integer:
        return sympy.Integer(len(range(*slice(int(start), int(end), step).indices(int(size)))))
    first = _clamped(facts, ctx, start, size)
    last = size if end.is_Integer and end >= far else _clamped(facts, ctx, end, size)
    if first is None or last is None:
        return None
    length = sympy.floor((last - first + step - 1) / step)
    return length if facts.at_least(ctx, length, 0) else sympy.Max(0, length)


def _clamped(facts: Facts, ctx: Context, bound: sympy.Expr, size: sympy.Expr) -> sympy.Expr | None:
    if facts.at_least(ctx, -bound, 1):
        bound = bound + size
        return bound if facts.at_least(ctx, bound, 0) else sympy.Max(0, bound)
    if not facts.at_least(ctx, bound, 0):
        return None
    return bound if facts.at_least(ctx, size - bound, 0) else sympy.Min(bound, size)


def _pad(facts: Facts, ctx: Context, node: ir.Node) -> None:
    data = node.inputs[0]
    pads = facts.read(ctx, node.inputs[1]) if len(node.inputs) > 1 else None
    if data is None or data.shape is None or pads is None:
        return
    axes = list(range(len(data.shape)))
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        given = _whole(facts.read(ctx, node.inputs[3]))
        if given is None:
            return
        axes = given
    result = list(data.shape)
    for i, axis in enumerate(axes):
        result[axis] = dim_of(expr_of(data.shape[axis]) + pads[i] + pads[i + len(axes)])
    _set(node.outputs[0], result)


def _range(facts: Facts, ctx: Context, node: ir.Node) -> None:
    args = [facts.read(ctx, x) for x in node.inputs]
    known = [_items(x)[0] for x in args if x is not None and x.size == 1]
    length = None
    if len(known) == 3 and known[2].is_Integer and known[2] != 0:
        start, limit, delta = known
        length = sympy.floor((limit - start + delta - (1 if delta > 0 else -1)) / delta)
        if not facts.at_least(ctx, length, 0):
            length = sympy.Max(0, length) if facts.is_dim(ctx, length) else None
    _set(node.outputs[0], [dim_of(facts.fresh(ctx) if length is None else length)])


def _filled_shape(facts: Facts, ctx: Context, node: ir.Node) -> None:
    dims = facts.read(ctx, node.inputs[0])
    _set(node.outputs[0], None if dims is None else [dim_of(x) for x in dims])


def _if(facts: Facts, ctx: Context, node: ir.Node) -> None:
    # A branch without a shape may give any; the library takes the other's.
    bodies = [x.as_graph() for x in node.attributes.values()]
    for i, out in enumerate(node.outputs):
        if any(body.outputs[i].shape is None for body in bodies):
            _set(out, None)


def _loop(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """What is carried has the shape it came with, unless the body changes it."""
    body = node.attributes["body"].as_graph()
    if node.op_type == "Loop":
        before, after = body.inputs[2:], body.outputs[1:]
    else:
        count = len(node.inputs) - attr_int(node, "num_scan_inputs", 0)
        before, after = body.inputs[:count], body.outputs[:count]
    if all(a.shape is not None and a.shape == b.shape for a, b in zip(before, after, strict=False)):
        if node.op_type == "Loop":  # it may end before its trip count is reached
            for out in node.outputs[len(before) :]:
                if out.shape is not None:
                    _set(out, [dim_of(facts.fresh(ctx)), *list(out.shape)[1:]])
        return
    for graph in (body, *body.subgraphs()):
        for value in (*graph.inputs, *(x for inner in graph for x in inner.outputs)):
            _set(value, None)
            facts.contents.pop(value, None)
            value.metadata_props.clear()
    for out in node.outputs:
        _set(out, None)


_BROADCASTS = (
    *("Add", "Sub", "Mul", "Div", "Mod", "Pow", "Min", "Max", "Sum", "Mean", "Where"),
    *("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "And", "Or", "Xor"),
    *("BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor"),
)
_SHAPES: dict[str, ShapeRule] = {
    **dict.fromkeys(_BROADCASTS, _broadcast),
    "Expand": _expand,
    "MatMul": _matmul,
    "MatMulInteger": _matmul,
    "Gemm": _gemm,
    "Conv": _conv,
    "Reshape": _reshape,
    "Slice": _slice_shape,
    "Pad": _pad,
    "Range": _range,
    "ConstantOfShape": _filled_shape,
    "If": _if,
    "Loop": _loop,
    "Scan": _loop,
}
