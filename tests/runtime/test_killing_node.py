"""Which node kills the process: found by cutting the graph off ever earlier."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.runtime.killing_node import cut_after, find_killing_node, killing_node_text
from graphfix.runtime.run_errors import LoadDiedError, RunDiedError, RunError

MODEL = """<ir_version: 8, opset_import: ["": 18]>
g (float[T, 4] x, bool c) => (float[T, 4] y, float[T, 4] z) {
  [one] a = Relu (x)
  [two] b = If (c) <then_branch = t () => (float[T, 4] i) { i = Neg (a) },
                    else_branch = e () => (float[T, 4] j) { j = Abs (a) }>
  [three] z = Exp (b)
  [four] d = Add (a, z)
  [five] y = Sqrt (d)
}"""


def dies_of(*names: str, error: type[Exception] = RunDiedError) -> object:
    """What runs a model in a process that such a node kills."""

    def run(model: ir.Model) -> None:
        ir.to_proto(model)  # a cut is a whole model
        if any(node.name in names for node in model.graph):
            raise error("the process died")

    return run


def test_a_cut_keeps_the_first_nodes_and_hands_out_what_the_others_use() -> None:
    model = ir.from_onnx_text(MODEL)
    assert [v.name for v in cut_after(model, 1).graph.outputs] == ["a"]
    assert [v.name for v in cut_after(model, 3).graph.outputs] == ["a", "z"]
    assert [v.name for v in cut_after(model, 5).graph.outputs] == ["z", "y"]
    assert len(model.graph) == 5
    assert [v.name for v in model.graph.outputs] == ["y", "z"]


@pytest.mark.parametrize("name", ["one", "two", "three", "four", "five"])
def test_it_is_found(name: str) -> None:
    found = find_killing_node(ir.from_onnx_text(MODEL), dies_of(name))
    assert found is not None
    assert found.node == name


def test_of_two_it_is_the_first() -> None:
    found = find_killing_node(ir.from_onnx_text(MODEL), dies_of("two", "four", error=LoadDiedError))
    assert str(found) == "at node 'two' (If)"


def test_a_node_without_a_name_is_told_by_what_it_makes() -> None:
    text = '<ir_version: 8, opset_import: ["": 18]> g (float[4] x) => (float[4] y) { y = Neg (x) }'
    found = find_killing_node(ir.from_onnx_text(text), dies_of(""))
    assert str(found) == "at the Neg that makes 'y'"


def test_a_node_of_two_outputs_is_told_by_the_first() -> None:
    text = """<ir_version: 8, opset_import: ["": 18]> g (float[4] x) => (float[2] y, float[2] z)
        { y, z = Split <num_outputs = 2> (x) }"""
    found = find_killing_node(ir.from_onnx_text(text), dies_of(""))
    assert str(found) == "at the Split that makes 'y'"


def test_what_does_not_die_again_is_nobodys() -> None:
    model = ir.from_onnx_text(MODEL)
    assert find_killing_node(model, dies_of()) is None
    assert killing_node_text(RunDiedError("dead"), model, dies_of()) == ""
    assert killing_node_text(RunError("a plain error"), model, dies_of("one")) == ""
    assert (
        killing_node_text(RunDiedError("dead"), model, dies_of("one"))
        == "; it dies at node 'one' (Relu)"
    )
