"""One input of a model: its dims at given sizes."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.errors import FeedError
from graphfix.feeds.input import Input, all_symbols, single_symbol, size_of_dim
from graphfix.feeds.roles import Role

T, N, SUM = ir.SymbolicDim("T"), ir.SymbolicDim("N"), ir.SymbolicDim("T + N")
NAMELESS, LESS = ir.SymbolicDim(None), ir.SymbolicDim("T - 3")


@pytest.mark.parametrize(
    ("dim", "size"), [(4, 4), (0, 0), (T, 5), (SUM, 7), (LESS, 2), (ir.SymbolicDim("3*N"), 6)]
)
def test_sizes_of_dims(dim: int | ir.SymbolicDim, size: int) -> None:
    assert size_of_dim(dim, {"T": 5, "N": 2}) == size


@pytest.mark.parametrize(("dim", "sizes"), [(LESS, {"T": 2}), (SUM, {"T": 1}), (-1, {})])
def test_a_dim_without_a_size_is_said(dim: int | ir.SymbolicDim, sizes: dict[str, int]) -> None:
    with pytest.raises(FeedError, match="give one with --dims"):
        size_of_dim(dim, sizes)


def test_a_size_may_be_0() -> None:
    assert size_of_dim(LESS, {"T": 3}) == 0


@pytest.mark.parametrize(("dim", "name"), [(T, "T"), (4, None), (SUM, None), (NAMELESS, None)])
def test_single_symbols(dim: int | ir.SymbolicDim, name: str | None) -> None:
    assert single_symbol(dim) == name


def test_symbols_come_in_order_each_once() -> None:
    role = Role("data", "a use")
    inputs = [Input("a", "f4", (SUM, 4, T), role), Input("b", "f4", (ir.SymbolicDim("A"), N), role)]
    assert all_symbols(inputs) == ["N", "T", "A"]
    assert inputs[0].shape_at({"T": 5, "N": 2}) == (7, 4, 5)


@pytest.mark.parametrize(
    ("sizes", "low", "high", "expected"),
    [
        ({"T": 5, "N": 2}, 0, 100, 2),
        ({"T": 5, "N": 9}, 0, 100, 5),
        ({"T": 5, "N": 9}, 0, 3, 3),
        ({"T": 5}, 0, 100, 1),
        ({"T": 5, "N": 2}, 4, 100, 5),
        ({"T": 5}, 1, 100, 2),
    ],
)
def test_integers_lie_below_sizes(
    sizes: dict[str, int], low: int, high: int, expected: int
) -> None:
    role = Role("index", "a use", low=low, high=high, below=(T, N))
    bounded = Input("a", "i8", (4,), role).bounded_by_sizes(sizes)
    assert (bounded.role.low, bounded.role.high) == (low, expected)


def test_integers_that_nothing_bounds_stay() -> None:
    item = Input("a", "i8", (4,), Role("index", "a use", high=7))
    assert item.bounded_by_sizes({}) is item
