"""A mask whose dims have names of their own: what of them is batch and time, and how it is said."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graphfix
from graphfix.errors import PaddingError, UsageError
from tests.lengths.padding import session

FEATURES, SIZE = 4, 21
LENGTHS = (9, 14)

# What an attention does with a mask that is 0 at what is no content.
ATTENTION = """xt = Transpose <perm = [0, 2, 1]> (h) s = MatMul (h, xt)
    m = Where (keep, nought, low) sm = Add (s, m) p = Softmax <axis = -1> (sm) y = MatMul (p, h)"""
CONSTANTS = """int64[1] first = {0}, int64[1] second = {1}, int64[1] one = {1}, int64[1] all = {-1},
    int64 zero = {0}, int64 step = {1}, int64[2] behind = {1, 2}, int64[1] third = {2},
    int64[3] front = {0, 1, 2}, int64[3] later = {1, 2, 3}, int64 two = {2}, int64 three = {3},
    bool true = {1}, float nought = {0.0}, float low = {-10000.0}"""
PLACES = """b = Shape <start = 0, end = 1> (x) t = Shape <start = 1, end = 2> (x)
    bs = Squeeze (b) ts = Squeeze (t) rb = Range (zero, bs, step) rt = Range (zero, ts, step)
    ub = Unsqueeze (rb, behind) ut = Unsqueeze (rt, tail)
    full = Concat <axis = 0> (b, one, t) eb = Expand (ub, full) et = Expand (ut, full)
    ib = Unsqueeze (eb, end) it = Unsqueeze (et, end) at = Concat <axis = -1> (ib, it)
    look = GatherND (mask, at)"""
RESHAPED = (
    """h = Identity (x) b = Shape <start = 0, end = 1> (x) t = Shape <start = 1, end = 2> (x)
    full = Concat <axis = 0> (b, one, t) r = Reshape (mask, full) keep = Cast <to = 9> (r)"""
    + ATTENTION
)
LOOKED_UP = f"h = Identity (x) {PLACES} keep = Cast <to = 9> (look) {ATTENTION}"
# Three frames make one, every second time: the count of the mask goes through the same arithmetic.
STRIDED = """xt0 = Transpose <perm = [0, 2, 1]> (x)
    c = Conv <kernel_shape = [3], strides = [2]> (xt0, k) h = Transpose <perm = [0, 2, 1]> (c)
    n = ReduceSum <keepdims = 0> (mask, second) less = Sub (n, three) half = Div (less, two)
    frames = Add (half, step)"""
COUNTED = (
    STRIDED
    + """ f = Shape <start = 1, end = 2> (h) fs = Squeeze (f) r = Range (zero, fs, step)
    nu = Unsqueeze (frames, second) in = Less (r, nu) keep = Unsqueeze (in, second)"""
    + ATTENTION
)
DYNAMO = (
    STRIDED.replace(
        "half = Div (less, two)",
        """q = Div (less, two) under = Less (less, zero) off0 = Equal (under, true)
    rest = Mod (less, two) some = Cast <to = 9> (rest) both = And (off0, some)
    off = Cast <to = 7> (both) half = Sub (q, off)""",
    )
    + """ f = Shape <start = 1, end = 2> (h) fs = Squeeze (f) r = Range (zero, fs, step)
    nu = Unsqueeze (frames, second) in = Less (r, nu) keep = Unsqueeze (in, second)"""
    + ATTENTION
)
# The same before dynamo's exporter optimizes it.
RAW = COUNTED.replace(
    "n = ReduceSum <keepdims = 0> (mask, second)",
    """o = Constant <value_ints = [0]> () far = Constant <value_ints = [9223372036854775807]> ()
    m1 = Constant <value_int = -1> () running = CumSum (mask, step)
    whole = Slice (running, o, far, o) n = Gather <axis = 1> (whole, m1)""",
)
RAW = RAW.replace(
    "half = Div (less, two)",
    """lf = Cast <to = 1> (less) tf = Cast <to = 1> (two) qf = Div (lf, tf) ff = Floor (qf)
    half = CastLike (ff, less)""",
)
RAW = RAW.replace(
    "nu = Unsqueeze (frames, second)",
    "all_of = Slice (frames, o, far, o) nu = Unsqueeze (all_of, second)",
)
PLACED = (
    STRIDED
    + """ c0 = Shape <start = 0, end = 1> (mask) f = Shape <start = 1, end = 2> (h)
    shape = Concat <axis = 0> (c0, f) empty = Expand (zero, shape) cs = Squeeze (c0)
    rows = Range (zero, cs, step) last = Sub (frames, step) ru = Unsqueeze (rows, second)
    lu = Unsqueeze (last, second) at = Concat <axis = -1> (ru, lu)
    ones = Expand (step, c0) put = ScatterND (empty, at, ones)
    turned = Slice (put, all, lowest, second, all) sums = CumSum (turned, step)
    back = Slice (sums, all, lowest, second, all) bool = Cast <to = 9> (back)
    keep = Unsqueeze (bool, second)"""
    + ATTENTION
)
# What the mask is compared with is another input's, by no arithmetic of the mask's own.
UNSAID = """h = Identity (x) n = ReduceSum <keepdims = 1> (mask, second)
    t = Shape <start = 1, end = 2> (x) ts = Squeeze (t) r = Range (zero, ts, step)
    in = Less (r, n) keep = Unsqueeze (in, second)"""
UNSAID += ATTENTION


def model(body: str, mask: str = "C, S") -> onnx.ModelProto:
    weights = ", ".join(str((i * 7 % 13 - 6) / 8) for i in range(FEATURES * FEATURES * 3))
    return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18]>
        m (float[B, T, {FEATURES}] x, int64[{mask}] mask) => (float[N, F, G] y)
        <{CONSTANTS}, float[4, 4, 3] k = {{{weights}}}, int64[1] end = {{-1}},
         int64[2] tail = {{0, 1}}, int64[1] lowest = {{-9223372036854775808}}>
        {{ {body} }}""")


def held(made: onnx.ModelProto, spec: str, *, own: bool = False) -> float:
    """How far what is valid of a padded batch is from the clips alone; ``own``: without ilens."""
    rng = np.random.default_rng(3)
    repaired = ir.from_proto(made)
    graphfix.run(repaired, spec)
    alone, together = session(made), session(ir.to_proto(repaired))
    names = [x.name for x in together.get_inputs()]
    assert ("ilens" in names) != own
    worst = 0.0
    clips = [rng.standard_normal((1, n, FEATURES)).astype(np.float32) for n in LENGTHS]
    for fill in (0.0, 300.0):
        x = np.full((len(clips), SIZE, FEATURES), fill, np.float32)
        mask = np.zeros((len(clips), SIZE), np.int64)
        for row, clip in enumerate(clips):
            x[row, : clip.shape[1]], mask[row, : clip.shape[1]] = clip[0], 1
        feeds = {"x": x, "mask": mask, "ilens": np.array(LENGTHS, np.int64)}
        y = together.run(None, {name: feeds[name] for name in names})[0]
        for row, clip in enumerate(clips):
            native = {"x": clip, "mask": np.ones(clip.shape[:2], np.int64)}
            wanted = alone.run(None, native)[0][0]
            worst = max(worst, float(np.abs(y[row, : len(wanted)] - wanted).max()))
    return worst


SAID = {
    "a Reshape": RESHAPED,
    "a lookup": LOOKED_UP,
    "a count": COUNTED,
    "dynamo's": DYNAMO,
    "dynamo's, as it is": RAW,
    "a place": PLACED,
}


@pytest.mark.parametrize("body", SAID.values(), ids=SAID)
def test_the_graph_says_which_dims_of_a_mask_are_batch_and_time(body: str) -> None:
    assert held(model(body), "ilens-mask") <= 1e-5


@pytest.mark.parametrize("body", [*SAID.values(), UNSAID], ids=[*SAID, "nothing"])
def test_a_mask_may_say_what_is_valid(body: str) -> None:
    assert held(model(body), "ilens-mask:axis=x.1:from=mask", own=True) <= 1e-5


def test_where_nothing_says_so_each_way_out_is_named_and_works() -> None:
    made = model(UNSAID)
    with pytest.raises(
        UsageError, match="nothing in the graph says that they are of one size"
    ) as e:
        graphfix.run(ir.from_proto(made), "ilens-mask")
    ways = re.findall(r"-p (ilens-mask:\S+?)[,;]?(?= |$)", str(e.value))
    assert ways == [
        "ilens-mask:axis=x.1+mask.1",
        "ilens-mask:axis=x.1",
        "ilens-mask:axis=mask.1",
        "ilens-mask:axis=x.1:from=mask",
    ]
    assert held(made, ways[0]) <= 1e-5
    assert held(made, ways[3], own=True) <= 1e-5
    again = ir.from_proto(made)
    graphfix.run(again, ways[0])
    before = ir.to_proto(again)
    graphfix.run(again, "ilens-mask")  # a second run changes nothing
    assert ir.to_proto(again) == before


def test_durations_are_no_frames() -> None:
    """Their sum is compared with the frames as it is; phonemes are as many as they are."""
    with pytest.raises(UsageError, match="several dims may be time"):
        graphfix.run(ir.from_proto(model(UNSAID)), "ilens-mask")


def test_a_name_with_a_plus_is_a_name() -> None:
    made = model(RESHAPED)
    made.graph.input[0].name = "x+y"
    for node in made.graph.node:
        node.input[:] = ["x+y" if name == "x" else name for name in node.input]
    graphfix.run(ir.from_proto(made), "ilens-mask:axis=x+y.1")


def test_lengths_may_have_a_name_of_their_own() -> None:
    body = """h = Identity (x) t = Shape <start = 1, end = 2> (x) ts = Squeeze (t)
        r = Range (zero, ts, step) nu = Unsqueeze (mask, second) in = Less (r, nu)
        keep = Unsqueeze (in, second)"""
    made = ir.from_proto(model(body + ATTENTION, "N"))
    graphfix.run(made, "ilens-mask:from=mask")
    graphfix.run(ir.from_proto(model(body + ATTENTION, "N")), "ilens-mask")


# A lookup that turns the rows of the batch around, each of which has its own length.
TURNED = """b = Shape <start = 0, end = 1> (x) bs = Squeeze (b) rb = Range (zero, bs, step)
    top = Sub (bs, step) k2 = Sub (top, rb) at = Unsqueeze (k2, second) h = GatherND (x, at)
    y = ReduceMean <keepdims = 1> (h, second)"""
OWN = """b = Shape <start = 0, end = 1> (x) bs = Squeeze (b) rb = Range (zero, bs, step)
    at = Unsqueeze (rb, second) h = GatherND (x, at) y = ReduceMean <keepdims = 1> (h, second)"""


def test_rows_that_are_looked_up_are_the_rows_of_the_batch() -> None:
    with pytest.raises(PaddingError, match="picks rows of the batch"):
        graphfix.run(ir.from_proto(model(TURNED, "B, T")), "ilens-mask:axis=x.1")
    assert held(model(OWN, "B, T"), "ilens-mask:axis=x.1") <= 1e-5


# Each row's first frame, or first five, looked up in their own places.
FEW = """b = Shape <start = 0, end = 1> (x) bs = Squeeze (b) rb = Range (zero, bs, step)
    rt = Range (zero, LIMIT, step) n = Shape (rt) full = Concat <axis = 0> (b, n)
    ub = Unsqueeze (rb, second) ut = Unsqueeze (rt, first) eb = Expand (ub, full)
    et = Expand (ut, full) ib = Unsqueeze (eb, end) it = Unsqueeze (et, end)
    at = Concat <axis = -1> (ib, it) sums = ReduceSum <keepdims = 0> (x, third)
    look = GatherND (sums, at) h = Unsqueeze (look, third)
    y = ReduceMean <keepdims = 1> (h, second)"""


@pytest.mark.parametrize("limit", ["step", "three"])
def test_a_lookup_of_the_first_frames_is_as_long_as_these(limit: str) -> None:
    assert held(model(FEW.replace("LIMIT", limit), "B, T"), "ilens-mask:axis=x.1", own=True) <= 1e-5
