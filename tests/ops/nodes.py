"""Nodes of onnx-ir for readers, from samples and from text."""

import onnx
import onnx.parser
import onnx_ir as ir

from tests.ops.samples import Sample


def node_of(sample: Sample) -> ir.Node:
    """Return the node of a sample, its parameters as constants."""
    domain, _, op_type = sample.operator.rpartition(".")
    inputs: list[ir.Value | None] = []
    for i, x in enumerate(sample.inputs):
        if x is None:
            inputs.append(None)
        elif i in sample.data:
            inputs.append(ir.Value(name=f"x{i}", shape=ir.Shape(x.shape)))
        else:
            constant = ir.Node("", "Constant", [], [ir.AttrTensor("value", ir.tensor(x))])
            constant.outputs[0].shape = ir.Shape(x.shape)
            inputs.append(constant.outputs[0])
    attributes = [ir.convenience.convert_attribute(k, v) for k, v in sample.attributes.items()]
    return ir.Node(domain, op_type, inputs, attributes, num_outputs=sample.outputs)


def nodes_in(text: str) -> list[ir.Node]:
    """Return the nodes of a model in ONNX's text."""
    return list(ir.from_proto(onnx.parser.parse_model(text)).graph)


def node_in_text(text: str) -> ir.Node:
    """Return a node in text, with inputs x, w and v."""
    (node,) = nodes_in(
        f"""<ir_version: 8, opset_import: ["" : 21, "com.microsoft" : 1]>
        m (float x, float w, float v) => (float y) {{ y = {text} }}"""
    )
    return node
