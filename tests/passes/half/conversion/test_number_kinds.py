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


ALONE = "it computes with counts or positions alone"
COUNTED = "it counts: whole numbers past 2,048 are not in float16"
READ = "may hold whole numbers past 2,048"


@pytest.mark.parametrize(
    ("body", "reasons"),
    [
        # What becomes float: flags, small numbers, pixels, counts.
        ("y = Cast <to = 1> (flags)", {}),
        ("y = Cast <to = 1> (lengths)", {"y": READ}),
        ("y = Cast <to = 1> (bytes)", {}),
        ("y = Cast <to = 1> (words)", {"y": READ}),
        ("y = Cast <to = 1> (half)", {}),
        ("y = Cast <to = 1> (small)", {}),
        ("y = Cast <to = 1> (edge)", {}),
        ("y = Cast <to = 1> (past)", {"y": READ}),
        ("h = Cast <to = 10> (lengths) y = Relu (x)", {}),
        ("s = Shape (x) y = Cast <to = 1> (s)", {"y": READ}),
        # Integers of several a row may be a mask, unless a vector scales them, as positions are.
        ("y = Cast <to = 1> (mask)", {}),
        ("c = Cast <to = 1> (mask) y = Mul (c, one)", {}),
        ("c = Cast <to = 1> (mask) y = Mul (c, turns)", {"c": READ, "y": ALONE}),
        ("c = Cast <to = 1> (mask) y = Mul (turns, c)", {"c": READ, "y": ALONE}),
        ("c = Cast <to = 1> (mask) u = Unsqueeze (c, axis) y = Mul (u, turns)",
         {"c": READ, "u": ALONE, "y": ALONE}),
        ("c = Cast <to = 1> (mask) t = Transpose (turns2) y = MatMul (c, t)",
         {"c": READ, "y": ALONE}),
        ("c = Cast <to = 1> (mask) y = Mul (c, x)", {}),
        ("c = Cast <to = 1> (mask) y = Add (c, turns)", {}),
        # Counts of flags, and what follows from counts alone.
        ("c = Cast <to = 1> (flags) y = ReduceSum (c)", {"y": COUNTED}),
        ("c = Cast <to = 1> (flags) m = Mul (c, one) y = ReduceSum (m)", {"y": COUNTED}),
        ("c = Cast <to = 1> (flags) y = CumSum (c, zero)", {"y": "a sum that grows with length"}),
        ("y = CumSum (x, zero)", {"y": "a sum that grows with length"}),
        ("y = CumSum (lengths, zero)", {}),
        ("c = Cast <to = 1> (lengths) y = Sqrt (c)", {"c": READ, "y": ALONE}),
        ("c = Cast <to = 1> (lengths) y = Add (c, c)", {"c": READ, "y": ALONE}),
        ("c = Cast <to = 1> (lengths) y = Mul (c, x)", {"c": READ, "y": "it takes 'c', a count"}),
        ("c = Cast <to = 1> (lengths) y = Shape (c)", {"c": READ}),
        ("c = Cast <to = 1> (lengths) s = Sqrt (c) y = Mul (s, x)", {"c": READ, "s": ALONE}),
        ("c = Cast <to = 1> (lengths) s = Add (c, c) y = Mul (s, x)",
         {"c": READ, "s": ALONE, "y": "it takes 's', a count"}),
        ("c = Cast <to = 1> (lengths) s = Sqrt (c) n = Add (s, c) y = Mul (n, x)",
         {"c": READ, "s": ALONE, "n": ALONE}),
        # No count is left behind a sine or an exponential.
        ("c = Cast <to = 1> (lengths) s = Sin (c) y = Mul (s, s)", {"c": READ, "s": ALONE}),
        ("c = Cast <to = 1> (lengths) s = Exp (c) y = Mul (s, s)", {"c": READ, "s": ALONE}),
        ("c = Cast <to = 1> (lengths) s = Sign (c) y = Mul (s, s)",
         {"c": READ, "s": ALONE, "y": ALONE}),
        # Constants and flags are none.
        ("a = Add (one, one) y = ReduceSum (a)", {}),
        ("g = Gather (turns, zero) y = ReduceSum (g)", {}),
        ("w = Where (which, one, one) y = ReduceSum (w)", {"y": COUNTED}),
        ("a = Add (one, one) w = Where (which, a, one) y = ReduceSum (w)", {"y": COUNTED}),
        # One number for each row, or for all, may be large; what weights make of it is data.
        ("y = Sin (step)", {"y": ALONE}),
        ("y = Sin (scale)", {"y": ALONE}),
        ("y = Sin (unit)", {"y": ALONE}),
        ("y = Sin (other)", {}),
        ("y = Sin (x)", {}),
        ("s = Mul (step, two) y = Sin (s)", {"s": ALONE, "y": ALONE}),
    ],
)  # fmt: skip
def test_kinds(body: str, reasons: dict[str, str]) -> None:
    constants = """zero = Constant <value = int64 {0}> () one = Constant <value_float = 1.0> ()
        two = Constant <value_float = 2.0> () turns = Constant <value = float[2] {1, 0.5}> ()
        turns2 = Constant <value = float[2, 2] {1, 0.5, 1, 2}> ()
        small = Constant <value = int64[2] {3, 4}> () edge = Constant <value = int64[1] {-2048}> ()
        past = Constant <value = int64[1] {2049}> () axis = Constant <value = int64[1] {0}> ()"""
    view = View(
        parse(
            """(float[B, T, 2] x, bool[B, 2] flags, int64[B] lengths, uint8[B, 2] bytes,
            int16[B] words, float16[B] half, int64[B, 2] mask, bool which, float[B] step,
            float scale, float[1] unit, float[N] other) => (float y)""",
            f"{constants} {body}",
        )
    )
    counting = find_counting_nodes([*view.model.graph], ElementTypes(view), view)
    found = {node.outputs[0].name: reason for node, reason in counting}
    assert found.keys() == reasons.keys()
    for name, reason in reasons.items():
        assert reason in found[name]
