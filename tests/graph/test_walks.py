"""Walks through a graph, its bodies and its functions."""

from __future__ import annotations

import onnx_ir as ir

from graphfix.graph.walks import (
    all_graphs,
    all_nodes,
    bodies_of,
    graphs_of,
    nodes_of,
    opset_of,
    reachable_from,
    top_graphs,
    values_of,
    values_read_in_bodies,
)

TEXT = """<ir_version: 9, opset_import: ["" : 17, "own" : 1]>
    m (float[N] x, bool c) => (float[N] y) <float[1] w = {2.0}> {
        a = Neg (x)
        b = If (c) <
          then_branch = t () => (float[N] p) { p = Exp (a) },
          else_branch = e () => (float[N] q) {
            q = If (c) <then_branch = tt () => (float[N] r) { r = Sin (a) },
                        else_branch = ee () => (float[N] s) { s = Cos (a) }> }>
        d = own.f (b) y = Add (d, w) }
    <domain: "own", opset_import: ["" : 16]> f (a) => (b) { b = Tan (a) }"""


def test_nodes_come_with_those_of_their_bodies() -> None:
    model = ir.from_onnx_text(TEXT)
    inner = ["Neg", "If", "Exp", "If", "Sin", "Cos", "f", "Add"]
    assert [x.op_type for x in nodes_of(model.graph)] == inner
    assert [*nodes_of(model.graph)] == [*model.graph.all_nodes()]
    assert [x.op_type for x in all_nodes(model)] == [*inner, "Tan"]
    assert [x.name for x in graphs_of(model.graph)] == ["m", "t", "e", "tt", "ee"]
    assert len([*all_graphs(model)]) == 6
    assert len(top_graphs(model)) == 2
    assert top_graphs(model)[0] is model.graph


def test_opsets_of_models_and_graphs() -> None:
    model = ir.from_onnx_text(TEXT)
    assert opset_of(model) == 17
    assert opset_of(top_graphs(model)[1]) == 16
    model.opset_imports.pop("")
    assert opset_of(model) == 1
    model.opset_imports["ai.onnx"] = 15
    assert opset_of(model) == 15


def test_values_and_bodies() -> None:
    model = ir.from_onnx_text(TEXT)
    assert [x.name for x in values_of([model.graph])] == ["x", "c", "w", "a", "b", "d", "y"]
    neg, branch = model.graph[0], model.graph[1]
    assert bodies_of(neg) == ()
    assert [x.name for x in bodies_of(branch)] == ["t", "e"]
    # In order: what the nodes of each body read, then what it gives back.
    assert [x.name for x in values_read_in_bodies(branch)] == ["a", "p", "c", "a", "a", "q"]
    assert values_read_in_bodies(neg) == []
    graphs = [*bodies_of(branch)]
    neg.attributes["many"] = ir.AttrGraphs("many", graphs)
    neg.attributes["one"] = ir.RefAttr("one", "one", ir.AttributeType.GRAPH)
    neg.attributes["some"] = ir.RefAttr("some", "some", ir.AttributeType.GRAPHS)
    neg.attributes["axis"] = ir.AttrInt64("axis", 1)
    assert [*bodies_of(neg)] == graphs


def test_what_is_reached_comes_once_and_the_nearest_first() -> None:
    leads = {1: [2, 3, None], 2: [4, 4, 1], 3: [4, 5], 4: [], 5: [1]}
    assert [*reachable_from([1], lambda x: leads[x])] == [1, 2, 3, 4, 5]
    assert [*reachable_from([3, None, 3, 2], lambda x: leads[x])] == [3, 2, 4, 5, 1]
    assert [*reachable_from([], lambda x: leads[x])] == []


def test_neighbors_are_asked_for_once_the_caller_has_seen_an_item() -> None:
    asked: list[int] = []

    def next_number(number: int) -> list[int]:
        asked.append(number)
        return [number + 1]

    walk = reachable_from([0], next_number)
    assert next(walk) == 0
    assert asked == []
    assert next(walk) == 1
    assert asked == [0]
