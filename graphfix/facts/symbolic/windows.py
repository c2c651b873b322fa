"""Shape rules of windows that slide along an axis, and of matrix products."""

import numpy as np
import onnx_ir as ir
import sympy
from onnx_shape_inference import ShapeInferenceContext as Context

from graphfix.facts.symbolic.expressions import Dim, dim_of, expr_of, integers_in, normal_form
from graphfix.facts.symbolic.floats import exact_factor
from graphfix.facts.symbolic.inferred import Facts
from graphfix.facts.symbolic.layout import set_broadcast_shape, set_shape
from graphfix.facts.symbolic.slice_ends import ceil_quotient
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import attr_int, attr_ints, attr_text, input_at
from graphfix.ops.products import read_fused_matmul, read_gemm
from graphfix.ops.windows import Window, window_of


def infer_matmul(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """Infer rows of one and columns of the other; what is summed over must be equal."""
    a, b = (None if x is None else x.shape for x in node.inputs[:2])
    if a is not None and b is not None and len(a) >= 2 and len(b) >= 2:
        _infer_product(facts, ctx, node, a, b)


def infer_fused_matmul(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """Infer com.microsoft's MatMul, which transposes its operands first."""
    product = read_fused_matmul(node)
    transposes = (product.trans_a, product.trans_b)
    rotates_batch = (product.trans_batch_a, product.trans_batch_b)
    shapes: list[ir.Shape] = []
    for value, transposed, rotated in zip(node.inputs, transposes, rotates_batch, strict=False):
        if value is None or value.shape is None or len(value.shape) < 2:
            return set_shape(node.outputs[0], None)
        first, *later_dims = value.shape
        dims: list[Dim] = list(value.shape)
        if len(dims) > 2 and rotated:
            dims = [*later_dims[:-1], first, later_dims[-1]]
        if transposed:
            dims[-2:] = dims[:-3:-1]
        shapes.append(ir.Shape(dims))
    return _infer_product(facts, ctx, node, *shapes)


def _infer_product(facts: Facts, ctx: Context, node: ir.Node, a: ir.Shape, b: ir.Shape) -> None:
    facts.must_equal(node, expr_of(a[-1]), expr_of(b[-2]))
    batch = ir.Value()
    set_broadcast_shape(facts, ctx, batch, [ir.Shape(list(a)[:-2]), ir.Shape(list(b)[:-2])])
    if batch.shape is not None:
        set_shape(node.outputs[0], [*batch.shape, a[-2], b[-1]])


def infer_gemm(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """Note that the dims that are summed over must be equal."""
    a, b = (None if x is None else x.shape for x in node.inputs[:2])
    if a is not None and b is not None and len(a) == len(b) == 2:
        gemm = read_gemm(node)
        inner_a, inner_b = a[0 if gemm.trans_a else 1], b[1 if gemm.trans_b else 0]
        facts.must_equal(node, expr_of(inner_a), expr_of(inner_b))


def infer_conv(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """Note that each output length is positive: a window longer than its axis is an error."""
    shape = node.outputs[0].shape
    for dim in list(shape)[2:] if shape is not None else []:
        facts.must_be_positive(node, expr_of(dim))


def infer_stft(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """Infer as many frames as fit into the signal, none past its end."""
    out, signal = node.outputs[0], node.inputs[0]
    step = integers_in(facts.read_contents(ctx, node.inputs[1]))
    window = input_at(node, 2)
    frame_length = facts.read_contents(ctx, node.inputs[3]) if len(node.inputs) > 3 else None
    size = integers_in(frame_length)
    if size is None and frame_length is None and window is not None and window.shape is not None:
        size = [x for x in window.shape if isinstance(x, int)]
    if signal is None or signal.shape is None or not step or not size or step[0] < 1:
        return
    frames = normal_form(sympy.floor((expr_of(signal.shape[1]) - size[0]) / step[0]) + 1)
    bins = size[0] // 2 + 1 if attr_int(node, "onesided", 1) else size[0]
    set_shape(out, [signal.shape[0], dim_of(frames), bins, 2])


def infer_conv_transpose(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """Infer unknown lengths where auto_pad is set: ONNX and ONNX Runtime disagree on them."""
    shape = node.outputs[0].shape
    if shape is not None and attr_text(node, "auto_pad", "").startswith("SAME"):
        set_shape(
            node.outputs[0], [*shape[:2], *(dim_of(facts.new_unknown(ctx)) for _ in shape[2:])]
        )


def infer_pool(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """Infer the lengths after pooling: with ceil_mode a window may hang over the end.

    ``auto_pad`` SAME makes a window for each stride; ONNX Runtime makes fewer where the window is
    dilated. A window that begins in the padding behind the end is dropped: see
    ``compute_output_size`` in ONNX Runtime's pool_attributes.h, and the operator's text from opset
    22 on. The library drops it only where the length is a number.
    """
    shape, data, window = node.outputs[0].shape, node.inputs[0], window_of(node)
    if shape is None or data is None or data.shape is None or window is None:
        return
    sizes = [expr_of(size) for size in list(data.shape)[2:]]
    lengths: list[sympy.Expr] | None = None
    if window.auto_pad.startswith("SAME"):
        lengths = [ceil_quotient(x, y) for x, y in zip(sizes, window.strides, strict=True)]
        if max(window.dilations) > 1:
            lengths = [facts.new_unknown(ctx) for _ in sizes]
    elif window.ceil_mode:
        lengths = [_hanging_length(window, i, size) for i, size in enumerate(sizes)]
    if lengths is not None:
        dims: list[Dim] = [*list(shape)[:2], *(dim_of(normal_form(x)) for x in lengths)]
        for value in node.outputs:
            set_shape(value, dims)
    for dim in list(node.outputs[0].shape or ())[2:] if facts.usual else ():
        facts.must_be_positive(node, expr_of(dim))


def _hanging_length(window: Window, axis: int, size: sympy.Expr) -> sympy.Expr:
    """Return how many windows begin before the end, of a pool with ceil_mode."""
    before, stride = size + window.before[axis], window.strides[axis]
    fits = ceil_quotient(before + window.after[axis] - window.reach[axis], stride) + 1
    return sympy.Min(fits, ceil_quotient(before, stride))


def infer_resize(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """Infer lengths times scales, cut after they were rounded to float32.

    Known of numbers, and of a whole scale; of others by the decimals of the scale, where no length
    up to a million differs.
    """
    data, scales = node.inputs[0], _resize_scales(node)
    if data is None or data.shape is None or scales is None:
        return
    result = list(data.shape)
    axes = attr_ints(node, "axes") or range(len(result))
    if len(scales) != len(axes):
        return
    for axis, scale in zip(axes, scales, strict=True):
        result[axis] = dim_of(_scale_length(facts, ctx, expr_of(result[axis]), scale))
    set_shape(node.outputs[0], result)


def _resize_scales(node: ir.Node) -> list[np.float32] | None:
    array = const_of(input_at(node, 2 if len(node.inputs) > 2 else 1))
    return None if array is None or array.size == 0 else [np.float32(x) for x in array.reshape(-1)]


def _scale_length(facts: Facts, ctx: Context, size: sympy.Expr, scale: np.float32) -> sympy.Expr:
    if size.is_Integer:
        return sympy.Integer(int(np.float32(int(size)) * scale))
    ratio = exact_factor(float(scale), divides=False)
    return facts.new_unknown(ctx) if ratio is None else normal_form(sympy.floor(size * ratio))
