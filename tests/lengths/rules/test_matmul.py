"""Rules for products that sum over an axis."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

import graphfix
from graphfix.lengths.joint_axes import RefusedError
from graphfix.lengths.rule_site import RuleSite
from graphfix.lengths.rules.matmul import RULES
from graphfix.lengths.tail_state import ANY, FINITE, ONE, ZERO, Tail, TensorState
from tests.lengths.sites import asked_leaks, result_of, site_of

INPUTS = (
    "float[B, T, 4] x, float[B, T, 4] z, float[B, 4, T] h, float[4, 4] w, float[4] v, float[T] t, "
    "uint8[4, 4] u, uint8 p, uint8[T] r, float[T, 4] m, float[4, 6] n, float[B, 4, 4] g, "
    "uint8[6, 1, 16] q, float[6] s, uint8[6] e, int32[4] i, float[6] b, float k"
)
BITS = "com.microsoft.MatMulNBits <K = 4, N = 6, bits = 4, block_size = 32>"
TO_FLOAT, DYNAMIC = "com.microsoft.MatMulIntegerToFloat", "com.microsoft.DynamicQuantizeMatMul"
INNER = "Einsum <equation = 'bti,btj->bij'>"


def infer(node: str, **facts: object) -> tuple[RuleSite, TensorState]:
    """Return the site of a node, and the state of its result."""
    site = site_of(f"y = {node}".replace("'", '"'), inputs=INPUTS, **facts)
    return site, result_of(RULES, site)


@pytest.mark.parametrize(
    ("node", "sizes", "masked"),
    [
        ("MatMul (x, w)", "B T 4", []),
        ("MatMul (x, v)", "B T", []),
        ("MatMul (v, h)", "B T", []),
        ("MatMul (v, v)", "", []),
        ("MatMul (m, n)", "T 6", []),
        ("MatMul (w, h)", "B 4 T", []),
        ("MatMul (h, x)", "B 4 4", [1]),
        ("MatMul (x, h)", "B T T", []),
        ("Einsum <equation = 'bti,bsi->bts'> (x, z)", "B T T", []),
        ("Einsum <equation = 'bti, btj -> bij'> (x, z)", "B 4 4", [1]),
        ("Einsum <equation = 'bti->bit'> (x)", "B 4 T", []),
        ("Einsum <equation = 'bti'> (x)", "B 4 T", []),
        ("Einsum <equation = 'bti->bi'> (x)", "B 4", [0]),
        ("com.microsoft.FusedMatMul <transB = 1> (x, z)", "B T T", []),
        ("com.microsoft.FusedMatMul <transA = 1> (x, z)", "B 4 4", [1]),
        ("com.microsoft.FusedMatMul <transA = 1, transB = 1> (x, h)", "B 4 4", [1]),
        ("com.microsoft.FusedMatMul (x, h)", "B T T", []),
        (f"{BITS} (x, q, s)", "B T 6", []),
        (f"{BITS} (x, q, s, e, i, b)", "B T 6", []),
        (f"{BITS} (x, q, s, , , b)", "B T 6", []),
        ("Gemm (m, n)", "T 6", []),
        ("Gemm <transB = 1> (m, m)", "T T", []),
        ("Gemm <transA = 1> (m, m)", "4 4", [1]),
    ],
)
def test_axes_and_what_is_masked(node: str, sizes: str, masked: list[int]) -> None:
    site = site_of(f"y = {node}".replace("'", '"'), inputs=INPUTS)
    if node.startswith("Gemm"):  # without a batch
        site = site_of(f"y = {node}", inputs="float[T, 4] m, float[4, 6] n", axis="m.0")
    state = result_of(RULES, site)
    assert " ".join(str(state.size_along(i)) for i in range(state.rank)) == sizes
    assert [getattr(x, "index", None) for x in site.repairs] == masked
    assert asked_leaks(site) == ["sum pollution"] * len(masked)


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        ("Einsum <equation = 'bti,bsi'> (x, z)", "it mixes rows of the batch"),
        ("Einsum <equation = 'bti->bbt'> (x)", "there is no rule for the equation 'bti->bbt'"),
        ("Einsum <equation = '...ti->...it'> (x)", "there is no rule for the equation"),
        ("Einsum <equation = 'bti,bss->bti'> (x, g)", "there is no rule for the equation"),
        ("Einsum <equation = 'bti->ti'> (x)", "it mixes rows of the batch"),
        ("Einsum <equation = 'bt->bt'> (x)", "the rank of one of its inputs is not what"),
        ("com.microsoft.FusedMatMul <transBatchA = 1> (x, h)", "there is no rule for its turned"),
        ("com.microsoft.FusedMatMul <transBatchB = 1> (x, h)", "there is no rule for its turned"),
        ("MatMul (h, t)", "it has no batch axis"),
        ("MatMulInteger (x, u, p, r)", "its zero point carries time"),
        ("MatMulInteger (x, u, r)", "its zero point carries time"),
        (f"{TO_FLOAT} (x, u, t, k)", "its scale carries time"),
        (f"{TO_FLOAT} (x, u, k, k, , r)", "its zero point carries time"),
        (f"{TO_FLOAT} (x, u, k, k, , , t)", "what it adds carries time"),
        (f"{DYNAMIC} (x, u, t)", "its scale carries time"),
        (f"{DYNAMIC} (x, u, k, r)", "its zero point carries time"),
        (f"{DYNAMIC} (x, u, k, , t)", "what it adds carries time"),
        ("Gemm (m, w, m)", "what it adds carries time"),
        (f"{BITS} (h, q, s)", "time is its feature axis"),
        (f"{BITS} (x, q, t)", "its weights carry time"),
    ],
)
def test_refusals(node: str, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        infer(node)


@pytest.mark.parametrize(
    ("node", "name"), [("MatMul (x, w)", "x"), ("MatMul (x, w)", "w"), (f"{BITS} (x, q, s)", "x")]
)
def test_a_rank_that_is_not_known_is_refused(node: str, name: str) -> None:
    with pytest.raises(RefusedError, match="the rank of one of its inputs is not known"):
        infer(node, **{name: {"axes": None, "tails": ()}})


@pytest.mark.parametrize(
    ("node", "tails", "expected"),
    [
        ("MatMul (x, w)", {"x": FINITE}, FINITE),
        ("MatMul (x, w)", {"x": ZERO}, ZERO),
        ("MatMul (x, w)", {"x": ONE}, FINITE),
        ("MatMul (x, w)", {"x": ANY}, ANY),
        # 0 times NaN is NaN: the other factor must be finite.
        ("Einsum <equation = 'bti,bti->bti'> (x, z)", {"x": ZERO, "z": ANY}, ANY),
        ("Einsum <equation = 'bti,bti->bti'> (x, z)", {"x": ZERO, "z": FINITE}, ZERO),
        ("Einsum <equation = 'bti,bti->bti'> (x, z)", {"x": FINITE, "z": ZERO}, ZERO),
        ("Einsum <equation = 'bti,bti->bti'> (x, z)", {"x": FINITE, "z": ANY}, ANY),
        ("Gemm (m, n)", {"m": ZERO}, ZERO),
        (f"{BITS} (x, q, s, e)", {"x": ZERO}, ZERO),
        (f"{BITS} (x, q, s, , , b)", {"x": ZERO}, FINITE),
        (f"{BITS} (x, q, s)", {"x": ANY}, ANY),
        ("Gemm (m, n, v)", {"m": ZERO}, FINITE),
    ],
)
def test_tails(node: str, tails: dict[str, Tail], expected: Tail) -> None:
    _, state = infer(node, **tails)
    assert set(state.tails) - {None} == {expected}


@pytest.mark.parametrize(("x", "z", "sign"), [(2, 2, 1), (2, 1, 1), (1, 0, 0), (0, 2, 0)])
def test_a_product_is_not_negative_if_no_factor_is(x: int, z: int, sign: int) -> None:
    _, state = infer(f"{INNER} (x, z)", x={"sign": x}, z={"sign": z, "tails": (None, ZERO, None)})
    assert state.sign == sign


@pytest.mark.parametrize(
    ("x", "z", "masked"),
    [
        (FINITE, FINITE, [1]),
        (ZERO, FINITE, []),
        (FINITE, ZERO, []),
        (ANY, FINITE, [1, 0]),
        (ZERO, ANY, [1]),
        (ANY, ZERO, [0]),
    ],
)
def test_one_factor_is_zero_and_the_others_finite(x: Tail, z: Tail, masked: list[int]) -> None:
    site, _ = infer(f"{INNER} (x, z)", x=x, z=z)
    assert [getattr(repair, "index", None) for repair in site.repairs] == masked


def test_integers_count_from_their_zero_points() -> None:
    constants = "uint8 three = {3}"
    for points, expected in ((", three", ZERO), ("", FINITE), (", three, three", ZERO)):
        node = f"MatMulInteger (x, u{points})"
        _, state = infer(node, constants=constants, x=Tail("number", 3.0))
        assert state.tails == (None, expected, None)


def test_each_integer_factor_has_a_zero_point_of_its_own() -> None:
    site, _ = infer("MatMulInteger (x, u, p)")
    assert site.zero_points == {0: site.node.inputs[2], 1: None}


def test_a_scaled_product_of_integers_counts_from_their_zero_points() -> None:
    constants = "uint8 three = {3}"
    for rest, expected in ((", three", ZERO), ("", FINITE), (", three, , v", FINITE)):
        node = f"{TO_FLOAT} (x, u, k, k{rest})"
        site, state = infer(node, constants=constants, x=Tail("number", 3.0))
        assert state.tails == (None, expected, None)
        assert site.zero_points == {0: site.node.inputs[4] if rest else None, 1: None}


@pytest.mark.parametrize(
    ("node", "tail", "asked", "expected"),
    [
        (f"{DYNAMIC} (x, u, k, p)", FINITE, ["maximum pollution"], ZERO),
        (f"{DYNAMIC} (x, u, k)", ZERO, [], ZERO),
        (f"{DYNAMIC} (x, u, k, p, v)", ANY, ["maximum pollution"], FINITE),
    ],
)
def test_the_range_of_the_data_is_taken_over_zeros(
    node: str, tail: Tail, asked: list[str], expected: Tail
) -> None:
    site, state = infer(node, x=tail)
    assert asked_leaks(site) == asked
    assert state.tails == (None, expected, None)


@pytest.mark.parametrize("rest", ["", ", p", ", p, b"])
def test_garbage_behind_a_clip_reaches_no_quantized_product(rest: str) -> None:
    integers = ", ".join(str((7 * i) % 23) for i in range(24))
    quantized = f"q, s, z = DynamicQuantizeLinear (c) y = {TO_FLOAT} (q, u, s, k, z"
    for product in (f"y = {DYNAMIC} (c, u, k{rest})", f"{quantized}{rest})"):
        model = ir.from_onnx_text(
            f"""<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
            g (float[B, T, 4] x) => (float[B, T, 6] y)
            <uint8[4, 6] u = {{{integers}}}, float k = {{0.1}}, uint8 p = {{11}},
             float[6] b = {{1, 2, 3, 4, 5, 6}}> {{ c = Cos (x) {product} }}"""
        )
        graphfix.run(model, "ilens-mask:axis=x.1")
        session = ort.InferenceSession(ir.to_proto(model).SerializeToString())
        x = np.random.default_rng(0).normal(size=(1, 9, 4)).astype(np.float32)
        native = session.run(["y"], {"x": x[:, :5], "ilens": np.array([5])})[0]
        x[:, 5:] = np.inf
        padded = session.run(["y"], {"x": x, "ilens": np.array([5])})[0]
        np.testing.assert_array_equal(padded[:, :5], native)
