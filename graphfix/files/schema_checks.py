"""What the schemas of operators ask of a node, as ONNX's own checker says it.

ONNX Runtime asks the same checker of each node. It is asked once for all nodes that differ in
names and values only.
"""

import onnx

from graphfix.files.malformed import MalformedError, name_of_node

_TYPES = onnx.AttributeProto


# What stands for values that say nothing of a node: a graph reads what is outside of it, and a
# tensor may lie in another file.
_GRAPH, _TENSOR = onnx.GraphProto(name="g"), onnx.TensorProto(name="t", data_type=1, dims=[0])


def require_valid_node(node: onnx.NodeProto, domain: str, version: int) -> None:
    """Raise MalformedError if the checker refuses a node, whatever its attributes hold.

    Args:
        node: A node of an operator that :func:`schema_version` knows.
        domain: Its operator set; empty for the standard one.
        version: The version of that.
    """
    bare_node = onnx.NodeProto()
    bare_node.CopyFrom(node)
    bare_node.domain = domain
    for attribute in bare_node.attribute:
        if attribute.type == _TYPES.GRAPH and attribute.HasField("g"):
            attribute.g.CopyFrom(_GRAPH)
        elif attribute.type == _TYPES.TENSOR and attribute.HasField("t"):
            attribute.t.CopyFrom(_TENSOR)
    context = onnx.checker.C.CheckerContext()
    context.ir_version, context.opset_imports = onnx.IR_VERSION, {domain: version}
    try:
        onnx.checker.check_node(bare_node, context)
    except onnx.checker.ValidationError as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise MalformedError(f"{node.op_type} of {name_of_node(node)!r}: {reason}") from None


def require_matching_bodies(node: onnx.NodeProto) -> None:
    """Raise MalformedError if a node's graphs have a wrong number of inputs or outputs.

    https://onnx.ai/onnx/operators/onnx__Loop.html: a body takes the number of the trip, the
    condition and what is carried, and returns the condition, what is carried, and what is stacked.
    """
    input_count, output_count = len(node.input), len(node.output)
    for attribute in node.attribute:
        body = attribute.g
        body_inputs, body_outputs = len(body.input), len(body.output)
        if node.op_type == "If":
            fits = not body_inputs and body_outputs == output_count
        elif node.op_type == "Loop":
            carried = max(input_count - 2, 0)
            fits = body_inputs == carried + 2 and body_outputs > max(carried, output_count)
        else:
            fits = body_inputs <= input_count and body_outputs >= output_count
        if attribute.HasField("g") and not fits:
            raise MalformedError(
                f"the {attribute.name} of {node.op_type} of {name_of_node(node)!r} has "
                f"{body_inputs} inputs "
                ""
                f"and {body_outputs} outputs, which does not fit the {input_count} and "
                f"{output_count} of the node"
            )
