"""Rotations of halves and of pairs, and where a cut of the last axis begins."""

import pytest

from graphfix.facts.view import View
from graphfix.passes.fusions.attention.rotary_halves import last_axis_cut, match_rotation
from tests.passes.models import model

CASES = [
    ("y = Slice (x, four, eight, last)", 17, (4, 1)),
    ("y = Slice (x, minus, eight, last)", 17, (4, 1)),
    ("y = Slice (x, one, eight, last, two)", 17, (1, 2)),
    ("y = Slice (x, far, eight, last)", 17, None),  # it is cut to 0
    ("y = Slice (x, full, eight, last)", 17, (0, 1)),
    ("y = Slice <starts = [4], ends = [8], axes = [-1]> (x)", 9, (4, 1)),
    ("y = Slice <starts = [4], ends = [8], axes = [1]> (x)", 9, (4, 1)),
    ("y = Slice (x, ends2, size2)", 17, None),  # the axes are 0 and 1
    ("y = Slice (x, back2, ends_back2, both, steps2)", 17, None),  # rows in reverse
    ("y = Slice (x, four, eight, computed)", 17, None),
    ("first, y = Split <axis = 1> (x)", 12, (4, 1)),
    ("first, y = Split <axis = -1> (x, halves)", 17, (4, 1)),
    ("y, last_rows = Split <axis = 0> (x)", 12, None),
    ("y = Identity (x)", 17, None),
]


@pytest.mark.parametrize(("node", "opset", "expected"), CASES)
def test_cut(node: str, opset: int, expected: tuple[int, int] | None) -> None:
    m = model(
        f"""m (float[6, 8] x, int64[1] computed) => (float y) <int64[1] four = {{4}},
        int64[1] eight = {{8}}, int64[1] last = {{-1}}, int64[1] minus = {{-4}},
        int64[1] far = {{-9}}, int64[1] full = {{-8}},
        int64[1] one = {{1}}, int64[1] two = {{2}}, int64[2] ends2 = {{0, 4}},
        int64[2] size2 = {{6, 8}}, int64[2] back2 = {{-1, 4}}, int64[2] ends_back2 = {{-9, 8}},
        int64[2] both = {{0, 1}}, int64[2] steps2 = {{-1, 1}}, int64[2] halves = {{4, 4}}> {{
        {node} }}""",
        opset,
    )
    m.graph.outputs[0].shape = None
    cut = last_axis_cut(m.graph.outputs[0], View(m))
    assert (None if cut is None else cut[1:]) == expected
    assert cut is None or cut[0] is m.graph.inputs[0]


HEAD = """m (float[2, 3, 8] x, float[2, 3, 8] z, float[2, 3, 6] six, float[2, 3, 16] wide,
    float[3, 8] c, float[3, 8] s, float[3, 4] hc, float[3, 4] hs, float[2, 2, 8] short,
    float[2, 3, 4, 2] pairs0) => (float y)
    <int64[1] nil = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] four = {4},
     int64[1] eight = {8}, int64[1] last = {-1}, int64[1] end = {9223372036854775807},
     int64[3] flat = {0, 0, 8}, int64[4] split = {0, 0, 4, 2}, int64[4] other = {0, 0, 2, 4},
     int64[3] turned = {3, 2, 8}, int64[2] halves = {4, 4}, int64[4] unit = {0, 0, 4, 1},
     int64[4] front = {2, 1, 3, 4}>"""
# r of x: halves that are turned, and pairs, each as exporters write it.
HALVES = """b = Slice (x, four, end, last) n = Neg (b) a = Slice (x, nil, four, last)
    r = Concat <axis = -1> (n, a)"""
SPLIT = "a, b = Split <axis = -1> (x, halves) n = Neg (b) r = Concat <axis = 2> (n, a)"
PAIRS = """b = Slice (x, one, end, last, two) n = Neg (b) a = Slice (x, nil, end, last, two)
    nu = Unsqueeze (n, last) au = Unsqueeze (a, last) st = Concat <axis = -1> (nu, au)
    r = Reshape (st, flat)"""
KEPT = """p = Reshape (x, split) a0 = Slice (p, nil, one, last) b0 = Slice (p, one, two, last)
    n = Neg (b0) st = Concat <axis = 3> (n, a0) r = Reshape (st, flat)"""
SUM = "m = Mul (x, c) w = Mul (r, s) y = Add (m, w)"
# Each half for itself.
JOINED = """a = Slice (x, nil, four, last) b = Slice (x, four, end, last) ac = Mul (a, hc)
    bs = Mul (b, hs) bc = Mul (b, hc) as = Mul (a, hs) lo = Sub (ac, bs) hi = Add (bc, as)
    y = Concat <axis = -1> (lo, hi)"""


def rotation(body: str, width: int = 8) -> str | None:
    """Return the operands of a rotation, and how it is written; None if there is none."""
    m = model(f"{HEAD} {{ {body} }}", 17)
    m.graph.outputs[0].shape = None
    parts = match_rotation(m.graph[-1], width, View(m))
    if parts is None:
        return None
    kind = "pairs" if parts.interleaved else "half tables" if parts.half_tables else "halves"
    return f"{parts.source.name} {parts.cos.name} {parts.sin.name} {kind}"


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        (f"{HALVES} {SUM}", "x c s halves"),
        (f"{SPLIT} {SUM}", "x c s halves"),
        (f"{HALVES} m = Mul (c, x) w = Mul (s, r) y = Add (w, m)", "x c s halves"),
        (f"{PAIRS} {SUM}", "x c s pairs"),
        (f"{PAIRS.replace('Reshape (st, flat)', 'Flatten <axis = 2> (st)')} {SUM}", None),
        (f"{KEPT} {SUM}", "x c s pairs"),
        (JOINED, "x hc hs half tables"),
        (JOINED.replace("axis = -1", "axis = 2"), "x hc hs half tables"),
        (JOINED.replace("Mul (a, hc)", "Mul (hc, a)"), "x hc hs half tables"),
    ],
)
def test_a_rotation(body: str, parts: str | None) -> None:
    assert rotation(body) == parts


def test_halves_of_heads_that_a_reshape_splits() -> None:
    """As features are split into pairs, so they are into heads."""
    body = HALVES.replace("(x, four, end", "(p, two, end").replace("(x, nil, four", "(p, nil, two")
    text = f"p = Reshape (x, other) {body} m = Mul (p, hc2) w = Mul (r, hs2) y = Add (m, w)"
    tables = "hc2 = Slice (hc, nil, two, nil) hs2 = Slice (hs, nil, two, nil)"
    assert rotation(f"{tables} {text}", 4) == "p hc2 hs2 halves"


SQUEEZED = KEPT.replace("n = Neg (b0)", "b = Squeeze (b0, last) nb = Neg (b)").replace(
    "st = Concat <axis = 3> (n, a0)",
    "a = Squeeze (a0, last) n = Unsqueeze (nb, last) av = Reshape (a, unit) "
    "st = Concat <axis = -1> (n, av)",
)


@pytest.mark.parametrize("body", [f"{SQUEEZED} {SUM}"])
def test_pairs_may_lose_their_axis_and_get_it_back(body: str) -> None:
    assert rotation(body) == "x c s pairs"


@pytest.mark.parametrize(
    ("body", "old", "new"),
    [
        # Of halves: other halves, another order, another tensor, another axis.
        (HALVES, "(n, a)", "(a, n)"),
        (HALVES, "(n, a)", "(n, a, a)"),
        (HALVES, "(n, a)", "(b, a)"),
        (HALVES, "Neg (b)", "Neg (a)"),
        (HALVES, "Neg (b)", "Abs (b)"),
        (HALVES, "a = Slice (x", "a = Slice (z"),
        (HALVES, "a = Slice (x, nil, four", "a = Slice (x, one, four"),
        (HALVES, "a = Slice (x, nil, four", "a = Slice (x, nil, two"),
        (HALVES, "b = Slice (x, four, end, last)", "b = Slice (x, nil, four, last)"),
        (HALVES, "b = Slice (x, four, end, last)", "b = Slice (x, four, end, last, two)"),
        (HALVES, "Slice (x", "Slice (wide"),
        (HALVES, "<axis = -1>", "<axis = 0>"),
        (HALVES, "Concat <axis = -1> (n, a)", "Sum (n, n, a)"),
        # Of pairs.
        (PAIRS, "(nu, au)", "(au, nu)"),
        (PAIRS, "(nu, au)", "(nu, au, au)"),
        (PAIRS, "st = Concat <axis = -1>", "st = Concat <axis = 0>"),
        (PAIRS, "st = Concat <axis = -1>", "st = Concat <axis = 2>"),
        (PAIRS, "a = Slice (x, nil, end, last, two)", "a = Slice (x, one, end, last, two)"),
        (PAIRS, "a = Slice (x, nil, end, last, two)", "a = Slice (x, nil, four, last)"),
        (PAIRS, "a = Slice (x", "a = Slice (z"),
        (PAIRS, "Reshape (st, flat)", "Reshape (st, turned)"),
        (PAIRS, "au = Unsqueeze (a, last)", "au = Unsqueeze (a, two)"),
        (PAIRS, "au = Unsqueeze (a, last)", "au = Reshape (a, front)"),
        (KEPT, "(x, split)", "(x, other)"),
        (KEPT, "p = Reshape (x, split)", "p = Identity (pairs0)"),
        (KEPT, "a0 = Slice (p, nil, one, last)", "a0 = Slice (p, one, two, last)"),
        (KEPT, "p = Reshape (x, split)", "p = Reshape (six, split) q = Identity (x)"),
    ],
)
def test_what_is_no_rotation(body: str, old: str, new: str) -> None:
    assert old in body
    assert rotation(f"{body.replace(old, new)} {SUM}") is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Sub (ac, bs)", "Sub (bs, ac)"),
        ("Sub (ac, bs)", "Add (ac, bs)"),
        ("Add (bc, as)", "Sub (bc, as)"),
        ("(lo, hi)", "(hi, lo)"),
        ("(lo, hi)", "(lo, hi, hi)"),
        ("axis = -1", "axis = 1"),
        ("b = Slice (x, four", "b = Slice (x, nil"),
        ("a = Slice (x, nil, four", "a = Slice (x, four, end"),
        ("b = Slice (x", "b = Slice (z"),
        ("Mul (b, hs)", "Mul (b, hc)"),
    ],
)  # fmt: skip
def test_halves_that_are_joined_are_no_rotation(old: str, new: str) -> None:
    assert old in JOINED
    assert rotation(JOINED.replace(old, new)) is None


def test_the_width_is_that_of_the_tensor() -> None:
    assert rotation(f"{HALVES} {SUM}", 16) is None
    assert rotation(f"{HALVES} {SUM}", 4) is None
    assert rotation(f"{PAIRS} {SUM}", 4) is None
    assert rotation(f"{PAIRS} {SUM}", 16) is None
    assert rotation(JOINED, 16) is None
    narrow = HALVES.replace("Slice (x", "Slice (wide")
    # x[4:8] and x[:4] of 16 features are no halves.
    assert rotation(f"{narrow} {SUM}".replace("(x, c)", "(wide, c)"), 8) is None
