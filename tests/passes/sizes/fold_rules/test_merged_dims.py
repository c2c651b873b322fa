"""fold: dims that are merged for a while and taken apart again, and where they must stay merged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_ir.passes.common import RemoveUnusedNodesPass

import graphfix
from graphfix.engine import pipeline
from graphfix.job import planning
from tests.passes.models import opened, ops

if TYPE_CHECKING:
    from collections.abc import Sequence

VIEWS = {"Reshape", "Squeeze", "Unsqueeze", "Flatten"}
# A batch B, lengths T and S, 2 heads of 4; N is what the batch and the heads are together.
SIZES = """sb = Shape <start = 0, end = 1> (q) st = Shape <start = 2, end = 3> (q)
    ss = Shape <start = 2, end = 3> (k) n = Mul (sb, two)
    as_q = Concat <axis = 0> (n, minus, d) as_k = Concat <axis = 0> (n, ss, d)
    q_out = Concat <axis = 0> (sb, two, st, d) w_out = Concat <axis = 0> (sb, two, st, ss)
    as_w = Concat <axis = 0> (n, st, ss)"""
NUMBERS = """int64[1] one = {1}, int64[1] two = {2}, int64[1] minus = {-1}, int64[1] d = {4},
    float half = {0.5}, int64[1] nought = {0}, int64[1] eight = {8}"""
MERGED = """q3 = Reshape (q, as_q) k3 = Reshape (k, as_k) v3 = Reshape (v, as_k)
    kt = Transpose <perm = [0, 2, 1]> (k3) w3 = MatMul (q3, kt)"""
ENDED = "y3 = MatMul (p3, v3) y = Reshape (y3, q_out)"
QKV = "float[B, 2, T, 4] q, float[B, 2, S, 4] k, float[B, 2, S, 4] v"
OUT = "float[B, 2, T, 4] y"


def attention(
    between: str, *, more: str = "", out: str = OUT, opset: int = 17, ended: str = ENDED
) -> ir.Model:
    return model(
        f"({QKV}{more}) => ({out}) <{NUMBERS}> {{ {SIZES} {MERGED} {between} {ended} }}", opset
    )


def model(text: str, opset: int = 17) -> ir.Model:
    made = ir.from_onnx_text(f'<ir_version: 8, opset_import: ["" : {opset}]> m {text}')
    RemoveUnusedNodesPass()(made)  # sizes that this case needs not
    return made


def views(m: ir.Model) -> int:
    return sum(x in VIEWS for x in ops(m))


def run(m: ir.Model, sizes: dict[str, int]) -> list[np.ndarray]:
    session = opened(m)
    random = np.random.default_rng(0)
    feeds = {}
    for value in m.graph.inputs:
        dims = [x if isinstance(x, int) else sizes[str(x)] for x in value.shape]
        feeds[value.name] = random.normal(size=dims).astype(value.dtype.numpy())
    return session.run(None, feeds)


def folded(m: ir.Model, spec: str = "fold", **sizes: int) -> ir.Model:
    """The model after a pass: the same to the bit, and there is nothing left."""
    after = m.clone()
    graphfix.run(after, spec)
    fresh = ir.from_proto(ir.to_proto(after))
    assert not graphfix.run(fresh, spec).changed
    for given_ in ({"B": 1, "T": 1, "S": 1}, {"B": 3, "T": 5, "S": 2}, {"B": 2, "T": 2, "S": 8}):
        for old, new in zip(run(m, given_ | sizes), run(after, given_ | sizes), strict=True):
            np.testing.assert_array_equal(old, new)
    before, now = planning.count_kernels(m, after).values()
    for where in ("all", "directml", "recompiled"):
        assert now[where] <= before[where]
    return after


SOFT = "p3 = Softmax <axis = -1> (w3)"
PLAIN = ["Transpose", "MatMul", "Softmax", "MatMul"]
MASK = ", float[B, 1, T, S] mask"
MASKED = "w4 = Reshape (w3, w_out) m4 = Add (w4, mask) m3 = Reshape (m4, as_w)"


@pytest.mark.parametrize("spec", ["fold", "directml"])
@pytest.mark.parametrize(
    ("between", "more", "left"),
    [
        (SOFT, "", PLAIN),
        (f"s3 = Mul (w3, half) {SOFT.replace('w3', 's3')}", "", [*PLAIN[:2], "Mul", *PLAIN[2:]]),
        (
            f"{MASKED} p3 = Softmax <axis = 2> (m3)",
            MASK,
            ["Transpose", "MatMul", "Add", "Softmax", "MatMul"],
        ),
        # Of a rank that is the same for each head, and of one that broadcasts the merged dim.
        (
            "a3 = Add (bias, w3) b3 = Add (a3, wide) p3 = Softmax <axis = -1> (b3)",
            ", float[T, S] bias, float[1, T, S] wide",
            ["Transpose", "MatMul", "Add", "Add", "Softmax", "MatMul"],
        ),
        (
            "c3 = MatMul (w3, turn) l3 = LogSoftmax <axis = -1> (c3) p3 = Where (some, l3, w3)",
            ", float[S, S] turn, bool[1, T, S] some",
            ["Transpose", "MatMul", "MatMul", "LogSoftmax", "Where", "MatMul"],
        ),
    ],
)
def test_an_attention_is_computed_with_its_heads_apart(
    between: str, more: str, left: list[str], spec: str
) -> None:
    assert ops(folded(attention(between, more=more), spec)) == left


RELATIVE = """at = Mod (spots, ss) each = Concat <axis = 0> (n, one, one)
    index = Expand (at, each) g3 = GatherElements <axis = AXIS> (w3, index)
    p3 = Softmax <axis = -1> (g3)"""


@pytest.mark.parametrize(
    ("between", "ended", "left"),
    [
        # Relative positions: one matrix of indices for all rows and heads, as VITS has them.
        (RELATIVE.replace("AXIS", "2"), ENDED, 0),
        (RELATIVE.replace("AXIS", "-1"), ENDED, 0),
        (RELATIVE.replace("at =", "a = Cast <to = 7> (spots) b = Mod (a, ss) at =").replace(
            "Mod (spots, ss) each", "Unsqueeze (b, nought) each").replace("AXIS", "2"), ENDED, 1),
        # Indices that are no expanded matrix, and other rows and heads.
        (
            RELATIVE.replace("index = Expand (at, each)", "e = Expand (at, each) index = Abs (e)")
            .replace("AXIS", "2"),
            ENDED,
            4,
        ),
        (RELATIVE.replace("AXIS", "0").replace("Mod (spots, ss)", "Mod (spots, two)"), ENDED, 4),
        # What is put around rows and columns, and around heads.
        (
            f"r3 = Pad (w3, pads) {SOFT.replace('w3', 'r3')}",
            "y3 = MatMul (p3, v3) up = Add (st, one) to = Concat <axis = 0> (sb, two, up, d)"
            " y = Reshape (y3, to)",
            0,
        ),
        # A size of a dim that is as it was.
        (
            "s = Shape <start = 1, end = 2> (w3) f = Cast <to = 1> (s) m3 = Mul (w3, f)"
            " p3 = Softmax <axis = -1> (m3)",
            ENDED,
            0,
        ),
        (
            "s = Shape <start = 0, end = 1> (w3) f = Cast <to = 1> (s) m3 = Mul (w3, f)"
            " p3 = Softmax <axis = -1> (m3)",
            ENDED,
            None,
        ),
    ],
)  # fmt: skip
def test_what_goes_by_rows_and_columns_does_with_heads_apart(
    between: str, ended: str, left: int | None
) -> None:
    text = f"""({QKV}, int64[T, S] spots) => (float[B, 2, U, 4] y) <{NUMBERS},
        int64[6] pads = {{0, 1, 0, 0, 0, 0}}> {{ {SIZES} {MERGED} {between} {ended} }}"""
    after = folded(model(text))
    if left is not None:
        assert views(after) == left


@pytest.mark.parametrize(
    "between",
    [
        "r3 = Pad (w3, ends, , rows) p3 = Softmax <axis = -1> (r3)",
        "a3 = Sinh (w3) r3 = Pad (a3, ends, , rows) p3 = Hardmax <axis = -1> (r3)",
    ],
)
def test_pads_of_named_axes_and_what_goes_along_the_last(between: str) -> None:
    text = f"""({QKV}) => (float[B, 2, U, 4] y) <{NUMBERS}, int64[2] ends = {{1, 0}},
        int64[1] rows = {{-2}}> {{ {SIZES} {MERGED} {between} y3 = MatMul (p3, v3)
        up = Add (st, one) to = Concat <axis = 0> (sb, two, up, d) y = Reshape (y3, to) }}"""
    after = folded(model(text, 18))
    assert views(after) == 0


def test_softmax_before_opset_13_counts_its_axis_anew() -> None:
    text = f"""({QKV}) => ({OUT}) <{NUMBERS}, int64[3] as_q = {{-1, 5, 4}},
        int64[4] q_out = {{-1, 2, 5, 4}}> {{
        q3 = Reshape (q, as_q) p3 = Softmax <axis = AXIS> (q3) y = Reshape (p3, q_out) }}"""
    text = text.replace("T, 4]", "5, 4]")
    for axis in (1, 2, -1):
        after = folded(model(text.replace("AXIS", str(axis)), 11))
        assert ops(after) == ["Softmax"]
        assert after.graph[0].attributes["axis"].as_int() == axis % 3 + 1
    assert "Reshape" in ops(folded(model(text.replace("AXIS", "0"), 11)))


def test_a_mask_of_one_row_for_each_head_and_a_batch_is_had_at_once() -> None:
    """As BLOOM adds it: [B, H, S] is made [B*H, 1, S]."""
    after = folded(
        attention(
            """as_row = Concat <axis = 0> (n, one, ss) row = Reshape (slopes, as_row)
            a3 = Add (w3, row) p3 = Softmax <axis = -1> (a3)""",
            more=", float[B, 2, S] slopes",
        )
    )
    assert sorted(ops(after)) == sorted([*PLAIN, "Add", "Unsqueeze"])


TIME_FIRST = """(float[T, B, 8] x, float[S, B, 8] z) => (OUTS) <int64[1] two = {2},
    int64[1] d = {4}, int64[1] e = {8}, int64[1] minus = {-1}, int64[4] back = {-1, 2, 1, 4}> {
    st = Shape <start = 0, end = 1> (x) sb = Shape <start = 1, end = 2> (x)
    ss = Shape <start = 0, end = 1> (z) n = Mul (sb, two)
    as_q = Concat <axis = 0> (st, n, d) as_k = Concat <axis = 0> (ss, n, d)
    q3 = Reshape (x, as_q) k3 = Reshape (z, as_k)
    q = Transpose <perm = [1, 0, 2]> (q3) k = Transpose <perm = [1, 2, 0]> (k3)
    v = Transpose <perm = [1, 0, 2]> (k3) w = MatMul (q, k) p = Softmax <axis = -1> (w)
    y3 = MatMul (p, v) yt = Transpose <perm = [1, 0, 2]> (y3)
    as_y = Concat <axis = 0> (st, sb, e) y = Reshape (yt, as_y)
    as_w = Concat <axis = 0> (sb, two, st, ss) weights = Reshape (p, as_w) ENDS }"""


def test_a_merge_that_splits_the_features_as_well_does_only_that() -> None:
    """As nn.MultiheadAttention writes it: [T, B, E] to [T, B*H, D]; the weights of each head."""
    text = TIME_FIRST.replace("OUTS", "float[T, B, 8] y, float[B, T, S] mean")
    text = text.replace("ENDS", "mean = ReduceMean <axes = [1], keepdims = 0> (weights)")
    after = folded(model(text))
    assert ops(after).count("Reshape") == 3
    assert views(after) == 3


def test_an_output_keeps_its_name_and_is_no_copy() -> None:
    text = TIME_FIRST.replace("OUTS", "float[T, B, 8] y, float[B, 2, T, S] weights")
    after = folded(model(text.replace("ENDS", "")))
    assert views(after) == 4  # nothing would be won
    weights = "float[B, 2, T, S] weights"
    both = attention(f"{SOFT} weights = Reshape (p3, w_out)", out=f"{OUT}, {weights}")
    after = folded(both)
    assert ops(after) == PLAIN
    assert [x.name for x in after.graph.outputs] == ["y", "weights"]
    assert after.graph.outputs[1].producer().op_type == "Softmax"


def test_an_output_that_is_made_last_keeps_its_name_as_well() -> None:
    weights = "float[B, 2, T, S] weights"
    ended = f"{ENDED} weights = Reshape (p3, w_out)"
    after = folded(attention(SOFT, out=f"{OUT}, {weights}", ended=ended))
    assert ops(after) == PLAIN
    assert {x.name for x in after.graph.outputs} == {"y", "weights"}


def test_an_input_that_is_merged_and_split_for_an_output_keeps_its_name() -> None:
    out = f"{OUT}, float[B, 2, S, 4] keys"
    ended = f"k_out = Concat <axis = 0> (sb, two, ss, d) keys = Reshape (k3, k_out) {ENDED}"
    after = folded(attention(SOFT, out=out, ended=ended))
    assert sorted(ops(after)) == sorted([*PLAIN, "Identity"])
    assert [x.name for x in (*after.graph.inputs, *after.graph.outputs)] == [*"qkvy", "keys"]


def test_a_batch_of_one_need_not_be_left_out() -> None:
    after = folded(
        model("""(float[1, 2, T, 4] q, float[1, 2, 4, S] k, float[1, 1, T, S] mask)
        => (float[1, 2, T, S] y) <int64[1] nought = {0}> {
            q3 = Squeeze (q, nought) k3 = Squeeze (k, nought) w3 = MatMul (q3, k3)
            w4 = Unsqueeze (w3, nought) y = Add (w4, mask) }""")
    )
    assert ops(after) == ["MatMul", "Add"]


def test_what_is_made_keeps_the_names_and_modules_of_nodes() -> None:
    m = attention(SOFT)
    for node in m.graph:
        node.name = f"node_{node.outputs[0].name}"
        node.metadata_props["pkg.torch.onnx.name_scopes"] = "['layer']"
    after = folded(m)
    assert [x.name for x in after.graph][1:3] == ["node_w3", "node_p3"]
    for node in after.graph:
        assert node.metadata_props["pkg.torch.onnx.name_scopes"] == "['layer']"
        assert node.metadata_props["graphfix.pass"] == "fold"


def test_numbers_of_one_scale_are_as_good() -> None:
    between = """z3 = QuantizeLinear (w3, half, z) f3 = DequantizeLinear (z3, half, z)
        p3 = Softmax <axis = -1> (f3)"""
    m = model(
        f"({QKV}) => ({OUT}) <{NUMBERS}, uint8 z = {{3}}> {{ {SIZES} {MERGED} {between} {ENDED} }}"
    )
    assert views(folded(m)) == 0


LEFT = {
    "an output that is merged": (attention(SOFT, out=f"{OUT}, float[N, T, S] p3"), 4),
    "an input that is merged": (
        attention(
            "a3 = Add (w3, given_) p3 = Softmax <axis = -1> (a3)", more=", float[N, T, S] given_"
        ),
        4,
    ),
    "one that needs the whole": (
        attention(
            "sum = ReduceSum <keepdims = 1> (w3, nought) a3 = Div (w3, sum)"
            " p3 = Softmax <axis = -1> (a3)"
        ),
        4,
    ),
    "one that goes along it": (attention("p3 = Softmax <axis = 0> (w3)"), 4),
    "more dims than DirectML multiplies": (
        model("""(float[B, R, 2, T, 4] q, float[B, R, 2, 4, S] k) => (float[B, R, 2, T, S] y)
        <int64[1] two = {2}, int64[1] d = {4}> {
            sb = Shape <start = 0, end = 1> (q) sc = Shape <start = 1, end = 2> (q)
            st = Shape <start = 3, end = 4> (q) ss = Shape <start = 4> (k)
            bc = Mul (sb, sc) n = Mul (bc, two)
            as_q = Concat <axis = 0> (n, st, d) as_k = Concat <axis = 0> (n, d, ss)
            q3 = Reshape (q, as_q) k3 = Reshape (k, as_k) w3 = MatMul (q3, k3)
            as_w = Concat <axis = 0> (sb, sc, two, st, ss) y = Reshape (w3, as_w) }"""),
        3,
    ),
    "rows of a product": (
        model("""(float[2, 4, 8] x) => (float[2, 4, 8] y)
        <int64[2] flat = {8, 8}, int64[3] back = {2, 4, 8}> {
            x2 = Reshape (x, flat) w2 = MatMul (x2, x2) y = Reshape (w2, back) }"""),
        2,
    ),
    "rows of a Gemm": (
        model("""(float[B, T, 8] x, float[8, 6] w) => (float[B, T, 6] y)
        <int64[2] flat = {-1, 8}, int64[1] six = {6}> {
            b = Shape <end = 2> (x) x2 = Reshape (x, flat) w2 = Gemm (x2, w) r2 = Relu (w2)
            to = Concat <axis = 0> (b, six) y = Reshape (r2, to) }"""),
        2,
    ),
    "a scale for each": (
        model("""(float[2, 2, T, 4] x) => (float[2, 2, T, 4] y)
        <int64[3] flat = {4, -1, 4}, int64[4] back = {2, 2, -1, 4},
         float[4] scale = {1, 2, 3, 4}, int8[4] z = {0, 0, 0, 0}> {
            x3 = Reshape (x, flat) q3 = QuantizeLinear <axis = 0> (x3, scale, z)
            f3 = DequantizeLinear <axis = 0> (q3, scale, z) y = Reshape (f3, back) }"""),
        2,
    ),
    "a mask of one row, as an attention takes it": (
        model("""(int64[1, T] index, int64[B] length) => (float[B, 1, 1, T] y)
        <int64[1] one = {1}, int64[2] heads = {1, 2}> {
            rows = Unsqueeze (length, one) m = Less (index, rows) m4 = Unsqueeze (m, heads)
            y = Cast <to = 1> (m4) }"""),
        2,
    ),
    "a dim that a lower one of another tensor would miss": (
        model("""(float[T, B, 2, 4] q, float[T, 1, 4] bias) => (float[T, B, 2, 4] y)
        <int64[1] two = {2}, int64[1] d = {4}> {
            st = Shape <end = 1> (q) sb = Shape <start = 1, end = 2> (q) n = Mul (sb, two)
            to = Concat <axis = 0> (st, n, d) q3 = Reshape (q, to) a3 = Add (q3, bias)
            back = Shape (q) y = Reshape (a3, back) }"""),
        2,
    ),
    "heads that lie the other way round": (
        attention(
            SOFT,
            ended="y3 = MatMul (p3, v3) other = Concat <axis = 0> (two, sb, st, d)"
            " y = Reshape (y3, other)",
            out="float[2, B, T, 4] y",
        ),
        None,
    ),
}


@pytest.mark.parametrize("case", LEFT)
def test_what_must_stay_merged_does(case: str) -> None:
    m, kept = LEFT[case]
    after = folded(m, R=3) if "input" not in case else _only_one(m)
    if kept is not None:
        assert views(after) == kept


def _only_one(m: ir.Model) -> ir.Model:
    after = m.clone()
    graphfix.run(after, "fold")
    for sizes in ({"B": 1, "T": 2, "S": 3, "N": 2}, {"B": 2, "T": 1, "S": 2, "N": 4}):
        for old, new in zip(run(m, sizes), run(after, sizes), strict=True):
            np.testing.assert_array_equal(old, new)
    return after


def test_a_view_may_start_one_region_and_end_another() -> None:
    m = model("""(float[2, 4, 5] x) => (float[2, 4, 1, 5] y)
        <int64[2] flat = {8, 5}, int64[1] one = {1}, int64[4] back = {2, 4, 1, 5}> {
            x2 = Reshape (x, flat) r2 = Relu (x2) r3 = Unsqueeze (r2, one) e3 = Exp (r3)
            e4 = Reshape (e3, back) y = Neg (e4) }""")
    assert views(folded(m)) == 1


# Of a tensor {0} with the merged dim, and one of the same shape {1}: [N, T, T].
STEPS = {
    "scale": "Mul ({0}, half)",
    "sum": "Add ({0}, {1})",
    "choose": "Where (some, {0}, {1})",
    "softmax": "Softmax <axis = -1> ({0})",
    "turn": "Transpose <perm = [0, 2, 1]> ({0})",
    "product": "MatMul ({0}, {1})",
    "weight": "MatMul ({0}, square)",
    "row": "Sub (row, {0})",
    "apart": "Reshape ({0}, apart)",
    "head": "Add ({0}, head)",
    "whole": "CumSum ({0}, first)",
    "gather": "GatherElements <axis = 1> ({0}, spots)",
    "pad": "Pad ({0}, nothing)",
}


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(sorted(STEPS)), *[st.integers(0, 3)] * 2), max_size=9),
    st.lists(st.integers(0, 9), min_size=1, max_size=3),
    st.sampled_from([13, 17]),
)
def test_any_region_computes_every_bit(
    steps: Sequence[tuple[str, int, int]], read: Sequence[int], opset: int
) -> None:
    """Some steps go back to what has the dims apart; some need them merged; some are outputs."""
    lines = ["m0 = Reshape (x, whole)", "m1 = Reshape (z, whole)"]
    merged, split = ["m0", "m1"], list[str]()
    for i, (step, first, second) in enumerate(steps):
        one, other = merged[-1 - first % len(merged)], merged[-1 - second % len(merged)]
        made = f"v{i}"
        lines.append(f"{made} = {STEPS[step].format(one, other)}")
        if step == "apart":
            split.append(made)
            lines += [f"a{i} = Add ({made}, mask)", f"m{i + 2} = Reshape (a{i}, whole)"]
            made = f"m{i + 2}"
        merged.append(made)
    all_ = merged + split
    outputs = list(dict.fromkeys(all_[-1 - k % len(all_)] for k in read))
    for i, name in enumerate(outputs):
        end = f"Reshape ({name}, apart)" if name in merged and i < 2 else f"Identity ({name})"
        lines.append(f"y{i} = {end}")
    dims = ["B, 2, T, T" if i < 2 or x in split else "N, T, T" for i, x in enumerate(outputs)]
    made = ", ".join(f"float[{x}] y{i}" for i, x in enumerate(dims))
    text = f"""(float[B, 2, T, T] x, float[B, 2, T, T] z, float[B, 1, T, T] mask,
        float[T, T] square, float[1, 1, T] row, bool[1, T, T] some, int64[T, T] at)
        => ({made}) <int64[6] nothing = {{0, 0, 0, 0, 0, 0}},
         int64[1] nought = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] last = {{3}},
         int64[1] minus = {{-1}}, int64 first = {{0}}, float half = {{0.5}}, float head = {{3}}> {{
            sizes = Shape (x) sb = Slice (sizes, nought, one) st = Slice (sizes, two, last)
            n = Mul (sb, two) whole = Concat <axis = 0> (n, minus, st)
            apart = Concat <axis = 0> (sb, two, st, st) ones = Concat <axis = 0> (n, one, one)
            inside = Mod (at, st) spots = Expand (inside, ones) {" ".join(lines)} }}"""
    m = model(text, opset)
    for spec in ("fold", "unflatten-heads,fold"):
        after = m.clone()
        graphfix.run(after, spec)
        fresh = ir.from_proto(ir.to_proto(after))
        assert not graphfix.run(fresh, spec).changed
        assert views(after) <= views(m) + (spec != "fold") * len(ops(m))
        for sizes in ({"B": 1, "T": 1}, {"B": 2, "T": 3}, {"B": 3, "T": 2}):
            for old, new in zip(run(m, sizes), run(after, sizes), strict=True):
                np.testing.assert_array_equal(old, new)


MIXED = (
    "turn",
    "merge",
    "merge",
    "split",
    "split",
    "one",
    "drop",
    "Relu",
    "Softmax",
    "Add",
    "MatMul",
)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_views_and_products_in_any_order_compute_every_bit(data: st.DataObject) -> None:
    """Axes are lists of what they are made of; each step takes one of the last few tensors."""
    axes: dict[str, list[list[str | int]]] = {"x": [["sb"], [2], ["st"], [3]]}
    lines = ["sb = Shape <start = 0, end = 1> (x) st = Shape <start = 2, end = 3> (x)"]
    for i, step in enumerate(data.draw(st.lists(st.sampled_from(MIXED), max_size=10))):
        name = data.draw(st.sampled_from(list(axes)[-3:]))
        given_, made = axes[name], f"t{i}"
        place = data.draw(st.integers(0, max(0, len(given_) - 1)))
        new = [*given_]
        if step == "turn":
            perm = data.draw(st.permutations(range(len(given_))))
            new = [given_[x] for x in perm]
            lines.append(f"{made} = Transpose <perm = {list(perm)}> ({name})")
        elif step == "MatMul" and 2 <= len(given_) <= 4:
            new = [*given_[:-1], given_[-2]]
            perm = [*range(len(given_) - 2), len(given_) - 1, len(given_) - 2]
            lines.append(f"u{i} = Transpose <perm = {perm}> ({name})")
            lines.append(f"{made} = MatMul ({name}, u{i})")
        elif step == "Softmax" and given_:
            lines.append(f"{made} = Softmax <axis = {place}> ({name})")
        elif step == "Add":
            same = [x for x, dims in axes.items() if dims == given_]
            lines.append(f"{made} = Add ({name}, {data.draw(st.sampled_from(same))})")
        elif step == "Relu":
            lines.append(f"{made} = Relu ({name})")
        else:
            if step == "merge" and place + 1 < len(given_):
                new[place : place + 2] = [[*given_[place], *given_[place + 1]]]
            elif step == "split" and len(given_) < 6 and len(given_[place]) > 1:
                new[place : place + 1] = [given_[place][:1], given_[place][1:]]
            elif step == "one" and len(given_) < 6:
                new.insert(place, [])
            elif step == "drop" and [] in given_:
                new.remove([])
            else:
                continue
            lines += [_size(axis, f"s{i}_{k}") for k, axis in enumerate(new)]
            pieces = ", ".join(f"s{i}_{k}" for k in range(len(new)))
            lines.append(f"s{i} = Concat <axis = 0> ({pieces}) {made} = Reshape ({name}, s{i})")
        axes[made] = new
    outputs = list(dict.fromkeys([list(axes)[-1], data.draw(st.sampled_from(list(axes)))]))
    dims = [", ".join("PQRUVWZ"[: len(axes[x])]) for x in outputs]
    made = ", ".join(f"float[{x}] y{i}" for i, x in enumerate(dims))
    last = " ".join(f"y{i} = Neg ({x})" for i, x in enumerate(outputs))
    m = model(f"(float[B, 2, T, 3] x) => ({made}) {{ {' '.join(lines)} {last} }}")
    for spec in ("fold", "unflatten-heads,fold"):
        after = m.clone()
        graphfix.run(after, spec)
        for sizes in ({"B": 1, "T": 1}, {"B": 2, "T": 5}, {"B": 3, "T": 2}):
            for old, new_ in zip(run(m, sizes), run(after, sizes), strict=True):
                np.testing.assert_array_equal(old, new_)
        if spec == "fold":
            assert views(after) <= views(m)
        fresh = ir.from_proto(ir.to_proto(after))
        assert not graphfix.run(fresh, spec).changed


def _size(axis: Sequence[str | int], name: str) -> str:
    """Nodes that make ``name`` the product of sizes."""
    number = int(np.prod([x for x in axis if isinstance(x, int)], dtype=int))
    lines, last = [f"{name}_c = Constant <value_ints = [{number}]> ()"], f"{name}_c"
    for k, size in enumerate(x for x in axis if isinstance(x, str)):
        lines.append(f"{name}_{k} = Mul ({last}, {size})")
        last = f"{name}_{k}"
    return " ".join([*lines, f"{name} = Identity ({last})"])


# --- the axis that a Reduce drops ---------------------------------------------------------------


LENGTHS = """(int64[B, T] mask, int64[B, S] x, float[B, T, 2] f) => ({out})
    <int64[1] at = {{1}}, int64[1] in_front = {{0}}, int64 k = {{2}}, int64 one = {{1}},
     int64 zero = {{0}}> {{ {body} }}"""


@pytest.mark.parametrize("opset", [11, 17, 18])
@pytest.mark.parametrize(
    ("body", "out"),
    [
        ("n = S (mask) c = Unsqueeze (n, at) y = Less (x, c)", "bool[B, S] y"),
        # Lengths after two convolutions, each of them a mask.
        (
            """n = S (mask) n1 = Div (n, k) c = Unsqueeze (n1, at) y = Less (x, c)
            n2 = Sub (n1, one) m = Mul (n2, n1) f2 = Cast <to = 1> (m) g = Sqrt (f2)
            i = Cast <to = 7> (g) d = Unsqueeze (i, at) z = Less (x, d)""",
            "bool[B, S] y, bool[B, S] z",
        ),
    ],
)
def test_lengths_keep_the_axis_that_they_are_summed_over(body: str, out: str, opset: int) -> None:
    before = lengths(body, out, opset)
    after = before.clone()
    assert graphfix.run(after, "fold").changed
    assert not graphfix.run(after, "fold").changed
    assert not views(after)
    assert len(ops(after)) == len(ops(before)) - body.count("Unsqueeze")
    for sizes in ({"B": 2, "T": 5, "S": 4}, {"B": 1, "T": 1, "S": 1}, {"B": 3, "T": 0, "S": 2}):
        for old, new in zip(run(before, sizes), run(after, sizes), strict=True):
            np.testing.assert_array_equal(old, new)


def test_any_reduction_keeps_its_axis() -> None:
    body = "n = ReduceProd <keepdims = 0> (mask, at) c = Unsqueeze (n, at) y = Less (x, c)"
    before = lengths(body, "bool[B, S] y", 18)
    after = before.clone()
    graphfix.run(after, "fold")
    assert not views(after)
    sizes = {"B": 2, "T": 5, "S": 4}
    np.testing.assert_array_equal(run(before, sizes), run(after, sizes))


def lengths(body: str, out: str, opset: int = 17) -> ir.Model:
    sums = "ReduceSum <axes = [1], keepdims = 0> (mask)"
    if opset < 13:
        body = body.replace(", at)", ")").replace("Unsqueeze (", "Unsqueeze <axes = [1]> (")
    else:
        sums = "ReduceSum <keepdims = 0> (mask, at)"
    return model(LENGTHS.format(body=body.replace("S (mask)", sums), out=out), opset)


@pytest.mark.parametrize(
    ("body", "out"),
    [
        ("n = S (mask) c = Unsqueeze (n, in_front) y = Neg (c)", "int64[1, B] y"),
        (
            "n = S (mask) c = Unsqueeze (n, at) y = Less (x, c) z = Neg (n)",
            "bool[B, S] y, int64[B] z",
        ),
        ("n = S (mask) c = Unsqueeze (n, at) y = Less (x, c)", "bool[B, S] y, int64[B] n"),
        ("n = S (mask) m = CumSum (n, zero) c = Unsqueeze (m, at) y = Less (x, c)", "bool[B, S] y"),
    ],
)
def test_lengths_that_something_needs_as_a_list(body: str, out: str) -> None:
    m = lengths(body, out)
    graphfix.run(m, "fold")
    assert views(m) == 1


@pytest.mark.parametrize("perm", ["[0]", "[1, 0]", "[0, 0, 1]", "[0, 2, 3]"])
def test_a_transpose_that_does_not_fit_its_input_is_left(perm: str) -> None:
    """ONNX Runtime loads it where it does not know the rank, such as behind an LSTM."""
    made = model(
        f"""(float[T, 1, B, 8] x) => (y) <int64[1] axis = {{1}}>
        {{ r = Relu (x) s = Squeeze (r, axis) y = Transpose <perm = {perm}> (s) }}"""
    )
    (fold,) = pipeline.resolve_passes("fold")
    assert not list(fold.sites(made))
