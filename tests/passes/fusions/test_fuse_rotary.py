"""Rotary embeddings whose positions are fed, of keys that go into a cache."""

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.proof.verify import verify

PIECES = """
<ir_version: 8, opset_import: ["" : 17]>
keys (float[B, T, 16] k, int64[B, T] positions, float[B, 2, P, 8] past)
    => (float[B, 2, N, 8] present)
<float[1, 1, 4] rates = {1.0, 0.3, 0.1, 0.03}, int64[4] split = {0, 0, 2, 8}, int64[1] lifted = {2},
 int64[1] heads = {1}, int64[1] start = {0}, int64[1] half = {4}, int64[1] end = {8},
 int64[1] last = {3}>
{
    column = Unsqueeze (positions, lifted)
    places = Cast <to = 1> (column)
    angles = Mul (places, rates)
    both = Concat <axis = -1> (angles, SECOND)
    all = Unsqueeze (both, heads)
    cos = Cos (all)
    sin = Sin (all)
    k4 = Reshape (k, split)
    t = Transpose <perm = [0, 2, 1, 3]> (k4)
    first = Slice (t, start, half, last)
    second = Slice (t, half, end, last)
    negated = Neg (second)
    rotated = Concat <axis = -1> (negated, first)
    a = Mul (t, cos)
    b = Mul (rotated, sin)
    turned = Add (a, b)
    present = Concat <axis = 2> (past, turned)
}
"""


def pieces(second: str = "angles") -> ir.Model:
    return ir.from_onnx_text(PIECES.replace("SECOND", second))


def operators(model: ir.Model) -> list[str]:
    return [x.op_type for x in model.graph]


def test_each_row_has_the_angles_of_its_own_positions() -> None:
    before, after = pieces(), pieces()
    graphfix.run(after, "fuse-rotary,fold")
    made = next(x for x in after.graph if x.op_type == "RotaryEmbedding")
    assert made.inputs[0] is after.graph.inputs[0]
    assert not {"Neg", "Add", "Slice"} & set(operators(after))  # half of the angles is computed
    assert operators(after).count("Concat") == 1
    assert operators(after).count("Reshape") == 4
    verdict = verify(before, after)
    assert verdict.ok, verdict.reason or verdict.failed
    verdict = verify(before, after, dims={"B": [4, 1], "T": [0]})  # no new tokens
    assert verdict.ok, verdict.reason or verdict.failed


@pytest.mark.parametrize(
    "before", ["t = Mul (h, h)", "f = Cast <to = 10> (h) t = Cast <to = 1> (f)"]
)
def test_keys_that_are_made_behind_their_heads_are_turned_as_they_lie(before: str) -> None:
    """[B, H, T, D], with a row of angles for each place of each row; a norm, say, or a Cast."""
    text = PIECES.replace("SECOND", "angles").replace("t = Transpose", "h = Transpose")
    text = text.replace("    first = Slice", f"    {before}\n    first = Slice")
    given, after = ir.from_onnx_text(text), ir.from_onnx_text(text)
    graphfix.run(after, "fuse-rotary")
    made = next(x for x in after.graph if x.op_type == "RotaryEmbedding")
    assert made.inputs[0].name == "t"
    assert operators(after).count("Transpose") == 1
    verdict = verify(given, after)
    assert verdict.ok, verdict.reason or verdict.failed


@pytest.mark.parametrize("angles", ["all", "both"])
def test_one_head_is_turned_before_it_is_one(angles: str) -> None:
    """As Qwen2 has one head of keys: an Unsqueeze for the Transpose, and no head in sines."""
    text = PIECES.replace("SECOND", "angles").replace("sin = Sin (all)", f"sin = Sin ({angles})")
    text = text.replace("[B, T, 16] k", "[B, T, 8] k").replace("[B, T] pos", "[1, T] pos")
    text = text.replace("[B, 2, P, 8]", "[B, 1, P, 8]").replace("[B, 2, N, 8]", "[B, 1, N, 8]")
    text = text.replace("    k4 = Reshape (k, split)\n", "")
    text = text.replace("Transpose <perm = [0, 2, 1, 3]> (k4)", "Unsqueeze (k, heads)")
    before, after = ir.from_onnx_text(text), ir.from_onnx_text(text)
    graphfix.run(after, "fuse-rotary,fold")
    made = next(x for x in after.graph if x.op_type == "RotaryEmbedding")
    assert made.inputs[0] is after.graph.inputs[0]
    assert not {"Transpose", "Neg", "Add", "Slice"} & set(operators(after))
    verdict = verify(before, after)
    assert verdict.ok, verdict.reason or verdict.failed


def test_a_table_whose_second_half_has_the_squares_is_left_alone() -> None:
    text = PIECES.replace("SECOND", "squares")
    more = "squares = Mul (angles, angles)"
    model = ir.from_onnx_text(text.replace("    both =", f"    {more}\n    both ="))
    graphfix.run(model, "fuse-rotary")
    assert "RotaryEmbedding" not in operators(model)


def test_many_layers_share_tables_and_places() -> None:
    twice = PIECES.replace(
        "    present = Concat <axis = 2> (past, turned)",
        """    c = Mul (first_t, cos)
    third = Slice (first_t, start, half, last)
    fourth = Slice (first_t, half, end, last)
    minus = Neg (fourth)
    again = Concat <axis = -1> (minus, third)
    d = Mul (again, sin)
    more = Add (c, d)
    joined = Add (turned, more)
    present = Concat <axis = 2> (past, joined)""",
    ).replace("    first =", "    first_t = Transpose <perm = [0, 2, 1, 3]> (k4)\n    first =", 1)
    model = ir.from_onnx_text(twice.replace("SECOND", "angles"))
    graphfix.run(model, "fuse-rotary")
    assert operators(model).count("RotaryEmbedding") == 2
    assert operators(model).count("CumSum") == 1


@pytest.mark.parametrize(("other", "fused"), [(0, True), (1, False)])
def test_a_table_whose_halves_are_equal_is_one_wherever_its_rows_are_read(
    other: int, fused: bool
) -> None:
    """Rows of a constant, gathered at positions that are fed, as transformers 4.41 has them."""
    text = PIECES.replace("all = Unsqueeze (both, heads)", "")
    for line in ("column = Unsqueeze (positions, lifted)", "places = Cast <to = 1> (column)"):
        text = text.replace(line, "")
    text = text.replace("angles = Mul (places, rates)", "")
    text = text.replace("both = Concat <axis = -1> (angles, SECOND)", "")
    text = text.replace("cos = Cos (all)", "c3 = Gather (table, positions)")
    text = text.replace("sin = Sin (all)", "cos = Unsqueeze (c3, heads) sin = Neg (cos)")
    row = [0.9, 0.5, 0.2, 0.7, 0.9, 0.5, 0.2, 0.7 + other]
    text = text.replace(
        "<float[1, 1, 4] rates", f"<float[2, 8] table = {set_of(row * 2)}, float[4] r"
    )
    text = text.replace("= {1.0, 0.3, 0.1, 0.03}", "= {1, 2, 3, 4}")
    before, after = ir.from_onnx_text(text), ir.from_onnx_text(text)
    graphfix.run(after, "fuse-rotary,fold")
    assert ("RotaryEmbedding" in operators(after)) is fused
    assert ("Slice" in operators(after)) is not fused
    assert verify(before, after).ok


def test_rows_of_a_part_of_a_table_are_half_as_wide_and_wrap_as_before() -> None:
    """``cos_cached[:length][position_ids]`` of transformers 4.41: -1 is the last of that part."""
    text = PIECES.replace(
        "all = Unsqueeze (both, heads)", "part = Slice (table, start, four, zero)"
    )
    for line in ("column = Unsqueeze (positions, lifted)", "places = Cast <to = 1> (column)"):
        text = text.replace(line, "")
    text = text.replace("angles = Mul (places, rates)", "")
    text = text.replace("both = Concat <axis = -1> (angles, SECOND)", "")
    text = text.replace("cos = Cos (all)", "c3 = Gather (part, positions)")
    text = text.replace("sin = Sin (all)", "cos = Unsqueeze (c3, heads) sin = Neg (cos)")
    rows = [x + y / 8 for y in range(5) for x in [0.9, 0.5, 0.2, 0.7] * 2]
    text = text.replace(
        "<float[1, 1, 4] rates = {1.0, 0.3, 0.1, 0.03}",
        f"<float[5, 8] table = {set_of(rows)}, int64[1] four = {{4}}, int64[1] zero = {{0}}",
    )
    before, after = ir.from_onnx_text(text), ir.from_onnx_text(text)
    graphfix.run(after, "fuse-rotary,fold")
    assert "RotaryEmbedding" in operators(after)
    assert "Slice" not in operators(after)
    feeds = {
        "k": np.random.default_rng(0).normal(size=(1, 3, 16)).astype(np.float32),
        "positions": np.array([[3, -1, 0]]),
        "past": np.zeros((1, 2, 0, 8), np.float32),
    }
    assert verify(before, after, feeds=feeds).ok


def set_of(numbers: list[float]) -> str:
    return "{" + ", ".join(map(str, numbers)) + "}"


NEIGHBOURS = """
<ir_version: 8, opset_import: ["" : 17]>
turn (float[B, T, 2, 8] x, float[T, 4] angles) => (float[B, 2, T, 8] y)
<int64[5] pairs = {0, 0, 0, 4, 2}, int64[4] flat = {0, 0, 0, 8}, int64[2] ones = {1, 1},
 int64[1] last = {-1}, int64[3] rows = {0, 4, 1}, int64[2] doubled = {0, 8},
 int64[1] none = {0}, int64[1] one = {1}, int64[1] two = {2}>
{
    angle = Reshape (angles, rows)
    both = Concat <axis = -1> (angle, angle)
    all = Reshape (both, doubled)
    cos = Cos (all)
    sin = Sin (all)
    t = Transpose <perm = [0, 2, 1, 3]> (x)
    apart = Reshape (t, pairs)
    CUT
    negated = Neg (odd)
    odds = Unsqueeze (negated, last)
    rotated = Concat <axis = -1> (FIRST)
    side = Reshape (rotated, flat)
    a = Mul (t, cos)
    b = Mul (side, sin)
    y = Add (a, b)
}
"""
SPLIT = "even, second = Split <axis = -1> (apart, ones)\n    odd = Squeeze (second, last)"
SLICED = """even = Slice (apart, none, one, last)
    second = Slice (apart, one, two, last)
    odd = Squeeze (second, last)"""


@pytest.mark.parametrize("cut", [SPLIT, SLICED])
def test_neighbours_that_a_reshape_takes_apart_are_turned(cut: str) -> None:
    """As einops writes it: F5-TTS and whoever uses lucidrains' rotary embeddings."""
    text = NEIGHBOURS.replace("CUT", cut).replace("FIRST", "odds, even")
    before, after = ir.from_onnx_text(text), ir.from_onnx_text(text)
    graphfix.run(after, "fuse-rotary")
    made = next(x for x in after.graph if x.op_type == "RotaryEmbedding")
    assert made.attributes["interleaved"].as_int() == 1
    assert not {"Neg", "Add", "Squeeze"} & set(operators(after))
    verdict = verify(before, after)
    assert verdict.ok, verdict.reason or verdict.failed


@pytest.mark.parametrize(
    ("cut", "first"),
    [
        (SPLIT, "even, odds"),  # the negated one comes second
        (SPLIT.replace("even, second", "second, even"), "odds, even"),  # it turns the other way
        (SPLIT.replace("(apart, ones)", "(turned, ones)"), "odds, even"),  # pairs of another tensor
    ],
)
def test_neighbours_that_are_turned_in_another_way_are_not_fused(cut: str, first: str) -> None:
    text = NEIGHBOURS.replace("CUT", cut).replace("FIRST", first)
    text = text.replace("    even, ", "    turned = Neg (apart)\n    even, ")
    model = ir.from_onnx_text(text)
    graphfix.run(model, "fuse-rotary")
    assert "RotaryEmbedding" not in operators(model)
