"""What the schemas of operators ask of a node, as ONNX's own checker says it.

ONNX Runtime asks the same checker of each node. It is asked once for all nodes that differ in
names and values only.
"""

import onnx

from graphfix.files.malformed import MalformedError, name_of

_TYPES = onnx.AttributeProto


# What stands for values that say nothing of a node: a graph reads what is outside of it, and a
# tensor may lie in another file.
_GRAPH, _TENSOR = onnx.GraphProto(name="g"), onnx.TensorProto(name="t", data_type=1, dims=[0])


def require_node(node: onnx.NodeProto, domain: str, version: int) -> None:
    """Raise MalformedError if the checker refuses a node, whatever its attributes hold.

    Args:
        node: A node of an operator that :func:`version_of` knows.
        domain: Its operator set; empty for the standard one.
        version: The version of that.
    """
    one = onnx.NodeProto()
    one.CopyFrom(node)
    one.domain = domain
    for attribute in one.attribute:
        if attribute.type == _TYPES.GRAPH and attribute.HasField("g"):
            attribute.g.CopyFrom(_GRAPH)
        elif attribute.type == _TYPES.TENSOR and attribute.HasField("t"):
            attribute.t.CopyFrom(_TENSOR)
    context = onnx.checker.C.CheckerContext()
    context.ir_version, context.opset_imports = onnx.IR_VERSION, {domain: version}
    try:
        onnx.checker.check_node(one, context)
    except onnx.checker.ValidationError as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise MalformedError(f"{node.op_type} of {name_of(node)!r}: {reason}") from None


def require_bodies(node: onnx.NodeProto) -> None:
    """Raise MalformedError if the graphs in a node have not as many inputs and outputs as it needs.

    https://onnx.ai/onnx/operators/onnx__Loop.html: a body takes the number of the trip, the
    condition and what is carried, and returns the condition, what is carried, and what is stacked.
    """
    given, made = len(node.input), len(node.output)
    for attribute in node.attribute:
        body = attribute.g
        takes, returns = len(body.input), len(body.output)
        if node.op_type == "If":
            fits = not takes and returns == made
        elif node.op_type == "Loop":
            carried = max(given - 2, 0)
            fits = takes == carried + 2 and returns > max(carried, made)
        else:
            fits = takes <= given and returns >= made
        if attribute.HasField("g") and not fits:
            raise MalformedError(
                f"the {attribute.name} of {node.op_type} of {name_of(node)!r} has {takes} inputs "
                f"and {returns} outputs, which does not fit the {given} and {made} of the node"
            )
