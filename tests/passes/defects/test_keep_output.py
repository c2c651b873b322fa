"""keep-output: which outputs DirectML loses, and that they are kept under their names."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfix
from tests.passes.models import opened

HEAD = '<ir_version: 8, opset_import: ["" : {opset}]>\n'
WEIGHTS = """<float[4, 4] w = {1, -1, 0.5, 0, 1, 2, -2, 1, 0, 0.5, 1, 1, -1, 1, 1, 0},
    float[4] b = {1, -2, 0.5, 0}, float[1, 1, 3] k = {1, -1, 0.5}, float[1, 1, 1] one = {2}>"""


def model(body: str, *, opset: int = 17, shape: str = "N, 4", outputs: str = "h, y") -> ir.Model:
    dims = ", ".join(f"D{i}" for i in range(shape.count(",") + 1))
    ends = ", ".join(f"float[{dims}] {x.strip()}" for x in outputs.split(","))
    text = f"m (float[{shape}] x) => ({ends}) {WEIGHTS} {{ {body} }}"
    return ir.from_onnx_text(HEAD.format(opset=opset) + text)


def run(m: ir.Model, x: np.ndarray) -> dict[str, np.ndarray]:
    session = opened(m, optimized=False)
    names = [x.name for x in session.get_outputs()]
    return dict(zip(names, session.run(None, {"x": x}), strict=True))


def feed(shape: str) -> np.ndarray:
    dims = [int(x) if x.strip().isdigit() else 3 for x in shape.split(",")]
    return np.random.default_rng(0).standard_normal(dims).astype(np.float32)


# Run on the real EP, each with its activation and its output: no session can be made.
LOST = {
    "a sum": ("h = Add (x, w) y = Relu (h)", "4, 4"),
    "a sum with a slope": ("h = Sum (x, w) y = LeakyRelu (h)", "4, 4"),
    "a product": ("h = MatMul (x, w) y = Sigmoid (h)", "N, 4"),
    "a product with a bias": ("h = Gemm (x, w, b) y = Tanh (h)", "N, 4"),
    "a convolution": ("h = Conv (x, k) y = Elu (h)", "1, 1, T"),
    "its bias": ("c = Conv (x, k) h = Add (c, one) y = Sigmoid (h)", "1, 1, T"),
    "its scale": ("c = Conv (x, k) h = Mul (c, one) y = Softplus (h)", "1, 1, T"),
    "a bias that makes a Gemm": ("p = MatMul (x, w) h = Add (p, b) y = Sigmoid (h)", "N, 4"),
}


@pytest.mark.parametrize("case", LOST)
def test_is_kept(case: str) -> None:
    body, shape = LOST[case]
    before, after = model(body, shape=shape), model(body, shape=shape)
    found = [(x.rule, x.severity, x.fix) for x in graphfix.check(before) if x.severity == "error"]
    assert found == [("keep-output", "error", "keep-output")]
    assert [x.severity for x in graphfix.check(before, "keep-output", ep="cpu")] == ["note"]
    report = graphfix.run(after, "keep-output")
    assert [x.tensor for x in report.passes[0].changes] == ["h"]
    assert [x.name for x in after.graph.outputs] == ["h", "y"]
    h, y = (x.producer() for x in after.graph.outputs)
    assert h.op_type == "Identity"
    assert y.inputs == h.inputs
    assert not [x for x in graphfix.check(after) if x.rule == "keep-output"]
    assert not graphfix.run(after, "keep-output").changed
    x = feed(shape)
    for name, want in run(before, x).items():
        np.testing.assert_allclose(run(after, x)[name], want, rtol=1e-5, atol=1e-6)


# Run on the real EP: these have a session there.
LEFT = {
    "no activation after it": ("h = Add (x, w) y = Neg (h)", "4, 4", 17),
    "an activation that a sum does not take": ("h = Add (x, w) y = Sigmoid (h)", "4, 4", 17),
    "another user": ("h = MatMul (x, w) y = Relu (h) z = Neg (h)", "N, 4", 17),
    "an Identity before it": ("a = Add (x, w) h = Identity (a) y = Relu (h)", "4, 4", 17),
    "no output": ("a = Add (x, w) y = Relu (a) h = Neg (y)", "4, 4", 17),
    "a bias of rank 3": ("p = MatMul (x, w) h = Add (p, b) y = Sigmoid (h)", "2, N, 4", 17),
    "no kernel": ("h = Conv (x, k) y = LeakyRelu (h)", "1, 1, T", 22),
}


@pytest.mark.parametrize("case", LEFT)
def test_left_alone(case: str) -> None:
    body, shape, opset = LEFT[case]
    outputs = "h, y, z" if "z =" in body else "h, y"
    after = model(body, shape=shape, opset=opset, outputs=outputs)
    before = ir.to_proto(after).SerializeToString(deterministic=True)
    assert not graphfix.check(after, "keep-output")
    assert not graphfix.run(after, "keep-output").changed
    assert ir.to_proto(after).SerializeToString(deterministic=True) == before


def test_the_branches_of_an_if_lose_nothing() -> None:
    after = ir.from_onnx_text(
        HEAD.format(opset=17)
        + """m (float[4, 4] x, bool p) => (float[4, 4] y, float[4, 4] z) {
            y, z = If (p) <
                then_branch = t () => (float[4, 4] h, float[4, 4] a)
                    { h = Add (x, x) a = Relu (h) },
                else_branch = e () => (float[4, 4] g, float[4, 4] b)
                    { g = Neg (x) b = Abs (g) }>
        }"""
    )
    assert not graphfix.check(after, "keep-output")
    assert not graphfix.run(after, "keep-output").changed


def test_what_opset_ceiling_brings_to_directml_is_kept_as_well() -> None:
    after = model("h = Conv (x, k) y = LeakyRelu (h)", shape="1, 1, T", opset=22)
    graphfix.run(after, "directml")
    assert after.graph.outputs[0].producer().op_type == "Identity"


def test_check_names_the_repair() -> None:
    before = model(*LOST["a product"][:1])
    assert "keep-output" in {x.fix for x in graphfix.check(before)}


STEPS = ("Relu", "Sigmoid", "Neg", "Identity", "Tanh", "LeakyRelu")


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_whatever_is_an_output(data: st.DataObject) -> None:
    """Chains of nodes that take each other's values, any of which are outputs."""
    names, nodes = ["x"], []
    for i in range(data.draw(st.integers(1, 8))):
        given_ = data.draw(st.sampled_from(names))
        kind = data.draw(st.sampled_from(("Add", "MatMul", *STEPS)))
        nodes.append(f"v{i} = {kind} ({given_}{', w' if kind in ('Add', 'MatMul') else ''})")
        names.append(f"v{i}")
    ends = data.draw(st.lists(st.sampled_from(names[1:]), min_size=1, unique=True))
    text = " ".join(nodes)
    before, after = (model(text, shape="4, 4", outputs=", ".join(ends)) for _ in range(2))
    graphfix.run(after, "keep-output")
    assert not graphfix.check(after, "keep-output")
    assert [x.name for x in after.graph.outputs] == ends
    x = feed("4, 4")
    for name, want in run(before, x).items():
        np.testing.assert_allclose(run(after, x)[name], want, rtol=1e-5, atol=1e-6)
