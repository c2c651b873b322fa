"""Arrays that are filled up, or cut, in front."""

from __future__ import annotations

import numpy as np

from graphfix.shipped.in_front import fit_in_front, last_entries


def test_an_array_is_filled_up_or_cut_in_front() -> None:
    array = np.arange(6).reshape(2, 3)
    assert fit_in_front(array, (2, 3)) is array
    assert fit_in_front(array, (1, 3)).tolist() == [[3, 4, 5]]
    assert fit_in_front(array, [2, 1]).tolist() == [[2], [5]]
    assert fit_in_front(array, (3, 3)).tolist() == [[0, 0, 0], [0, 1, 2], [3, 4, 5]]
    assert fit_in_front(array, (3, 2), 9).tolist() == [[9, 9], [1, 2], [4, 5]]
    filled = fit_in_front(np.ones((1, 1), np.float16), (1, 2))
    assert filled.dtype == np.float16
    assert filled.tolist() == [[0, 1]]


def test_the_last_entries_of_an_axis() -> None:
    array = np.arange(6).reshape(2, 3)
    assert last_entries(array, 0, 1).tolist() == [[3, 4, 5]]
    assert last_entries(array, 1, 2).tolist() == [[1, 2], [4, 5]]
    assert last_entries(array, 1, 5).tolist() == array.tolist()
    assert last_entries(array, 1, 0).shape == (2, 0)
