"""group-heads: parts of each head that are put in rows, and what is left."""

from __future__ import annotations

import onnx_ir as ir
import pytest

import graphfix
from graphfix.proof.verify import verify
from tests.passes.models import ops

# Two heads of three parts of two features: [4, 12].
W = f"float[4, 12] w = {{{', '.join(str(i % 7 - 3) for i in range(48))}}}"
B = f"float[12] b = {{{', '.join(map(str, range(12)))}}}"

DIMS = {
    "hk": "[I, J, 2, 2]",
    "n": "[I, J, M]",
    "hn": "[I, J, 2, 2]",
    "p": "[I, J, 12]",
    "l": "[I, J, 8]",
    "r": "[I, J, 1, 4]",
    "s": "[I, J, L, M]",
    "g": "[I, J, 2, M]",
    "m": "[I, J, 2, 2]",
}


def model(body: str, opset: int = 17, out: str = "q k v", inputs: str = "") -> ir.Model:
    outputs = ", ".join(
        "int64[3] z" if n == "z" else f"float{DIMS.get(n, '[I, J, K]')} {n}" for n in out.split()
    )
    return ir.from_onnx_text(
        f'<ir_version: 8, opset_import: ["" : {opset}]> '
        f"m (float[B, T, 4] x{inputs}) => ({outputs}) "
        f"<{W}, {B}, int64[4] heads = {{0, 0, 2, 6}}, int64[5] parts = {{0, 0, 2, 3, 2}}, "
        "int64[3] rows = {0, 0, 4}, int64 nought = {0}, int64 one = {1}, int64 last = {-1}, "
        "int64[1] start = {0}, int64[1] one_row = {1}, int64[1] two = {2}, int64[1] four = {4}, "
        f"int64[1] end = {{6}}, int64[1] behind = {{-1}}> {{ {body} }}"
    )


ROWS = "q = Reshape (hq, rows) k = Reshape (hk, rows) v = Reshape (hv, rows)"
SPLIT = "p = MatMul (x, w) h = Reshape (p, heads) hq, hk, hv = Split <axis = 3> (h)"
BIASED = SPLIT.replace("h = Reshape (p", "s = Add (p, b) h = Reshape (s")
GATHERED = """p = MatMul (x, w) s = Add (b, p) h = Reshape (s, parts)
    hq = Gather <axis = 3> (h, nought) hk = Gather <axis = -2> (h, one)
    hv = Gather <axis = 3> (h, last)"""
SLICED = """p = MatMul (x, w) h = Reshape (p, heads) hq = Slice (h, start, two, behind)
    hk = Slice (h, two, four, behind) hv = Slice (h, four, end, behind)"""
MOVED = """p = MatMul (x, w) h = Reshape (p, heads) t = Transpose <perm = [0, 2, 1, 3]> (h)
    tq, tk, tv = Split <axis = -1> (t) hq = Transpose <perm = [0, 2, 1, 3]> (tq)
    hk = Transpose <perm = [0, 2, 1, 3]> (tk) hv = Transpose <perm = [0, 2, 1, 3]> (tv)"""
GROUPED = {
    "split": f"{SPLIT} {ROWS}",
    "split, with a bias": f"{BIASED} {ROWS}",
    "gathered, with a bias": f"{GATHERED} {ROWS}",
    "sliced": f"{SLICED} {ROWS}",
    "moved and moved back": f"{MOVED} {ROWS}",
}


@pytest.mark.parametrize("opset", [13, 17, 18])
@pytest.mark.parametrize("case", GROUPED)
def test_one_product_makes_all_in_rows(case: str, opset: int) -> None:
    body = GROUPED[case]
    if opset == 18:
        body = body.replace("Split <", "Split <num_outputs = 3, ")
    before, after = model(body, opset), model(body, opset)
    assert len(graphfix.run(after, "group-heads").passes[0].changes) == 3
    data = [x.op_type for x in after.graph if not _sources(x) & {"w", "b"}]
    data = [x for x in data if x != "Identity"]  # two of the three outputs keep their names so
    assert data == ["MatMul", *["Add"] * ("bias" in case), "Split"]
    verdict = verify(before, after)
    assert verdict.ok, verdict.reason
    assert not graphfix.run(after, "group-heads").changed


def _sources(node: ir.Node) -> set[str]:
    """The weights that a node orders; none of one that works on data."""
    found = {x.name for x in node.inputs if x is not None}
    makers = [x.producer() for x in node.inputs if x is not None]
    orders = node.op_type in ("Reshape", "Transpose")
    return found.union(*(_sources(x) for x in makers if x is not None)) if orders else set()


def test_a_part_that_nobody_reads() -> None:
    after = model(f"{SPLIT} q = Reshape (hq, rows) v = Reshape (hv, rows)", out="q v")
    assert len(graphfix.run(after, "group-heads").passes[0].changes) == 2
    assert "Split" in ops(after)


BEFORE = "p = MatMul (x, w) h = Reshape (p, heads) t = Transpose <perm = [0, 2, 1, 3]> (h)"
ASIDE = {
    # Keys and queries of DeBERTa meet positions as heads, before attention has them in rows.
    "heads come before time": (
        f"""{BEFORE} tq, tk, tv = Split <axis = -1> (t)
        turned = Transpose <perm = [0, 1, 3, 2]> (tk) s = MatMul (tq, turned)
        hq = Transpose <perm = [0, 2, 1, 3]> (tq) hk = Transpose <perm = [0, 2, 1, 3]> (tk)
        hv = Transpose <perm = [0, 2, 1, 3]> (tv) {ROWS}""",
        "q k v s",
        ["MatMul", "Split", *["Reshape", "Transpose"] * 2, "Transpose", "MatMul"],
    ),
    "a half of each head": (
        f"{SPLIT} {ROWS} g = Slice (hk, start, one_row, behind)",
        "q k v g",
        ["MatMul", "Split", "Reshape", "Slice"],
    ),
    "time comes first": (
        f"{SPLIT} {ROWS} hn = Neg (hq) m = Mul (hn, hq)",
        "q k v m",
        ["MatMul", "Split", "Reshape", "Neg", "Mul"],
    ),
    "rows of another kind": (
        f"{SPLIT} {ROWS} t = Transpose <perm = [0, 2, 1, 3]> (hv) u = Reshape (t, rows)",
        "q k v u",
        ["MatMul", "Split", "Reshape", "Transpose", "Reshape"],
    ),
    "a Shape of some of the whole": (
        f"{SPLIT} {ROWS} z = Shape <start = 0, end = -1> (h)",
        "q k v z",
        ["MatMul", "Split", "Reshape", "Shape"],
    ),
}


@pytest.mark.parametrize("case", ASIDE)
def test_who_reads_heads_gets_them_from_the_rows(case: str) -> None:
    body, out, kernels = ASIDE[case]
    before, after = model(body, out=out), model(body, out=out)
    assert len(graphfix.run(after, "group-heads").passes[0].changes) == 3
    data = [x.op_type for x in after.graph if not _sources(x) & {"w", "b"}]
    assert sorted(x for x in data if x != "Identity") == sorted(kernels)
    verdict = verify(before, after)
    assert verdict.ok, verdict.reason
    assert not graphfix.run(after, "group-heads").changed


OVERLAP = """p = MatMul (x, w) h = Reshape (p, heads) from = Constant <value_ints = [1]> ()
    to = Constant <value_ints = [3]> () hq = Slice (h, from, to, behind) q = Reshape (hq, rows)"""
LARGE = """wide = Constant <value_ints = [0, 0, 8]> () hl = Slice (h, two, end, behind)
    l = Reshape (hl, wide)"""
MIXED = """p = MatMul (x, w) half = Constant <value_ints = [0, -1, 1, 6]> () h = Reshape (p, half)
    hq, hk, hv = Split <axis = 3> (h) pair = Constant <value_ints = [0, 0, 2]> ()
    q = Reshape (hq, pair)"""
LEFT = {
    "more parts go elsewhere than into rows": (
        f"{SPLIT} q = Reshape (hq, rows) hn = Neg (hk) r = Neg (hv)",
        "q hn r",
    ),
    "a Shape reads how many features there are": (f"{SPLIT} {ROWS} z = Shape (h)", "q k v"),
    "all parts go elsewhere at once": (f"{SPLIT} {ROWS} n = Neg (h)", "q k v"),
    "the product is an output": (f"{SPLIT} {ROWS}", "q k v p"),
    "a head is an output": (f"{SPLIT} {ROWS}", "q k v hk"),
    "parts of two sizes": (f"{SLICED} {ROWS} {LARGE}", "q k v l"),
    "a part from the middle of two": (OVERLAP, "q"),
    "rows are in another order": (
        f"""{SPLIT} n = Shape (x) rs = Slice (n, start, one_row) ts = Slice (n, one_row, two)
        to = Concat <axis = 0> (ts, rs, four) q = Reshape (hq, to)""",
        "q",
    ),
    "what is added is computed": (f"m = Neg (x) c = MatMul (m, w2) {BIASED} {ROWS}", "q k v"),
    "rows are halved": (MIXED, "q"),
    "heads lie along two axes": (
        """p = MatMul (x, w) two_axes = Constant <value_ints = [0, 0, 1, 2, 6]> ()
        h = Reshape (p, two_axes) hq, hk, hv = Split <axis = -1> (h)
        one_axis = Constant <value_ints = [0, 0, 1, 4]> () r = Reshape (hq, one_axis)""",
        "r",
    ),
}


@pytest.mark.parametrize("case", LEFT)
def test_what_is_left(case: str) -> None:
    body, out = LEFT[case]
    if "computed" in case:
        body = body.replace("w2", "given").replace("(p, b)", "(p, c)")
    left = model(body, out=out, inputs=", float[4, 12] given")
    assert not graphfix.run(left, "group-heads").changed
