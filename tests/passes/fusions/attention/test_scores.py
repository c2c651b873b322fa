"""Nodes between the two products of an attention, before and after its Softmax."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.core import Skip
from graphfix.facts.view import View
from graphfix.passes.fusions.attention.scores import (
    Scores,
    Weights,
    scores_of,
    weights_of,
    why_read_elsewhere,
)
from tests.passes.models import model

HEAD = """m (float[B, 2, T, 8] q, float[B, 2, 8, S] k, float[B, 2, S, 8] v, bool[B, 1, 1, S] hidden,
    float[B, 1, T, S] bias, float[B, 1, T, M] other, float[1, B, 1, T, S] deep, float any,
    float[B, 2, R, 8] more) => (y)
    <float half = {0.5}, float two = {2}, float low = {-10000}, float high = {-10}, float nil = {0},
     int64[1] first = {0}, int64[1] second = {1}, int64[4] swap = {0, 0, -1, 8},
     int64[4] same = {0, 0, 0, -1}, float[1, 1, 8, 8] wide = {WEIGHT}>""".replace(
    "WEIGHT", ", ".join("1" * 64)
)


def graph(body: str) -> tuple[dict[str, ir.Node], View]:
    """Return the nodes by the name of their first output."""
    m = model(f"{HEAD} {{ {body} }}", 17)
    return {x.outputs[0].name or "": x for x in m.graph}, View(m)


def weights(body: str) -> Weights | Skip | None:
    nodes, view = graph(f"s = MatMul (q, k) w0 = Softmax <axis = -1> (s) {body}")
    return weights_of(nodes["y"], view)


def names(nodes: tuple[ir.Node, ...]) -> list[str]:
    return [x.outputs[0].name or "" for x in nodes]


@pytest.mark.parametrize(
    ("body", "operand", "masks", "path"),
    [
        ("y = MatMul (w0, v)", 0, [], []),
        ('y = Einsum <equation = "bhts,bhsd->bhtd"> (w0, v)', 0, [], []),
        ('y = Einsum <equation = "bhsd,bhts->bhtd"> (v, w0)', 1, [], []),
        ("c = Cast <to = 1> (w0) r = Reshape (c, same) y = MatMul (r, v)", 0, [], ["c", "r"]),
        ("m = Mul (w0, bias) y = MatMul (m, v)", 0, ["bias"], ["m"]),
        ("m = Mul (bias, w0) y = MatMul (m, v)", 0, ["bias"], ["m"]),
        (
            "m = Mul (w0, bias) n = Mul (m, half) y = MatMul (n, v)",
            0,
            ["half", "bias"],
            ["m", "n"],
        ),
    ],
)
def test_weights_reach_a_product(
    body: str, operand: int, masks: list[str], path: list[str]
) -> None:
    found = weights(body)
    assert isinstance(found, Weights)
    assert found.softmax.outputs[0].name == "w0"
    assert found.operand == operand
    assert [x.name for x in found.keep_masks] == masks
    assert names(found.path) == path


@pytest.mark.parametrize(
    "body",
    [
        "y = MatMul (v, w0)",  # not the first operand of a MatMul
        "r = Relu (w0) y = MatMul (r, v)",
        "y = MatMul (bias, v)",
        "m = Mul (bias, bias) y = MatMul (m, v)",
        "m = Mul (w0, deep) y = MatMul (m, v)",  # of more dims than the weights
        "r = Relu (w0) x = Where (hidden, r, bias) y = MatMul (x, v)",
        " ".join(
            [
                "i0 = Identity (w0)",
                *(f"i{n} = Identity (i{n - 1})" for n in range(1, 24)),
                "y = MatMul (i23, v)",
            ]
        ),
    ],
)
def test_what_is_no_weight(body: str) -> None:
    assert weights(body) is None


def test_weights_may_pass_many_nodes() -> None:
    chain = " ".join(f"i{n} = Identity (i{n - 1})" for n in range(1, 23))
    assert isinstance(weights(f"i0 = Identity (w0) {chain} y = MatMul (i22, v)"), Weights)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("n = IsNaN (w0) x = Where (n, nil, w0) y = MatMul (x, v)", "drop-nan-guard"),
        ("x = Where (hidden, nil, w0) y = MatMul (x, v)", "additive-mask makes a Mul of it"),
        ("x = Where (hidden, w0, nil) y = MatMul (x, v)", "additive-mask makes a Mul of it"),
    ],
)
def test_weights_that_something_chooses_from(body: str, reason: str) -> None:
    found = weights(body)
    assert isinstance(found, Skip)
    assert reason in found.reason
    assert found.node.op_type == "MatMul"


def scores(
    body: str, softmax: str = "Softmax <axis = -1>", values: str = "v"
) -> Scores | Skip | None:
    nodes, view = graph(f"s = MatMul (q, k) {body} w0 = {softmax} (m) y = MatMul (w0, {values})")
    return scores_of(nodes["y"], nodes["w0"], view)


@pytest.mark.parametrize(
    ("body", "path", "factor", "addends"),
    [
        ("m = Identity (s)", ["m"], 1.0, []),
        ("m = Mul (s, half)", ["m"], 0.5, []),
        ("m = Mul (half, s)", ["m"], 0.5, []),
        ("m = Div (s, two)", ["m"], 0.5, []),
        ("a = Mul (s, half) m = Div (a, two)", ["a", "m"], 0.25, []),
        ("m = Add (s, bias)", ["m"], 1.0, [("bias", 1.0)]),
        ("m = Add (bias, s)", ["m"], 1.0, [("bias", 1.0)]),
        ("m = Sub (s, bias)", ["m"], 1.0, [("bias", -1.0)]),
        # What is added before the scale is scaled as well.
        ("a = Sub (s, bias) m = Mul (a, half)", ["a", "m"], 0.5, [("bias", -0.5)]),
        ("a = Mul (s, half) m = Add (a, bias)", ["a", "m"], 0.5, [("bias", 1.0)]),
        ("a = Add (s, bias) m = Add (bias, a)", ["a", "m"], 1.0, [("bias", 1.0)] * 2),
        # Only hidden scores are so low.
        ("m = Max (s, low)", ["m"], 1.0, []),
        ("m = Clip (s, low)", ["m"], 1.0, []),
    ],
)
def test_scores_are_scaled_and_added_to(
    body: str, path: list[str], factor: float, addends: list[tuple[str, float]]
) -> None:
    found = scores(body)
    assert isinstance(found, Scores)
    assert names(found.path) == path
    assert found.factor == factor
    assert [(x.value.name, x.factor) for x in found.addends] == addends
    assert found.product.node.outputs[0].name == "s"
    assert not found.may_add_keys


@pytest.mark.parametrize(
    ("body", "values", "may"),
    [
        ("m = Add (s, other)", "more", True),
        ("a = Add (s, other) m = Add (a, bias)", "more", True),
        ("m = Add (s, bias)", "more", False),
        # The product with as many values runs only if there are no more.
        ("m = Add (s, other)", "v", False),
    ],
)
def test_an_addend_of_another_length_may_add_keys(body: str, values: str, may: bool) -> None:
    found = scores(body, values=values)
    assert isinstance(found, Scores)
    assert found.may_add_keys == may


def test_an_addend_may_have_more_dims() -> None:
    found = scores("m = Add (s, deep)")
    assert isinstance(found, Scores)
    assert [len(axis) for axis in found.layout.axes] == [0, 1, 1, 1, 1]
    assert len(found.addends[0].axes) == 5


def test_the_01_tensors_of_an_addend_are_known() -> None:
    found = scores("f = Cast <to = 1> (hidden) b = Mul (f, low) m = Add (s, b)")
    assert isinstance(found, Scores)
    assert {x.value.name for x in found.addends[0].bits} == {"f", "hidden"}


@pytest.mark.parametrize(
    ("body", "softmax", "reason"),
    [
        ("m = Identity (s)", "Softmax <axis = -2>", "does not go along the last axis"),
        ("m = Tanh (s)", "Softmax", "neither a constant scale nor an addend"),
        ("m = Where (hidden, low, s)", "Softmax", "the pass additive-mask makes an Add of a mask"),
        ("m = Max (s, high)", "Softmax", "neither a constant scale nor an addend"),
        ("m = Clip (s, low, two)", "Softmax", "neither a constant scale nor an addend"),
        ("m = Sub (bias, s)", "Softmax", "neither a constant scale nor an addend"),
        ("m = Mul (s, any)", "Softmax", "neither a constant scale nor an addend"),
        (
            "m = Transpose <perm = [0, 1, 3, 2]> (s)",
            "Softmax",
            "does not go along the keys alone",
        ),
        # The obstacle that is nearest to the Softmax is named.
        ("a = Tanh (s) m = Clip (a, low, two)", "Softmax", "Clip 'Clip of m' lies between"),
        ("a = Tanh (s) m = Mul (a, half)", "Softmax", "Tanh 'Tanh of a' lies between"),
    ],
)
def test_what_cannot_be_fused_is_named(body: str, softmax: str, reason: str) -> None:
    found = scores(body, softmax)
    assert isinstance(found, Skip)
    assert reason in found.reason
    assert found.node.outputs[0].name == "y"


@pytest.mark.parametrize(
    "body",
    [
        "m = Relu (bias)",
        "t = MatMul (v, wide) m = Identity (t)",  # of a weight
        "t = MatMul (wide, k) m = Identity (t)",
        " ".join(
            [
                "i0 = Identity (s)",
                *(f"i{n} = Identity (i{n - 1})" for n in range(1, 24)),
                "m = Identity (i23)",
            ]
        ),
        "r = Relu (s) m = Identity (r)",  # may be anything
    ],
)
def test_what_are_no_scores(body: str) -> None:
    assert scores(body) is None


def test_scores_of_another_batch_are_no_product() -> None:
    m = model(
        """m (float[B, 2, T, 8] q, float[C, 2, 8, S] k, float[B, 2, S, 8] v) => (y) {
        s = MatMul (q, k) w = Softmax <axis = -1> (s) y = MatMul (w, v) }""",
        17,
    )
    *_, softmax, product = m.graph
    found = scores_of(product, softmax, View(m))
    assert isinstance(found, Skip)
    assert "not seen to be batches of the same size" in found.reason


def test_who_else_reads() -> None:
    nodes, _ = graph(
        "s = MatMul (q, k) a = Relu (s) b = Neg (a) c = Abs (a) z = Shape (b) y = Add (b, c)"
    )
    assert why_read_elsewhere([nodes["s"]], ()) is None
    assert why_read_elsewhere([nodes["s"], nodes["a"]], ()) == (
        "what 'Relu of a' makes is read more than once, by Abs and Neg"
    )
    assert why_read_elsewhere([nodes["y"]], ()) == (
        "what 'Add of y' makes is also an output, which a fused operator has not"
    )
    # A Shape may be made of something else.
    assert why_read_elsewhere([nodes["b"]], (nodes["z"],)) is None
    assert "by Add and Shape" in str(why_read_elsewhere([nodes["b"]], ()))
