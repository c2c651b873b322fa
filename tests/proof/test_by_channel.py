"""One rule for outputs, wherever they are compared: each channel by its own scale and its noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.proof.by_channel import ChannelRule, OutputPair, scales_of
from graphfix.proof.compare import Tolerance

if TYPE_CHECKING:
    from graphfix.proof.by_channel import Scales
    from graphfix.proof.noise import Noise

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
# Boxes beside scores.
SIZES = np.array([640, 1, 1, 1, 1, 1, 1, 1])
BEFORE = (np.random.default_rng(0).uniform(0.5, 1, (3, 4, 8)) * SIZES).astype(np.float32)


def off_by(more: float) -> np.ndarray:
    """Return the outputs with all scores off by this."""
    after = BEFORE.copy()
    after[..., 1:] += np.float32(more)
    return after


def pair(after: np.ndarray, key: str = "a") -> OutputPair:
    return OutputPair("y", f"case {key}", BEFORE, after, key, "a note")


@pytest.mark.parametrize(("more", "ok"), [(2e-5, True), (1e-3, False)])
def test_scores_are_not_excused_by_boxes_beside_them(more: float, ok: bool) -> None:
    (diff,) = ChannelRule().compare_pairs([pair(off_by(more))])
    assert (diff.ok, diff.case, diff.note) == (ok, "case a", "a note")
    # With one number for all, they are.
    assert ChannelRule(Tolerance()).compare_pairs([pair(off_by(1e-3))])[0].ok


@pytest.mark.parametrize(("noise", "ok"), [(1e-3, True), (1e-6, False)])
def test_noise_is_measured_once_for_a_case_and_only_if_it_decides(noise: float, ok: bool) -> None:
    asked: list[str] = []

    def measure(key: str, scales: Scales) -> Noise:
        asked.append(key)
        assert {*scales} == {"y"}
        return {"y": [np.full(BEFORE.shape, noise)]}

    rule = ChannelRule(measure_noise=measure)
    near, far = off_by(1e-3), off_by(1.0)
    diffs = rule.compare_pairs([pair(near), pair(near), pair(BEFORE, "b"), pair(far, "c")])
    assert [x.ok for x in diffs] == [ok, ok, True, False]
    assert asked == ["a"]


@pytest.mark.parametrize(("rounded", "ok"), [("y", True), ("z", False)])
def test_an_output_is_held_to_what_is_rounded_on_the_way_to_it(rounded: str, ok: bool) -> None:
    rule = ChannelRule(roundings={rounded: 1000})
    assert rule.compare_pairs([pair(off_by(2e-3))])[0].ok is ok


def test_the_rule_between_models_is_that_of_the_coarser_one() -> None:
    plain = ir.from_onnx_text(HEAD + "m (float[B] x) => (float[B] y) { y = Tanh (x) }")
    half = ir.from_onnx_text(
        HEAD + "m (float[B] x) => (float[B] y) { h = Cast <to = 10> (x) y = Cast <to = 1> (h) }"
    )
    assert ChannelRule.between([plain]) == ChannelRule()
    assert ChannelRule.between([plain, half]).roundings == {"y": 1}
    # What the user says holds for all outputs.
    wide = Tolerance(max_abs=0.5)
    assert ChannelRule.between([half], wide) == ChannelRule(wide)


def test_only_floats_have_scales() -> None:
    assert {*scales_of([("y", BEFORE), ("n", np.arange(3))])} == {"y"}
