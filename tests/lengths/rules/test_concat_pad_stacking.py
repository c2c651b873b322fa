"""Frames stacked in groups, the last filled up with copies: how many is computed at run time.

As users of SenseVoice export its front end: the first frame three times before the clip, the last
one behind it until the last group of 7 is full, groups 6 apart.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graphfix
from graphfix.errors import PaddingError
from tests.lengths.padding import session

CONTENT = np.random.default_rng(16).standard_normal((16, 4)).astype(np.float32)

TABLE = ", ".join(f"{np.sin(7.0 * i):.3f}" for i in range(64))

# How many copies follow: those that ceil(T / 6) groups of 7 want behind 3 copies of the first.
COUNTS = {
    "rounded up": "up = Add (t, i5)  c = Div (up, i6)",
    "rounded up in floats": """tf = Cast <to = 1> (t)  q = Div (tf, sixth)  u = Ceil (q)
        c = Cast <to = 7> (u)""",
    "rounded down from below 0": """neg = Neg (t)  q = Div (neg, i6)  rest = Mod (neg, i6)
        low = Less (neg, i0)  above = Less (i6, i0)  apart = Xor (low, above)  no = Equal (rest, i0)
        some = Not (no)  both = And (apart, some)  off = Cast <to = 7> (both)
        down = Sub (q, off)  c = Neg (down)""",
}
MISSING = "six = Mul (c, i6)  wide = Add (six, i1)  have = Add (t, i3)  less = Sub (wide, have)"
ENOUGH = {
    "a maximum": "n = Max (less, i0)",
    "a clip": "n0 = Clip (less, zero)  n = Cast <to = 7> (n0)",
}
FIRST = "s = Shape (x)  t = Slice (s, i1, i2, i0)  b = Slice (s, i0, i1, i0)"
EDGES = "first = Slice (x, i0, i1, i1)  final = Slice (x, last, far, i1)"
COPIES = {
    "tiled": """left = Tile (first, one_three)  times = Concat <axis = 0> (i1, n, i1)
        right = Tile (final, times)""",
    "tiled, expanded by ones": """w0 = Expand (first, ones)  left = Tile (w0, one_three)
        w1 = Expand (final, ones)  times = Concat <axis = 0> (i1, n, i1)
        right = Tile (w1, times)""",
    "expanded": """to_left = Concat <axis = 0> (b, i3, i4)  left = Expand (first, to_left)
        to_right = Concat <axis = 0> (b, n, i4)  right = Expand (final, to_right)""",
    "expanded as TorchScript does": """to_left = Concat <axis = 0> (b, i3, i4)
        left = Expand (first, to_left)  wanted = Concat <axis = 0> (last, n, last)
        any = Equal (wanted, last)  to_right = Where (any, ones, wanted)
        right = Expand (final, to_right)""",
}
JOIN = "p = Concat <axis = 1> (left, x, right)"
STACKS = {
    "Slices": " ".join(
        [
            "all = Mul (c, i6)",
            *(f"e{k} = Add (all, i{k})  f{k} = Slice (p, i{k}, e{k}, i1, i6)" for k in range(7)),
            f"w = Concat <axis = 2> ({', '.join(f'f{k}' for k in range(7))})",
        ]
    ),
    "a table": """c0 = Squeeze (c)  at = Range (zero, c0, one)  by = Mul (at, by_six)
        from = Unsqueeze (by, i1)  places = Add (from, seven)  g = Gather <axis = 1> (p, places)
        target = Concat <axis = 0> (b, last, i28)  w = Reshape (g, target)""",
}
# Groups of 4 side by side, which a Reshape makes.
WHOLE = """rest = Mod (t, i4)  less = Sub (i4, rest)  n = Mod (less, i4)
    times = Concat <axis = 0> (i1, n, i1)  right = Tile (final, times)
    p = Concat <axis = 1> (x, right)
    target = Concat <axis = 0> (b, last, i16)  w = Reshape (p, target)"""
ENDS = {
    "mean": "y = ReduceMean <axes = [1]> (w)",
    "as it is": "y = Relu (w)",
    "attention": """wt = Transpose <perm = [0, 2, 1]> (w)  sc = MatMul (w, wt)
        pr = Softmax <axis = 2> (sc)  y = MatMul (pr, w)""",
}


def body(
    count: str = "rounded up",
    enough: str = "a maximum",
    copies: str = "tiled",
    stack: str = "Slices",
    end: str = "mean",
) -> str:
    parts = (FIRST, COUNTS[count], MISSING, ENOUGH[enough], EDGES, COPIES[copies], JOIN)
    return "\n".join([*parts, STACKS[stack], ENDS[end]])


def model(text: str, opset: int = 17, head: str = "float[B, T, 4] x") -> onnx.ModelProto:
    vectors = ", ".join(f"int64[1] i{k} = {{{k}}}" for k in (*range(7), 16, 28))
    made = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : {opset}]>
        m ({head}) => (float[] y)
        <{vectors}, int64[1] last = {{-1}}, int64[1] far = {{9223372036854775807}},
         int64[3] one_three = {{1, 3, 1}}, int64[3] ones = {{1, 1, 1}}, float sixth = {{6.0}},
         int64 zero = {{0}}, int64 one = {{1}}, int64 by_six = {{6}},
         int64[7] seven = {{0, 1, 2, 3, 4, 5, 6}}, float[1, 1, 4] token = {{1, 2, 3, 4}},
         float[1, 16, 4] table = {{{TABLE}}}, int64[6] two_behind = {{0, 0, 0, 0, 2, 0}}>
        {{ {text} }}"""
    )
    made.graph.output[0].ClearField("type")
    return made


def hold(before: onnx.ModelProto, lengths: range | list[int] = range(1, 15)) -> ir.Model:
    """Rows of all lengths in containers of NaN, compared with each row alone."""
    after = ir.from_proto(before)
    graphfix.run(after, "ilens-mask:axis=x.1")
    alone, together = session(before), session(ir.to_proto(after))
    shape = before.graph.input[0].type.tensor_type.shape
    rows = [*lengths] if shape.dim[0].dim_param else None
    for more in range(8):
        for group in [rows] if rows is not None else [[n] for n in lengths]:
            size = max(group) + more
            x = np.full((len(group), size, 4), np.nan, np.float32)
            for row, n in enumerate(group):
                x[row, :n] = CONTENT[:n] + row
            found = together.run(None, {"x": x, "ilens": np.array(group)})[0]
            for row, n in enumerate(group):
                wanted = alone.run(None, {"x": x[row : row + 1, :n]})[0]
                own = found[row : row + 1, : wanted.shape[1]]
                assert own.shape == wanted.shape, (n, size)
                np.testing.assert_allclose(
                    own, wanted, rtol=1e-5, atol=1e-5, err_msg=f"{n}, {size}"
                )
    return after


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("copies", COPIES)
def test_copies_of_the_last_frame_follow_each_row(copies: str, stack: str, end: str) -> None:
    hold(model(body(copies=copies, stack=stack, end=end)))


@pytest.mark.parametrize("enough", ENOUGH)
@pytest.mark.parametrize("count", COUNTS)
def test_however_they_are_counted(count: str, enough: str) -> None:
    hold(model(body(count=count, enough=enough)))


@pytest.mark.parametrize("opset", [13, 18, 20])
def test_in_other_opsets(opset: int) -> None:
    end = "y = Relu (w)" if opset >= 18 else ENDS["mean"]
    text = body(end="as it is").replace(ENDS["as it is"], end)
    hold(model(text, opset))


def test_groups_side_by_side() -> None:
    hold(model(f"{FIRST} {EDGES} {WHOLE} {ENDS['attention']}"))


def test_a_clip_without_a_batch_dim() -> None:
    hold(model(body(end="attention"), head="float[1, T, 4] x"), [1, 5, 6, 7, 12, 13])


def test_what_follows_may_be_a_frame_of_its_own() -> None:
    """A token that fills up, the same for every row: it is made as wide as the batch."""
    text = body(copies="expanded").replace("Expand (final,", "Expand (token,")
    hold(model(text))


def test_what_counts_the_copies_is_gone() -> None:
    """The repair copies one frame by an index: nothing is tiled any more."""
    after = hold(model(body()))
    assert sum(node.op_type == "Tile" for node in after.graph) == 1


def refused(text: str) -> str:
    with pytest.raises(PaddingError) as error:
        graphfix.run(ir.from_proto(model(text)), "ilens-mask:axis=x.1")
    return str(error.value)


def test_frames_that_are_no_copies_stay_refused_and_the_reason_says_what_to_do() -> None:
    text = f"{FIRST} {EDGES} p = Concat <axis = 1> (x, x)  y = ReduceMean <axes = [1]> (p)"
    assert "copies of one frame" in refused(text)


def test_half_a_frame_that_a_tile_makes_whole_is_no_copy_of_one() -> None:
    text = body().replace("final = Slice (x,", "pair = Slice (x, i0, i2, i2)  final = Slice (pair,")
    assert "copies of one frame" in refused(text.replace("(i1, n, i1)", "(i1, n, i2)"))


def test_in_opsets_without_integer_maxima() -> None:
    hold(model(f"{FIRST} {EDGES} {WHOLE} {ENDS['mean']}", 11))


def test_a_size_that_falls_as_the_clip_grows_is_refused() -> None:
    """T + T % 4 is 6 for T = 3 and 4 for T = 4: a container of 4 has no room for 3 frames."""
    text = f"""{FIRST} {EDGES} n = Mod (t, i4)  times = Concat <axis = 0> (i1, n, i1)
        right = Tile (final, times)  p = Concat <axis = 1> (x, right)
        y = ReduceMean <axes = [1]> (p)"""
    assert "longer clip" in refused(text)


@pytest.mark.parametrize(
    "pick",
    [
        "z = Slice (rows, last, far, i1)",
        "z = Concat <axis = 1> (rows, token)",
        'z = Pad <mode = "edge"> (rows, two_behind)',
    ],
    ids=["the last", "one behind", "copies behind"],
)
def test_frames_of_a_table_that_has_no_batch_are_picked_for_no_row(pick: str) -> None:
    """The last of ``table[:T]`` is another for each row, and there are no rows of it."""
    text = f"""{FIRST} rows = Slice (table, i0, t, i1)  {pick}
        of_rows = ReduceMax <axes = [1]> (x)  of_table = ReduceMax <axes = [1]> (z)
        y = Add (of_rows, of_table)"""
    assert "each row of the batch has its own length" in refused(text)


def test_time_may_be_the_last_axis() -> None:
    """Mel bands before frames: rows and frames are not side by side."""
    text = f"""{FIRST} xt = Transpose <perm = [0, 2, 1]> (x)  rest = Mod (t, i4)
        less = Sub (i4, rest)  n = Mod (less, i4)  final = Slice (xt, last, far, i2)
        times = Concat <axis = 0> (i1, i1, n)  right = Tile (final, times)
        p = Concat <axis = 2> (xt, right)  back = Transpose <perm = [0, 2, 1]> (p)
        target = Concat <axis = 0> (b, last, i16)  w = Reshape (back, target)  y = Relu (w)"""
    hold(model(text))


def test_a_batch_of_fixed_size_has_one_length() -> None:
    before = model(body(end="attention"), head="float[2, T, 4] x")
    after = ir.from_proto(before)
    graphfix.run(after, "ilens-mask:axis=x.1")
    for n, size in ((5, 5), (5, 9), (6, 7), (12, 18)):
        x = np.full((2, size, 4), np.nan, np.float32)
        x[:, :n] = CONTENT[:n]
        wanted = session(before).run(None, {"x": x[:, :n]})[0]
        feeds = {"x": x, "ilens": np.array([n])}
        found = session(ir.to_proto(after)).run(None, feeds)[0]
        np.testing.assert_allclose(found[:, : wanted.shape[1]], wanted, rtol=1e-5, atol=1e-5)


def test_frames_without_a_batch() -> None:
    before = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        m (float[T, 4] x) => (float[N, 16] y)
        <int64[1] i0 = {0}, int64[1] i1 = {1}, int64[1] i4 = {4}, int64[1] last = {-1},
         int64[1] far = {9223372036854775807}, int64[2] wide = {-1, 16}>
        { t = Shape <end = 1> (x)  rest = Mod (t, i4)  less = Sub (i4, rest)  n = Mod (less, i4)
          final = Slice (x, last, far, i0)  times = Concat <axis = 0> (n, i1)
          right = Tile (final, times)  p = Concat <axis = 0> (x, right)  w = Reshape (p, wide)
          y = Softmax <axis = 0> (w) }""")
    after = ir.from_proto(before)
    graphfix.run(after, "ilens-mask")
    for n in range(1, 10):
        for size in range(n, n + 6):
            x = np.full((size, 4), np.nan, np.float32)
            x[:n] = CONTENT[:n]
            wanted = session(before).run(None, {"x": x[:n]})[0]
            found = session(ir.to_proto(after)).run(None, {"x": x, "ilens": np.array([n])})[0]
            np.testing.assert_allclose(found[: len(wanted)], wanted, rtol=1e-5, atol=1e-5)
