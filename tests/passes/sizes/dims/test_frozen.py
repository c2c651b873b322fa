"""What a constant target of a Reshape stands for, without a model."""

from __future__ import annotations

import importlib

import onnx_ir as ir
import pytest

frozen = importlib.import_module("graphfix.passes.sizes.dims.frozen")
B, T = ir.SymbolicDim("B"), ir.SymbolicDim("T")


@pytest.mark.parametrize(
    ("dims", "target", "thawed"),
    [
        ((1, T, 8), (100, 8), (-1, 8)),
        ((1, T, 8), (1, 100, 2, 4), (1, 0, 2, 4)),
        ((1, T, 8), (1, 100, 8), (1, 0, 8)),
        ((1, T, 8), (0, 100, 8), (0, 0, 8)),
        ((T, 0), (3, 5), None),  # nothing, at every T
        ((T, 8), (5, 3), None),  # fits at no T
        ((2, 8), (4, 4), None),  # nothing is open
        ((1, T, 8), (0, 0, 0, 0), None),  # a dim that is not there
    ],
)
def test_targets(
    dims: tuple[int | ir.SymbolicDim, ...], target: tuple[int, ...], thawed: tuple[int, ...] | None
) -> None:
    result = frozen.thaw_target(dims, target)
    assert getattr(result, "target", None) == thawed


@pytest.mark.parametrize(
    ("dims", "target", "reason"),
    [
        ((T, 8), (-1, 16), "T is a multiple of 2"),
        ((B, T), (2, 6), "B*T is 12; fix-dims of all but one of them"),
        ((T, 8), (8, 8), "T is 8: more than one entry may stand for it"),
        ((T, 8), (1, 8), "T is 1; fix-dims:T=1 says so"),
        ((T, 2), (4, 3), "T is 6: no entry holds it"),
    ],
)
def test_reasons(
    dims: tuple[int | ir.SymbolicDim, ...], target: tuple[int, ...], reason: str
) -> None:
    assert reason in str(frozen.thaw_target(dims, target))
