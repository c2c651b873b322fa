"""Shapes of what slides along an axis, and of products."""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import sympy

from graphfix.model.dims import is_nameless
from graphfix.model.symbolic.exprs import Dim, dim_of, expr_of, settled, whole_numbers
from graphfix.model.symbolic.facts import current
from graphfix.model.symbolic.layout import join_shapes, set_shape
from graphfix.model.values import attr_int, attr_ints, const_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnx_shape_inference import ShapeInferenceContext as Context

    from graphfix.model.symbolic.facts import Facts

    Rule = Callable[[Context, ir.Node], None]


def matmul(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """Rows of one and columns of the other; what is summed over must be equal."""
    a, b = (None if x is None else x.shape for x in node.inputs[:2])
    if a is not None and b is not None and len(a) >= 2 and len(b) >= 2:
        _product(facts, ctx, node, a, b)


def fused_matmul(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """com.microsoft's MatMul, which turns its operands first."""
    shapes: list[ir.Shape] = []
    for side, value in zip("AB", node.inputs, strict=False):
        if value is None or value.shape is None or len(value.shape) < 2:
            return set_shape(node.outputs[0], None)
        first, *rest = value.shape
        dims: list[Dim] = list(value.shape)
        if len(dims) > 2 and attr_int(node, f"transBatch{side}", 0):
            dims = [*rest[:-1], first, rest[-1]]
        if attr_int(node, f"trans{side}", 0):
            dims[-2:] = dims[:-3:-1]
        shapes.append(ir.Shape(dims))
    return _product(facts, ctx, node, *shapes)


def _product(facts: Facts, ctx: Context, node: ir.Node, a: ir.Shape, b: ir.Shape) -> None:
    facts.must_equal(node, expr_of(a[-1]), expr_of(b[-2]))
    batch = ir.Value()
    join_shapes(facts, ctx, batch, [ir.Shape(list(a)[:-2]), ir.Shape(list(b)[:-2])])
    if batch.shape is not None:
        set_shape(node.outputs[0], [*batch.shape, a[-2], b[-1]])


def gemm(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """What is summed over must be equal."""
    a, b = (None if x is None else x.shape for x in node.inputs[:2])
    if a is not None and b is not None and len(a) == len(b) == 2:
        inner = a[0 if attr_int(node, "transA", 0) else 1]
        other = b[1 if attr_int(node, "transB", 0) else 0]
        facts.must_equal(node, expr_of(inner), expr_of(other))


def slid(library: Rule) -> Rule:
    """The library's rule for a Conv, which reckons each length once.

    A network for images of any size has a hundred Convs, and a handful of lengths: what the
    library writes of each, five times, was more than half of all inference.
    """

    def rule(ctx: Context, node: ir.Node) -> None:
        dims = None if current() is None else _slid(node)
        if dims is None or node.inputs[0] is None:
            library(ctx, node)
        else:
            ctx.set_shape_and_dtype(node.outputs[0], ir.Shape(dims), node.inputs[0].dtype)

    return rule


def _slid(node: ir.Node) -> list[Dim] | None:
    """What a Conv makes, if its attributes are plain."""
    data, weights = (None if x is None else x.shape for x in node.inputs[:2])
    if data is None or weights is None or len(data) < 3 or len(weights) != len(data):
        return None
    if "auto_pad" in node.attributes or any(x.is_ref() for x in node.attributes.values()):
        return None
    kernel = attr_ints(node, "kernel_shape") or list(weights)[2:]
    ones = [1] * (len(data) - 2)
    strides, dilations = attr_ints(node, "strides") or ones, attr_ints(node, "dilations") or ones
    pads = attr_ints(node, "pads") or [0, 0] * len(ones)
    if not (len(kernel) == len(strides) == len(dilations) == len(ones) == len(pads) / 2):
        return None
    dims: list[Dim] = [data[0], weights[0]]
    for i, size in enumerate(list(data)[2:]):
        width, step = kernel[i], strides[i]
        if not isinstance(width, int) or min(step, dilations[i]) < 1 or is_nameless(size):
            return None
        more = pads[i] + pads[i + len(ones)] - (width - 1) * dilations[i] - 1
        dims.append(_steps(size, more, step))
    return dims


@functools.lru_cache(maxsize=4096)
def _steps(size: Dim, more: int, step: int) -> Dim:
    found: Dim = (size + more) // step + 1
    return found


def conv(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """A window that is longer than what it slides over is an error, not an empty result."""
    shape = node.outputs[0].shape
    for dim in list(shape)[2:] if shape is not None else []:
        facts.must_be_positive(node, expr_of(dim))


def stft(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """As many frames as fit into the signal, none past its end."""
    out, signal = node.outputs[0], node.inputs[0]
    step = whole_numbers(facts.read(ctx, node.inputs[1]))
    window = node.inputs[2] if len(node.inputs) > 2 else None
    given = facts.read(ctx, node.inputs[3]) if len(node.inputs) > 3 else None
    size = whole_numbers(given)
    if size is None and given is None and window is not None and window.shape is not None:
        size = [x for x in window.shape if isinstance(x, int)]
    if signal is None or signal.shape is None or not step or not size or step[0] < 1:
        return
    spare = expr_of(signal.shape[1]) - size[0]
    frames = settled(sympy.floor(spare / step[0]) + 1)
    bins = size[0] // 2 + 1 if attr_int(node, "onesided", 1) else size[0]
    set_shape(out, [signal.shape[0], dim_of(frames), bins, 2])


def quantized_lstm(ctx: Context, node: ir.Node) -> None:
    """com.microsoft's DynamicQuantizeLSTM: [T, directions, B, hidden], and its last states."""
    x = node.inputs[0]
    if x is None or x.shape is None or current() is None:
        return
    both = node.attributes.get("direction")
    many = 2 if both is not None and both.as_string() == "bidirectional" else 1
    hidden: list[Dim] = [many, x.shape[1], attr_int(node, "hidden_size", 1)]
    for i, out in enumerate(node.outputs):
        ctx.set_shape_and_dtype(out, ir.Shape([x.shape[0], *hidden] if i == 0 else hidden), x.dtype)


def conv_transpose(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """With auto_pad, T * stride; ONNX Runtime cuts nothing where the kernel is no longer."""
    auto, data = node.attributes.get("auto_pad"), node.inputs[0]
    shape = node.outputs[0].shape
    if shape is None or data is None or data.shape is None or "output_shape" in node.attributes:
        return
    weights = node.inputs[1].shape if node.inputs[1] is not None else None
    kernel = attr_ints(node, "kernel_shape") or (weights and list(weights)[2:])
    if auto is None or not auto.as_string().startswith("SAME") or kernel is None:
        return
    ones = [1] * len(kernel)
    strides = attr_ints(node, "strides") or ones
    dilations = attr_ints(node, "dilations") or ones
    extra = attr_ints(node, "output_padding") or [0] * len(kernel)
    dims = list(shape)[:2]
    for i, size in enumerate(list(data.shape)[2:]):
        width = kernel[i]
        if not isinstance(width, int):
            return
        reach = (width - 1) * dilations[i] + 1 + extra[i]
        dims.append(dim_of(strides[i] * (expr_of(size) - 1) + min(reach, strides[i])))
    set_shape(node.outputs[0], dims)


def pool(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """How often a window fits; with ceil_mode one may hang over the end, if it begins before it.

    A window that begins in the padding behind the end is dropped: see ``compute_output_size`` in
    ONNX Runtime's pool_attributes.h, and the operator's text from opset 22 on. Where the window is
    longer ONNX Runtime makes no frame, or one: it rounds (3 - 4) / 2 to 0. By the standard, and
    here, there is none, which is no usual run.
    """
    shape, data = node.outputs[0].shape, node.inputs[0]
    if shape is None or data is None or data.shape is None:
        return
    auto = node.attributes.get("auto_pad")
    kernel = attr_ints(node, "kernel_shape")
    if kernel is None or len(kernel) != len(data.shape) - 2:
        return
    ones, zeros = [1] * len(kernel), [0] * 2 * len(kernel)
    strides = attr_ints(node, "strides") or ones
    dilations = attr_ints(node, "dilations") or ones
    pads = attr_ints(node, "pads") or zeros
    mode = "NOTSET" if auto is None else auto.as_string()
    ceil = bool(attr_int(node, "ceil_mode", 0))
    dims: list[Dim] = list(data.shape)[:2]
    for i, size in enumerate(list(data.shape)[2:]):
        stride, window = strides[i], (kernel[i] - 1) * dilations[i] + 1
        x, begin, end = expr_of(size), pads[i], pads[i + len(kernel)]
        if mode.startswith("SAME"):
            # ONNX Runtime pads for the kernel as it is without dilations.
            plain = dilations[i] == 1
            dims.append(dim_of(settled(_ceiling(x, stride)) if plain else facts.fresh(ctx)))
            continue
        if mode == "VALID":
            begin = end = 0
        spare = x + begin + end - window
        count = (_ceiling(spare, stride) if ceil else sympy.floor(spare / stride)) + 1
        if ceil:
            count = sympy.Min(count, _ceiling(x + begin, stride))
        dims.append(dim_of(settled(count)))
    set_shape(node.outputs[0], dims)
    for value in node.outputs[1:]:
        set_shape(value, dims)
    for dim in dims[2:] if facts.usual else ():
        facts.must_be_positive(node, expr_of(dim))


def col2im(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """Blocks of channels as an image of a size that may be computed."""
    data, given = node.inputs[0], [facts.read(ctx, x) for x in node.inputs[1:3]]
    if data is None or data.shape is None or len(data.shape) != 3 or len(given) < 2:
        return
    image, block = given[0], whole_numbers(given[1])
    if image is None or block is None or len(block) != image.size:
        return
    each = expr_of(data.shape[1]) / math.prod(block)
    if each.is_Integer:
        sizes = (each, *image.reshape(-1))
        set_shape(node.outputs[0], [data.shape[0], *(dim_of(settled(x)) for x in sizes)])


def _ceiling(x: sympy.Expr, by: int) -> sympy.Expr:
    return sympy.floor((x + by - 1) / by)


def resize(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """Lengths as ONNX Runtime computes them: the product in float32, rounded to it, then cut."""
    data = node.inputs[0]
    scales = _scales(node)
    if data is None or data.shape is None or scales is None:
        return
    result = list(data.shape)
    axes = attr_ints(node, "axes") or range(len(result))
    if len(scales) != len(axes):
        return
    for axis, scale in zip(axes, scales, strict=True):
        result[axis] = dim_of(scaled(facts, ctx, expr_of(result[axis]), scale))
    set_shape(node.outputs[0], result)


def _scales(node: ir.Node) -> list[np.float32] | None:
    place = 2 if len(node.inputs) > 2 else 1
    value = node.inputs[place] if len(node.inputs) > place else None
    array = None if value is None else const_of(value)
    if array is None or array.size == 0:
        return None
    return [np.float32(x) for x in array.reshape(-1)]


def scaled(facts: Facts, ctx: Context, size: sympy.Expr, scale: np.float32) -> sympy.Expr:
    """A length times a scale in float32; a number of its own where no fraction says the same."""
    if size.is_Integer:
        return sympy.Integer(int(np.float32(int(size)) * scale))
    ratio = _fraction(float(scale))
    return facts.fresh(ctx) if ratio is None else settled(sympy.floor(size * ratio))


@functools.lru_cache(maxsize=256)
def _fraction(scale: float) -> sympy.Rational | None:
    """The fraction that a scale stands for, if it gives the same length up to a million."""
    ratio = Fraction(scale).limit_denominator(1000)
    lengths = np.arange(1, 1 << 20)
    found = (lengths.astype(np.float32) * np.float32(scale)).astype(np.int64)
    same = bool((found == lengths * ratio.numerator // ratio.denominator).all())
    return sympy.Rational(ratio.numerator, ratio.denominator) if same else None
