"""What shapes are, where onnx_shape_inference is too bold or does not know.

Too bold: it lets two different symbols broadcast to the first, reads ``x[:, :512]`` as 512 long,
and takes the shape of one branch of an If for that of both.
"""

from collections.abc import Callable, Sequence
from functools import partial

import onnx_ir as ir
from onnx_shape_inference import ShapeInferenceContext as Context
from onnx_shape_inference import registry

from graphfix.facts.symbolic import bodies, layout, windows
from graphfix.facts.symbolic.contrib import register as register_contrib
from graphfix.facts.symbolic.floats import floats_of, is_of_floats, whole_of
from graphfix.facts.symbolic.inferred import FLOATS, INTEGERS, Facts, current
from graphfix.facts.symbolic.integer_contents import EVALUATORS
from graphfix.graph.nodes import tensor_in
from graphfix.ops.broadcast import ARITHMETIC, BROADCAST, LOGIC

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
            _replace("", op_type, version, partial(_rule, op_type, _SHAPES.get(op_type)))
    for op_type, added in _MICROSOFT.items():
        _replace("com.microsoft", op_type, 1, partial(_rule, op_type, added))
    # ONNX Runtime has it in ONNX's domain at every opset.
    norm = registry.get("", "LayerNormalization", 17)
    if norm is not None and registry.get("", "LayerNormalization", 1) is None:
        registry.register("", "LayerNormalization", 1)(norm)
    register_contrib()
    registry.register("", "Slice", 1)(_slice_by_attributes)
    for version in registry.version_boundaries("", "Constant"):
        _replace("", "Constant", version, _constant)


def _replace(domain: str, op_type: str, version: int, made: Callable[[Rule], Rule]) -> None:
    """Put a rule that is made of the library's in its place, if it has one."""
    library = registry.get(domain, op_type, version)
    if library is not None:
        registry.register(domain, op_type, version)(made(library))


def _rule(op_type: str, shape_rule: ShapeRule | None, library: Rule) -> Rule:
    evaluator = EVALUATORS.get(op_type)
    dtype_of = _WHOLLY_OURS.get(op_type)

    def rule(ctx: Context, node: ir.Node) -> None:
        facts = current()
        if facts is None or dtype_of is None:
            library(ctx, node)
        elif (dtype := dtype_of(node)) is not None:
            ctx.set_dtype(node.outputs[0], dtype)
        if facts is None or not node.outputs:
            return
        if shape_rule is not None:
            shape_rule(facts, ctx, node)
            for value in node.outputs:
                if value.shape is not None:
                    short = [facts.shortened(ctx, x) for x in value.shape]
                    if any(x is not y for x, y in zip(short, value.shape, strict=True)):
                        layout.set_shape(value, short)
        if evaluator is not None and node.outputs[0].dtype in INTEGERS:
            arrays = [facts.read(ctx, x) for x in node.inputs if x is not None]
            known = [x for x in arrays if x is not None]
            array = None
            if is_of_floats(node) and op_type not in ("Concat", "Shape", "Size"):
                if facts.usual and op_type == "Cast":
                    array = whole_of(facts, ctx, node)
            elif len(known) == len(arrays) or op_type in _ASKS_ITSELF:
                array = evaluator(facts, ctx, node, known)
            facts.write(ctx, node.outputs[0], array)
        elif evaluator is not None:
            # The library carries integers through floats, where they may have been rounded.
            facts.write(ctx, node.outputs[0], None)
            if facts.usual and node.outputs[0].dtype in FLOATS:
                facts.note(node.outputs[0], floats_of(facts, ctx, node))

    return rule


def _slice_by_attributes(ctx: Context, node: ir.Node) -> None:
    """Slice before opset 10, which the library does not know."""
    facts, data, out = current(), node.inputs[0], node.outputs[0]
    if data is None or data.dtype is None:
        return
    out.dtype = data.dtype
    if facts is None:
        return
    layout.slice_(facts, ctx, node)
    array = facts.read(ctx, data) if data.dtype in INTEGERS else None
    limits = [x for x in layout.limits_of(facts, ctx, node) if x is not None]
    made = None if array is None else EVALUATORS["Slice"](facts, ctx, node, [array, *limits])
    facts.write(ctx, out, made)


def _constant(library: Rule) -> Rule:
    """The library's rule, without its check of a runtime protocol (see ``tensor_in``)."""

    def rule(ctx: Context, node: ir.Node) -> None:
        attribute = node.attributes.get("value")
        if attribute is None or attribute.is_ref() or attribute.type != ir.AttributeType.TENSOR:
            return library(ctx, node)
        tensor = tensor_in(attribute)
        ctx.set_shape_and_dtype(node.outputs[0], ir.Shape(tensor.shape.numpy()), tensor.dtype)
        return None

    return rule


def _dtype_of(given: Sequence[ir.Value | None]) -> ir.DataType | None:
    """The type of some inputs, which is the same in all that say it."""
    return next((x.dtype for x in given if x is not None and x.dtype is not None), None)


# Of these our rules say all that there is to say but the type. What the library would reckon first
# was a third of all inference, and with the Min and Max of its Slice far more.
_WHOLLY_OURS: dict[str, Callable[[ir.Node], ir.DataType | None]] = {
    **dict.fromkeys(ARITHMETIC, lambda node: _dtype_of(node.inputs)),
    **dict.fromkeys(LOGIC, lambda _: ir.DataType.BOOL),
    **dict.fromkeys(("Reshape", "Expand", "Slice"), lambda node: _dtype_of(node.inputs[:1])),
    "Where": lambda node: _dtype_of(node.inputs[1:]),
}
_SHAPES: dict[str, ShapeRule] = {
    **dict.fromkeys(BROADCAST, layout.broadcast),
    "Expand": layout.expand,
    **dict.fromkeys(("MatMul", "MatMulInteger"), windows.matmul),
    "Gemm": windows.gemm,
    "Conv": windows.conv,
    "ConvTranspose": windows.conv_transpose,
    **dict.fromkeys(("AveragePool", "MaxPool"), windows.pool),
    **dict.fromkeys(("Resize", "Upsample"), windows.resize),
    "STFT": windows.stft,
    "Reshape": layout.reshape,
    "Slice": layout.slice_,
    "Squeeze": layout.squeeze,
    "Pad": layout.pad,
    "Range": layout.range_,
    "ConstantOfShape": layout.filled,
    "If": bodies.if_,
    **dict.fromkeys(("Loop", "Scan"), bodies.loop),
    "Unique": layout.unique,
}
# They look at what they read themselves: of some of it nothing need be known.
_ASKS_ITSELF = ("Concat", "Shape", "Size", "Sub")
_MICROSOFT: dict[str, ShapeRule] = {"FusedMatMul": windows.fused_matmul}
