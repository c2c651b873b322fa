"""Nodes that DirectML takes, and those that it leaves to the CPU, with the reason."""

import onnx_ir as ir

from graphfix.providers import placement
from graphfix.providers.directml.kernel_table import TABLE, Kernel
from graphfix.providers.directml.support_queries import refusal_reason
from graphfix.providers.table import PROVIDERS

# What DirectML has a tensor type for (GetDmlDataTypeFromMlDataTypeNoThrow).
_KNOWN = frozenset(
    ir.DataType[name]
    for name in (
        *("FLOAT", "FLOAT16", "DOUBLE", "BOOL", "INT8", "INT16", "INT32", "INT64", "INT4"),
        *("UINT8", "UINT16", "UINT32", "UINT64", "UINT4"),
    )
)


class PlacementRules(placement.PlacementRules[Kernel]):
    """DirectML's choice of nodes in a model that ONNX Runtime's optimizer has changed."""

    label = PROVIDERS["dml"].label
    table = TABLE

    def refusal_of(self, node: ir.Node, kernel: Kernel) -> str | None:
        """Return why DirectML refuses a node for which it has a kernel, or None."""
        reason = refusal_reason(node, kernel, self.shapes)
        if reason is not None:
            return f"DirectML's {node.op_type} refuses {reason}"
        for value in (*node.inputs, *node.outputs):
            if value is None or not value.name:
                continue
            dtype = self.shapes.dtype(value)
            if dtype is not None and dtype not in _KNOWN:
                return f"DirectML has no tensors of {dtype.name.lower()}"
        return None
