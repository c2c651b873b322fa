"""What an element may be off by follows its own channel, and the precision of its own output."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.proof.allowance import (
    HALF_GATE,
    USUAL,
    ChannelScales,
    Tolerance,
    allowed_differences,
)

RNG = np.random.default_rng(0)
HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
_W = ", ".join(f"{x:.3g}" for x in RNG.normal(size=32))
WEIGHTS = f"float[4, 8] w = {{{_W}}}"


def detector(score: float = 0.0) -> ir.Model:
    """Return a detector: boxes of 640 and scores of 1, side by side."""
    return ir.from_onnx_text(f"""{HEAD} m (float[B, N, 4] x) => (float[B, N, 8] y)
    <float size = {{320}}, float more = {{{score}}}>
    {{ s = Sigmoid (x) b = Mul (s, size) boxes = Add (b, size)
       t = Tanh (x) u = Sigmoid (t) scores = Add (u, more)
       y = Concat <axis = -1> (boxes, scores) }}""")


def biased(bias: float = 900.0, more: float = 0.0) -> ir.Model:
    """Return a projection with one large bias among small ones."""
    values = ", ".join(map(str, [bias, *([more] * 7)]))
    return ir.from_onnx_text(f"""{HEAD} m (float[B, N, 4] x) => (float[B, N, 8] y)
    <{WEIGHTS}, float[8] b = {{{values}}}>
    {{ p = MatMul (x, w) y = Add (p, b) }}""")


def with_half_beside(factor: float = 1.0) -> ir.Model:
    """Return a model in float32 that passes a float16 input on, beside its work."""
    return ir.from_onnx_text(f"""{HEAD}
    m (float[B, N, 4] x, float16[1] h) => (float[B, N, 8] y, float16[1] hh)
    <{WEIGHTS}, float k = {{{factor}}}>
    {{ hh = Identity (h) p = MatMul (x, w) t = Tanh (p) y = Mul (t, k) }}""")


def with_half_last(factor: float = 1.0) -> ir.Model:
    """Return a model in float32 whose result alone is rounded to float16."""
    return ir.from_onnx_text(f"""{HEAD} m (float[B, N, 4] x) => (float[B, N, 8] y)
    <{WEIGHTS}, float k = {{{factor}}}>
    {{ p = MatMul (x, w) t = Tanh (p) s = Mul (t, k) h = Cast <to = 10> (s)
       y = Cast <to = 1> (h) }}""")


def tiny(factor: float = 1e-3) -> ir.Model:
    return ir.from_onnx_text(f"""{HEAD} m (float[B, N, 4] x) => (float[B, N, 8] y)
    <{WEIGHTS}, float k = {{{factor}}}>
    {{ p = MatMul (x, w) t = Tanh (p) y = Mul (t, k) }}""")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (detector(), detector(score=0.03)),
        (detector(), detector(score=0.001)),
        (biased(), biased(more=0.05)),
        (biased(), biased(more=0.001)),
        (with_half_beside(), with_half_beside(0.994)),
        (with_half_beside(), with_half_beside(0.9995)),
        (with_half_last(), with_half_last(0.994)),
        (with_half_last(), with_half_last(0.998)),
        (tiny(), tiny(1.008e-3)),
        (tiny(1e-5), tiny(1.0005e-5)),
    ],
    ids=[
        *("scores beside boxes", "scores, a little"),
        *("beside one bias", "beside one bias, a little"),
        *("float16 beside it", "float16 beside it, a little"),
        *("float16 at its end", "float16 at its end, a little"),
        *("tiny", "tinier"),
    ],
)
def test_a_difference_that_is_large_for_its_channel_is_told(
    before: ir.Model, after: ir.Model
) -> None:
    verdict = graphfix.verify(before, after)
    assert not verdict.ok, verdict
    assert verdict.worst is not None
    assert verdict.worst.output == "y"


SUMS = f"""{HEAD} m (float[B, N, 4096] x) => (float[B, N, 1] y)
    <int64[1] last = {{-1}}, float[1] one = {{1}}, int64[2] wide = {{4096, 1}}> {{ %s }}"""
SUM_A = SUMS % "y = ReduceSum (x, last)"
SUM_B = SUMS % "o = Expand (one, wide) y = MatMul (x, o)"
CANCELS = f"""{HEAD} m (float[B, N, 4] x) => (float[B, N, 8] y)
    <float hundred = {{100}}, float fifty = {{50}}, float k = {{1}}>
    {{ %s big = Mul (x, k) y = Concat <axis = -1> (big, d) }}"""
CANCEL_A = CANCELS % "a = Add (x, hundred) b = Sub (a, hundred) d = Sub (b, x)"
CANCEL_B = CANCELS % "f = Add (x, fifty) a = Add (f, fifty) b = Sub (a, hundred) d = Sub (b, x)"
SOFTMAX = f"""{HEAD} m (float[B, N, 40] x) => (float[B, N, 40] y)
    <float k = {{3}}> {{ t = Tanh (x) s = Mul (t, k) %s }}"""
SOFTMAX_A = SOFTMAX % "y = LogSoftmax <axis = -1> (s)"
SOFTMAX_B = SOFTMAX % "p = Softmax <axis = -1> (s) y = Log (p)"


@pytest.mark.parametrize(
    ("before", "after"),
    [(SUM_A, SUM_B), (CANCEL_A, CANCEL_B), (SOFTMAX_B, SOFTMAX_A)],
    ids=["a long sum", "a channel of what cancels", "a softmax"],
)
def test_what_is_only_rounded_otherwise_is_the_same(before: str, after: str) -> None:
    verdict = graphfix.verify(ir.from_onnx_text(before), ir.from_onnx_text(after))
    assert verdict.ok, verdict


def test_noise_allows_no_more_than_noise() -> None:
    # What cancels is off by 1e-5 in the original itself, and was allowed 1e-4 of what is beside it.
    wrong = CANCEL_B.replace("d = Sub (b, x)", "e = Sub (b, x) d = Add (e, more)")
    wrong = wrong.replace("float fifty", "float more = {0.00025}, float fifty")
    verdict = graphfix.verify(ir.from_onnx_text(CANCEL_A), ir.from_onnx_text(wrong))
    assert not verdict.ok
    assert verdict.worst is not None
    assert verdict.worst.max_abs < 1e-3


def test_the_gate_of_float16_is_held_by_channel() -> None:
    assert graphfix.verify(detector(), detector(0.001), tolerance=HALF_GATE).ok
    verdict = graphfix.verify(detector(), detector(0.03), tolerance=HALF_GATE)
    assert not verdict.ok
    assert "differs by 0.03" in str(verdict)
    repaired = graphfix.fix(detector(), "float16")
    assert graphfix.verify(detector(), repaired).ok


def test_a_tolerance_that_is_given_is_one_number() -> None:
    for model, wrong in ((detector(), detector(0.03)), (tiny(), tiny(1.008e-3))):
        assert graphfix.verify(model, wrong, tolerance=Tolerance(max_abs=0.04)).ok


def test_the_worst_element_is_shown_with_its_own_allowance() -> None:
    verdict = graphfix.verify(detector(), detector(0.03))
    assert "differs by 0.03, allowed 7" in str(verdict)
    verdict = graphfix.verify(detector(), detector(1e-5))
    assert verdict.ok
    assert verdict.worst is not None
    assert verdict.worst.allowed < 1.1e-4
    assert verdict.worst.worst_abs < 1.2e-5


def scales_of(*arrays: np.ndarray) -> ChannelScales:
    return ChannelScales.of_output([(x, None) for x in arrays])


def test_channels_lie_along_the_axis_along_which_scales_differ_most() -> None:
    boxes, scores = np.full((2, 4, 7), 640.0), np.full((2, 3, 7), 0.5)
    middle = np.concatenate([boxes, scores], axis=1) + RNG.random((2, 7, 7))
    assert scales_of(middle).axis == 1
    assert scales_of(middle.swapaxes(1, 2)).axis == 2
    # An axis whose size changes is no axis of channels, and neither is the batch.
    assert scales_of(middle[:, :6], middle).axis == 2
    assert scales_of(middle[:, :6, :3], middle).axis is None
    assert scales_of(np.array([[1.0, 2.0], [700.0, 800.0]])).axis == 1
    assert scales_of(np.array([1.0, 700.0])).axis == 0


def test_a_case_of_huge_numbers_says_nothing_of_the_others() -> None:
    usual = RNG.random((4, 5))
    scales = scales_of(usual, 2 * usual, usual * 1e6)
    everywhere = np.ones(usual.shape, np.bool_)
    allowed = allowed_differences(usual, everywhere, USUAL, scales)
    assert (allowed <= 2.01e-4).all()
    assert (allowed_differences(usual * 1e6, everywhere, USUAL, scales) > 1).any()


def test_what_is_allowed_has_three_reasons_and_an_end() -> None:
    array = np.array([[[640.0, 1.0, 1e-3, 0.0]]])
    everywhere = np.ones(array.shape, np.bool_)
    scales = scales_of(array)
    allowed = allowed_differences(array, everywhere, USUAL, scales)[0, 0]
    rounding = 640 * 2.0**-23
    assert allowed == pytest.approx([0.064, 1e-4, rounding, rounding])
    noisy = scales.with_noise([np.array([[[0.0, 1e-3, 1e9, 0.0]]])] * 16)
    allowed = allowed_differences(array, everywhere, USUAL, noisy)[0, 0]
    assert allowed[0] == pytest.approx(0.064)
    assert allowed[1] == pytest.approx(8e-3)
    assert allowed[2] == pytest.approx(0.064), "never more than what the numbers around allow"
    usual = allowed_differences(array, everywhere, Tolerance(), noisy)
    assert usual == pytest.approx(0.064), "a tolerance that is given has no channels"


def test_a_channel_of_zeros_and_fills_has_no_scale() -> None:
    logits = RNG.normal(size=(3, 4, 6))
    logits[..., 2] = -1e9
    logits[..., 4] = 0
    scales = scales_of(logits)
    assert scales.usual[2] == 0
    assert scales.usual[4] == 0
    allowed = allowed_differences(logits, np.ones(logits.shape, np.bool_), USUAL, scales)
    assert (allowed[..., 4] < 1e-6).all()
    assert (allowed[..., 2] >= 1e4).all()


def test_an_array_with_other_channels_has_what_is_around_it() -> None:
    scales = scales_of(np.array([[640.0, 1.0, 1e-3]]))
    other = np.array([[640.0, 1.0]])
    allowed = allowed_differences(other, np.ones(other.shape, np.bool_), USUAL, scales)
    assert (allowed == 0.064).all()


def test_few_roundings_to_float16_explain_little() -> None:
    assert USUAL.for_half(0) == USUAL
    once = USUAL.for_half(1)
    assert once.max_abs == pytest.approx(1e-4 + 2**-10)
    assert once.channel == pytest.approx(once.max_abs)
    assert USUAL.for_half(100) == USUAL.for_half()
    assert USUAL.for_half().max_abs == pytest.approx(1e-2)
    assert once.for_half() == once


STEPS = """m (float[B, 4] x, float[B, 4] past) => (float[B, 4] y, float[B, 4] present)
    <float[4] sizes = {640, 1, 1, 1}, float[4] more = {0, MORE, 0, 0}, float keep = {0.5}>
    { old = Mul (past, keep) present = Add (old, x) c = Clip (present)
      s = Mul (c, sizes) y = Add (s, more) }"""


def test_each_step_is_held_to_its_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scores are off by a thousandth in every case: each step says so as well."""
    models = (ir.from_onnx_text(HEAD + STEPS.replace("MORE", x)) for x in ("0", "0.001"))
    verdict = graphfix.verify(*models)
    assert not verdict.ok
    steps = [diffs for name, diffs in verdict.cases.items() if "step" in name]
    assert steps
    assert not any(x.ok for diffs in steps for x in diffs if x.output == "y")


def test_what_a_step_rounds_otherwise_is_noise_in_the_next() -> None:
    """Large numbers that cancel, in another order: off by as much as the original is by itself."""
    text = """m (float[B, 4] x, float[B, 4] past) => (float[B, 4] y, float[B, 4] present)
        <float far = {64}, float k = {0.01}> { s = Mul (x, k) ORDER
          present = Sub (b, far) y = Neg (present) }"""
    orders = ("a = Add (past, far) b = Add (a, s)", "a = Add (s, past) b = Add (a, far)")
    models = (ir.from_onnx_text(HEAD + text.replace("ORDER", x)) for x in orders)
    verdict = graphfix.verify(*models)
    assert verdict.ok, str(verdict)
    assert any(x.worst_abs for name, y in verdict.cases.items() if "step 4" in name for x in y)
