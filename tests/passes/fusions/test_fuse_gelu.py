"""fuse-gelu: every way to write a Gelu, what is none, what stays and why."""

from __future__ import annotations

import itertools
import math

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfix
from graphfix.runtime.local_session import Session
from tests.passes.models import refusals
from tests.passes.typed import typed

CONSTANTS = """float root = {1.4142135}, float inverse = {0.70710678}, float one = {1.0},
    float half = {0.5}, float two = {2.0}, float three = {3.0}, float cube = {0.044715},
    float k = {0.79788456}, float k2 = {1.59576912}, float alpha = {1.702}, float lower = {0.851},
    float[1] halves = {0.5}, float[1, 1, 1, 1] deep = {0.5}, float minus = {-1.0},
    float[8] each = {0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5}"""


def model(body: str, *, opset: int = 17, out: str = "y", dtype: str = "float") -> ir.Model:
    """A Gelu of ``h``, an input of [B, T, 8], or of the product of it and a weight."""
    text = f"""<ir_version: 8, opset_import: ["" : {opset}]>
        m (float[B, T, 8] h, float[8] b, float[8, 8] w) => (float[B, T, 8] {out})
        <{CONSTANTS}> {{ {body} }}"""
    return typed(text, dtype, "<float root")


def ops(m: ir.Model) -> list[str]:
    return [node.op_type for node in m.graph.all_nodes() if node.op_type != "Constant"]


def run(m: ir.Model) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    sizes = {"h": (2, 5, 8), "b": (8,), "w": (8, 8)}
    with Session(m) as session:
        feeds = {
            x.name: (3 * rng.standard_normal(sizes[x.name])).astype(x.type[7:-1].replace(
                "float16", "f2").replace("float", "f4"))
            for x in session.inputs
        }  # fmt: skip
        return list(session.run(feeds).values())


def fused(body: str, spec: str = "fuse-gelu", **given: object) -> ir.Model:
    """The model after the pass, compared with the one before."""
    before, after = (model(body, **given) for _ in range(2))  # type: ignore[arg-type]
    report = graphfix.run(after, spec)
    assert report.changed, report.passes[0].skips
    assert after.graph.outputs[0].name == before.graph.outputs[0].name
    for got, want in zip(run(after), run(before), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)
    assert not graphfix.run(after, spec).changed
    return after


def left(body: str, spec: str = "fuse-gelu", **given: object) -> list[str]:
    """Why nothing was changed."""
    m = model(body, **given)  # type: ignore[arg-type]
    return refusals(m, spec)


ERF = "e = Erf (p) m = Add (e, one)"
ARGUMENT = {
    "divided by the root of 2": "p = Div (h, root)",
    "times its inverse": "p = Mul (inverse, h)",
    "halved and doubled": "q = Mul (h, half) r = Mul (q, two) p = Div (r, root)",
    "the root as float64 through a Cast": "p = Div (h, cast)",
}
ENDS = {
    "half last": "t = Mul (h, m) y = Mul (t, half)",
    "half first": "t = Mul (half, m) y = Mul (h, t)",
    "half of h": "t = Mul (half, h) y = Mul (t, m)",
    "divided by 2": "t = Mul (m, h) y = Div (t, two)",
    "half of one element": "t = Mul (m, h) y = Mul (halves, t)",
    "minus and minus": "t = Sub (minus, e) s = Mul (t, h) n = Mul (s, half) y = Mul (n, minus)",
    "a sum of two products": "a = Mul (h, half) t = Mul (a, e) c = Mul (half, h) y = Add (c, t)",
}


@pytest.mark.parametrize(("argument", "end"), list(itertools.product(ARGUMENT, ENDS)))
def test_erf(argument: str, end: str) -> None:
    body = f"{ARGUMENT[argument]} {ERF} {ENDS[end]}"
    if end in ("minus and minus", "a sum of two products"):
        body = body.replace(" m = Add (e, one)", "")
    if "cast" in body:
        body = "wide = Constant <value = double {1.4142135623730951}> () " \
            "cast = Cast <to = 1> (wide) " + body  # fmt: skip
    after = fused(body)
    assert [x for x in ops(after) if x != "Cast"] == ["Gelu"]
    assert after.opset_imports["com.microsoft"] == 1


CUBE = {
    "Pow": "c = Pow (h, three)",
    "h * h * h": "s = Mul (h, h) c = Mul (s, h)",
    "h * (h * h)": "s = Mul (h, h) c = Mul (h, s)",
    "h * Pow(h, 2)": "s = Pow (h, two) c = Mul (h, s)",
}
TANH = {
    "k outside": "d = Mul (cube, c) s3 = Add (h, d) p = Mul (s3, k)",
    "k inside": "d = Mul (cube, c) d2 = Mul (d, k) f = Mul (h, k) p = Add (d2, f)",
}
BY_QUICK_GELU = ["Mul", "HardSigmoid", "Mul", "QuickGelu", "Div"]
AFTER = "e = Tanh (p) m = Add (one, e) t = Mul (h, m) y = Mul (half, t)"


@pytest.mark.parametrize(("cube", "inner"), list(itertools.product(CUBE, TANH)))
def test_tanh(cube: str, inner: str) -> None:
    body = f"{CUBE[cube]} {TANH[inner]} {AFTER}"
    assert ops(fused(body)) == BY_QUICK_GELU
    assert ops(fused(body, "fuse-gelu:approximate=yes")) == ["FastGelu"]


def test_the_form_with_tanh_is_what_it_says_for_all_numbers() -> None:
    numbers = [0, 1e-38, 1e-20, 0.3, 5, 13, 14.3, 20, 65504, 1e20, 3e38, np.inf]
    x = np.array([[*numbers, *(-n for n in numbers[:-1])]], np.float32)
    text = """<ir_version: 9, opset_import: ["" : 20, "com.microsoft" : 1]>
        g (float[B, T] x) => (float[B, T] y) { y = Gelu <approximate = "tanh"> (x) }"""
    model = ir.from_onnx_text(text)
    graphfix.run(model, "fuse-gelu")
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString())
    with np.errstate(over="ignore"):
        wide = x.astype(np.float64)
        right = wide / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)))
    np.testing.assert_allclose(session.run(None, {"x": x})[0], right, rtol=1e-6, atol=1e-6)


def test_tanh_with_h_put_out() -> None:
    body = "s = Mul (h, h) d = Mul (s, cube) f = Add (d, one) g = Mul (h, f) p = Mul (g, k) "
    assert ops(fused(body + AFTER, "fuse-gelu:approximate=yes")) == ["FastGelu"]


def test_the_sigmoid_that_is_a_tanh() -> None:
    body = "c = Pow (h, three) d = Mul (c, cube) s = Add (h, d) p = Mul (s, k2) "
    body += "e = Sigmoid (p) y = Mul (h, e)"
    assert left(body) == []
    assert ops(fused(body, "fuse-gelu:approximate=yes")) == ["FastGelu"]


QUICK = {
    "SiLU": ("e = Sigmoid (h) y = Mul (h, e)", 1.0),
    "SiLU turned round": ("e = Sigmoid (h) y = Mul (e, h)", 1.0),
    "QuickGelu": ("p = Mul (h, alpha) e = Sigmoid (p) y = Mul (h, e)", 1.702),
    "by Tanh": ("p = Mul (h, lower) e = Tanh (p) m = Add (e, one) t = Mul (m, h) y = Mul (t, half)",
                1.702),
}  # fmt: skip


@pytest.mark.parametrize("case", QUICK)
def test_sigmoid(case: str) -> None:
    body, alpha = QUICK[case]
    after = fused(body)
    (node,) = after.graph
    assert node.op_type == "QuickGelu"
    assert node.attributes["alpha"].as_float() == pytest.approx(alpha)


WHOLE = f"{ARGUMENT['divided by the root of 2']} {ERF} {ENDS['half last']}"
BIAS = WHOLE.replace("h", "x").replace("xalf", "half")
BIASES = {
    "after a product": ("p0 = MatMul (h, w) x = Add (p0, b)", ["MatMul", "BiasGelu"]),
    "turned round": ("p0 = MatMul (h, w) x = Add (b, p0)", ["MatMul", "BiasGelu"]),
    "of a sum of two tensors": ("p0 = MatMul (h, w) x = Add (p0, h)", ["MatMul", "Add", "Gelu"]),
    "of one number": ("x = Add (h, halves)", ["Add", "Gelu"]),
    "constant": ("x = Add (h, each)", ["BiasGelu"]),
    "used twice": ("x = Add (h, b) z = Relu (x)", ["Add", "Relu", "Gelu"]),
}


@pytest.mark.parametrize("case", BIASES)
def test_bias(case: str) -> None:
    before, wanted = BIASES[case]
    out = "y, float[B, T, 8] z" if "z = " in before else "y"
    assert ops(fused(f"{before} {BIAS}", out=out)) == wanted


def test_a_bias_goes_with_fastgelu() -> None:
    body = f"{CUBE['Pow']} {TANH['k outside']} {AFTER}".replace("h", "x")
    body = body.replace("xalf", "half").replace("txree", "three").replace("Tanx", "Tanh")
    after = fused("x = Add (h, b) " + body, "fuse-gelu:approximate=yes")
    assert ops(after) == ["FastGelu"]
    assert len(after.graph[0].inputs) == 2


def test_onnx_gelu() -> None:
    assert fused("y = Gelu (h)", opset=20).graph[0].domain == "com.microsoft"
    assert ops(fused("x = Add (b, h) y = Gelu (x)", opset=20)) == ["BiasGelu"]
    tanh = 'y = Gelu <approximate = "tanh"> (h)'
    assert ops(fused(tanh, opset=20)) == BY_QUICK_GELU
    assert ops(fused(tanh, "fuse-gelu:approximate=yes", opset=20)) == ["FastGelu"]


def test_float16() -> None:
    before, after = (model(WHOLE, dtype="float16") for _ in range(2))
    graphfix.run(after, "fuse-gelu")
    assert ops(after) == ["Gelu"]
    np.testing.assert_allclose(run(after)[0], run(before)[0], rtol=5e-3, atol=5e-3)


STAYS = {
    "a part is used elsewhere": (f"{WHOLE} z = Neg (e)", "'e', a part of it, goes into"),
    "a part is an output": (WHOLE.replace("t = ", "z = ").replace("(t", "(z"),
                            "'z', a part of it, is an output"),
    "double": (WHOLE, "the type of 'h' is double"),
}  # fmt: skip


@pytest.mark.parametrize("case", STAYS)
def test_stays_with_a_reason(case: str) -> None:
    body, reason = STAYS[case]
    out = "y, float[B, T, 8] z" if "z = " in body else "y"
    (found,) = left(body, out=out, dtype="double" if case == "double" else "float")
    assert reason in found


NONE = {
    "another tensor is scaled": WHOLE.replace("Mul (h, m)", "Mul (w2, m)").replace(
        "p = ", "w2 = Relu (h) p = "),
    "no half": f"p = Div (h, root) {ERF} y = Mul (h, m)",
    "no one": "p = Div (h, root) e = Erf (p) t = Mul (h, e) y = Mul (t, half)",
    "two": WHOLE.replace("one", "two"),
    "a gate of another tensor": "r = Relu (h) e = Sigmoid (r) y = Mul (h, e)",
    "a Sigmoid of a sum": "r = Add (h, one) e = Sigmoid (r) y = Mul (h, e)",
    "a half for each": WHOLE.replace("half", "each"),
    "a square for a cube": f"c = Pow (h, two) {TANH['k outside']} {AFTER}",
    "a plain product": "y = Mul (h, half)",
    "Tanh alone": "e = Tanh (h) y = Mul (e, half)",
    "the half under the curve": "p = Mul (h, half) e = Erf (p) m = Add (e, one) y = Mul (h, m)",
    "a division by it": f"p = Div (h, root) {ERF} t = Mul (h, half) y = Div (t, m)",
    "a very high power": "c = Pow (h, three) c2 = Pow (c, three) e = Tanh (c2) y = Mul (h, e)",
}  # fmt: skip


@pytest.mark.parametrize("case", NONE)
def test_is_none(case: str) -> None:
    assert left(NONE[case]) == []


def test_a_constant_of_more_dims_than_the_tensor_is_none() -> None:
    m = model(WHOLE.replace("half", "deep"))
    m.graph.outputs[0].shape = ir.Shape([1, "B", "T", 8])
    assert not graphfix.run(m, "fuse-gelu").changed


def test_a_constant_that_a_caller_may_give_is_none() -> None:
    m = model(WHOLE)
    m.graph.inputs.append(m.graph.initializers["half"])
    assert not graphfix.run(m, "fuse-gelu").changed


def test_a_constant_that_others_use_stays() -> None:
    after = fused(f"{WHOLE} z = Mul (h, half)", out="y, float[B, T, 8] z")
    assert ops(after) == ["Gelu", "Mul"]
    assert set(after.graph.initializers) >= {"half"}
    assert "root" not in after.graph.initializers


def test_in_a_branch() -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        m (float[B, T, 8] h, bool c) => (float[B, T, 8] y) <{CONSTANTS}>
        {{ y = If (c) <then_branch = yes () => (float[B, T, 8] o)
             {{ {WHOLE.replace("y =", "o =")} }},
           else_branch = no () => (float[B, T, 8] o2) {{ o2 = Identity (h) }}> }}"""
    before, after = (ir.from_onnx_text(text) for _ in range(2))
    assert graphfix.run(after, "fuse-gelu").changed
    assert ops(after) == ["If", "Gelu", "Identity"]
    verdict = graphfix.verify(before, after)
    assert verdict.ok, str(verdict)


def test_in_a_local_function_the_type_is_not_known() -> None:
    body = "root = Constant <value = float {1.4142135}> () one = Constant <value = float {1.0}> () "
    body += "half = Constant <value = float {0.5}> ()"
    text = f"""<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        m (float[B, T, 8] x) => (float[B, T, 8] y) {{ y = local.gelu (x) }}
        <domain: "local", opset_import: ["" : 17]> gelu (h) => (y) {{ {body} {WHOLE} }}"""
    m = ir.from_onnx_text(text)
    assert "is not known" in refusals(m, "fuse-gelu")[0]


@given(st.permutations(["h", "m", "half"]), st.integers(0, 1), st.integers(0, 1), st.integers(0, 1))
@settings(max_examples=30, deadline=None)
def test_any_order(factors: list[str], side: int, outer: int, inner: int) -> None:
    a, b, c = factors
    first = f"t = Mul ({a}, {b})" if side else f"t = Mul ({b}, {a})"
    last = f"y = Mul (t, {c})" if outer else f"y = Mul ({c}, t)"
    argument = "p = Div (h, root)" if inner else "p = Mul (h, inverse)"
    m = model(f"{argument} {ERF} {first} {last}")
    assert graphfix.run(m, "fuse-gelu").changed
    assert ops(m) == ["Gelu"]


def test_a_bias_of_two_dims_stays_apart() -> None:
    """Its last size is that of the tensor, and its first one, too."""
    m = ir.from_onnx_text(
        f"""<ir_version: 8, opset_import: ["" : 17]> m (float[B, 8, 8] g, float[8, 8] w)
        => (float[B, 8, 8] y) <{CONSTANTS}> {{ h = Add (g, w) {WHOLE} }}"""
    )
    assert graphfix.run(m, "fuse-gelu").changed
    assert ops(m) == ["Add", "Gelu"]


def test_which_gelu_it_is_a_call_may_say() -> None:
    m = ir.from_onnx_text("""<ir_version: 10, opset_import: ["" : 20, "f" : 1]>
        m (float[B, 8] x) => (float[B, 8] y) { y = f.act <how = "tanh"> (x) }
        <domain: "f", opset_import: ["" : 20]> act <how> (x) => (y)
        { y = Gelu <approximate: string = @how> (x) }""")
    assert "is a parameter of the local function" in refusals(m, "fuse-gelu")[0]
