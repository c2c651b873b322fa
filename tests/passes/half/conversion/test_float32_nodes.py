"""Nodes that stay in float32, by what their operators are."""

from __future__ import annotations

import pytest

from graphfix.facts.view import View
from graphfix.passes.half.conversion.float32_nodes import Float32Nodes
from graphfix.passes.half.conversion.name_patterns import NamePatterns
from graphfix.passes.half.conversion.value_types import ElementTypes
from tests.passes.half.test_float16 import HALF, add, agree, f, halved, parse, same_numbers

__all__ = ["same_numbers"]  # a fixture


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("y = Identity (x)", ""),
        ("y = RandomNormalLike (x)", "ONNX Runtime makes float32 there"),
        ("n = Multinomial (x) y = Identity (x)", "ONNX Runtime makes float32 there"),
        ("y = MeanVarianceNormalization <axes = [0]> (x)", "its function in ONNX Runtime has"),
        (
            "q, s, z = DynamicQuantizeLinear (x) y = Cast <to = 1> (q)",
            "scales of quantized numbers",
        ),
        ("s = SequenceConstruct (x) y = ConcatFromSequence <axis = 0> (s)", "a sequence has one"),
        (
            """s = SequenceConstruct (x) t = SequenceMap (s) <body = g (float[B, 8] a)
            => (float[B, 8] b) { b = Neg (a) }> y = ConcatFromSequence <axis = 0> (t)""",
            "a sequence has one type",
        ),
    ],
)
def test_an_operator_has_its_reason(body: str, reason: str) -> None:
    view = View(parse("(float[B, 8] x) => (float[B, 8] y)", body))
    nodes = Float32Nodes(view, ElementTypes(view))
    first = next(iter(view.model.graph))
    assert nodes._intrinsic_reason(first).startswith(reason)
    assert bool(nodes._intrinsic_reason(first)) == bool(reason)


def test_a_cast_like_casts_to_the_type_that_its_second_input_gets() -> None:
    before = add(
        parse(
            "(float[B, 8] x, float[8, 8] w, int64[B, 8] n) => (float[B, 8] y)",
            "h = MatMul (x, w) c = CastLike (n, h) s = Add (h, c) y = MatMul (s, w)",
        ),
        w=f(8, 8),
    )
    after = halved(before)
    dtypes = {x.outputs[0].name: x.outputs[0].dtype for x in after.graph}
    assert (dtypes["h"], dtypes["c"]) == (HALF, HALF)
    agree(before, after, {"x": f(2, 8), "n": (3 * f(2, 8)).astype("int64")})


def kept_nodes(signature: str, body: str, **options: tuple[str, ...]) -> Float32Nodes:
    view = View(parse(signature, body))
    patterns = {name: NamePatterns(x) for name, x in options.items()}
    return Float32Nodes(view, ElementTypes(view), **patterns)


def reasons(nodes: Float32Nodes) -> dict[str, str]:
    return {node.outputs[0].name or "": reason for node, reason in nodes.reasons.items()}


CHAIN = "h = MatMul (x, w) g = Relu (h) n = Neg (g) y = MatMul (n, w)"
CHAIN_OF = "(float[B, 8] x, float[8, 8] w) => (float[B, 8] y)"


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, {}),
        ({"keep": ("h",)}, {"h": "keep=h"}),
        ({"keep": ("Neg", "R?lu")}, {"g": "keep=R?lu", "n": "keep=Neg"}),
        ({"keep": ("?",)}, dict.fromkeys("hgny", "keep=?")),
        ({"only": ("MatMul",)}, dict.fromkeys("gn", "it is not among only=")),
        (
            {"only": ("MatMul",), "keep": ("y",)},
            {"g": "it is not among only=", "n": "it is not among only=", "y": "keep=y"},
        ),
        # What lies between others that stay would only be cast twice.
        ({"keep": ("h", "n")}, {"h": "keep=h", "n": "keep=n", "g": "between others that stay"}),
        ({"keep": ("h", "y")}, dict.fromkeys("gn", "between others that stay")),
    ],
)
def test_what_is_asked_for_stays_and_what_lies_between(
    options: dict[str, tuple[str, ...]], kept: dict[str, str]
) -> None:
    found = reasons(kept_nodes(CHAIN_OF, CHAIN, **options))
    if options.get("keep") == ("h", "y"):
        kept = {**kept, "h": "keep=h", "y": "keep=y"}
    assert found == kept


def test_a_product_between_others_that_stay_is_worth_its_casts() -> None:
    body = "h = Relu (x) g = MatMul (h, w) y = Relu (g)"
    assert reasons(kept_nodes(CHAIN_OF, body, keep=("h", "y"))).keys() == {"h", "y"}


@pytest.mark.parametrize(
    ("size", "reader", "half"),
    [
        # Large weights of one reader in float16; small ones stay where another takes float32.
        ("[33, 32]", "MatMul", True),
        ("[33, 32]", "both", True),
        ("[32, 32]", "both", False),
        ("[32, 32]", "MatMul", True),
        ("[33, 32]", "kept", False),
        ("[33, 32]", "output", False),
    ],
)
def test_a_small_constant_of_two_types_stays(size: str, reader: str, half: bool) -> None:
    rows = size[1:3]
    body = {
        "MatMul": "y = MatMul (x, w)",
        "both": "y = MatMul (x, w) k = MatMul (x, w)",
        "kept": "k = MatMul (x, w) y = Relu (k)",
        "output": "y = MatMul (x, w) k = Identity (w)",
    }[reader]
    outputs = "float[B, 32] y" + (f", float{size} w" if reader == "output" else "")
    signature = f"(float[B, {rows}] x, float{size} w) => ({outputs})"
    view = View(add(parse(signature, body), w=f(int(rows), 32)))
    kept, named = NamePatterns(("k",)), NamePatterns(("w",))
    nodes = Float32Nodes(view, ElementTypes(view), keep=kept)
    (weight,) = view.model.graph.initializers.values()
    assert weight.const_value is not None
    assert nodes.becomes_half(weight, weight.const_value.size) == half
    stored = Float32Nodes(view, ElementTypes(view), keep=kept, store=named)
    assert stored.becomes_half(weight, weight.const_value.size) == (reader != "output")


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        ("Relu (x)", ""),
        ("Det (x)", ""),
        ("com.microsoft.Unknown (x)", "Unknown of 'com.microsoft' is not known"),
        ("local.Unknown (x)", "Unknown of 'local' is not known"),
        ("Clip (x, low)", ""),
    ],
)
def test_operators_without_float16(op: str, reason: str) -> None:
    nodes = kept_nodes("(float[8, 8] x, float low) => (y)", f"y = {op}")
    (node,) = nodes.nodes
    assert nodes._intrinsic_reason(node).startswith(reason)
    assert bool(nodes._intrinsic_reason(node)) == bool(reason)


@pytest.mark.parametrize(
    ("node", "index", "dtype"),
    [
        ("Shape (x)", 0, None),
        ("Cast <to = 7> (x)", 0, None),
        ("Relu (x)", 0, "FLOAT16"),
        ("CumSum (x, axis)", 0, "FLOAT"),
    ],
)
def test_the_type_that_a_node_takes(node: str, index: int, dtype: str | None) -> None:
    nodes = kept_nodes("(float[8, 8] x, int64 axis) => (y)", f"y = {node}")
    found = nodes.input_dtype(next(iter(nodes.nodes)), index)
    assert (None if found is None else found.name) == dtype
