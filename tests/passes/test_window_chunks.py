"""window-3d: Loops over chunks, and rows that a mask picks, are computed all at once."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from tests.passes.test_window_3d import assert_same, attention, count, numbers, run

TYPE = "float[B, W, 8]"
ITEM = "c = SequenceAt (chunks, i)"
SLICE = """first_at = Mul (i, width) to = Add (first_at, width) from1 = Unsqueeze (first_at, first)
    to1 = Unsqueeze (to, first) c = Slice (x, from1, to1, second)"""
CHUNKS = "chunks = SplitToSequence <axis = 1> (x, width) trips = SequenceLength (chunks)"
COUNTED = """t1 = Shape <start = 1, end = 2> (x) t0 = Squeeze (t1) tf = Cast <to = 1> (t0)
    many = Div (tf, widthf) up = Ceil (many) trips = Cast <to = 7> (up)"""


def loop(
    body: str, take: str = ITEM, before: str = CHUNKS, width: int = 4, behind: str = "y = Relu (z)"
) -> str:
    """A Loop over the chunks of x, with ``body`` from a chunk c to out."""
    return f"""<ir_version: 8, opset_import: ["" : 17]>
        m (float[B, T, 8] x) => (float[B, U, V] y) {numbers(width)[:-1]},
         float[8, 8, 3] kernel = {{{", ".join(f"{np.cos(3.0 * i):.3f}" for i in range(192))}}}>
        {{ {before}
          empty = SequenceEmpty <dtype = 1> ()
          made = Loop (trips, yes, empty) <body = b (int64 i, bool go, seq({TYPE}) had)
            => (bool again, seq({TYPE}) has) {{
            again = Identity (go) {take} {body} has = SequenceInsert (had, out) }}>
          z = ConcatFromSequence <axis = 1> (made) {behind} }}"""


BODIES = {
    "each place alone": "h = MatMul (c, weight) h2 = Add (h, bias) out = Relu (h2)",
    "attention": attention("c", 0, added="s = Identity (p, bias)").replace(
        "s0 = Identity (p0, bias)", "s0 = Identity (p0)"
    )
    + " out = Identity (y0)",
    "a Conv": """ct = Transpose <perm = [0, 2, 1]> (c) k = Conv <pads = [1, 1]> (ct, kernel)
        out = Transpose <perm = [0, 2, 1]> (k)""",
    "a Conv of stride 2": """ct = Transpose <perm = [0, 2, 1]> (c)
        k = Conv <pads = [1, 1], strides = [2]> (ct, kernel)
        out = Transpose <perm = [0, 2, 1]> (k)""",
    "a mean": "mean = ReduceMean <axes = [1]> (c) out = Sub (c, mean)",
    "one row of each": "out = ReduceMax <axes = [1]> (c)",
    "sizes of its own": """s = Shape (c) b = Gather <axis = 0> (s, first)
        n = Gather <axis = 0> (s, second) to4 = Concat <axis = 0> (b, n, split2)
        c4 = Reshape (c, to4) ct = Transpose <perm = [0, 2, 1, 3]> (c4)
        q = Softmax <axis = 2> (ct) back = Transpose <perm = [0, 2, 1, 3]> (q)
        out = Reshape (back, s)""",
}


def model(body: str, **kwargs: object) -> str:
    return loop(body, **kwargs).replace(  # type: ignore[arg-type]
        "int64 zero = {0}", "int64[2] split2 = {2, 4}, int64 zero = {0}"
    )


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize(("take", "before"), [(ITEM, CHUNKS), (SLICE, COUNTED)])
def test_a_loop_over_chunks_is_computed_at_once(name: str, take: str, before: str) -> None:
    text = model(BODIES[name], take=take, before=before)
    old, new = ir.from_onnx_text(text), ir.from_onnx_text(text)
    result = graphfix.get_pass("window-3d")(new)
    assert not result.skips
    assert len(result.changes) == 1
    kinds = {node.op_type for node in new.graph.all_nodes()}
    assert not {x for x in kinds if "Sequence" in x or x == "Loop"}
    assert not graphfix.get_pass("window-3d")(new).modified
    for length in (1, 2, 3, 4, 5, 7, 8, 9, 30):
        for batch in (1, 3):
            assert_same(old, new, {"B": batch, "T": length})


def test_time_may_be_the_last_axis() -> None:
    """Mel frames are cut, what a strided Conv makes of each chunk is put together."""
    text = model("k = Conv <pads = [1, 1], strides = [2]> (c, kernel) out = Relu (k)")
    text = text.replace("float[B, T, 8] x", "float[B, 8, T] x").replace(TYPE, "float[B, 8, W]")
    text = text.replace("<axis = 1> (x, width)", "<axis = 2> (x, width)")
    text = text.replace("ConcatFromSequence <axis = 1>", "ConcatFromSequence <axis = -1>")
    old, new = ir.from_onnx_text(text), ir.from_onnx_text(text)
    assert graphfix.get_pass("window-3d")(new).modified
    assert count(new, "Loop") == 0
    for length in (1, 3, 4, 5, 8, 9, 30):
        assert_same(old, new, {"B": 2, "T": length})


def test_two_sequences_are_cut_alike() -> None:
    """A chunk of each, and of both at once."""
    text = model("d = SequenceAt (others, i) e = Mul (c, d) out = Relu (e)")
    text = text.replace("float[B, T, 8] x)", "float[B, T, 8] x, float[B, T, 8] x2)")
    text = text.replace(CHUNKS, f"{CHUNKS} others = SplitToSequence <axis = 1> (x2, width)")
    old, new = ir.from_onnx_text(text), ir.from_onnx_text(text)
    assert graphfix.get_pass("window-3d")(new).modified
    for length in (1, 4, 9):
        assert_same(old, new, {"B": 2, "T": length})


def test_chunks_of_a_size_that_is_computed_stay_and_say_so() -> None:
    text = model(BODIES["each place alone"]).replace(
        "float[B, T, 8] x)", "float[B, T, 8] x, int64 n)"
    )
    text = text.replace("(x, width)", "(x, n)")
    result = graphfix.get_pass("window-3d")(ir.from_onnx_text(text))
    assert not result.modified
    ((_, found),) = result.skips
    assert "one size that is a number" in found


REFUSED = {
    "a table for each row": (
        "n = Shape <start = 0, end = 1> (c) n0 = Squeeze (n) r = Range (zero, n0, one) "
        "rf = Cast <to = 1> (r) rs = Unsqueeze (rf, both) out = Add (c, rs)",
        "each row of a batch alone",
    ),
    "a sum over rows": ("out = CumSum (c, zero)", "each row of a batch alone"),
    "more than the last at its end": (
        "e = Slice (c, ends, behind, second) m = ReduceMean <axes = [1]> (e) out = Sub (c, m)",
        "shorter than what is read",
    ),
    "rows that are turned": (
        "out = Slice (c, less, far, first, less)",
        "each row of a batch alone",
    ),
    "how many rows there are": (
        "n = Shape <start = 0, end = 1> (c) nf = Cast <to = 1> (n) out = Div (c, nf)",
        "each row of a batch alone",
    ),
    "the number of the chunk": (
        "at = Cast <to = 1> (i) out = Add (c, at)",
        "the number of the chunk",
    ),
    "what no length hides": (
        'ct = Transpose <perm = [0, 2, 1]> (c) d = Einsum <equation = "btf,btf->bf"> (c, c) '
        "d3 = Unsqueeze (d, second) out = Add (c, d3)",
        "Einsum",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_loop_that_is_no_map_stays_and_says_why(name: str) -> None:
    body, reason = REFUSED[name]
    more = f"""int64[2] both = {{1, 2}}, int64[1] less = {{-1}}, int64[1] far = {{{-(2**63) + 1}}},
        int64[1] ends = {{-3}}, int64[1] behind = {{{2**63 - 1}}}"""
    text = model(body).replace("int64 zero = {0}", f"{more}, int64 zero = {{0}}")
    new = ir.from_onnx_text(text)
    before = ir.to_proto(new).SerializeToString(deterministic=True)
    result = graphfix.get_pass("window-3d")(new)
    assert not result.modified
    ((_, found),) = result.skips
    assert reason in found
    assert ir.to_proto(new).SerializeToString(deterministic=True) == before


ORDERS = {
    "from the last on": "j = Mul (i, less) k = Add (j, less) c = SequenceAt (chunks, k)",
    "the first again and again": "j = Mul (i, zero) c = SequenceAt (chunks, j)",
    "and the one before": """j = Add (i, less) p = SequenceAt (chunks, j)
        m = ReduceMax <axes = [1]> (p) d = SequenceAt (chunks, i) c = Add (d, m)""",
}


@pytest.mark.parametrize("name", ORDERS)
def test_chunks_in_another_order_stay(name: str) -> None:
    text = model(BODIES["each place alone"], take=ORDERS[name])
    (found,) = reasons(text.replace("int64 zero = {0}", "int64 zero = {0}, int64 less = {-1}"))
    assert "another order" in found


@pytest.mark.parametrize(
    "of", ["<axis = 1> (x2, width)", "<axis = 2> (x, width)"], ids=["another", "features"]
)
def test_as_many_rounds_as_something_else_has_chunks_are_not_all(of: str) -> None:
    before = f"""chunks = SplitToSequence <axis = 1> (x, width) others = SplitToSequence {of}
        trips = SequenceLength (others)"""
    text = model(BODIES["each place alone"], before=before)
    text = text.replace("float[B, T, 8] x)", "float[B, T, 8] x, float[B, S, 8] x2)")
    (found,) = reasons(text)
    assert "every chunk" in found


def test_a_chunk_may_end_where_the_next_one_begins() -> None:
    take = SLICE.replace("to = Add (first_at, width)", "next = Add (i, one) to = Mul (next, width)")
    text = model(BODIES["a mean"], take=take, before=COUNTED)
    old, new = ir.from_onnx_text(text), ir.from_onnx_text(text)
    assert graphfix.get_pass("window-3d")(new).modified
    assert_same(old, new, {"B": 2, "T": 9})


TWO = "d = SequenceAt (others, i) e = ReduceMax <axes = [1]> (d) out = Add (c, e)"
NOT_ALIKE = {
    "without their first": ("", SLICE.replace("Mul (i, width)", "Add (at, one)"), []),
    "of two sizes": ("(x2, two)", ITEM, ["different sizes"]),
    "of two lengths": ("(x3, width)", ITEM, ["or two differ"]),
}


@pytest.mark.parametrize("name", NOT_ALIKE)
def test_chunks_that_are_not_alike_stay(name: str) -> None:
    others, take, wanted = NOT_ALIKE[name]
    before = f"{CHUNKS} others = SplitToSequence <axis = 1> {others}" if others else COUNTED
    take = f"at = Mul (i, width) {take}".replace("(first_at, width)", "(at, width)")
    text = model(TWO if others else BODIES["a mean"], take=take, before=before)
    text = text.replace(
        "float[B, T, 8] x)", "float[B, T, 8] x, float[B, T, 8] x2, float[B, S, 8] x3)"
    )
    found = reasons(text)
    assert len(found) == len(wanted)
    assert all(x in y for x, y in zip(wanted, found, strict=True))


NOT_ALL = {
    "but for a short last one": ("Ceil (many)", "Floor (many)", "every chunk"),
    "in front of the others": ("(had, out)", "(had, out, zero)", "does not append"),
    "until something is": ("Identity (go)", "Not (go)", "may end early"),
}


@pytest.mark.parametrize("name", NOT_ALL)
def test_a_loop_that_does_not_join_all_one_behind_the_other_stays(name: str) -> None:
    old, new, reason = NOT_ALL[name]
    text = model(BODIES["a mean"], take=SLICE, before=COUNTED)
    assert old in text
    (found,) = reasons(text.replace(old, new))
    assert reason in found


def test_what_goes_from_chunk_to_chunk_stays() -> None:
    text = model(BODIES["each place alone"])
    text = text.replace("Loop (trips, yes, empty)", "Loop (trips, yes, empty, zero)")
    text = text.replace("made = Loop", "made, last = Loop").replace(
        f"seq({TYPE}) had)", f"seq({TYPE}) had, int64 n)"
    )
    text = text.replace(f"seq({TYPE}) has) {{", f"seq({TYPE}) has, int64 n1) {{ n1 = Add (n, one)")
    result = graphfix.get_pass("window-3d")(ir.from_onnx_text(text))
    assert not result.modified
    ((_, found),) = result.skips
    assert "from chunk to chunk" in found


COUNTED_CHUNKS = {
    "taken one by one": """chunks = SplitToSequence <axis = 1> (x, width)
        a = SequenceAt (chunks, zero) b = SequenceAt (chunks, one) c = SequenceAt (chunks, two)""",
    "of these lengths": "a, b, c = Split <axis = 1> (x, lengths)",
}


@pytest.mark.parametrize("name", COUNTED_CHUNKS)
def test_chunks_that_a_trace_has_counted_are_told(name: str) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        m (float[B, T, 8] x) => (float[B, U, 8] y)
        {numbers(4)[:-1]}, int64[3] lengths = {{4, 4, 2}}>
        {{ {COUNTED_CHUNKS[name]} d = Relu (a) e = Relu (b) f = Relu (c)
        y = Concat <axis = 1> (d, e, f) }}"""
    result = graphfix.get_pass("window-3d")(ir.from_onnx_text(text))
    assert not result.modified
    ((_, found),) = result.skips
    assert "the trace has" in found
    assert "torch.jit.script" in found


BOUNDS = "int64[1] n0 = {0}, int64[1] n4 = {4}, int64[1] n8 = {8}, int64[1] n10 = {10}"
SLICED = """a = Slice (x, n0, n4, {axis}) b = Slice (x, n4, n8, {axis})
    c = Slice (x, n8, n10, {axis})"""
JOINED = {
    "one behind the other": "y = Concat <axis = 1> (d, e, f)",
    "beside each other": """d4 = Unsqueeze (d, n0) e4 = Unsqueeze (e, n0) f4 = Unsqueeze (f, n0)
        y = Concat <axis = 0> (d4, e4, f4)""",
}


def reasons(text: str) -> list[str]:
    result = graphfix.get_pass("window-3d")(ir.from_onnx_text(text))
    assert not result.modified
    return [reason for _, reason in result.skips]


def sliced(body: str, ins: str = "float[B, T, 8] x", cut: str = "") -> str:
    return f"""<ir_version: 8, opset_import: ["" : 17]>
        m ({ins}) => (float[N, U, 8] y) {numbers(4)[:-1]}, int64[1] minus = {{-2}}, {BOUNDS}>
        {{ {cut or SLICED.format(axis="second")} {body} }}"""


EACH = "d = Relu (a) e = Relu (b) f = Relu (c)"


@pytest.mark.parametrize("axis", ["second", "minus"])
@pytest.mark.parametrize("join", JOINED)
def test_chunks_that_a_trace_has_written_as_slices_are_told(join: str, axis: str) -> None:
    """They run at every length, and leave out what is behind the last: in silence, else."""
    (found,) = reasons(sliced(f"{EACH} {JOINED[join]}", cut=SLICED.format(axis=axis)))
    assert "cut T into 3 chunks of 4 by Slices" in found
    assert "behind 10 is left out" in found
    assert "torch.jit.script" in found


def test_slices_before_opset_10_too() -> None:
    cut = " ".join(
        f"{name} = Slice <axes = [1], starts = [{start}], ends = [{start + 4}]> (x)"
        for name, start in zip("abc", (0, 4, 8), strict=True)
    )
    text = sliced(f"{EACH} {JOINED['one behind the other']}", cut=cut).replace('"" : 17', '"" : 9')
    (found,) = reasons(text)
    assert "cut T into 3 chunks of 4" in found


NO_CHUNKS = {
    "of a fixed length": (EACH, "float[B, 10, 8] x", ""),
    "that overlap": (
        EACH,
        "float[B, T, 8] x",
        """a = Slice (x, n0, n8, second) b = Slice (x, n4, n10, second)
        c = Slice (x, n4, n8, second)""",
    ),
    "the first and the rest": (
        "d = Relu (a) e = Relu (b) f = Relu (c)",
        "float[B, T, 8] x",
        "a = Slice (x, n0, n4, second) b = Slice (x, n4, far, second) c = Relu (b)",
    ),
    "single tokens": (
        EACH,
        "float[B, T, 8] x",
        "a = Slice (x, n0, second, second) b = Slice (x, second, n4, second) c = Relu (b)",
    ),
}


@pytest.mark.parametrize("name", NO_CHUNKS)
def test_slices_that_are_no_chunks(name: str) -> None:
    body, ins, cut = NO_CHUNKS[name]
    text = sliced(f"{body} {JOINED['one behind the other']}", ins, cut)
    assert not reasons(
        text.replace("int64[1] minus", "int64[1] far = {2147483647}, int64[1] minus")
    )


def test_chunks_that_are_never_joined_are_none() -> None:
    assert not reasons(sliced(f"{EACH} g = Add (d, e) y = Add (g, f)"))


def test_features_that_are_split_are_no_chunks() -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        m (float[B, T, 8] x) => (float[B, T, 4] y) {numbers(4)[:-1]}, int64[2] halves = {{4, 4}}>
        {{ a, b = Split <axis = -1> (x, halves) g = Sigmoid (b) y = Mul (a, g) }}"""
    assert not graphfix.get_pass("window-3d")(ir.from_onnx_text(text)).skips


PACKS = """found = NonZero (seen) places = Transpose <perm = [1, 0]> (found)
    packed = GatherND (x, places)"""
BACK = """shape = Shape (x) zeros = ConstantOfShape (shape)
    y = ScatterND (zeros, places, out)"""


def packing(body: str, mask: str = "bool[B, T] seen", back: str = BACK) -> str:
    return f"""<ir_version: 8, opset_import: ["" : 17]>
        m (float[B, T, 8] x, {mask}) => (float[B, T, 8] y) {numbers(4)}
        {{ {PACKS} {body} {back} }}"""


ROWS = {
    "a layer": """ln = LayerNormalization <axis = -1> (packed, bias, bias)
        h = MatMul (ln, weight) h2 = Add (h, bias) a = Erf (h2) out = Add (packed, a)""",
    "a Gemm": "h = Gemm (packed, weight, bias) out = Tanh (h)",
    "nothing": "out = Identity (packed)",
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize(
    "back", [BACK, "y = ScatterND (x, places, out)"], ids=["on zeros", "in place"]
)
def test_rows_that_a_mask_picks_are_computed_where_they_are(name: str, back: str) -> None:
    text = packing(ROWS[name], back=back)
    old, new = ir.from_onnx_text(text), ir.from_onnx_text(text)
    result = graphfix.get_pass("window-3d")(new)
    assert not result.skips
    assert len(result.changes) == 1
    assert count(new, "NonZero", "GatherND", "ScatterND") == 0
    assert not graphfix.get_pass("window-3d")(new).modified
    for length in (1, 4, 9):
        assert_same(old, new, {"B": 3, "T": length})


def test_rows_that_look_at_each_other_stay_packed_and_say_so() -> None:
    body = """turned = Transpose <perm = [1, 0]> (packed) s = MatMul (packed, turned)
        a = Softmax <axis = -1> (s) out = MatMul (a, packed)"""
    result = graphfix.get_pass("window-3d")(ir.from_onnx_text(packing(body)))
    assert not result.modified
    ((_, found),) = result.skips
    assert "packed by a mask" in found
    assert "MatMul" in found


OTHER_ROWS = {
    "one column, repeated": """h = Relu (packed) column = Slice (h, first, second, second)
        n = Shape (packed) out = Expand (column, n)""",
    "the last first": "h = Relu (packed) out = Slice (h, less, far, first, less)",
}


@pytest.mark.parametrize("name", OTHER_ROWS)
def test_other_rows_than_were_computed_are_not_put_back(name: str) -> None:
    text = packing(OTHER_ROWS[name])
    more = "int64[1] less = {-1}, int64[1] far = {-9223372036854775807}"
    (found,) = reasons(text.replace("int64 zero = {0}", f"{more}, int64 zero = {{0}}"))
    assert "Slice" in found


def test_rows_that_are_added_are_left_alone() -> None:
    text = packing(ROWS["nothing"], back='y = ScatterND <reduction = "add"> (x, places, out)')
    assert not reasons(text)


def test_rows_that_go_into_another_sequence_say_what_to_do() -> None:
    text = packing(ROWS["nothing"], back="y = ScatterND (x2, places, out)")
    (found,) = reasons(text.replace("bool[B, T] seen", "bool[B, T] seen, float[B, S, 8] x2"))
    assert "give their dims one name" in found


def test_places_that_all_pick_along_one_axis_are_no_rows() -> None:
    """Gather takes [k, 2] as 2 * k places of the batch."""
    body = """g = Gather <axis = 0> (x, places) g1 = Slice (g, first, second, second)
        g2 = Slice (g1, first, second, third) n = Shape (packed) out = Reshape (g2, n)"""
    text = packing(body).replace("int64 zero = {0}", "int64[1] third = {2}, int64 zero = {0}")
    (found,) = reasons(text)
    assert "rows of features" in found


STAY = {
    "an attention": """turned = Transpose <perm = [1, 0]> (packed) s = MatMul (packed, turned)
        a = Softmax <axis = -1> (s) y = MatMul (a, packed)""",
    "a layer": "h = MatMul (packed, weight) y = Relu (h)",
}


@pytest.mark.parametrize("picked", ["GatherND (x, places)", "Gather (flat, list)"])
@pytest.mark.parametrize("name", STAY)
def test_rows_that_stay_packed_are_told(name: str, picked: str) -> None:
    text = packing(STAY[name], back="").replace("float[B, T, 8] y)", "float[N, 8] y)")
    if picked.startswith("Gather "):
        text = text.replace("float[B, T, 8] x, bool[B, T]", "float[T, 8] x, bool[T]")
        text = text.replace("GatherND (x, places)", "Gather (x, at)")
        text = text.replace("packed = Gather", "at = Squeeze (places, second) packed = Gather")
    (found,) = reasons(text)
    assert "stay so" in found
    assert "hide keys by the mask" in found


def test_rows_that_are_only_picked_are_no_near_miss() -> None:
    text = packing("y = Identity (packed)", back="").replace("float[B, T, 8] y)", "float[N, 8] y)")
    assert not reasons(text)


def test_places_of_ones_are_positions() -> None:
    """Before opset 11, which has no CumSum, positions are where ones are not zero."""
    text = """<ir_version: 8, opset_import: ["" : 9]>
        m (float[B, T, 8] x, float[8, 8] w) => (float[B, U, 8] y) {
        n = Shape (x) ones = ConstantOfShape <value = int64[1] {1}> (n) at = NonZero (ones)
        r = Transpose (at) h = MatMul (x, w) y = Relu (h) }"""
    assert not reasons(text)


def test_rows_of_another_mask_are_left_alone() -> None:
    text = packing(ROWS["a layer"], mask="bool[B, T] seen, bool[B, T] others")
    text = text.replace(
        "y = ScatterND (zeros, places, out)",
        """f2 = NonZero (others) p2 = Transpose <perm = [1, 0]> (f2)
        y = ScatterND (zeros, p2, out)""",
    )
    assert not graphfix.get_pass("window-3d")(ir.from_onnx_text(text)).modified


def test_what_is_not_picked_may_be_no_number() -> None:
    """A row of zeros has a norm of 0; it is not picked, and is 0 as before."""
    body = "n = ReduceL2 <axes = [1]> (packed) out = Div (packed, n)"
    text = packing(body)
    old, new = ir.from_onnx_text(text), ir.from_onnx_text(text)
    assert graphfix.get_pass("window-3d")(new).modified
    for model_ in (old, new):
        model_.graph.inputs[0].name = "x"
    assert np.isfinite(run(new, {"B": 2, "T": 5})[0]).all()
    assert_same(old, new, {"B": 2, "T": 5})
