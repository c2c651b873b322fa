"""Where float16 ends."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.float16_search.float16_range import (
    SMALLEST_VARIANCE,
    RangeGap,
    is_near_limit,
    measure_gap,
    norm_fault,
)

INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
    ("before", "after", "largest", "lost"),
    [
        ([1.0, -3.0], [1.0, -3.0], 3.0, 0),
        ([1e5, 1.0], [INF, 1.0], 1.0, 1),
        ([1e5, NAN], [NAN, 1.0], 0.0, 1),
        ([INF, 1.0], [INF, 1.0], 1.0, 0),
        ([7e4, 1.0], [6e4, 1.0], 7e4, 0),
        # Another fill of a mask.
        ([7e4, 1.0], [3e4, 1.0], 1.0, 0),
        ([-1e9, 1.0], [-65504.0, 1.0], 1.0, 0),
        ([-1e4, 1.0], [-1e4, 1.0], 1.0, 0),
        ([-9e3, 1.0], [-9e3, 1.0], 9e3, 0),
        ([-2e4, 1.0], [-9e3, 1.0], 2e4, 0),
        ([-9e3, 1.0], [-2e4, 1.0], 9e3, 0),
        ([], [], 0.0, 0),
    ],
)
def test_gaps(before: list[float], after: list[float], largest: float, lost: int) -> None:
    gap = measure_gap(np.array(before, np.float32), np.array(after, np.float32))
    assert gap == RangeGap(largest, lost)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (np.zeros(2, np.int64), np.zeros(2, np.float32)),
        (np.zeros(2, np.float32), np.zeros(3, np.float32)),
        (np.zeros(2, np.float32), np.zeros(2, np.int64)),
        (np.zeros(2, np.float64), np.zeros(2, np.float32)),
    ],
)
def test_what_is_not_compared(before: np.ndarray, after: np.ndarray) -> None:
    assert measure_gap(before, after) is None


@pytest.mark.parametrize(
    ("numbers", "near"),
    [
        ([1.0, 2.0], False),
        ([16376.0], False),
        ([16377.0], True),
        ([-16377.0], True),
        ([INF, NAN, 1.0], False),
        ([2e4, 2e4], False),
        ([2e4, 2e4, 3e4], True),
        ([2e4] * 3 + [3e4] * 3, False),
        ([2e4] * 300 + [3e4] * 3, False),
        ([2e4] * 300 + [3e4] * 2, True),
        ([2e4 + i for i in range(9)] * 2, True),
        ([2e4 + i for i in range(8)] * 2, False),
    ],
)
def test_a_fill_recurs_and_an_activation_does_not(numbers: list[float], near: bool) -> None:
    assert is_near_limit(np.array(numbers, np.float32)) == near


def norm(text: str) -> ir.Node:
    header = '<ir_version: 8, opset_import: ["" : 21, "com.microsoft" : 1]>'
    inputs = "float[N, C, T] x, float[N, C, T] s, float[C] w"
    return ir.from_onnx_text(f"{header} g ({inputs}) => (y) {{ y = {text} }}").graph[-1]


@pytest.mark.parametrize(
    ("number", "fault"),
    [(127.96, ""), (127.98, "the mean square of what it takes reaches 1.64e+04")],
)
def test_mean_squares(number: float, fault: str) -> None:
    data = np.full((1, 2, 4), number, np.float32)
    data[0, 0, 1] = -number
    assert norm_fault(norm("SimplifiedLayerNormalization (x, w)"), "x", data, 21) == fault


@pytest.mark.parametrize(
    ("spread", "epsilon", "faulty"),
    [(1e-3, 1e-12, True), (4e-3, 1e-12, False), (1e-3, 1e-5, False), (0.0, 1e-12, False)],
)
def test_variances(spread: float, epsilon: float, faulty: bool) -> None:
    data = np.array([[[spread, -spread]]], np.float32)
    node = norm(f"LayerNormalization <epsilon = {epsilon}> (x, w)")
    assert bool(norm_fault(node, "x", data, 21)) == faulty


def test_a_variance_at_the_limit_is_large_enough() -> None:
    spread = np.sqrt(SMALLEST_VARIANCE)
    for factor, faulty in ((1.0001, False), (0.999, True)):
        data = np.array([[[1, -1]]], np.float64) * spread * factor
        node = norm("LayerNormalization <epsilon = 0.0> (x, w)")
        assert bool(norm_fault(node, "x", data.astype(np.float32), 21)) == faulty


@pytest.mark.parametrize(
    ("node", "name", "summed"),
    [
        ("com.microsoft.SkipLayerNormalization (x, s, w)", "s", True),
        ("com.microsoft.SkipLayerNormalization (x, s, w)", "w", False),
        ("LayerNormalization (x, w)", "w", False),
        ("com.microsoft.SkipGroupNorm <groups = 1> (x, w, w, s)", "s", True),
        ("com.microsoft.SkipGroupNorm <groups = 1> (x, w, w, s)", "x", True),
        ("com.microsoft.SkipGroupNorm <groups = 1> (x, w, w, s)", "w", False),
        ("Softmax (x)", "x", False),
    ],
)
def test_what_is_summed(node: str, name: str, summed: bool) -> None:
    data = np.full((1, 2, 4), 1e3, np.float32)
    assert bool(norm_fault(norm(node), name, data, 21)) == summed


@pytest.mark.parametrize(
    ("node", "faulty"),
    [
        ("GroupNormalization <num_groups = 2> (x, w, w)", True),
        ("GroupNormalization <num_groups = 1> (x, w, w)", False),
        ("com.microsoft.GroupNorm <groups = 2, channels_last = 0> (x, w, w)", True),
        ("com.microsoft.GroupNorm <groups = 2, channels_last = 1> (x, w, w)", False),
        ("com.microsoft.GroupNorm <groups = 2> (x, w, w)", False),
    ],
)
def test_groups_are_averaged_apart(node: str, faulty: bool) -> None:
    """Of two groups of channels the first holds what is large."""
    data = np.zeros((1, 2, 4), np.float32)
    data[0, 0] = 150.0
    assert bool(norm_fault(norm(node), "x", data, 21)) == faulty
