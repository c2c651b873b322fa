"""On the real DirectML: what the passes that fuse make computes what the CPU does."""

from __future__ import annotations

import itertools

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.job import planning
from graphfix.runtime.local_session import Session
from tests.dml.ran import found, predicted

SIZES = {"B": 2, "T": 5}
X, R = "float[B, T, 8] x", "float[B, T, 8] r"
S = "float[8] scale, float[8] shift, float[8] b"
NUMBERS = """<float two = {2.0}, float eps = {1e-5}, float root = {1.4142135}, float one = {1.0},
    float half = {0.5}, int64[4] heads = {0, 0, 2, 4}, float cube = {0.044715},
    float k = {0.79788456}, float three = {3.0}, float zero = {0.0}>"""
PIECES = """mean = ReduceMean <axes = [-1]> (h) d = Sub (h, mean) q = Pow (d, two)
    v = ReduceMean <axes = [-1]> (q) w = Add (v, eps) s = Sqrt (w) n = Div (d, s)
    m = Mul (n, scale) y = Add (m, shift)"""
RMS = """q = Pow (h, two) v = ReduceMean <axes = [-1]> (q) w = Add (v, eps) s = Sqrt (w)
    i = Reciprocal (s) n = Mul (h, i) y = Mul (scale, n)"""
CHANNELS = PIECES.replace("[-1]", "[1]")
EIGHT = "{0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25}"
GELU = "p = Div (h, root) e = Erf (p) o = Add (e, one) t = Mul (h, o) y = Mul (t, half)"
OUT = "float[B, T, 8] y"

# What goes in, what comes out, the nodes, and what they become.
FUSED = {
    "a LayerNorm": (f"float[B, T, 8] h, {S}", OUT, PIECES, ["LayerNormalization"]),
    "an RMSNorm": (f"float[B, T, 8] h, {S}", OUT, RMS, ["SimplifiedLayerNormalization"]),
    "a LayerNorm and its sum": (
        f"{X}, {R}, {S}", f"{OUT}, float[B, T, 8] h", f"a = Add (x, b) h = Add (a, r) {PIECES}",
        ["SkipLayerNormalization"],
    ),
    "an RMSNorm and its sum": (
        f"{X}, {R}, {S}", f"{OUT}, float[B, T, 8] h", f"a = Add (x, b) h = Add (a, r) {RMS}",
        ["Add", "SkipSimplifiedLayerNormalization"],
    ),
    "a LayerNorm of two dims": (
        f"float[T, 8] x, float[T, 8] r, {S}", "float[T, 8] y", f"h = Add (x, r) {PIECES}",
        ["SkipLayerNormalization"],
    ),
    "a LayerNorm of a sum of two shapes": (
        f"{X}, float[T, 8] r, {S}", OUT, f"h = Add (x, r) {PIECES}", ["Add", "LayerNormalization"],
    ),
    "a norm of channels": (
        "float[B, 8, T] h", "float[B, 8, T] y",
        f"scale = Constant <value = float[8, 1] {EIGHT}> () "
        f"shift = Constant <value = float[1, 8, 1] {EIGHT}> () {CHANNELS}",
        ["Transpose", "LayerNormalization", "Transpose"],
    ),
    "a norm over all but the batch": (
        "float[B, T, 8] h, float[T, 1] g", OUT,
        PIECES.replace("[-1]", "[1, 2]").split(" n =")[0] + " f = Mul (g, d) y = Div (f, s)",
        ["Unsqueeze", "InstanceNormalization", "Squeeze", "Mul"],
    ),
    "a Softplus that does not overflow": (
        "float[B, T, 8] h", OUT, "z = Sub (zero, h) a = Abs (z) b = Neg (a) e = Exp (b) "
        "m = Add (e, one) l = Log (m) t = Max (zero, h) y = Add (t, l)",
        ["Softplus"],
    ),
    "a Gelu": ("float[B, T, 8] h", OUT, GELU, ["Gelu"]),
    "a Gelu with a bias": (f"{X}, {S}", OUT, f"h = Add (x, b) {GELU}", ["BiasGelu"]),
    "a SiLU": ("float[B, T, 8] h", OUT, "p = Sigmoid (h) y = Mul (h, p)", ["QuickGelu"]),
    "a Gelu by Tanh": (
        "float[B, T, 8] h", OUT, "c = Pow (h, three) d = Mul (c, cube) s = Add (h, d) "
        "p = Mul (s, k) e = Tanh (p) o = Add (e, one) t = Mul (h, o) y = Mul (t, half)",
        ["Mul", "HardSigmoid", "Mul", "QuickGelu", "Div"],
    ),
    "scores": (
        "float[B, T, 8] x, float[B, 2, T, 4] c", "float[B, 2, T, T] y", "s = Reshape (x, heads) "
        "q = Transpose <perm = [0, 2, 1, 3]> (s) t = Transpose <perm = [0, 1, 3, 2]> (c) "
        "p = MatMul (q, t) y = Mul (p, half)",
        ["Reshape", "Transpose", "FusedMatMul"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("case", "fixed"), list(itertools.product(FUSED, (False, True))))
def test_directml_computes_what_the_cpu_does(case: str, fixed: bool) -> None:
    signature, out, body, wanted = FUSED[case]
    head = '<ir_version: 8, opset_import: ["" : 17]>'
    before, after = (
        ir.from_onnx_text(f"{head} m ({signature}) => ({out}) {NUMBERS} {{ {body} }}")
        for _ in range(2)
    )
    graphfix.run(after, "fuse-norm,fuse-gelu,fuse-softplus,fuse-matmul,fold")
    assert [node.op_type for node in after.graph] == wanted
    sizes = {name: size for name, size in SIZES.items() if name in str(after.graph.inputs)}
    rng = np.random.default_rng(0)
    feeds = {
        x.name: rng.standard_normal([SIZES.get(str(d), d) for d in x.shape]).astype(np.float32)
        for x in before.graph.inputs
    }  # fmt: skip
    with Session(before) as cpu:
        want = cpu.run(feeds)
    with Session(after, ep="dml", free_dims=sizes if fixed else None) as dml:
        got = dml.run(feeds)
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-5, atol=1e-5)
    if not fixed:  # one kernel for each node, none of them on the CPU
        assert found(after) == predicted(after)
        assert predicted(after)["dml"] == len(wanted)


@pytest.mark.parametrize("fixed", [False, True])
def test_what_one_vector_conditions_is_one_product(fixed: bool) -> None:
    numbers = ", ".join(str(i % 7 / 7 - 0.4) for i in range(48))
    few = ", ".join(numbers.split(", ")[:16])
    body, given, x = [], [], "x"
    for n in "abc":
        given.append(f"float[16, 3] {n}u = {{{numbers}}}, float[16] {n}c = {{{few}}}")
        body.append(
            f"{n}g = Gemm <transB = 1> (style, {n}u, {n}c) {n}w = Unsqueeze ({n}g, last) "
            f"{n}p, {n}b = Split <axis = 1> ({n}w) {n}s = Add ({n}p, one) "
            f"{n}m = Mul ({x}, {n}s) {n}y = Add ({n}m, {n}b)"
        )
        x = f"{n}y"
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        m (float[B, 8, T] x, float[B, 3] style) => (float[B, 8, T] {x})
        <float one = {{1}}, int64[1] last = {{2}}, {", ".join(given)}> {{ {" ".join(body)} }}"""
    before, after = (ir.from_onnx_text(text) for _ in range(2))
    graphfix.run(after, "join-conditions,fold")
    made = ["Gemm", "Unsqueeze", "Split", *["Mul", "Add"] * 3]
    assert [node.op_type for node in after.graph] == made
    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.standard_normal((2, 8, 5), np.float32),
        "style": rng.standard_normal((2, 3), np.float32),
    }
    with (
        Session(before) as cpu,
        Session(after, ep="dml", free_dims=SIZES if fixed else None) as dml,
    ):
        want, got = cpu.run(feeds), dml.run(feeds)
    np.testing.assert_allclose(got[x], want[x], rtol=1e-5, atol=1e-5)
    if not fixed:
        assert found(after) == predicted(after)
        assert predicted(after)["dml"] == len(made)


WEIGHTS = ", ".join(
    f"float[8, 8] {name} = {{{', '.join(str((i * 7 + 3 * n) % 11 / 11 - 0.5) for i in range(64))}}}"
    for n, name in enumerate(("wq", "wk", "wv"))
)
FILLED = ", ".join(str(i % 5 / 5 - 0.4) for i in range(24))


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize(
    ("more", "given"),
    [
        ("", ""),
        ("", ", b"),
        (", int32[B, T] seen", ", , seen"),
        (", int32[B, T] seen", ", b, seen"),
        (", float[B, 2, T, T] r", ", , , r"),
        (", float[B, 2, T, T] r", ", b, , r"),
    ],
)
def test_projections_and_their_attention_are_one_kernel(more: str, given: str, fixed: bool) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        m ({X}{more}) => ({OUT}) <{WEIGHTS}, float[24] b = {{{FILLED}}}> {{
        q = MatMul (x, wq) k = MatMul (x, wk) v = MatMul (x, wv)
        y = com.microsoft.MultiHeadAttention <num_heads = 2, mask_filter_value = -5.0>
            (q, k, v{given}) }}"""
    before, after = (ir.from_onnx_text(text) for _ in range(2))
    graphfix.run(after, "fuse-projections")
    assert [node.op_type for node in after.graph] == ["Concat", "Attention"]
    rng = np.random.default_rng(0)
    feeds = {
        x.name: rng.standard_normal([SIZES.get(str(d), d) for d in x.shape]).astype(np.float32)
        for x in before.graph.inputs
    }
    if "seen" in feeds:
        feeds["seen"] = (np.arange(SIZES["T"]) < np.array([[3], [5]])).astype(np.int32)
    with Session(before) as cpu:
        want = cpu.run(feeds)["y"]
    sizes = {name: SIZES[name] for name in ("B", "T")}
    with Session(after, ep="dml", free_dims=sizes if fixed else None) as dml:
        np.testing.assert_allclose(dml.run(feeds)["y"], want, rtol=1e-5, atol=1e-5)
    if not fixed:
        assert found(after) == predicted(after)
        plan = planning.plan(after)
        assert plan.steps_on("dml", "cpu") == 1  # the Concat is done when the model is loaded
