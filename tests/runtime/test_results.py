"""Outputs that are no tensors become arrays by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphfix.runtime._results import flatten_output


@pytest.mark.parametrize(
    ("result", "arrays"),
    [
        (None, {"y.present": False}),
        ([], {"y.length": 0}),
        ([np.array(1), np.array(2)], {"y.length": 2, "y[0]": 1, "y[1]": 2}),
        ((3,), {"y.length": 1, "y[0]": 3}),
        ({2: 0.5, 1: 1.5}, {"y.keys": [1, 2], "y[1]": 1.5, "y[2]": 0.5}),
        ([{"a": 1}], {"y.length": 1, "y[0].keys": ["a"], "y[0]['a']": 1}),
        (True, {"y": True}),
        (np.float32(2), {"y": 2.0}),
        ("text", {"y": "text"}),
        (object(), {}),
    ],
)
def test_a_result_by_name(result: Any, arrays: dict[str, Any]) -> None:
    found = flatten_output("y", result)
    assert {name: array.tolist() for name, array in found.items()} == arrays
    assert list(found) == list(arrays)


def test_an_array_stays_itself_and_text_is_an_object() -> None:
    array = np.ones(3)
    assert flatten_output("y", array)["y"] is array
    assert flatten_output("y", "text")["y"].dtype == object
    assert flatten_output("y", {"b": 1, "a": 2})["y.keys"].dtype == object
    assert flatten_output("y", 3)["y"].dtype.kind == "i"
