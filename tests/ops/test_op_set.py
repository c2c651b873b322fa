"""A set of operators answers for names and nodes, and stays one when it is combined."""

import copy
import pickle

import onnx_ir as ir

from graphfix import ops
from graphfix.ops import OpSet


def _node(op_type: str, domain: str = "") -> ir.Node:
    return ir.Node(domain, op_type, [ir.Value(name="x")])


def test_a_node_is_in_the_set_by_operator_and_domain() -> None:
    assert _node("Reshape") in ops.VIEWS
    assert _node("Reshape", "ai.onnx") in ops.VIEWS
    assert _node("Reshape", "com.microsoft") not in ops.VIEWS
    assert _node("QuickGelu", "com.microsoft") in ops.UNARY
    assert _node("QuickGelu") not in ops.UNARY
    assert "com.microsoft.QuickGelu" in ops.UNARY


def test_nothing_else_is_in_a_set() -> None:
    assert None not in ops.VIEWS
    assert 3 not in ops.VIEWS
    assert not ops.VIEWS.has(None)
    assert ops.VIEWS.has(_node("Squeeze"))


def test_operations_give_sets_of_operators() -> None:
    both = ops.VIEWS | ops.named("Cast Where")
    assert _node("Cast") in both
    assert isinstance({"Add"} | ops.VIEWS, set | OpSet)
    assert isinstance(frozenset({"Add"}) | ops.VIEWS, OpSet)
    less = both - {"Identity"}
    assert isinstance(less, OpSet)
    assert "Identity" not in less
    assert isinstance(both & ops.RESHAPES, OpSet)
    assert both & ops.RESHAPES == ops.RESHAPES


def test_opsets_stay_with_their_operators() -> None:
    assert "Add" in ops.BROADCASTS
    assert "Add" not in ops.BROADCASTS.at(6)
    assert "Add" in ops.BROADCASTS.at(7)
    assert "Where" in ops.BROADCASTS.at(6)
    assert "Add" not in (ops.BROADCASTS - {"Sub"}).at(6)
    assert "Add" not in (ops.VIEWS | ops.BROADCASTS).at(6)
    assert "Add" not in (ops.BROADCASTS | ops.COMMUTES).at(6)
    assert "Add" in (ops.BROADCASTS | ops.named("Add")).at(6)
    assert "Add" not in (ops.BROADCASTS & ops.named("Add Sub")).at(6)


def test_an_operator_with_rows_for_all_opsets_is_always_in_the_set() -> None:
    for opset in (1, 12, 13, 23):
        assert "Softmax" in ops.SOFTMAXES.at(opset)
    assert "Scatter" in ops.SCATTERS.at(10)
    assert "Scatter" not in ops.SCATTERS.at(11)


def test_a_set_can_be_copied_and_pickled() -> None:
    for other in (copy.deepcopy(ops.BROADCASTS), pickle.loads(pickle.dumps(ops.BROADCASTS))):
        assert other == ops.BROADCASTS
        assert "Add" not in other.at(6)


def test_what_an_operator_takes() -> None:
    assert ops.size_inputs(_node("Slice")) == (1, 2, 3, 4)
    assert ops.size_inputs(_node("Resize"), 10) == (1,)
    assert ops.size_inputs(_node("Resize"), 13) == (2, 3)
    assert ops.index_inputs(_node("Gather")) == (1,)
    assert ops.shape_source(_node("Softmax")) == 0
    assert ops.shape_source(_node("GatherElements")) == 1
    assert ops.shape_source(_node("Add")) is None
    assert ops.size_inputs(_node("Unheard")) == ops.index_inputs(_node("Unheard")) == ()
