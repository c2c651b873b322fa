"""What containers count is how long a clip is, or an error: never numbers that are wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import graphfix
from graphfix.errors import FeedError
from graphfix.shipped.manifest import Axis, Container, InputPort, Manifest, Port
from graphfix.shipped.valid_inputs import require_countable
from tests.shipped.test_session import CPU, Pair, alone, same, tokens

MASK = InputPort("m", "tensor(int64)", ("B", "T"), 0, "mask", 0.0, 1.0, counted=True)
LENGTHS = InputPort("n", "tensor(int32)", ("B",), 0, "lengths", counted=True)


def manifest(*ports: InputPort, shortest: int = 1) -> Manifest:
    axis = Axis("T", "x", 1, shortest=shortest)
    y = Port("y", "tensor(float)", ("B",), 0)
    return Manifest(axis, "B", None, ports, (y,), (Container("c.onnx", {"B": 1, "T": 8}),))


def problem(port: InputPort, fed: Any, shortest: int = 1) -> str:
    try:
        require_countable(manifest(port, shortest=shortest), {port.name: np.asarray(fed)}, 4)
    except FeedError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int8, np.bool_, np.float32])
def test_ones_then_zeros_of_any_type(dtype: type) -> None:
    for rows in ([[1, 1, 1, 1]], [[1, 0, 0, 0]], [[1, 1, 0, 0], [1, 1, 1, 0]]):
        assert not problem(MASK, np.asarray(rows, dtype))
        assert not problem(MASK, np.asarray(rows, dtype)[:, None, :])
        assert not problem(MASK, np.asarray(rows, dtype)[:, :, None])


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (
            [[0, 1, 1, 1]],
            "the mask 'm' hides what is before 1 in row 0, and containers count in it",
        ),
        ([[1, 1, 1, 1], [1, 0, 1, 0]], "hides what is before 2 in row 1"),
        ([[0, 0, 0, 0]], "has 0 valid in row 0, and the shortest clip .* has 1"),
        ([[2, 1, 1, 1]], "has 2 in row 0 at 0"),
        ([[1.0, 0.5, 0, 0]], "has 0.5 in row 0 at 1, .* it has to be 1 for what is valid, then 0"),
        ([[0.0, -np.inf, 0, 0]], "has -inf in row 0 at 1"),
        ([[np.nan, 1, 1, 1]], "has nan in row 0 at 0"),
        ([[-1, 0, 0, 0]], "has -1 in row 0 at 0"),
    ],
)
def test_another_mask_is_refused(rows: list[list[float]], told: str) -> None:
    with pytest.raises(FeedError, match=told):
        require_countable(manifest(MASK), {"m": np.asarray(rows)}, 4)
    assert not problem(replace(MASK, counted=False), rows)


def test_a_mask_of_too_few_is_refused() -> None:
    assert "has 2 valid in row 1, and the shortest" in problem(MASK, [[1, 1, 1], [1, 1, 0]], 3)


@pytest.mark.parametrize("wrong", [0, 5, -1, 2**31 - 1])
def test_lengths_are_those_of_the_clip(wrong: int) -> None:
    assert not problem(LENGTHS, [1, 4])
    assert f"the input 'n' has {wrong}, and containers take" in problem(LENGTHS, [4, wrong])
    assert "it has to be 1 to 4" in problem(LENGTHS, [wrong])


@pytest.mark.parametrize("value", [np.nan, np.inf, 4.5])
def test_lengths_that_are_no_numbers_of_frames(value: float) -> None:
    assert f"has {value}" in problem(LENGTHS, [value])


def test_a_session_refuses_it_as_an_array_and_in_lists(masked: Pair) -> None:
    source, folder = masked
    session = graphfix.Session(folder, CPU)
    feeds = tokens(5, valid=3)
    (output,) = session.run(None, feeds)
    np.testing.assert_allclose(output[:, :3], alone(source, feeds)[0][:, :3], rtol=1e-5, atol=1e-5)
    holes = {**feeds, "mask": np.array([[1, 0, 1, 1, 1]])}
    with pytest.raises(FeedError, match="hides what is before 2 in row 0"):
        session.run(None, holes)
    with pytest.raises(FeedError, match="hides what is before 2 in row 0"):
        session.run(None, {k: [feeds[k], holes[k]] for k in feeds})
    same(session.run(None, tokens(5)), alone(source, tokens(5)))
