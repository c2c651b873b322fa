"""What is wrong with a graph, and where."""

import onnx


class MalformedError(ValueError):
    """What is wrong with a graph, and where."""


def name_of(node: onnx.NodeProto) -> str:
    """What a node is called, or the first tensor that it makes."""
    return node.name or next((x for x in node.output if x), "")
