"""fold: what is computed of constants is what ONNX Runtime computes of them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from tests.passes.models import execute, model, ops

CONSTANTS = """int64[2, 2] n = {3, -1, 0, 2}, int64[2, 2] at = {1, 0, 1, 1},
    int64[2, 1] rows = {1, 0}, int64[4] four = {4, 3, 2, 1}, bool[2] some = {0, 1},
    float[2, 2] f = {1.5, -2.5, 0.5, -0.0}, float[1, 4, 1, 1] deep = {1, 2, 3, 4},
    float[1, 1, 2, 2] wide = {1, 2, 3, 4}, int64[2] two = {1, 2}, float low = {-1},
    float[1, 1, 1, 10] ten = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9},
    float[4] halves = {1, 1, 0.5, 2}, float[4] doubles = {1, 1, 2, 4},
    float[4] thirds = {1, 1, 3, 3}, int64[4] tall = {1, 1, 4, 8},
    float[4] most = {1, 1, 1, 0.7}, float[4] little = {1, 1, 1.2, 1.2}, float high = {1},
    int64 three = {3}, int64[1] axis = {0}, int64[1] first = {-9},
    int64[1] last = {9223372036854775807}, int64[1] back = {-1}"""


@pytest.mark.parametrize(
    ("node", "opset"),
    [
        ("Compress <axis = 0> (n, some)", 18),
        ("GatherElements <axis = 1> (n, at)", 18),
        ("GatherND (n, rows)", 18),
        ("DepthToSpace <blocksize = 2> (deep)", 18),
        ("SpaceToDepth <blocksize = 2> (wide)", 18),
        ("ReverseSequence <time_axis = 0, batch_axis = 1> (n, two)", 18),
        ("BitwiseAnd (four, three)", 18),
        ("Round (f)", 18),
        ("IsNaN (f)", 18),
        ("Mod (n, three)", 18),
        ("ReduceMax (n)", 18),
        (
            'Resize <coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">'
            ' (wide, "", "", tall)',
            18,
        ),
        ('Resize (wide, "", halves)', 18),
        ('Resize (wide, "", thirds)', 18),
        ('Resize <coordinate_transformation_mode = "asymmetric"> (ten, "", most)', 18),
        ("Upsample (wide, doubles)", 9),
        ("Slice (four, back, first, axis, back)", 18),
        ("Slice (four, axis, last)", 18),
        ("Slice <starts = [-3], ends = [9]> (four)", 9),
    ],
)
def test_it_is_folded_to_the_same_bits(node: str, opset: int) -> None:
    m = _model(node, opset)
    _, wanted = execute(m, {"x": np.zeros(1, np.float32)}, optimized=False)
    graphfix.run(m, "fold")
    assert set(ops(m)) <= {"Neg", "Identity"}
    _, folded = execute(m, {"x": np.zeros(1, np.float32)}, optimized=False)
    assert folded.dtype == wanted.dtype
    assert folded.tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    "node",
    [
        "Dropout (f)",  # fold drops nothing that a training mode may need
        "ReduceSum (f)",  # sums of floats are rounded in an order of the runtime's own
        "ReduceMax (f)",  # may meet NaN
        "Relu (f)",  # of -0 it makes 0 or -0
        "Clip (f, low, high)",
        "Exp (f)",
        "RandomUniformLike (f)",
        'Resize <mode = "linear"> (wide, "", halves)',  # sums of floats
        'Resize <mode = "cubic"> (wide, "", thirds)',
        'Resize (wide, "", little)',  # ONNX Runtime copies what stays as large
        'Resize (ten, "", most)',  # a place half-way between two
        'Resize <nearest_mode = "ceil"> (wide, "", thirds)',  # float32 may miss a whole place
    ],
)
def test_what_runtimes_may_compute_otherwise_stays(node: str) -> None:
    m = _model(node, 18)
    graphfix.run(m, "fold")
    assert node.split()[0] in ops(m)


def _model(node: str, opset: int) -> ir.Model:
    text = f"m (float[N] x) => (float[N] z, y) <{CONSTANTS}> {{ z = Neg (x) y = {node} }}"
    return model(text, opset)


def test_a_constant_node_with_a_wrong_attribute_is_left() -> None:
    before = model(
        """m (int64[2] x) => (int64[2] y) <int64[2] a = {1, 2}, int64[2] b = {1, 1}>
        { s = BitShift <direction = ""> (a, b) y = Max (x, s) }"""
    )
    assert not graphfix.run(before, "fold").changed
