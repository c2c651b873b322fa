"""Where a cut of the last axis begins, however the Slice or Split is written."""

import pytest

from graphfix.facts.view import View
from graphfix.passes.fusions.attention.rotary_halves import last_axis_cut
from tests.passes.models import model

CASES = [
    ("y = Slice (x, four, eight, last)", 17, (4, 1)),
    ("y = Slice (x, minus, eight, last)", 17, (4, 1)),
    ("y = Slice (x, one, eight, last, two)", 17, (1, 2)),
    ("y = Slice (x, far, eight, last)", 17, None),  # it is cut to 0
    ("y = Slice (x, full, eight, last)", 17, (0, 1)),
    ("y = Slice <starts = [4], ends = [8], axes = [-1]> (x)", 9, (4, 1)),
    ("y = Slice <starts = [4], ends = [8], axes = [1]> (x)", 9, (4, 1)),
    ("y = Slice (x, ends2, size2)", 17, None),  # the axes are 0 and 1
    ("y = Slice (x, back2, ends_back2, both, steps2)", 17, None),  # rows in reverse
    ("y = Slice (x, four, eight, computed)", 17, None),
    ("first, y = Split <axis = 1> (x)", 12, (4, 1)),
    ("first, y = Split <axis = -1> (x, halves)", 17, (4, 1)),
    ("y, last_rows = Split <axis = 0> (x)", 12, None),
    ("y = Identity (x)", 17, None),
]


@pytest.mark.parametrize(("node", "opset", "expected"), CASES)
def test_cut(node: str, opset: int, expected: tuple[int, int] | None) -> None:
    m = model(
        f"""m (float[6, 8] x, int64[1] computed) => (float y) <int64[1] four = {{4}},
        int64[1] eight = {{8}}, int64[1] last = {{-1}}, int64[1] minus = {{-4}},
        int64[1] far = {{-9}}, int64[1] full = {{-8}},
        int64[1] one = {{1}}, int64[1] two = {{2}}, int64[2] ends2 = {{0, 4}},
        int64[2] size2 = {{6, 8}}, int64[2] back2 = {{-1, 4}}, int64[2] ends_back2 = {{-9, 8}},
        int64[2] both = {{0, 1}}, int64[2] steps2 = {{-1, 1}}, int64[2] halves = {{4, 4}}> {{
        {node} }}""",
        opset,
    )
    m.graph.outputs[0].shape = None
    cut = last_axis_cut(m.graph.outputs[0], View(m))
    assert (None if cut is None else cut[1:]) == expected
    assert cut is None or cut[0] is m.graph.inputs[0]
