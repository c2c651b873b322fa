"""Constants and inputs that hide scores, however low, and wherever they are computed."""

from __future__ import annotations

import numpy as np
import pytest

import graphfix
from graphfix.float16_search.emulate import emulate_float16
from graphfix.runtime.local_session import Session
from tests.passes.half.test_float16 import HALF, add, agree, f, halved, parse, run, same_numbers

__all__ = ["same_numbers"]  # a fixture

LOWEST = np.finfo(np.float32).min


def fed(low: float) -> dict[str, np.ndarray]:
    """Two rows; of the second the last keys are hidden, and of its last query all are."""
    mask = np.zeros((2, 1, 5, 5), np.float32)
    mask[1, :, :, 3:] = low
    mask[1, :, 4] = low
    return {"x": f(2, 5, 8), "mask": mask}


@pytest.mark.parametrize("io", ["keep", "half"])
@pytest.mark.parametrize("low", [LOWEST, -np.inf, -65504.0, -1e9, -1e4])
def test_an_input_that_hides_scores_may_be_as_low_as_it_likes(low: float, io: str) -> None:
    before = add(
        parse(
            "(float[B, T, 8] x, float[B, 1, T, S] mask, float[8, 8] w) => (float[B, T, 8] y)",
            """q = MatMul (x, w) k = Transpose <perm = [0, 2, 1]> (q) s = MatMul (q, k)
            one = Constant <value = int64[1] {1}> () u = Unsqueeze (s, one) h = Add (u, mask)
            p = Softmax <axis = -1> (h) t = Squeeze (p, one) y = MatMul (t, q)""",
        ),
        w=f(8, 8),
    )
    spec = f"float16:io={io}"
    after = halved(before, spec)
    feeds = fed(low)
    ours = run(before, feeds)["y"]
    with np.errstate(over="ignore"):
        theirs = run(after, graphfix.get_pass("float16", io=io).feeds(feeds))["y"]
        device = Session(emulate_float16(after), optimize=False).run(feeds)["y"]
    shown = np.ones((2, 5), np.bool_)
    shown[1, 4] = False  # a row that is hidden whole is a number, and no content
    for made in (theirs, device):
        np.testing.assert_allclose(made[shown], ours[shown], atol=0.02 * np.abs(ours[shown]).max())
        assert np.isfinite(made).all()


def test_scores_that_come_in_are_no_mask() -> None:
    """What alone is given to a Softmax, or is multiplied first, has no floor."""
    before = add(
        parse(
            "(float[B, T, 8] x, float[B, T, 8] z, float[8, 8] w) => (float[B, T, 8] y)",
            "q = MatMul (x, w) h = Mul (q, z) p = Softmax <axis = -1> (h) y = MatMul (p, w)",
        ),
        w=f(8, 8),
    )
    assert not [x for x in halved(before).graph if x.op_type == "Max"]


@pytest.mark.parametrize(
    ("attention", "opset"),
    [
        ("com.microsoft.MultiHeadAttention <num_heads = 2> (q, q, q, , , bias)", 17),
        ("com.microsoft.Attention <num_heads = 2> (q, v, c, , , bias)", 17),
    ],
)
def test_the_bias_of_a_fused_attention_hides_as_well(attention: str, opset: int) -> None:
    """-3.4e38 is minus infinity in float16, and a row of that is no number."""
    before = add(
        parse(
            """(float[B, T, 8] x, bool[B, 1, T, S] hide, float[8, 8] w, float[8, 24] v, float[24] c,
            float low) => (float[B, T, 8] y)""",
            f"q = MatMul (x, w) m = Cast <to = 1> (hide) a = Mul (m, low) s = Constant <value ="
            f" int64[4] {{1, 2, 1, 1}}> () bias = Expand (a, s) y = {attention}",
            opset=opset,
        ),
        w=f(8, 8),
        v=f(8, 24),
        c=f(24),
        low=np.array(LOWEST, np.float32),
    )
    after = halved(before)
    made = {x.op_type: x.outputs[0].dtype for x in after.graph}
    assert made["Mul"] == HALF
    assert after.graph.initializers["low"].const_value.numpy() == -30000
    hide = fed(1.0)["mask"] > 0
    hide[1, :, 4] = hide[1, :, 0]
    agree(before, after, {"x": f(2, 5, 8), "hide": hide})


def test_what_a_fused_attention_hides_keys_with_is_a_number_too() -> None:
    before = add(
        parse(
            "(float[B, T, 8] x, int32[B, T] keys, float[8, 8] w) => (float[B, T, 8] y)",
            """q = MatMul (x, w) y = com.microsoft.MultiHeadAttention
            <num_heads = 2, mask_filter_value = -3.4028235e38> (q, q, q, , keys)""",
        ),
        w=f(8, 8),
    )
    after = halved(before)
    node = next(x for x in after.graph if x.op_type == "MultiHeadAttention")
    assert node.attributes["mask_filter_value"].as_float() == -30000
    kept = before.clone()
    graphfix.run(kept, "float16:keep=MultiHeadAttention")
    node = next(x for x in kept.graph if x.op_type == "MultiHeadAttention")
    assert node.attributes["mask_filter_value"].as_float() < -3e38
    keys = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]], np.int32)
    agree(before, after, {"x": f(2, 5, 8), "keys": keys})


@pytest.mark.parametrize(
    ("op", "stays"),
    [
        ("Clip (h, low, large)", False),
        ("Min (h, large)", False),
        ("Max (h, large)", False),
        ("Add (h, large)", True),
        ("Mul (h, large)", True),
    ],
)
def test_a_bound_beyond_float16_keeps_nothing(op: str, stays: bool) -> None:
    before = add(
        parse(
            "(float[B, 8] x, float[8, 8] w) => (float[B, 8] y)",
            f"""low = Constant <value_float = 0.0> () large = Constant <value_float = 1e6> ()
            h = MatMul (x, w) k = {op} g = Sigmoid (k) y = MatMul (g, w)""",
        ),
        w=f(8, 8),
    )
    after = halved(before)
    node = next(x for x in after.graph if x.outputs[0].name == "k")
    assert (node.outputs[0].dtype != HALF) == stays
    agree(before, after, {"x": f(2, 8)})
