"""Counts and positions that stay in float32, and data that does not."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.facts.view import View
from graphfix.passes.half.conversion.number_kinds import find_counting_nodes
from graphfix.passes.half.conversion.value_types import ElementTypes
from tests.passes.half.test_float16 import HALF, add, agree, f, halved, parse, same_numbers

__all__ = ["same_numbers"]  # a fixture

LOWEST = np.finfo(np.float32).min


def fed(low: float) -> dict[str, np.ndarray]:
    """Two rows; of the second the last keys are hidden, and of its last query all are."""
    mask = np.zeros((2, 1, 5, 5), np.float32)
    mask[1, :, :, 3:] = low
    mask[1, :, 4] = low
    return {"x": f(2, 5, 8), "mask": mask}


def test_a_step_of_a_diffusion_keeps_its_angle() -> None:
    """One number a row is as large as it likes: of 999.5 float16 has the half, of its sine none."""
    before = add(
        parse(
            "(float[B, T, 8] x, float[B] t, float[8, 8] w, float[4] turns) => (float[B, T, 8] y)",
            """h = MatMul (x, w) one = Constant <value = int64[1] {1}> () u = Unsqueeze (t, one)
            a = Mul (u, turns) s = Sin (a) c = Cos (a) e = Concat <axis = -1> (s, c)
            l = MatMul (e, w) k = Unsqueeze (l, one) y = Add (h, k)""",
        ),
        w=f(8, 8),
        turns=np.array([1, 0.1, 0.01, 0.001], np.float32),
    )
    after = halved(before)
    agree(before, after, {"x": f(2, 5, 8), "t": np.array([999.3, 501.7], np.float32)}, share=3e-3)
    made = {x.outputs[0].name: x.outputs[0].dtype for x in after.graph}
    assert made["a"] != HALF
    assert made["l"] == HALF  # behind the sine it is data
    assert sum(x.op_type == "Cast" for x in after.graph) == 3


@pytest.mark.parametrize(
    ("step", "kept"),
    [
        ("Relu (c)", "it computes with counts"),
        ("HardSigmoid (c)", "it computes with counts"),
        ("ReduceL1 (c)", "it computes with counts"),
        ("GatherElements (c, order)", "it computes with counts"),
        # Another function of a count: what it makes is data.
        ("Softplus (c)", "it takes 'c', a count"),
    ],
)
def test_what_is_computed_of_counts_stays(step: str, kept: str) -> None:
    view = View(
        parse(
            "(int64[B] n, int64[B] order) => (float y)",
            f"c = Cast <to = 1> (n) y = {step}",
        )
    )
    counting = find_counting_nodes([*view.model.graph], ElementTypes(view), view)
    reasons = {node.op_type: reason for node, reason in counting}
    assert reasons[step.split()[0]].startswith(kept)


@pytest.mark.parametrize("step", ["MatMul (c, weights)", "ReduceL1 (c)", "CumSum (c, zero)"])
def test_a_sum_of_flags_is_a_count(step: str) -> None:
    view = View(
        parse(
            "(bool[B, T] n, float[T, T] w) => (float y)",
            f"""zero = Constant <value = int64 {{0}}> ()
            weights = Constant <value = float[1, 1] {{1}}> () c = Cast <to = 1> (n) y = {step}""",
        )
    )
    nodes = [*view.model.graph]
    found = [node for node, _ in find_counting_nodes(nodes, ElementTypes(view), view)]
    assert found == [nodes[-1]]


def test_a_row_of_samples_is_data() -> None:
    """A waveform without a batch is no number a row, and a number that meets weights is data."""
    before = add(
        parse(
            "(float[N] x, float[1] speed, float[1, 1, 8] w, float[1, 2048] v) => (float[M, K] y)",
            """s = Constant <value = int64[3] {1, 1, -1}> () u = Reshape (x, s) h = Conv (u, w)
            r = Constant <value = int64[2] {1, 1}> () g = Reshape (speed, r) l = MatMul (g, v)
            t = ReduceMean <axes = [0, 1], keepdims = 0> (h) o = Constant <value = int64[1] {1}> ()
            k = Unsqueeze (t, o) y = MatMul (k, l)""",
        ),
        w=f(1, 1, 8),
        v=f(1, 2048),
    )
    after = halved(before)
    weights = {x.const_value.dtype for x in after.graph.initializers.values()}
    assert weights == {ir.DataType.FLOAT16}
    agree(before, after, {"x": f(50), "speed": f(1)})
