"""What the metadata of a model with caches of a fixed size says, and how it is fed."""

from __future__ import annotations

import json
import re

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.cache_axes.cache_input import KEY, CacheInput
from graphfix.errors import ModelError

CACHES = CacheInput(
    "valid", "past", 5, (("key", 1, 0.0), ("mask", 1, -1.0)), (("key", "new_key", 1),)
)


def test_the_key_is_that_of_files_written_before() -> None:
    assert KEY == "graphfix.caches"


def empty_model() -> ir.Model:
    return ir.from_onnx_text('<ir_version: 8, opset_import: ["" : 17]> g (float[1] x) => (x) {}')


def test_metadata_is_read_as_it_was_written() -> None:
    model = empty_model()
    assert CacheInput.all_from_metadata(model) == ()
    CACHES.write_metadata(model)
    other = CacheInput("", "frames", 2, (), ())
    other.write_metadata(model)
    assert CacheInput.all_from_metadata(model) == (CACHES, other)
    assert hash(CacheInput.all_from_metadata(model)[0]) == hash(CACHES)


def test_a_dim_has_one_entry_the_last() -> None:
    model = empty_model()
    CacheInput("", "frames", 2, (), ()).write_metadata(model)
    CacheInput("", "past", 2, (), ()).write_metadata(model)
    CACHES.write_metadata(model)
    assert [(x.dim, x.size) for x in CacheInput.all_from_metadata(model)] == [
        ("frames", 2),
        ("past", 5),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "1",
        "[1]",
        '[{"input": "a"}]',
        '[{"input": "a", "dim": "b", "size": "c", "padded": [], "states": []}]',
        '[{"input": "a", "dim": "b", "size": 1, "padded": [[1]], "states": []}]',
        '[{"input": "a", "dim": "b", "size": 1, "padded": [], "states": [["a", "b", "c"]]}]',
        '[{"input": "a", "dim": "b", "size": 1e999, "padded": [], "states": []}]',
    ],
)
def test_a_malformed_entry_is_said(text: str) -> None:
    model = empty_model()
    model.metadata_props[KEY] = text
    with pytest.raises(ModelError, match=rf"{re.escape(KEY)}=.* is malformed"):
        CacheInput.all_from_metadata(model)


def test_numbers_are_read_as_such() -> None:
    model = empty_model()
    entry = {"input": "", "dim": "d", "size": 3, "padded": [["x", 2, 1]], "states": [["a", "b", 0]]}
    model.metadata_props[KEY] = json.dumps([entry])
    (caches,) = CacheInput.all_from_metadata(model)
    assert caches == CacheInput("", "d", 3, (("x", 2, 1.0),), (("a", "b", 0),))


def test_the_caches_tell_how_many_entries_are_valid() -> None:
    key, mask = np.ones((1, 3)), np.ones((1, 4))
    assert CACHES.cache_length({"key": key, "mask": mask}) == 3
    assert CACHES.cache_length({"mask": mask}) == 0
    alone = CacheInput("valid", "past", 5, (("mask", 1, 0.0),), ())
    assert alone.cache_length({"mask": mask}) == 4
    assert alone.cache_length({}) == 0


def test_entries_come_behind_what_fills_them_up() -> None:
    feeds = {
        "key": np.array([[1.0, 2.0, 3.0]]),
        "mask": np.array([[4.0, 5.0, 6.0, 7.0]]),
        "x": np.zeros(2),
    }
    new = CACHES.pad_feeds(feeds)
    assert new["key"].tolist() == [[0, 0, 1, 2, 3]]
    assert new["mask"].tolist() == [[-1, -1, 4, 5, 6, 7]]
    assert new["valid"].tolist() == [3]
    assert new["valid"].dtype == np.int64
    assert new["x"] is feeds["x"]
    assert "valid" not in feeds


def test_feeds_that_are_absent_stay_so() -> None:
    assert set(CACHES.pad_feeds({"x": np.zeros(2)})) == {"x", "valid"}
    assert set(CacheInput("", "past", 5, CACHES.padded, ()).pad_feeds({})) == set()
