"""A length input that a repair has added is fed in full."""

from __future__ import annotations

import json

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.feeds.full_lengths import add_full_lengths
from graphfix.lengths.length_input import KEY
from tests.feeds.small_models import model


def repaired(lengths: str, kind: str = "lengths") -> ir.Model:
    made = model(
        f"""m (float[3, 4] table, float[B, T, 2] x, int64[{lengths}] ilens) => (float[B, T, 2] y)
        {{ y = Relu (x) }}"""
    )
    made.metadata_props[KEY] = json.dumps({"input": "ilens", "axis": "x.1", "kind": kind})
    return made


FEEDS = {"table": np.zeros((3, 4), np.float32), "x": np.zeros((5, 9, 2), np.float32)}


@pytest.mark.parametrize(("dim", "rows"), [("B", 5), ("1", 1), ("2", 2), ("C", 1)])
def test_each_row_is_full(dim: str, rows: int) -> None:
    fed = add_full_lengths(repaired(dim), FEEDS)
    assert fed["ilens"].dtype == np.int64
    assert fed["ilens"].tolist() == [9] * rows
    assert fed["x"] is FEEDS["x"]


def test_what_is_fed_already_stays() -> None:
    lengths = np.array([1, 2, 3, 4, 5])
    assert add_full_lengths(repaired("B"), {**FEEDS, "ilens": lengths})["ilens"] is lengths


def test_nothing_is_added_without_lengths_or_what_they_measure() -> None:
    assert add_full_lengths(repaired("B", "mask"), FEEDS).keys() == FEEDS.keys()
    assert add_full_lengths(repaired("B"), {"table": FEEDS["table"]}).keys() == {"table"}
    plain = model("m (float[T] x) => (float[T] y) { y = Relu (x) }")
    assert add_full_lengths(plain, {"x": FEEDS["x"]}).keys() == {"x"}
