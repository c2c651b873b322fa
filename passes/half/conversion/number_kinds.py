"""Kinds of float tensors: data, or counts and positions that must stay exact."""

from collections.abc import Iterator
from enum import Enum

import onnx_ir as ir

from graphfix import ops
from graphfix.facts.view import View
from graphfix.facts.zero_one import zero_one_sources
from graphfix.graph.constants import scalar_of
from graphfix.graph.nodes import is_op, value_before
from graphfix.graph.walks import bodies_of, reachable_from

from .constants import has_weights
from .value_types import ElementTypes

# A larger whole number may not be in float16.
_EXACT_UNTIL = 2048
# Whole numbers of so many bits are all in float16.
_SMALL_BITS = 8
_MOVES = ops.MOVES_ELEMENTS | ops.IDLE | ops.named("Trilu")
# Of whole numbers they make whole numbers, and float16 rounds nothing.
_KEEPS_COUNTS = _MOVES | (
    ((ops.EXACT & ops.ELEMENTWISE) - ops.MAKES_BOOL)
    | ops.REDUCES_TO_EXTREME
    | ops.named("Add Sub Mod")
)
_ARITHMETIC = ops.named("Mul Div Pow Where Sqrt Log Reciprocal PRelu")
# No count is left: at most 1, or an exponential, which is none of a large number.
_ENDS_COUNTS = (ops.BOUNDED_BY_ONE - ops.EXACT) | ops.named("Exp")
_SUMS = ops.PRODUCTS | ops.REDUCES_PAST_ZEROS | ops.named("ReduceMean CumSum")
# What they make of counts is known by the kinds of their inputs.
_FOLLOWS_INPUTS = _KEEPS_COUNTS | _ARITHMETIC | _ENDS_COUNTS | _SUMS
COMPUTES_LITTLE = _MOVES | ops.ELEMENTWISE | ops.REDUCES_TO_EXTREME | ops.named("Pad")
"""Without a weight they are no gain in float16."""


class NumberKind(Enum):
    """What a tensor of floats holds."""

    CONSTANT = 0
    FLAG = 1
    """0 and 1, from a boolean or a mask."""
    COUNT = 2
    """Whole numbers that may be large: lengths, positions, sums of flags."""
    NUMBER = 3
    """What is computed of counts and constants alone."""
    DATA = 4


def find_counting_nodes(
    nodes: list[ir.Node], types: ElementTypes, view: View
) -> Iterator[tuple[ir.Node, str]]:
    """Yield the nodes that compute with counts, each with why it must be exact.

    Args:
        nodes: All nodes, each after its producers.
        types: The types of their values.
        view: The model around them.
    """
    kinds = dict.fromkeys(_per_row_inputs(view.model.graph, types), NumberKind.NUMBER)
    for node in nodes:
        if bodies_of(node):
            continue
        kind, reason = _classify_node(node, kinds, types, view)
        kinds.update((x, kind) for x in node.outputs if types.is_float(x))
        if reason:
            yield node, reason


def _classify_node(
    node: ir.Node, kinds: dict[ir.Value, NumberKind], types: ElementTypes, view: View
) -> tuple[NumberKind, str]:
    """Return what a node makes, and why it must be exact; "" if it need not be."""
    if is_op(node, "Constant", "ConstantOfShape"):
        return NumberKind.CONSTANT, ""
    if is_op(node, "Cast") and not types.is_float(node.inputs[0]):
        return _classify_cast(node, types, view)
    floats = [x for x in node.inputs if x is not None and types.is_float(x)]
    input_kinds = [_kind_of(x, kinds) for x in floats]
    if is_op(node, "CumSum") and input_kinds:
        counts = _has_only_kind(input_kinds, NumberKind.FLAG)
        kind = NumberKind.COUNT if counts else NumberKind.DATA
        return kind, "a sum that grows with length"
    if node not in _FOLLOWS_INPUTS or NumberKind.DATA in input_kinds:
        return NumberKind.DATA, _reason_of_count(node, floats, kinds)
    if {NumberKind.COUNT, NumberKind.NUMBER} & {*input_kinds}:
        return _classify_computed_counts(node, input_kinds)
    return _classify_without_counts(node, input_kinds)


def _reason_of_count(
    node: ir.Node, floats: list[ir.Value], kinds: dict[ir.Value, NumberKind]
) -> str:
    """Return which input is a count that a node reads, or ""."""
    counts = (x for x in floats if _kind_of(x, kinds) is NumberKind.COUNT)
    count = None if node in ops.MEASURES else next(counts, None)
    return "" if count is None else f"it takes {count.name!r}, a count"


def _classify_computed_counts(
    node: ir.Node, input_kinds: list[NumberKind]
) -> tuple[NumberKind, str]:
    """Classify a node that computes with counts and constants alone."""
    if NumberKind.COUNT not in input_kinds and has_weights(node):
        return NumberKind.DATA, ""
    reason = "it computes with counts or positions alone"
    if node in _ENDS_COUNTS:
        return NumberKind.DATA, reason
    keeps_counts = node in _KEEPS_COUNTS and NumberKind.NUMBER not in input_kinds
    return NumberKind.COUNT if keeps_counts else NumberKind.NUMBER, reason


def _per_row_inputs(graph: ir.Graph, types: ElementTypes) -> Iterator[ir.Value]:
    """Yield inputs with one number per row, or one for all: diffusion steps, speeds, thresholds.

    They may be large: of a step of 999.5 float16 keeps the half, but of its angle nothing.
    """
    rows = {x.shape[0] for x in graph.inputs if x.shape is not None and len(x.shape) > 1}
    for value in graph.inputs:
        if value.shape is None or not types.is_float(value) or value.is_initializer():
            continue
        if len(value.shape) <= 1 and all(x == 1 or x in rows for x in value.shape):
            yield value


def _classify_without_counts(
    node: ir.Node, input_kinds: list[NumberKind]
) -> tuple[NumberKind, str]:
    """Classify a node that takes flags and constants alone, if any floats."""
    if _has_only_kind(input_kinds, NumberKind.FLAG):
        if node in _SUMS:
            return NumberKind.COUNT, "it counts: whole numbers past 2,048 are not in float16"
        return NumberKind.FLAG, ""
    if not input_kinds:
        return NumberKind.DATA, ""
    if is_op(node, "Where"):  # one of two numbers
        return NumberKind.FLAG, ""
    # Rows of a table are data.
    is_table = is_op(node, "Gather", "GatherND", "GatherElements")
    return NumberKind.DATA if is_table else NumberKind.CONSTANT, ""


def _kind_of(value: ir.Value, kinds: dict[ir.Value, NumberKind]) -> NumberKind:
    return kinds.get(
        value, NumberKind.CONSTANT if value.const_value is not None else NumberKind.DATA
    )


def _has_only_kind(kinds: list[NumberKind], kind: NumberKind) -> bool:
    """Return whether all kinds are this one, apart from constants."""
    return kind in kinds and all(x in (kind, NumberKind.CONSTANT) for x in kinds)


def _classify_cast(node: ir.Node, types: ElementTypes, view: View) -> tuple[NumberKind, str]:
    """Classify a Cast to float32 from another type."""
    source, output = node.inputs[0], node.outputs[0]
    if source is None or not types.is_float(output):
        return NumberKind.DATA, ""
    dtype = types.dtype_of(source)
    if dtype == ir.DataType.BOOL:
        return NumberKind.FLAG, ""
    if dtype is None or not dtype.is_integer():
        return NumberKind.DATA, ""
    data = view.shapes.known_elements(source)
    if data is not None and all(isinstance(x, int) and abs(x) <= _EXACT_UNTIL for x in data):
        return NumberKind.FLAG, ""
    binary_inputs = zero_one_sources(source, view)
    if (
        binary_inputs is not None
        and all(map(_may_be_mask, binary_inputs))
        and not _is_scaled_by_vector(output)
    ):
        return NumberKind.FLAG, ""
    if dtype.bitwidth <= _SMALL_BITS:  # pixels, or weights in int8
        return NumberKind.DATA, ""
    return NumberKind.COUNT, f"{source.name!r} may hold whole numbers past 2,048"


def _may_be_mask(value: ir.Value) -> bool:
    """Return whether an input may hold 0 and 1: lengths have one number per row at most."""
    return value.is_graph_input() and (value.shape is None or len(value.shape) > 1)


def _is_scaled_by_vector(value: ir.Value) -> bool:
    """Return whether a tensor is multiplied by a constant vector, as positions are."""

    def moved_outputs(source: ir.Value) -> Iterator[ir.Value]:
        users = (x.node for x in source.uses() if x.node in _MOVES and x.idx == 0)
        return (output for node in users for output in node.outputs)

    moved_values = reachable_from([value], moved_outputs)
    return any(_is_vector_product(*use) for x in moved_values for use in x.uses())


def _is_vector_product(node: ir.Node, index: int) -> bool:
    """Return whether a node multiplies an input by a constant that is not one number."""
    if not is_op(node, "Mul", "Div", "MatMul", "Einsum") or len(node.inputs) < 2 or index > 1:
        return False
    # Of a Concat the first part counts: a vector in part is one, too.
    factor = value_before(node.inputs[1 - index], *_MOVES)
    if factor is None or scalar_of(factor) is not None:
        return False
    return factor.const_value is not None or is_op(factor.producer(), "Constant")
