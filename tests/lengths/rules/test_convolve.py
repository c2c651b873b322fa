"""Rules for convolutions and pooling."""

from __future__ import annotations

import pytest

from graphfix.lengths.tail_state import FINITE, ZERO
from tests.lengths.analysed import analysis_of, leaks, reasons, state_of

SWAP = "c = Transpose <perm = [0, 2, 1]> (x) f = Cos (c)"
ONES, THREES = (", ".join(["0.1"] * n) for n in (16, 48))
CONSTANTS = (
    f"float[4, 4, 1] k1 = {{{ONES}}}, float[4, 4, 3] k3 = {{{THREES}}}, float[4] b = {{1, 1, 1, 1}}"
)


@pytest.mark.parametrize(
    "node",
    [
        "Conv <pads = [1, 1]> (f, k3)",
        "Conv <kernel_shape = [3], pads = [0, 2]> (f, k3)",
        'Conv <auto_pad = "SAME_UPPER"> (f, k3)',
        "ConvTranspose (f, k3)",
        "MaxPool <kernel_shape = [3], pads = [0, 1]> (f)",
        "MaxPool <kernel_shape = [3], strides = [2], ceil_mode = 1> (f)",
        "AveragePool <kernel_shape = [3], pads = [1, 1], count_include_pad = 1> (f)",
    ],
)
def test_windows_past_the_end_need_a_repair(node: str) -> None:
    analysis = analysis_of(f"{SWAP} y = {node}", constants=CONSTANTS)
    assert not analysis.refusals
    assert "boundary leak" in leaks(analysis)


@pytest.mark.parametrize(
    "node",
    [
        "Conv (f, k3)",
        "Conv <pads = [2, 0]> (f, k3)",
        'Conv <auto_pad = "VALID"> (f, k3)',
        "ConvTranspose (f, k1)",
        "MaxPool <kernel_shape = [3]> (f)",
        "MaxPool <kernel_shape = [3], ceil_mode = 1> (f)",
        "AveragePool <kernel_shape = [3], pads = [1, 0]> (f)",
    ],
)
def test_windows_within_need_none(node: str) -> None:
    analysis = analysis_of(f"{SWAP} y = {node}", constants=CONSTANTS)
    assert not analysis.refusals
    assert not analysis.repairs


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        ('Conv <auto_pad = "SAME_UPPER", strides = [2]> (f, k3)', "how much SAME_UPPER puts"),
        ("AveragePool <kernel_shape = [3], pads = [0, 1]> (f)", "its last window is averaged"),
        ("GlobalMaxPool (f)", "there is no rule"),
        ("Conv (x, k3)", "time is its channel axis"),
    ],
)
def test_refusals(node: str, reason: str) -> None:
    analysis = analysis_of(f"{SWAP} y = {node}", constants=CONSTANTS)
    assert reasons(analysis)[0].startswith(reason)


def test_a_kernel_of_one_keeps_a_tail_of_zeros_without_a_bias() -> None:
    """The zeros that a repair puts into the input stay zeros up to the first bias."""
    mean = "m = ReduceMean <axes = [1]> (x) z = Add (x, m)"
    swap = "c = Transpose <perm = [0, 2, 1]> (x)"
    for node, tail in (
        ("Conv (c, k1)", ZERO),
        ("Conv (c, k1, b)", FINITE),
        ("Conv (c, k3)", FINITE),
    ):
        state = state_of(
            analysis_of(f"{mean} {swap} y = {node}", output="y, z", constants=CONSTANTS), "y"
        )
        assert state is not None
        assert state.tail_along(2) == tail
