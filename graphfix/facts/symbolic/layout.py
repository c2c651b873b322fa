"""Shape rules of operators that join, rearrange, cut and fill up tensors."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import sympy
from onnx_shape_inference import ShapeInferenceContext as Context

from graphfix.facts.symbolic.expressions import (
    Array,
    Dim,
    dim_of,
    equal_dims,
    expr_of,
    integers_in,
    items_of,
    normal_form,
)
from graphfix.facts.symbolic.inferred import Facts
from graphfix.facts.symbolic.slice_ends import symbolic_slice_length
from graphfix.graph.nodes import attr_int, attr_ints, input_at
from graphfix.ops.slicing import sliced_length


def set_shape(value: ir.Value, dims: Sequence[Dim] | None) -> None:
    """Set the dims of a value; None if they are not known."""
    value.shape = None if dims is None else ir.Shape(dims)


def infer_broadcast(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """Infer the shape that all inputs broadcast to."""
    set_broadcast_shape(
        facts, ctx, node.outputs[0], [x.shape for x in node.inputs if x is not None]
    )


def set_broadcast_shape(
    facts: Facts, ctx: Context, out: ir.Value, shapes: Sequence[ir.Shape | None]
) -> None:
    """Set the shape of a value to what others broadcast to."""
    all_dims = [list(x) for x in shapes if x is not None]
    if len(all_dims) < len(shapes):
        return set_shape(out, None)
    rank = max(len(x) for x in all_dims)
    dims: list[Dim] = [1] * rank
    for shape in all_dims:
        padded = [1] * (rank - len(shape)) + shape
        if (node := out.producer()) is not None:
            for a, b in zip(dims, padded, strict=True):
                facts.must_fill_broadcast(node, a, b)
        dims = [facts.broadcast_dim(ctx, a, b) for a, b in zip(dims, padded, strict=True)]
    return set_shape(out, dims)


def infer_expand(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """Infer the shape that the data and the target broadcast to."""
    data, target = node.inputs[0], facts.elements_or_unknowns(ctx, node.inputs[1])
    if data is None or data.shape is None or target is None:
        return set_shape(node.outputs[0], None)
    shape = ir.Shape([dim_of(x) for x in target])
    return set_broadcast_shape(facts, ctx, node.outputs[0], [data.shape, shape])


def infer_reshape(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """Infer the entries of the target, and the one dim that they leave."""
    out, data = node.outputs[0], node.inputs[0]
    if data is None or len(node.inputs) < 2 or node.inputs[1] is None:
        return None
    target = facts.elements_or_unknowns(ctx, node.inputs[1])
    if target is None:
        return set_shape(out, None)
    dims = None if data.shape is None else [expr_of(x) for x in data.shape]
    zero_copies = not attr_int(node, "allowzero", 0)
    result: list[sympy.Expr | None] = []
    for i, entry in enumerate(target):
        copied = dims[i] if dims is not None and i < len(dims) else None
        if dims is not None and i >= len(dims) and zero_copies and facts.is_at_least(ctx, entry, 0):
            facts.must_be_positive(node, entry)  # there is no dim that 0 would copy
        if entry == 0 and zero_copies:
            result.append(facts.new_unknown(ctx) if copied is None else copied)
        elif copied is not None and equal_dims(dim_of(entry), dim_of(copied)):
            result.append(copied)
        else:  # an entry that may turn out to be 0 or -1 says nothing of the dim
            result.append(entry if entry == 0 or facts.is_at_least(ctx, entry, 1) else None)
    unknown = [i for i, x in enumerate(result) if x is None]
    known_product = sympy.Mul(*(x for x in result if x is not None))
    total = None if dims is None else sympy.Mul(*dims)
    if len(unknown) == 1 and total is not None:
        last = unknown[0]
        result[last] = _remaining_dim(total, known_product, inferred=target[last] == -1)
    final = [facts.new_unknown(ctx) if x is None else x for x in result]
    set_shape(out, [dim_of(x) for x in final])
    if total is None:
        return None
    if len(unknown) == 1 and target[unknown[0]] == -1:
        # The rest is not 0, or -1 would be ambiguous: what is common can be divided out.
        facts.must_be_positive(node, known_product)
        above, below = sympy.fraction(sympy.cancel(total / known_product))
        facts.must_equal(node, above, below * final[unknown[0]])
    else:
        facts.must_equal(node, total, sympy.Mul(*final))
    return None


def _remaining_dim(
    total: sympy.Expr, known_product: sympy.Expr, *, inferred: bool
) -> sympy.Expr | None:
    """Return the one dim that is left, if it is an expression."""
    if known_product == 0 or not (inferred or known_product.is_Integer):
        return None
    numerator, denominator = sympy.fraction(
        sympy.cancel(normal_form(total) / normal_form(known_product))
    )
    return sympy.floor(numerator / denominator) if denominator.is_Integer else None


def infer_slice(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """Infer what remains of each axis that is cut."""
    data = node.inputs[0]
    if data is None or data.shape is None:
        return None
    limits = slice_limits(facts, ctx, node)
    starts, ends = limits[0], limits[1]
    result = list(data.shape)
    axes = integers_in(limits[2]) if len(limits) > 2 else None
    if axes is None:
        if input_at(node, 3) is not None or (starts is None and ends is None):
            return set_shape(node.outputs[0], [dim_of(facts.new_unknown(ctx)) for _ in result])
        count = (starts if starts is not None else ends).size  # type: ignore[union-attr]
        axes = list(range(count))
    steps = [1] * len(axes) if input_at(node, 4) is None else integers_in(limits[3])
    if steps is not None and 0 in steps:  # which no run survives
        steps = None
    for i, axis in enumerate(axes):
        length = None
        if starts is not None and ends is not None and steps is not None:
            size = expr_of(data.shape[axis])
            if facts.usual:  # then it has a last element, and the last one is one
                facts.must_be_positive(node, size)
                for bound in (items_of(x)[i] for x in (starts, ends)):
                    if size.is_Integer and not bound.is_Integer and facts.is_of_sizes(ctx, bound):
                        facts.must_be_positive(node, size - bound + 1)  # no table ends before
            length = _slice_length_or_none(facts, ctx, size, starts.flat[i], ends.flat[i], steps[i])
        result[axis] = dim_of(facts.new_unknown(ctx) if length is None else length)
    return set_shape(node.outputs[0], result)


def slice_limits(facts: Facts, ctx: Context, node: ir.Node) -> list[Array | None]:
    """Return starts, ends, axes and steps of a Slice, from attributes before opset 10."""
    if len(node.inputs) > 2:
        return [facts.read_contents(ctx, x) if x is not None else None for x in node.inputs[1:]]
    attributes = (attr_ints(node, name) for name in ("starts", "ends", "axes"))
    arrays: list[Array | None] = [
        None if x is None else np.array([sympy.Integer(n) for n in x], dtype=object)
        for x in attributes
    ]
    return arrays if arrays[2] is not None else arrays[:2]


def _slice_length_or_none(
    facts: Facts, ctx: Context, size: sympy.Expr, start: sympy.Expr, end: sympy.Expr, step: int
) -> sympy.Expr | None:
    """Return how many elements a slice has; None if it is not known where it begins or ends."""
    far = 2**31 - 1
    if size.is_Integer and start.is_Integer and end.is_Integer:
        return sympy.Integer(sliced_length(int(start), int(end), step, int(size)))
    if step < 0:
        return size if step == -1 and (start == -1 or start >= far) and end <= -far else None
    # One that begins behind the end has nothing, wherever that is.
    first = start if facts.is_at_least(ctx, start, 0) else _clamp_bound(facts, ctx, start, size)
    last = size if end.is_Integer and end >= far else _clamp_bound(facts, ctx, end, size)
    for bound, clamped in ((start, first), (end, last)):
        if clamped is not None and not _holds_where_empty(facts, bound, size, clamped):
            return None
    if first is None:
        return None
    if last is None:
        is_computable = (
            first is start and facts.is_of_sizes(ctx, end) and facts.is_of_sizes(ctx, size)
        )
        return symbolic_slice_length(size, start, end, step) if is_computable else None
    length = sympy.floor((last - first + step - 1) / step)
    return length if facts.is_at_least(ctx, length, 0) else sympy.Max(0, length)


def _clamp_bound(
    facts: Facts, ctx: Context, bound: sympy.Expr, size: sympy.Expr
) -> sympy.Expr | None:
    if facts.usual and size.is_Integer and not bound.is_Integer and facts.is_of_sizes(ctx, bound):
        return bound
    if facts.is_at_least(ctx, -bound, 1):
        bound = bound + size
        return bound if facts.is_at_least(ctx, bound, 0) else sympy.Max(0, bound)
    if not facts.is_at_least(ctx, bound, 0):
        return None
    return bound if facts.is_at_least(ctx, size - bound, 0) else sympy.Min(bound, size)


def _holds_where_empty(
    facts: Facts, bound: sympy.Expr, size: sympy.Expr, clamped: sympy.Expr
) -> bool:
    """Return whether a bound of sizes, cut to a fixed axis, is the same where one of them is 0.

    A size is taken to be at least 1, so that ``T + P`` is nowhere below 2; of a cache that is empty
    at first it is.
    """
    if not size.is_Integer or facts.usual:
        return True
    symbols = bound.free_symbols
    for empty in (x for x in symbols if x.name not in facts.never_empty):
        at = {x: int(x is not empty) for x in symbols}
        end = bound.subs(at)
        if min(end if end >= 0 else max(0, end + size), size) != clamped.subs(at):
            return False
    return True


def infer_pad(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """Infer each axis with what is put before and behind it."""
    data = node.inputs[0]
    pads, axes_input = facts.read_contents(ctx, input_at(node, 1)), input_at(node, 3)
    if data is None or data.shape is None or pads is None:
        return
    axes = (
        range(len(data.shape))
        if axes_input is None
        else integers_in(facts.read_contents(ctx, axes_input))
    )
    if axes is None:
        return
    result = list(data.shape)
    for i, axis in enumerate(axes):
        result[axis] = dim_of(expr_of(data.shape[axis]) + pads[i] + pads[i + len(axes)])
    set_shape(node.outputs[0], result)


def infer_squeeze(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """Remove the dims of known axes; the library takes unknown axes for none.

    Without axes every dim goes that is 1 in a run: how many those are is known of numbers only.
    """
    data = node.inputs[0]
    if data is None or data.shape is None or "axes" in node.attributes:
        return None
    axes = input_at(node, 1)
    dims = list(data.shape)
    if axes is None:
        if all(isinstance(x, int) for x in dims):
            return None
        return set_shape(node.outputs[0], None)
    axis_numbers = integers_in(facts.read_contents(ctx, axes))
    if axis_numbers is None or not all(-len(dims) <= x < len(dims) for x in axis_numbers):
        return set_shape(node.outputs[0], None)
    squeezed = {x % len(dims) for x in axis_numbers}
    return set_shape(node.outputs[0], [x for i, x in enumerate(dims) if i not in squeezed])


def infer_range(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """Infer as many steps as there are before the limit."""
    args = [facts.read_contents(ctx, x) for x in node.inputs]
    scalars = [items_of(x)[0] for x in args if x is not None and x.size == 1]
    length = None
    if len(scalars) == 3 and scalars[2].is_Integer and scalars[2] != 0:
        start, limit, delta = scalars
        length = sympy.floor((limit - start + delta - (1 if delta > 0 else -1)) / delta)
        if not facts.is_at_least(ctx, length, 0):
            length = sympy.Max(0, length) if facts.is_of_sizes(ctx, length) else None
    set_shape(node.outputs[0], [dim_of(facts.new_unknown(ctx) if length is None else length)])


def infer_constant_of_shape(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """Infer the shape that the input holds."""
    dims = facts.elements_or_unknowns(ctx, node.inputs[0])
    set_shape(node.outputs[0], None if dims is None else [dim_of(x) for x in dims])


def infer_unique(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """Forget the shape of a Unique along an axis; the library always says a list."""
    if "axis" in node.attributes:
        set_shape(node.outputs[0], None)
