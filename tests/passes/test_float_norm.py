"""float-norm: norms in float16 between Casts, and the same bits on the CPU."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import graphfix
from graphfix import registry


def model(body: str, *, kind: str = "float16", opset: int = 17, ends: str = "") -> ir.Model:
    return ir.from_onnx_text(f"""<ir_version: 8, opset_import: ["" : {opset}]>
    m ({kind}[B, 3, N] x, {kind}[N] s, {kind}[N] b, {kind}[3] t, {kind}[3] u)
        => ({kind}[B, 3, N] y{ends}) {{ {body} }}""")


def run(m: ir.Model, x: np.ndarray) -> np.ndarray:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    data = ir.to_proto(m).SerializeToString()
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    scale = np.linspace(0.5, 2, x.shape[2]).astype(x.dtype)
    three = np.array([1, 0.25, -2], x.dtype)
    feeds = {"x": x, "s": scale, "b": -scale, "t": three, "u": three}
    names = [v.name for v in session.get_inputs()]
    return session.run(None, {name: feeds[name] for name in names})[0]


BODIES = {
    "layer": "y = LayerNormalization (x, s, b)",
    "layer without bias": "y = LayerNormalization <axis = -1, epsilon = 0.01> (x, s)",
    "instance": "y = InstanceNormalization (x, t, u)",
}


@pytest.mark.parametrize("case", BODIES)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_every_bit_is_kept(case: str, data: st.DataObject) -> None:
    reach = st.floats(-60000, 60000, width=16)
    shape = st.tuples(st.integers(1, 2), st.just(3), st.integers(1, 9))
    x = data.draw(hnp.arrays(np.float16, shape, elements=reach))
    before, after = (model(BODIES[case]) for _ in range(2))
    report = graphfix.run(after, "float-norm")
    assert len(report.passes[0].changes) == 1
    assert not graphfix.run(after, "float-norm").changed
    np.testing.assert_array_equal(run(after, x), run(before, x))


def test_a_scale_of_many_norms_is_cast_once() -> None:
    after = model("a = LayerNormalization (x, s, b) y = LayerNormalization (a, s, b)")
    assert len(graphfix.run(after, "float-norm").passes[0].changes) == 2
    ops = [node.op_type for node in after.graph]
    assert ops.count("Cast") == 2 + 2 + 2  # what goes in, what comes out, scale and bias


@pytest.mark.parametrize(
    ("body", "kind", "ends", "reason"),
    [
        (BODIES["layer"], "float", "", None),
        ("y, m = LayerNormalization (x, s, b)", "float16", ", float[B, 3, 1] m", "its mean"),
    ],
)
def test_left_alone(body: str, kind: str, ends: str, reason: str | None) -> None:
    after = model(body, kind=kind, ends=ends)
    before = ir.to_proto(after).SerializeToString(deterministic=True)
    report = graphfix.run(after, "float-norm")
    assert not report.changed
    assert ir.to_proto(after).SerializeToString(deterministic=True) == before
    reasons = [why for _, why in report.passes[0].skips]
    assert [x.startswith(reason or "") for x in reasons] == [True] * (reason is not None)


def test_the_rule_names_it_and_no_profile_holds_it() -> None:
    told = graphfix.check(model(BODIES["layer"]), "half-norm")
    assert [(x.severity, x.fix) for x in told] == [("warning", "float-norm")]
    assert all("float-norm" not in x for x in registry.PROFILES.values())
