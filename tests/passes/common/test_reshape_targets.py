"""Which constants reshape symbolic sizes, and why others do not."""

import pytest

from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.nodes import attr_int
from graphfix.passes.common.reshape_targets import (
    ReshapeTarget,
    build_reshape,
    constant_target,
    may_copy_at_zero,
    reshape_target_of,
    with_axes,
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
        ("6, T", "2, 3, T", None, ReshapeTarget((2, 3, -1))),
        ("B, 1, T", "B, T", None, ReshapeTarget((0, 1, 0), after=(1,))),
        ("B, T, 4", "B, U", "-1 1", "which is ambiguous if B is 0"),
        ("2, T, 4", "2, U", None, ReshapeTarget((2, -1))),
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


@pytest.mark.parametrize("opset", [12, 13, 18])
@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (ReshapeTarget((6, -1)), ["Reshape"]),
        (ReshapeTarget((1, -1, 0), after=(0,)), ["Reshape", "Squeeze"]),
        (ReshapeTarget((2, 3, 0), before=(0,)), ["Unsqueeze", "Reshape"]),
    ],
)
def test_building_a_target(opset: int, target: ReshapeTarget, expected: list[str]) -> None:
    m = model("m (float[B, T] x) => (float[B, T] y) { y = Neg (x) }", opset)
    op = Builder("test", View(m))
    op.start_site(m.graph[0])
    target.build(m.graph.inputs[0], op)
    assert [node.op_type for node in m.graph] == [*expected, "Neg"]
    for node in m.graph:
        if node.op_type in ("Squeeze", "Unsqueeze"):
            assert ("axes" in node.attributes) == (opset < 13)
            assert len(node.inputs) == (1 if opset < 13 else 2)


@pytest.mark.parametrize(("opset", "allows_zero"), [(13, False), (14, True), (18, True)])
def test_a_computed_size_of_0_is_0(opset: int, *, allows_zero: bool) -> None:
    m = model("m (float[B, T] x, int64[2] s) => (float[B, T] y) { y = Neg (x) }", opset)
    op = Builder("test", View(m))
    op.start_site(m.graph[0])
    x, s = m.graph.inputs
    assert with_axes("Squeeze", x, (), op) is x
    node = build_reshape(x, s, op).producer()
    assert node is not None
    assert attr_int(node, "allowzero", 0) == allows_zero
    assert node.inputs == (x, s)
