"""The order in which ONNX Runtime visits nodes."""

from __future__ import annotations

import onnx_ir as ir

from graphfix.providers.visit_order import have_same_nodes, nodes_in_visit_order


def graph(body: str) -> ir.Graph:
    text = '<ir_version: 8, opset_import: ["" : 17]> m (float[N] x) => (float[N] y)'
    return ir.from_onnx_text(f"{text} {{ {body} }}").graph


def order(body: str) -> list[str | None]:
    return [node.outputs[0].name for node in nodes_in_visit_order(graph(body))]


def test_from_what_nothing_uses_through_the_inputs_the_last_first() -> None:
    assert order("a = Neg (x) b = Abs (a) y = Relu (b)") == ["a", "b", "y"]
    assert order("a = Neg (x) b = Abs (x) y = Add (a, b)") == ["b", "a", "y"]
    assert order("a = Neg (x) b = Abs (x) y = Add (b, a)") == ["b", "a", "y"]
    assert order("a = Neg (x) y = Add (a, a)") == ["a", "y"]
    assert order("a = Neg (x) b = Abs (x) y = Relu (a)") == ["a", "y", "b"]


def test_each_node_comes_once_behind_what_it_reads() -> None:
    body = """a = Neg (x) b = Abs (a) c = Exp (a) d = Add (b, c) e = Mul (a, d)
        y = Sub (e, b) z = Sin (c)"""
    nodes = nodes_in_visit_order(graph(body))
    assert len(nodes) == len(set(nodes)) == 7
    for i, node in enumerate(nodes):
        assert all(x in nodes[:i] for x in node.predecessors())
    assert nodes[-1].outputs[0].name == "y"


def test_what_is_made_outside_of_a_body_is_no_part_of_it() -> None:
    body = """a = Neg (x) c = IsNaN (a) y = If (c) <
        then_branch = t () => (float[N] p) { q = Abs (a) p = Add (q, x) },
        else_branch = e () => (float[N] r) { r = Exp (a) }>"""
    outer = graph(body)
    inner = outer[2].attributes["then_branch"].as_graph()
    assert [x.op_type for x in nodes_in_visit_order(inner)] == ["Abs", "Add"]


def test_graphs_with_the_same_nodes() -> None:
    body = "a = Neg (x) y = Abs (a)"
    assert have_same_nodes(graph(body), graph(body))
    assert not have_same_nodes(graph(body), graph("a = Exp (x) y = Abs (a)"))
    assert not have_same_nodes(graph(body), graph("b = Neg (x) y = Abs (b)"))
    assert not have_same_nodes(graph(body), graph(body + " z = Abs (a)"))
