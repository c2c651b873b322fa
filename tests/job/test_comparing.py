"""``graphfix.verify`` and the command line take one default: what the later model promises."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import onnx_ir as ir
import pytest

import graphfix
from graphfix.cli import main
from graphfix.proof.verify import verify as strict
from graphfix.testing import assert_same

if TYPE_CHECKING:
    from pathlib import Path

# The rows of a batch that have no content differ after the repair, as the pass says.
MASKED = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[B, T, 4] x, int64[B, T] mask) => (float[B, T, 4] y)
    <int64[1] ax = {1}, int64 zero = {0}, float fill = {-10000.0}, float[4] w = {1, 2, 3, 4},
    int64 time = {1}, float step = {0.01}>
    { a = Cos (x)  c = CumSum (a, time)  d = Mul (c, step)  h = Tanh (d)
      v = Mul (h, w)  t = Transpose <perm = [0, 2, 1]> (v)  s = MatMul (v, t)
      e = Equal (mask, zero)  u = Unsqueeze (e, ax)  m = Where (u, fill, s)
      p = Softmax (m)  y = MatMul (p, v) }"""


def masked() -> tuple[ir.Model, ir.Model]:
    before, after = ir.from_onnx_text(MASKED), ir.from_onnx_text(MASKED)
    assert graphfix.run(after, "additive-mask").changed
    return before, after


def test_the_promise_is_read_off_the_model() -> None:
    before, after = masked()
    assert not strict(before, after)  # the pass promises valid rows only
    verdict = graphfix.verify(before, after)
    assert verdict
    assert "; left out: rows of length 0 of 'y', which differ by up to" in str(verdict)
    assert_same(before, after)
    assert not graphfix.verify(before, after, safety="exact")


def test_the_command_line_says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before, after = masked()
    graphfix.save(before, "before.onnx")
    graphfix.save(after, "after.onnx")
    assert main(["verify", "before.onnx", "after.onnx"]) == 0
    assert graphfix.verify("before.onnx", "after.onnx")
    assert main(["verify", "before.onnx", "after.onnx", "--safety", "exact"]) == 1
    assert not graphfix.verify("before.onnx", "after.onnx", safety="exact")


def test_a_fixed_model_in_memory_is_the_same() -> None:
    before, _ = masked()
    assert graphfix.verify(before, graphfix.fix(before, "fast"))


def test_a_model_without_a_promise_is_held_to_every_element() -> None:
    before, after = masked()
    del after.metadata_props["graphfix.pipeline"]
    assert not graphfix.verify(before, after)


def test_a_model_that_has_the_pipeline_already_promises_nothing_new() -> None:
    before, after = masked()
    before.metadata_props["graphfix.pipeline"] = after.metadata_props["graphfix.pipeline"]
    assert not graphfix.verify(before, after)


def test_a_changed_input_is_fed_as_the_pass_says() -> None:
    before = ir.from_onnx_text(
        """<ir_version: 8, opset_import: ["" : 17]>
        m (float[B, T] x) => (float[B, T] y) { y = Relu (x) }"""
    )
    after = before.clone()
    graphfix.run(after, "fix-dims:T=4")
    assert graphfix.verify(before, after)
    # Who says how inputs are mapped has said what may change.
    assert not graphfix.verify(before, after, may_change=())


def test_passes_that_are_unknown_are_said(caplog: pytest.LogCaptureFixture) -> None:
    before, after = masked()
    after.metadata_props["graphfix.pipeline"] = "no-such-pass"
    with caplog.at_level(logging.WARNING, "graphfix"):
        assert not graphfix.verify(before, after)
    assert "went through no-such-pass, which is unknown here" in caplog.text
