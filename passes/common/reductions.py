"""Reductions over axes that are known: an attribute or an input, by opset."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder

_AXES_INPUT_OPSET = 18
_SUM_AXES_INPUT_OPSET = 13


def build_reduction(
    op_type: str, value: ir.Value, axes: Sequence[int], op: Builder, *, keepdims: bool = True
) -> ir.Value:
    """Build a reduction of ``value`` over ``axes``, which are not empty."""
    since = _SUM_AXES_INPUT_OPSET if op_type == "ReduceSum" else _AXES_INPUT_OPSET
    if op.view.opset_of_node(op.site) < since:
        return op.make(op_type, value, axes=list(axes), keepdims=int(keepdims))
    return op.make(op_type, value, np.array(axes, np.int64), keepdims=int(keepdims))
