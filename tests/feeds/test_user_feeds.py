"""The user's own inputs: from a file or as arrays, and those that do not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphfix.errors import FeedError
from graphfix.feeds.signature import Signature
from graphfix.feeds.user_feeds import case_from_feeds, check_feeds
from tests.feeds.small_models import ADDITIVE, model


def test_given_inputs_are_used_as_they_are(tmp_path: Path):
    mask = np.array([[1, 1, 1], [1, 0, 0]])
    scores = np.zeros((2, 3, 3), np.float32)
    np.savez(tmp_path / "f.npz", a=mask, s=scores)
    case = case_from_feeds(tmp_path / "f.npz", Signature(model(ADDITIVE)))
    assert case.dims == {"B": 2, "T": 3}
    assert case.valid == {"T": (3, 1)}
    assert (case.feeds["a"] == mask).all()


def test_objects_are_no_arrays(tmp_path: Path):
    np.savez(tmp_path / "f.npz", words=np.array([["a", "b"]], dtype=object))
    with pytest.raises(FeedError, match=r"'words' is an array of Python objects.*dtype=str"):
        case_from_feeds(tmp_path / "f.npz", Signature(model(ADDITIVE)))


def test_given_inputs_that_do_not_fit(tmp_path: Path):
    signature = Signature(model(ADDITIVE))
    with pytest.raises(FeedError, match="lack 's'"):
        case_from_feeds({"a": np.ones((2, 3))}, signature)
    with pytest.raises(FeedError, match=r"'a' has shape \[3\].*\['B', 'T'\]"):
        case_from_feeds({"a": np.ones(3), "s": np.ones((1, 3, 3))}, signature)
    with pytest.raises(FeedError, match="no such file"):
        case_from_feeds(tmp_path / "none.npz", signature)
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(FeedError, match=r"not an \.npz file"):
        case_from_feeds(tmp_path / "text.npz", signature)


def test_inputs_are_checked_by_name_dtype_and_rank_before_anything_runs():
    graph = model(ADDITIVE)
    mask, scores = np.ones((2, 3), np.int64), np.zeros((2, 3, 3), np.float32)
    check_feeds({"a": mask, "s": scores}, graph)
    check_feeds({"a": mask}, graph)  # the other may become a constant
    with pytest.raises(FeedError, match="have 'sc', and the model has no input of that name"):
        check_feeds({"a": mask, "sc": scores}, graph)
    with pytest.raises(FeedError, match="'s' is float64, and the model wants float32: save it"):
        check_feeds({"s": scores.astype(np.float64)}, graph)
    with pytest.raises(FeedError, match=r"'s' has shape \[3, 3\]"):
        check_feeds({"s": scores[0]}, graph)
