"""float-conv-input: what ORT refuses loads afterwards, and what it takes stays as it is."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidGraph

import graphfix
from graphfix.errors import ModelError
from tests.passes.models import opened

HEAD = '<ir_version: 8, opset_import: ["" : 17{more}]>\n'


def model(body: str, *, kind: str = "bool", out: str = "float[P, Q, R] y", more: str = ""
          ) -> ir.Model:  # fmt: skip
    text = f"""m ({kind}[B, 4, 4] x, float[4, 4, 3] w, float[4] b, float[4, 2] m, double[4, 2] d)
        => ({out}) {{ {body} }}"""
    return ir.from_onnx_text(HEAD.format(more=more) + text)


def run(m: ir.Model, x: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(0)
    given = {"x": x, "w": rng.standard_normal((4, 4, 3)).astype(np.float32)}
    given |= {"b": np.ones(4, np.float32), "m": np.full((4, 2), 0.5, np.float32)}
    given["d"] = np.full((4, 2), 0.5)
    made = opened(m)
    return made.run(None, {v.name: given[v.name] for v in made.get_inputs()})[0]


KINDS = {"bool": np.bool_, "int32": np.int32, "int64": np.int64, "uint8": np.uint8, "int8": np.int8}
X = np.arange(16).reshape(1, 4, 4) % 3
REPAIRED = {
    "Conv": "y = Conv (x, w, b)",
    "Conv with attributes": "y = Conv <pads = [1, 1], strides = [2]> (x, w)",
    "ConvTranspose": "y = ConvTranspose (x, w, b)",
    "MatMul": "y = MatMul (x, m)",
    "MatMul of doubles": "z = MatMul (x, d) y = Cast <to = 1> (z)",
    "two Convs of one mask": "u = Conv (x, w) v = Conv (x, w, b) y = Add (u, v)",
    "a Conv behind a Conv": "u = Conv <pads = [1, 1]> (x, w) r = Relu (u) y = Conv (r, w)",
}


@pytest.mark.parametrize("case", REPAIRED)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_refused_loads_and_computes_as_floats_do(case: str, kind: str) -> None:
    after = model(REPAIRED[case], kind=kind)
    with pytest.raises((Fail, InvalidGraph)):
        opened(after)
    assert graphfix.run(after, "float-conv-input").changed
    made = [n for n in after.graph if n.metadata_props.get("graphfix.pass") == "float-conv-input"]
    assert sum(n.op_type == "Cast" for n in made) == 1
    x = X.astype(KINDS[kind])
    same = REPAIRED[case].replace("(x, d)", "(x, m)")  # 0.5 in both types
    want = run(model(same, kind="float"), x.astype(np.float32))
    np.testing.assert_allclose(run(after, x), want, atol=1e-6)
    text = ir.to_proto(after).SerializeToString(deterministic=True)
    assert not graphfix.run(after, "float-conv-input").changed
    assert ir.to_proto(after).SerializeToString(deterministic=True) == text


def test_gemm_and_a_weight_that_is_no_float() -> None:
    text = """m (float[B, 4] x, bool[2] c) => (float[B, 2] y)
        <int64[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}>
        { y = Gemm (x, w, c) }"""
    after = ir.from_onnx_text(HEAD.format(more="") + text)
    assert graphfix.run(after, "float-conv-input").changed
    assert [n.op_type for n in after.graph] == ["Cast", "Cast", "Gemm"]
    given = {"x": np.ones((1, 4), np.float32), "c": np.array([True, False])}
    np.testing.assert_array_equal(opened(after).run(None, given)[0], [[17, 20]])


def test_a_mask_that_is_computed() -> None:
    after = model("l = Less (x, x) n = Not (l) y = Conv (n, w)", kind="int64")
    assert graphfix.run(after, "float-conv-input").changed
    np.testing.assert_allclose(
        run(after, X.astype(np.int64)),
        run(model("y = Conv (x, w)", kind="float"), np.ones((1, 4, 4), np.float32)),
    )


def test_in_a_branch() -> None:
    text = """m (bool[B, 4, 4] x, float[4, 4, 3] w, bool p) => (float[P, Q, R] y) {
        y = If (p) <then_branch = t () => (float[P, Q, R] a) { a = Conv (x, w) },
                    else_branch = e () => (float[P, Q, R] b) { b = Conv (x, w) }> }"""
    after = ir.from_onnx_text(HEAD.format(more="") + text)
    assert len(graphfix.run(after, "float-conv-input").passes[0].changes) == 2
    assert [n.op_type for n in after.graph] == ["Cast", "If"]
    opened(after)


LEFT = {
    "floats": ("y = Conv (x, w)", "float", None),
    "halves": ("h = Cast <to = 10> (w) y = Conv (x, h)", "float16", None),
    "a Cast that is there": ("f = Cast <to = 1> (x) y = Conv (f, w)", "bool", None),
    "MatMul of int64": ("y = MatMul (x, x)", "int64", None),
    "MatMul of int32": ("y = MatMul (x, x)", "int32", None),
    "integers elsewhere": ("y = Add (x, x)", "int64", None),
    "ConvInteger": ("y = MatMulInteger (x, x)", "uint8", None),
    "another domain's Conv": ("y = my.Conv (x, w)", "bool", None),
    "MatMul of bools": (
        "y = MatMul (x, x)",
        "bool",
        "'x' is no float, nor is another: which type is meant?",
    ),
    "MatMul of two integers": (
        "i = Cast <to = 6> (x) y = MatMul (x, i)",
        "int64",
        "'x' is no float, nor is another: which type is meant?",
    ),
    "Conv of integers alone": (
        "y = Conv (x, x)",
        "int64",
        "'x' is no float, nor is another: which type is meant?",
    ),
    "floats of two types": (
        "h = Cast <to = 10> (b) y = Conv (x, w, h)",
        "bool",
        "'x' is no float, the others are floats of two types: which type is meant?",
    ),
}


@pytest.mark.parametrize("case", LEFT)
def test_left_alone(case: str) -> None:
    body, kind, reason = LEFT[case]
    after = model(body, kind=kind, more=', "my" : 1' if "my." in body else "")
    before = ir.to_proto(after).SerializeToString(deterministic=True)
    report = graphfix.run(after, "float-conv-input")
    assert not report.changed
    assert ir.to_proto(after).SerializeToString(deterministic=True) == before
    assert [why for _, why in report.passes[0].skips] == ([] if reason is None else [reason])


def test_there_is_nothing_to_verify_it_against() -> None:
    before, after = (model(REPAIRED["Conv"]) for _ in range(2))
    graphfix.run(after, "float-conv-input")
    with pytest.raises(ModelError, match="the model as given does not load"):
        graphfix.verify(before, after)
