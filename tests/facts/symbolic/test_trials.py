"""Sizes evaluated for clips of many lengths."""

from __future__ import annotations

import numpy as np
import pytest

from graphfix.facts.symbolic.trials import (
    TRIAL_LENGTHS,
    lengths_where_equal,
    must_be_equal,
    size_at_trials,
)
from graphfix.lengths.tail_state import size_expr


def test_a_size_at_each_length() -> None:
    sizes = size_at_trials(size_expr("floor(T/2) + 1"))
    np.testing.assert_array_equal(sizes, TRIAL_LENGTHS // 2 + 1)
    np.testing.assert_array_equal(size_at_trials(size_expr("3")), np.full(4096, 3))


@pytest.mark.parametrize(
    ("a", "b", "beside", "joined"),
    [
        ("2*floor(T/2)", "T", True, True),
        ("4*floor(T/4)", "2*floor(T/2)", True, True),
        # A clip of 3 frames leaves one of each, which is repeated, and a Concat does not do that.
        ("floor(T/2)", "floor(T/2 + 1/2)", False, True),
        # Of two frames a convolution makes one, and of that two: beside one that is repeated.
        ("2*floor(T/4 + 3/4)", "floor(T/2 + 1/2)", False, True),
        ("T + 1", "T", False, False),
        ("2*T - 5", "T", False, False),  # at 5 frames alone
        ("T", "B", False, False),
        ("T", "30", False, False),
    ],
)
def test_sizes_that_are_equal_where_a_model_runs(
    a: str, b: str, *, beside: bool, joined: bool
) -> None:
    first, second = size_expr(a), size_expr(b)
    for pair in ((first, second), (second, first)):
        assert must_be_equal(*pair) is beside
        assert must_be_equal(*pair, broadcasts=False) is joined


@pytest.mark.parametrize(
    ("a", "b", "lengths"),
    [
        ("floor(T/384 + 257/384) - 2", "Min(19, floor(T/384 + 383/384))", (7807, 8190)),
        ("floor(T/2)", "Min(19, T)", (38, 39)),
        ("2*floor(T/2)", "T", None),
        ("T + 1", "T", None),
        ("T", "B", None),
    ],
)
def test_the_few_lengths_at_which_sizes_are_equal(
    a: str, b: str, lengths: tuple[int, int] | None
) -> None:
    assert lengths_where_equal(size_expr(a), size_expr(b)) == lengths
