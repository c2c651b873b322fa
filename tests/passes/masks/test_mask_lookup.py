"""mask-lookup: which lookups become the mask, what is left alone, and that every number stays."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from tests.passes.models import execute, opened, ops, refusals


def run(m: ir.Model, feeds: dict[str, np.ndarray]) -> np.ndarray:
    return execute(m, feeds)[0]


INITS = """int64 zero = {0}, int64 one = {1}, int64[1] all = {-1}, int64[1] nought = {0},
    int64[1] second = {1}, int64[3] ones = {1, 2, 3}, int64[3] front = {0, 1, 2},
    int64[1] last = {-1}"""
RANGES = """
    rows = Shape <start = 0, end = 1> (mask)
    cols = Shape <start = 1, end = 2> (mask)
    b = Squeeze (rows)
    t = Squeeze (cols)
    at_b = Range (zero, b, one)
    at_t = Range (zero, t, one)
"""
PLACE = """
    per_b = Unsqueeze (at_b, ones)
    per_t = Unsqueeze (at_t, front)
    begin = Mul (per_b, cols)
    place = Add (begin, per_t)
"""
LOOK_UP = """
    wide_b = Expand (per_b, shape)
    wide_t = Expand (per_t, shape)
    i = Unsqueeze (wide_b, last)
    j = Unsqueeze (wide_t, last)
    place = Concat <axis = -1> (i, j)
    y = GatherND (mask, place)
"""


def flat(body: str = "", *, out: str = "int64[B, 1, 1, T] y") -> ir.Model:
    """A Gather from the flattened mask; ``body`` makes ``place`` otherwise than usual."""
    return ir.from_onnx_text(
        f'<ir_version: 8, opset_import: ["" : 17]> m (int64[B, T] mask) => ({out}) <{INITS}>'
        f"{{ {RANGES} flat = Reshape (mask, all) {body or PLACE} y = Gather (flat, place) }}"
    )


MASK = np.array([[1, 1, 0, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]])


@pytest.mark.parametrize("shape", [(3, 5), (1, 5), (3, 1), (1, 1), (0, 5), (3, 0)])
def test_a_gather_from_the_flattened_mask_is_the_mask(shape: tuple[int, int]) -> None:
    mask = np.arange(shape[0] * shape[1]).reshape(shape)
    before, after = flat(), flat()
    assert graphfix.run(after, "mask-lookup").changed
    assert "Gather" not in ops(after)
    np.testing.assert_array_equal(run(after, {"mask": mask}), run(before, {"mask": mask}))


ONE_ROW = {
    "a Gather": "flat = Reshape (mask, all) begin = Mul (rows, cols) place = Add (begin, per_t) "
    "y = Gather (flat, place)",
    "a GatherND": "like = Max (rows, per_t) size = Shape (like) there = Expand (rows, size) "
    "i = Unsqueeze (there, last) j = Unsqueeze (per_t, last) "
    "place = Concat <axis = -1> (i, j) y = GatherND (mask, place)",
}


@pytest.mark.parametrize("kind", ONE_ROW)
def test_the_only_row_of_a_mask_need_not_be_counted(kind: str) -> None:
    """As both exporters write it where the batch is 1."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    m (int64[1, T] mask) => (int64[1, 1, 1, T] y) <{INITS}, int64[1, 1, 1, 1] rows = {{0}}> {{
    cols = Shape <start = 1, end = 2> (mask) t = Squeeze (cols) at_t = Range (zero, t, one)
    per_t = Unsqueeze (at_t, front) {ONE_ROW[kind]} }}"""
    before, after = ir.from_onnx_text(text), ir.from_onnx_text(text)
    assert graphfix.run(after, "mask-lookup").changed
    assert not {"Gather", "GatherND"} & set(ops(after))
    for row in MASK:
        feeds = {"mask": row[None]}
        np.testing.assert_array_equal(run(after, feeds), run(before, feeds))


@pytest.mark.parametrize("rows", ["rows", "third"])
def test_a_row_that_is_none_of_the_only_one_is_looked_up(rows: str) -> None:
    """Of [1, T], flattened, ``t - 1`` is no element's own place, nor is ``3 * s + t``."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    m (int64[1, T] mask) => (int64[1, 1, S, T] y) <{INITS}, int64[1, 1, 1, 1] rows = {{-1}},
     int64 three = {{3}}, int64[3] beside = {{0, 1, 3}}> {{
    cols = Shape <start = 1, end = 2> (mask) t = Squeeze (cols) at_t = Range (zero, t, one)
    per_t = Unsqueeze (at_t, front) flat = Reshape (mask, all) per_s = Unsqueeze (at_t, beside)
    third = Mul (per_s, three) place = Add ({rows}, per_t) y = Gather (flat, place) }}"""
    assert not refusals(ir.from_onnx_text(text), "mask-lookup")


def test_the_operands_may_stand_in_any_order() -> None:
    body = """
    per_b = Unsqueeze (at_b, ones)
    per_t = Unsqueeze (at_t, front)
    begin = Mul (cols, per_b)
    place = Add (per_t, begin)
    """
    after = flat(body)
    assert graphfix.run(after, "mask-lookup").changed
    np.testing.assert_array_equal(run(after, {"mask": MASK}), MASK[:, None, None])


def test_the_way_there_and_back_goes_with_it() -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    m (int64[B, T] mask) => (int64[B, 1, 1, T] y) <{INITS}> {{ {RANGES} {PLACE}
    flat = Flatten <axis = 2> (mask)
    found = Gather (flat, place)
    line = Reshape (found, all)
    shape = Shape (place)
    y = Reshape (line, shape) }}"""
    before, after = ir.from_onnx_text(text), ir.from_onnx_text(text)
    assert graphfix.run(after, "mask-lookup").changed
    assert ops(after).count("Reshape") == 0
    np.testing.assert_array_equal(run(after, {"mask": MASK}), run(before, {"mask": MASK}))


def by_pairs(rows: str = "at_b") -> ir.Model:
    """A GatherND as dynamo writes it, by ``rows`` and the position."""
    return ir.from_onnx_text(f"""<ir_version: 8, opset_import: ["" : 18]>
    m (int64[B, T] mask) => (int64[B, 1, T] y) <{INITS}, int64[2] behind = {{1, 2}},
      int64[2] before = {{0, 1}}> {{ {RANGES}
    none = Range (zero, one, one)
    per_b = Unsqueeze ({rows}, behind)
    per_t = Unsqueeze (at_t, before)
    shape = Concat <axis = 0> (rows, second, cols)
    {LOOK_UP} }}""")


def test_dynamos_gathernd() -> None:
    before, after = by_pairs(), by_pairs()
    assert graphfix.run(after, "mask-lookup").changed
    assert "GatherND" not in ops(after)
    np.testing.assert_array_equal(run(after, {"mask": MASK}), run(before, {"mask": MASK}))


@pytest.mark.parametrize(
    "body",
    [
        # another stride
        "per_b = Unsqueeze (at_b, ones) per_t = Unsqueeze (at_t, front) "
        "begin = Mul (per_b, rows) place = Add (begin, per_t)",
        # rows and positions are the other way round
        "per_b = Unsqueeze (at_b, front) per_t = Unsqueeze (at_t, ones) "
        "begin = Mul (per_t, rows) place = Add (begin, per_b)",
        # the first row only
        "place = Unsqueeze (at_t, front)",
        # from the second position on
        "tail = Range (one, t, one) per_b = Unsqueeze (at_b, ones) per_t = Unsqueeze (tail, front) "
        "begin = Mul (per_b, cols) place = Add (begin, per_t)",
        # a position later
        "per_b = Unsqueeze (at_b, ones) per_t = Unsqueeze (at_t, front) "
        "begin = Mul (per_b, cols) here = Add (begin, per_t) place = Sub (here, here)",
    ],
)
def test_other_indices_are_left_alone(body: str) -> None:
    m = flat(body, out="int64[P, Q, R, S] y")
    refusals(m, "mask-lookup")


def test_a_table_of_another_size_is_left_alone() -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    m (int64[B, T] mask, int64[C, S] other) => (int64[P, 1, 1, Q] y) <{INITS}> {{ {RANGES} {PLACE}
    flat = Reshape (other, all)
    y = Gather (flat, place) }}"""
    assert not graphfix.run(ir.from_onnx_text(text), "mask-lookup").changed


def test_an_output_on_the_way_keeps_its_number() -> None:
    m = flat()
    m.graph.outputs.append(next(x for x in m.graph if x.op_type == "Add").outputs[0])
    graphfix.run(m, "mask-lookup")
    session = opened(m)
    _, place = session.run(None, {"mask": MASK})
    np.testing.assert_array_equal(place.reshape(3, 5), np.arange(15).reshape(3, 5))


def cut(more: str, inputs: str = ", int64[N, T] ids") -> ir.Model:
    return ir.from_onnx_text(f"""<ir_version: 8, opset_import: ["" : 18]>
    m (int64[M, T] mask{inputs}) => (int64[N, 1, T] y) <{INITS}, int64[2] behind = {{1, 2}},
      int64[2] before = {{0, 1}}> {{ {more}
    n = Squeeze (count)
    sizes = Shape (mask)
    cols = Gather (sizes, second)
    t = Squeeze (cols)
    at_b = Range (zero, n, one)
    at_t = Range (zero, t, one)
    per_b = Unsqueeze (at_b, behind)
    per_t = Unsqueeze (at_t, before)
    most = Max (per_b, per_t)
    shape = Shape (most)
    {LOOK_UP} }}""")


@pytest.mark.parametrize("rows", [3, 2, 1, 0])
def test_a_mask_with_a_batch_of_its_own_is_cut(rows: int) -> None:
    """As dynamo names it: nothing says that ids and mask have one batch."""
    before, after = (cut("count = Shape <start = 0, end = 1> (ids)") for _ in range(2))
    assert graphfix.run(after, "mask-lookup").changed
    assert ops(after) == ["Shape", "Slice", "Unsqueeze"]
    feeds = {"mask": MASK, "ids": np.zeros((rows, MASK.shape[1]), np.int64)}
    np.testing.assert_array_equal(run(after, feeds), run(before, feeds))


def test_a_size_that_no_input_has_is_a_near_miss() -> None:
    m = cut("double = Shape <start = 0, end = 1> (ids) count = Add (double, double)")
    (reason,) = refusals(m, "mask-lookup")
    assert "the mask has M in axis 0, and " in reason


def test_a_count_of_one_that_is_repeated_counts_nothing() -> None:
    """A Range of one element, expanded: each index is 0."""
    assert not graphfix.run(by_pairs("none"), "mask-lookup").changed


def test_an_output_before_the_way_back_is_the_end_of_it() -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    m (int64[B, T] mask) => (int64[B, 1, 1, T] y, int64[B, 1, 1, T] found) <{INITS}>
    {{ {RANGES} {PLACE}
    flat = Reshape (mask, all)
    found = Gather (flat, place)
    shape = Shape (place)
    y = Reshape (found, shape) }}"""
    after = ir.from_onnx_text(text)
    assert graphfix.run(after, "mask-lookup").changed
    assert "Gather" not in ops(after)
    for found in opened(after).run(None, {"mask": MASK}):
        np.testing.assert_array_equal(found, MASK[:, None, None])


def scattered(table: str = "causal", steps: str = "", like: str = "causal") -> ir.Model:
    """``mask[:, :, :, :] = mask + 1``, as the TorchScript exporter writes it."""
    return ir.from_onnx_text(f"""<ir_version: 8, opset_import: ["" : 17]>
    m (float[B, 1, S, T] causal, float[B, 1, S, U] wider) => (float[B, 1, S, N] y)
    <int64 zero = {{0}}, int64 one = {{1}}, int64[4] per_b = {{-1, 1, 1, 1}},
     int64[1] nought = {{0}}, int64[2] per_s = {{-1, 1}}, int64[1] last = {{-1}},
     int64[1] three = {{3}}, float unit = {{1.0}}, int64[1] step = {{1}}>
    {{
        size = Shape ({like})
        b = Gather (size, zero) two = Add (one, one) s = Gather (size, two)
        end = Gather (size, three) t = Squeeze (end)
        at_b = Range (zero, b, one) rows = Range (zero, s, one) all = Range (zero, t, one)
        columns = Slice (all, nought, end, nought, step)
        b_4 = Reshape (at_b, per_b) s_2 = Reshape (rows, per_s) {steps}
        i = Expand (b_4, size) j = Expand (zero, size) k = Expand (s_2, size)
        l = Expand (columns, size) i_1 = Unsqueeze (i, last) j_1 = Unsqueeze (j, last)
        k_1 = Unsqueeze (k, last) l_1 = Unsqueeze (l, last)
        places = Concat <axis = -1> (i_1, j_1, k_1, l_1)
        new = Add ({like}, unit) y = ScatterND ({table}, places, new)
    }}""")


def test_a_mask_that_is_written_whole_is_what_is_written() -> None:
    before, after = scattered(), scattered()
    assert graphfix.run(after, "mask-lookup").changed
    assert ops(after) == ["Add", "Identity"]  # the output keeps its name
    for shape in ((2, 1, 3, 5), (1, 1, 1, 1), (0, 1, 2, 3)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        feeds = {"causal": x, "wider": np.zeros((*shape[:3], 7), np.float32)}
        np.testing.assert_array_equal(run(after, feeds), run(before, feeds))


def test_a_mask_that_is_written_in_part_stays() -> None:
    assert not graphfix.run(scattered(table="wider"), "mask-lookup").changed
    backwards = "gone = Neg (columns) from = Add (gone, t) columns_2 = Sub (from, one)"
    m = scattered(steps=backwards)
    node = next(x for x in m.graph if x.op_type == "Expand" and x.outputs[0].name == "l")
    node.replace_input_with(0, next(v for n in m.graph for v in n.outputs if v.name == "columns_2"))
    assert not graphfix.run(m, "mask-lookup").changed
