"""Rules for reductions, each decision by itself."""

from __future__ import annotations

from typing import Any

import pytest
import sympy

from graphfix.lengths.joint_axes import RefusedError
from graphfix.lengths.rule_site import RuleSite
from graphfix.lengths.rules import reduce
from graphfix.lengths.rules.reduce import RULES
from graphfix.lengths.tail_state import ANY, FINITE, LAST, ONE, ZERO, Tail, TensorState, size_expr
from tests.lengths.sites import asked_leaks, result_of, site_of, sizes

INPUTS = (
    "float[B, T, 4] x, float[1, T, T2] two, int64[B, T] mask, int64 late, float[] any, "
    "float[B, 4] rows, bool[B, T] flag, int64[1] at"
)
CONSTANTS = "int64 one = {1}, int64 zero = {0}, int64 last = {-1}, int64[1] axis = {1}"


def infer(node: str, **facts: Tail | dict[str, Any]) -> tuple[RuleSite, TensorState]:
    site = site_of(f"y = {node}" if "y =" not in node else node, inputs=INPUTS,
                   constants=CONSTANTS, **facts)  # fmt: skip
    return site, result_of(RULES, site)


@pytest.mark.parametrize(
    ("node", "tail", "leaks"),
    [
        ("ReduceSum (x, axis)", FINITE, ["sum pollution"]),
        ("ReduceSum (x, axis)", ZERO, []),
        ("ReduceL1 <axes = [1]> (x)", ONE, ["sum pollution"]),
        ("ReduceSumSquare <axes = [1]> (x)", ANY, ["sum pollution"]),
        ("ReduceMax <axes = [1]> (x)", FINITE, ["maximum pollution"]),
        ("ReduceMax <axes = [1]> (x)", Tail("number", -3.4028234663852886e38), []),
        ("ReduceLogSumExp <axes = [1]> (x)", FINITE, ["maximum pollution"]),
        ("ReduceMin <axes = [1]> (x)", FINITE, ["minimum pollution"]),
        ("ReduceMean <axes = [1]> (x)", FINITE, ["mean pollution", "mean pollution"]),
        ("ReduceMean <axes = [1]> (x)", ZERO, ["mean pollution"]),
        ("ReduceMean <axes = [2]> (x)", FINITE, []),
        ("ReduceSum <axes = [2]> (x)", FINITE, []),
        ("ArgMax <axis = 1> (x)", FINITE, ["maximum pollution"]),
        ("ArgMin <axis = 1> (x)", FINITE, ["minimum pollution"]),
        ("ArgMax <axis = 2> (x)", FINITE, []),
    ],
)
def test_what_a_reduction_needs(node: str, tail: Tail, leaks: list[str]) -> None:
    site, _ = infer(node, x=tail)
    assert asked_leaks(site) == leaks


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("ReduceSum <keepdims = 1> (x, axis)", "B 1 4"),
        ("ReduceSum <keepdims = 0> (x, axis)", "B 4"),
        ("ReduceSum <keepdims = 0, axes = [2]> (x)", "B T"),
        ("ArgMax <axis = 1, keepdims = 0> (x)", "B 4"),
        ("ArgMax <axis = -1> (x)", "B T 1"),
    ],
)
def test_what_axes_are_left(node: str, expected: str) -> None:
    opset_11 = "axes = [2]" in node
    site = site_of(f"y = {node}", inputs=INPUTS, constants=CONSTANTS, opset=11 if opset_11 else 17)
    state = result_of(RULES, site)
    assert sizes(state) == expected


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        ("ReduceSum (x, at)", "the axes that it is over are not constant"),
        ("ReduceMax <axes = [0]> (x)", "it sums over the batch"),
        ("ReduceMax (x)", "it sums over the batch"),
        ("ReduceProd <axes = [1]> (x)", "there is no repair for it over time"),
        ("ArgMax <axis = 0> (x)", "it mixes rows of the batch"),
        ("ArgMax <axis = 1, select_last_index = 1> (x)", "there is no repair for it over time"),
        ("CumSum (x, late)", "its axis is not constant"),
        ("CumSum (x, zero)", "it mixes rows of the batch"),
    ],
)
def test_reductions_that_are_refused(node: str, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        infer(node)


def test_rows_without_time_are_summed() -> None:
    _, state = infer("ReduceMax <axes = [0], keepdims = 0> (rows)")
    assert sizes(state) == "4"


@pytest.mark.parametrize(
    ("node", "facts", "length"),
    [
        ("ReduceSum <keepdims = 0> (mask, axis)", {"length": sympy.Symbol("L")}, True),
        ("ReduceSum <keepdims = 0> (mask, axis)", {}, False),
        ("ReduceMax <keepdims = 0, axes = [1]> (mask)", {"length": sympy.Symbol("L")}, False),
    ],
)
def test_the_sum_of_a_mask_is_the_length(node: str, facts: dict[str, Any], length: bool) -> None:
    _, state = infer(node, mask=facts)
    assert (state.length is not None) is length


@pytest.mark.parametrize(
    ("node", "sign", "expected"),
    [
        ("ReduceMax <axes = [2]> (x)", 2, 2),
        ("ReduceMin <axes = [2]> (x)", 1, 1),
        ("ReduceMean <axes = [2]> (x)", 2, 2),
        ("ReduceSum <axes = [2]> (x)", 2, 2),
        ("ReduceL2 <axes = [2]> (x)", 0, 1),
        ("ReduceProd <axes = [2]> (x)", 2, 1),
        ("ReduceProd <axes = [2]> (x)", 0, 0),
        ("ReduceLogSum <axes = [2]> (x)", 2, 0),
    ],
)
def test_the_sign_of_a_reduction(node: str, sign: int, expected: int) -> None:
    site = site_of(f"y = {node}", inputs=INPUTS, opset=11, x={"sign": sign})
    state = result_of(RULES, site)
    assert state.sign == expected


@pytest.mark.parametrize(
    ("tail", "times", "expected"),
    [(ZERO, False, ZERO), (LAST, False, LAST), (ONE, False, FINITE), (ZERO, True, FINITE),
     (ANY, False, ANY)],
)  # fmt: skip
def test_tails_of_other_axes(tail: Tail, times: bool, expected: Tail) -> None:
    site = site_of("y = Relu (x)", inputs=INPUTS, x=tail)
    found = reduce.reduce_axes(site.input_state(0), (2,), keep=False, times=times)
    assert found.tails == (None, expected)


@pytest.mark.parametrize(
    ("node", "facts", "tail", "steps"),
    [
        ("CumSum (x, one)", {"x": ZERO}, LAST, None),
        ("CumSum <exclusive = 1> (x, one)", {"x": ZERO}, FINITE, None),
        ("CumSum <reverse = 1> (x, one)", {"x": ZERO}, ZERO, None),
        ("CumSum (x, last)", {"x": ZERO}, ZERO, None),
        ("CumSum (x, last)", {"x": ONE}, FINITE, None),
    ],
)
def test_running_sums(node: str, facts: dict[str, Any], tail: Tail, steps: Any) -> None:
    site, state = infer(node, **facts)
    assert state.tail_along(1) == tail
    assert state.steps == steps
    assert state.fill is None
    assert not site.repairs


def test_running_sums_of_one_number_are_steps() -> None:
    assert size_expr("T") is not None
    for node, expected in (
        ("CumSum (mask, one)", (3, 3)),
        ("CumSum <exclusive = 1> (mask, one)", (0, 3)),
        ("CumSum <reverse = 1> (mask, one)", None),
    ):
        _, state = infer(
            node, mask={"fill": 3.0, "fixed": True, "tails": (None, Tail("number", 3.0))}
        )
        assert state.steps == expected
    _, state = infer("CumSum (mask, one)", mask={"fill": 0.5})
    assert state.steps is None


@pytest.mark.parametrize(
    ("body", "truth"),
    [
        ("n = Cast <to = 7> (flag)", True),
        ("n = Cast <to = 7> (mask)", False),
        ("n = Neg (mask)", False),
    ],
)
def test_numbers_that_are_truths(body: str, truth: bool) -> None:
    site = site_of(f"{body} y = ReduceMin <axes = [1]> (n)", inputs=INPUTS, opset=11)
    assert reduce._is_truth(site.node.inputs[0], site) is truth
