"""Rules for sizes, and for what is made to a size."""

from __future__ import annotations

import pytest

from tests.lengths.analysed import analysis_of, reasons


def test_what_reads_only_the_shape_needs_no_clean_input() -> None:
    """An input that only lends its shape may hold anything behind what is valid."""
    body = "m = ReduceMean <axes = [1]> (z) r = RandomNormalLike (x) y = Add (r, m)"
    analysis = analysis_of(body, inputs="float[B, T, 4] x, float[B, T, 4] z")
    poisoned = [x.value.name for x in analysis.repairs if x.leak == "poisoned input"]
    assert not analysis.refusals
    assert poisoned == ["z"]


@pytest.mark.parametrize("operator", ["Bernoulli", "Multinomial"])
def test_draws_that_depend_on_data_are_refused(operator: str) -> None:
    analysis = analysis_of(f"f = Flatten <axis = 1> (x) y = {operator} (f)")
    assert any(operator in reason for reason in reasons(analysis))
