"""float-conv-input: the manual is the docstring of the class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import onnx_ir as ir

from graphfix.core import Match, NodePass, Safety, Skip
from graphfix.model.values import is_op

if TYPE_CHECKING:
    from graphfix.build import Builder
    from graphfix.model.view import View

_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE)
# What MatMul and Gemm take beside floats, if all their inputs are of one type.
_WIDE = (ir.DataType.INT32, ir.DataType.INT64, ir.DataType.UINT32, ir.DataType.UINT64)
_TAKES_FLOATS = ("Conv", "ConvTranspose", "MatMul", "Gemm")
# What they make has the type of their first input, whatever inference made of that.
_KEEPS_TYPE = frozenset(
    {"Relu", "LeakyRelu", "PRelu", "Elu", "Sigmoid", "Tanh", "Clip", "BatchNormalization", "Neg"}
    | {"Add", "Sub", "Mul", "Div", "MaxPool", "AveragePool", "GlobalAveragePool", "Identity"}
    | {"Reshape", "Transpose", "Unsqueeze", "Squeeze", "Flatten", "Slice", "Pad", "Concat"}
)


@dataclass(frozen=True)
class FloatSite(Match):
    """An operator that wants floats and gets something else.

    Attributes:
        dtype: The type of the floats that it gets.
        odd: The places of the inputs that are none.
    """

    dtype: ir.DataType
    odd: tuple[int, ...]


@dataclass(frozen=True)
class FloatConvInput(NodePass[FloatSite]):
    """A bool or integer tensor that reaches Conv, ConvTranspose, MatMul or Gemm gets its Cast.

    It is cast to the type of the other inputs, once for all that want it so.

    Why:
        ONNX Runtime refuses such a model when it is loaded, on every provider: "Type
        'tensor(bool)' of input parameter of operator (Conv) is invalid". onnx.checker lets it pass,
        so that a mask which an export forgot to cast is often found only by its user. In torch a
        bool times a float is a float.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        smooth (bool[B, 1, T] mask, float[1, 1, 3] w) => (float[B, 1, U] y, float[B, 1, V] z)
        {
            y = Conv (mask, w)
            z = Conv <pads = [1, 1]> (mask, w)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        smooth (bool[B, 1, T] mask, float[1, 1, 3] w) => (float[B, 1, U] y, float[B, 1, V] z)
        {
            as_float = Cast <to = 1> (mask)
            y = Conv (as_float, w)
            z = Conv <pads = [1, 1]> (as_float, w)
        }

    Safety:
        There are no numbers before to compare with, since the model did not load: run it with
        --no-verify. A Cast is exact for bool and for integers up to 2^24 in float (2048 in
        float16). Refused, with the reason: no input is a float, or they are floats of two types.
        MatMul and Gemm of int32 or int64 alone are valid and stay.
    """

    name: ClassVar[str] = "float-conv-input"
    loads_before: ClassVar[bool] = False
    safety: ClassVar[Safety] = "conditional"
    anchors: ClassVar[tuple[str, ...]] = _TAKES_FLOATS
    # The types inferred behind such a node were wrong.
    keeps_shapes: ClassVar[bool] = False

    def match(self, node: ir.Node, view: View) -> FloatSite | Skip | None:
        """An input of another type than the floats beside it."""
        claimed = (view.shapes.dtype(x) for x in node.inputs)
        if not any(x is not None and _is_odd(x) for x in claimed):  # nearly always
            return None
        given = [_dtype(x, view) for x in node.inputs]
        odd = tuple(i for i, x in enumerate(given) if x is not None and _is_odd(x))
        floats = {x for x in given if x is not None and x in _FLOATS}
        if not odd:
            return None
        if any(attribute.is_ref() for attribute in node.attributes.values()):
            return Skip(node, "its attributes are parameters of the local function it is in")
        first = node.inputs[odd[0]]
        name = first.name if first is not None else ""
        if not floats and is_op(node, "MatMul", "Gemm"):
            types = set(given) - {None}
            if len(types) == 1 and types <= set(_WIDE):
                return None
        if len(floats) != 1:
            why = "nor is another" if not floats else "the others are floats of two types"
            return Skip(node, f"{name!r} is no float, {why}: which type is meant?")
        return FloatSite(node, floats.pop(), odd)

    def message(self, site: Match) -> str:
        """Why it does not load."""
        return f"{site.node.op_type} gets an input that is no float: ONNX Runtime refuses the model"

    def rewrite(self, match: FloatSite, op: Builder) -> ir.Value:
        """The same with a Cast before each such input."""
        inputs = list(match.node.inputs)
        for i in match.odd:
            inputs[i] = _as_float(inputs[i], match.dtype, op)
        given = {name: attribute.value for name, attribute in match.node.attributes.items()}
        return op.make(match.node.op_type, *inputs, **given)


def _as_float(value: ir.Value | None, dtype: ir.DataType, op: Builder) -> ir.Value:
    if value is None:
        raise RuntimeError(f"{op.site.name} lacks an input")
    return op.once(("as-float", value, dtype), lambda: op.Cast(value, to=dtype), value)


def _is_odd(dtype: ir.DataType) -> bool:
    return dtype == ir.DataType.BOOL or dtype.is_integer()


def _dtype(value: ir.Value | None, view: View) -> ir.DataType | None:
    """The type of ``value``; behind an operator of floats it is that of its floats."""
    claimed, top, seen = view.shapes.dtype(value), value, 0
    while top is not None and (node := top.producer()) is not None and seen < 64:
        if is_op(node, *_TAKES_FLOATS):
            floats = [x for x in map(view.shapes.dtype, node.inputs) if x in _FLOATS]
            return floats[0] if floats else claimed
        if not is_op(node, *_KEEPS_TYPE):
            break
        top, seen = node.inputs[0], seen + 1
    return claimed
