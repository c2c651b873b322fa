"""window-3d: windows that keep to themselves are computed one by one; all others are left alone."""

from __future__ import annotations

import re

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfix
from tests.passes.models import opened

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
PLACES = """t1 = Shape <start = 1, end = 2> (x) t0 = Squeeze (t1)
    at = Range (zero, t0, one)"""
BOTH = "row = Unsqueeze (w, second) col = Unsqueeze (w, first)"
HIDE = "hidden = Not (same) hf = Cast <to = 1> (hidden) addend = Mul (hf, floor)"

# What makes an addend [T, T] of the places, for windows of {W}.
MASKS = {
    "floor division": f"w = Div (at, width) {BOTH} same = Equal (row, col) {HIDE}",
    "as dynamo divides": f"""neg = Less (at, zero) nt = Equal (neg, yes) rest = Mod (at, width)
        some = Cast <to = 9> (rest) both = And (nt, some) off = Cast <to = 7> (both)
        cut = Div (at, width) w = Sub (cut, off) {BOTH} same = Equal (row, col) {HIDE}""",
    "as dynamo rounds": f"""atf = Cast <to = 1> (at) q = Div (atf, widthf) wf = Floor (q)
        w = Cast <to = 7> (wf) {BOTH} same = Equal (row, col) {HIDE}""",
    "as TorchScript rounds": f"""q = Div (at, width) neg = Less (at, zero) xor = Xor (neg, no)
        rest = Mod (at, width) even = Equal (rest, zero) odd = Not (even) both = And (xor, odd)
        less = Sub (q, one) w = Where (both, less, q) {BOTH} same = Equal (row, col) {HIDE}""",
    "a Where": f"""w = Div (at, width) {BOTH} same = Equal (row, col)
        addend = Where (same, nought, low)""",
    "a Where of what differs": f"""w = Div (at, width) {BOTH} same = Equal (col, row)
        hidden = Not (same) addend = Where (hidden, minus_inf, nought)""",
    "one less the same": f"""w = Div (at, width) {BOTH} same = Equal (row, col)
        sf = Cast <to = 1> (same) none = Sub (onef, sf) addend = Mul (none, floor)""",
    "in four axes": f"""w = Div (at, width) {BOTH} same = Equal (row, col)
        hidden = Not (same) h4 = Unsqueeze (hidden, front) hf = Cast <to = 1> (h4)
        addend = Mul (hf, floor)""",
    "counted by CumSum": f"""ones = ConstantOfShape <value = int64[1] {{1}}> (t1)
        ct = CumSum <exclusive = 1> (ones, zero) w = Div (ct, width) {BOTH}
        same = Equal (row, col) {HIDE}""",
}
OTHERWISE = "not by whether query and key are in the same window"
WITHIN = "within a window differs"
OTHERS = {
    "a band": (
        f"""w = Identity (at) {BOTH} d = Sub (row, col) far = Abs (d) same = Less (far, width)
        {HIDE}""",
        None,
    ),
    "from start to end": (
        f"""n = Div (at, width) w = Mul (n, width) {BOTH}
        from = Unsqueeze (at, first) end = Add (row, width) a = GreaterOrEqual (from, row)
        b = Less (from, end) same = And (a, b) {HIDE}""",
        OTHERWISE,
    ),
    "windows that see those before them": (
        f"w = Div (at, width) {BOTH} same = GreaterOrEqual (row, col) {HIDE}",
        OTHERWISE,
    ),
    "windows that see the one before": (
        f"""w = Div (at, width) {BOTH} d = Sub (row, col) a = GreaterOrEqual (d, zero)
        b = LessOrEqual (d, one) same = And (a, b) {HIDE}""",
        OTHERWISE,
    ),
    "what lies outside the windows": (
        f"w = Div (at, width) {BOTH} hidden = Equal (row, col) hf = Cast <to = 1> (hidden) "
        "addend = Mul (hf, floor)",
        OTHERWISE,
    ),
    "shifted windows": (
        f"""moved = Add (at, two) w = Div (moved, width) {BOTH} same = Equal (row, col) {HIDE}""",
        OTHERWISE,
    ),
    "windows from the second place on": (
        f"""more = Add (t0, one) from1 = Range (one, more, one) w = Div (from1, width) {BOTH}
        same = Equal (row, col) {HIDE}""",
        OTHERWISE,
    ),
    "windows of two widths": (
        f"""w = Div (at, width) v = Div (at, two) row = Unsqueeze (w, second)
        col = Unsqueeze (v, first) same = Equal (row, col) {HIDE}""",
        OTHERWISE,
    ),
    "a key's window against its own": (
        f"""w = Div (at, width) col = Unsqueeze (w, first) row = Unsqueeze (at, second)
        own = Equal (col, col) late = GreaterOrEqual (row, zero) same = And (own, late) {HIDE}""",
        None,
    ),
    "counted back from the end": (
        f"""ones = ConstantOfShape <value = int64[1] {{1}}> (t1)
        ct = CumSum <exclusive = 1, reverse = 1> (ones, zero) w = Div (ct, width) {BOTH}
        same = Equal (row, col) {HIDE}""",
        OTHERWISE,
    ),
    "a dilated pattern": (
        f"w = Mod (at, width) {BOTH} same = Equal (row, col) {HIDE}",
        OTHERWISE,
    ),
    "causal": (
        f"w = Identity (at) {BOTH} same = GreaterOrEqual (row, col) {HIDE}",
        None,
    ),
    "causal within the windows": (
        f"""w = Div (at, width) {BOTH} near = Equal (row, col) i = Unsqueeze (at, second)
        j = Unsqueeze (at, first) past = GreaterOrEqual (i, j) same = And (near, past) {HIDE}""",
        OTHERWISE,
    ),
    "one or the other": (
        f"""w = Div (at, width) {BOTH} near = Equal (row, col) i = Unsqueeze (at, second)
        head = Less (i, two) same = Or (near, head) {HIDE}""",
        OTHERWISE,
    ),
    "windows up to a place": (
        f"""w0 = Div (at, width) lim = Less (at, width) lf = Cast <to = 7> (lim) w = Mul (w0, lf)
        {BOTH} same = Equal (row, col) {HIDE}""",
        OTHERWISE,
    ),
    "a width that is given": (
        f"w = Div (at, given) {BOTH} same = Equal (row, col) {HIDE}",
        OTHERWISE,
    ),
    "a factor that is no whole number": (
        f"""atf = Cast <to = 1> (at) q = Mul (atf, tenth) w = Floor (q) {BOTH}
        same = Equal (row, col) {HIDE}""",
        None,
    ),
    "a width that is no whole number": (
        f"""atf = Cast <to = 1> (at) q = Div (atf, tenth) w = Floor (q) {BOTH}
        same = Equal (row, col) {HIDE}""",
        OTHERWISE,
    ),
    "a division that is not rounded": (
        f"""atf = Cast <to = 1> (at) w = Div (atf, widthf) {BOTH} same = Equal (row, col) {HIDE}""",
        OTHERWISE,
    ),
    "something within the windows": (
        f"""w = Div (at, width) {BOTH} same = Equal (row, col) hidden = Not (same)
        hf = Cast <to = 1> (hidden) outside = Mul (hf, floor) sf = Cast <to = 1> (same)
        addend = Add (outside, sf)""",
        WITHIN,
    ),
}


def numbers(width: int) -> str:
    return f"""<int64[4] split = {{0, 0, 2, 4}},
    int64[3] merge = {{0, 0, 8}}, float scale = {{0.5}},
    int64 zero = {{0}}, int64 one = {{1}}, int64 two = {{2}}, int64 width = {{{width}}},
    float widthf = {{{width}.0}}, float half = {{0.5}}, float onef = {{1.0}},
    float tenth = {{0.1}},
    float nought = {{0.0}}, float floor = {{-10000.0}}, float low = {{-3.4e38}}, bool yes = {{1}},
    bool no = {{0}},
    float minus_inf = {{-inf}}, int64[1] first = {{0}}, int64[1] second = {{1}},
    int64[2] front = {{0, 1}}, int64[2] middle = {{1, 2}}, float[8] bias = {{1,2,3,4,5,6,7,8}},
    float[8,8] weight = {{{", ".join(f"{np.sin(7.0 * i):.3f}" for i in range(64))}}}>"""


def attention(x: str, n: int, added: str = "s = Add (p, addend)") -> str:
    """An attention layer with a norm before it and a residual, from ``x`` to ``y{n}``."""
    text = f"""ln# = LayerNormalization <axis = -1> ({x}, bias, bias)
        q# = MatMul (ln#, weight) qb# = Add (q#, bias) k# = Mul (ln#, scale)
        q4# = Reshape (qb#, split) qh# = Transpose <perm = [0, 2, 1, 3]> (q4#)
        k4# = Reshape (k#, split) kh# = Transpose <perm = [0, 2, 3, 1]> (k4#)
        v4# = Reshape (ln#, split) vh# = Transpose <perm = [0, 2, 1, 3]> (v4#)
        m# = MatMul (qh#, kh#) p# = Mul (m#, scale) {added.replace("(p,", "(p#,")}
        a# = Softmax <axis = -1> (s#) c# = MatMul (a#, vh#)
        ct# = Transpose <perm = [0, 2, 1, 3]> (c#) o# = Reshape (ct#, merge)
        op# = MatMul (o#, weight) y# = Add ({x}, op#)"""
    return (
        text.replace("#", str(n))
        .replace(f"s{n} = Add", f"s{n} = Add")
        .replace(" s = ", f" s{n} = ")
    )


def encoder(
    mask: str, width: int, layers: int = 2, ins: str = "float[B, T, 8] x", **kwargs: str
) -> str:
    out = ins.split(" x")[0]
    body = "\n".join(attention("x" if i == 0 else f"y{i - 1}", i, **kwargs) for i in range(layers))
    return f"""{HEAD} m ({ins}) => ({out} y) {numbers(width)}
        {{ {PLACES} {mask} {body} y = Relu (y{layers - 1}) }}"""


def run(model: ir.Model, sizes: dict[str, int], seed: int = 7) -> list[np.ndarray]:
    session = opened(model)
    random = np.random.default_rng(seed)
    feeds = {}
    for value in session.get_inputs():
        shape = [sizes.get(d, d) for d in value.shape]
        if value.type == "tensor(bool)":
            feeds[value.name] = np.asarray(random.random(shape) < 0.7)
            feeds[value.name][..., ::2] = True  # each window has a key to look at
        elif value.type == "tensor(int64)":
            feeds[value.name] = np.full(shape, 3, np.int64)
        else:
            feeds[value.name] = random.standard_normal(shape).astype(np.float32)
    return session.run(None, feeds)


def count(model: ir.Model, *op_types: str) -> int:
    return sum(node.op_type in op_types for node in model.graph.all_nodes())


def assert_same(before: ir.Model, after: ir.Model, sizes: dict[str, int]) -> None:
    for a, b in zip(run(before, sizes), run(after, sizes), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


def in_windows(text: str, width: int, attentions: int = 2, also: tuple[str, ...] = ()) -> ir.Model:
    """The model after the pass, which computes the same at every length near a window's."""
    before, after = (ir.from_onnx_text(text) for _ in range(2))
    result = graphfix.get_pass("window-3d")(after)
    assert not result.skips
    assert result.modified
    assert count(after, "Softmax") == attentions
    assert count(after, "Equal", "Less", "GreaterOrEqual") == 0
    assert not graphfix.get_pass("window-3d")(after).modified
    for name in also:
        graphfix.get_pass(name)(after)
    for length in sorted({1, max(width - 1, 1), width, width + 1, 3 * width, 3 * width + 2}):
        for batch in (1, 3):
            assert_same(before, after, {"B": batch, "T": length})
    return after


def skipped(text: str) -> list[str]:
    """The reasons for which a model is left as it is, byte for byte."""
    model = ir.from_onnx_text(text)
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    result = graphfix.get_pass("window-3d")(model)
    assert not result.modified
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before
    return [reason for _, reason in result.skips]


@pytest.mark.parametrize("name", MASKS)
def test_windows_are_found_however_their_mask_is_made(name: str) -> None:
    after = in_windows(encoder(MASKS[name], 4), 4)
    # Cut once, before the first layer; put together once, after the last.
    assert count(after, "Pad") == 2  # the sequence, and which places there are
    assert [node.outputs[0].name for node in after.graph if node.op_type == "Slice"][-1] == "y1"


@settings(max_examples=12, deadline=None)
@given(
    width=st.integers(2, 9),
    whole=st.integers(0, 4),
    over=st.integers(0, 8),
    batch=st.integers(1, 3),
    name=st.sampled_from(list(MASKS)),
)
def test_every_length_computes_the_same(
    width: int, whole: int, over: int, batch: int, name: str
) -> None:
    text = encoder(MASKS[name], width, layers=1)
    before, after = (ir.from_onnx_text(text) for _ in range(2))
    assert graphfix.get_pass("window-3d")(after).modified
    assert_same(before, after, {"B": batch, "T": max(whole * width + over % width, 1)})


@pytest.mark.parametrize("name", OTHERS)
def test_windows_that_do_not_keep_to_themselves_are_left_alone(name: str) -> None:
    mask, reason = OTHERS[name]
    ins = "float[B, T, 8] x, int64[1] given" if "given" in mask else "float[B, T, 8] x"
    reasons = skipped(encoder(mask, 4, ins=ins))
    assert all(reason in x for x in reasons) if reason else not reasons
    assert len(reasons) == (2 if reason else 0)


def test_one_window_is_no_window() -> None:
    text = encoder(MASKS["floor division"], 16, ins="float[B, 10, 8] x")
    assert not skipped(text)


@pytest.mark.parametrize("length", [8, 10])
def test_a_sequence_of_fixed_length(length: int) -> None:
    """Nothing is computed of sizes; a mask there is only for a last window that is short."""
    text = encoder(MASKS["floor division"], 4, ins=f"float[2, {length}, 8] x")
    before, after = (ir.from_onnx_text(text) for _ in range(2))
    assert graphfix.get_pass("window-3d")(after).modified
    assert count(after, "Shape", "Range") == 0
    assert count(after, "Pad") == (length % 4 > 0)
    assert_same(before, after, {})


def test_a_constant_mask() -> None:
    """What fix-dims and fold leave of a mask."""
    text = encoder(MASKS["floor division"], 4, ins="float[2, 10, 8] x")
    before, after = (ir.from_onnx_text(text) for _ in range(2))
    graphfix.get_pass("fold")(after)
    assert count(after, "Range", "Equal") == 0
    assert graphfix.get_pass("window-3d")(after).modified
    assert_same(before, after, {})


KEYS = {
    "beside it": (
        "float[B, T, 8] x, bool[B, T] seen",
        MASKS["floor division"]
        .replace("Not (same)", "Not (visible)")
        .replace("hidden =", "s3 = Unsqueeze (seen, middle) visible = And (same, s3) hidden ="),
    ),
    "an addend of its own": (
        "float[B, T, 8] x, bool[B, T] seen",
        MASKS["floor division"].replace("addend =", "windows =")
        + """ s4 = Unsqueeze (seen, middle) h4 = Not (s4) f4 = Cast <to = 1> (h4)
        a4 = Mul (f4, low) addend = Add (windows, a4)""",
    ),
    "of what is no number": (
        "float[B, T, 8] x, float[B, T] added",
        MASKS["floor division"]
        .replace("Not (same)", "Not (visible)")
        .replace(
            "hidden =",
            "n2 = IsNaN (added) n3 = Unsqueeze (n2, middle) s3 = Not (n3) visible = And (same, s3) "
            "hidden =",
        ),
    ),
    "of all": (
        "float[B, T, 8] x, bool[T] seen",
        MASKS["floor division"]
        .replace("Not (same)", "Not (visible)")
        .replace("hidden =", "visible = And (same, seen) hidden ="),
    ),
}


@pytest.mark.parametrize("name", KEYS)
def test_a_mask_of_keys_stays_one(name: str) -> None:
    ins, mask = KEYS[name]
    after = in_windows(encoder(mask, 4, ins=ins), 4)
    assert any(value.name in ("seen", "added") and value.uses() for value in after.graph.inputs)


def test_a_mask_of_integers_is_taken_to_hold_0_and_1() -> None:
    mask = (
        MASKS["floor division"].replace("addend =", "windows =")
        + """ s4 = Unsqueeze (seen, middle) f4 = Cast <to = 1> (s4) h4 = Sub (onef, f4)
        a4 = Mul (h4, low) addend = Add (windows, a4)"""
    )
    text = encoder(mask, 4, ins="float[B, T, 8] x, int64[B, T] seen", layers=1)
    old, new = ir.from_onnx_text(text), ir.from_onnx_text(text)
    (change,) = graphfix.get_pass("window-3d")(new).changes
    assert change.note == "seen holds only 0 and 1"
    seen = np.array([[1, 0, 1, 1, 0, 0, 1, 0, 1], [1, 1, 1, 1, 0, 1, 1, 1, 1]])
    x = np.random.default_rng(1).standard_normal((2, 9, 8)).astype(np.float32)
    want, got = (opened(m).run(None, {"x": x, "seen": seen})[0] for m in (old, new))
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def test_scores_and_a_mask_of_keys_may_be_scaled_together() -> None:
    ins, mask = KEYS["an addend of its own"]
    added = "u = Add (p, addend) s = Mul (u, scale)"
    text = encoder(mask, 4, ins=ins, layers=1, added=added)
    old, new = ir.from_onnx_text(text), ir.from_onnx_text(text)
    assert graphfix.get_pass("window-3d")(new).modified
    assert_same(old, new, {"B": 2, "T": 9})


NO_KEYS = {
    "addends of keys": (
        "float[B, T] added",
        "a = Unsqueeze (added, middle)",
        "addend = Add (m, a)",
        "mask of keys",
    ),
    "a number for each": (
        "float[B] added",
        "a = Unsqueeze (added, rest)",
        "addend = Add (m, a)",
        "mask of keys",
    ),
    "a number": ("float added", "", "addend = Add (m, added)", "mask of keys"),
    "a flag": ("bool[1] seen", "visible = And (same, seen)", "", "along the batch and the keys"),
    "a mask for each head": (
        "bool[2, T] seen",
        "s = Unsqueeze (seen, second) visible = And (same, s)",
        "",
        "along the batch and the keys",
    ),
}


@pytest.mark.parametrize("name", NO_KEYS)
def test_what_is_no_mask_of_keys_beside_the_windows_is_told(name: str) -> None:
    more, before, behind, reason = NO_KEYS[name]
    mask = MASKS["floor division"]
    if behind:
        mask = f"{mask.replace('addend =', 'm =')} {before} {behind}"
    else:
        mask = mask.replace("Not (same)", "Not (visible)").replace("hidden =", f"{before} hidden =")
    text = encoder(mask, 3, ins=f"float[B, T, 8] x, {more}", layers=1)
    text = text.replace("int64 zero =", "int64[3] rest = {1, 2, 3}, int64 zero =")
    (found,) = skipped(text)
    assert reason in found


def test_a_mask_of_keys_that_is_turned_lies_as_its_result() -> None:
    """Where there are as many clips as places, sizes do not tell one axis from the other."""
    mask = MASKS["floor division"].replace("Not (same)", "Not (visible)")
    seen = "st = Transpose (seen) s3 = Unsqueeze (st, middle) visible = And (same, s3)"
    mask = mask.replace("hidden =", f"{seen} hidden =")
    text = encoder(mask, 3, ins="float[6, 6, 8] x, bool[6, 6] seen", layers=1)
    old, new = ir.from_onnx_text(text), ir.from_onnx_text(text)
    assert graphfix.get_pass("window-3d")(new).modified
    seen_by = np.zeros((6, 6), bool)
    seen_by[::3], seen_by[1, ::2], seen_by[4, ::2] = True, True, True  # one of each window
    x = np.random.default_rng(1).standard_normal((6, 6, 8)).astype(np.float32)
    want, got = (opened(m).run(None, {"x": x, "seen": seen_by})[0] for m in (old, new))
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def test_opset_12_has_no_pad_of_booleans() -> None:
    text = encoder(MASKS["floor division"], 4).replace('"" : 17', '"" : 12')
    text = text.replace(
        "t1 = Shape <start = 1, end = 2> (x)", "ts = Shape (x) t1 = Slice (ts, second, third)"
    )
    text = re.sub(r"Unsqueeze \((\w+), second\)", r"Unsqueeze <axes = [1]> (\1)", text)
    text = re.sub(r"Unsqueeze \((\w+), first\)", r"Unsqueeze <axes = [0]> (\1)", text)
    text = re.sub(r"LayerNormalization <axis = -1> \((\w+), bias, bias\)", r"Add (\1, bias)", text)
    text = text.replace("int64 zero =", "int64[1] third = {2}, int64 zero =")
    assert all("convert the model to 13" in x for x in skipped(text))
    assert skipped(text)


def test_a_constant_mask_of_other_windows_is_left() -> None:
    """Windows of several widths, a band, and a number within a window."""
    index = np.arange(10)
    uneven = np.searchsorted([4, 6, 10], index, side="right")
    near = index // 4 == (index // 4)[:, None]
    for seen, reason in (
        (uneven == uneven[:, None], None),
        (abs(index - index[:, None]) < 3, None),
        (near & (index <= index[:, None]), None),
        (~near, None),
        (near, WITHIN),
    ):
        added = np.where(seen, 0.5 if reason else 0.0, -1e4)
        numbers_ = ", ".join(f"{x:.1f}" for x in added.reshape(-1))
        text = encoder("", 4, ins="float[2, 10, 8] x")
        text = text.replace("int64 zero =", f"float[10, 10] addend = {{{numbers_}}}, int64 zero =")
        reasons = skipped(text)
        assert len(reasons) == (2 if reason else 0)
        assert all(reason in x for x in reasons if reason)


def test_attentions_are_fused_behind_it() -> None:
    after = in_windows(
        encoder(MASKS["floor division"], 4), 4, attentions=2, also=("fuse-attention",)
    )
    assert count(after, "MultiHeadAttention") == 2
    fused = next(node for node in after.graph if node.op_type == "MultiHeadAttention")
    assert fused.inputs[4] is not None  # a mask of keys: no bias of [B, H, W, W]


def test_fixed_dims_behind_it_leave_no_size_to_compute() -> None:
    text = encoder(MASKS["floor division"], 4)
    before, after = (ir.from_onnx_text(text) for _ in range(2))
    graphfix.run(after, "window-3d,fix-dims:B=2,T=10,fold")
    assert count(after, "Shape", "Range", "ConstantOfShape") == 0
    assert_same(before, after, {"B": 2, "T": 10})


def test_a_where_wants_additive_mask_first() -> None:
    mask = f"w = Div (at, width) {BOTH} same = Equal (row, col) hidden = Not (same)"
    text = encoder(mask, 4, added="s = Where (hidden, minus_inf, p#)")
    reasons = skipped(text)
    assert len(reasons) == 2
    assert all("windows of 4" in x and "additive-mask" in x for x in reasons)
    after = ir.from_onnx_text(text)
    graphfix.get_pass("additive-mask")(after)
    assert graphfix.get_pass("window-3d")(after).modified
    assert_same(ir.from_onnx_text(text), after, {"B": 2, "T": 9})


def test_a_sequence_without_a_batch() -> None:
    """[T, F] stays so between the attentions: a Gemm takes no more axes."""
    text = encoder(MASKS["floor division"], 4, ins="float[T, 8] x")
    text = text.replace("start = 1, end = 2", "start = 0, end = 1")
    text = text.replace("int64[4] split = {0, 0, 2, 4}", "int64[3] split = {0, 2, 4}")
    text = text.replace("int64[3] merge = {0, 0, 8}", "int64[2] merge = {-1, 8}")
    text = text.replace("perm = [0, 2, 1, 3]> (c", "perm = [1, 0, 2]> (c")
    text = text.replace("perm = [0, 2, 1, 3]", "perm = [1, 0, 2]")
    text = text.replace("perm = [0, 2, 3, 1]", "perm = [1, 2, 0]")
    before, after = (ir.from_onnx_text(text) for _ in range(2))
    assert graphfix.get_pass("window-3d")(after).modified
    assert [x.op_type for x in after.graph].count("Slice") <= 3
    for length in (1, 3, 4, 5, 12, 14):
        assert_same(before, after, {"T": length})


def test_what_somebody_else_reads_is_put_together() -> None:
    """An inner tensor that is an output, or goes where places mix, has its length."""
    text = encoder(MASKS["floor division"], 4).replace(
        "float[B, T, 8] y)", "float[B, T, 8] y, float[B, T, 8] y0, float[B, 1, 8] mean)"
    )
    text = text.replace("y = Relu", "mean = ReduceMean <axes = [1]> (op0) y = Relu")
    in_windows(text, 4)


def test_the_last_window_is_filled_with_rows_that_are_there() -> None:
    """A row of zeros would be divided by its own norm of 0, and NaN reaches all behind a mask."""
    text = encoder(MASKS["floor division"], 4, layers=1).replace(
        "ln0 = LayerNormalization <axis = -1> (x, bias, bias)",
        "n0 = ReduceL2 <axes = [-1]> (x) ln0 = Div (x, n0)",
    )
    after = in_windows(text, 4, attentions=1)
    assert np.isfinite(run(after, {"B": 1, "T": 5})[0]).all()


def test_it_is_not_in_the_profiles() -> None:
    """Where clips are no longer than a window it adds a few kernels for nothing."""
    from graphfix.engine import registry

    assert all("window-3d" not in names for names in registry.PROFILES.values())
