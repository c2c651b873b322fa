"""Read LSTM, GRU and RNN."""

from __future__ import annotations

import onnx_ir as ir

from graphfix.ops.op_set import qualified_name

_TRANSPOSED = "com.microsoft.DynamicQuantizeLSTM"


def feature_axis_of_weight(node: ir.Node) -> int:
    """Return the axis of the input weight W that is as long as the last dim of the data.

    ``[directions, gates * hidden, features]``; DynamicQuantizeLSTM has the last two swapped.
    """
    return 1 if qualified_name(node) == _TRANSPOSED else 2
