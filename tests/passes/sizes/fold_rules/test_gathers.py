"""Gathers that take every element in its own place, and those that take it in another."""

from __future__ import annotations

import numpy as np
import pytest

import graphfix
from tests.passes.models import execute, model, ops

GRID = "{0, 0, 0, 1, 0, 2, 1, 0, 1, 1, 1, 2}"
FROM_BEHIND = "{-2, -3, 0, 1, 0, -1, -1, 0, 1, 1, 1, 2}"
TURNED = "{0, 0, 1, 0, 0, 1, 1, 1, 0, 2, 1, 2}"
SHORT = "{0, 0, 0, 1, 0, 2, 1, 0}"


@pytest.mark.parametrize(
    ("index", "body", "left"),
    [
        (f"int64[2, 3, 2] i = {GRID}", "GatherND (x, i)", []),
        (f"int64[2, 1, 1, 3, 2] i = {GRID}", "GatherND (x, i)", ["Unsqueeze"]),
        (f"int64[2, 1, 3, 2] i = {FROM_BEHIND}", "GatherND (x, i)", ["Unsqueeze"]),
        (f"int64[3, 2, 2] i = {GRID}", "GatherND (x, i)", ["Reshape"]),
        (f"int64[3, 2, 2] i = {TURNED}", "GatherND (x, i)", ["GatherND"]),
        (f"int64[2, 2, 2] i = {SHORT}", "GatherND (x, i)", ["GatherND"]),
        ("int64[2, 1] i = {0, 1}", "GatherND (x, i)", ["GatherND"]),  # rows, not elements
        ("int64[2, 1] i = {0, 1}", "GatherND <batch_dims = 1> (x, i)", ["GatherND"]),
        ("int64[3] i = {0, 1, 2}", "Gather <axis = 1> (x, i)", []),
        ("int64[3] i = {0, -2, -1}", "Gather <axis = -1> (x, i)", []),
        ("int64[3, 1] i = {0, 1, 2}", "Gather <axis = 1> (x, i)", ["Unsqueeze"]),
        ("int64[3] i = {0, 2, 1}", "Gather <axis = 1> (x, i)", ["Gather"]),
        ("int64[2] i = {0, 1}", "Gather <axis = 1> (x, i)", ["Gather"]),
    ],
)
def test_what_takes_all_in_order_is_a_view(index: str, body: str, left: list[str]) -> None:
    text = f"m (float[2, 3] x) => (float y) <{index}> {{ g = {body} y = Neg (g) }}"
    before, after = model(text), model(text)
    graphfix.run(after, "fold")
    assert ops(after) == [*left, "Neg"]
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}
    np.testing.assert_array_equal(execute(after, feeds)[0], execute(before, feeds)[0])


def test_open_sizes_stay_gathered() -> None:
    text = "m (float[B, T] x) => (float y) <int64[2] i = {0, 1}> { y = Gather <axis = 1> (x, i) }"
    m = model(text)
    graphfix.run(m, "fold")
    assert ops(m) == ["Gather"]
