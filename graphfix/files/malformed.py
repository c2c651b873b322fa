"""The error for malformed graphs."""

import onnx


class MalformedError(ValueError):
    """A graph is malformed; the message says what is wrong, and where."""


def name_of_node(node: onnx.NodeProto) -> str:
    """Return the name of a node, or of the first tensor that it makes."""
    return node.name or next((x for x in node.output if x), "")
