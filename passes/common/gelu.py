"""Which Gelu the arithmetic around an Erf, a Tanh or a Sigmoid is, and of what."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir

from graphfix.core import Skip
from graphfix.facts.shapes import same
from graphfix.facts.view import View
from graphfix.graph.nodes import is_op, maker_of

from .fusible import FLOATS, used_elsewhere
from .polynomial import Polynomial, Reader, close

Kind = Literal["Gelu", "FastGelu", "QuickGelu"]

ABOUT = {"Gelu": "a Gelu", "FastGelu": "a Gelu by Tanh", "QuickGelu": "a SiLU or QuickGelu"}

_K = math.sqrt(2 / math.pi)
_CUBE = 0.044715
_HALVES: Polynomial = {(1, 0): 0.5, (1, 1): 0.5}
_PRODUCT: Polynomial = {(1, 1): 1.0}
_NEAR = 0.02
_DEPTH = 6


@dataclass(frozen=True)
class Gelu:
    """A Gelu.

    Attributes:
        kind: ``Gelu`` by Erf, ``FastGelu`` by Tanh, ``QuickGelu`` is ``x * Sigmoid(alpha * x)``.
        data: What it is taken of.
        nodes: What computes it now, the last node left out.
        alpha: That of a QuickGelu.
    """

    kind: Kind
    data: ir.Value
    nodes: frozenset[ir.Node]
    last: ir.Node
    alpha: float = 0.0


def gelu_of(node: ir.Node, view: View) -> Gelu | Skip | None:
    """The Gelu that ``node`` is the last node of; a Skip if it nearly is one."""
    found = _standard(node) if is_op(node, "Gelu") else _in_pieces(node, view)
    if not isinstance(found, Gelu):
        return found
    dtype = view.shapes.dtype(found.data)
    if dtype not in FLOATS:
        known = "is not known here" if dtype is None else f"is {dtype.name.lower()}"
        return Skip(node, f"the type of {found.data.name!r} {known}; it is fused in float, float16")
    if where := used_elsewhere(found.nodes, node):
        return Skip(node, where)
    return found


def bias_of(gelu: Gelu, view: View) -> tuple[ir.Value, ir.Value] | None:
    """The tensor and the bias of a sum that only the Gelu uses."""
    node = gelu.data.producer()
    if not is_op(node, "Add") or used_elsewhere([node], gelu.last, gelu.nodes):
        return None
    for i in (0, 1):
        data, bias = node.inputs[1 - i], node.inputs[i]
        dims, size = view.shapes.dims(data), view.shapes.dims(bias)
        if data is None or bias is None or dims is None or size is None:
            continue
        if len(size) == 1 and dims and same(size[0], dims[-1]):
            return data, bias
    return None


def _standard(node: ir.Node) -> Gelu | Skip | None:
    attribute, data = node.attributes.get("approximate"), node.inputs[0]
    if attribute is not None and attribute.is_ref():
        return Skip(node, "which Gelu it is is a parameter of the local function it is in")
    form = "none" if attribute is None else attribute.as_string()
    if data is None or form not in ("none", "tanh"):
        return None
    return Gelu("Gelu" if form == "none" else "FastGelu", data, frozenset(), node)


def _in_pieces(node: ir.Node, view: View) -> Gelu | Skip | None:
    curved = next(_curved(node), None)
    if curved is None:
        return None
    near: Skip | None = None
    for data in _candidates(curved.inputs[0]):
        dtype = view.shapes.dtype(data) or ir.DataType.FLOAT
        whole, inner = Reader(view, data, curved.outputs[0]), Reader(view, data)
        shape, argument = whole.read(node.outputs[0]), inner.read(curved.inputs[0])
        if shape is None or argument is None:
            continue
        known = _known(curved.op_type, argument, shape, dtype)
        if known is not None:
            kind, alpha = known
            nodes = frozenset({curved, *whole.nodes, *inner.nodes} - {node})
            return Gelu(kind, data, nodes, node, alpha)
        if dtype in FLOATS and _known(curved.op_type, argument, shape, dtype, _NEAR) is not None:
            near = Skip(node, "its constants are near those of a Gelu and not the same")
    return near


def _known(
    op_type: str, argument: Polynomial, shape: Polynomial, dtype: ir.DataType, slack: float = 0.0
) -> tuple[Kind, float] | None:
    """Which Gelu a function of ``argument`` in a whole of ``shape`` is, with its alpha."""
    if dtype not in FLOATS:
        dtype = ir.DataType.FLOAT
    if not close(shape, _PRODUCT if op_type == "Sigmoid" else _HALVES, dtype, slack):
        return None
    scale = argument.get((1,), 0.0)
    if op_type == "Erf":
        return ("Gelu", 0.0) if close(argument, {(1,): math.sqrt(0.5)}, dtype, slack) else None
    # Twice the Sigmoid of 2u, less 1, is the Tanh of u.
    twice = 1 if op_type == "Tanh" else 2
    if close(argument, {(1,): twice * _K, (3,): twice * _K * _CUBE}, dtype, slack):
        return "FastGelu", 0.0
    if argument.keys() == {(1,)} and scale and not slack:
        return "QuickGelu", scale * (2 // twice)
    return None


def _curved(node: ir.Node, depth: int = 5) -> Iterator[ir.Node]:
    """The Erf, Tanh or Sigmoid that ``node`` multiplies."""
    for value in node.inputs if is_op(node, "Mul", "Div", "Add", "Sub") else ():
        maker = maker_of(value)
        if is_op(maker, "Erf", "Tanh", "Sigmoid"):
            yield maker
        elif maker is not None and depth and is_op(maker, "Mul", "Div", "Add", "Sub"):
            yield from _curved(maker, depth - 1)


def _candidates(argument: ir.Value | None) -> Iterator[ir.Value]:
    """What a function may be of: its argument, and what that is computed from, nearest first."""
    seen: dict[ir.Value, None] = {}
    level = [argument]
    for _ in range(_DEPTH):
        after: list[ir.Value | None] = []
        for value in level:
            if value is None or value in seen:
                continue
            seen[value] = None
            if len(value.uses()) > 1:
                yield value
            node = value.producer()
            if is_op(node, "Mul", "Div", "Add", "Sub", "Pow", "Neg"):
                after += node.inputs
        level = after
