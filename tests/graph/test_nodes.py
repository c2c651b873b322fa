"""Readers of one node: operator, inputs, attributes."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.graph.nodes import (
    attr_float,
    attr_int,
    attr_ints,
    attr_text,
    attribute_dict,
    input_at,
    is_op,
    producer_of,
    tensor_attributes,
    tensor_of_attr,
    use_count,
    value_before,
)

TEXT = """<ir_version: 9, opset_import: ["" : 17, "own" : 1]>
    m (float[N] x) => (float[N] y) {
        a = Neg (x) b = Identity (a) c = Identity (b) d = Cast <to = 1> (c)
        k = Constant <value = float {2.0}> ()
        e = LeakyRelu <alpha = 0.5> (d) f = Concat <axis = 1> (e, e, k)
        g = Pad <pads = [1, 2], mode = "edge"> (f) y = own.Neg (g) }"""


@pytest.fixture
def nodes() -> dict[str, ir.Node]:
    return {node.outputs[0].name or "": node for node in ir.from_onnx_text(TEXT).graph}


def test_operators_of_the_standard_domain(nodes: dict[str, ir.Node]) -> None:
    assert is_op(nodes["a"], "Neg")
    assert is_op(nodes["a"], "Abs", "Neg")
    assert not is_op(nodes["a"], "Abs")
    assert not is_op(nodes["y"], "Neg")
    assert not is_op(None, "Neg")
    nodes["a"].domain = "ai.onnx"
    assert is_op(nodes["a"], "Neg")


def test_what_is_before_a_value(nodes: dict[str, ir.Node]) -> None:
    d = nodes["d"].outputs[0]
    assert producer_of(d) is nodes["d"]
    assert producer_of(d, "Cast") is nodes["c"]
    assert producer_of(d, "Cast", "Identity") is nodes["a"]
    assert producer_of(d, "Identity") is nodes["d"]
    assert producer_of(None) is None
    assert producer_of(None, "Cast") is None
    x = nodes["a"].inputs[0]
    assert producer_of(x) is None
    assert value_before(d, "Cast", "Identity", "Neg") is x
    assert value_before(d) is d
    assert value_before(None, "Cast") is None


def test_uses_are_counted(nodes: dict[str, ir.Node]) -> None:
    assert use_count(nodes["e"].outputs[0]) == 2
    assert use_count(nodes["a"].outputs[0]) == 1
    assert use_count(nodes["y"].outputs[0]) == 0


def test_inputs_that_are_absent(nodes: dict[str, ir.Node]) -> None:
    assert input_at(nodes["f"], 0) is nodes["e"].outputs[0]
    assert input_at(nodes["f"], 2) is nodes["k"].outputs[0]
    assert input_at(nodes["f"], 3) is None


def test_attributes(nodes: dict[str, ir.Node]) -> None:
    assert attr_int(nodes["f"], "axis", 7) == 1
    assert attr_int(nodes["a"], "axis", 7) == 7
    assert attr_float(nodes["e"], "alpha", 0.25) == 0.5
    assert attr_float(nodes["a"], "alpha", 0.25) == 0.25
    assert attr_text(nodes["g"], "mode", "constant") == "edge"
    assert attr_text(nodes["a"], "mode", "constant") == "constant"
    assert attr_ints(nodes["g"], "pads") == (1, 2)
    assert attr_ints(nodes["a"], "pads") is None
    assert set(attribute_dict(nodes["g"])) == {"pads", "mode"}
    ((name, tensor),) = tensor_attributes(nodes["k"])
    assert name == "value"
    assert tensor is tensor_of_attr(nodes["k"].attributes["value"])
    assert not list(tensor_attributes(nodes["g"]))


def test_a_parameter_of_a_function_has_no_value_yet(nodes: dict[str, ir.Node]) -> None:
    kinds = {
        "axis": ir.AttributeType.INT,
        "alpha": ir.AttributeType.FLOAT,
        "mode": ir.AttributeType.STRING,
        "pads": ir.AttributeType.INTS,
        "value": ir.AttributeType.TENSOR,
    }
    node = nodes["a"]
    for name, kind in kinds.items():
        node.attributes[name] = ir.RefAttr(name, name, kind)
    assert attr_int(node, "axis", 7) == 7
    assert attr_float(node, "alpha", 0.25) == 0.25
    assert attr_text(node, "mode", "constant") == "constant"
    assert attr_ints(node, "pads") is None
    assert not list(tensor_attributes(node))
