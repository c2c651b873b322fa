"""Halves of tensors, by Slice or Split."""

import pytest

from graphfix.facts.view import View
from graphfix.passes.common.cuts import half_cut_of
from tests.passes.models import model


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("y = Slice (x, zero, four, last)", (1, 0)),
        ("y = Slice (x, four, eight, last)", (1, 1)),
        ("y = Slice (x, minus, eight, last)", (1, 1)),
        ("y = Slice (x, one, five, last)", None),
        ("y = Slice (x, zero, eight, last, two)", None),
        ("y, z = Split <axis = 1, num_outputs = 2> (x)", (1, 0)),
        ("z, y = Split <axis = -1, num_outputs = 2> (x)", (1, 1)),
        ("z, y, w, v = Split <axis = 1, num_outputs = 4> (x)", None),
        ("y = Neg (x)", None),
    ],
)
def test_half(node: str, expected: tuple[int, int] | None) -> None:
    m = model(
        f"""m (float[2, 8] x) => (float y) <int64[1] zero = {{0}}, int64[1] one = {{1}},
        int64[1] two = {{2}}, int64[1] four = {{4}}, int64[1] five = {{5}}, int64[1] eight = {{8}},
        int64[1] last = {{-1}}, int64[1] minus = {{-4}}> {{ {node} }}"""
    )
    m.graph.outputs[0].shape = None
    half = half_cut_of(m.graph.outputs[0], View(m))
    assert (None if half is None else (half[0].axis, half[1])) == expected
    assert half is None or half[0].source is m.graph.inputs[0]
