"""The branches of an If: whether both may be computed, and what that would cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from graphfix.model.symbolic import key_of
from graphfix.model.values import const_of, is_op
from graphfix.words import a_or_an

from ._fold_uniform import broadcast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphfix.model.view import View

    from ._fold_look import Key

CONTROL = ("If", "Loop", "Scan")

_T = ir.DataType
_FLOATS = frozenset({_T.FLOAT, _T.FLOAT16, _T.DOUBLE})
# What ONNX Runtime's CPU has a Where for; one of float16 it casts.
_CHOSEN = frozenset({*_FLOATS, _T.INT64, _T.INT32, _T.UINT8})
_NUMBERS = frozenset({*_CHOSEN, _T.BOOL, _T.INT8})
_FIRST_OF_WHERE = 9

# Element by element, and no number that they are given makes them fail.
_ELEMENTWISE = frozenset(
    {"Identity", "Neg", "Abs", "Sign", "Relu", "Sigmoid", "Tanh", "Exp", "Log", "Sqrt", "Floor"}
    | {"Ceil", "Round", "Erf", "Sin", "Cos", "Reciprocal", "LeakyRelu", "Softplus", "Not"}
    | {"IsNaN", "Cast", "Add", "Sub", "Mul", "Div", "Min", "Max", "And", "Or", "Xor", "Where"}
    | {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"}
)


@dataclass(frozen=True)
class Cost:
    """Kernels of an If.

    Attributes:
        before: Those of a run that goes through the shorter branch: the If, and what is in it.
        after: Those of a Where for each output, and of both branches: what only copies goes.
    """

    before: int
    after: int


def cost_of(node: ir.Node, branches: Sequence[ir.Graph]) -> Cost:
    """What an If costs, and what would stand in its place; constants cost nothing."""
    nodes = [[x for x in branch if not is_op(x, "Constant")] for branch in branches]
    copies = {
        node
        for branch in branches
        for value in branch.outputs
        for node in _copies(value)
        if all(use.node in _copies(value) for use in node.outputs[0].uses())
    }
    chosen = sum(i == 0 or is_used(x) for i, x in enumerate(node.outputs))
    return Cost(1 + min(map(len, nodes)), chosen + sum(map(len, nodes)) - len(copies))


def is_used(value: ir.Value) -> bool:
    """Whether anything needs a value."""
    return bool(value.uses()) or value.is_graph_output()


def last(value: ir.Value) -> ir.Value:
    """What an output of a branch is a copy of."""
    copies = _copies(value)
    source = copies[-1].inputs[0] if copies else None
    return value if source is None else source


def _copies(value: ir.Value) -> list[ir.Node]:
    """The Identities that end in ``value``, the last first."""
    found: list[ir.Node] = []
    while is_op(node := value.producer(), "Identity") and node.inputs[0] is not None:
        found.append(node)
        value = node.inputs[0]
    return found


def reason_against(
    node: ir.Node, condition: ir.Value, branches: Sequence[ir.Graph], view: View
) -> str | None:
    """Why both branches of an If may not be computed; "" if it is no site at all."""
    if const_of(condition) is not None:
        return ""  # fold knows which branch it is
    if view.in_function(node):
        return "its shapes depend on the calls of the local function it is in"
    if view.opset(node) < _FIRST_OF_WHERE:
        return f"opset {view.opset(node)} has no Where: export with 9 or a newer one"
    for which, branch in zip(("then", "else"), branches, strict=True):
        for inner in branch:
            if reason := _may_fail(inner, view):
                return f"its {which} branch {reason}"
    for out, *pair in zip(node.outputs, *(x.outputs for x in branches), strict=True):
        if reason := _unlike(out, pair, condition, view):
            return reason
    return None


def _may_fail(node: ir.Node, view: View) -> str:
    """Why a node may not be computed where its branch is not taken."""
    if is_op(node, "Constant"):
        return ""
    if is_op(node, *CONTROL):
        return f"holds {a_or_an(node.op_type)}, which is control flow itself"
    given = [x for x in node.inputs if x is not None]
    dtypes = {view.shapes.dtype(x) for x in (*given, *node.outputs)}
    if is_op(node, "Div") and not dtypes <= _FLOATS:
        return "divides integers, which fails by 0 although the branch is not taken"
    if not is_op(node, *_ELEMENTWISE):
        held = a_or_an(node.op_type)
        return f"holds {held}, which may fail where the branch is not taken, or takes long"
    if not dtypes <= _NUMBERS:
        return f"computes {node.op_type} of a type that is not known, or none of numbers"
    dims = [_keys(x, view) for x in given]
    known = [x for x in dims if x is not None]
    if len(known) < len(dims) or (len(known) > 1 and broadcast(known) is None):
        return f"holds {a_or_an(node.op_type)} of shapes that are not seen to fit at every size"
    return ""


def _unlike(out: ir.Value, pair: Sequence[ir.Value], condition: ir.Value, view: View) -> str:
    """Why a Where of what the branches make would not be what the If gives."""
    types = [view.shapes.dtype(x) for x in pair]
    if any(isinstance(x.type, ir.SequenceType | ir.OptionalType) for x in (out, *pair)):
        return f"{out.name!r} is a sequence or optional, between which no Where chooses"
    if types[0] is None or types[0] != types[1]:
        return f"the branches make {out.name!r} of types that are not seen to be equal"
    if types[0] not in _CHOSEN:
        return f"{out.name!r} is of {types[0].name.lower()}, which ONNX Runtime's CPU cannot choose"
    dims = [_keys(x, view) for x in pair]
    if dims[0] is None or dims[0] != dims[1]:
        return f"the branches make {out.name!r} of shapes that are not seen to be equal"
    asked = _keys(condition, view)
    if asked is None or any(x != 1 for x in asked) or len(asked) > len(dims[0]):
        return f"its condition {condition.name!r} is not seen to be a scalar"
    return ""


def _keys(value: ir.Value, view: View) -> tuple[Key, ...] | None:
    dims = view.shapes.dims(value)
    keys = [] if dims is None else [key_of(x) for x in dims]
    known = tuple(x for x in keys if x is not None)
    return None if dims is None or len(known) < len(keys) else known
