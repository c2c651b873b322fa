"""The Builder: where nodes go, what they are called, and what they carry."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.editing.builder import PASS_KEY, Builder, is_as_exported, subject_of
from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.text import node_text

ONE = np.ones((1,), np.float32)


def model(text: str, opset: int = 17) -> ir.Model:
    return ir.from_onnx_text(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}')


def chain() -> ir.Model:
    return model("m (float[N] x) => (float[N] z) { a = Neg (x) y = Relu (a) z = Abs (y) }")


def start(m: ir.Model, op_type: str = "Relu") -> tuple[Builder, ir.Node]:
    site = next(node for node in m.graph.all_nodes() if node.op_type == op_type)
    builder = Builder("test", View(m))
    builder.start_site(site)
    return builder, site


def operators(m: ir.Model) -> list[str]:
    return [node.op_type for node in m.graph]


def test_without_a_site_there_is_nothing_to_build() -> None:
    builder = Builder("test", View(chain()))
    with pytest.raises(RuntimeError, match="start"):
        _ = builder.site
    with pytest.raises(RuntimeError, match="start"):
        builder.make("Neg")
    with pytest.raises(RuntimeError, match="start"):
        builder.constant(ONE)
    with pytest.raises(AttributeError):
        builder.neg  # noqa: B018


def test_nodes_go_before_the_site_and_say_who_made_them() -> None:
    m = chain()
    assert is_as_exported(m)
    op, site = start(m)
    value = op.Add(site.inputs[0], ONE, alpha=ir.DataType.FLOAT16)
    node = value.producer()
    assert node is not None
    assert operators(m) == ["Neg", "Add", "Relu", "Abs"]
    assert node.name == value.name
    assert node.metadata_props[PASS_KEY] == "test"
    assert node.attributes["alpha"].as_int() == ir.DataType.FLOAT16
    assert not is_as_exported(m)


def test_outputs_that_are_not_present_have_no_name() -> None:
    m = chain()
    op, site = start(m)
    first, second, third = op.make_outputs("Split", (True, False, True), site.inputs[0])
    assert second.name == ""
    assert first.name
    assert third.name
    assert first.name != third.name


def test_a_domain_is_imported() -> None:
    m = chain()
    op, site = start(m)
    node = op.make("com.microsoft.Gelu", site.inputs[0]).producer()
    assert node is not None
    assert (node.domain, node.op_type) == ("com.microsoft", "Gelu")
    assert m.opset_imports["com.microsoft"] == 1
    op.Neg(site.inputs[0])
    assert set(m.opset_imports) == {"", "com.microsoft"}


def test_a_clone_keeps_attributes_metadata_and_absent_outputs() -> None:
    m = model("m (float[4, 4] x) => (float[4] y) { y, _ = TopK <axis = 1, largest = 0> (x, k) }")
    op, site = start(m, "TopK")
    site.outputs[1].name = ""
    site.metadata_props["namespace"] = "top"
    values = op.clone_outputs(site, *site.inputs, axis=0)
    clone = values[0].producer()
    assert clone is not None
    assert [bool(x.name) for x in values] == [True, False]
    assert clone.attributes["axis"].as_int() == 0
    assert clone.attributes["largest"].as_int() == 0
    assert clone.metadata_props == {"namespace": "top", PASS_KEY: "test"}
    assert op.clone_node(site, *site.inputs).producer() is not site


def test_a_clone_of_one_output_keeps_its_attributes() -> None:
    m = model("m (float[N] x) => (float[N] y) { y = Elu <alpha = 0.5> (x) }")
    op, site = start(m, "Elu")
    clone = op.clone_node(site, *site.inputs).producer()
    assert clone is not None
    assert clone.attributes["alpha"].as_float() == 0.5
    assert op.clone_node(site, *site.inputs, alpha=2.0).producer().attributes["alpha"].value == 2


def test_constants_are_shared_if_type_shape_and_bytes_are_equal() -> None:
    m = chain()
    op, _ = start(m)
    one = op.constant(ONE)
    assert op.constant(np.ones((1,), np.float32)) is one
    assert op.constant(ONE.reshape(1, 1)) is not one
    assert op.constant(ONE.view(np.int32)) is not one
    assert len(m.graph.initializers) == 3
    assert one.shape == ir.Shape([1])
    assert one.dtype == ir.DataType.FLOAT
    assert const_of(one) == ONE
    m.graph.initializers.pop(one.name or "")
    assert op.constant(ONE) is not one


FUNCTION = """<ir_version: 9, opset_import: ["" : 17, "own" : 1]>
    m (float[N] x) => (float[N] y) { y = own.f (x) }
    <domain: "own", opset_import: ["" : 17]> f (a) => (b) { c = Neg (a) b = Relu (c) }"""


def test_in_a_function_constants_are_nodes_and_domains_are_imported() -> None:
    m = ir.from_onnx_text(FUNCTION)
    (function,) = m.functions.values()
    site = function.graph[1]
    op = Builder("test", View(m))
    op.start_site(site)
    value = op.make("com.microsoft.BiasGelu", site.inputs[0], ONE)
    assert [x.op_type for x in function.graph] == ["Neg", "Constant", "BiasGelu", "Relu"]
    assert not m.graph.initializers
    assert function.opset_imports["com.microsoft"] == 1
    assert m.opset_imports["com.microsoft"] == 1
    op.replace_site(value)
    assert [x.op_type for x in function.graph] == ["Neg", "Constant", "BiasGelu"]
    assert function.graph.outputs[0].name == "b"


BRANCHES = """m (float[N] x, bool c) => (float[N] z) {
    before = Neg (x)
    z = If (c) <
      then_branch = t () => (float[N] p) { q = Abs (before) r = Relu (q) p = Relu (r) },
      else_branch = e () => (float[N] s) { s = Relu (before) }> }"""


def test_once_is_built_in_the_innermost_graph_that_holds_a_source() -> None:
    m = model(BRANCHES)
    op, site = start(m)
    body = site.graph
    assert body is not None
    inner = op.build_once("inner", lambda: op.Sqrt(site.inputs[0]), site.inputs[0])
    before = next(x for x in m.graph if x.op_type == "Neg").outputs[0]
    outer = op.build_once("outer", lambda: op.Exp(before), before)
    free = op.build_once("free", lambda: op.constant(ONE))
    assert inner.graph is body
    assert operators(m) == ["Neg", "Exp", "If"]
    assert op.build_once("outer", lambda: op.Exp(before), before) is outer
    assert op.build_once("free", lambda: op.constant(ONE)) is free
    both = op.build_once("both", lambda: op.Add(before, site.inputs[0]), before, site.inputs[0])
    assert both.graph is body
    assert op.constant(ONE).graph is m.graph


def test_once_is_built_again_if_it_was_removed() -> None:
    m = chain()
    op, site = start(m)
    first = op.build_once("k", lambda: op.Exp(site.inputs[0]))
    assert op.remove_unread(first)
    second = op.build_once("k", lambda: op.Exp(site.inputs[0]))
    assert second is not first


def test_inputs_of_the_site_are_set() -> None:
    m = chain()
    op, site = start(m)
    a = site.inputs[0]
    op.set_input(0, m.graph.inputs[0])
    op.set_input(2, a)
    assert list(site.inputs) == [m.graph.inputs[0], None, a]
    op.set_float_attribute("alpha", 0.5)
    assert site.attributes["alpha"].as_float() == 0.5
    op.set_input(1, a)
    assert list(site.inputs) == [m.graph.inputs[0], a, a]


def test_uses_are_redirected_but_not_those_of_new_nodes() -> None:
    m = chain()
    op, site = start(m, "Abs")
    y = site.inputs[0]
    assert y is not None
    new = op.Exp(y)
    op.redirect_uses([(use.node, use.idx) for use in y.uses()], new)
    assert site.inputs[0] is new
    assert new.producer().inputs[0] is y


def test_nodes_may_go_before_another_node() -> None:
    m = chain()
    op, site = start(m, "Abs")
    relu = next(x for x in m.graph if x.op_type == "Relu")
    with op.inserting_before(relu):
        op.Exp(relu.inputs[0])
    op.Log(site.inputs[0])
    assert operators(m) == ["Neg", "Exp", "Relu", "Log", "Abs"]
    op.insert_before(relu)
    op.Sin(relu.inputs[0])
    assert operators(m) == ["Neg", "Exp", "Sin", "Relu", "Log", "Abs"]


def test_a_value_is_replaced_under_its_name() -> None:
    m = model(
        "m (float[N] x) => (float[N] z, float[N] a) { a = Neg (x) y = Relu (a) z = Add (y, a) }"
    )
    op, site = start(m, "Add")
    a = m.graph[0].outputs[0]
    new = op.Exp(m.graph.inputs[0])
    op.replace_value(a, new, keep=[m.graph[1]])
    assert new.name == "a"
    assert m.graph.outputs[1] is new
    assert m.graph[1].inputs[0] is a  # kept
    assert site.inputs[1] is a  # the site's own
    assert new.producer().metadata_props[PASS_KEY] == "test"


def test_what_is_replaced_is_told_as_it_was() -> None:
    m = chain()
    op, _ = start(m, "Abs")
    y = m.graph[1].outputs[0]
    new = op.Exp(m.graph.inputs[0])
    op.replace_value(y, new)
    removed, _ = op.replace_site_as_text(op.Sin(new))
    # The Relu made y before it was made by another node.
    assert removed == ("a = Neg (x)", "y = Relu (a)", "z = Abs (y)")


def test_an_input_is_replaced_for_its_readers() -> None:
    m = model("m (float[N] x) => (float[N] y, float[N] z) { y = Relu (x) z = Abs (x) }")
    op, _ = start(m, "Relu")
    x = m.graph.inputs[0]
    new = op.Exp(x)
    name = x.name
    op.replace_value(x, new)
    assert new.name == name
    assert m.graph[-1].inputs[0] is new


def test_a_node_of_the_same_operator_keeps_the_name_of_its_site() -> None:
    m = chain()
    op, site = start(m)
    site.name = "own"
    op.replace_site(op.Relu(m.graph.inputs[0]))
    assert [x.name for x in m.graph if x.op_type == "Relu"] == ["own"]
    m = chain()
    op, site = start(m)
    site.name = "own"
    # Another operator has another name, and so has what stands for another tensor.
    neg = m.graph[0].outputs[0]
    op.replace_value(neg, op.Relu(m.graph.inputs[0]))
    op.replace_site(op.Exp(neg))
    assert "own" not in [x.name for x in m.graph]


def test_readers_move_behind_what_they_read() -> None:
    m = chain()
    op, site = start(m, "Abs")
    new = op.Exp(m.graph.inputs[0])
    neg, relu = m.graph[0], m.graph[1]
    neg.replace_input_with(0, new)
    op.move_readers_behind(new)
    assert operators(m) == ["Exp", "Neg", "Relu", "Abs"]
    assert list(m.graph) == [new.producer(), neg, relu, site]
    op.move_readers_behind(m.graph.inputs[0])
    assert operators(m) == ["Exp", "Neg", "Relu", "Abs"]


def test_what_made_an_output_is_replaced_and_removed() -> None:
    m = chain()
    op, site = start(m, "Abs")
    y = m.graph[1].outputs[0]
    op.replace_and_remove(y, op.Exp(m.graph.inputs[0]))
    assert site.inputs[0] is y
    site.replace_input_with(0, m.graph.inputs[0])
    assert [x.split(" = ")[1] for x in op.remove_unread(y)] == ["Neg (x)", "Relu (a)"]
    assert operators(m) == ["Exp", "Abs"]


def test_an_output_of_the_graph_is_wrapped() -> None:
    m = chain()
    op, _ = start(m)
    output = m.graph.outputs[0]
    op.wrap_output(output, lambda x: x)
    assert m.graph.outputs[0] is output
    op.wrap_output(output, lambda x: op.Exp(x))
    (new,) = m.graph.outputs
    assert operators(m) == ["Neg", "Relu", "Abs", "Exp"]
    assert (new.name, new.dtype, new.shape) == ("z", ir.DataType.FLOAT, ir.Shape(["N"]))
    assert output.name != "z"
    assert output.producer().metadata_props[PASS_KEY] == "test"
    assert new.producer().inputs[0] is output
    op.Sin(m.graph.inputs[0])
    assert operators(m) == ["Neg", "Sin", "Relu", "Abs", "Exp"]


def test_a_site_is_replaced_or_stays() -> None:
    m = chain()
    op, site = start(m)
    removed, added = op.repair(site, lambda: op.Exp(m.graph.inputs[0]))
    assert removed == ("a = Neg (x)", "y = Relu (a)")
    assert added == ("y = Exp (x)",)
    assert operators(m) == ["Exp", "Abs"]
    abs_ = m.graph[1]
    assert op.repair(abs_, lambda: None) == ((), ())

    def read_another() -> None:
        op.set_input(0, op.Sin(m.graph.inputs[0]))

    removed, added = op.repair(abs_, read_another)
    assert removed == ("z = Abs (y)",)
    assert [x.split(" = ")[1].split(" ")[0] for x in added] == ["Sin", "Abs"]
    assert node_text(abs_) == added[-1]


def test_several_outputs_of_a_site_are_replaced() -> None:
    m = model("m (float[4] x) => (float[2] a, float[2] b) { a, b = Split (x) }")
    op, _ = start(m, "Split")
    x = m.graph.inputs[0]
    removed, added = op.replace_site_as_text(op.Exp(x), op.Sin(x))
    assert removed == ("a, b = Split (x)",)
    assert added == ("a = Exp (x)", "b = Sin (x)")
    assert [x.name for x in m.graph.outputs] == ["a", "b"]


def test_shapes_of_new_nodes_are_known() -> None:
    m = chain()
    op, site = start(m)
    assert op.view.shapes.dims(site.inputs[0]) is not None  # all that there are, by now
    exp = op.Exp(site.inputs[0])
    op.replace_site(op.Sin(exp))
    assert [str(x) for x in View(m).shapes.dims(exp) or ()] == ["N"]


def test_types_of_other_operators_are_declared() -> None:
    m = chain()
    op, site = start(m)
    gelu = op.make("com.microsoft.Gelu", site.inputs[0])
    exp = op.Exp(gelu)
    op.replace_site(op.Sin(exp))
    assert gelu.dtype == ir.DataType.FLOAT
    assert exp.type is None
    old = model("m (float[N] x) => (float[N] y) { y = Relu (x) }", opset=17)
    op, site = start(old)
    new_operator = op.Gelu(site.inputs[0])
    op.replace_site(op.Sin(new_operator))
    assert new_operator.type is None or new_operator.dtype == ir.DataType.FLOAT


def test_a_branch_comes_before_its_site() -> None:
    m = model("""m (float[N] x, bool c) => (float[N] z) {
        gf_test_0 = Neg (x) q = Abs (gf_test_0)
        z = If (c) <then_branch = t () => (float[N] p) <float[1] w = {2.0}> {
            gf_test_9 = Mul (q, w) p = Add (gf_test_9, w) },
          else_branch = e () => (float[N] s) { s = Identity (q) }> }""")
    op, site = start(m, "If")
    body = site.attributes["then_branch"].as_graph()
    (value,) = op.inline_branch(body)
    assert operators(m) == ["Neg", "Abs", "Mul", "Add", "If"]
    assert value.producer() is m.graph[3]
    assert list(m.graph.initializers) == ["w"]
    names = [x.name for node in m.graph for x in node.outputs]
    assert len(set(names)) == len(names)
    assert "gf_test_9" not in names
    _, added = op.replace_site(value)
    assert [x.op_type for x in m.graph] == ["Neg", "Abs", "Mul", "Add"]
    assert len(added) == 2
    assert m.graph.outputs[0].name == "z"


def test_nodes_of_a_branch_get_names_that_are_free() -> None:
    m = model("""m (float[N] x, bool c) => (float[N] z) {
        [n] a = Neg (x) [q] b = Abs (a)
        z = If (c) <then_branch = t () => (float[N] p) { [n] p = Exp (b) [q] q = Exp (b) },
                    else_branch = e () => (float[N] s) { s = Identity (b) }> }""")
    op, site = start(m, "If")
    op.inline_branch(site.attributes["then_branch"].as_graph())
    names = [x.name for x in m.graph if x.name]
    assert len(set(names)) == len(names)


def test_messages_know_whether_a_pass_has_made_a_node() -> None:
    m = chain()
    assert subject_of(m) == "the model as given"
    op, site = start(m)
    op.replace_site(op.Sin(op.Exp(site.inputs[0])))
    assert subject_of(m) == "the model as the passes left it"
