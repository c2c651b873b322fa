"""Rules for LSTM, GRU and RNN: each axis and each parameter by itself."""

from __future__ import annotations

from typing import Any

import pytest
import sympy

from graphfix.lengths.joint_axes import RefusedError
from graphfix.lengths.rule_site import RuleSite
from graphfix.lengths.rules.recurrent import RULES
from graphfix.lengths.tail_state import (
    FINITE,
    ZERO,
    BatchFactor,
    OtherFactor,
    Tail,
    TensorState,
    TimeFactor,
    size_expr,
)
from tests.lengths.sites import site_of, sizes

INPUTS = (
    "float[T, B, 4] x, float[2, 12, 4] w, float[2, 12, 3] r, int32[B] lens, float[B, T, 4] first, "
    "float[1, B, 4] step, float[1, 12, 4] one, float[1, 12, 3] other"
)
GRU = 'GRU <hidden_size = 3, direction = "bidirectional">'
T = size_expr("T")


def infer(
    node: str, output: str = "y, last", **facts: Tail | dict[str, Any]
) -> tuple[RuleSite, list[TensorState | None]]:
    site = site_of(f"{output} = {node}", inputs=INPUTS, axis="x.0", **facts)
    states = RULES["GRU"].infer_states(site)
    assert not isinstance(states, TensorState)
    return site, list(states)


def test_lengths_are_asked_for() -> None:
    site, (state, last) = infer(f"{GRU} (x, w, r)")
    assert [x.leak for x in site.repairs] == ["recurrence"]
    assert site.repairs[0].size == T
    assert (sizes(state), sizes(last)) == ("T 2 B 3", "2 B 3")
    assert state is not None
    assert state.tails == (ZERO, None, None, None)
    assert last is not None
    assert not last.time_axes


def test_the_batch_may_come_first() -> None:
    node = "GRU <hidden_size = 3, layout = 1> (first, one, other)"
    site, (state, last) = infer(node)
    assert len(site.repairs) == 1
    assert (sizes(state), sizes(last)) == ("B T 1 3", "B 1 3")
    assert state is not None
    assert state.tails == (None, ZERO, None, None)


def test_one_step_needs_nothing() -> None:
    site, (state, _) = infer(f"{GRU} (step, w, r)")
    assert not site.repairs
    assert sizes(state) == "1 2 B 3"
    assert state is not None
    assert not state.time_axes


def test_an_output_that_is_absent_has_axes_of_size_1() -> None:
    _, (state, last) = infer(f"{GRU} (x, w, r)", ", last")
    assert (sizes(state), sizes(last)) == ("T 1 B 1", "1 B 1")


@pytest.mark.parametrize(
    ("length", "reason"),
    [
        (T, ""),
        (T + 1, "the lengths that it is given are not those of what is valid"),
        (None, "the lengths that it is given are not those of what is valid"),
    ],
)
def test_lengths_of_the_model_are_kept(length: sympy.Expr | None, reason: str) -> None:
    node = f"{GRU} (x, w, r, , lens)"
    if not reason:
        assert not infer(node, lens={"length": length})[0].repairs
        return
    with pytest.raises(RefusedError, match=reason):
        infer(node, lens={"length": length})


@pytest.mark.parametrize(
    ("axes", "reason"),
    [
        (((TimeFactor(T, reversed=True),), (BatchFactor(size_expr("B")),), ()), "turned around"),
        (((TimeFactor(T), OtherFactor(T)), (BatchFactor(size_expr("B")),), ()), "its time axis"),
        (((TimeFactor(T),), (OtherFactor(size_expr("B")),), ()), "its batch axis holds"),
        (((TimeFactor(T),), (BatchFactor(T), BatchFactor(T)), ()), "its batch axis holds"),
        (((TimeFactor(T),), (BatchFactor(T), OtherFactor(T)), ()), "its batch axis holds"),
        (((BatchFactor(T), TimeFactor(T)), (BatchFactor(T),), ()), "it mixes rows of the batch"),
    ],
)
def test_axes_that_are_refused(axes: Any, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        infer(f"{GRU} (x, w, r)", x={"axes": axes, "tails": (FINITE, None, None)})


def test_time_is_neither_rows_nor_features() -> None:
    rows = (BatchFactor(size_expr("B")),)
    for axes, tails in (
        ((rows, (TimeFactor(T),), ()), (None, FINITE, None)),
        (((TimeFactor(T),), rows, (TimeFactor(T),)), (FINITE, None, FINITE)),
    ):
        with pytest.raises(RefusedError, match=r"time is its batch|mixes rows"):
            infer(f"{GRU} (x, w, r)", x={"axes": axes, "tails": tails})


def test_a_batch_of_fixed_parts_is_one() -> None:
    rows = (BatchFactor(size_expr("B")), OtherFactor(sympy.Integer(2)))
    axes = ((TimeFactor(T),), rows, ())
    with pytest.raises(RefusedError, match="its batch axis holds something else"):
        infer(f"{GRU} (x, w, r)", x={"axes": (axes[0], (OtherFactor(T), *rows), ())})
    _, (state, _) = infer(f"{GRU} (step, w, r)", step={"axes": ((), rows, ())})
    assert sizes(state) == "1 2 2*B 3"
    _, (state, _) = infer(f"{GRU} (step, w, r)", step={"axes": ((), (), ())})
    assert sizes(state) == "1 2 1 3"


@pytest.mark.parametrize("name", ["w", "r"])
def test_parameters_without_time(name: str) -> None:
    for facts in ({"tails": (None, FINITE, None)}, {"counts_padding": True}):
        with pytest.raises(RefusedError, match="a parameter of it carries time"):
            infer(f"{GRU} (x, w, r)", **{name: facts})


@pytest.mark.parametrize(
    ("moves", "found"),
    [
        ("n = Cast <to = 6> (l)", True),
        ("c = Cast <to = 6> (l) s = Shape <start = 1, end = 2> (x) n = Expand (c, s)", True),
        ("c = Cast <to = 6> (l) n = Identity (c)", True),
        ("k = Add (l, l) n = Cast <to = 6> (k)", False),
        ("k = Neg (lens) n = Identity (k)", False),
    ],
)
def test_the_padded_size_as_length_is_replaced(moves: str, found: bool) -> None:
    body = f"l = Shape <start = 0, end = 1> (x) {moves} y = {GRU} (x, w, r, , n)"
    site = site_of(body, inputs=INPUTS, axis="x.0", n={"counts_padding": True})
    if found:
        RULES["GRU"].infer_states(site)
        assert len(site.repairs) == 1
        return
    with pytest.raises(RefusedError, match="the lengths that it is given are not those"):
        RULES["GRU"].infer_states(site)
