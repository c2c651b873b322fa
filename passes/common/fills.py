"""A tensor filled with one number."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.graph.constants import const_of, fill_value_of, uniform_number
from graphfix.graph.nodes import attr_int, is_op

FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE)

# One output, filled with the number that fills the first input.
_KEEPS_FILL = ops.MOVES_FIRST_INPUT - ops.named("Split")


@dataclass(frozen=True)
class Fill:
    """A tensor filled with one number.

    Attributes:
        number: The number.
        dtype: The numpy type of its elements.
        rank: Its rank if it has a single element; None if it has a larger shape.
    """

    number: float
    dtype: np.dtype[np.generic]
    rank: int | None


def fill_of(value: ir.Value | None) -> Fill | None:
    """Return the one float that ``value`` is filled with, also where it is moved, or None."""
    own_shape, dtype = False, None
    while value is not None:
        array, node = const_of(value), value.producer()
        if array is None and is_op(node, "ConstantOfShape"):
            own_shape, array = True, fill_value_of(node)
        if array is not None:
            kind = array.dtype if dtype is None else dtype
            number = None if kind.kind in "biu" else uniform_number(array)
            if number is None:
                return None
            return Fill(float(number), kind, None if own_shape or array.size != 1 else array.ndim)
        if is_op(node, "Cast"):
            target = ir.DataType(attr_int(node, "to", 0))
            dtype = dtype or (target.numpy() if target in FLOATS else np.dtype(bool))
        elif _KEEPS_FILL.has(node):
            own_shape = True
        else:
            return None
        value = node.inputs[0]
    return None
