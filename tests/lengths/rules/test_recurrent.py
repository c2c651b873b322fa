"""Rules for LSTM, GRU and RNN."""

from __future__ import annotations

import pytest

from graphfix.lengths.tail_state import ZERO, BatchFactor
from tests.lengths.analysed import analysis_of, leaks, reasons, state_of

WEIGHTS = ", ".join(["0.1"] * 16)
CONSTANTS = f"float[1, 4, 4] w = {{{WEIGHTS}}}, int64[1] one = {{1}}, int64[1] zero = {{0}}"
SWAP = "c = Transpose <perm = [1, 0, 2]> (x)"
LENGTHS = "float[B, T, 4] x, int32[B] n"


def test_each_row_gets_its_length() -> None:
    analysis = analysis_of(f"{SWAP} y, h = RNN <hidden_size = 4> (c, w, w)", constants=CONSTANTS)
    assert not analysis.refusals
    assert "recurrence" in leaks(analysis)
    steps, last = state_of(analysis, "y"), state_of(analysis, "h")
    assert steps is not None
    assert last is not None
    assert steps.tails == (ZERO, None, None, None)
    assert isinstance(steps.factors_of(2)[0], BatchFactor)
    assert last.tails == (None, None, None)


def test_the_batch_may_come_first() -> None:
    body = "y = RNN <hidden_size = 4, layout = 1> (x, w, w)"
    state = state_of(analysis_of(body, constants=CONSTANTS), "y")
    assert state is not None
    assert state.tails == (None, ZERO, None, None)
    assert isinstance(state.factors_of(0)[0], BatchFactor)


def test_the_padded_size_for_all_rows_is_replaced() -> None:
    body = f"""{SWAP} s = Shape (x) t = Gather (s, one) b = Gather (s, zero) e = Expand (t, b)
        l = Cast <to = 6> (e) y = RNN <hidden_size = 4> (c, w, w, , l)"""
    analysis = analysis_of(body, constants=CONSTANTS)
    assert not analysis.refusals
    assert "recurrence" in leaks(analysis)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (f"{SWAP} y = RNN <hidden_size = 4> (c, w, w, , n)", "the lengths that it is given are"),
        ("y = RNN <hidden_size = 4> (x, w, w)", "it mixes rows of the batch"),
        (f"{SWAP} f = Slice (c, m1, far, zero, m1) y = RNN <hidden_size = 4> (f, w, w)", "it runs"),
        (f"{SWAP} p = ReduceSum (c, zero) y = RNN <hidden_size = 4> (c, w, c)", "a parameter"),
    ],
)
def test_refusals(body: str, reason: str) -> None:
    constants = f"{CONSTANTS}, int64[1] m1 = {{-1}}, int64[1] far = {{-9223372036854775807}}"
    assert reasons(analysis_of(body, inputs=LENGTHS, constants=constants))[0].startswith(reason)
