"""fuse-attention: rotary embeddings of halves and of pairs, of all features and of the first."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.facts.view import View
from graphfix.passes.fusions.attention.axis_layout import operand_layout
from graphfix.passes.fusions.attention.rotary import rotation_of
from tests.passes.fusions.test_fuse_attention import count, fused

NUMBERS = """<int64[3] merge = {0,0,16}, int64[4] split = {0,0,2,8}, float scale = {0.3},
    int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] four = {4},
    int64[1] last = {3}, int64[1] behind = {-1}, int64[1] end = {9223372036854775807},
    int64[4] twice = {1,1,1,2}, int64[3] flat3 = {0,0,-1}, int64[4] flat4 = {0,0,0,-1},
    int64[2] fours = {4, 4}>"""
# What is turned of {n}h, and what becomes of it, {n}t.
ALL = ("{n}x = Identity ({n}h)", "{n}t = Identity ({n}y)")
FIRST = (
    "{n}x = Slice ({n}h, zero, four, last) {n}z = Slice ({n}h, four, end, last)",
    "{n}t = Concat <axis = -1> ({n}y, {n}z)",
)
SPLIT_OFF = (
    "{n}x, {n}z = Split <axis = -1> ({n}h, fours)",
    "{n}t = Concat <axis = 3> ({n}y, {n}z)",
)
# {n}r of {n}x.
HALVES = """{n}2 = Slice ({n}x, half, end, last) {n}n = Neg ({n}2)
    {n}1 = Slice ({n}x, zero, half, last) {n}r = Concat <axis = -1> ({n}n, {n}1)"""
PAIRS = """{n}2 = Slice ({n}x, one, end, last, two) {n}n = Neg ({n}2) {n}1 = Slice ({n}x, zero,
    end, last, two) {n}nu = Unsqueeze ({n}n, behind) {n}eu = Unsqueeze ({n}1, behind)
    {n}st = Concat <axis = -1> ({n}nu, {n}eu) {n}r = Reshape ({n}st, flat4)"""
# ff of f, each number of which stands in it twice.
SIDE = "fu = Unsqueeze (f, behind) "
TWO_HALVES = "ff = Concat <axis = -1> (f, f)"
EXPANDED = f"{SIDE} fe = Expand (fu, twice) ff = Reshape (fe, flat3)"
TILED = f"{SIDE} fe = Tile (fu, twice) ff = Reshape (fe, flat3)"
STACKED = f"{SIDE} fe = Concat <axis = -1> (fu, fu) ff = Reshape (fe, flat3)"


def model(which: tuple[str, str], turn: str, table: str, width: int = 8) -> str:
    cut, joined = which
    parts = [
        "{n}s = Reshape ({n}, split) {n}h = Transpose <perm = [0,2,1,3]> ({n}s)",
        f"{cut} {turn} {{n}}c = Mul ({{n}}x, cos) {{n}}d = Mul ({{n}}r, sin)",
        f"{{n}}y = Add ({{n}}c, {{n}}d) {joined}",
    ]
    both = " ".join(" ".join(parts).format(n=n) for n in "qk")
    numbers = NUMBERS.replace(">", f", int64[1] half = {{{width // 2}}}>")
    return f"""(float[B,T,16] q, float[B,T,16] k, float[B,T,16] v, float[1,T,{width // 2}] f)
        => (float[B,T,16] y) {numbers} {{ {table}
        cu = Cos (ff) su = Sin (ff) cos = Unsqueeze (cu, one) sin = Unsqueeze (su, one)
        {both} vs = Reshape (v, split) vh = Transpose <perm = [0,2,1,3]> (vs)
        kl = Transpose <perm = [0,1,3,2]> (kt) p = MatMul (qt, kl) m = Mul (p, scale)
        w = Softmax <axis = -1> (m) c = MatMul (w, vh) ct = Transpose <perm = [0,2,1,3]> (c)
        y = Reshape (ct, merge) }}"""


@pytest.mark.parametrize("which", [ALL, FIRST, SPLIT_OFF], ids=["all", "first", "split off"])
@pytest.mark.parametrize(
    ("turn", "table"),
    [(HALVES, TWO_HALVES), (PAIRS, EXPANDED), (PAIRS, TILED), (PAIRS, STACKED)],
    ids=["halves", "pairs, expanded", "pairs, tiled", "pairs, stacked"],
)
def test_a_rotation_is_one_operator(which: tuple[str, str], turn: str, table: str) -> None:
    width = 8 if which is ALL else 4
    after = fused(model(which, turn, table, width))
    turned = [x for x in after.graph if x.op_type == "RotaryEmbedding"]
    assert len(turned) == 2
    for node in turned:
        given = {name: x.as_int() for name, x in node.attributes.items()}
        assert given.get("interleaved", 0) == (turn is PAIRS)
        assert given.get("rotary_embedding_dim", 8) == width
    assert count(after, "Neg") == count(after, "Mul") == 0
    # One table of cosines and one of sines for all; of halves, each number is computed once.
    assert count(after, "Slice") == (2 if turn is PAIRS else 0)
    assert count(after, "Cos") == count(after, "Sin") == 1


def test_cosines_may_be_made_before_pairs_are_merged() -> None:
    """As fold leaves a repeat_interleave whose table is unsqueezed behind it."""
    text = model(ALL, PAIRS, f"{SIDE} fe = Expand (fu, twice)").replace("(ff)", "(fe)")
    text = text.replace("cu, one)", "cu, lasts)").replace("su, one)", "su, lasts)")
    text = text.replace("cos = Unsqueeze", "cos = Reshape").replace(
        "sin = Unsqueeze", "sin = Reshape"
    )
    after = fused(text.replace("int64[2] fours", "int64[4] lasts = {1,1,-1,8}, int64[2] fours"))
    assert count(after, "RotaryEmbedding") == 2


APART = """{n}1 = Slice ({n}x, zero, half, last) {n}2 = Slice ({n}x, half, end, last)
    {n}c1 = Mul ({n}1, cos) {n}d1 = Mul ({n}2, sin) {n}c2 = Mul (cos, {n}2) {n}d2 = Mul ({n}1, sin)
    {n}m = Sub ({n}c1, {n}d1) {n}p = Add ({n}d2, {n}c2) {n}y = Concat <axis = -1> ({n}m, {n}p)"""


def apart(which: tuple[str, str], turn: str, width: int = 8) -> str:
    """As GPT-OSS has it: halves are turned apart, by tables of half the features, and joined."""
    text = model(which, turn, "ff = Identity (f)", width)
    for n in "qk":
        text = text.replace(f"{n}c = Mul ({n}x, cos) {n}d = Mul ({n}r, sin)", "")
        text = text.replace(f"{n}y = Add ({n}c, {n}d)", "")
    return text


@pytest.mark.parametrize("which", [ALL, FIRST, SPLIT_OFF], ids=["all", "first", "split off"])
def test_halves_that_are_turned_apart_are_one_operator(which: tuple[str, str]) -> None:
    after = fused(apart(which, APART, 8 if which is ALL else 4))
    assert count(after, "RotaryEmbedding") == 2
    assert count(after, "Sub") == count(after, "Mul") == 0


NEARLY_APART = {
    "another sign": APART.replace("Sub", "Add"),
    "the halves change places": APART.replace("({n}m, {n}p)", "({n}p, {n}m)"),
    "one half twice": APART.replace(
        "{n}2 = Slice ({n}x, half, end", "{n}2 = Slice ({n}x, zero, half"
    ),
    "sines of the other half": APART.replace("{n}d1 = Mul ({n}2", "{n}d1 = Mul ({n}1"),
    "cosines where sines are": APART.replace("{n}d2 = Mul ({n}1, sin)", "{n}d2 = Mul ({n}1, cos)"),
}


@pytest.mark.parametrize("case", NEARLY_APART)
def test_what_is_nearly_turned_apart_stays_as_it_is(case: str) -> None:
    after = fused(apart(ALL, NEARLY_APART[case]))
    assert count(after, "RotaryEmbedding") == 0


LAST = "{n}x = Slice ({n}h, four, end, last) {n}z = Slice ({n}h, zero, four, last)"
TWICE = "{n}x = Slice ({n}h, zero, four, last) {n}z = Slice ({n}h, zero, four, last)"
OTHER = f"{SIDE} gu = Relu (fu) fe = Concat <axis = -1> (fu, gu) ff = Reshape (fe, flat3)"
NEAR = {
    "pairs, and a table of halves": (ALL, PAIRS, TWO_HALVES),
    "halves, and a table of pairs": (ALL, HALVES, EXPANDED),
    "a table of two angles side by side": (ALL, PAIRS, OTHER),
    "the first of a pair is negated": (ALL, PAIRS.replace("nu, {n}eu", "eu, {n}nu"), TILED),
    "no half is negated": (ALL, HALVES.replace("({n}n, ", "({n}2, "), TWO_HALVES),
    "the rest comes first": (
        (FIRST[0], FIRST[1].replace("y, {n}z", "z, {n}y")),
        HALVES,
        TWO_HALVES,
    ),
    "the last features are turned": ((LAST, FIRST[1]), HALVES, TWO_HALVES),
    "the first features twice": ((TWICE, FIRST[1]), HALVES, TWO_HALVES),
}


@pytest.mark.parametrize("case", NEAR)
def test_what_is_nearly_a_rotation_stays_as_it_is(case: str) -> None:
    which, turn, table = NEAR[case]
    after = fused(model(which, turn, table, 8 if which is ALL else 4))
    assert count(after, "RotaryEmbedding") == 0


def test_a_rotation_in_float_stays_before_an_attention_in_float16() -> None:
    """As ModernBERT's and Olmo2's: RotaryEmbedding takes a tensor and a table of one type."""
    way = ("{n}x = Cast <to = 1> ({n}h)", "{n}t = Cast <to = 10> ({n}y)")
    text = model(way, HALVES, TWO_HALVES).replace("float[B,T,16]", "float16[B,T,16]")
    text = text.replace("m = Mul (p, scale)", "by = Cast <to = 10> (scale) m = Mul (p, by)")
    assert count(fused(text, tolerance=5e-3), "RotaryEmbedding") == 0


HEAD = """m (float[B, 2, T, 8] x, float[1, T, 8] c, float[B, 1, T, 8] rows, float[T, 8] flat,
    float[1, 1, T, 8] four, float[B, T, 8] late, float[1, 2, T, 8] heads,
    float[1, U, 8] other, float[1, T, 4] half, float[B, 1, T, 4] halves, float[8] one,
    float[1, T, 2] quarter, float[B, 2, T, 16] wide) => (float y)
    <int64[1] nil = {0}, int64[1] two = {2}, int64[1] four1 = {4}, int64[1] eight = {8},
     int64[1] last = {-1}, int64[1] end = {9223372036854775807}, int64[2] sizes = {4, 4}>"""
TURNED = """b = Slice (x, four1, end, last) n = Neg (b) a = Slice (x, nil, four1, last)
    r = Concat <axis = -1> (n, a) m = Mul (x, cos) w = Mul (r, sin) y = Add (m, w)"""
JOINED = """a = Slice (x, nil, four1, last) b = Slice (x, four1, end, last) ac = Mul (a, cos)
    bs = Mul (b, sin) bc = Mul (b, cos) as = Mul (a, sin) lo = Sub (ac, bs) hi = Add (bc, as)
    y = Concat <axis = -1> (lo, hi)"""
FIRST_HALF = """f = Slice (x, nil, four1, last) z = Slice (x, four1, end, last)
    b = Slice (f, two, end, last) n = Neg (b) a = Slice (f, nil, two, last)
    r = Concat <axis = -1> (n, a) m = Mul (f, cos) w = Mul (r, sin) s = Add (m, w)
    y = Concat <axis = -1> (s, z)"""


def doubled(cos: str, sin: str, axis: int = -1) -> str:
    """Cosines and sines of angles that stand twice in them."""
    return " ".join(
        f"{name}2 = Slice ({table}, nil, four1, last) {name}1 = Concat <axis = {axis}> "
        f"({name}2, {name}2) {name} = Cos ({name}1)"
        for name, table in (("cos", cos), ("sin", sin))
    )


def rotation(body: str, roles: str = "bbqf") -> str | None:
    """Return what is rotated, the axes of 1 of its tables, and how; None for no rotation."""
    m = ir.from_onnx_text(f'<ir_version: 8, opset_import: ["" : 17]> {HEAD} {{ {body} }}')
    m.graph.outputs[0].shape = None
    view, node = View(m), m.graph[-1]
    long = {x[0]: x for x in ("batch", "query", "key", "feature")}
    dims = view.shapes.dims(node.outputs[0]) or ()
    found = rotation_of(node, operand_layout(dims, [long[x] for x in roles]), view)
    if found is None:
        return None
    rows = " by row" if found.per_row else ""
    half = " halves" if found.half_tables else ""
    cos, sin = ("".join(map(str, axes)) or "-" for axes in found.unit_axes)
    sizes = f"{found.rotary_dim} of {found.width}"
    return f"{found.source.name} {cos} {sin} {sizes}{rows}{half} {found.saved_kernels}"


@pytest.mark.parametrize(
    ("body", "roles", "expected"),
    [
        (f"{doubled('c', 'c')} {TURNED}", "bbqf", "x 0 0 8 of 8 6"),
        (f"{doubled('c', 'c')} {TURNED}", "bbkf", "x 0 0 8 of 8 6"),
        (f"{doubled('flat', 'c')} {TURNED}", "bbqf", "x - 0 8 of 8 6"),
        (f"{doubled('four', 'flat')} {TURNED}", "bbqf", "x 01 - 8 of 8 6"),
        (f"{doubled('rows', 'rows')} {TURNED}", "bbqf", "x 1 1 8 of 8 by row 6"),
        (f"cos = Cos (half) sin = Sin (half) {JOINED}", "bbqf", "x 0 0 8 of 8 halves 6"),
        (f"cos = Cos (halves) sin = Sin (halves) {JOINED}", "bbqf",
         "x 1 1 8 of 8 by row halves 6"),
        # Of one table each row has its own angles, of the other not.
        (f"{doubled('rows', 'c')} {TURNED}", "bbqf", None),
        # Other axes than positions and features.
        (f"{doubled('heads', 'heads')} {TURNED}", "bbqf", None),
        (f"{doubled('other', 'other')} {TURNED}", "bbqf", None),
        (f"{doubled('late', 'late')} {TURNED}", "bbqf", None),
        (f"{doubled('one', 'one')} {TURNED}", "bbqf", None),
        (f"{doubled('c', 'c')} {TURNED}", "bbbf", None),
        (f"{doubled('c', 'c')} {TURNED}", "bbqk", None),
        (f"{doubled('c', 'c')} {TURNED}", "bqbf", None),
        # Both tables hold each number twice.
        (f"{doubled('c', 'c')} {TURNED}".replace("Cos (sin1)", "Cos (c)"), "bbqf", None),
        (f"{doubled('c', 'c')} {TURNED}".replace("Cos (cos1)", "Cos (c)"), "bbqf", None),
        (f"cos = Cos (c) sin = Sin (c) {TURNED}", "bbqf", None),
        # The first features alone.
        (FIRST_HALF.replace("cos", "cc").replace("sin", "ss"), "bbqf", None),
        ("q1 = Concat <axis = -1> (quarter, quarter) cos = Cos (q1) sin = Sin (q1) " + FIRST_HALF,
         "bbqf", "x 0 0 4 of 8 9"),
        ("q1 = Concat <axis = -1> (quarter, quarter) cos = Cos (q1) sin = Sin (q1) "
         + FIRST_HALF.replace("(s, z)", "(z, s)"), "bbqf", None),
        ("q1 = Concat <axis = -1> (quarter, quarter) cos = Cos (q1) sin = Sin (q1) "
         + FIRST_HALF.replace("(s, z)", "(s, z, z)"), "bbqf", None),
        ("q1 = Concat <axis = -1> (quarter, quarter) cos = Cos (q1) sin = Sin (q1) "
         + FIRST_HALF.replace("z = Slice (x, four1, end", "z = Slice (x, nil, four1"), "bbqf",
         None),
        ("q1 = Concat <axis = -1> (quarter, quarter) cos = Cos (q1) sin = Sin (q1) "
         + FIRST_HALF.replace("f = Slice (x, nil, four1", "f = Slice (x, four1, end"), "bbqf",
         None),
        ("q1 = Concat <axis = -1> (quarter, quarter) cos = Cos (q1) sin = Sin (q1) "
         + FIRST_HALF.replace("f = Slice (x", "f = Slice (wide"), "bbqf", None),
        (f"{doubled('c', 'c')} t = Relu (x) y = Add (t, t)", "bbqf", None),
        ("y = Mul (x, x)", "bbqf", None),
    ],
)  # fmt: skip
def test_what_a_rotation_is(body: str, roles: str, expected: str | None) -> None:
    inputs = "ss = Identity (quarter) cc = Identity (quarter)" if "ss)" in body else ""
    assert rotation(f"{inputs} {body}", roles) == expected
