"""Shapes that are joined, dealt out again, cut and filled up."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import sympy
from onnx_shape_inference import ShapeInferenceContext as Context

from graphfix.facts.symbolic.expressions import (
    Array,
    Dim,
    dim_of,
    equal,
    expr_of,
    items_of,
    settled,
    whole_numbers,
)
from graphfix.facts.symbolic.inferred import Facts
from graphfix.facts.symbolic.slice_ends import length_to
from graphfix.graph.nodes import attr_int, attr_ints, input_at
from graphfix.ops.slicing import length_in


def set_shape(value: ir.Value, dims: Sequence[Dim] | None) -> None:
    """Say what shape a value has; None if that is not known."""
    value.shape = None if dims is None else ir.Shape(dims)


def broadcast(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """All inputs side by side."""
    join_shapes(facts, ctx, node.outputs[0], [x.shape for x in node.inputs if x is not None])


def join_shapes(
    facts: Facts, ctx: Context, out: ir.Value, shapes: Sequence[ir.Shape | None]
) -> None:
    """Say that a value has the shape that others broadcast to."""
    known = [list(x) for x in shapes if x is not None]
    if len(known) < len(shapes):
        return set_shape(out, None)
    rank = max(len(x) for x in known)
    dims: list[Dim] = [1] * rank
    for shape in known:
        padded = [1] * (rank - len(shape)) + shape
        if (node := out.producer()) is not None:
            for a, b in zip(dims, padded, strict=True):
                facts.must_reach(node, a, b)
        dims = [facts.join(ctx, a, b) for a, b in zip(dims, padded, strict=True)]
    return set_shape(out, dims)


def expand(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """The data and what it is expanded to, side by side."""
    data, target = node.inputs[0], facts.elements(ctx, node.inputs[1])
    if data is None or data.shape is None or target is None:
        return set_shape(node.outputs[0], None)
    shape = ir.Shape([dim_of(x) for x in target])
    return join_shapes(facts, ctx, node.outputs[0], [data.shape, shape])


def reshape(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """Entries of the target, and the one dim that they leave."""
    out, data = node.outputs[0], node.inputs[0]
    if data is None or len(node.inputs) < 2 or node.inputs[1] is None:
        return None
    target = facts.elements(ctx, node.inputs[1])
    if target is None:
        return set_shape(out, None)
    dims = None if data.shape is None else [expr_of(x) for x in data.shape]
    zero_copies = not attr_int(node, "allowzero", 0)
    result: list[sympy.Expr | None] = []
    for i, entry in enumerate(target):
        copied = dims[i] if dims is not None and i < len(dims) else None
        if dims is not None and i >= len(dims) and zero_copies and facts.at_least(ctx, entry, 0):
            facts.must_be_positive(node, entry)  # there is no dim that 0 would copy
        if entry == 0 and zero_copies:
            result.append(facts.fresh(ctx) if copied is None else copied)
        elif copied is not None and equal(dim_of(entry), dim_of(copied)):
            result.append(copied)
        else:  # an entry that may turn out to be 0 or -1 says nothing of the dim
            result.append(entry if entry == 0 or facts.at_least(ctx, entry, 1) else None)
    unknown = [i for i, x in enumerate(result) if x is None]
    others = sympy.Mul(*(x for x in result if x is not None))
    total = None if dims is None else sympy.Mul(*dims)
    if len(unknown) == 1 and total is not None:
        last = unknown[0]
        result[last] = _quotient(total, others, inferred=target[last] == -1)
    final = [facts.fresh(ctx) if x is None else x for x in result]
    set_shape(out, [dim_of(x) for x in final])
    if total is None:
        return None
    if len(unknown) == 1 and target[unknown[0]] == -1:
        # The rest is not 0, or -1 would be ambiguous: what is common can be divided out.
        facts.must_be_positive(node, others)
        above, below = sympy.fraction(sympy.cancel(total / others))
        facts.must_equal(node, above, below * final[unknown[0]])
    else:
        facts.must_equal(node, total, sympy.Mul(*final))
    return None


def _quotient(total: sympy.Expr, others: sympy.Expr, *, inferred: bool) -> sympy.Expr | None:
    """The one dim that is left, if it is an expression."""
    if others == 0 or not (inferred or others.is_Integer):
        return None
    above, below = sympy.fraction(sympy.cancel(settled(total) / settled(others)))
    return sympy.floor(above / below) if below.is_Integer else None


def slice_(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """What is left of each axis that is cut."""
    data = node.inputs[0]
    if data is None or data.shape is None:
        return None
    given = limits_of(facts, ctx, node)
    starts, ends = given[0], given[1]
    result = list(data.shape)
    axes = whole_numbers(given[2]) if len(given) > 2 else None
    if axes is None:
        if input_at(node, 3) is not None or (starts is None and ends is None):
            return set_shape(node.outputs[0], [dim_of(facts.fresh(ctx)) for _ in result])
        count = (starts if starts is not None else ends).size  # type: ignore[union-attr]
        axes = list(range(count))
    steps = [1] * len(axes) if input_at(node, 4) is None else whole_numbers(given[3])
    if steps is not None and 0 in steps:  # which no run survives
        steps = None
    for i, axis in enumerate(axes):
        length = None
        if starts is not None and ends is not None and steps is not None:
            size = expr_of(data.shape[axis])
            if facts.usual:  # then it has a last element, and the last one is one
                facts.must_be_positive(node, size)
                for bound in (items_of(x)[i] for x in (starts, ends)):
                    if size.is_Integer and not bound.is_Integer and facts.is_dim(ctx, bound):
                        facts.must_be_positive(node, size - bound + 1)  # no table ends before
            length = _sliced(facts, ctx, size, starts.flat[i], ends.flat[i], steps[i])
        result[axis] = dim_of(facts.fresh(ctx) if length is None else length)
    return set_shape(node.outputs[0], result)


def limits_of(facts: Facts, ctx: Context, node: ir.Node) -> list[Array | None]:
    """Where a Slice begins and ends, on which axes, by which steps: attributes before opset 10."""
    if len(node.inputs) > 2:
        return [facts.read(ctx, x) if x is not None else None for x in node.inputs[1:]]
    given = (attr_ints(node, name) for name in ("starts", "ends", "axes"))
    found: list[Array | None] = [
        None if x is None else np.array([sympy.Integer(n) for n in x], dtype=object) for x in given
    ]
    return found if found[2] is not None else found[:2]


def _sliced(
    facts: Facts, ctx: Context, size: sympy.Expr, start: sympy.Expr, end: sympy.Expr, step: int
) -> sympy.Expr | None:
    """How many elements a slice has; None if it is not known where it begins or ends."""
    far = 2**31 - 1
    if size.is_Integer and start.is_Integer and end.is_Integer:
        return sympy.Integer(length_in(int(start), int(end), step, int(size)))
    if step < 0:
        return size if step == -1 and (start == -1 or start >= far) and end <= -far else None
    # One that begins behind the end has nothing, wherever that is.
    first = start if facts.at_least(ctx, start, 0) else _clamped(facts, ctx, start, size)
    last = size if end.is_Integer and end >= far else _clamped(facts, ctx, end, size)
    for bound, found in ((start, first), (end, last)):
        if found is not None and not _holds_where_empty(facts, bound, size, found):
            return None
    if first is None:
        return None
    if last is None:
        known = first is start and facts.is_dim(ctx, end) and facts.is_dim(ctx, size)
        return length_to(size, start, end, step) if known else None
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


def _holds_where_empty(
    facts: Facts, bound: sympy.Expr, size: sympy.Expr, found: sympy.Expr
) -> bool:
    """Whether a bound of sizes, cut to a fixed axis, is the same where one of them is 0.

    A size is taken to be at least 1, so that ``T + P`` is nowhere below 2; of a cache that is empty
    at first it is.
    """
    if not size.is_Integer or facts.usual:
        return True
    symbols = bound.free_symbols
    for empty in (x for x in symbols if x.name not in facts.never_empty):
        at = {x: int(x is not empty) for x in symbols}
        end = bound.subs(at)
        if min(end if end >= 0 else max(0, end + size), size) != found.subs(at):
            return False
    return True


def pad(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """Each axis with what is put before and behind it."""
    data = node.inputs[0]
    pads, given = facts.read(ctx, input_at(node, 1)), input_at(node, 3)
    if data is None or data.shape is None or pads is None:
        return
    axes = range(len(data.shape)) if given is None else whole_numbers(facts.read(ctx, given))
    if axes is None:
        return
    result = list(data.shape)
    for i, axis in enumerate(axes):
        result[axis] = dim_of(expr_of(data.shape[axis]) + pads[i] + pads[i + len(axes)])
    set_shape(node.outputs[0], result)


def squeeze(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """The dims that are named go; the library takes axes that it does not know for none.

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
    read = whole_numbers(facts.read(ctx, axes))
    if read is None or not all(-len(dims) <= x < len(dims) for x in read):
        return set_shape(node.outputs[0], None)
    gone = {x % len(dims) for x in read}
    return set_shape(node.outputs[0], [x for i, x in enumerate(dims) if i not in gone])


def range_(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """As many steps as there are before the limit."""
    args = [facts.read(ctx, x) for x in node.inputs]
    known = [items_of(x)[0] for x in args if x is not None and x.size == 1]
    length = None
    if len(known) == 3 and known[2].is_Integer and known[2] != 0:
        start, limit, delta = known
        length = sympy.floor((limit - start + delta - (1 if delta > 0 else -1)) / delta)
        if not facts.at_least(ctx, length, 0):
            length = sympy.Max(0, length) if facts.is_dim(ctx, length) else None
    set_shape(node.outputs[0], [dim_of(facts.fresh(ctx) if length is None else length)])


def filled(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """The shape is what the input holds."""
    dims = facts.elements(ctx, node.inputs[0])
    set_shape(node.outputs[0], None if dims is None else [dim_of(x) for x in dims])


def unique(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """Of an axis the slices that differ; the library always says a list."""
    if "axis" in node.attributes:
        set_shape(node.outputs[0], None)
