"""Clips are padded into a container row by row, and outputs are cut to what is valid."""

from __future__ import annotations

import numpy as np
import pytest

from graphfix.errors import FeedError, ModelError
from graphfix.shipped.container_fit import (
    ClipFit,
    join_clips,
    length_of,
    require_inputs,
    row_axis_of,
    rows_in,
    split_batch,
)
from graphfix.shipped.derived_size import DerivedSize
from graphfix.shipped.manifest import Axis, Container, InputPort, Manifest, Port

X = InputPort("x", "tensor(float)", ("B", "T", 2), 0, pad=-1.0)
SHARE = InputPort("share", "tensor(float)", ("B",), 0, kind="relative-lengths")
SCALE = InputPort("scale", "tensor(int64)", (1,), None)
Y = Port("y", "tensor(float)", ("B", "floor(T/2)"), 0)
BOX = Container("box.onnx", {"B": 3, "T": 8})


def manifest(*inputs: InputPort, batch: str | None = "B", lengths: str | None = None) -> Manifest:
    half = DerivedSize("floor(T/2)", {"T": 1}, divide=2)
    return Manifest(Axis("T", "x", 1), batch, lengths, inputs or (X,), (Y,), (BOX,), (half,))


def clip(length: int, first: float = 0.0) -> dict[str, np.ndarray]:
    return {"x": np.arange(2 * length, dtype=np.float32).reshape(1, length, 2) + first}


def test_a_clip_is_padded_to_one_row() -> None:
    fit = ClipFit(manifest(), BOX, 5)
    row = fit.pad_input(X, clip(5))
    assert row.shape == (1, 8, 2)
    assert row.dtype == np.float32
    np.testing.assert_array_equal(row[:, :5], clip(5)["x"])
    assert (row[:, 5:] == -1).all()
    full = clip(8)
    assert ClipFit(manifest(), BOX, 8).pad_input(X, full) is full["x"]


def test_a_share_is_one_of_the_container() -> None:
    fit = ClipFit(manifest(X, SHARE), BOX, 4)
    assert fit.pad_input(SHARE, {"share": np.ones(1, np.float32)}).tolist() == [0.5]


def test_what_does_not_fit() -> None:
    fit = ClipFit(manifest(), BOX, 5)
    with pytest.raises(FeedError, match="'x' is missing"):
        fit.pad_input(X, {})
    with pytest.raises(FeedError, match=r"has 4 along axis 1, and 5 is expected \(T, with T=5\)"):
        fit.pad_input(X, clip(4))
    with pytest.raises(FeedError, match="has 3 along axis 2, and 2 is expected"):
        fit.pad_input(X, {"x": np.zeros((1, 5, 3), np.float32)})
    wrong = InputPort("x", "tensor(float)", ("B", "Q"), 0)
    with pytest.raises(ModelError, match="ship the model again"):
        ClipFit(manifest(wrong), BOX, 5)


def test_the_valid_part_of_a_row() -> None:
    fit = ClipFit(manifest(), BOX, 5)
    array = np.arange(12).reshape(3, 4)
    assert fit.cut_output(Y, array, 0).tolist() == [[0, 1]]
    assert fit.cut_output(Y, array, 2).tolist() == [[8, 9]]
    valid = np.zeros((1, 2))
    assert fit.cut_output(Y, valid, 0) is valid
    assert fit.cut_output(Y, valid, 1) is valid
    for odd in (np.zeros((3, 1)), np.zeros((3,)), np.zeros((3, 4, 1))):
        with pytest.raises(FeedError, match=r"'y' has shape .* in box.onnx, and \[1, 2\] of it"):
            fit.cut_output(Y, odd, 0)


def test_rows() -> None:
    assert row_axis_of(X) == 0
    assert row_axis_of(SCALE) is None
    assert row_axis_of(Port("y", "tensor(float)", (1, "T"), 0)) is None
    assert rows_in(manifest(), BOX) == 3
    assert rows_in(manifest(batch=None), BOX) == 1


def test_inputs_are_what_the_model_takes() -> None:
    m = manifest(X, SCALE)
    require_inputs(m, {**clip(5), "scale": np.ones(1, np.int64)})
    require_inputs(m, {})
    with pytest.raises(FeedError, match="no input 'z'; it has x, scale"):
        require_inputs(m, {"z": np.zeros(1)})
    with pytest.raises(FeedError, match=r"'x' has shape \[2, 2\], and the model takes \[B, T, 2\]"):
        require_inputs(m, {"x": np.zeros((2, 2), np.float32)})
    with pytest.raises(FeedError, match="'scale' is int32, and the model takes int64"):
        require_inputs(m, {"scale": np.ones(1, np.int32)})
    odd = manifest(InputPort("x", "tensor(string)", ("B",), 0))
    require_inputs(odd, {"x": np.array(["a"])})


def test_the_length_of_a_clip() -> None:
    assert length_of(manifest(), clip(5)) == 5
    with pytest.raises(FeedError, match="'x' is missing"):
        length_of(manifest(), {})


def test_clips_are_joined_and_free_rows_are_copies_of_the_first() -> None:
    m = manifest(lengths="n")
    fits = [ClipFit(m, BOX, 8), ClipFit(m, BOX, 2)]
    feeds = join_clips(m, 3, [clip(8), clip(2, 50)], fits)
    assert feeds["n"].tolist() == [8, 2, 8]
    assert feeds["n"].dtype == np.int64
    assert feeds["x"].shape == (3, 8, 2)
    np.testing.assert_array_equal(feeds["x"][0], feeds["x"][2])
    assert feeds["x"][1, 0, 0] == 50
    assert "n" not in join_clips(manifest(), 1, [clip(8)], fits[:1])


def test_an_input_without_rows_is_the_same_for_all() -> None:
    m = manifest(X, SCALE)
    fits = [ClipFit(m, BOX, 8)] * 2
    clips = [{**clip(8), "scale": np.array([n])} for n in (1, 1)]
    assert join_clips(m, 2, clips, fits)["scale"].tolist() == [1]
    clips[1]["scale"] = np.array([2])
    with pytest.raises(FeedError, match="'scale' has no rows"):
        join_clips(m, 2, clips, fits)
    assert join_clips(m, 1, clips[:1], fits[:1])["scale"].tolist() == [1]


def test_a_batch_is_split_into_clips() -> None:
    m = manifest(X, SCALE)
    scale = np.array([7])
    batch = {"x": np.arange(12, dtype=np.float32).reshape(2, 3, 2), "scale": scale}
    first, second = split_batch(m, batch)
    assert first["x"].tolist() == batch["x"][:1].tolist()
    assert second["x"].tolist() == batch["x"][1:].tolist()
    assert first["scale"] is scale
    one = {"x": batch["x"][:1], "scale": scale}
    assert split_batch(m, one) == [one]
    assert split_batch(m, {"scale": scale}) == [{"scale": scale}]
    with pytest.raises(FeedError, match="no clips"):
        split_batch(m, {"x": batch["x"][:0]})
    shares = {"x": batch["x"], "share": np.ones(3, np.float32)}
    with pytest.raises(FeedError, match="different numbers of rows"):
        split_batch(manifest(X, SHARE), shares)
