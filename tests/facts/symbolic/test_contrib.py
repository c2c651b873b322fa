"""Shapes of com.microsoft's operators, compared with what ONNX Runtime makes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from graphfix.facts.shapes import shapes_of
from graphfix.facts.symbolic.expressions import Dim, expr_of
from tests.passes.models import execute

HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
SIZES = {"B": 2, "T": 3, "S": 5, "P": 4, "M": 9}
TYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int8)": np.int8}
PAST = "float[B, 4, P, 8] pk, float[B, 4, P, 8] pv"
QKV = "float[B, T, 32] q, float[B, S, 32] k, float[B, S, 48] v"
SAME = "float[B, T, 32] q, float[B, S, 32] k, float[B, S, 32] v"

MODELS = {
    "attention": (QKV, "y = com.microsoft.MultiHeadAttention <num_heads = 4> (q, k, v)"),
    "attention with a past": (
        f"{SAME}, {PAST}",
        "y, a, b = com.microsoft.MultiHeadAttention <num_heads = 4> (q, k, v, , , , pk, pv)",
    ),
    "attention over heads": (
        "float[B, T, 32] q, float[B, 4, S, 8] k, float[B, 4, S, 8] v",
        "y = com.microsoft.MultiHeadAttention <num_heads = 4> (q, k, v)",
    ),
    "projections": (
        "float[B, T, 6] q, float[6, 96] w, float[96] b",
        "y = com.microsoft.Attention <num_heads = 4> (q, w, b)",
    ),
    "projections of two widths": (
        "float[B, T, 6] q, float[6, 80] w, float[80] b",
        """y = com.microsoft.Attention <num_heads = 4, qkv_hidden_sizes = [32, 32, 16]>
            (q, w, b)""",
    ),
    "rotary": (
        "float[B, T, 32] q, int64[1] at, float[M, 4] c, float[M, 4] s",
        "y = com.microsoft.RotaryEmbedding <num_heads = 4> (q, at, c, s)",
    ),
    "a recurrence of integers": (
        """float[T, B, 6] q, int8[2, 6, 32] w, int8[2, 8, 32] r, float[2] s, int8[2] p,
        float[2, B, 8] h""",
        """y, a, b = com.microsoft.DynamicQuantizeLSTM <hidden_size = 8,
            direction = "bidirectional"> (q, w, r, , , h, h, , s, p, s, p)""",
    ),
    "gelu": ("float[B, T, 32] q, float[32] b", "y = com.microsoft.BiasGelu (q, b)"),
    "skip": (
        "float[B, T, 32] q, float[B, T, 32] r, float[32] g",
        "y, , , a = com.microsoft.SkipLayerNormalization (q, r, g)",
    ),
}


def number(dim: Dim) -> int:
    expr = expr_of(dim)
    return int(expr.subs({x: SIZES[str(x)] for x in expr.free_symbols}))


@pytest.mark.parametrize("name", MODELS)
def test_shapes_are_those_of_a_run(name: str) -> None:
    given, body = MODELS[name]
    model = ir.from_onnx_text(f"{HEAD} m ({given}) => (float y) {{ {body} }}")
    made = [x for x in model.graph.node(0).outputs if x.name]
    shapes = shapes_of(model)
    found = [[number(d) for d in shapes.dims(x) or ()] for x in made]
    model.graph.outputs[:] = made
    for value in made:
        value.shape = None
        value.dtype = ir.DataType.FLOAT
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), options)
    feeds = {}
    for x in session.get_inputs():
        shape = [SIZES.get(d, d) for d in x.shape]
        feeds[x.name] = np.zeros(shape, TYPES[x.type])
    assert [list(x.shape) for x in session.run(None, feeds)] == found
    assert all(shapes.dtype(x) == ir.DataType.FLOAT for x in made)


def test_what_is_not_known_is_not_guessed() -> None:
    text = f"""{HEAD} m (float[B, T, 32] q, float[N] s, int64[3] to) => (float y) {{
        k = Reshape (s, to) y = com.microsoft.MultiHeadAttention <num_heads = 4> (q, k, k) }}"""
    model = ir.from_onnx_text(text)
    dims = shapes_of(model).dims(model.graph.outputs[0])
    assert dims is None or str(dims[2]) != "32"


CACHED = "float[B, S, 32] q, float[B, S, 16] k, int32[B] last, float[B, 2, P, 8] pk"
TOTALS = {
    "of a mask": ("int64[B, M] mask", "s = Shape (mask) m = Gather (s, one)", "Max(M, P)"),
    "past and new": (
        "int64 unused",
        "s = Shape (pk) p = Gather (s, two) r = Shape (q) n = Gather (r, one) m = Add (p, n)",
        "P + S",
    ),
    "fed": ("int64 total", "m = Identity (total)", None),
}


@pytest.mark.parametrize("total", TOTALS)
@pytest.mark.parametrize(("past", "mask"), [(4, 6), (9, 7)])
def test_a_cache_is_as_long_as_the_kernel_makes_it(total: str, past: int, mask: int) -> None:
    """A past with room is a buffer that present shares; the library adds the new tokens to it."""
    given, body, expected = TOTALS[total]
    model = ir.from_onnx_text(f"""{HEAD} m ({CACHED}, {given})
        => (float[B, S, 32] y, float[B, 2, N, 8] nk) <int64 one = {{1}}, int64 two = {{2}}> {{
        {body} t = Cast <to = 6> (m)
        y, nk, nv = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2>
            (q, k, k, pk, pk, last, t) }}""")
    dims = shapes_of(model).dims(model.graph.outputs[1])
    assert dims is not None
    count = past + 2 if total == "past and new" else mask
    feeds = {
        "q": np.ones((1, 2, 32), np.float32),
        "k": np.ones((1, 2, 16), np.float32),
        "last": np.full(1, count - 1, np.int32),
        "pk": np.ones((1, 2, past, 8), np.float32),
        "mask": np.ones((1, mask), np.int64),
        "total": np.array(count),
        "unused": np.array(0),
    }
    size = execute(model, feeds)[1].shape[2]
    if expected is None:
        assert not {"P", "S"} & {x.name for x in expr_of(dims[2]).free_symbols}
    else:
        assert str(expr_of(dims[2])) == expected
        sizes = {"P": past, "S": 2, "M": mask}
        symbols = expr_of(dims[2]).free_symbols
        assert expr_of(dims[2]).subs({x: sizes[x.name] for x in symbols}) == size


def test_a_past_length_says_that_the_past_is_a_buffer() -> None:
    model = ir.from_onnx_text(f"""{HEAD} m ({SAME}, {PAST}, int32[1] n) => (float y, float[A] a) {{
        y, a, b = com.microsoft.MultiHeadAttention <num_heads = 4>
            (q, k, v, , , , pk, pv, n) }}""")
    dims = shapes_of(model).dims(model.graph.outputs[1])
    assert dims is not None
    assert not {"P", "S"} & {x.name for x in expr_of(dims[2]).free_symbols}
