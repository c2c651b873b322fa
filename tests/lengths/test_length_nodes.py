"""Nodes for valid lengths, run on ONNX Runtime: lengths, positions, masks, addends."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.lengths.tail_state import (
    Axis,
    BatchFactor,
    OtherFactor,
    TimeFactor,
    size_expr,
    state_without_time,
)
from tests.lengths.rewritten import Array, Site, operators, rewrite, run, site_before

B, T, H = size_expr("B"), size_expr("T"), size_expr("2")
ROWS: Axis = (BatchFactor(B),)
TIME: Axis = (TimeFactor(T),)
HEADS: Axis = (OtherFactor(H),)
X = np.zeros((2, 5, 4), np.float32)
ILENS = np.array([2, 4])
# Which of five frames are valid.
WITHIN = np.array([[1, 1, 0, 0, 0], [1, 1, 1, 1, 0]], bool)
ONE_CLIP = "float[1, T, 4] x, int64[1] ilens"


def built(site: Site, value: ir.Value, **feeds: object) -> Array:
    """Return what a value holds that stands for ``y``."""
    return run(rewrite(site, lambda: value), **{"x": X, "ilens": ILENS, **feeds})


def started(**changes: object) -> Site:
    site = site_before(**changes)
    site.op.start_site(site.node)
    return site


# Types


def test_types_of_what_a_repair_has_added() -> None:
    site = started()
    op, x = site.op, site.value("x")
    to_half = op.Cast(x, to=ir.DataType.FLOAT16)
    assert site.lengths.dtype_of(x) == ir.DataType.FLOAT
    assert site.lengths.dtype_of(to_half) == ir.DataType.FLOAT16
    assert site.lengths.dtype_of(op.Mul(to_half, to_half)) == ir.DataType.FLOAT16
    assert site.lengths.dtype_of(op.Less(to_half, to_half)) == ir.DataType.BOOL
    size = op.Shape(to_half)
    assert site.lengths.dtype_of(size) == ir.DataType.INT64
    assert site.lengths.dtype_of(op.ConstantOfShape(size)) == ir.DataType.INT64
    # Of a choice it is that of what is chosen, not of the condition.
    assert site.lengths.dtype_of(op.Where(op.Less(x, x), to_half, to_half)) == ir.DataType.FLOAT16


def test_a_type_that_nobody_knows_is_an_error() -> None:
    site = started()
    unknown = ir.Value(name="q")
    for value in (unknown, site.op.Neg(unknown), site.op.Resize(None, unknown)):
        with pytest.raises(RuntimeError, match="the element type of"):
            site.lengths.dtype_of(value)


def test_numbers_that_hide_scores() -> None:
    half = ir.DataType.FLOAT16
    lowest = site_before().lengths
    assert lowest.score_floor(half) == lowest.limit_scalar(half, high=False) == -65504
    assert lowest.limit_scalar(half, high=True) == 65504
    floor = site_before(floor=-100.0).lengths.score_floor(half)
    assert floor == -100
    assert (floor.dtype, floor.shape) == (np.float16, ())
    assert lowest.limit_scalar(ir.DataType.INT8, high=True).dtype == np.int8


# Lengths


def test_lengths_are_the_input_itself() -> None:
    site = started()
    assert site.lengths.row_lengths(T) is site.value("ilens")


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ("floor(T/2)", [1, 2]),
        ("T + 3", [5, 7]),
        ("T - 3", [0, 1]),  # a clip too short for one window
    ],
)
def test_the_length_of_an_axis_is_its_size_at_that_of_the_clip(
    size: str, expected: list[int]
) -> None:
    site = started()
    rows = site.lengths.row_lengths(size_expr(size))
    assert site.lengths.row_lengths(size_expr(size)) is rows
    assert built(site, rows).tolist() == expected


@pytest.mark.parametrize(("size", "expected"), [("T", 5), ("2*T - 3", 7)])
def test_a_padded_size_counts_the_padding(size: str, expected: int) -> None:
    site = started()
    assert built(site, site.lengths.padded_size(size_expr(size))).tolist() == [expected]


def test_lengths_of_another_type_are_cast() -> None:
    site = started(inputs="float[B, T, 4] x, int32[B] ilens")
    rows = site.lengths.row_lengths(T)
    assert site.lengths.row_lengths(T) is rows
    result = built(site, rows, ilens=ILENS.astype(np.int32))
    assert (result.tolist(), result.dtype) == ([2, 4], np.int64)


@pytest.mark.parametrize("opset", [12, 17])
@pytest.mark.parametrize("dtype", ["int64", "float"])
@pytest.mark.parametrize("dims", ["B, T", "B, 1, T"])
def test_lengths_are_the_sum_of_a_mask(dims: str, dtype: str, opset: int) -> None:
    inputs = f"float[B, T, 4] x, {dtype}[{dims}] ilens"
    site = started(inputs=inputs, source="ilens", opset=opset)
    mask = WITHIN.astype({"int64": np.int64, "float": np.float32}[dtype])
    mask = mask[:, None] if "1" in dims else mask
    assert built(site, site.lengths.row_lengths(T), ilens=mask).tolist() == [2, 4]


def test_lengths_that_the_model_has_are_no_mask() -> None:
    site = started(source="ilens")
    assert site.lengths.row_lengths(T) is site.value("ilens")


def test_the_size_of_an_axis_is_built_once() -> None:
    site = started()
    x = site.value("x")
    size = site.lengths.axis_size(x, 2)
    assert site.lengths.axis_size(x, 2) is size
    assert site.lengths.axis_size(x, 1) is not size
    assert built(site, size).tolist() == [4]


# Numbers computed from sizes


def recomputed(number: str, rank: int = 0, trailing: int = 1, **changes: object) -> Array:
    """Return the number ``f`` of a graph, computed from valid lengths."""
    constants = """int64 one = {1}, int64 three = {3}, int64 less = {-3}, int64[1] ones = {1},
        float half = {0.5}"""
    body = f"s = Shape (x)  t = Gather (s, one)  {number}  y = Identity (f)"
    site = started(node=body, constants=constants, **changes)
    value = site.lengths.recompute_on_lengths(site.value("f"), rank, trailing)
    feeds = {"ilens": ILENS[:1], "x": X[:1]} if "1, T" in str(changes.get("inputs")) else {}
    return built(site, value, **feeds)


def test_a_size_becomes_a_length_for_each_row() -> None:
    assert recomputed("f = Identity (t)").tolist() == [[2], [4]]
    assert recomputed("f = Identity (t)", trailing=0).tolist() == [2, 4]
    assert recomputed("f = Identity (t)", trailing=2).tolist() == [[[2]], [[4]]]
    result = recomputed("f = Cast <to = 1> (t)")
    assert (result.tolist(), result.dtype) == ([[2.0], [4.0]], np.float32)
    result = recomputed("f = Cast <to = 6> (t)")
    assert (result.tolist(), result.dtype) == ([[2], [4]], np.int32)


def test_a_size_of_one_clip_keeps_its_rank() -> None:
    assert recomputed("f = Identity (t)", 0, inputs=ONE_CLIP).tolist() == 2
    assert recomputed("f = Unsqueeze (t, ones)", 1, inputs=ONE_CLIP).tolist() == [2]
    number = "u = Reshape (t, ones)  f = Identity (u)"
    assert recomputed(number, 1, inputs=ONE_CLIP).tolist() == [2]
    assert recomputed(number, 3, inputs=ONE_CLIP).tolist() == [[[2]]]


def test_what_may_be_negative_is_computed_again() -> None:
    # 2 - 3 frames: a size of so many would be 0.
    assert recomputed("f = Sub (t, three)").tolist() == [[-1], [1]]
    assert recomputed("u = Sub (t, three)  f = Cast <to = 1> (u)").tolist() == [[-1.0], [1.0]]
    assert recomputed("u = Sub (t, three)  f = Unsqueeze (u, ones)", 1).tolist() == [[-1], [1]]


def test_a_negative_number_stays_negative() -> None:
    assert recomputed("f = Add (t, less)").tolist() == [[-1], [1]]
    assert recomputed("f = Mul (t, less)").tolist() == [[-6], [-12]]
    # A size that no length changes is read from the tensor.
    number = "two = Add (one, one)  u = Gather (s, two)  v = Sub (t, u)  f = Sub (v, u)"
    assert recomputed(number).tolist() == [[-6], [-4]]


def test_a_measured_size_is_at_least_none() -> None:
    number = """k = Slice (x, from, far, ones)  m = Shape (k)  f = Gather (m, one)"""
    site = started(
        node=f"{number}  y = Identity (f)",
        constants="int64[1] from = {3}, int64[1] far = {99}, int64[1] ones = {1}, int64 one = {1}",
    )
    value = site.lengths.recompute_on_lengths(site.value("f"), 0, 1)
    assert built(site, value).tolist() == [[0], [1]]


def test_arithmetic_of_sizes_is_built_again() -> None:
    number = "u = Cast <to = 1> (t)  v = Sqrt (u)  w = Mul (v, v)  f = Add (w, half)"
    assert recomputed(number).tolist() == pytest.approx(np.array([[2.5], [4.5]]))
    number = "u = Cast <to = 1> (t)  k = Constant <value_float = 2.0> ()  f = Pow (u, k)"
    assert recomputed(number).tolist() == [[4.0], [16.0]]
    # An absent input stays absent.
    number = "u = Cast <to = 1> (t)  v = Sqrt (u)  f = Clip (v, , half)"
    assert recomputed(number).tolist() == [[0.5], [0.5]]


def test_another_number_is_itself() -> None:
    site = started(constants="float half = {0.5}")
    assert site.lengths.recompute_on_lengths(site.value("half"), 0, 1) is site.value("half")


# Positions and masks


def test_positions_count_the_padding() -> None:
    site = started()
    at = site.lengths.positions(T)
    assert site.lengths.positions(T) is at
    assert built(site, at).tolist() == [0, 1, 2, 3, 4]
    assert "Max" not in operators(site.model)


@pytest.mark.parametrize(("frames", "expected"), [(2, []), (3, []), (5, [0, 1])])
def test_where_no_window_fits_there_is_no_position(frames: int, expected: list[int]) -> None:
    site = started()
    at = site.lengths.positions(size_expr("T - 3"))
    assert built(site, at, x=X[:, :frames]).tolist() == expected


@pytest.mark.parametrize(
    ("axes", "axis", "mask"),
    [
        ((ROWS, TIME, HEADS), 1, WITHIN[:, :, None]),
        ((ROWS, HEADS, TIME), 2, WITHIN[:, None]),
        ((TIME, ROWS, HEADS), 0, WITHIN.T[:, :, None]),
        ((TIME, HEADS, ROWS), 0, WITHIN.T[:, None]),
        ((ROWS, TIME), 1, WITHIN),
        # Two times: the mask is of one.
        ((ROWS, TIME, TIME), 2, WITHIN[:, None]),
    ],
)
def test_a_mask_lies_along_its_axes(axes: tuple[Axis, ...], axis: int, mask: Array) -> None:
    site = started()
    value = site.lengths.valid_mask(site.value("x"), axes, axis)
    assert site.lengths.valid_mask(site.value("x"), axes, axis) is value
    np.testing.assert_array_equal(built(site, value), mask)
    assert "Reshape" not in operators(site.model)


@pytest.mark.parametrize(("axes", "axis"), [(((), TIME, HEADS), 1), ((TIME, HEADS, ()), 0)])
def test_the_mask_of_one_clip_has_no_rows(axes: tuple[Axis, ...], axis: int) -> None:
    site = started(inputs=ONE_CLIP)
    mask = site.lengths.valid_mask(site.value("x"), axes, axis)
    result = built(site, mask, x=X[:1], ilens=ILENS[:1])
    shape = [5 if i == axis else 1 for i in range(3)]
    np.testing.assert_array_equal(result, WITHIN[0].reshape(shape))


@pytest.mark.parametrize(
    ("inputs", "axes", "axis", "mask"),
    [
        ("4, 5", ((*ROWS, *HEADS), TIME), 1, WITHIN.repeat(2, 0)),
        ("4, 5", ((*HEADS, *ROWS), TIME), 1, np.tile(WITHIN, (2, 1))),
        ("2, 10", (ROWS, (*TIME, *HEADS)), 1, WITHIN.repeat(2, 1)),
        ("2, 10", (ROWS, (*HEADS, *TIME)), 1, np.tile(WITHIN, (1, 2))),
        ("10, 2", ((*TIME, *HEADS), ROWS), 0, WITHIN.repeat(2, 1).T),
        ("20", ((*ROWS, *HEADS, *TIME),), 0, WITHIN.repeat(2, 0).reshape(-1)),
        ("20, 3", ((*ROWS, *HEADS, *TIME), (OtherFactor(size_expr("3")),)), 0,
         WITHIN.repeat(2, 0).reshape(-1, 1)),
    ],
)  # fmt: skip
def test_a_mask_is_repeated_along_what_shares_its_axes(
    inputs: str, axes: tuple[Axis, ...], axis: int, mask: Array
) -> None:
    site = started(inputs=f"float[B, T, 4] x, int64[B] ilens, float[{inputs}] z")
    value = site.lengths.valid_mask(site.value("z"), axes, axis)
    z = np.zeros([int(n) for n in inputs.split(",")], np.float32)
    np.testing.assert_array_equal(built(site, value, z=z), mask)


def test_a_reversed_time_is_valid_at_its_end() -> None:
    site = started()
    axes: tuple[Axis, ...] = (ROWS, (TimeFactor(T, reversed=True),))
    forward = site.lengths.valid_mask(site.value("x"), (ROWS, TIME), 1)
    value = site.lengths.valid_mask(site.value("x"), axes, 1)
    assert value is not forward
    np.testing.assert_array_equal(built(site, value), WITHIN[:, ::-1])


def test_masks_of_other_sizes_are_others() -> None:
    site = started()
    axes: tuple[Axis, ...] = (ROWS, (TimeFactor(size_expr("floor(T/2)")),), ())
    value = site.lengths.valid_mask(site.value("x"), axes, 1)
    assert built(site, value)[..., 0].tolist() == [[True, False], [True, True]]


def test_an_addend_hides_what_is_behind() -> None:
    site = started(floor=-100.0)
    value = site.lengths.hiding_addend(site.value("x"), (ROWS, TIME, ()), 1)
    assert site.lengths.hiding_addend(site.value("x"), (ROWS, TIME, ()), 1) is value
    np.testing.assert_array_equal(built(site, value)[..., 0], np.where(WITHIN, 0, -100))


HALF_INPUTS = "float16[B, T, 4] x, int64[B] ilens"


def test_half_scores_have_a_limit() -> None:
    site = started(inputs=HALF_INPUTS, opset=12)
    value = site.lengths.score_limit(site.value("x"), (ROWS, TIME, ()), 1)
    assert value is not None
    result = built(site, value, x=X.astype(np.float16))
    np.testing.assert_array_equal(result[..., 0], np.where(WITHIN, 65504, -65504))


@pytest.mark.parametrize(
    "changes", [{"opset": 11}, {"floor": -100.0}, {"inputs": "float[B, T, 4] x, int64[B] ilens"}]
)
def test_other_scores_have_none(changes: dict[str, object]) -> None:
    site = started(**{"inputs": HALF_INPUTS, "opset": 12, **changes})
    assert site.lengths.score_limit(site.value("x"), (ROWS, TIME, ()), 1) is None


def test_a_mask_as_numbers_is_cast_once() -> None:
    site = started()
    mask = site.lengths.valid_mask(site.value("x"), (ROWS, TIME), 1)
    value = site.lengths.cast_mask(mask, ir.DataType.FLOAT)
    assert site.lengths.cast_mask(mask, ir.DataType.FLOAT) is value
    assert site.lengths.cast_mask(mask, ir.DataType.INT32) is not value
    np.testing.assert_array_equal(built(site, value), WITHIN.astype(np.float32))


# Ranks


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        ((ROWS, TIME, HEADS), [[[2]], [[4]]]),
        ((TIME, ROWS), [[2, 4]]),
        ((TIME, (*ROWS, *HEADS)), [[2, 2, 4, 4]]),
        (((*HEADS, *ROWS), TIME), [[2], [4], [2], [4]]),
        (((*HEADS, *ROWS, OtherFactor(size_expr("3"))),), [2, 2, 2, 4, 4, 4] * 2),
    ],
)
def test_numbers_of_rows_lie_along_the_batch(
    axes: tuple[Axis, ...], expected: list[object]
) -> None:
    site = started()
    value = site.lengths.align_row_values(site.value("ilens"), state_without_time(axes))
    assert built(site, value).tolist() == expected
    assert ("Expand" in operators(site.model)) == any(len(x) > 1 for x in axes)


@pytest.mark.parametrize("axes", [((), TIME), (HEADS, TIME)])
def test_the_number_of_one_clip_has_the_rank(axes: tuple[Axis, ...]) -> None:
    site = started(inputs=ONE_CLIP)
    value = site.lengths.align_row_values(site.value("ilens"), state_without_time(axes))
    assert built(site, value, x=X[:1], ilens=ILENS[:1]).tolist() == [[2]]


@pytest.mark.parametrize("opset", [11, 12, 13, 17])
def test_axes_come_and_go_in_every_opset(opset: int) -> None:
    site = started(opset=opset)
    ilens = site.value("ilens")
    assert site.lengths.unsqueeze(ilens, []) is ilens
    wide = site.lengths.unsqueeze(ilens, range(1, 3))
    total = site.lengths.reduce_sum(wide, [0])
    result = built(site, site.lengths.squeeze(total, [0, 2]))
    assert (result.tolist(), result.shape) == ([6], (1,))


def test_a_single_number_loses_its_axis() -> None:
    site = started(constants="float[1] p = {2}, float q = {3}")
    assert site.lengths.to_scalar(site.value("q")) is site.value("q")
    assert built(site, site.lengths.to_scalar(site.value("p"))).shape == ()


@pytest.mark.parametrize("opset", [11, 12])
@pytest.mark.parametrize(("name", "expected"), [("max", [3, 4]), ("min", [2, 3])])
def test_extrema_are_of_every_element(name: str, expected: list[int], opset: int) -> None:
    site = started(opset=opset)
    build = getattr(site.lengths, f"elementwise_{name}")
    value = build(site.value("ilens"), np.array([3], np.int64))
    assert built(site, value).tolist() == expected
