"""Nodes of onnx-ir for readers, from samples and from text."""

import onnx
import onnx_ir as ir

from tests.ops.samples import Sample


def node_of(sample: Sample) -> ir.Node:
    """Return the node of a sample, its parameters as constants."""
    domain, _, op_type = sample.operator.rpartition(".")
    inputs = []
    for i, x in enumerate(sample.inputs):
        value = None if x is None else ir.Value(name=f"x{i}", shape=ir.Shape(x.shape))
        if value is not None and i not in sample.data:
            value.const_value = ir.tensor(x, name=f"x{i}")
            ir.Graph([], [], nodes=[], initializers=[value])
        inputs.append(value)
    attributes = [ir.convenience.convert_attribute(k, v) for k, v in sample.attributes.items()]
    return ir.Node(domain, op_type, inputs, attributes, num_outputs=sample.outputs)


def nodes_in(text: str) -> list[ir.Node]:
    """Return the nodes of a model in ONNX's text."""
    return list(ir.from_proto(onnx.parser.parse_model(text)).graph)
