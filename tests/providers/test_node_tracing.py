"""What became of each node in the graph that ONNX Runtime's optimizer left."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.providers.node_tracing import (
    COMPUTED,
    CONSTANT,
    DECIDED,
    NOTHING,
    UNUSED,
    graphs_with_paths,
    trace_fates,
)

BRANCHES = "then_branch = t () => (p) { p = Exp (x) }, else_branch = e () => (q) { q = Neg (x) }"


def model_of(body: str, constants: str = "", outputs: str = "y", inputs: str = "") -> ir.Model:
    values = f"<{constants}>" if constants else ""
    head = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
    text = f"{head} m (float[4, 4] x, bool c{inputs}) => ({outputs}) {values} {{ {body} }}"
    return ir.from_onnx_text(text)


def fates(before: ir.Model, after: ir.Model) -> dict[str | None, tuple[str | None, str]]:
    """Return the node that does its work, and how, for each node of the model."""
    return {
        node.outputs[0].name: (None if fate.node is None else fate.node.outputs[0].name, fate.how)
        for node, fate in trace_fates(before, after).items()
    }


def test_graphs_have_paths_of_what_they_are_in() -> None:
    inner = f"then_branch = t () => (p) {{ p = If (c) <{BRANCHES}> }}"
    branches = f"{inner}, else_branch = e () => (q) {{ q = Neg (x) }}"
    model = model_of(f"a = Exp (x)  y = If (c) <{branches}>")
    paths = [(path, graph[0].op_type) for path, graph in graphs_with_paths(model)]
    outer = "y/then_branch/0"
    assert paths == [
        ((), "Exp"),
        ((outer,), "If"),
        ((outer, "p/then_branch/0"), "Exp"),
        ((outer, "p/else_branch/0"), "Neg"),
        (("y/else_branch/0",), "Neg"),
    ]


def test_graphs_of_one_attribute_are_numbered() -> None:
    model = model_of("y = Exp (x)")
    bodies = [model_of(f"y = {op} (x)").graph for op in ("Neg", "Abs")]
    model.graph[0].attributes["bodies"] = ir.AttrGraphs("bodies", bodies)
    model.graph[0].attributes["scale"] = ir.AttrFloat32("scale", 1.0)
    model.graph[0].attributes["body"] = ir.RefAttr("body", "body", ir.AttributeType.GRAPH)
    paths = [(path, graph[0].op_type) for path, graph in graphs_with_paths(model)]
    assert paths == [((), "Exp"), (("y/bodies/0",), "Neg"), (("y/bodies/1",), "Abs")]


def test_a_graph_of_a_node_without_outputs_has_a_path() -> None:
    model = model_of("y = Exp (x)")
    body = model_of("y = Neg (x)").graph
    model.graph.append(ir.Node("own", "Watch", [], [ir.AttrGraph("body", body)], num_outputs=0))
    assert [path for path, _ in graphs_with_paths(model)] == [(), ("/body/0",)]


def test_what_makes_the_same_tensor_is_the_same_or_became_another() -> None:
    before = model_of("a = Exp (x)  b = Add (a, x)  y = Relu (b)")
    assert fates(before, before) == {"a": ("a", ""), "b": ("b", ""), "y": ("y", "")}
    after = model_of("a = Exp (x)  y = com.microsoft.FusedAdd (a, x)")
    # The sum is gone; what its reader became part of has it.
    assert fates(before, after) == {
        "a": ("a", ""),
        "b": ("y", "part of FusedAdd"),
        "y": ("y", "part of FusedAdd"),
    }


def test_a_namesake_that_makes_another_tensor_is_the_same() -> None:
    before = model_of("[n] a = Exp (x)  y = Transpose (a)")
    assert fates(before, model_of("t = Transpose (x)  [n] y = Exp (t)"))["a"] == ("y", "")
    # Another operator of that name is not it, nor is a node without a name.
    after = model_of("[n] t = Neg (x)  y = Transpose (t)")
    assert fates(before, after)["a"] == (None, NOTHING)
    bare = model_of("a = Exp (x)  y = Transpose (a)")
    for node in bare.graph:
        node.name = None
    after = model_of("t = Transpose (x)  y = Exp (t)")
    for node in after.graph:
        node.name = None
    assert fates(bare, after)["a"] == ("y", "part of Exp")


def test_any_output_that_is_left_tells() -> None:
    before = model_of("a, b = Split <axis = 0> (x, s)  y = Neg (b)", "int64[2] s = {2, 2}")
    after = model_of("b = Slice (x, s, s)  y = Neg (b)", "int64[2] s = {2, 2}")
    assert fates(before, after)["a"] == ("b", "part of Slice")


def test_constants_and_what_is_computed_from_them() -> None:
    before = model_of(
        "k = Constant <value_float = 2.0> ()  e = Exp (w)  f = Mul (e, k)  y = Mul (x, f)",
        "float w = {1}",
    )
    after = model_of("y = Mul (x, f)", "float f = {5.4}")
    assert fates(before, after) == {
        "k": (None, CONSTANT),
        "e": (None, COMPUTED),
        "f": (None, COMPUTED),
        "y": ("y", ""),
    }


def test_a_constant_that_a_pattern_takes_was_computed_before() -> None:
    before = model_of(
        "e = Exp (w)  a = Mul (x, e)  y = Relu (a)", "float w = {1}", inputs=", float v"
    )
    after = model_of("y = com.microsoft.Scaled (x)")
    assert fates(before, after) == {
        "e": (None, COMPUTED),
        "a": ("y", "part of Scaled"),
        "y": ("y", "part of Scaled"),
    }
    # An input of the model is no constant, though it may have a default.
    text = before.graph.initializers["w"]
    before.graph.inputs.append(text)
    assert fates(before, after)["e"] == ("y", "part of Scaled")


def test_what_reads_nothing_is_computed_from_nothing() -> None:
    before = model_of("r = RandomNormal <shape = [4, 4]> ()  y = Add (x, r)")
    after = model_of("y = com.microsoft.Noisy (x)")
    assert fates(before, after)["r"] == ("y", "part of Noisy")


def test_a_node_that_is_there_under_another_operator_was_not_computed() -> None:
    before = model_of("e = Exp (w)  y = Add (x, e)", "float w = {1}")
    after = model_of("e = com.microsoft.Gelu (w)  y = Add (x, e)", "float w = {1}")
    assert fates(before, after)["e"] == ("e", "part of Gelu")


def test_what_nothing_uses_is_unused() -> None:
    before = model_of("a = Exp (x)  b = Neg (a)  y = Abs (x)")
    after = model_of("y = Abs (x)")
    assert fates(before, after) == {"a": (None, UNUSED), "b": (None, UNUSED), "y": ("y", "")}


def test_what_is_used_and_gone_did_nothing() -> None:
    before = model_of("a = Identity (x)  b = Neg (a)  y = Abs (a)")
    after = model_of("y = Abs (x)")
    # One of its readers is unused, the other is there.
    assert fates(before, after) == {"a": (None, NOTHING), "b": (None, UNUSED), "y": ("y", "")}
    before = model_of("a = Identity (x)  y = Abs (x)", outputs="a, y")
    assert fates(before, after)["a"] == (None, NOTHING)


def test_the_first_pattern_that_takes_a_reader_has_it() -> None:
    before = model_of("a = Exp (x)  b = Neg (a)  e = Abs (a)  y = Add (b, e)")
    after = model_of("b = Neg (x)  e = com.microsoft.AbsExp (x)  y = Add (b, e)")
    assert fates(before, after)["a"] == ("e", "part of AbsExp")
    # A reader that is itself takes nothing in.
    after = model_of("b = Neg (x)  e = Abs (x)  y = Add (b, e)")
    assert fates(before, after)["a"] == (None, NOTHING)


# Ifs whose condition is constant


def test_a_branch_that_is_still_there_is_traced_by_itself() -> None:
    model = model_of(f"y = If (c) <{BRANCHES}>")
    assert fates(model, model) == {"y": ("y", ""), "p": ("p", ""), "q": ("q", "")}


@pytest.mark.parametrize("op", ["Exp", "Neg"])
def test_a_decided_branch_stands_in_its_place(op: str) -> None:
    before = model_of(f"y = If (c) <{BRANCHES}>")
    gone = (None, "its branch is gone")
    assert fates(before, model_of(f"y = {op} (x)")) == {
        "y": (None, DECIDED),
        "p": ("y", "") if op == "Exp" else gone,
        "q": ("y", "") if op == "Neg" else gone,
    }


def test_what_is_inside_of_a_decided_branch_has_a_name_of_its_own() -> None:
    long = "then_branch = t () => (p) { i = Exp (x)  p = Abs (i) }"
    before = model_of(f"y = If (c) <{long}, else_branch = e () => (q) {{ q = Neg (x) }}>")
    after = model_of("_if_then_branch_i = Exp (x)  y = Abs (_if_then_branch_i)")
    assert fates(before, after) == {
        "y": (None, DECIDED),
        "i": ("_if_then_branch_i", ""),
        "p": ("y", ""),
        "q": (None, "its branch is gone"),
    }


def test_a_branch_without_outputs_is_gone() -> None:
    before = model_of("y = Exp (x)")
    body = model_of("y = Neg (x)").graph
    body.outputs.clear()
    before.graph.append(ir.Node("own", "Watch", [], [ir.AttrGraph("body", body)], num_outputs=0))
    gone = [fate for node, fate in trace_fates(before, model_of("y = Exp (x)")).items()]
    assert [x.how for x in gone] == ["", UNUSED, "its branch is gone"]
