"""Arrays go from one process to another through a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphfix.runtime import _wire


def sent(folder: Path, arrays: dict[str, Any]) -> dict[str, Any]:
    with (folder / "wire").open("w+b", buffering=0) as file:
        table = json.loads(json.dumps(_wire.put(file, arrays)))
        return _wire.take(file, table)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.arange(6).reshape(2, 3).T,
        np.array(3, np.int8),
        np.zeros((0, 4), np.float16),
        np.array([True, False]),
    ],
)
def test_an_array_arrives_as_it_is(array: np.ndarray[Any, Any], tmp_path: Path) -> None:
    found = sent(tmp_path, {"x": array, "y": array})
    assert [*found] == ["x", "y"]
    for made in found.values():
        assert (made.dtype, made.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(made, array)


def test_texts_arrive_as_objects(tmp_path: Path) -> None:
    texts = np.array([["a", "ü"], [b"\xff", "d"]], dtype=object)
    found = sent(tmp_path, {"x": texts, "n": np.ones(2), "y": np.array(["p", "q"])})
    assert found["x"].tolist() == [["a", "ü"], ["\udcff", "d"]]
    assert found["x"].dtype == object
    assert found["n"].tolist() == [1, 1]
    assert found["y"].tolist() == ["p", "q"]


def test_what_was_there_is_written_over(tmp_path: Path) -> None:
    with (tmp_path / "wire").open("w+b", buffering=0) as file:
        _wire.put(file, {"x": np.arange(100)})
        table = _wire.put(file, {"x": np.arange(3)})
        assert _wire.take(file, table)["x"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(("limit", "size"), [(24, 24), (23, 0)])
def test_a_large_file_is_emptied(
    limit: int, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_wire, "_LARGEST_KEPT", limit)
    with (tmp_path / "wire").open("w+b", buffering=0) as file:
        _wire.take(file, _wire.put(file, {"x": np.arange(3)}))
        assert (tmp_path / "wire").stat().st_size == size


def test_an_array_that_has_not_come(tmp_path: Path) -> None:
    with (tmp_path / "wire").open("w+b", buffering=0) as file:
        table = _wire.put(file, {"x": np.arange(3)})
        file.truncate(16)
        with pytest.raises(EOFError, match="of the array 'x', 8 bytes have not come"):
            _wire.take(file, table)
