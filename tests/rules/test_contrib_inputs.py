"""What DirectML misreads of ONNX Runtime's own operators."""

from __future__ import annotations

import pytest

from tests.rules.checking import graph, severities


def contrib(body: str) -> str:
    return graph(body, 17).replace('"" : ', '"com.microsoft" : 1, "" : ')


@pytest.mark.parametrize(
    ("bias", "attributes", "wanted"),
    [
        ("B, 4, S, S", "", []),
        ("1, 4, S, S", "", ["error"]),
        ("B, 1, S, S", "", ["error"]),
        ("1, 1, S, S", "", ["error"]),
        ("B, 4, S, S", ", unidirectional = 1", ["error"]),
        ("B, 4, S, S", ", unidirectional = 0", []),
    ],
)
def test_masks_of_an_attention(bias: str, attributes: str, wanted: list[str]) -> None:
    body = f"""(float[B, S, 32] q, float[{bias}] m) => (float[B, S, 32] y)
        {{ y = com.microsoft.MultiHeadAttention <num_heads = 4{attributes}> (q, q, q, , , m) }}"""
    assert severities(contrib(body), "attention-inputs") == wanted


def test_a_batch_of_one_needs_no_repeating() -> None:
    body = """(float[1, S, 32] q, float[1, 4, S, S] m) => (float[1, S, 32] y)
        { y = com.microsoft.MultiHeadAttention <num_heads = 4> (q, q, q, , , m) }"""
    assert not severities(contrib(body), "attention-inputs")


@pytest.mark.parametrize(("wires", "wanted"), [("x, k, g, b", ["error"]), ("x, k, g", [])])
def test_a_bias_beside_a_skip(wires: str, wanted: list[str]) -> None:
    body = f"""(float[B, S, 4] x, float[B, S, 4] k, float[4] g, float[4] b) => (float[B, S, 4] y)
        {{ y = com.microsoft.SkipSimplifiedLayerNormalization ({wires}) }}"""
    assert severities(contrib(body), "skip-bias") == wanted


@pytest.mark.parametrize("kind", ["float16", "float"])
def test_norms_with_a_skip_in_float16(kind: str) -> None:
    body = f"""({kind}[B, S, 4] x, {kind}[4] g) => ({kind}[B, S, 4] y)
        {{ y = com.microsoft.SkipSimplifiedLayerNormalization (x, x, g) }}"""
    assert severities(contrib(body), "half-norm") == ["warning"] * (kind == "float16")
