"""Shape rules that replace those of onnx_shape_inference where it is too bold or lacks one.

Too bold: it lets two different symbols broadcast to the first, reads ``x[:, :512]`` as 512 long,
and takes the shape of one branch of an If for that of both.
"""

from collections.abc import Callable, Sequence
from functools import partial

import onnx_ir as ir
from onnx_shape_inference import ShapeInferenceContext as Context
from onnx_shape_inference import registry

from graphfix import ops
from graphfix.facts.symbolic import bodies, layout, windows
from graphfix.facts.symbolic.contrib import infer_group_query_attention
from graphfix.facts.symbolic.contrib import register_contrib_rules as register_contrib
from graphfix.facts.symbolic.expressions import Array
from graphfix.facts.symbolic.floats import (
    data_inputs,
    float_contents,
    integers_after_cast,
    reads_floats,
)
from graphfix.facts.symbolic.inferred import FLOATS, INTEGERS, Facts, current_facts
from graphfix.facts.symbolic.integer_contents import EVALUATORS, Evaluator
from graphfix.graph.nodes import tensor_of_attr

Rule = Callable[[Context, ir.Node], None]
ShapeRule = Callable[[Facts, Context, ir.Node], None]

_registered = False


def register_rules() -> None:
    """Add the rules to the registry of onnx_shape_inference; a second call does nothing.

    They do nothing either outside of :func:`collect_facts`.
    """
    global _registered
    if _registered:
        return
    _registered = True
    _replace_rules("Loop", _wrap_loop_rule)
    for op_type in sorted({*EVALUATORS, *_SHAPE_RULES}):
        _replace_rules(op_type, partial(_wrap_rule, op_type, _SHAPE_RULES.get(op_type)))
    for op_type, added in _MICROSOFT_RULES.items():
        _replace_rule("com.microsoft", op_type, 1, partial(_wrap_rule, op_type, added))
    # ONNX Runtime has it in ONNX's domain at every opset.
    norm = registry.get("", "LayerNormalization", 17)
    if norm is not None and registry.get("", "LayerNormalization", 1) is None:
        registry.register("", "LayerNormalization", 1)(norm)
    register_contrib()
    registry.register("", "Slice", 1)(_infer_slice_by_attributes)
    _replace_rules("Constant", _wrap_constant_rule)


def _replace_rules(op_type: str, wrap: Callable[[Rule], Rule]) -> None:
    """Replace the library's rule for each version of a standard operator, once.

    A version of which the rule was replaced before is listed twice.
    """
    for version in sorted({*registry.version_boundaries("", op_type)}):
        _replace_rule("", op_type, version, wrap)


def _replace_rule(domain: str, op_type: str, version: int, wrap: Callable[[Rule], Rule]) -> None:
    """Replace the library's rule, if it has one, by a rule that wraps it."""
    library = registry.get(domain, op_type, version)
    if library is not None:
        registry.register(domain, op_type, version)(wrap(library))


def _wrap_rule(op_type: str, shape_rule: ShapeRule | None, library_rule: Rule) -> Rule:
    """Return a rule that adds ours to the library's, or replaces it where ours say everything."""
    evaluator = EVALUATORS.get(op_type)
    dtype_of = _DTYPE_RULES.get(op_type)

    def rule(ctx: Context, node: ir.Node) -> None:
        facts = current_facts()
        if facts is None or dtype_of is None:
            library_rule(ctx, node)
        elif (dtype := dtype_of(node)) is not None:
            ctx.set_dtype(node.outputs[0], dtype)
        if facts is None or not node.outputs:
            return
        if shape_rule is not None:
            shape_rule(facts, ctx, node)
            _shorten_shapes(facts, ctx, node.outputs)
        if evaluator is not None:
            _infer_contents(facts, ctx, node, evaluator)

    return rule


def _shorten_shapes(facts: Facts, ctx: Context, values: Sequence[ir.Value]) -> None:
    """Give dims that are long expressions a symbol of their own."""
    for value in values:
        if value.shape is not None:
            short = [facts.shorten_dim(ctx, x) for x in value.shape]
            if any(x is not y for x, y in zip(short, value.shape, strict=True)):
                layout.set_shape(value, short)


def _infer_contents(facts: Facts, ctx: Context, node: ir.Node, evaluator: Evaluator) -> None:
    """Note what the first output holds, if it is a small tensor of integers or of lengths."""
    out = node.outputs[0]
    if out.dtype in INTEGERS:
        facts.write_contents(ctx, out, _integer_contents(facts, ctx, node, evaluator))
        return
    # The library carries integers through floats, where they may have been rounded.
    facts.write_contents(ctx, out, None)
    if facts.usual and out.dtype in FLOATS:
        facts.write_float_contents(out, float_contents(facts, ctx, node))


def _integer_contents(
    facts: Facts, ctx: Context, node: ir.Node, evaluator: Evaluator
) -> Array | None:
    """Return the integers that a node computes; None where they are not known."""
    if reads_floats(node) and node.op_type not in ("Concat", "Shape", "Size"):
        is_usual_cast = facts.usual and node in ops.CASTS
        return integers_after_cast(facts, ctx, node) if is_usual_cast else None
    arrays = [facts.read_contents(ctx, x) for x in data_inputs(node) if x is not None]
    known_arrays = [x for x in arrays if x is not None]
    if len(known_arrays) < len(arrays) and node.op_type not in _READ_THEIR_INPUTS:
        return None
    return evaluator(facts, ctx, node, known_arrays)


def _infer_slice_by_attributes(ctx: Context, node: ir.Node) -> None:
    """Infer a Slice before opset 10, which the library does not know."""
    facts, data, out = current_facts(), node.inputs[0], node.outputs[0]
    if data is None or data.dtype is None:
        return
    out.dtype = data.dtype
    if facts is None:
        return
    layout.infer_slice(facts, ctx, node)
    array = facts.read_contents(ctx, data) if data.dtype in INTEGERS else None
    contents = None if array is None else EVALUATORS["Slice"](facts, ctx, node, [array])
    facts.write_contents(ctx, out, contents)


def _wrap_loop_rule(library: Rule) -> Rule:
    """Wrap the library's rule, which asks for a condition that ONNX lets a Loop omit."""

    def rule(ctx: Context, node: ir.Node) -> None:
        if len(node.inputs) > 1 and node.inputs[1] is None:
            bodies.infer_loop_without_condition(ctx, node)
        else:
            library(ctx, node)

    return rule


def _wrap_constant_rule(library: Rule) -> Rule:
    """Wrap the library's rule, to skip its check of a runtime protocol (``tensor_of_attr``).

    In functions the library forgets the contents first; left to itself it then asks onnx-ir's
    get_const_tensor for each use, which writes the name of the node's output into the tensor.
    """

    def rule(ctx: Context, node: ir.Node) -> None:
        attribute = node.attributes.get("value")
        if attribute is None or attribute.is_ref() or attribute.type != ir.AttributeType.TENSOR:
            return library(ctx, node)
        tensor, out = tensor_of_attr(attribute), node.outputs[0]
        ctx.set_shape_and_dtype(out, ir.Shape(tensor.shape.numpy()), tensor.dtype)
        if out.const_value is None and current_facts() is not None:
            out.const_value = tensor
        return None

    return rule


def _common_dtype(inputs: Sequence[ir.Value | None]) -> ir.DataType | None:
    """Return the type of some inputs, which is the same in all that say it."""
    return next((x.dtype for x in inputs if x is not None and x.dtype is not None), None)


# Of these our rules say all that there is to say but the type. What the library would reckon first
# was a third of all inference, and with the Min and Max of its Slice far more.
_DTYPE_RULES: dict[str, Callable[[ir.Node], ir.DataType | None]] = {
    **dict.fromkeys(ops.ARITHMETIC, lambda node: _common_dtype(node.inputs)),
    **dict.fromkeys(ops.BROADCASTS & ops.MAKES_BOOL, lambda _: ir.DataType.BOOL),
    **dict.fromkeys(("Reshape", "Expand", "Slice"), lambda node: _common_dtype(node.inputs[:1])),
    "Where": lambda node: _common_dtype(node.inputs[1:]),
}
_SHAPE_RULES: dict[str, ShapeRule] = {
    **dict.fromkeys(ops.BROADCASTS, layout.infer_broadcast),
    "Expand": layout.infer_expand,
    **dict.fromkeys(("MatMul", "MatMulInteger"), windows.infer_matmul),
    "Gemm": windows.infer_gemm,
    "Conv": windows.infer_conv,
    "ConvTranspose": windows.infer_conv_transpose,
    **dict.fromkeys(ops.POOLS, windows.infer_pool),
    **dict.fromkeys(ops.RESIZES, windows.infer_resize),
    "STFT": windows.infer_stft,
    "Reshape": layout.infer_reshape,
    "Slice": layout.infer_slice,
    "SequenceAt": layout.infer_sequence_at,
    "Split": layout.infer_split,
    "Squeeze": layout.infer_squeeze,
    "Pad": layout.infer_pad,
    "Range": layout.infer_range,
    "ConstantOfShape": layout.infer_constant_of_shape,
    "If": bodies.infer_if,
    **dict.fromkeys(("Loop", "Scan"), bodies.infer_loop),
    "Unique": layout.infer_unique,
}
# They look at what they read themselves: of some of it nothing need be known.
_READ_THEIR_INPUTS = ("Concat", "Shape", "Size", "Sub")
_MICROSOFT_RULES: dict[str, ShapeRule] = {
    "FusedMatMul": windows.infer_fused_matmul,
    "GroupQueryAttention": infer_group_query_attention,
}
