"""What shapes are, where onnx_shape_inference is too bold or does not know.

Too bold: it lets two different symbols broadcast to the first, reads ``x[:, :512]`` as 512 long,
and takes the shape of one branch of an If for that of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir
import sympy
from onnx_shape_inference import SYM_DATA_KEY, registry

from graphfix.model.symbolic.contents import EVALUATORS
from graphfix.model.symbolic.exprs import (
    Dim,
    dim_of,
    equal,
    expr_of,
    items_of,
    settled,
    whole_numbers,
)
from graphfix.model.symbolic.facts import INTEGERS, current
from graphfix.model.values import attr_int, graphs_of, tensor_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onnx_shape_inference import ShapeInferenceContext as Context

    from graphfix.model.symbolic.facts import Facts

    Rule = Callable[[Context, ir.Node], None]
    ShapeRule = Callable[[Facts, Context, ir.Node], None]

_registered = False


def register() -> None:
    """Add the rules to the registry of onnx_shape_inference; a second call does nothing.

    They do nothing either outside of :func:`learning`.
    """
    global _registered
    if _registered:
        return
    _registered = True
    for op_type in sorted({*EVALUATORS, *_SHAPES}):
        for version in registry.version_boundaries("", op_type):
            library = registry.get("", op_type, version)
            if library is not None:
                registry.register("", op_type, version)(_rule(op_type, library))
    for version in registry.version_boundaries("", "Constant"):
        library = registry.get("", "Constant", version)
        if library is not None:
            registry.register("", "Constant", version)(_constant(library))


def _rule(op_type: str, library: Rule) -> Rule:
    shape_rule, evaluator = _SHAPES.get(op_type), EVALUATORS.get(op_type)

    def rule(ctx: Context, node: ir.Node) -> None:
        library(ctx, node)
        facts = current()
        if facts is None or not node.outputs:
            return
        if shape_rule is not None:
            shape_rule(facts, ctx, node)
        if evaluator is not None and node.outputs[0].dtype in INTEGERS:
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


def _constant(library: Rule) -> Rule:
    """The library's rule, without its check of a runtime protocol (see ``tensor_in``)."""

    def rule(ctx: Context, node: ir.Node) -> None:
        attribute = node.attributes.get("value")
        if "sparse_value" in node.attributes:  # which onnx-ir has no place for
            return None
        if attribute is None or attribute.is_ref() or attribute.type != ir.AttributeType.TENSOR:
            return library(ctx, node)
        tensor = tensor_in(attribute)
        ctx.set_shape_and_dtype(node.outputs[0], ir.Shape(tensor.shape.numpy()), tensor.dtype)
        return None

    return rule


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


def _pooled(facts: Facts, ctx: Context, node: ir.Node) -> None:
    # The library writes ceiling() for ceil_mode and cannot read it again.
    shape = node.outputs[0].shape
    if shape is not None:
        dims = [x if isinstance(x, int) or x.value is None else dim_of(expr_of(x)) for x in shape]
        _set(node.outputs[0], dims)


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
    above, below = sympy.fraction(sympy.cancel(settled(total) / settled(others)))
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
    axes = whole_numbers(given[2]) if len(given) > 2 and node.inputs[3] is not None else None
    if axes is None:
        if (len(given) > 2 and node.inputs[3] is not None) or (starts is None and ends is None):
            return _set(node.outputs[0], [dim_of(facts.fresh(ctx)) for _ in result])
        count = (starts if starts is not None else ends).size  # type: ignore[union-attr]
        axes = list(range(count))
    no_steps = len(given) < 4 or node.inputs[4] is None
    steps = [1] * len(axes) if no_steps else whole_numbers(given[3])
    for i, axis in enumerate(axes):
        length = None
        if starts is not None and ends is not None and steps is not None:
            size = expr_of(data.shape[axis])
            if facts.usual:  # then it has a last element, and the last one is one
                facts.must_be_positive(node, size)
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
    if facts.usual and size.is_Integer and not bound.is_Integer and facts.is_dim(ctx, bound):
        return bound
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
        given = whole_numbers(facts.read(ctx, node.inputs[3]))
        if given is None:
            return
        axes = given
    result = list(data.shape)
    for i, axis in enumerate(axes):
        result[axis] = dim_of(expr_of(data.shape[axis]) + pads[i] + pads[i + len(axes)])
    _set(node.outputs[0], result)


def _range(facts: Facts, ctx: Context, node: ir.Node) -> None:
    args = [facts.read(ctx, x) for x in node.inputs]
    known = [items_of(x)[0] for x in args if x is not None and x.size == 1]
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
    for graph in graphs_of(body):
        for value in (*graph.inputs, *(x for inner in graph for x in inner.outputs)):
            _set(value, None)
            facts.contents.pop(value, None)
            value.metadata_props.pop(SYM_DATA_KEY, None)
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
    "AveragePool": _pooled,
    "MaxPool": _pooled,
    "Reshape": _reshape,
    "Slice": _slice_shape,
    "Pad": _pad,
    "Range": _range,
    "ConstantOfShape": _filled_shape,
    "If": _if,
    "Loop": _loop,
    "Scan": _loop,
}
