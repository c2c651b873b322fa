"""Nodes whose result is the same in each run, and the Ifs that a constant decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from graphfix.model.values import is_op

from ._fold_look import LIMIT, Found, constant_of
from ._folding import EXACT, evaluated, is_exact, is_small

if TYPE_CHECKING:
    from ._fold_look import Array, Look

# Worked out in float64 and rounded once: within what a kernel of that type may be off itself.
_ROUNDED = (
    *("Cos", "Erf", "Exp", "Log", "Neg", "Pow", "Reciprocal", "Sigmoid", "Sin", "Tanh"),
    *("Add", "Sub", "Mul", "Div", "Sqrt"),
)
_HALVES = (ir.DataType.FLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE)


WORKED_OUT = frozenset({*_ROUNDED, *EXACT})
"""The operators that :func:`worked_out` looks at."""


def known(node: ir.Node, look: Look) -> Found | None:
    """A node of which shape inference says what it makes becomes that."""
    if len(node.outputs) != 1 or look.view.shapes.data(node.outputs[0]) is None:
        return None  # nearly always
    return None if is_op(node, "Constant", "Identity") else _same(_from_sizes(node, look))


def worked_out(node: ir.Node, look: Look) -> Found | None:
    """A node that makes the same of constants in each run becomes what it makes."""
    if is_op(node, "Identity") or len(node.outputs) != 1 or not node.inputs:
        return None
    return _same(_from_constants(node, look))


def _same(held: Array | None) -> Found | None:
    if held is None:
        return None
    return Found("it makes the same in each run", lambda op: [op.constant(held)])


def _from_sizes(node: ir.Node, look: Look) -> Array | None:
    made = node.outputs[0]
    if (numbers := look.numbers(made)) is None:  # nearly always
        return None
    dtype, dims = look.view.shapes.dtype(made), look.dims(made)
    if dims is None or dtype is None:
        return None
    sizes = [x for x in dims if isinstance(x, int)]
    return np.array(numbers, dtype.numpy()).reshape(sizes) if len(sizes) == len(dims) else None


def _from_constants(node: ir.Node, look: Look) -> Array | None:
    if any(x is not None and constant_of(x, LIMIT) is None for x in node.inputs):
        return None
    view = look.view
    if is_exact(node, view):
        return evaluated(node, lambda x: constant_of(x, LIMIT), view)
    if not is_op(node, *_ROUNDED) or not is_small(node, view):
        return None
    arrays = {x.name or "": constant_of(x, LIMIT) for x in node.inputs if x is not None}
    dtype = view.shapes.dtype(node.outputs[0])
    if dtype not in _HALVES or any(x is None or x.dtype.kind != "f" for x in arrays.values()):
        return None
    wide = {name: x.astype(np.float64) for name, x in arrays.items() if x is not None}
    with np.errstate(all="ignore"):
        result, *_ = ReferenceEvaluator(ir.to_proto(node), opsets={"": view.opset(node)}).run(
            None, wide
        )
        return np.asarray(result).astype(dtype.numpy())


def decided_if(node: ir.Node, look: Look) -> Found | None:
    """An If whose condition is a constant becomes the branch that it takes."""
    if not is_op(node, "If"):
        return None
    condition = constant_of(node.inputs[0])
    names = ("then_branch", "else_branch")
    if condition is None or condition.size != 1 or not all(x in node.attributes for x in names):
        return None
    branch = node.attributes[names[0 if condition.item() else 1]]
    if branch.is_ref() or _says_too_much(node, branch.as_graph(), look):
        return None
    return Found(
        f"its condition is always {bool(condition.item())}: one branch stands in its place",
        lambda op: op.inline(branch.as_graph()),
    )


def _says_too_much(node: ir.Node, branch: ir.Graph, look: Look) -> bool:
    """Whether ONNX Runtime would not load what it runs while the If hides a rank from it.

    A Range takes a vector of one element when it runs, and is rejected where it is seen to be one.
    """
    return any(
        look.view.shapes.rank(inner) not in (None, 0)
        for made, inner in zip(node.outputs, branch.outputs, strict=True)
        if any(is_op(use.node, "Range") for use in made.uses())
    )
