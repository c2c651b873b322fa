"""Dims of the padded input and of the one that says its lengths."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest

from graphfix.errors import UsageError
from graphfix.lengths import length_source


def dims(*items: int | str) -> tuple[Any, ...]:
    return tuple(x if isinstance(x, int) else ir.SymbolicDim(x) for x in items)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (("B",), ("B",)),
        (("B", "T"), ("B", "T")),
        (("B", 1), ("B", 1)),
        (("B", 1, 1, "T"), ("B", "T")),
        (("B", "T", 1), ("B", "T")),
        ((1, 1, "T"), (1, "T")),
    ],
)
def test_dims_of_1_between_do_not_count(given: Any, kept: Any) -> None:
    value = ir.Value(name="mask")
    assert tuple(length_source._check_length_dims(value, dims(*given))) == dims(*kept)


@pytest.mark.parametrize(("given", "count"), [(("B", "T", "S"), 3), (("B", 1, 1), 1)])
def test_other_dims_are_no_mask(given: Any, count: int) -> None:
    with pytest.raises(UsageError, match=f"from=mask: it has {count} dims that are not 1"):
        length_source._check_length_dims(ir.Value(name="mask"), dims(*given))


@pytest.mark.parametrize(
    ("given", "axis", "batch"),
    [
        (("B", "T", 4), 1, "B"),
        (("T", "B", 4), 0, "B"),
        (("T", 4), 0, None),
        ((1, "T", 4), 1, None),
        ((1, "C", "T"), 2, None),
        ((2, "T", 4), 1, None),
        (("B", "C", "T"), 2, "B"),
        ((4, "C", "T"), 2, "C"),
        (("2*B", "T"), 1, None),
        (("T",), 0, None),
        (("T", "B", "S"), 0, "B"),
    ],
)
def test_the_batch_beside_time(given: Any, axis: int, batch: str | None) -> None:
    assert length_source._batch_symbol(dims(*given), axis) == batch


@pytest.mark.parametrize(
    ("given", "kind", "batch", "renames"),
    [
        (("N", "L"), "mask", "B", {"N": "B", "L": "T"}),
        (("N",), "lengths", "B", {"N": "B"}),
        (("B", "T"), "mask", "B", {}),
        (("N", "L"), "mask", None, {"L": "T"}),
        ((1, "L"), "mask", "B", {"L": "T"}),
        (("N", "2*L"), "mask", "B", {"N": "B"}),
    ],
)
def test_how_the_dims_of_a_mask_are_renamed(
    given: Any, kind: Any, batch: str | None, renames: dict[str, str]
) -> None:
    assert length_source._length_input_renames(dims(*given), kind, "T", batch) == renames


def test_an_axis_that_may_be_padded() -> None:
    assert length_source._require_dynamic_axis(ir.SymbolicDim("T"), "x.1") == "T"
    with pytest.raises(UsageError, match=r"x\.1 is fixed at 7; only an axis whose size"):
        length_source._require_dynamic_axis(7, "x.1")
    with pytest.raises(UsageError, match=r"the size of x\.1 is 2\*T, which is no symbol"):
        length_source._require_dynamic_axis(ir.SymbolicDim("2*T"), "x.1")
