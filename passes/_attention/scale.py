"""The one number that a computed scale comes to, such as 1 / sqrt(Shape(q)[-1])."""

from __future__ import annotations

import math

import onnx_ir as ir

from graphfix.model.values import is_op, scalar_of
from graphfix.model.view import View

_LAYOUT = ("Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape")
_DEEP = 16


def number_of(value: ir.Value | None, view: View, deep: int = _DEEP) -> float | None:
    """The number that a tensor of one element holds in each run; None if it is not seen."""
    if value is None or deep == 0:
        return None
    dims = view.shapes.dims(value)
    constant = scalar_of(value)
    if constant is not None:
        return None if dims is None or any(dim != 1 for dim in dims) else float(constant)
    data = view.shapes.data(value)
    if data is not None and len(data) == 1 and isinstance(data[0], int):
        return float(data[0])
    node = value.producer()
    if node is None or not is_op(node, node.op_type):
        return None
    sources = node.inputs[:1] if node.op_type in _LAYOUT else node.inputs
    numbers = [number_of(x, view, deep - 1) for x in sources]
    known = [x for x in numbers if x is not None]
    return _applied(node.op_type, known) if known and len(known) == len(numbers) else None


def _applied(op_type: str, numbers: list[float]) -> float | None:
    first = numbers[0]
    if op_type in _LAYOUT:
        return first
    if op_type == "Sqrt":
        return math.sqrt(first) if first >= 0 else None
    if op_type == "Reciprocal":
        return 1 / first if first else None
    if len(numbers) != 2:
        return None
    second = numbers[1]
    if op_type == "Mul":
        return first * second
    if op_type == "Div":
        return first / second if second else None
    if op_type == "Pow":
        return first**second if first > 0 else None
    return None
