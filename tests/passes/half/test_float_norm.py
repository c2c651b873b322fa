"""float-norm: norms in float16 between Casts, and what float32 makes of them on any machine."""

from __future__ import annotations

import functools

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import graphfix
from graphfix.engine import registry
from tests.passes.models import opened, refusals


def model(body: str, *, kind: str = "float16", opset: int = 17, ends: str = "") -> ir.Model:
    return ir.from_onnx_text(f"""<ir_version: 8, opset_import: ["" : {opset}]>
    m ({kind}[B, 3, N] x, {kind}[N] s, {kind}[N] b, {kind}[3] t, {kind}[3] u)
        => ({kind}[B, 3, N] y{ends}) {{ {body} }}""")


def scales(n: int) -> dict[str, np.ndarray]:
    scale, three = np.linspace(0.5, 2, n), np.array([1, 0.25, -2])
    feeds = {"s": scale, "b": -scale, "t": three, "u": three}
    return {name: array.astype(np.float16) for name, array in feeds.items()}


BODIES = {
    "layer": ("y = LayerNormalization (x, s, b)", 1e-5),
    "layer without bias": ("y = LayerNormalization <axis = -1, epsilon = 0.01> (x, s)", 0.01),
    "instance": ("y = InstanceNormalization (x, t, u)", 1e-5),
}


@functools.cache
def repaired(case: str) -> ort.InferenceSession:
    after = model(BODIES[case][0])
    report = graphfix.run(after, "float-norm")
    assert len(report.passes[0].changes) == 1
    assert report.safety == "conditional"
    assert not graphfix.run(after, "float-norm").changed
    return opened(after)


def truth(case: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The norm in float64, and how far float32 may be from it: any way, if the variance is lost.

    Any order of the sums is allowed, and a variance as the mean of squares less the square of the
    mean, which cancels.
    """
    rows = x.astype(np.float64)
    given = {name: array.astype(np.float64) for name, array in scales(x.shape[2]).items()}
    layer = case.startswith("layer")
    scale = given["s"] if layer else given["t"][:, None]
    bias = given["u"][:, None] if not layer else given["b"] if case == "layer" else 0.0
    centred = rows - rows.mean(axis=2, keepdims=True)
    variance = (centred**2).mean(axis=2, keepdims=True) + BODIES[case][1]
    normed = centred / np.sqrt(variance)
    largest = np.abs(rows).max(axis=2, keepdims=True)
    rounding = 4 * (x.shape[2] + 4) * 2.0**-24
    lost = rounding * largest**2 / variance
    off = rounding * (1 + np.abs(normed) + largest / np.sqrt(variance)) + np.abs(normed) * lost
    wanted = normed * scale + bias
    off = off * np.abs(scale) + rounding * np.abs(bias)
    half = np.maximum(np.abs(wanted) * 2.0**-11, 2.0**-25)  # half a step of float16
    return wanted, np.where(lost < 0.1, off + 1.001 * half, np.inf)


NEARLY_ZERO = np.ones((1, 3, 8), np.float16)
NEARLY_ZERO[0, 1, :4] = 0
WIDE = np.array([[[5000] + [0] * 8, [1, -1] * 4 + [60000], [0.5] * 9]], np.float16)


@pytest.mark.parametrize("case", BODIES)
@settings(max_examples=300, deadline=None)
@example(x=NEARLY_ZERO)
@example(x=WIDE)
@given(
    x=hnp.arrays(
        np.float16,
        st.tuples(st.integers(1, 2), st.just(3), st.integers(1, 9)),
        elements=st.floats(-60000, 60000, width=16) | st.sampled_from([0, 1, -1, 0.5, 3]),
    )
)
def test_it_is_as_exact_as_float32(case: str, x: np.ndarray) -> None:
    wanted, off = truth(case, x)
    with np.errstate(invalid="ignore"):
        apart = np.abs(session_run(case, x) - wanted)
    known = np.isfinite(off)
    assert (apart[known] <= off[known]).all(), (apart - off)[known].max()


def session_run(case: str, x: np.ndarray) -> np.ndarray:
    made = repaired(case)
    feeds = {"x": x, **scales(x.shape[2])}
    (found,) = made.run(None, {v.name: feeds[v.name] for v in made.get_inputs()})
    assert found.dtype == np.float16
    return found.astype(np.float64)


def test_the_bound_tells_a_variance_in_float16() -> None:
    """5000 squared is infinity there: what this pass is for would not pass."""
    wanted, off = truth("layer without bias", WIDE)
    row = WIDE[0, 0]
    with np.errstate(over="ignore"):
        half = row / np.sqrt((row * row).mean()) * scales(9)["s"]
    assert (np.abs(half - wanted[0, 0]) > off[0, 0]).any()


def test_a_scale_of_many_norms_is_cast_once() -> None:
    after = model("a = LayerNormalization (x, s, b) y = LayerNormalization (a, s, b)")
    assert len(graphfix.run(after, "float-norm").passes[0].changes) == 2
    ops = [node.op_type for node in after.graph]
    assert ops.count("Cast") == 2 + 2 + 2  # what goes in, what comes out, scale and bias


@pytest.mark.parametrize(
    ("body", "kind", "ends", "reason"),
    [
        (BODIES["layer"][0], "float", "", None),
        ("y, m = LayerNormalization (x, s, b)", "float16", ", float[B, 3, 1] m", "its mean"),
    ],
)
def test_left_alone(body: str, kind: str, ends: str, reason: str | None) -> None:
    after = model(body, kind=kind, ends=ends)
    reasons = refusals(after, "float-norm")
    assert [x.startswith(reason or "") for x in reasons] == [True] * (reason is not None)


def test_the_rule_names_it_and_no_profile_holds_it() -> None:
    told = graphfix.check(model(BODIES["layer"][0]), "half-norm")
    assert [(x.severity, x.fix) for x in told] == [("warning", "float-norm")]
    assert all("float-norm" not in x for x in registry.PROFILES.values())


def test_a_norm_of_a_constant_is_left_to_folding() -> None:
    m = ir.from_onnx_text("""<ir_version: 8, opset_import: ["" : 17]>
        m (float16[B, 2] x) => (float16[B, 2] y) <float16[2] c = {1, 2}, float16[2] s = {1, 1}>
        { n = LayerNormalization (c, s) y = Add (x, n) }""")
    assert not graphfix.run(m, "float-norm").changed
