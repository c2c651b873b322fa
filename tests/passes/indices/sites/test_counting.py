"""What counts the numbers of a Range: the same numbers, along its axis, in few nodes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.passes.indices.sites.counting import build_count
from graphfix.passes.indices.sites.range_index import IndexAxis, RangeCount, range_count_of
from tests.passes.models import execute, model

HEAD = """m (int64 n, int64 past, int64[1] v, int32 k, int64[1, 1] w, float[B, T] x) => (y)
    <int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64 minus = {-1}, int32 kone = {1},
     int32 kzero = {0}, int64 five = {5}, int64 down = {-3}, int64 place = {1},
     int64[1] vplace = {1}>"""
FEEDS = {
    "n": np.array(6),
    "past": np.array(2),
    "v": np.array([4]),
    "k": np.array(3, np.int32),
    "w": np.array([[3]]),
    "x": np.zeros((2, 4), np.float32),
}


def counted(body: str, axis: IndexAxis, opset: int = 18) -> tuple[list[str], np.ndarray]:
    """Return the nodes that count what the last Range does, but for constants, and the numbers."""
    m = model(f"{HEAD} {{ {body} }}", opset)
    m.graph.outputs[0].type = m.graph.outputs[0].shape = None
    node, view = m.graph[-1], View(m)
    count = range_count_of(node, view)
    assert isinstance(count, RangeCount)
    before, op = {*m.graph}, Builder("test", view)
    op.start_site(node)
    output = op.Identity(build_count(count, axis, op))
    output.type = ir.TensorType(count.dtype)
    built = [x.op_type for x in m.graph if x not in before]
    m.graph.outputs[:] = [output]
    m.graph.remove(node)
    return built[:-1], execute(m, FEEDS)[0]


@pytest.mark.parametrize(
    ("body", "numbers", "nodes"),
    [
        ("y = Range (zero, n, one)", range(6), "Unsqueeze Max ConstantOfShape CumSum"),
        ("y = Range (one, n, one)", range(1, 6), "Unsqueeze Add Max ConstantOfShape CumSum"),
        ("y = Range (two, n, one)", range(2, 6), "Unsqueeze Add Max ConstantOfShape CumSum Add"),
        ("y = Range (two, n, two)", range(2, 6, 2),
         "Unsqueeze Add Div Max ConstantOfShape CumSum"),
        ("y = Range (zero, n, two)", range(0, 6, 2),
         "Unsqueeze Add Div Max ConstantOfShape CumSum"),
        ("y = Range (n, zero, down)", range(6, 0, -3),
         "Unsqueeze Add Div Max ConstantOfShape CumSum Add"),
        ("y = Range (past, n, one)", range(2, 6),
         "Unsqueeze Unsqueeze Sub Max ConstantOfShape CumSum Add"),
        ("y = Range (five, past, minus)", range(5, 2, -1),
         "Unsqueeze Sub Max ConstantOfShape CumSum Add"),
        ("y = Range (n, past, one)", [], "Unsqueeze Unsqueeze Sub Max ConstantOfShape CumSum Add"),
        ("y = Range (kzero, k, kone)", np.arange(3, dtype=np.int32),
         "Cast Unsqueeze Max ConstantOfShape CumSum"),
        ("m = Squeeze (v) y = Range (zero, m, one)", range(4), "Max ConstantOfShape CumSum"),
        ("m = Squeeze (w) y = Range (zero, m, one)", range(3),
         "Reshape Max ConstantOfShape CumSum"),
        ("e = Add (past, five) y = Range (past, e, one)", range(2, 7),
         "ConstantOfShape CumSum Add"),
        ("e = Sub (past, five) y = Range (past, e, one)", [], "ConstantOfShape CumSum Add"),
        # A size is taken as a vector at once.
        ("s = Shape (x) t = Gather (s, place) y = Range (zero, t, one)", range(4),
         "Gather ConstantOfShape CumSum"),
        ("s = Shape (x) g = Gather (s, vplace) t = Squeeze (g) y = Range (zero, t, one)", range(4),
         "ConstantOfShape CumSum"),
        ("g = Gather (v, zero) y = Range (zero, g, one)", range(4),
         "Unsqueeze Max ConstantOfShape CumSum"),
    ],
)  # fmt: skip
def test_the_numbers_of_a_range(body: str, numbers: list[int], nodes: str) -> None:
    built, result = counted(body, IndexAxis(1, 0))
    assert built == nodes.split()
    expected = np.asarray(numbers)
    np.testing.assert_array_equal(result, expected)
    assert result.shape == expected.shape
    assert result.dtype == (expected.dtype if expected.size else np.int64)


@pytest.mark.parametrize(("rank", "axis"), [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)])
@pytest.mark.parametrize("limit", ["n", "five"])
def test_they_lie_along_an_axis(rank: int, axis: int, limit: str) -> None:
    body = "y = Range (zero, n, one)"
    if limit == "five":
        body = "e = Add (past, five) y = Range (past, e, one)"
    built, result = counted(body, IndexAxis(rank, axis))
    assert result.shape == tuple(x for i in range(rank) for x in [result.size if i == axis else 1])
    start = 2 if limit == "five" else 0
    np.testing.assert_array_equal(result.reshape(-1), np.arange(start, start + result.size))
    assert built.count("Concat") == (rank > 1 and limit == "n")


def test_two_ranges_of_one_size_share_it() -> None:
    m = model(f"{HEAD} {{ z = Range (zero, n, one) y = Range (one, n, one) }}")
    m.graph.outputs[0].type = m.graph.outputs[0].shape = None
    view = View(m)
    op = Builder("test", view)
    for node in [*m.graph]:
        count = range_count_of(node, view)
        assert isinstance(count, RangeCount)
        op.start_site(node)
        build_count(count, IndexAxis(1, 0), op)
    assert [x.op_type for x in m.graph].count("Unsqueeze") == 1
