"""A quantized original differs from itself, step by step; one that does not round has no reason."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from graphfix.proof.compare import Tolerance
from graphfix.runtime.local_session import Session
from graphfix.shipping.stream_proof import measure_own_rounding
from graphfix.shipping.stream_steps import StepSequence
from tests.shipping.conftest import saved

if TYPE_CHECKING:
    from pathlib import Path

    import onnx_ir as ir

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
OUTPUTS = ({"y": np.ones(4, np.float32)}, {"y": np.ones(4, np.float32)})
STEPS = StepSequence("steps", {}, ({}, {}), OUTPUTS)


def rerun(model: ir.Model) -> list[StepSequence]:
    return [replace(STEPS, outputs=(OUTPUTS[0], {"y": np.full(4, 0.98, np.float32)}))]


def test_the_largest_difference_of_any_step_is_what_may_differ(tmp_path: Path) -> None:
    text = "m (float[4] x) => (uint8[4] y) { y, s, z = DynamicQuantizeLinear (x) }"
    source = saved(HEADER + text, tmp_path / "rounds.onnx")
    own = measure_own_rounding(source, [STEPS], Tolerance(), rerun)
    assert own is not None
    assert own.runs == 4
    assert 0.01 < own.widen(Tolerance()).max_abs < 0.1


def test_what_does_not_round_has_no_reason_to_differ(tmp_path: Path) -> None:
    source = saved(HEADER + "m (float[4] x) => (float[4] y) { y = Relu (x) }", tmp_path / "m.onnx")
    assert measure_own_rounding(source, [STEPS], Tolerance(), rerun) is None


def test_where_no_weight_is_a_float_the_last_bits_of_results_are_others(tmp_path: Path) -> None:
    text = """m (int64[2, 32] ids) => (uint8[2, 32] q, float[2, 32] y) {
        x = Cast <to = 1> (ids)  y = Sqrt (x)  q, s, z = DynamicQuantizeLinear (y) }"""
    source = saved(HEADER + text, tmp_path / "tokens.onnx")
    results = []

    def rerun_copy(model: ir.Model) -> list[StepSequence]:
        with Session(model) as session:
            results.append(session.run({"ids": np.arange(64).reshape(2, 32)})["y"])
        return rerun(model)

    measure_own_rounding(source, [STEPS], Tolerance(), rerun_copy)
    first, second = results
    assert 0 < np.abs(first - second).max() < 1e-5
