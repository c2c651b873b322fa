"""fold: what is computed of constants is what ONNX Runtime computes of them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.facts.view import View
from graphfix.passes.common.fold_view import LIMIT, FoldView
from graphfix.passes.sizes.fold_rules.constants import (
    arrays_from_sizes,
    fold_constant,
    fold_inferred,
    inline_if,
)
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
        'Resize <mode = "linear"> (wide, "", little)',
        'Resize (wide, "", little)',  # ONNX Runtime copies what stays as large
        'Resize (ten, "", most)',  # a place half-way between two
        'Resize <nearest_mode = "ceil"> (wide, "", thirds)',  # float32 may miss a whole place
    ],
)
def test_what_runtimes_may_compute_otherwise_stays(node: str) -> None:
    m = _model(node, 18)
    graphfix.run(m, "fold")
    assert node.split()[0] in ops(m)


_SUMS = ["linear", "cubic"]
_COORDINATES = ["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"]


@pytest.mark.parametrize("mode", _SUMS)
@pytest.mark.parametrize("coordinates", [*_COORDINATES, "half_pixel_symmetric"])
@pytest.mark.parametrize("more", ["", ", antialias = 1", ", cubic_coeff_a = -0.5"])
@pytest.mark.parametrize("to", ['"", "", sizes', '"", shares'])
def test_a_resize_that_sums_is_folded_up_to_rounding(
    mode: str, coordinates: str, more: str, to: str
) -> None:
    attributes = f'mode = "{mode}", coordinate_transformation_mode = "{coordinates}"{more}'
    m = model(
        f"""m (float[N] x) => (float[N] z, y) <float[1, 1, 3, 4] data = {{{_NUMBERS}}},
        int64[4] sizes = {{1, 1, 7, 2}}, float[4] shares = {{1, 1, 0.7, 1.6}}>
        {{ z = Neg (x) y = Resize <{attributes}> (data, {to}) }}""",
        19,
    )
    _, wanted = execute(m, {"x": np.zeros(1, np.float32)}, optimized=False)
    assert graphfix.run(m, "fold").changed
    _, folded = execute(m, {"x": np.zeros(1, np.float32)}, optimized=False)
    assert set(ops(m)) <= {"Neg", "Identity"}
    assert folded.dtype == wanted.dtype
    np.testing.assert_allclose(folded, wanted, atol=1e-5)


_NUMBERS = ", ".join(str(x) for x in (4, -1, 0.5, 7, 2, 2, -3, 1, 9, 0, -6, 5))


def test_a_large_constant_that_is_moved_first_is_resized() -> None:
    """As the position embedding of a vision transformer is: more than fold makes otherwise."""
    numbers = np.random.default_rng(0).standard_normal(5120).round(3)
    m = model(
        f"""m (float[1, 512, 4, 4] x) => (float[1, 512, 4, 4] y)
        <float[1, 10, 512] embedding = {{{", ".join(map(str, numbers))}}}, int64[1] one = {{1}},
         int64[1] last = {{10}}, int64[4] grid = {{1, 3, 3, 512}},
         int64[4] sizes = {{1, 512, 4, 4}}>
        {{
            patches = Slice (embedding, one, last, one)
            square = Reshape (patches, grid)
            channels = Transpose <perm = [0, 3, 1, 2]> (square)
            resized = Resize <mode = "cubic"> (channels, "", "", sizes)
            y = Add (x, resized)
        }}"""
    )
    feed = {"x": np.zeros((1, 512, 4, 4), np.float32)}
    (wanted,) = execute(m, feed, optimized=False)
    graphfix.run(m, "fold")
    assert ops(m) == ["Add"]
    np.testing.assert_allclose(execute(m, feed, optimized=False)[0], wanted, atol=1e-5)


def test_a_resize_of_a_picture_stays() -> None:
    m = model(
        """m (float[1, 1, 2, 2] x) => (y) <float[4] doubles = {1, 1, 2, 2}>
        {
            moved = Transpose <perm = [0, 1, 3, 2]> (x)
            y = Resize <mode = "linear"> (moved, "", doubles)
        }"""
    )
    assert not graphfix.run(m, "fold").changed


def test_a_resize_to_more_than_eight_megabytes_stays() -> None:
    m = model(
        """m (float[N] x) => (float[N] z, y) <float[1, 1, 1, 1] dot = {1},
        int64[4] sizes = {1, 1, 2048, 1025}>
        { z = Neg (x) y = Resize <mode = "linear"> (dot, "", "", sizes) }"""
    )
    assert not graphfix.run(m, "fold").changed


def _model(node: str, opset: int) -> ir.Model:
    text = f"m (float[N] x) => (float[N] z, y) <{CONSTANTS}> {{ z = Neg (x) y = {node} }}"
    return model(text, opset)


def test_a_constant_node_with_a_wrong_attribute_is_left() -> None:
    before = model(
        """m (int64[2] x) => (int64[2] y) <int64[2] a = {1, 2}, int64[2] b = {1, 1}>
        { s = BitShift <direction = ""> (a, b) y = Max (x, s) }"""
    )
    assert not graphfix.run(before, "fold").changed


SIZED = """m (float[2, 3] x, float[B, 4] z, bool[3] bits) => (float y)
    <int64 one = {1}, int64 two = {2}, int64[2] pair = {1, 0}, float half = {0.5},
     int64[1] nil = {0}, int64 nought = {0}, int64 limit = {9}>"""


@pytest.mark.parametrize(
    ("body", "array"),
    [
        ("y = Shape (x)", np.array([2, 3])),
        ("y = Size (x)", np.array(6)),
        ("y = Shape <start = 1> (z)", np.array([4])),
        ("y = Shape (z)", None),
        ("s = Shape (x) y = Gather (s, one)", np.array(3)),
        ("s = Shape (x) g = Gather (s, one) y = Mul (g, two)", np.array(6)),
        ("s = Shape (x) y = Cast <to = 1> (s)", np.array([2, 3], np.float32)),
        ("s = Shape (x) f = Cast <to = 1> (s) y = Mul (f, half)", np.array([1, 1.5], np.float32)),
        ("s = Shape (x) y = Cast <to = 6> (s)", np.array([2, 3], np.int32)),
        ("s = Shape (x) c = Cast <to = 6> (s) y = ReduceSum (c, nil)", np.array([5], np.int32)),
        # Sums of floats, and what is made of constants alone, are for others.
        ("s = Shape (x) f = Cast <to = 1> (s) y = ReduceSum (f, nil)", None),
        ("y = Mul (one, two)", None),
        ("y = Neg (x)", None),
        ("s = Shape (x) y = Slice (s, nil, pair)", None),  # of other lengths: it fails
        ("s = Shape (x) g = Gather (s, one) y = Div (g, nought)", None),
    ],
)
def test_what_follows_from_sizes(body: str, array: np.ndarray | None) -> None:
    m = model(f"{SIZED} {{ {body} }}")
    m.graph.outputs[0].shape = m.graph.outputs[0].type = None
    arrays = arrays_from_sizes(FoldView(View(m)))
    result = arrays.get(m.graph.outputs[0])
    assert (result is None) == (array is None)
    if result is not None and array is not None:
        np.testing.assert_array_equal(result, array)
        assert (result.dtype, result.shape) == (array.dtype, array.shape)


@pytest.mark.parametrize(
    ("body", "is_folded"),
    [
        ("y = Shape (x)", True),
        ("s = Shape (x) y = Gather (s, one)", True),
        ("y = Shape (z)", False),
        ("y = Neg (x)", False),
        ("y = Constant <value_int = 1> ()", False),
        ("y = Identity (one)", False),
        ("s, y = Split <num_outputs = 2> (pair)", False),
    ],
)
def test_what_inference_knows(body: str, is_folded: bool) -> None:
    m = model(f"{SIZED} {{ {body} }}")
    m.graph.outputs[0].shape = m.graph.outputs[0].type = None
    assert (fold_inferred(m.graph[-1], FoldView(View(m))) is not None) == is_folded


@pytest.mark.parametrize(
    ("node", "is_folded"),
    [
        ("y = Mul (one, two)", True),
        ("y = Identity (one)", False),
        ("y = Constant <value_int = 1> ()", False),
        ("y = Mul (one, limit)", True),
        ("y = Shape (x)", False),
        ("y, z2 = TopK (half2, nil)", False),
        ("y = Expand (one, many)", True),
        ("y = Expand (one, more)", False),
        ("y = Div (one, nought)", False),
        ("y = Gather (pair, two)", False),
    ],
)
def test_what_constants_make(node: str, is_folded: bool) -> None:
    more = (
        f", int64[1] many = {{{LIMIT}}}, int64[1] more = {{{LIMIT + 1}}}, float[1] half2 = {{2}}>"
    )
    m = model(f"{SIZED[:-1]}{more} {{ {node} }}")
    m.graph.outputs[0].shape = m.graph.outputs[0].type = None
    assert (fold_constant(m.graph[-1], FoldView(View(m))) is not None) == is_folded


def test_a_node_with_a_parameter_of_its_function_is_not_small() -> None:
    m = ir.from_onnx_text(
        """<ir_version: 8, opset_import: ["" : 17, "l" : 1]> m (float[2] x) => (float[2] y)
        { y = l.f <a = 1> (x) } <domain: "l", opset_import: ["" : 17]> f <a> (x) => (y) {
        one = Constant <value_int = 1> () c = Cast <to: int = @a> (one) y = Add (x, c) }"""
    )
    cast = next(x for f in m.functions.values() for x in f if x.op_type == "Cast")
    assert fold_constant(cast, FoldView(View(m))) is None


BRANCHES = """then_branch = t () => (int64 a) { a = Identity (%s) },
    else_branch = e () => (int64 b) { b = Identity (two) }"""


@pytest.mark.parametrize(
    ("condition", "taken", "use", "reason"),
    [
        ("yes", "one", "Neg (r)", "always True"),
        ("no", "one", "Neg (r)", "always False"),
        ("yes1", "one", "Neg (r)", "always True"),
        ("several", "one", "Neg (r)", None),
        ("fed", "one", "Neg (r)", None),
        # A Range takes a vector of one element as long as nothing says that it is one.
        ("yes", "vector", "Range (two, r, two)", None),
        ("yes", "vector", "Neg (r)", "always True"),
        ("yes", "one", "Range (two, r, two)", "always True"),
        ("no", "vector", "Range (two, r, two)", "always False"),
    ],
)
def test_an_if_that_a_constant_decides(
    condition: str, taken: str, use: str, reason: str | None
) -> None:
    m = model(f"""m (bool fed) => (int64[N] y)
        <bool yes = {{1}}, bool no = {{0}}, bool[1] yes1 = {{1}}, bool[2] several = {{1, 1}},
         int64 one = {{1}}, int64 two = {{2}}, int64[1] vector = {{3}}>
        {{ r = If ({condition}) <{BRANCHES % taken}> y = {use} }}""")
    replacement = inline_if(m.graph[0], FoldView(View(m)))
    assert (replacement is None) == (reason is None)
    assert replacement is None or (reason is not None and reason in replacement.reason)
    assert inline_if(m.graph[1], FoldView(View(m))) is None
