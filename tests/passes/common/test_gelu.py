"""Which arithmetic around an Erf, a Tanh or a Sigmoid is a Gelu, and of what."""

import onnx_ir as ir
import pytest

from graphfix.core import Skip
from graphfix.facts.view import View
from graphfix.passes.common.gelu import Gelu, bias_of, gelu_of
from tests.passes.models import model

CONSTANTS = """<T half = {0.5}, T one = {1}, T two = {2}, T three = {3}, T root = {1.4142135},
    T rsqrt2 = {0.70710678}, T off = {0.711}, T cube = {0.044715}, T near = {0.0449},
    T scale = {0.79788456}, T twice = {1.59576912}, T alpha = {1.702}, T[4] bias = {1, 2, 3, 4},
    T[1] narrow = {1}, T far = {0.8}>"""

ERF = "d = Div (x, root) e = Erf (d) a = Add (e, one) m = Mul (x, a) y = Mul (m, half)"
TANH = """c = Pow (x, three) k = Mul (c, cube) s = Add (x, k) i = Mul (s, scale) t = Tanh (i)
    a = Add (t, one) h = Mul (x, half) y = Mul (h, a)"""
SIGMOID = "i = Mul (x, alpha) s = Sigmoid (i) y = Mul (x, s)"


def gelu_at(steps: str, kind: str = "float") -> tuple[ir.Model, Gelu | Skip | None]:
    """What the last node is, of a type."""
    text = f"m (T[B, 4] x, T[B, 4] fed) => (T[B, 4] y) {CONSTANTS} {{ {steps} }}"
    m = model(text.replace("T[", f"{kind}[").replace("T ", f"{kind} "), 20)
    node = m.graph.outputs[0].producer()
    assert node is not None
    return m, gelu_of(node, View(m))


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (ERF, "Gelu"),
        ("d = Mul (rsqrt2, x) e = Erf (d) a = Add (one, e) h = Mul (half, a) "
         "y = Mul (h, x)", "Gelu"),
        ("d = Div (x, root) e = Erf (d) h = Mul (x, half) p = Mul (h, e) y = Add (h, p)", "Gelu"),
        (TANH, "FastGelu"),
        # x * Sigmoid(2u) is x / 2 * (1 + Tanh(u))
        (
            """c = Pow (x, three) k = Mul (c, cube) s = Add (x, k) i = Mul (s, twice)
            t = Sigmoid (i) y = Mul (t, x)""",
            "FastGelu",
        ),
        (SIGMOID, "QuickGelu"),
        ("y = Gelu (x)", "Gelu"),
        ('y = Gelu <approximate = "none"> (x)', "Gelu"),
        ('y = Gelu <approximate = "tanh"> (x)', "FastGelu"),
    ],
)  # fmt: skip
def test_kind(steps: str, expected: str) -> None:
    m, gelu = gelu_at(steps)
    assert isinstance(gelu, Gelu)
    assert (gelu.kind, gelu.data) == (expected, m.graph.inputs[0])
    last = m.graph.outputs[0].producer()
    assert gelu.last is last
    assert gelu.nodes == {*m.graph} - {last}


@pytest.mark.parametrize(
    ("steps", "alpha"),
    [
        (SIGMOID, 1.702),
        ("s = Sigmoid (x) y = Mul (x, s)", 1.0),
        # x / 2 * (1 + Tanh(x)) is x * Sigmoid(2x)
        ("t = Tanh (x) a = Add (t, one) h = Mul (x, half) y = Mul (h, a)", 2.0),
        ("n = Neg (x) s = Sigmoid (n) y = Mul (x, s)", -1.0),
    ],
)
def test_alpha(steps: str, alpha: float) -> None:
    _, gelu = gelu_at(steps)
    assert isinstance(gelu, Gelu)
    assert gelu.kind == "QuickGelu"
    assert gelu.alpha == pytest.approx(alpha)


@pytest.mark.parametrize(
    "steps",
    [
        "e = Erf (x) a = Add (e, one) m = Mul (x, a) y = Mul (m, half)",
        ERF.replace("(e, one)", "(e, two)"),
        ERF.replace("(m, half)", "(m, one)"),
        ERF.replace("Mul (x, a)", "Mul (fed, a)"),
        "s = Sigmoid (x) y = Mul (fed, s)",
        "s = Sigmoid (x) y = Add (x, s)",
        "a = Add (x, one) s = Sigmoid (a) y = Mul (x, s)",
        "p = Mul (x, x) s = Sigmoid (p) y = Mul (x, s)",
        "s = Softplus (x) t = Tanh (s) y = Mul (x, t)",  # a Mish
        "y = Sigmoid (x)",
        "y = Mul (x, half)",
        'y = Gelu <approximate = "other"> (x)',
    ],
)
def test_what_is_no_gelu(steps: str) -> None:
    assert gelu_at(steps)[1] is None


@pytest.mark.parametrize(
    ("steps", "kind", "reason"),
    [
        (ERF.replace("Div (x, root)", "Mul (x, off)"), "float", "near those of a Gelu"),
        (TANH.replace("cube)", "near)"), "float", "near those of a Gelu"),
        (TANH.replace("scale)", "far)"), "float", "near those of a Gelu"),
        (ERF, "double", "is double; it is fused in float"),
        ("y = Gelu (x)", "double", "is double"),
        (f"{ERF} z = Neg (e)", "float", "'e', a part of it, goes into"),
        (f"{SIGMOID} z = Neg (s)", "float", "'s', a part of it, goes into"),
    ],
)
def test_near_misses(steps: str, kind: str, reason: str) -> None:
    _, skip = gelu_at(steps, kind)
    assert isinstance(skip, Skip)
    assert reason in skip.reason


def test_a_last_node_may_have_more_readers() -> None:
    assert isinstance(gelu_at(f"{ERF} z = Neg (y)")[1], Gelu)


def test_which_gelu_may_be_a_parameter() -> None:
    m = ir.from_onnx_text("""<ir_version: 10, opset_import: ["" : 20, "f" : 1]>
        m (float[4] x) => (float[4] y) { y = f.act <how = "tanh"> (x) }
        <domain: "f", opset_import: ["" : 20]>
        act <how> (a) => (b) { b = Gelu <approximate: string = @how> (a) }""")
    (function,) = m.functions.values()
    skip = gelu_of(function[0], View(m))
    assert isinstance(skip, Skip)
    assert "a parameter of the local function" in skip.reason


@pytest.mark.parametrize(
    ("steps", "bias"),
    [
        ("b = Add (fed, bias)", "bias"),
        ("b = Add (bias, fed)", "bias"),
        ("b = Add (fed, narrow)", None),
        ("b = Add (fed, one)", None),
        ("b = Add (fed, x)", None),
        ("b = Mul (fed, bias)", None),
        ("b = Add (fed, bias) z = Neg (b)", None),
    ],
)
@pytest.mark.parametrize("gelu_steps", [ERF, "y = Gelu (x)"])
def test_bias(steps: str, bias: str | None, gelu_steps: str) -> None:
    m, gelu = gelu_at(f"{steps} {gelu_steps.replace('(x', '(b')}")
    assert isinstance(gelu, Gelu)
    operands = bias_of(gelu, View(m))
    assert (operands and operands[1].name) == bias
    assert operands is None or operands[0] is m.graph.inputs[1]
