"""What ONNX's checker says of a node, and how many inputs and outputs a body may have."""

from __future__ import annotations

import onnx
import onnx.parser
import pytest

from graphfix.files.malformed import MalformedError
from graphfix.files.schema_checks import require_matching_bodies, require_valid_node


def node_of(text: str) -> onnx.NodeProto:
    """Return the last node of a body."""
    graph = onnx.parser.parse_graph(f"g (float[2] x, bool b, int64 n) => (float[2] y) {{ {text} }}")
    return graph.node[-1]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("y = Relu (x)", 17),
        ("y = Gelu (x)", 20),
        # A body reads what is outside of it, and a tensor may lie in another file.
        (
            "y = If (b) <then_branch = a () => (float[2] p) { p = Neg (x) }, "
            "else_branch = c () => (float[2] q) { q = Relu (x) }>",
            17,
        ),
        ("y = Constant <value = float[2] {1, 2}> ()", 17),
    ],
)
def test_a_node_that_is_valid(text: str, version: int) -> None:
    node = node_of(text)
    before = node.SerializeToString()
    require_valid_node(node, "", version)
    assert node.SerializeToString() == before


@pytest.mark.parametrize(
    ("text", "version", "reason"),
    [
        ("y = Relu ()", 17, "Relu of 'y': "),
        ("y = Relu (x, x)", 17, "has input size 2 not in range"),
        ("y = Softmax <sideways = 1> (x)", 17, "Unrecognized attribute: sideways"),
        ("y = If (b) <then_branch = a () => (float[2] p) { p = Neg (x) }>", 17, "If of 'y'"),
    ],
)
def test_a_node_that_is_not(text: str, version: int, reason: str) -> None:
    with pytest.raises(MalformedError) as error:
        require_valid_node(node_of(text), "", version)
    assert reason in str(error.value)
    assert "\n" not in str(error.value)
    assert not str(error.value).endswith(".")


def test_a_tensor_in_another_file_is_not_looked_for() -> None:
    node = node_of("y = Constant <value = float[2] {1, 2}> ()")
    tensor = node.attribute[0].t
    del tensor.float_data[:]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="nowhere.data")
    require_valid_node(node, "", 17)


def body(kind: str, inputs: int, outputs: int) -> onnx.AttributeProto:
    """Return a graph with so many inputs and outputs."""
    graph = onnx.GraphProto(name=kind)
    graph.input.extend(onnx.ValueInfoProto(name=f"i{i}") for i in range(inputs))
    graph.output.extend(onnx.ValueInfoProto(name=f"o{i}") for i in range(outputs))
    return onnx.AttributeProto(name=kind, type=onnx.AttributeProto.GRAPH, g=graph)


@pytest.mark.parametrize(
    ("operator", "inputs", "outputs", "body_inputs", "body_outputs", "fits"),
    [
        ("If", 1, 2, 0, 2, True),
        ("If", 1, 2, 1, 2, False),
        ("If", 1, 2, 0, 1, False),
        ("If", 1, 2, 0, 3, False),
        # Two carried, of which one more is stacked.
        ("Loop", 4, 3, 4, 4, True),
        ("Loop", 4, 2, 4, 4, True),
        ("Loop", 4, 3, 3, 4, False),
        ("Loop", 4, 3, 5, 4, False),
        ("Loop", 4, 3, 4, 3, False),
        ("Loop", 4, 1, 4, 2, False),
        # Neither the most trips nor a condition are given, and nothing is carried.
        ("Loop", 0, 0, 2, 1, True),
        ("Loop", 1, 1, 2, 2, True),
        ("SequenceMap", 2, 1, 2, 1, True),
        ("SequenceMap", 2, 1, 1, 1, False),
        ("SequenceMap", 2, 1, 2, 2, False),
        ("Scan", 3, 2, 3, 2, True),
        ("Scan", 3, 2, 2, 3, True),
        ("Scan", 3, 2, 4, 2, False),
        ("Scan", 3, 2, 3, 1, False),
    ],
)
def test_the_bodies_of_a_node(
    operator: str, inputs: int, outputs: int, body_inputs: int, body_outputs: int, fits: bool
) -> None:
    node = onnx.NodeProto(op_type=operator, input=["x"] * inputs, output=["y"] * outputs)
    node.attribute.append(body("body", body_inputs, body_outputs))
    if fits:
        require_matching_bodies(node)
        return
    with pytest.raises(MalformedError) as error:
        require_matching_bodies(node)
    assert (
        f"has {body_inputs} inputs and {body_outputs} outputs, which does not fit the {inputs} "
        f"and {outputs} of the node"
    ) in str(error.value)


def test_an_attribute_that_is_no_graph_has_no_inputs() -> None:
    node = onnx.NodeProto(op_type="If", input=["b"], output=["y"])
    node.attribute.add(name="then_branch", type=onnx.AttributeProto.INT, i=1)
    require_matching_bodies(node)
