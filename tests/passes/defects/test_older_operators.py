"""older-operators: what is new in opset 23 is written in older operators, with the same numbers."""

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.passes.defects import older_operators
from tests.passes.models import opened, ops

HEAD = """(float[B, 4, T, 6] q, float[B, 4, S, 6] k, float[B, 4, S, 6] v, float[B, 2, S, 6] k2,
    float[B, 2, S, 6] v2, bool[B, 1, T, S] m, float[B, 1, T, S] a, float[B, T, 3] c) =>
    (float[B, 4, T, 6] y)
    <float[6] scale = {1, 2, 3, 4, 5, 6}, float[4] each = {1, 2, -3, 4},
     float[4] other = {3, 1, 2, -1}, bool[1, 1, 1, 1] all = {1},
     bool[1, 1, 1, 5] some = {1, 0, 1, 1, 0},
     bool[1, 1, 1, 1] none = {0},
     float[3, 6] table = {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}>"""


def model(body: str, opset: int = 23, head: str = HEAD) -> ir.Model:
    text = f'<ir_version: 10, opset_import: ["" : {opset}]> m {head} {{ {body} }}'
    return ir.from_onnx_text(text)


def run(m: ir.Model) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    sizes = {"B": 2, "T": 5, "S": 5}
    feeds = {}
    for value in m.graph.inputs:
        shape = [sizes[x.value] if isinstance(x, ir.SymbolicDim) else x for x in value.shape]
        feeds[value.name] = random.standard_normal(shape).astype(value.dtype.numpy())
    feeds["m"] = np.ones((2, 1, 5, 5), bool)
    feeds["m"][0, ..., 3:] = feeds["m"][1] = False  # rows that are masked throughout
    feeds["a"] = np.where(np.arange(5) < 4, feeds["a"], -np.inf).astype(np.float32)
    session = opened(m)
    return session.run(None, {x.name: feeds[x.name] for x in session.get_inputs()})


@pytest.mark.parametrize("opset", [23, 24])
@pytest.mark.parametrize(
    "body",
    [
        "y = Attention (q, k, v)",
        "y = Attention <scale = 1.0> (q, k, v, m)",
        "y = Attention <scale = 0.2> (q, k, v, a)",
        "y = Attention <is_causal = 1> (q, k, v)",
        "y = Attention <is_causal = 1> (q, k, v, m)",
        "y = Attention (q, k2, v2, m)",
        "n = Shape (m) w = Expand (all, n) y = Attention <softmax_precision = 1> (q, k, v, w)",
        "n = Shape (m) w = Expand (none, n) y = Attention (q, k, v, w)",
        "y, k3, v3 = Attention <is_causal = 1> (q, k, v, , k, v)",
        "both = Concat <axis = 3> (m, m) y, k3, v3 = Attention (q, k2, v2, both, k2, v2)",
        "y = RMSNormalization <epsilon = 0.1> (q, scale)",
        "y = RMSNormalization <axis = 3> (q, scale)",
        "y = GroupNormalization <num_groups = 2> (q, each, each)",
        "y = GroupNormalization <num_groups = 4, epsilon = 0.1> (q, each, other)",
        "y = RotaryEmbedding (q, c, c)",
        "s = Sin (c) y = RotaryEmbedding (q, c, s)",
    ],
)
def test_the_numbers_stay(body: str, opset: int) -> None:
    before, after = model(body, opset), model(body, opset)
    assert graphfix.run(after, "older-operators,opset-ceiling").changed
    assert after.opset_imports[""] == 21
    assert set(older_operators._RECIPES).isdisjoint(ops(after))
    np.testing.assert_allclose(*(run(x)[0] for x in (after, before)), rtol=1e-5, atol=1e-5)


def test_a_constant_mask_that_hides_some_keys_stays() -> None:
    head = HEAD.replace("T,", "5,").replace("S]", "5]").replace("S,", "5,")
    body = "n = Shape (m) w = Expand (some, n) y = Attention (q, k, v, w)"
    before, after = model(body, head=head), model(body, head=head)
    assert graphfix.run(after, "older-operators").changed
    np.testing.assert_allclose(*(run(x)[0] for x in (after, before)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("attributes", ["", ", is_causal = 1", ", scale = 0.2"])
def test_caches_are_joined_before_and_come_out(attributes: str) -> None:
    head = """(float[B, T, 8] q, float[B, T, 4] k, float[B, T, 4] v, float[B, 1, P, 4] past_k,
        float[B, 1, P, 4] past_v) => (float[B, T, 8] y, float[B, 1, N, 4] present_k,
        float[B, 1, N, 4] present_v)"""
    body = f"""y, present_k, present_v = Attention <q_num_heads = 2, kv_num_heads = 1{attributes}>
        (q, k, v, , past_k, past_v)"""
    before, after = model(body, head=head), model(body, head=head)
    assert graphfix.run(after, "older-operators,opset-ceiling").changed
    assert "Attention" not in ops(after)
    random = np.random.default_rng(0)
    for past in (0, 1, 6):
        sizes = {"B": 2, "T": 3, "P": past}
        feeds = {
            x.name: random.standard_normal(
                [n if isinstance(n, int) else sizes[n.value] for n in x.shape]
            ).astype(np.float32)
            for x in before.graph.inputs
        }
        wanted, actual = (opened(x).run(None, feeds) for x in (before, after))
        for expected, array in zip(wanted, actual, strict=True):
            np.testing.assert_allclose(array, expected, rtol=1e-5, atol=1e-5)


def test_a_mask_that_hides_nothing_leaves_no_guard() -> None:
    after = model("n = Shape (m) w = Expand (all, n) y = Attention (q, k, v, w)")
    graphfix.run(after, "older-operators")
    assert ops(after)[-5:] == ["Transpose", "MatMul", "Mul", "Softmax", "MatMul"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("y = Attention (q, k, v, , , , number)", "each row"),
        ("y, , , w = Attention (q, k, v) z = Relu (w)", "scores"),
        ("y = Attention <softcap = 2.0> (q, k, v)", "softcap"),
        ("y = Attention <window = 2> (q, k, v)", "attribute"),
        ("y = Attention (q, k, v, late)", "mask"),
        ("y = Attention (c, c, c)", "number of its heads"),
        ("y = Attention (q, k, c)", "number of its heads"),
        ("y = Attention (q, k, flat)", "four axes"),
        ("y = Attention (q, k, v, m, k, v)", "as long as its keys"),
        ("y = Attention (q, k2, wide)", "features"),
        ("y = Attention (q, k, v, h)", "another type"),
        ("y = RMSNormalization <axis = 2> (q, table)", "several axes"),
        ("y = RotaryEmbedding (q, table2, table2, ids)", "positions"),
        ("y = RotaryEmbedding <interleaved = 1> (q, c, c)", "pairs"),
        ("y = RotaryEmbedding <rotary_embedding_dim = 4> (q, c2, c2)", "some of"),
        ("y = RotaryEmbedding <num_heads = 1> (c, c, c)", "four axes"),
        ("y = GroupNormalization <num_groups = 2> (wide_c, each, each)", "channels"),
    ],
)
def test_what_stays_and_why(body: str, why: str) -> None:
    more = """float[B, T, 3] c, bool[B, 1, T, L] late, int64[B, T] ids, float[9, 3] table2,
        float[B, T, 2] c2, float[B, 2, S, W] wide, float[B, C, S] wide_c, float16[B, 1, T, S] h,
        int64[B] number, float[B, S] flat"""
    report = graphfix.run(
        model(body, head=HEAD.replace("float[B, T, 3] c", more)), "older-operators"
    )
    assert not report.changed
    assert any(why in reason for _, reason in report.passes[0].skips)


def test_float16_is_told_and_double_stays() -> None:
    body = "y = Attention (q, k, v, m)"
    half = HEAD.replace("float[B, 4", "float16[B, 4")
    after = model(body, head=half)
    assert graphfix.run(after, "older-operators").changed
    twice = model("y = Attention (q, k, v)", head=HEAD.replace("float[B, 4", "double[B, 4"))
    assert not graphfix.run(twice, "older-operators").changed


def test_groups_of_opset_21_are_taken_and_those_of_18_are_others() -> None:
    """Scale and bias of each channel, and of each group; in place of ONNX Runtime's 25 kernels."""
    body = "y = GroupNormalization <num_groups = 4> (q, each, other)"
    before, after, older = model(body, 21), model(body, 21), model(body, 18)
    assert graphfix.run(after, "older-operators").changed
    np.testing.assert_allclose(*(run(x)[0] for x in (after, before)), rtol=1e-5, atol=1e-5)
    assert not graphfix.run(older, "older-operators").changed
