"""The rule for Slice."""

from __future__ import annotations

from tests.lengths.analysed import analysis_of, reasons, state_of

CONSTANTS = "int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}"


def test_axes_known_only_in_a_run_are_refused() -> None:
    """They were taken for the first axes."""
    inputs = "float[1, T, 4] x, int64[1] axes"
    analysis = analysis_of("y = Slice (x, zero, one, axes)", inputs=inputs, constants=CONSTANTS)
    assert reasons(analysis) == ["the axes that it cuts are not known"]


def test_attributes_of_old_opsets_are_read() -> None:
    body = "y = Slice <starts = [2], ends = [2147483647], axes = [1]> (x)"
    analysis = analysis_of(body, opset=9)
    state = state_of(analysis, "y")
    assert not analysis.refusals
    assert state is not None
    assert str(state.size_along(1)) == "Max(0, T - 2)"


def test_without_axes_it_cuts_the_first() -> None:
    inputs = "float[1, T, 4] x"
    body = "s = Slice (x, whole, far) y = Relu (s)"
    constants = "int64[2] whole = {0, 2}, int64[2] far = {9223372036854775807, 9223372036854775807}"
    state = state_of(analysis_of(body, inputs=inputs, constants=constants), "y")
    assert state is not None
    assert str(state.size_along(1)) == "Max(0, T - 2)"
