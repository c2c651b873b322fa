"""Shape rules of operators that join, rearrange, cut and fill up tensors."""

from collections.abc import Sequence
from functools import partial

import onnx_ir as ir
import sympy
from onnx_shape_inference import ShapeInferenceContext as Context

from graphfix.facts.symbolic.expressions import (
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
from graphfix.graph.nodes import attr_int, input_at
from graphfix.ops.axes import squeezed_axes
from graphfix.ops.operands import normalize_axes
from graphfix.ops.pads import pads_by_axis
from graphfix.ops.reshapes import copies_zeros
from graphfix.ops.slices import OPEN_END, Cut, cut_length, is_known, read_cuts
from graphfix.ops.splits import read_sequence_part, sequence_data


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
    """Infer the dims that the target gives, and the one that is left over."""
    out, data = node.outputs[0], node.inputs[0]
    if data is None or input_at(node, 1) is None:
        return None
    target = facts.elements_or_unknowns(ctx, node.inputs[1])
    if target is None:
        return set_shape(out, None)
    dims = None if data.shape is None else [expr_of(x) for x in data.shape]
    result = _target_dims(facts, ctx, node, items_of(target), dims)
    unknown_axes = [i for i, x in enumerate(result) if x is None]
    inferred_axis = unknown_axes[0] if [target[i] for i in unknown_axes] == [-1] else None
    if dims is not None and len(unknown_axes) == 1:
        is_inferred = inferred_axis is not None
        result[unknown_axes[0]] = _remaining_dim(dims, result, inferred=is_inferred)
    final = [facts.new_unknown(ctx) if x is None else x for x in result]
    set_shape(out, [*map(dim_of, final)])
    if dims is not None:
        _equate_sizes(facts, node, sympy.Mul(*dims), final, inferred_axis)
    return None


def _equate_sizes(
    facts: Facts,
    node: ir.Node,
    total: sympy.Expr,
    dims: Sequence[sympy.Expr],
    inferred_axis: int | None,
) -> None:
    """Note that a Reshape keeps the number of elements, ``total``.

    The dims beside one that is written as -1 are not 0, or -1 would be ambiguous: what they have in
    common with the total can be divided out.
    """
    if inferred_axis is None:
        facts.must_equal(node, total, sympy.Mul(*dims))
        return
    others = sympy.Mul(*(x for axis, x in enumerate(dims) if axis != inferred_axis))
    facts.must_be_positive(node, others)
    above, below = sympy.fraction(sympy.cancel(total / others))
    facts.must_equal(node, above, below * dims[inferred_axis])


def _target_dims(
    facts: Facts,
    ctx: Context,
    node: ir.Node,
    target: Sequence[sympy.Expr],
    dims: Sequence[sympy.Expr] | None,
) -> list[sympy.Expr | None]:
    """Return the dim that each entry of a Reshape's target stands for; None where it is not known.

    Args:
        facts: What is learned of the model.
        ctx: Where new symbols come from.
        node: The Reshape.
        target: The entries, with 0 and -1.
        dims: Those of the data; None if not even their number is known.
    """
    zero_copies = copies_zeros(node)
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
    return result


def _remaining_dim(
    dims: Sequence[sympy.Expr], target: Sequence[sympy.Expr | None], *, inferred: bool
) -> sympy.Expr | None:
    """Return the one dim of a Reshape's target that is not known, if it is an expression."""
    known_product = sympy.Mul(*(x for x in target if x is not None))
    if known_product == 0 or not (inferred or known_product.is_Integer):
        return None
    numerator, denominator = sympy.fraction(
        sympy.cancel(normal_form(sympy.Mul(*dims)) / normal_form(known_product))
    )
    return sympy.floor(numerator / denominator) if denominator.is_Integer else None


def infer_slice(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """Infer what remains of each axis that is cut."""
    data = node.inputs[0]
    if data is None or data.shape is None:
        return
    result = list(data.shape)
    cuts = read_cuts(node, len(result), partial(_read_items, facts, ctx))
    cut_axes = range(len(result)) if cuts is None else cuts
    for axis in cut_axes:
        size, cut = expr_of(data.shape[axis]), None if cuts is None else cuts[axis]
        length = None if cut is None else _cut_length(facts, ctx, node, size, cut)
        result[axis] = dim_of(facts.new_unknown(ctx) if length is None else length)
    set_shape(node.outputs[0], result)


def _read_items(facts: Facts, ctx: Context, value: ir.Value) -> list[sympy.Expr] | None:
    contents = facts.read_contents(ctx, value)
    return None if contents is None else items_of(contents)


def _cut_length(
    facts: Facts, ctx: Context, node: ir.Node, size: sympy.Expr, cut: Cut[sympy.Expr | int | None]
) -> sympy.Expr | None:
    """Return how many elements of an axis of this size a Slice takes; None if it is not known."""
    if not is_known(cut):
        return None
    start, end, step = map(sympy.sympify, cut)
    if not step.is_Integer or step == 0:  # no run survives a step of 0
        return None
    if facts.usual:  # then it has a last element, and the last one is one
        facts.must_be_positive(node, size)
        for bound in (start, end):
            if size.is_Integer and not bound.is_Integer and facts.is_of_sizes(ctx, bound):
                reach = -bound if facts.is_at_least(ctx, -bound, 1) else bound
                facts.must_be_positive(node, size - reach + 1)  # no table ends before
    if size.is_Integer and start.is_Integer and end.is_Integer:
        return sympy.Integer(cut_length(Cut(int(start), int(end), int(step)), int(size)))
    if step < 0:
        return size if step == -1 and _is_whole_axis_backwards(start, end) else None
    return _forward_length(facts, ctx, size, start, end, int(step))


def _is_whole_axis_backwards(start: sympy.Expr, end: sympy.Expr) -> bool:
    """Return whether a slice by -1 goes from the last element to the first, at any size."""
    if not (start.is_Integer and end.is_Integer):
        return False
    return bool((start == -1 or start >= OPEN_END) and end <= -OPEN_END)


def _forward_length(
    facts: Facts, ctx: Context, size: sympy.Expr, start: sympy.Expr, end: sympy.Expr, step: int
) -> sympy.Expr | None:
    """Return the length of a slice with a positive step; None if its limits are not known."""
    # One that begins behind the end has nothing, wherever that is.
    first = start if facts.is_at_least(ctx, start, 0) else _clamp_bound(facts, ctx, start, size)
    is_open = end.is_Integer and end >= OPEN_END
    last = size if is_open else _clamp_bound(facts, ctx, end, size)
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
        return bound + size if facts.is_at_least(ctx, -bound, 1) else bound
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
    """Infer the length of each axis with its padding."""
    data = node.inputs[0]
    if data is None or data.shape is None:
        return
    result = list(data.shape)
    pads = pads_by_axis(node, len(result), partial(_read_items, facts, ctx))
    if pads is None:
        return
    for axis, (before, behind) in pads.items():
        result[axis] = dim_of(expr_of(data.shape[axis]) + before + behind)
    set_shape(node.outputs[0], result)


def infer_squeeze(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """Remove the dims of known axes; the library takes unknown axes for none.

    Without axes every dim of 1 is removed: how many dims that are is known of numbers only.
    """
    data = node.inputs[0]
    if data is None or data.shape is None or "axes" in node.attributes:
        return None
    dims = list(data.shape)
    if input_at(node, 1) is None:
        if all(isinstance(x, int) for x in dims):
            return None
        return set_shape(node.outputs[0], None)
    squeezed = squeezed_axes(
        node, len(dims), lambda value: integers_in(facts.read_contents(ctx, value))
    )
    if squeezed is None:
        return set_shape(node.outputs[0], None)
    return set_shape(node.outputs[0], [x for i, x in enumerate(dims) if i not in squeezed])


def infer_split(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """Infer parts whose sizes are computed, or fed; the library takes them for equal."""
    data, sizes = node.inputs[0], input_at(node, 1)
    if data is None or data.shape is None or sizes is None:
        return
    if ir.convenience.get_const_tensor(sizes) is not None:
        return
    axes = normalize_axes((attr_int(node, "axis", 0),), len(data.shape))
    known_sizes = facts.elements_or_unknowns(ctx, sizes)
    parts = [] if known_sizes is None else items_of(known_sizes)
    for i, out in enumerate(node.outputs):
        facts.write_contents(ctx, out, None)
        dims: list[Dim] = list(data.shape)
        for axis in axes or ():
            dims[axis] = dim_of(parts[i] if i < len(parts) else facts.new_unknown(ctx))
        set_shape(out, dims if axes else None)


def infer_sequence_at(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """Infer the part of a SplitToSequence; the library knows no shape in a sequence."""
    data, out = sequence_data(node), node.outputs[0]
    if data is None or data.shape is None:
        return
    sizes = [x if isinstance(x, int) else None for x in data.shape]
    part = read_sequence_part(
        node, sizes, lambda value: integers_in(facts.read_contents(ctx, value))
    )
    if part is None:
        return
    dims: list[Dim] = list(data.shape)
    dims[part.axis : part.axis + 1] = [part.size] if part.keeps_axis else []
    if data.dtype is not None:
        ctx.set_dtype(out, data.dtype)
    set_shape(out, dims)


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
