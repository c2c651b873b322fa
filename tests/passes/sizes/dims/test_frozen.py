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


@pytest.mark.parametrize(
    ("dims", "target", "thawed", "size"),
    [
        ((T, T), (9,), (-1,), 3),
        ((T, T, 2), (3, 3, 2), (0, 0, 2), 3),
        ((T, T, 2), (3, 6), (0, -1), 3),
        ((2, T, T), (3, 6), None, 3),  # needs two -1
        ((T, T, 2), (9, 2), (-1, 2), 3),
        ((T, 4), (8, 2), (-1, 2), 4),
        ((T, 4), (2, 8), (2, -1), 4),
        ((T, 4), (4, 4), None, 4),  # which of the two is not known
        ((T, 3), (2, 3), (0, 3), 2),
        ((3, T), (2, 3), (-1, 3), 2),
        ((T + 1, 3), (2, 3), (0, 3), 2),
        ((T, B, 3), (0, 2, 3), (0, 0, 3), 2),
        ((T, 3, 2), (0, 0, 2), None, None),
    ],
)
def test_entries_hold_the_size_as_often_as_the_dims(
    dims: tuple[int | ir.SymbolicDim, ...],
    target: tuple[int, ...],
    thawed: tuple[int, ...] | None,
    size: int | None,
) -> None:
    result = frozen.thaw_target(dims, target)
    if isinstance(result, frozen.ThawedTarget):
        assert (result.target, result.size) == (thawed, size)
        assert not isinstance(result.dim, int)
        assert result.dim in dims
    else:
        assert thawed is None


@pytest.mark.parametrize(
    ("dims", "target", "reason"),
    [
        ((2, T, T), (3, 6), "[2, T, T] is reshaped to [3, 6], which runs only where T is 3: it ne"),
        ((T, T), (8,), None),  # no whole number squared
        ((T, 8), (-1, 8), None),
        ((T, 8), (-1, 4), None),
        ((T, 6), (-1, 4), "which runs only where T is a multiple of 2"),
        ((T + 1, 6), (-1, 4), "which runs only where (T + 1) is a multiple of 2"),
        ((T, 8), (-1, 0), None),
        ((T, B, 2), (2, 4), "runs only where T*B is 4"),
        ((T, B, 2), (0, -1, 4), "runs only where B is a multiple of 2"),
        ((T, B, 2), (0, 4, 2), None),
    ],
)  # fmt: skip
def test_what_is_not_provable_says_where_it_runs(
    dims: tuple[int | ir.SymbolicDim, ...], target: tuple[int, ...], reason: str | None
) -> None:
    result = frozen.thaw_target(dims, target)
    assert isinstance(result, str) == (reason is not None)
    assert reason is None or reason in str(result)


@pytest.mark.parametrize(
    ("dims", "target", "promised", "thawed"),
    [
        ((T, 8), (1, 8), "T", (0, 8)),
        ((T, 8), (1, 8), "B", None),
        ((T, 1, 8), (1, 1, 8), "T", (0, 1, 8)),
        ((T, 2, 8), (1, 1, 16), "T", None),  # either may stand for it
        ((8, T), (1, 8), "T", None),  # it is not copied from there
        ((8, T), (8, 1), "T", (8, 0)),
        ((8, T), (8, 1, 1), "T", None),
        ((T, T, 8), (1, 1, 8), "T", None),
        ((8, T), (4, 2, 1), "T", None),
        ((T, 9), (2, 9), "T", (0, 9)),
        ((T, 1, 9), (2, 9), "T", (0, 9)),
    ],
)
def test_a_size_of_1_is_thawed_where_an_output_promises_more(
    dims: tuple[int | ir.SymbolicDim, ...],
    target: tuple[int, ...],
    promised: str,
    thawed: tuple[int, ...] | None,
) -> None:
    result = frozen.thaw_target(dims, target, {promised})
    assert getattr(result, "target", None) == thawed
    assert thawed is not None or "T is 1; fix-dims:T=1 says so" in str(result)


@pytest.mark.parametrize(
    ("constant", "dims", "reason"),
    [
        ((4, 8), (T, 8), "T is 4 or 1"),
        ((4,), (T, B), "B is 4 or 1"),
        ((1, 8), (T, 8), None),
        ((4, 8), (4, 8), None),
        ((T, 8), (T, 8), None),
        ((3, 1), (B,), None),
        ((2, 8), (8,), None),
        ((5, 2, 8), (B, T, 8), "T is 2 or 1"),
    ],
)
def test_a_broadcast_pins_a_size(
    constant: tuple[int | ir.SymbolicDim, ...],
    dims: tuple[int | ir.SymbolicDim, ...],
    reason: str | None,
) -> None:
    assert frozen.why_pinned(constant, dims) == reason


def test_dims_are_text() -> None:
    assert frozen.dims_text((1, T, 8)) == "[1, T, 8]"
