"""Conditions that cases met and missed."""

from __future__ import annotations

import numpy as np
import pytest

from graphfix.feeds.case_search import search_cases
from graphfix.feeds.coverage import measure_coverage
from tests.feeds.small_models import model


@pytest.mark.parametrize(
    ("dims", "image"),
    [("B, 3, H, W", True), ("1, 64, 64, 3", True), ("B, 1, 80, T", False), ("B, T, 3", False)],
)
def test_pictures_have_the_range_of_pictures(dims: str, image: bool) -> None:
    made = model(f"m (float[{dims}] x) => (float[{dims}] y) {{ y = Tanh (x) }}")
    cases = search_cases(made, lambda case: None, cover=True)
    most = max(float(np.abs(x.feeds["x"]).max()) for x in cases)
    assert (100 < most <= 255) if image else most > 1e4
    told = measure_coverage(cases, cases.signature)
    assert ("'x' from 0 to 255" in told.covered) == image
    assert any("values from 0 to 255" in x.name for x in cases) == image
