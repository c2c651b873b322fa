"""What the floats of a model are: data, or numbers of things that must be counted right."""

from collections.abc import Iterator
from enum import Enum

import onnx_ir as ir

from graphfix.facts.view import View
from graphfix.facts.zero_one import truth_of
from graphfix.graph.constants import scalar_of
from graphfix.graph.nodes import before, is_op
from graphfix.graph.walks import bodies_of, reached

from .constants import has_weights
from .value_types import Types

# A larger whole number may not be in float16.
_EXACT_UNTIL = 2048
# Whole numbers of so many bits are all in float16.
_SMALL = 8
_LAYOUT = frozenset(
    {"Identity", "Reshape", "Transpose", "Unsqueeze", "Squeeze", "Flatten", "Expand", "Tile"}
    | {"Slice", "Split", "Gather", "GatherND", "GatherElements", "Trilu", "Dropout", "Concat"}
)
_EXACT = frozenset(
    {"Add", "Sub", "Neg", "Abs", "Floor", "Ceil", "Round", "Clip", "Max", "Min", "Mod", "ReduceMax"}
    | {"ReduceMin"}
)
_ARITHMETIC = frozenset({"Mul", "Div", "Pow", "Where", "Sqrt", "Log", "Reciprocal", "PRelu"})
_BOUNDED = frozenset({"Sin", "Cos", "Tanh", "Sigmoid", "Softmax", "Erf", "Exp"})
_SUMS = frozenset(
    {"ReduceSum", "ReduceMean", "MatMul", "Gemm", "Einsum", "CumSum", "ReduceSumSquare"}
)
_COMPARISONS = frozenset({"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "IsNaN"})
ELEMENTWISE = _LAYOUT | _EXACT | _ARITHMETIC | _COMPARISONS | {"Relu", "Sigmoid", "Tanh", "Pad"}
"""They compute little: without a weight they are no gain."""
_OPERATORS = _LAYOUT | _EXACT | _ARITHMETIC | _BOUNDED | _SUMS


class Kind(Enum):
    """What a tensor of floats holds."""

    CONSTANT = 0
    FLAG = 1
    """0 and 1, from a boolean or a mask."""
    COUNT = 2
    """Whole numbers that may be large: lengths, positions, sums of flags."""
    NUMBER = 3
    """What is computed of counts and constants alone."""
    DATA = 4


def counted(nodes: list[ir.Node], types: Types, view: View) -> Iterator[tuple[ir.Node, str]]:
    """The nodes that compute with counts, each with why it must be exact.

    Args:
        nodes: All nodes, each after what it takes.
        types: The types of their values.
        view: The model around them.
    """
    kinds = dict.fromkeys(_one_a_row(view.model.graph, types), Kind.NUMBER)
    for node in nodes:
        if bodies_of(node):
            continue
        kind, reason = _look(node, kinds, types, view)
        kinds.update((x, kind) for x in node.outputs if types.is_float(x))
        if reason:
            yield node, reason


def _look(node: ir.Node, kinds: dict[ir.Value, Kind], types: Types, view: View) -> tuple[Kind, str]:
    if is_op(node, "Constant", "ConstantOfShape"):
        return Kind.CONSTANT, ""
    if is_op(node, "Cast") and not types.is_float(node.inputs[0]):
        return _cast(node, types, view)
    floats = [x for x in node.inputs if types.is_float(x)]
    given = [_kind(x, kinds) for x in floats if x is not None]
    exact = [x.name for x, kind in zip(floats, given, strict=True) if x and kind is Kind.COUNT]
    if is_op(node, "CumSum") and given:
        return Kind.COUNT if _only(given, Kind.FLAG) else Kind.DATA, "a sum that grows with length"
    why = f"it takes {exact[0]!r}, a count" if exact and not is_op(node, "Shape", "Size") else ""
    if not is_op(node, *_OPERATORS):
        return Kind.DATA, why
    if is_op(node, *_SUMS) and _only(given, Kind.FLAG):
        return Kind.COUNT, "it counts: whole numbers past 2,048 are not in float16"
    if not any(x in (Kind.COUNT, Kind.NUMBER) for x in given):
        return _plain(node, given), ""
    if Kind.DATA in given:
        return Kind.DATA, why
    if Kind.COUNT not in given and has_weights(node):
        return Kind.DATA, ""
    reason = "it computes with counts or positions alone"
    if is_op(node, *_BOUNDED):
        return Kind.DATA, reason
    keeps = is_op(node, *_LAYOUT, *_EXACT) and Kind.NUMBER not in given
    return Kind.COUNT if keeps else Kind.NUMBER, reason


def _one_a_row(graph: ir.Graph, types: Types) -> Iterator[ir.Value]:
    """Inputs with one number a row, or one for all: steps of a diffusion, speeds, thresholds.

    They are as large as they like: of a step of 999.5 float16 has the half, of its angle nothing.
    """
    rows = {x.shape[0] for x in graph.inputs if x.shape is not None and len(x.shape) > 1}
    for value in graph.inputs:
        if value.shape is None or not types.is_float(value) or value.is_initializer():
            continue
        if len(value.shape) <= 1 and all(x == 1 or x in rows for x in value.shape):
            yield value


def _plain(node: ir.Node, given: list[Kind]) -> Kind:
    """What an operator makes where no count is about."""
    if _only(given, Kind.FLAG):
        return Kind.FLAG
    if not given or any(x is not Kind.CONSTANT for x in given):
        return Kind.DATA
    if is_op(node, "Where"):  # one of two numbers
        return Kind.FLAG
    # Rows of a table are data.
    return Kind.DATA if is_op(node, "Gather", "GatherND", "GatherElements") else Kind.CONSTANT


def _kind(value: ir.Value, kinds: dict[ir.Value, Kind]) -> Kind:
    return kinds.get(value, Kind.CONSTANT if value.const_value is not None else Kind.DATA)


def _only(given: list[Kind], kind: Kind) -> bool:
    """Whether all are of this kind, except constants."""
    return kind in given and all(x in (kind, Kind.CONSTANT) for x in given)


def _cast(node: ir.Node, types: Types, view: View) -> tuple[Kind, str]:
    """A Cast to float32 of what is none."""
    source, made = node.inputs[0], node.outputs[0]
    if source is None or not types.is_float(made):
        return Kind.DATA, ""
    dtype = types.of(source)
    if dtype == ir.DataType.BOOL:
        return Kind.FLAG, ""
    if dtype is None or not dtype.is_integer():
        return Kind.DATA, ""
    data = view.shapes.data(source)
    if data is not None and all(isinstance(x, int) and abs(x) <= _EXACT_UNTIL for x in data):
        return Kind.FLAG, ""
    given = truth_of(source, view)
    if given is not None and all(map(_may_be_a_mask, given)) and not _is_spread(made):
        return Kind.FLAG, ""
    if dtype.bitwidth <= _SMALL:  # pixels, or weights in int8
        return Kind.DATA, ""
    return Kind.COUNT, f"{source.name!r} may hold whole numbers past 2,048"


def _may_be_a_mask(value: ir.Value) -> bool:
    """Whether an input of the model may be 0 and 1: lengths have one number a row at most."""
    return value.is_graph_input() and (value.shape is None or len(value.shape) > 1)


def _is_spread(value: ir.Value) -> bool:
    """Whether a tensor is multiplied by a list of frequencies, as positions are and masks not."""

    def laid_out(given: ir.Value) -> Iterator[ir.Value]:
        users = (x.node for x in given.uses() if is_op(x.node, *_LAYOUT) and x.idx == 0)
        return (made for node in users for made in node.outputs)

    for node, index in (use for one in reached([value], laid_out) for use in one.uses()):
        if is_op(node, "Mul", "Div", "MatMul", "Einsum") and len(node.inputs) > 1:
            other = before(node.inputs[1 - index], *_LAYOUT) if index < 2 else None
            if other is None or scalar_of(other) is not None:
                continue
            if other.const_value is not None or is_op(other.producer(), "Constant"):
                return True
    return False
