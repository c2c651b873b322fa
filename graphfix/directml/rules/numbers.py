"""Numbers that do not survive a narrower type."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
import onnx_ir as ir

from graphfix.model.values import attr_int, const_of, is_op

from .base import Hazard, Provider, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphfix.model.view import View

_LOWEST = -65504.0
_FLOAT16 = ir.DataType.FLOAT16


class LowFloat16(Rule):
    """A constant of -inf or the float minimum that is, or would be, a float16.

    In a model of float16 it is a warning. In another it is a note: it matters once a converter
    turns the model to float16.

    Why:
        The lowest float16 is -65504: what is lower becomes -inf, and a row of scores that is -inf
        throughout is NaN after its Softmax. Run on onnxruntime-directml 1.24.4: in float16 a row
        whose keys are all hidden is NaN if even -65504 is added once, to scores below -16.

    Flagged:
        <ir_version: 8, opset_import: ["" : 17]>
        masked (float16[B, T] scores, bool[B, T] hidden) => (float16[B, T] y)
        <float lowest = {-3.4e38}>
        {
            low = Cast <to = 10> (lowest)
            y = Where (hidden, low, scores)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17]>
        masked (float16[B, T] scores, bool[B, T] hidden) => (float16[B, T] y)
        <float floor = {-10000.0}>
        {
            low = Cast <to = 10> (floor)
            y = Where (hidden, low, scores)
        }
    """

    name: ClassVar[str] = "low-float16"
    providers: ClassVar[tuple[Provider, ...]] = ("dml", "cpu", "cuda")

    def hazards(self, view: View) -> Iterator[Hazard]:
        """Each node that such a constant goes into, once for each constant."""
        halves = _is_float16(view)
        told = set[ir.Value]()
        for node in view.nodes(*_TAKERS):
            for value in node.inputs:
                if value is None or value in told or (low := _lowest(value)) is None:
                    continue
                if low >= _LOWEST and not (halves and low == _LOWEST):
                    continue
                told.add(value)
                becomes = "-inf" if low < _LOWEST else "-65504, which a sum takes to -inf"
                if halves:
                    yield Hazard(node, f"{low:.4g} is {becomes} in float16: -1e4 hides as well")
                else:
                    later = f"{low:.4g} would be {becomes} in float16, if the model is converted"
                    yield Hazard(node, later, "note")


_TAKERS = ("Where", "Add", "Mul", "Cast", "CastLike", "Expand", "Max", "Clip")


def _lowest(value: ir.Value) -> float | None:
    array = const_of(value)
    if array is None or array.size == 0 or array.dtype.kind != "f":
        return None
    return float(np.min(array))


def _is_float16(view: View) -> bool:
    """Whether the model computes in float16 anywhere."""
    if any(attr_int(node, "to", 0) == _FLOAT16 for node in view.nodes("Cast")):
        return True
    nodes = view.model.graph.all_nodes()
    return any(
        view.shapes.dtype(x) == _FLOAT16
        for node in nodes
        if not is_op(node, "Constant")
        for x in node.outputs
    )
