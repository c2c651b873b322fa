"""Which dims are a batch."""

from __future__ import annotations

import pytest

from graphfix.feeds.signature import Signature
from tests.feeds.small_models import model

ROWS = """m (int32[unk__1, {size}] ids) => (float[unk__2, {size}, 3] y)
    <int32[3] three = {{0, 1, 2}}, int64[1] ax = {{-1}}>
    {{ u = Unsqueeze (ids, ax)  h = Equal (u, three)  y = Cast <to = 1> (h) }}"""


@pytest.mark.parametrize(("size", "batch"), [(2048, "unk__1"), (8, None)])
def test_rows_of_many_whole_numbers_are_a_batch(size: int, batch: str | None) -> None:
    """Of few they may be the codes of a frame."""
    assert Signature(model(ROWS.format(size=size))).batch == batch


STATE = """m (float[{first}, T] x, float[{states}] h) => (float[Q, T] y, float[{states}] g)
    {{ g = Tanh (h)  y = Relu (x) }}"""


@pytest.mark.parametrize(
    ("first", "states", "batch"),
    [
        ("batch", "2, batch, 128", "batch"),
        ("batch", "1, 3, batch, 128", "batch"),
        ("S", "2, S, 128", None),
        ("n", "2, 64, n", None),
    ],
)
def test_a_batch_comes_second_in_states(first: str, states: str, batch: str | None) -> None:
    signature = Signature(model(STATE.format(first=first, states=states)))
    assert signature.batch == batch
    if batch:
        assert [x.rows for x in signature.inputs] == [0, states.split(", ").index("batch")]
        assert signature.times == ["T"]


def test_a_first_dim_of_two_inputs_that_comes_second_in_another_is_a_batch() -> None:
    """Dynamo calls it ``s28``, beside ids of positions of three axes."""
    text = """m (float[s28, s27, 4] x, int64[3, s28, s27] ids, float[s28, 2, s0, 4] past)
        => (float[s28, s27, 4] y, int64[3, s28, s27] z, float[s28, 2, s0, 4] w)
        { y = Tanh (x)  z = Neg (ids)  w = Relu (past) }"""
    signature = Signature(model(text))
    assert signature.batch == "s28"
    assert [x.rows for x in signature.inputs] == [0, 1, 0]


LSTM = """m (float[S, B, 2] x, float[3, N, 1] h, float[3, N, 1] c) =>
    (float[S, B, 1] y, float[Q, N, 1] hn, float[Q, N, 1] cn)
    <float[1, 4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}, float[1, 4, 1] r = {1, 2, 3, 4},
     int64[1] one = {1}, int64[1] two = {2}, int64[1] zero = {0}>
    { h0 = Slice (h, one, two, zero)  c0 = Slice (c, one, two, zero)
      a, hn, cn = LSTM <hidden_size = 1> (x, w, r, , , h0, c0)  y = Squeeze (a, one) }"""


def test_a_recurrence_says_which_axis_is_the_batch_of_its_data_and_states() -> None:
    signature = Signature(model(LSTM))
    assert signature.batch_symbols == {"B", "N"}
    assert [x.rows for x in signature.inputs] == [1, 1, 1]
    assert signature.times == ["S"]


def test_rows_of_a_recurrence_that_starts_from_zeros_may_be_frames() -> None:
    text = LSTM.replace(", , , h0, c0)", ")").replace("[S, B, 2]", "[8, T, 2]")
    assert Signature(model(text.replace("[S, B, 1]", "[8, T, 1]"))).batch is None


def test_one_number_a_row_is_of_the_batch_and_a_vector_of_data_is_not() -> None:
    text = """m (float[B, T, 3] x, int64[N7] voice, float[K] scale)
            => (float[B, T, 3] y, float[K] z)
        <float[2, 1] t = {1, 2}> { e = Gather (t, voice)  y = Relu (x)  z = Tanh (scale) }"""
    signature = Signature(model(text))
    assert signature.batch_symbols == {"B", "N7"}
    assert [x.rows for x in signature.inputs] == [0, 0, None]


@pytest.mark.parametrize(
    ("dims", "rows", "time"), [("4, T", 0, 1), ("1", 0, None), ("4", None, None)]
)
def test_a_first_dim_that_is_a_number_is_a_batch_beside_others(
    dims: str, rows: int | None, time: int | None
) -> None:
    (item,) = Signature(
        model(f"m (float[{dims}] x) => (float[{dims}] y) {{ y = Relu (x) }}")
    ).inputs
    assert (item.rows, item.time) == (rows, time)


def test_nodes_of_a_graph_that_edges_name_are_no_batch() -> None:
    text = (
        """m (float[N, 4] x, int64[2, E] edges) => (float[2, E, 4] y) { y = Gather (x, edges) }"""
    )
    assert Signature(model(text)).batch is None


@pytest.mark.parametrize(
    ("dims", "batch"),
    [
        ("S", None),
        ("batch", "batch"),
        ("S, 4", None),
        ("batch, 4", "batch"),
        ("S, T", "S"),
        ("S, 4, 5", "S"),
        ("S, S", None),
    ],
)
def test_a_first_dim_is_a_batch_by_what_a_row_is(dims: str, batch: str | None) -> None:
    text = f"m (float[{dims}] x) => (float[{dims}] y) {{ y = Relu (x) }}"
    assert Signature(model(text)).batch == batch
