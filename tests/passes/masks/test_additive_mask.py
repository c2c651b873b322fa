"""additive-mask: what it repairs, what it leaves alone and why, and that the numbers stay."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfix
from graphfix.errors import UsageError
from tests.passes.models import execute, ops, refusals

HEAD = '<ir_version: 8, opset_import: ["" : 17{functions}]>\n'


def model(text: str) -> ir.Model:
    return ir.from_onnx_text(HEAD.format(functions="") + text)


def both(text: str, feeds: dict[str, np.ndarray], spec: str = "additive-mask") -> tuple:
    before, after = model(text), model(text)
    report = graphfix.run(after, spec)
    return report, after, execute(before, feeds), execute(after, feeds)


def attention(between: str, *, where: str, mask: str = "bool[B, 1, 1, T] mask") -> str:
    """One attention: ``where`` makes ``masked``, ``between`` makes ``logits`` from it."""
    return f"""
        m (float[B, 2, T, T] scores, {mask}) => (float[B, 2, T, T] weights)
        <float inf = {{-inf}}, float low = {{-3.4e38}}, float mild = {{-1e4}}, float zero = {{0.0}},
         float scale = {{0.125}}, float one = {{1.0}}, float sign = {{-1.0}}, int64 nought = {{0}},
         float[1] inf1 = {{-inf}}, float[1] zero1 = {{0.0}}, float big = {{3e38}},
         int64[4] flat = {{0, 0, 0, -1}}, int64[1] first = {{1}}>
        {{
            {where}
            {between}
            weights = Softmax <axis = -1> (logits)
        }}"""


def feeds(b: int = 2, t: int = 5, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    lengths = np.minimum(np.array([t, max(1, t - 2)])[:b], t)
    return {
        "scores": rng.standard_normal((b, 2, t, t)).astype(np.float32) * 3,
        "mask": (np.arange(t) >= lengths[:, None])[:, None, None, :],
    }


WHERE_HIDES = "masked = Where (mask, inf, scores)"
REPAIRED = {
    "-inf": (WHERE_HIDES, "logits = Identity (masked)"),
    "float minimum": ("masked = Where (mask, low, scores)", "logits = Identity (masked)"),
    "-1e4": ("masked = Where (mask, mild, scores)", "logits = Identity (masked)"),
    "fill of rank 1": ("masked = Where (mask, inf1, scores)", "logits = Identity (masked)"),
    "keeps where true": (
        "keep = Not (mask) masked = Where (keep, scores, inf)",
        "logits = Identity (masked)",
    ),
    "casts and nots": (
        "i = Cast <to = 7> (mask) e = Equal (i, nought) n = Not (e) c = Cast <to = 9> (n)"
        " masked = Where (c, inf, scores)",
        "logits = Identity (masked)",
    ),
    "shared addend": (
        "keep = Not (mask) bias = Where (keep, zero, low) masked = Add (scores, bias)",
        "logits = Identity (masked)",
    ),
    "shared addend of rank 1": (
        "bias = Where (mask, inf1, zero1) masked = Add (scores, bias)",
        "logits = Identity (masked)",
    ),
    "scaled after": (WHERE_HIDES, "logits = Mul (masked, scale)"),
    "divided after": (WHERE_HIDES, "logits = Div (masked, scale)"),
    "clamped after": ("masked = Where (mask, low, scores)", "logits = Max (masked, low)"),
    "through a chain": (
        WHERE_HIDES,
        "a = Add (masked, one) s = Shape (a) r = Reshape (a, flat)"
        " x = Transpose <perm = [0, 1, 2, 3]> (r) d = Cast <to = 11> (x)"
        " logits = Cast <to = 1> (d)",
    ),
    "a 0/1 float mask hides itself": (
        "f = Cast <to = 1> (mask) b = Cast <to = 9> (f) bias = Where (b, low, f)"
        " masked = Add (scores, bias)",
        "logits = Identity (masked)",
    ),
    "fill of its own shape": (
        "s = Shape (scores) full = Expand (low, s) masked = Where (mask, full, scores)",
        "logits = Identity (masked)",
    ),
    "fill cast from double": (
        "f = Constant <value = double {-1e30}> () c = Cast <to = 1> (f)"
        " masked = Where (mask, c, scores)",
        "logits = Identity (masked)",
    ),
    "condition made large first": (
        "s = Shape (scores) wide = Expand (mask, s) masked = Where (wide, low, scores)",
        "logits = Identity (masked)",
    ),
    "asked of another mask where that is 0": (
        "seen = Not (mask) keep = Cast <to = 1> (seen) causal = Mul (keep, zero)"
        " sum = Add (causal, keep) off = Equal (sum, zero) both = Where (off, low, causal)"
        " masked = Add (scores, both)",
        "logits = Identity (masked)",
    ),
    "two masks in a row": (
        "bias = Where (mask, low, zero) b = Add (scores, bias) masked = Where (mask, inf, b)",
        "logits = Identity (masked)",
    ),
}


@pytest.mark.parametrize("case", REPAIRED)
@pytest.mark.parametrize(("b", "t"), [(1, 1), (1, 2), (2, 5)])
def test_repairs(case: str, b: int, t: int) -> None:
    where, between = REPAIRED[case]
    report, after, want, got = both(attention(between, where=where), feeds(b, t))
    assert report.changed
    assert "Where" not in ops(after)
    np.testing.assert_allclose(got[0], want[0], atol=1e-6)


def test_a_fill_that_is_scaled_to_a_usual_score_hides_nothing() -> None:
    steps = " ".join(f"s{i + 1} = Mul (s{i}, scale)" for i in range(4))
    body = f"s0 = Identity (masked) {steps} logits = Identity (s4)"
    where = "masked = Where (mask, mild, scores)"
    report, _, want, got = both(attention(body, where=where), feeds())
    assert not report.changed
    np.testing.assert_array_equal(got[0], want[0])


def test_a_scale_below_one_does_not_weaken_the_floor() -> None:
    where, between = REPAIRED["scaled after"]
    inputs = feeds()
    inputs["scores"] *= 500  # times 0.125: within 1e4 of each other, but not within 1250
    _, after, want, got = both(attention(between, where=where), inputs)
    floors = [x.const_value.numpy() for x in after.graph.initializers.values()]
    assert any(np.array_equal(x, -8e4) for x in floors)
    np.testing.assert_allclose(got[0], want[0], atol=1e-6)


LEFT_ALONE = {
    "a select between data": ("masked = Where (mask, one, scores)", "logits = Identity (masked)"),
    "a NaN guard": (
        "n = IsNaN (scores) masked = Where (n, zero, scores)",
        "logits = Identity (masked)",
    ),
}


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_is_not_a_mask(case: str) -> None:
    where, between = LEFT_ALONE[case]
    after = model(attention(between, where=where))
    assert not refusals(after, "additive-mask")


REFUSED = {
    "negated after": (WHERE_HIDES, "logits = Mul (masked, sign)", "not positive"),
    "scaled by a tensor": (WHERE_HIDES, "logits = Mul (masked, scores)", "sign is not known"),
    "subtracted": (WHERE_HIDES, "logits = Sub (one, masked)", "also goes to Sub"),
    "compared": (
        "bias = Where (mask, low, zero) e = Equal (bias, low) f = Cast <to = 1> (e)"
        " g = Mul (bias, one) masked = Add (scores, g)",
        "logits = Add (masked, f)",
        "also goes to Equal",
    ),
    "a filter on the scores": (
        "k = ReduceMean <axes = [-1], keepdims = 1> (scores) c = Less (scores, k)"
        " masked = Where (c, inf, scores)",
        "logits = Identity (masked)",
        "ranks the scores themselves",
    ),
    "quantised after": (
        WHERE_HIDES,
        "q = QuantizeLinear (masked, one) d = DequantizeLinear (q, one) logits = Identity (d)",
        None,
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses_with_a_reason(case: str) -> None:
    where, between, reason = REFUSED[case]
    after = model(attention(between, where=where))
    if reason is not None:
        assert [why for why in refusals(after, "additive-mask") if reason in why]


def test_refuses_a_quantised_island() -> None:
    text = attention(
        "q = QuantizeLinear (masked, one) d = DequantizeLinear (q, one) logits = Add (masked, d)",
        where=WHERE_HIDES,
    )
    assert "int8" in refusals(model(text), "additive-mask")[0]


def test_refuses_scores_that_were_quantised() -> None:
    text = """
        m (int8[B, T] q, bool[B, T] mask) => (float[B, T] weights)
        <float scale = {0.1}, float inf = {-inf}>
        { scores = DequantizeLinear (q, scale)
          masked = Where (mask, inf, scores)
          weights = Softmax (masked) }"""
    assert "quantised" in refusals(model(text), "additive-mask")[0]


def test_refuses_logits_that_are_an_output() -> None:
    text = """
        m (float[B, T] scores, bool[B, T] mask) => (float[B, T] weights, float[B, T] masked)
        <float inf = {-inf}>
        { masked = Where (mask, inf, scores)
          weights = Softmax (masked) }"""
    assert "output" in refusals(model(text), "additive-mask")[0]


@pytest.mark.parametrize("op", ["LogSoftmax", "Hardmax"])
def test_refuses_what_ranks_instead_of_weighing(op: str) -> None:
    kind = "int64" if op == "ArgMax" else "float"
    text = f"""
        m (float[B, T] scores, bool[B, T] mask) => ({kind}[B, N] y)
        <float inf = {{-inf}}>
        {{ masked = Where (mask, inf, scores)
           y = {op} <axis = 1> (masked) }}"""
    assert op in refusals(model(text), "additive-mask")[0]


def test_refuses_a_mask_of_whole_rows() -> None:
    text = """
        m (float[B, T, C] scores, bool[B, T, 1] mask) => (float[B, T, C] y)
        <float low = {-3.4e38}>
        { masked = Where (mask, low, scores)
          y = Softmax <axis = -1> (masked) }"""
    assert "whole rows" in refusals(model(text), "additive-mask")[0]


def test_an_overridable_fill_is_no_constant() -> None:
    text = """
        m (float[B, T] scores, bool[B, T] mask, float fill) => (float[B, T] y)
        <float fill = {-inf}>
        { masked = Where (mask, fill, scores)
          y = Softmax (masked) }"""
    assert not graphfix.run(model(text), "additive-mask").changed


def test_integer_selects_are_shape_arithmetic() -> None:
    text = """
        m (int64[N] x, bool[N] c) => (int64[N] y)
        <int64 low = {-100000}>
        { y = Where (c, low, x) }"""
    assert not refusals(model(text), "additive-mask")


COMPANION = """
    m (float[B, 2, T, T] scores, int64[B, 1, 1, T] mask) => (float[B, 2, T, T] kept)
    <float inf = {{-inf}}, float zero = {{0.0}}, int64 nought = {{0}}, int64 one = {{1}}>
    {{ a = Equal (mask, nought)
       masked = Where (a, inf, scores)
       weights = Softmax <axis = -1> (masked)
       {second}
       kept = Where (b, zero, weights) }}"""


def companion_feeds(*, hidden_row: bool) -> dict[str, np.ndarray]:
    lengths = np.array([4, 0 if hidden_row else 2])
    return {
        "scores": feeds(2, 4)["scores"],
        "mask": (np.arange(4) < lengths[:, None]).astype(np.int64)[:, None, None, :],
    }


@pytest.mark.parametrize("hidden_row", [False, True])
@pytest.mark.parametrize("second", ["b = Equal (mask, nought)", "b = Cast <to = 9> (a)"])
def test_the_companion_becomes_a_mul(second: str, hidden_row: bool) -> None:
    # Also in a row that is hidden whole, where the original's NaN was set to 0.
    inputs = companion_feeds(hidden_row=hidden_row)
    report, after, want, got = both(COMPANION.format(second=second), inputs)
    assert len(report.passes[0].changes) == 2
    assert ops(after).count("Mul") == 2
    assert ops(after).count("Equal") == 1
    np.testing.assert_allclose(got[0], want[0], atol=1e-6)


def test_another_zeroing_is_no_companion() -> None:
    text = COMPANION.format(second="b = Equal (mask, one)")
    report, _, want, got = both(text, companion_feeds(hidden_row=False))
    assert len(report.passes[0].changes) == 1
    assert "no repaired mask" in report.passes[0].skips[0][1]
    np.testing.assert_allclose(got[0], want[0], atol=1e-6)


def test_layers_share_one_addend() -> None:
    layers = "\n".join(
        f"""u{i} = Unsqueeze (mask, one) e{i} = Equal (u{i}, nought)
            q{i} = Where (e{i}, inf, x{i}) x{i + 1} = Softmax (q{i})"""
        for i in range(6)
    )
    text = f"""
        m (float[B, S, T] x, int64[B, T] mask) => (float[B, S, T] x6)
        <float inf = {{-inf}}, int64[1] one = {{1}}, int64 nought = {{0}}>
        {{ x0 = Identity (x) {layers} }}"""
    inputs = {
        "x": np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32),
        "mask": np.array([[1, 1, 1, 0], [1, 0, 0, 0]], np.int64),
    }
    report, after, want, got = both(text, inputs)
    assert len(report.passes[0].changes) == 6
    # One Unsqueeze, Equal, Cast and Mul are left of six chains.
    assert sorted(ops(after)) == sorted(
        ["Identity", "Unsqueeze", "Equal", "Cast", "Mul"] + ["Add", "Softmax"] * 6
    )
    np.testing.assert_allclose(got[0], want[0], atol=1e-6)


def test_branches_of_an_if_share_the_addend_of_the_main_graph() -> None:
    text = """
        m (float[B, T] scores, bool[B, T] mask, bool flag) => (float[B, T] y)
        <float inf = {-inf}>
        { y = If (flag) <
            then_branch = a () => (float[B, T] ya) {
                p = Where (mask, inf, scores)
                ya = Softmax (p) },
            else_branch = b () => (float[B, T] yb) {
                two = Constant <value_float = 2.0> ()
                s2 = Mul (scores, two)
                q = Where (mask, inf, s2)
                yb = Softmax (q) }> }"""
    for flag in (True, False):
        inputs = {
            "scores": np.array([[1.0, 2, 3]], np.float32),
            "mask": np.array([[False, False, True]]),
            "flag": np.array(flag),
        }
        report, after, want, got = both(text, inputs)
        assert len(report.passes[0].changes) == 2
        assert [n.op_type for n in after.graph] == ["Cast", "Mul", "If"]
        np.testing.assert_allclose(got[0], want[0], atol=1e-6)


def test_in_a_local_function() -> None:
    text = (
        HEAD.format(functions=', "local" : 1')
        + """
        m (float[B, T] scores, bool[B, T] mask) => (float[B, T] y)
        { y = local.attend (scores, mask) }
        <domain: "local", opset_import: ["" : 17]>
        attend (s, c) => (w) {
            inf = Constant <value_float = -1e9> ()
            p = Where (c, inf, s)
            w = Softmax (p)
        }"""
    )
    before, after = ir.from_onnx_text(text), ir.from_onnx_text(text)
    report = graphfix.run(after, "additive-mask")
    assert len(report.passes[0].changes) == 1
    inputs = {
        "scores": np.array([[1.0, 2, 3]], np.float32),
        "mask": np.array([[False, False, True]]),
    }
    np.testing.assert_allclose(execute(after, inputs)[0], execute(before, inputs)[0], atol=1e-6)


def test_float16_takes_a_floor_it_can_hold() -> None:
    # ONNX text writes float16 as its bits: 64511 is -65504.
    text = """
        m (float16[B, T] scores, bool[B, T] mask) => (float16[B, T] y)
        <float16 fill = {64511}>
        { masked = Where (mask, fill, scores)
          y = Softmax (masked) }"""
    inputs = {
        "scores": np.array([[1.0, 2, 3]], np.float16),
        "mask": np.array([[False, False, True]]),
    }
    report, _, want, got = both(text, inputs)
    assert report.changed
    np.testing.assert_allclose(got[0], want[0], atol=1e-3)
    refused = graphfix.run(model(text), "additive-mask:floor=-1e9")
    assert not refused.changed
    assert "no number in float16" in refused.passes[0].skips[0][1]


def test_names_type_and_shape_of_the_repaired_tensor_stay() -> None:
    where, between = REPAIRED["-inf"]
    before = model(attention(between, where=where))
    kept = {x.name for n in before.graph for x in n.outputs}
    after = model(attention(between, where=where))
    graphfix.run(after, "additive-mask")
    assert kept <= {x.name for n in after.graph for x in n.outputs}
    assert [x.name for x in after.graph.outputs] == ["weights"]


@pytest.mark.parametrize("floor", ["0", "-10", "1e4", "-inf", "nan", "low"])
def test_a_floor_that_hides_nothing_is_refused(floor: str) -> None:
    with pytest.raises(UsageError, match="floor"):
        graphfix.run(
            model(attention("logits = Identity (masked)", where=WHERE_HIDES)),
            f"additive-mask:floor={floor}",
        )


@settings(max_examples=60, deadline=None)
@given(
    fill=st.sampled_from(["inf", "low", "mild", "inf1"]),
    keeps=st.booleans(),
    nots=st.integers(0, 3),
    between=st.lists(
        st.sampled_from(
            ["Add ({x}, one)", "Mul ({x}, scale)", "Div ({x}, scale)", "Max ({x}, low)",
             "Identity ({x})", "Reshape ({x}, flat)", "Min ({x}, big)"]
        ),
        max_size=4,
    ),
    b=st.integers(1, 3),
    t=st.integers(1, 6),
    seed=st.integers(0, 9),
)  # fmt: skip
def test_the_numbers_stay(
    fill: str, keeps: bool, nots: int, between: list[str], b: int, t: int, seed: int
) -> None:
    chain = " ".join(f"c{i + 1} = Not (c{i})" for i in range(nots))
    operands = f"scores, {fill}" if keeps else f"{fill}, scores"
    where = f"c0 = Identity (mask) {chain} masked = Where (c{nots}, {operands})"
    steps = [f"s{i + 1} = {step.format(x=f's{i}')}" for i, step in enumerate(between)]
    body = " ".join(["s0 = Identity (masked)", *steps, f"logits = Identity (s{len(steps)})"])
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, t + 1, b)
    hidden = (np.arange(t) >= lengths[:, None])[:, None, None, :]
    # The boolean that the Where sees must hide, whatever the number of Nots and the order.
    inputs = {
        "scores": rng.standard_normal((b, 2, t, t)).astype(np.float32) * 5,
        "mask": hidden ^ (nots % 2 == 1) ^ keeps,
    }
    report, after, want, got = both(attention(body, where=where), inputs)
    factors = between.count("Mul ({x}, scale)") - between.count("Div ({x}, scale)")
    if fill == "mild" and factors == 4:
        assert not report.changed  # -1e4 becomes -2.4, which hides nothing
        return
    assert report.changed
    assert "Where" not in ops(after)
    np.testing.assert_allclose(got[0], want[0], atol=1e-5)
    assert not graphfix.run(after, "additive-mask").changed


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            "f = Expand (inf, sizes) masked = Where (mask, f, scores) y = Softmax (masked)",
            "its fill may be larger than 'scores'",
        ),
        (
            """m = Where (mask, inf, scores) w = Softmax (m) z = Expand (zero, sizes)
            y = Where (mask, z, w)""",
            "its zero may be larger than 'w'",
        ),
    ],
)
def test_a_fill_of_a_size_of_its_own_may_make_the_result_larger(body: str, reason: str) -> None:
    text = f"""
        m (float[B, 1, T] scores, bool[B, 1, T] mask, int64[3] sizes) => (float[P, Q, R] y)
        <float inf = {{-inf}}, float zero = {{0.0}}> {{ {body} }}"""
    report = graphfix.run(model(text), "additive-mask")
    assert reason in [why for _, why in report.passes[0].skips]
