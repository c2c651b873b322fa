"""Operators of ONNX Runtime: each optional input there and not, each flag on and off."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.survey.case import FLOATS, Array, Case, numbers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.survey.case import Kernels

_OPSET = 17
_HEADS, _WIDTH = 4, 8


def cases(_: Kernels) -> Iterator[Case]:
    """All of them that DirectML or WebGPU has kernels of."""
    for dtype in FLOATS:
        yield from _attentions(dtype)
        yield from _norms(dtype)
        yield from _rotary(dtype)
        yield from _products(dtype)
        yield from _activations(dtype)
        yield from _decoders(dtype)
        yield from _convolutions(dtype)
    yield from _quantized()
    yield from _nbits()
    yield from _blocks()


def _case(op: str, kind: str, *inputs: Array | None, n: int = 1, **given: Any) -> Case:
    return Case(f"com.microsoft.{op}", kind, inputs, given, outputs=n, opset=_OPSET)


def _attentions(dtype: str) -> Iterator[Case]:
    width, b, s, p = _HEADS * _WIDTH, 2, 3, 5
    q, k, v = (numbers(dtype, b, s, width, seed=i) for i in range(3))
    bias = numbers(dtype, 3 * width)
    addend = numbers(dtype, b, _HEADS, s, s)
    for has_bias, has_addend in itertools.product((0, 1), (0, 1)):
        kind = f"bias {has_bias}, attention_bias {has_addend}"
        given = (bias if has_bias else None, None, addend if has_addend else None)
        yield _case("MultiHeadAttention", kind, q, k, v, *given, num_heads=_HEADS)
    for name, shape in (("[1, H, S, S]", (1, _HEADS, s, s)), ("[B, 1, S, S]", (b, 1, s, s)),
                        ("[1, 1, S, S]", (1, 1, s, s))):  # fmt: skip
        kind = f"attention_bias {name}"
        wires = (q, k, v, None, None, numbers(dtype, *shape))
        yield _case("MultiHeadAttention", kind, *wires, num_heads=_HEADS)
    for name, mask in (("[B]", [3, 2]), ("[B, S]", [[1, 1, 1], [1, 1, 0]]),
                       ("[3B+2]", [3, 2, 0, 3, 6, 0, 3, 6])):  # fmt: skip
        wires = (q, k, v, None, np.array(mask, np.int32))
        yield _case("MultiHeadAttention", f"mask {name}", *wires, num_heads=_HEADS)
    past = [numbers(dtype, b, _HEADS, p, _WIDTH, seed=i) for i in (4, 5)]
    wires = (q, k, v, None, None, None, *past)
    yield _case("MultiHeadAttention", "past", *wires, n=3, num_heads=_HEADS)
    yield _case("MultiHeadAttention", "scale", q, k, v, num_heads=_HEADS, scale=0.7)
    yield _case("MultiHeadAttention", "unidirectional", q, k, v, num_heads=_HEADS,
                unidirectional=1)  # fmt: skip
    packed = numbers(dtype, b, s, _HEADS, 3, _WIDTH)
    yield _case("MultiHeadAttention", "packed QKV", packed, num_heads=_HEADS)
    kv = numbers(dtype, b, s, _HEADS, 2, _WIDTH)
    yield _case("MultiHeadAttention", "packed KV", q, kv, num_heads=_HEADS)
    x, w = numbers(dtype, b, s, 16), numbers(dtype, 16, 3 * width)
    for name, mask in (("absent", None), ("[B]", [3, 2]), ("[B, S]", [[1, 1, 1], [1, 1, 0]])):
        mask_array = None if mask is None else np.array(mask, np.int32)
        yield _case("Attention", f"mask {name}", x, w, bias, mask_array, num_heads=_HEADS)
    yield _case("Attention", "without a bias", x, w, None, num_heads=_HEADS)
    few_k, few_v = (numbers(dtype, b, s, width // 2, seed=i) for i in (6, 7))
    last, total = np.array([s - 1, s - 1], np.int32), np.array(s, np.int32)
    few = {"num_heads": _HEADS, "kv_num_heads": _HEADS // 2}
    wires = (q, few_k, few_v, None, None, last, total)
    yield _case("GroupQueryAttention", "first prompt", *wires, n=3, **few)
    past = [numbers(dtype, b, _HEADS // 2, p, _WIDTH, seed=i) for i in (8, 9)]
    last, total = np.array([p + s - 1] * 2, np.int32), np.array(p + s, np.int32)
    yield _case("GroupQueryAttention", "past", q, few_k, few_v, *past, last, total, n=3, **few)


def _decoders(dtype: str) -> Iterator[Case]:
    """Each option of GroupQueryAttention, with a past in a buffer of its own."""
    b, s, p, kv = 1, 3, 5, _HEADS // 2
    q = numbers(dtype, b, s, _HEADS * _WIDTH)
    k, v = (numbers(dtype, b, s, kv * _WIDTH, seed=i) for i in (1, 2))
    past = [numbers(dtype, b, kv, p, _WIDTH, seed=i) for i in (3, 4)]
    last, total = np.array([p + s - 1], np.int32), np.array(p + s, np.int32)
    cos, sin = (numbers(dtype, 16, _WIDTH // 2, seed=i) for i in (5, 6))
    addend = numbers(dtype, b, 1, s, p + s)
    few: dict[str, Any] = {"num_heads": _HEADS, "kv_num_heads": kv}
    wires: tuple[Array | None, ...] = (q, k, v, *past, last, total)
    packed = np.concatenate([q, k, v], axis=2)
    for kind, more, given in (
        ("one batch", (), {}),
        ("rotary", (cos, sin), {"do_rotary": 1}),
        ("rotary interleaved", (cos, sin), {"do_rotary": 1, "rotary_interleaved": 1}),
        ("attention_bias", (None, None, None, addend), {}),
        ("head_sink", (None, None, None, None, numbers(dtype, _HEADS)), {}),
        ("window", (), {"local_window_size": 2}),
        ("softcap", (), {"softcap": 2.0}),
        ("smooth_softmax", (), {"smooth_softmax": 1}),
        ("scale", (), {"scale": 0.7}),
    ):
        yield _case("GroupQueryAttention", kind, *wires, *more, n=3, **few, **given)
    one = (packed, None, None, *past, last, total)
    yield _case("GroupQueryAttention", "packed", *one, n=3, **few)
    last = np.array([p], np.int32)
    one = (q[:, :1], k[:, :1], v[:, :1], *past, last, np.array(p + 1, np.int32))
    yield _case("GroupQueryAttention", "one token", *one, n=3, **few)
    x = numbers(dtype, 2, 3, 8)
    given = {"axis": -1, "epsilon": 1e-6}
    for kind, size in (("type", 1), ("value 500", 500), ("value 1e-3", 1e-3)):
        wires = (x * np.asarray(size, dtype), numbers(dtype, 8))
        yield Case("RMSNormalization", kind, wires, given, opset=23)
    heads = numbers(dtype, 2, _HEADS, 3, _WIDTH)
    at = np.array([[0, 1, 2], [3, 4, 5]])
    for interleaved in (0, 1):
        kind, given = f"positions, interleaved {interleaved}", {"interleaved": interleaved}
        yield Case("RotaryEmbedding", kind, (heads, cos, sin, at), given, opset=23)
    rows = (cos[None, :3].repeat(2, 0), sin[None, :3].repeat(2, 0))
    yield Case("RotaryEmbedding", "no positions", (heads, *rows), opset=23)


def _convolutions(dtype: str) -> Iterator[Case]:
    x, w, bias = numbers(dtype, 2, 4, 6, 6), numbers(dtype, 3, 4, 3, 3), numbers(dtype, 3)
    for kind, more in (
        ("Relu", ()), ("Sigmoid", ()), ("Tanh", ()), ("LeakyRelu", (0.1,)), ("Clip", (-1.0, 1.0)),
        ("HardSigmoid", (0.2, 0.5)),
    ):  # fmt: skip
        given: dict[str, Any] = {"activation": kind}
        given |= {"activation_params": list(more)} if more else {}
        yield _case("FusedConv", kind, x, w, bias, **given)
    sums = numbers(dtype, 2, 3, 4, 4)
    yield _case("FusedConv", "a sum", x, w, bias, sums, activation="Relu")
    wide = numbers(dtype, 2, 5, 320)
    yield _case("BiasAdd", "type", wide, numbers(dtype, 320), numbers(dtype, 2, 5, 320, seed=1))
    wide = numbers(dtype, 2, 5, 2560)
    yield _case("BiasSplitGelu", "type", wide, numbers(dtype, 2560))


def _blocks() -> Iterator[Case]:
    """Weights in blocks, as language models have them in float16 and float32."""
    random = np.random.default_rng(0)
    for dtype in FLOATS:
        rows, width, block = 6, 64, 16
        at = np.array([[0, 5], [2, -1]])
        for bits in (4, 8):
            data = random.integers(0, 256, (rows, width * bits // 8)).astype(np.uint8)
            scales = (random.random((rows, width // block)) * 0.1 + 0.05).astype(dtype)
            points = random.integers(0, 256, (rows, width // block * bits // 8)).astype(np.uint8)
            given = {"bits": bits, "block_size": block, "quantize_axis": 1, "gather_axis": 0}
            op, places = "com.microsoft.GatherBlockQuantized", frozenset({0, 2, 3})
            wires = (data, at, scales)
            kind = f"{bits} bits"
            yield Case(op, kind, wires, given, places - {3}, opset=_OPSET)
            yield Case(op, f"{kind}, zero points", (*wires, points), given, places, opset=_OPSET)
        yield from _experts(dtype, random)


def _experts(dtype: str, random: np.random.Generator) -> Iterator[Case]:
    experts, hidden, inner, tokens = 4, 32, 64, 3
    x, router = numbers(dtype, tokens, hidden), numbers(dtype, tokens, experts)
    for bits in (4, 8):
        first = random.integers(0, 256, (experts, inner, hidden * bits // 8)).astype(np.uint8)
        second = random.integers(0, 256, (experts, hidden, inner * bits // 8)).astype(np.uint8)
        s1, s2 = ((random.random((experts, n)) * 0.01).astype(dtype) for n in (inner, hidden))
        wires = (x, router, first, s1, None, second, s2)
        for activation in ("relu", "silu", "gelu"):
            given = {"k": 2, "expert_weight_bits": bits, "activation_type": activation}
            kind = f"{bits} bits, {activation}"
            yield Case("com.microsoft.QMoE", kind, wires, given, frozenset({2, 3, 5, 6}),
                       opset=_OPSET)  # fmt: skip


def _norms(dtype: str) -> Iterator[Case]:
    x, skip = numbers(dtype, 2, 3, 8), numbers(dtype, 2, 3, 8, seed=1)
    scale, shift, bias = (numbers(dtype, 8, seed=i) for i in (2, 3, 4))
    for has_shift, has_bias in itertools.product((0, 1), (0, 1)):
        wires = (x, skip, scale, shift if has_shift else None, bias if has_bias else None)
        kind = f"beta {has_shift}, bias {has_bias}"
        yield _case("SkipLayerNormalization", kind, *wires, epsilon=1e-5)
        if not has_shift:
            wires = (x, skip, scale, bias if has_bias else None)
            yield _case("SkipSimplifiedLayerNormalization", f"bias {has_bias}", *wires)
    for name, rows in (("[1, S, C]", skip[:1]), ("[S, C]", skip[0])):
        yield _case("SkipLayerNormalization", f"skip {name}", x, rows, scale, shift)
        yield _case("SkipSimplifiedLayerNormalization", f"skip {name}", x, rows, scale)
    large = x * np.asarray(500, dtype)
    yield _case("SkipLayerNormalization", "value 500", large, skip, scale, shift)
    yield _case("SkipSimplifiedLayerNormalization", "value 500", large, skip, scale)
    for name, size in (("type", 1), ("value 500", 500), ("value 1e-3", 1e-3)):
        wires = (x * np.asarray(size, dtype), scale)
        given: dict[str, Any] = {"axis": -1, "epsilon": 1e-6}
        yield Case("SimplifiedLayerNormalization", name, wires, given, opset=_OPSET)


def _rotary(dtype: str) -> Iterator[Case]:
    cos, sin = numbers(dtype, 16, _WIDTH // 2), numbers(dtype, 16, _WIDTH // 2, seed=1)
    flat, heads = numbers(dtype, 2, 3, _HEADS * _WIDTH), numbers(dtype, 2, _HEADS, 3, _WIDTH)
    for interleaved, (name, at) in itertools.product(
        (0, 1), (("[1]", np.array([2])), ("[B, S]", np.array([[0, 1, 2], [3, 4, 5]])))
    ):
        kind = f"positions {name}, interleaved {interleaved}"
        given = {"interleaved": interleaved}
        yield _case("RotaryEmbedding", f"4 dims, {kind}", heads, at, cos, sin, **given)
        wires = (flat, at, cos, sin)
        yield _case("RotaryEmbedding", f"3 dims, {kind}", *wires, num_heads=_HEADS, **given)
    part = numbers(dtype, 16, _WIDTH // 4), numbers(dtype, 16, _WIDTH // 4, seed=1)
    given = {"rotary_embedding_dim": _WIDTH // 2, "num_heads": _HEADS}
    yield _case("RotaryEmbedding", "part of a head", flat, np.array([0]), *part, **given)


def _products(dtype: str) -> Iterator[Case]:
    for trans_a, trans_b, alpha in itertools.product((0, 1), (0, 1), (1.0, 0.5)):
        a = numbers(dtype, 2, 4, 3) if trans_a else numbers(dtype, 2, 3, 4)
        b = numbers(dtype, 2, 5, 4) if trans_b else numbers(dtype, 2, 4, 5)
        given: dict[str, Any] = {"transA": trans_a, "transB": trans_b, "alpha": alpha}
        yield _case("FusedMatMul", f"transA {trans_a}, transB {trans_b}", a, b, **given)
    a, b = numbers(dtype, 3, 2, 4), numbers(dtype, 2, 4, 5)
    yield _case("FusedMatMul", "transBatchA", a, b, transBatchA=1)
    yield _case("FusedMatMul", "of a vector", numbers(dtype, 3, 4), numbers(dtype, 4))


def _activations(dtype: str) -> Iterator[Case]:
    bias = numbers(dtype, 8)
    for name, x in (("type", numbers(dtype, 2, 3, 8)), ("value 30", numbers(dtype, 2, 8) * 30),
                    ("value -30", -abs(numbers(dtype, 2, 8)) * 30)):  # fmt: skip
        x = np.asarray(x, dtype)
        yield _case("Gelu", name, x)
        yield _case("QuickGelu", name, x, alpha=1.702)
        yield _case("FastGelu", name, x)
        yield _case("FastGelu", f"bias, {name}", x, bias)
        yield _case("BiasGelu", name, x, bias)


def _quantized() -> Iterator[Case]:
    for dtype in ("uint8", "int8"):
        a, b = (np.random.default_rng(i).integers(0, 120, (2, 3, 8)).astype(dtype) for i in (0, 1))
        scale, zero = np.array(0.05, np.float32), np.array(7, dtype)
        for name, point in (("with zero points", zero), ("without zero points", None)):
            given = (a, scale, point, b, scale, point, np.array(0.1, np.float32), point)
            yield _case("QLinearAdd", f"{dtype}, {name}", *given)
            yield _case("QLinearSigmoid", f"{dtype}, {name}", a, scale, point, scale, point)
        image = np.random.default_rng(0).integers(0, 120, (2, 3, 6, 6)).astype(dtype)
        wires = (image, scale, zero, scale, zero)
        yield _case("QLinearAveragePool", dtype, *wires, kernel_shape=[2, 2])
        yield _case("QLinearGlobalAveragePool", dtype, *wires)
        yield _case("QLinearConcat", dtype, scale, zero, a, scale, zero, b, scale, zero, axis=1)
        weight = np.random.default_rng(2).integers(0, 120, (8, 5)).astype(dtype)
        rows = np.random.default_rng(3).standard_normal((2, 3, 8)).astype(np.float32)
        wide = np.array([0.01] * 5, np.float32)
        yield _case("DynamicQuantizeMatMul", f"{dtype}", rows, weight, scale)
        yield _case("DynamicQuantizeMatMul", f"{dtype}, by column", rows, weight, wide)
        bias = np.arange(5, dtype=np.float32)
        yield _case("DynamicQuantizeMatMul", f"{dtype}, bias", rows, weight, scale, zero, bias)
        wires = (a, weight, scale, scale)
        yield _case("MatMulIntegerToFloat", dtype, *wires)
        yield _case("MatMulIntegerToFloat", f"{dtype}, zero points, bias", *wires, zero, zero, bias)
        yield _case("DequantizeLinear", dtype, a, scale, zero)
        yield _case("QuantizeLinear", dtype, rows, scale, zero)


def _nbits() -> Iterator[Case]:
    for dtype, bits, blocks in itertools.product(FLOATS, (4, 8), (2, 3)):
        n, block = 5, 16
        k, random = block * blocks, np.random.default_rng(0)
        x = numbers(dtype, 2, 3, k)
        weight = random.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
        scales = (random.random(n * blocks) * 0.1 + 0.05).astype(dtype)
        packed = random.integers(0, 256, n * ((blocks * bits + 7) // 8)).astype(np.uint8)
        given = {"K": k, "N": n, "bits": bits, "block_size": block}
        points = (random.random(n * blocks) * 15).astype(dtype)
        groups = random.permutation(np.arange(k, dtype=np.int32) // block)
        odd = "odd" if blocks % 2 else "even"
        for name, more in (
            ("plain", ()), (f"zero points, {odd} blocks", (packed,)),
            ("float zero points", (points,)),
            ("g_idx", (None, groups)), ("bias", (None, None, numbers(dtype, n))),
        ):  # fmt: skip
            wires = (x, weight, scales, *more)
            places = frozenset(range(1, len(wires)))
            kind = f"{bits} bits, {name}"
            yield Case("com.microsoft.MatMulNBits", kind, wires, given, places, opset=_OPSET)
