"""Frames that a repair picks by the length of each row, run on ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from graphfix.lengths.repairs.frames import (
    AppendCopies,
    AppendFrames,
    EdgeTail,
    FirstFrame,
    LastFrames,
    PadFrames,
)
from graphfix.lengths.tail_state import size_expr
from tests.lengths.rewritten import Array, operators, repair, run, site_before

T = size_expr("T")
LENGTHS = (2, 4, 5)
X = np.arange(1, 61, dtype=np.float32).reshape(3, 5, 4)


def feeds(**more: Array) -> dict[str, Array]:
    return {"x": X, "ilens": np.array(LENGTHS), **more}


# The last frames


@pytest.mark.parametrize("offsets", [(-1,), (-2, -1), (-2,)])
def test_the_last_frames_are_those_of_each_row(offsets: tuple[int, ...]) -> None:
    site = site_before()
    change = LastFrames(site.node, "last-frame read", 1, T, site.state(), offsets, False)
    result = run(repair(site, change), **feeds())
    expected = [[x[n + i] for i in offsets] for x, n in zip(X, LENGTHS, strict=True)]
    np.testing.assert_array_equal(result, expected)


def test_the_axis_of_one_frame_may_go() -> None:
    site = site_before("y = Gather <axis = 1> (x, last)", constants="int64 last = {-1}")
    change = LastFrames(site.node, "last-frame read", 1, T, site.state(), (-1,), True)
    result = run(repair(site, change), **feeds())
    np.testing.assert_array_equal(result, [X[0, 1], X[1, 3], X[2, 4]])


def test_before_the_first_frame_is_the_first() -> None:
    site = site_before()
    change = LastFrames(site.node, "last-frame read", 1, T, site.state(), (-3,), False)
    result = run(repair(site, change), **feeds())
    np.testing.assert_array_equal(result, [X[0, :1], X[1, 1:2], X[2, 2:3]])


# Padding


@pytest.mark.parametrize(("begin", "end"), [(0, 1), (1, 0), (1, 1), (3, 2)])
@pytest.mark.parametrize("mode", ["edge", "reflect"])
def test_padding_copies_valid_frames(mode: str, begin: int, end: int) -> None:
    site = site_before("y = Pad (x, pads)", constants="int64[6] pads = {0, 0, 0, 0, 0, 0}")
    size = size_expr(f"T + {begin + end}")
    change = PadFrames(site.node, "frame copy", 1, T, site.state(), size, begin, mode == "reflect")
    result = run(repair(site, change), **feeds())
    assert result.shape == (3, 5 + begin + end, 4)
    for row, length in enumerate(LENGTHS):
        if mode == "reflect" and length <= max(begin, end):
            continue  # the clip alone is refused
        alone = np.pad(X[row, :length], ((begin, end), (0, 0)), mode)  # type: ignore[call-overload]
        np.testing.assert_array_equal(result[row, : length + begin + end], alone)


def test_a_tail_of_copies_is_that_of_an_input() -> None:
    site = site_before("y = Sub (x, x)")
    change = EdgeTail(site.node, "boundary leak", 1, T, site.state(1), 1)
    result = run(repair(site, change), **feeds())
    edge = [[x[min(i, n - 1)] for i in range(5)] for x, n in zip(X, LENGTHS, strict=True)]
    np.testing.assert_array_equal(result, X - np.array(edge))


def test_a_tail_of_copies_is_built_once() -> None:
    site = site_before("y = Sub (x, x)")
    state = site.state()
    for index in (0, 1):
        repair(site, EdgeTail(site.node, "boundary leak", 1, T, state, index))
    first, second = site.node.inputs
    assert first is second
    assert first is not site.value("x")


# One frame


def test_a_result_of_one_frame_is_the_first() -> None:
    site = site_before("y = PRelu (x, slope)", constants="float slope = {0.5}")
    change = FirstFrame(site.node, "boundary leak", 1, T, site.state())
    x = -X
    result = run(repair(site, change), **feeds(x=x, ilens=np.array([1, 2, 5])))
    np.testing.assert_array_equal(result[0], np.broadcast_to(x[0, :1], (5, 4)))
    np.testing.assert_array_equal(result[1], x[1] / 2)


def test_the_first_frame_is_that_of_its_axis() -> None:
    site = site_before(
        "y = LeakyRelu <alpha = 0.5> (x)", inputs="float[B, 4, T] x, int64[B] ilens", axis="x.2"
    )
    change = FirstFrame(site.node, "boundary leak", 2, T, site.state())
    x = -X.transpose(0, 2, 1)
    result = run(repair(site, change), **feeds(x=x, ilens=np.array([1, 2, 5])))
    np.testing.assert_array_equal(result[0], np.broadcast_to(x[0, :, :1], (4, 5)))


# Appended frames


@pytest.mark.parametrize("count", [1, 3])
def test_what_is_appended_goes_behind_what_is_valid(count: int) -> None:
    inputs = f"float[B, T, 4] x, int64[B] ilens, float[B, {count}, 4] z"
    site = site_before("y = Concat <axis = 1> (x, z)", inputs=inputs)
    change = AppendFrames(site.node, "frame copy", 1, T, site.state(), count)
    z = -np.arange(1, 1 + 12 * count, dtype=np.float32).reshape(3, count, 4)
    result = run(repair(site, change), **feeds(z=z))
    assert result.shape == (3, 5 + count, 4)
    for row, length in enumerate(LENGTHS):
        alone = np.concatenate([X[row, :length], z[row]])
        np.testing.assert_array_equal(result[row, : length + count], alone)
    # The padding stays where it was.
    np.testing.assert_array_equal(result[0, 2 + count : 5], X[0, 2 + count : 5])


@pytest.mark.parametrize(
    ("node", "depth"),
    [
        ("y = Concat <axis = 1> (x, z)", 0),
        ("e = Expand (z, shape)  y = Concat <axis = 1> (x, e)", 1),
        ("e = Expand (z, shape)  n = Identity (e)  y = Concat <axis = 1> (x, n)", 2),
    ],
)
def test_copies_go_behind_what_is_valid(node: str, depth: int) -> None:
    site = site_before(
        node,
        inputs="float[B, T, 4] x, int64[B] ilens, float[B, 1, 4] z",
        constants="int64[3] shape = {1, 3, 1}",
    )
    size = size_expr("T + 3")
    change = AppendCopies(site.node, "frame copy", 1, size, site.state(), T, depth, True)
    z = -np.arange(1, 13, dtype=np.float32).reshape(3, 1, 4)
    result = run(repair(site, change), **feeds(z=z))
    for row, length in enumerate(LENGTHS):
        alone = np.concatenate([X[row, :length], np.repeat(z[row], 8 - length, 0)])
        np.testing.assert_array_equal(result[row], alone)
    assert "Expand" not in operators(site.model)


def test_one_copy_for_all_rows_is_spread_over_them() -> None:
    site = site_before(
        "e = Expand (z, shape)  y = Concat <axis = 1> (w, x, e)",
        inputs="float[B, T, 4] x, int64[B] ilens, float[1, 1, 4] z, float[B, 1, 4] w",
        constants="int64[3] shape = {3, 3, 1}",
    )
    size, before = size_expr("T + 4"), size_expr("T + 1")
    state = site.state(1)
    change = AppendCopies(site.node, "frame copy", 1, size, state, before, 1, False)
    z, w = np.full((1, 1, 4), -1, np.float32), np.full((3, 1, 4), -2, np.float32)
    result = run(repair(site, change), **feeds(z=z, w=w))
    for row, length in enumerate(LENGTHS):
        alone = np.concatenate([w[row], X[row, :length], np.repeat(z[0], 8 - length, 0)])
        np.testing.assert_array_equal(result[row], alone)


def test_a_frame_that_is_made_by_no_node_is_an_error() -> None:
    inputs = "float[B, T, 4] x, int64[B] ilens, float[B, 1, 4] z"
    site = site_before("y = Concat <axis = 1> (x, z)", inputs=inputs)
    change = AppendCopies(site.node, "frame copy", 1, T, site.state(), T, 1, True)
    with pytest.raises(RuntimeError, match="z is made by no node"):
        repair(site, change)
    site.node.replace_input_with(1, None)
    with pytest.raises(RuntimeError, match="input -1 of"):
        repair(site, change)
