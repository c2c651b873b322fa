"""Which views go, or become one, and what they become."""

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.passes.common.fold_view import FoldView
from graphfix.passes.sizes.fold_rules.views import view_by_constant, view_by_unit_axes
from tests.passes.folding import fold
from tests.passes.models import model, ops

HEAD = """m (float[B, 3, T] x, float[1, 3, T] z, float[T] row, int64[3] fed) => (float y)
    <int64[1] one = {1}, int64[1] zero = {0}, int64[1] rest = {-1}, int64[2] two = {0, -1},
    int64[3] back = {0, 3, -1},
    int64[4] wide = {0, 1, 3, -1}, int64[2] front = {0, 1}>"""


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("a = Reshape (x, two) b = Reshape (a, back) y = Neg (b)", ["Neg"]),
        ("a = Unsqueeze (x, one) b = Squeeze (a, one) y = Neg (b)", ["Neg"]),
        ("a = Unsqueeze (x, one) b = Unsqueeze (a, zero) y = Neg (b)", ["Unsqueeze", "Neg"]),
        ("a = Reshape (x, wide) y = Neg (a)", ["Reshape", "Neg"]),
        ("a = Reshape (x, two) b = Unsqueeze (a, one) y = Neg (b)", None),
        ("a = Reshape (x, two) n = Exp (a) b = Reshape (a, back) p = Exp (b) s = ReduceSum (n) "
         "y = Add (p, s)", None),
        ("s = Shape <start = 0, end = 1> (x) h = Concat <axis = 0> (s, rest) a = Reshape (x, h) "
         "y = Neg (a)", ["Reshape", "Neg"]),
        # A view before a Cast: both at once
        ("a = Reshape (x, two) c = Cast <to = 11> (a) b = Reshape (c, back) y = Neg (b)",
         ["Cast", "Neg"]),
        ("a = Reshape (x, two) c = Cast <to = 11> (a) b = Unsqueeze (c, one) y = Neg (b)", None),
        # Dims of 1 in front are broadcast anyway.
        ("a = Unsqueeze (row, front) y = Add (x, a)", ["Add"]),
        ("a = Unsqueeze (row, zero) y = Add (x, a)", ["Add"]),
        ("a = Unsqueeze (row, front) y = Neg (a)", ["Unsqueeze", "Neg"]),
        ("a = Unsqueeze (row, front) b = Exp (row) y = Mul (b, a)", ["Exp", "Unsqueeze", "Mul"]),
        ("a = Unsqueeze (row, front) y = Concat <axis = 1> (z, a)", ["Unsqueeze", "Concat"]),
    ],
)  # fmt: skip
def test_what_is_left(steps: str, expected: list[str] | None) -> None:
    m = model(f"{HEAD} {{ {steps} }}")
    m.graph.outputs[0].shape = None
    m.graph.outputs[0].type = ir.TensorType(
        ir.DataType.DOUBLE if "Cast" in steps else ir.DataType.FLOAT
    )
    after = fold(m, 1, 4)
    assert expected is None or sorted(ops(after)) == sorted(expected)


@pytest.mark.parametrize(
    ("source", "target", "op_type", "axes"),
    [
        ((2, 3), (2, 1, 3), "Unsqueeze", [1]),
        ((2, 3), (1, 2, 3, 1), "Unsqueeze", [0, 3]),
        ((2, 1, 3), (2, 3), "Squeeze", [1]),
        ((1, 3), (1, 1, 3), "Unsqueeze", [1]),
        ((2, 3), (3, 2), None, None),
        ((2, 3), (6,), None, None),
        ((2, 3), (2, 3), None, None),
        ((2, 3), (2, 3, 2), None, None),
        ((2, None), (2, 1, None), None, None),
    ],
)
def test_a_view_by_dims_of_1(
    source: tuple[int | None, ...],
    target: tuple[int | None, ...],
    op_type: str | None,
    axes: list[int] | None,
) -> None:
    dims = [[ir.SymbolicDim(None) if x is None else x for x in y] for y in (source, target)]
    build = view_by_unit_axes(*dims)
    assert (build is None) == (op_type is None)
    if build is not None:
        m = model("m (float[T] x) => (float[T] y) { y = Neg (x) }")
        op = Builder("test", View(m))
        op.start_site(m.graph[0])
        node = build(m.graph.inputs[0], op).producer()
        assert node is not None
        assert node.op_type == op_type
        assert np.array_equal(node.inputs[1].const_value.numpy(), axes)


def test_a_view_by_a_constant() -> None:
    m = model("m (float[B, 2, T] x) => (float[B, T, 2] y) { y = Transpose <perm = [0, 2, 1]> (x) }")
    look, op = FoldView(View(m)), Builder("test", View(m))
    b, _, t = look.view.shapes.dims(m.graph.inputs[0]) or ()
    build = view_by_constant([b, 2, t], [b, t, 2], [b, -1, 2], look)
    assert build is not None
    op.start_site(m.graph[0])
    node = build(m.graph.inputs[0], op).producer()
    assert node is not None
    assert node.inputs[1].const_value.numpy().tolist() == [0, -1, 2]
    assert view_by_constant([b, 2, t], [t, b, 2], None, look) is None


@pytest.mark.parametrize(("is_viewed", "views"), [(True, 2), (False, 0)])
def test_views_around_a_gemm_stay_for_the_pass_that_takes_both(
    *, is_viewed: bool, views: int
) -> None:
    first = "r = Reshape (x, rows)" if is_viewed else "r = Exp (x)"
    dims = "2, 5, 3" if is_viewed else "10, 3"
    m = model(f"""m (float[{dims}] x, float[3, 4] w, float[4] b, float[2, 10, 4] k)
        => (float[2, 10, 4] y) <int64[2] rows = {{-1, 3}}, int64[1] zero = {{0}}>
        {{ {first} g = Gemm (r, w, b) u = Unsqueeze (g, zero) y = Mul (k, u) }}""")
    assert sum(x in ("Reshape", "Unsqueeze") for x in ops(fold(m, 1))) == views


def test_a_view_that_is_an_output_keeps_its_rank() -> None:
    """Its readers broadcast it anyway, but somebody reads it with the dim of 1 in front."""
    after = fold(
        model("""m (float[B, T] w) => (int64[1, T] y, bool[B, T] z)
            <int64[1] first = {0}, int64 nought = {0}, int64 one = {1}> {
            s = Shape (w) t = Gather (s, one) row = Range (nought, t, one)
            y = Unsqueeze (row, first) n = Cast <to = 7> (w) z = Less (y, n) }""")
    )
    assert "Unsqueeze" in ops(after)
