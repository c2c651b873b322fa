"""gemm-bias: which Gemms get a C, and that not one bit changes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from tests.passes.models import opened

WEIGHTS = """<float[4, 4] w = {1, -1, 0.5, 0, 1, 2, -2, 1, 0, 0.5, 1, 1, -1, 1, 1, 0},
    float[4] b = {1, -2, 0.5, 0}>"""


def model(body: str, outputs: str = "float[N, 4] y", opset: int = 17) -> ir.Model:
    return ir.from_onnx_text(
        f'<ir_version: 8, opset_import: ["" : {opset}]> m (float[N, 4] x, bool go) => ({outputs}) '
        f"{WEIGHTS} {{ {body} }}"
    )


def run(m: ir.Model) -> np.ndarray:
    session = opened(m, optimized=False)
    # Every sum is exact, in whatever order a machine adds: only the sign of a zero may differ.
    x = np.array([[-0.0, 0, 1, -3], [1e-40, 2, -2, 5], [0, 0, 0, 0]], np.float32)
    feeds = {"x": x, "go": np.array(True)}
    return session.run(None, {x.name: feeds[x.name] for x in session.get_inputs()})[0]


# Run on the real EP: each without a session before, and right after.
BARE = {
    "Relu": "h = Gemm (x, w) y = Relu (h)",
    "Tanh, of a transposed weight": "h = Gemm <transB = 1> (x, w) y = Tanh (h)",
    "an empty C": "h = Gemm <alpha = 0.5> (x, w, ) y = Sigmoid (h)",
    "a bias that is added later": "h = Gemm (x, w) r = LeakyRelu (h) y = Add (r, b)",
}


@pytest.mark.parametrize("opset", [13, 17, 21])
@pytest.mark.parametrize("case", BARE)
def test_gets_a_zero(case: str, opset: int) -> None:
    before, after = model(BARE[case], opset=opset), model(BARE[case], opset=opset)
    found = [(x.rule, x.fix) for x in graphfix.check(before) if x.severity == "error"]
    assert found == [("gemm-bias", "gemm-bias")]
    report = graphfix.run(after)
    assert [p.name for p in report.passes if p.changes] == ["gemm-bias"]
    gemm = next(node for node in after.graph if node.op_type == "Gemm")
    assert len(gemm.inputs) == 3
    assert run(after).tobytes() == run(before).tobytes()
    assert not graphfix.run(after).changed
    assert not [x for x in graphfix.check(after) if x.severity == "error"]


LEFT = {
    "it has a C": "h = Gemm (x, w, b) y = Relu (h)",
    "it has two users": "h = Gemm (x, w) r = Relu (h) y = Add (r, h)",
    "what follows is not fused": "h = Gemm (x, w) y = Neg (h)",
    "a branch has a session of its own": """y = If (go) <
        then_branch = a () => (float[N, 4] p) { h = Gemm (x, w) p = Relu (h) },
        else_branch = o () => (float[N, 4] q) { q = Neg (x) }
    >""",
    "a MatMul needs none": "h = MatMul (x, w) y = Relu (h)",
}


@pytest.mark.parametrize("case", LEFT)
def test_left_alone(case: str) -> None:
    after = model(LEFT[case])
    assert not graphfix.run(after, "gemm-bias").changed
    assert not graphfix.check(after, "gemm-bias")


def test_a_zero_is_shared_and_of_the_type_of_its_gemm() -> None:
    m = ir.from_onnx_text("""<ir_version: 8, opset_import: ["" : 17]>
        m (float16[N, 4] x, float16[4, 4] w) => (float16[N, 4] y) {
            h = Gemm (x, w) r = Relu (h) k = Gemm (r, w) y = Relu (k) }""")
    assert len(graphfix.run(m, "gemm-bias").passes[0].changes) == 2
    assert [x.dtype for x in m.graph.initializers.values()] == [ir.DataType.FLOAT16]
