"""Rules for Concat and Pad."""

from __future__ import annotations

import pytest

from tests.lengths.analysed import analysis_of, leaks, reasons, state_of


def test_the_number_of_an_old_pad_is_an_attribute() -> None:
    """It was taken for 0."""
    body = "y = Pad <pads = [0, 0, 0, 0, 1, 0], value = 5.0> (x)"
    assert reasons(analysis_of(body, opset=10)) == [
        "it pads with 5, and only zeros can be put behind what is valid"
    ]


def test_a_pad_names_its_axes() -> None:
    constants = "int64[2] pads = {0, 1}, float nought = {0}, int64[1] axes = {-2}"
    analysis = analysis_of("y = Pad (x, pads, nought, axes)", constants=constants, opset=18)
    assert not analysis.refusals
    assert "boundary leak" in leaks(analysis) or leaks(analysis) == ["poisoned input"]


def test_axes_known_only_in_a_run_are_refused() -> None:
    analysis = analysis_of(
        "y = Pad (x, pads, nought, axes)",
        inputs="float[B, T, 4] x, int64[1] axes",
        constants="int64[2] pads = {0, 1}, float nought = {0}",
        opset=18,
    )
    assert reasons(analysis) == ["the axes that it pads are not constant"]


@pytest.mark.parametrize(("pads", "kind"), [("0, 0", "any"), ("0, -1", "any"), ("2, 0", "any")])
def test_what_is_put_in_front_or_cut_behind_needs_no_repair(pads: str, kind: str) -> None:
    front, behind = pads.split(", ")
    constants = f"int64[6] pads = {{0, {front}, 0, 0, {behind}, 0}}"
    analysis = analysis_of("y = Pad (x, pads)", constants=constants)
    state = state_of(analysis, "y")
    assert not analysis.refusals
    assert not analysis.repairs
    assert state is not None
    assert state.tail_along(1).kind == kind
