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
    [("batch", "2, batch, 128", "batch"), ("S", "2, S, 128", None), ("n", "2, 64, n", None)],
)
def test_a_batch_comes_second_in_states(first: str, states: str, batch: str | None) -> None:
    signature = Signature(model(STATE.format(first=first, states=states)))
    assert signature.batch == batch
    if batch:
        assert [x.rows for x in signature.inputs] == [0, 1]
        assert signature.times == ["T"]
