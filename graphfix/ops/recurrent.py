"""Read LSTM, GRU and RNN."""

from __future__ import annotations

import onnx_ir as ir

from graphfix.graph.nodes import attr_int
from graphfix.ops.op_set import qualified_name

_TRANSPOSED = "com.microsoft.DynamicQuantizeLSTM"
INITIAL_STATES = (5, 6)
"""The inputs that are initial states: hidden ones, and an LSTM's cells."""
ROW_LENGTHS = 4
"""The input that is the length of each row."""


def feature_axis_of_weight(node: ir.Node) -> int:
    """Return the axis of the input weight W that is as long as the last dim of the data.

    ``[directions, gates * hidden, features]``; DynamicQuantizeLSTM has the last two swapped.
    """
    return 1 if qualified_name(node) == _TRANSPOSED else 2


def row_axis_of(node: ir.Node) -> int:
    """Return the axis of the rows of a batch, of the data and of the states."""
    return 0 if attr_int(node, "layout", 0) else 1
