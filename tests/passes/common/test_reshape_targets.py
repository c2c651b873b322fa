"""Which constants reshape symbolic sizes, and why others do not."""

import pytest

from graphfix.facts.view import View
from graphfix.passes.common.reshape_targets import (
    ReshapeTarget,
    constant_target,
    may_copy_at_zero,
    reshape_target_of,
)
from tests.passes.models import model


def target(source: str, sizes: str, data: str | None = None) -> ReshapeTarget | str:
    """What reshapes one to the other; sizes are those of tensors of a model, data of a Reshape."""
    m = model(f"m (float[{source}] x, float[{sizes}] y) => (float[{source}] z) {{ z = Neg (x) }}")
    shapes = View(m).shapes
    x, y = (shapes.dims(value) or () for value in m.graph.inputs)
    shape_data = (
        None if data is None else [-1 if part == "-1" else y[int(part)] for part in data.split()]
    )
    return reshape_target_of(x, y, shapes, shape_data)


@pytest.mark.parametrize(
    ("source", "sizes", "data", "expected"),
    [
        ("B, T, 8", "B, T, 8", None, ReshapeTarget((0, 0, 8))),
        ("2, 3, T", "6, T", "-1 1", ReshapeTarget((6, -1))),
        ("B, 2, T", "C, T", "-1 1", ReshapeTarget((1, -1, 0), after=(0,))),
        ("B, T", "C, 2, D", None, "one -1 is not enough"),
        ("B, T, 4", "B, U", None, "which is ambiguous if B is 0"),
        ("B, T, 4", "B, U", "0 -1", ReshapeTarget((0, -1))),
        ("B, T", "B, 0", None, "which a constant shape cannot say"),
    ],
)
def test_target(source: str, sizes: str, data: str | None, expected: ReshapeTarget | str) -> None:
    result = target(source, sizes, data)
    if isinstance(expected, str):
        assert isinstance(result, str)
        assert expected in result
    else:
        assert result == expected


def test_a_size_of_0_copies_another_size() -> None:
    m = model("m (float[B, T, B] x) => (float[B, T, B] y) { y = Neg (x) }")
    view = View(m)
    b, t, _ = view.shapes.dims(m.graph.inputs[0]) or ()
    assert may_copy_at_zero([b, t], [t, b], None, view.shapes)
    assert not may_copy_at_zero([b, t], [b, t], None, view.shapes)
    assert not may_copy_at_zero([b, t], [t, b], [-1, b], view.shapes)
    assert constant_target([b, t], [b, t], None, view.shapes) == (0, 0)
