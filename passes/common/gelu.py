"""Recognition of a Gelu in the arithmetic around an Erf, a Tanh or a Sigmoid."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir

from graphfix.core import Skip
from graphfix.facts.shapes import same_dim
from graphfix.facts.view import View
from graphfix.graph.nodes import is_op, producer_of

from .fusible import FLOATS, why_used_elsewhere
from .polynomial import Polynomial, PolynomialReader, are_close

GeluKind = Literal["Gelu", "FastGelu", "QuickGelu"]

ABOUT = {"Gelu": "a Gelu", "FastGelu": "a Gelu by Tanh", "QuickGelu": "a SiLU or QuickGelu"}

_TANH_SCALE = math.sqrt(2 / math.pi)
_CUBE = 0.044715
_HALVES: Polynomial = {(1, 0): 0.5, (1, 1): 0.5}
_PRODUCT: Polynomial = {(1, 1): 1.0}
_NEAR_MISS = 0.02
_DEPTH = 6


@dataclass(frozen=True)
class Gelu:
    """A Gelu in pieces.

    Attributes:
        kind: ``Gelu`` by Erf, ``FastGelu`` by Tanh, ``QuickGelu`` is ``x * Sigmoid(alpha * x)``.
        data: Its argument.
        nodes: The nodes that compute it now, without the last.
        last: The last of them.
        alpha: The alpha of a QuickGelu.
    """

    kind: GeluKind
    data: ir.Value
    nodes: frozenset[ir.Node]
    last: ir.Node
    alpha: float = 0.0


def gelu_of(node: ir.Node, view: View) -> Gelu | Skip | None:
    """Return the Gelu whose last node is ``node``, a Skip if it nearly is one, or None."""
    gelu = _standard_gelu(node) if is_op(node, "Gelu") else _gelu_in_pieces(node, view)
    if not isinstance(gelu, Gelu):
        return gelu
    dtype = view.shapes.dtype(gelu.data)
    if dtype not in FLOATS:
        type_text = "is not known here" if dtype is None else f"is {dtype.name.lower()}"
        return Skip(
            node, f"the type of {gelu.data.name!r} {type_text}; it is fused in float, float16"
        )
    if reason := why_used_elsewhere(gelu.nodes, node):
        return Skip(node, reason)
    return gelu


def bias_of(gelu: Gelu, view: View) -> tuple[ir.Value, ir.Value] | None:
    """Return the tensor and the bias of a sum that only the Gelu reads, or None."""
    node = gelu.data.producer()
    if not is_op(node, "Add") or why_used_elsewhere([node], gelu.last, gelu.nodes):
        return None
    for i in (0, 1):
        data, bias = node.inputs[1 - i], node.inputs[i]
        dims, size = view.shapes.dims(data), view.shapes.dims(bias)
        if data is None or bias is None or dims is None or size is None:
            continue
        if len(size) == 1 and dims and same_dim(size[0], dims[-1]):
            return data, bias
    return None


def _standard_gelu(node: ir.Node) -> Gelu | Skip | None:
    attribute, data = node.attributes.get("approximate"), node.inputs[0]
    if attribute is not None and attribute.is_ref():
        return Skip(node, "which Gelu it is is a parameter of the local function it is in")
    form = "none" if attribute is None else attribute.as_string()
    if data is None or form not in ("none", "tanh"):
        return None
    return Gelu("Gelu" if form == "none" else "FastGelu", data, frozenset(), node)


def _gelu_in_pieces(node: ir.Node, view: View) -> Gelu | Skip | None:
    curve_node = next(_curve_nodes(node), None)
    if curve_node is None:
        return None
    near_miss: Skip | None = None
    for data in _candidate_inputs(curve_node.inputs[0]):
        dtype = view.shapes.dtype(data) or ir.DataType.FLOAT
        outer, inner = (
            PolynomialReader(view, data, curve_node.outputs[0]),
            PolynomialReader(view, data),
        )
        outer_polynomial, argument = outer.read(node.outputs[0]), inner.read(curve_node.inputs[0])
        if outer_polynomial is None or argument is None:
            continue
        kind_and_alpha = _match_kind(curve_node.op_type, argument, outer_polynomial, dtype)
        if kind_and_alpha is not None:
            kind, alpha = kind_and_alpha
            nodes = frozenset({curve_node, *outer.nodes, *inner.nodes} - {node})
            return Gelu(kind, data, nodes, node, alpha)
        if (
            dtype in FLOATS
            and _match_kind(curve_node.op_type, argument, outer_polynomial, dtype, _NEAR_MISS)
            is not None
        ):
            near_miss = Skip(node, "its constants are near those of a Gelu and not the same")
    return near_miss


def _match_kind(
    op_type: str, argument: Polynomial, outer: Polynomial, dtype: ir.DataType, slack: float = 0.0
) -> tuple[GeluKind, float] | None:
    """Return which Gelu a function of ``argument`` within ``outer`` is, with its alpha."""
    if dtype not in FLOATS:
        dtype = ir.DataType.FLOAT
    if not are_close(outer, _PRODUCT if op_type == "Sigmoid" else _HALVES, dtype, slack):
        return None
    scale = argument.get((1,), 0.0)
    if op_type == "Erf":
        return ("Gelu", 0.0) if are_close(argument, {(1,): math.sqrt(0.5)}, dtype, slack) else None
    # Twice the Sigmoid of 2u, less 1, is the Tanh of u.
    twice = 1 if op_type == "Tanh" else 2
    if are_close(
        argument, {(1,): twice * _TANH_SCALE, (3,): twice * _TANH_SCALE * _CUBE}, dtype, slack
    ):
        return "FastGelu", 0.0
    if argument.keys() == {(1,)} and scale and not slack:
        return "QuickGelu", scale * (2 // twice)
    return None


def _curve_nodes(node: ir.Node, depth: int = 5) -> Iterator[ir.Node]:
    """Yield the Erf, Tanh or Sigmoid that ``node`` multiplies."""
    for value in node.inputs if is_op(node, "Mul", "Div", "Add", "Sub") else ():
        maker = producer_of(value)
        if is_op(maker, "Erf", "Tanh", "Sigmoid"):
            yield maker
        elif maker is not None and depth and is_op(maker, "Mul", "Div", "Add", "Sub"):
            yield from _curve_nodes(maker, depth - 1)


def _candidate_inputs(argument: ir.Value | None) -> Iterator[ir.Value]:
    """Yield what a function may be of: its argument and its sources, nearest first."""
    visited: dict[ir.Value, None] = {}
    level = [argument]
    for _ in range(_DEPTH):
        next_level: list[ir.Value | None] = []
        for value in level:
            if value is None or value in visited:
                continue
            visited[value] = None
            if len(value.uses()) > 1:
                yield value
            node = value.producer()
            if is_op(node, "Mul", "Div", "Add", "Sub", "Pow", "Neg"):
                next_level += node.inputs
        level = next_level
