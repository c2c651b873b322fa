"""Dims that are lengths of caches, and the states that grow along them."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.cache_axes.growth import GrowingState, find_growing_states, unify_dims
from graphfix.facts import shapes
from graphfix.feeds.states import StatePair

HEADER = '<ir_version: 8, opset_import: ["" : 17]> g '
GROWS = (
    HEADER + "(float[B, S, 4] x, float[B, P, 4] past_key, float[B, 8] state_in) "
    "=> (float[B, N, 4] present_key, float[B, 8] state_out) "
    "{ present_key = Concat <axis = 1> (past_key, x) state_out = Cos (state_in) }"
)


def test_a_state_grows_along_a_dim_of_its_own() -> None:
    model = ir.from_onnx_text(GROWS)
    key, state = find_growing_states(model, shapes.infer(model, usual=True))
    assert key == GrowingState("past_key", "present_key", 1, "P")
    assert state == GrowingState("state_in", "state_out", None, "")
    assert len({key, state}) == 2


@pytest.mark.parametrize(
    ("node", "axis"),
    [
        ("Cos (past_key)", None),
        ("Concat <axis = 2> (past_key, past_key)", None),
        ("Concat <axis = 1> (past_key, past_key)", 1),
        ("Concat <axis = 0> (past_key, past_key)", 0),
        ("Identity (x)", None),
    ],
)
def test_only_what_the_dim_is_in_grows(node: str, axis: int | None) -> None:
    model = ir.from_onnx_text(
        HEADER + "(float[B, S, 4] x, float[B, P, 4] past_key) => (present_key) "
        f"{{ present_key = {node} }}"
    )
    pair = StatePair("past_key", "present_key")
    (state,) = find_growing_states(model, shapes.infer(model, usual=True), [pair])
    assert state.axis == axis
    assert state.dim == ("" if axis is None else "BP"[axis])


def test_states_of_the_user_come_in_the_order_of_the_inputs() -> None:
    model = ir.from_onnx_text(GROWS.replace("state_", "aux_"))
    assert [x.input for x in find_growing_states(model, shapes.infer(model, usual=True))] == [
        "past_key"
    ]
    named = [StatePair("aux_in", "aux_out")]
    both = find_growing_states(model, shapes.infer(model, usual=True), named)
    assert [x.input for x in both] == ["past_key", "aux_in"]


@pytest.mark.parametrize(
    "pair", [StatePair("past_key", "state_out"), StatePair("state_in", "present_key")]
)
def test_states_of_the_user_replace_those_that_share_a_port(pair: StatePair) -> None:
    model = ir.from_onnx_text(GROWS)
    assert [
        x.input for x in find_growing_states(model, shapes.infer(model, usual=True), [pair])
    ] == [pair.input]


def test_a_mask_over_past_and_present_gets_their_sum() -> None:
    model = ir.from_onnx_text(
        HEADER + "(float[B, S] x, float[C, P] past_key, float[D, M] mask) "
        "=> (present_key, y) { present_key = Concat <axis = 1> (past_key, x) "
        "y = Add (present_key, mask) }"
    )
    signature = unify_dims(model)
    dims = {x.name: [str(d) for d in x.shape or ()] for x in model.graph.inputs}
    assert dims["x"][1] == "S"
    assert dims["past_key"][1] == "P"
    assert sorted(dims["mask"][1].replace(" ", "").split("+")) == ["P", "S"]
    assert len({x[0] for x in dims.values()}) == 1
    assert all(x.shape is None for node in model.graph for x in node.outputs)
    assert "M" in signature.derived


def test_dims_without_a_name_get_one_and_the_rest_stays() -> None:
    model = ir.from_onnx_text(
        HEADER + "(float[?, 4] x, float past, float[B, 3] z) => (y) { y = Cos (x) }"
    )
    model.graph.inputs[1].shape = None
    unify_dims(model)
    x, past, z = model.graph.inputs
    assert x.shape is not None
    assert isinstance(x.shape[0], ir.SymbolicDim)
    assert x.shape[0].value is not None
    assert x.shape[1] == 4
    assert past.shape is None
    assert str(z.shape) == "[B,3]"


def test_local_functions_are_inlined() -> None:
    model = ir.from_onnx_text(
        '<ir_version: 8, opset_import: ["" : 17, "own" : 1]> g (float[B] x) => (y) '
        '{ y = own.Twice (x) } <domain: "own", opset_import: ["" : 17]> '
        "Twice (a) => (b) { b = Add (a, a) }"
    )
    unify_dims(model)
    assert [x.op_type for x in model.graph] == ["Add"]
    assert not model.functions
