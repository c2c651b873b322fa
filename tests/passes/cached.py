"""Decoders of one layer whose caches grow, as ONNX text: ways to count, hide and cut entries."""

from __future__ import annotations

import numpy as np

SIZE, WINDOW, WIDTH = 12, 5, 4
CACHES = f"float[B, past, {WIDTH}] past_key, float[B, past, {WIDTH}] past_value"
MASK = ", int64[B, total] mask"
CROSS = f", float[B, enc, {WIDTH}] cross_key, float[B, enc, {WIDTH}] cross_value"


def table(name: str, *shape: int) -> str:
    numbers = np.random.default_rng(len(name)).standard_normal(int(np.prod(shape))).round(3)
    return f"float{[*shape]} {name} = {{{', '.join(map(str, numbers))}}}"


SIZES = (
    "xs = Shape (x) s = Gather (xs, one) ps = Shape (past_key) p = Gather (ps, one) t = Add (p, s)"
)
PLACES = "at = Range (p, t, one) keys_at = Range (nought, t, one) row = Unsqueeze (at, last)"
CAUSAL = f"{PLACES} seen = LessOrEqual (keys_at, row) hidden = Where (seen, scores, low)"
HIDE = """m = Cast <to = 1> (mask) rest = Sub (unit, m) addend = Mul (rest, low)
    wide = Unsqueeze (addend, first)"""
COUNTED = """counts = CumSum (mask, one) places = Sub (counts, one) places_0 = Max (places, nought)
    p_1 = Unsqueeze (p, nought_1) new = Slice (places_0, p_1, end, first)
    learned = Gather (positions, new) h = Add (x, learned)"""
BACK = COUNTED.replace(
    "p_1 = Unsqueeze (p, nought_1)", "s_1 = Unsqueeze (s, nought_1) back = Neg (s_1)"
).replace("Slice (places_0, p_1,", "Slice (places_0, back,")
SLICED = """p_1 = Unsqueeze (p, nought_1) t_1 = Unsqueeze (t, nought_1)
    learned = Slice (positions, p_1, t_1, nought_1) h = Add (x, learned)"""
NEAR = f"""{PLACES} from = Sub (row, window) old = LessOrEqual (keys_at, from)
    new_keys = LessOrEqual (keys_at, row) near = Not (old) seen = And (near, new_keys)
    hidden = Where (seen, scores, low)"""
SUMMED = NEAR.replace(
    "keys_at = Range (nought, t, one)",
    """t_1 = Unsqueeze (t, nought_1) ones = ConstantOfShape <value = int64[1] {1}> (t_1)
    counts = CumSum (ones, nought) keys_at = Sub (counts, one)""",
)
TRIANGLE = f"""{PLACES} s_1 = Unsqueeze (s, nought_1) t_1 = Unsqueeze (t, nought_1)
    st = Concat <axis = 0> (s_1, t_1) full = ConstantOfShape <value = float[1] {{-10000.0}}> (st)
    above = Trilu (full, one) later = Greater (keys_at, row) late = Cast <to = 1> (later)
    addend = Mul (above, late) hidden = Add (scores, addend)"""
BIASED = f"""{CAUSAL} far = Sub (keys_at, row) near = Max (far, least) index = Sub (near, least)
    up = Min (index, most) bias = Gather (biases, up) biased = Add (hidden, bias)"""
SLOPED = f"""{CAUSAL} t_1 = Unsqueeze (t, nought_1) rows = Constant <value_ints = [40]> ()
    start = Sub (rows, t_1) axis = Constant <value_ints = [-1]> ()
    bias = Slice (slopes, start, end, axis) biased = Add (hidden, bias)"""
CUT = """present_key = Slice (keys, kept, end, first)
    present_value = Slice (values, kept, end, first)"""
CROSSED = """ck = Transpose <perm = [0, 2, 1]> (cross_key) cs = MatMul (inner, ck)
    cw = Softmax (cs) y = MatMul (cw, cross_value)"""

# A sink takes part of the weights, and is cut off behind the Softmax.
SINKS = f"""{CAUSAL} ss = Shape (scores) s3 = Slice (ss, nought_1, two)
    rows = Concat <axis = 0> (s3, first) sink = Expand (unit, rows)
    wider = Concat <axis = 2> (hidden, sink) most_of = ReduceMax <axes = [2]> (wider)
    lower = Sub (wider, most_of)
    shares = Softmax <axis = -1> (lower) minus_1 = Neg (first)
    weights = Slice (shares, nought_1, minus_1, two)"""
# A latent cache: keys and values are products with it.
LATENT = """q = Einsum <equation = "bsd,de->bse"> (h, wk)
    near_by = Einsum <equation = "bsr,btr->bst"> (q, keys) seen_1 = Add (near_by, scores)"""
MIXED = """inner_1 = Einsum <equation = "bst,btr->bsr"> (weights, values)
    all_1 = Einsum <equation = "btr->br"> (keys) all_2 = Unsqueeze (all_1, first)
    y = Add (inner_1, all_2)"""
# ALiBi by sums of ones in float, as the mask that a model makes itself.
ALIBI = f"""{CAUSAL} t_1 = Unsqueeze (t, nought_1)
    ones = ConstantOfShape <value = float[1] {{1.0}}> (t_1) counts = CumSum (ones, nought)
    far = Sub (counts, ones) biased = Add (hidden, far)"""
# Rows that are routed: how many is known in a run only.
ROUTED = """high = Greater (inner, nil) spots = NonZero (high) places_of = Shape (spots)
    shown = Gather (places_of, one) count = Cast <to = 1> (shown) y = Add (inner, count)"""


def step(
    before: str = "h = Identity (x)",
    mask: str = "hidden = Identity (scores)",
    scores: str = "hidden",
    out: str = "present_key = Identity (keys) present_value = Identity (values)",
    after: str = "y = Identity (inner)",
    inputs: str = "",
) -> str:
    """One layer of attention over what is cached and what is new."""
    return f"""step (float[B, S, {WIDTH}] x, {CACHES}{inputs}) => (float[B, S, {WIDTH}] y,
        float[B, grown, {WIDTH}] present_key, float[B, grown, {WIDTH}] present_value)
    <int64 nought = {{0}}, int64 one = {{1}}, int64 last = {{-1}}, int64[1] nought_1 = {{0}},
     int64[1] first = {{1}}, int64[1] kept = {{-{WINDOW}}}, int64[1] end = {{9223372036854775807}},
     int64 least = {{-3}}, int64 most = {{3}}, int64 window = {{{WINDOW}}},
     int64[1] two = {{2}}, float nil = {{0.0}},
     float low = {{-10000.0}}, float unit = {{1.0}}, {table("wk", 4, 4)}, {table("wv_", 4, 4)},
     {table("positions", 40, 4)}, {table("biases", 4)},
     {table("slopes", 1, 40)}>
    {{ {SIZES} {before} k = MatMul (h, wk) v = MatMul (h, wv_)
       keys = Concat <axis = 1> (past_key, k) values = Concat <axis = 1> (past_value, v)
       turned = Transpose <perm = [0, 2, 1]> (keys) scores = MatMul (h, turned) {mask}
       weights = Softmax <axis = -1> ({scores}) inner = MatMul (weights, values) {after} {out} }}"""


# Keys that are cut to the window before they are read, and a triangle of as many columns.
TRIANGLE_OF_CUT = """ks = Shape (keys) kt = Gather (ks, one) first_1 = Sub (kt, s)
    diagonal = Add (first_1, one) s_1 = Unsqueeze (s, nought_1) kt_1 = Unsqueeze (kt, nought_1)
    st = Concat <axis = 0> (s_1, kt_1) full = ConstantOfShape <value = float[1] {-10000.0}> (st)
    above = Trilu (full, diagonal) hidden = Add (scores, above)"""


def cut_first(text: str) -> str:
    """Return a layer that reads the last entries alone."""
    for name, new in (("key", "k"), ("value", "v")):
        joined = f"{name}s = Concat <axis = 1> (past_{name}, {new})"
        cut = f"{name}s = Slice (all_{name}s, kept, end, first)"
        assert joined in text
        text = text.replace(joined, f"all_{joined} {cut}")
    return text


FORMS = {
    "causal": step(mask=CAUSAL),
    "no mask": step(),
    "triangle": step(mask=TRIANGLE),
    "mask": step(mask=f"{HIDE} hidden = Add (scores, wide)", inputs=MASK),
    "cumsum": step(COUNTED, f"{HIDE} hidden = Add (scores, wide)", inputs=MASK),
    "cumsum from the back": step(BACK, f"{HIDE} hidden = Add (scores, wide)", inputs=MASK),
    "causal and mask": step(
        COUNTED, f"{CAUSAL} {HIDE} both = Add (hidden, wide)", "both", inputs=MASK
    ),
    "table by slice": step(SLICED, CAUSAL),
    "table by gather": step("now = Range (p, t, one) l = Gather (positions, now) h = Add (x, l)"),
    "relative bias": step(mask=BIASED, scores="biased"),
    "last entries of a table": step(mask=SLOPED, scores="biased"),
    "sums of ones in float": step(mask=ALIBI, scores="biased"),
    "window of the mask": step(mask=NEAR),
    "window of the mask by sums": step(mask=SUMMED),
    "window of the cache": step(mask=CAUSAL, out=CUT),
    "rolling": step(mask=NEAR, out=CUT),
    "cut before it is read": cut_first(step(mask=TRIANGLE_OF_CUT)),
    "sinks": step(mask=SINKS).replace("weights = Softmax <axis = -1> (hidden)", ""),
    "einsum": step(mask=f"{LATENT} hidden = Identity (seen_1)", after=MIXED),
    "routed rows": step(mask=CAUSAL, after=ROUTED),
    "cross": step(mask=CAUSAL, after=CROSSED, inputs=CROSS),
}
