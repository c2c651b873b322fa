"""logsumexp-shift: equal to the CPU at every opset, also where everything is infinite."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from tests.passes.models import execute, model, ops, refusals

ROWS = np.array(
    [[1, 2, 3, 4], [300, -1, 2, 5], [-200, -300, -100, -150], [88, 89, -3, 0]], np.float32
)
INFINITE = np.array([[-np.inf] * 4, [np.inf, 1, 2, 3], [-np.inf, 1, 2, 3]])


def reduction(
    opset: int, axes: str = "1", attributes: str = "", kind: str = "float", dims: str = "A, 4"
) -> ir.Model:
    listed = f"axes = [{axes}]" if axes and opset < 18 else ""
    joined = ", ".join(filter(None, (listed, attributes)))
    options = f"<{joined}>" if joined else ""
    given = f"<int64[{axes.count(',') + 1}] axes = {{{axes}}}>" if axes and opset >= 18 else ""
    inputs = "x, axes" if given else "x"
    left = "P, Q" if "keepdims = 0" not in attributes else "P" if axes.count(",") == 0 else ""
    left = "" if not axes and "keepdims = 0" in attributes else left
    return model(
        f"m ({kind}[{dims}] x) => ({kind}[{left}] y) {given} "
        f"{{ y = ReduceLogSumExp {options} ({inputs}) }}",
        opset,
    )


@pytest.mark.parametrize("opset", [9, 11, 13, 17, 18, 21])
@pytest.mark.parametrize("axes", ["1", "-1", "0", "0, 1", ""])
@pytest.mark.parametrize("attributes", ["", "keepdims = 0"])
@pytest.mark.parametrize("rows", [ROWS, INFINITE.astype(np.float32)], ids=["finite", "infinite"])
def test_the_same_numbers(opset: int, axes: str, attributes: str, rows: np.ndarray) -> None:
    before, after = (reduction(opset, axes, attributes) for _ in range(2))
    report = graphfix.run(after, "logsumexp-shift")
    assert len(report.passes[0].changes) == 1
    assert "ReduceLogSumExp" not in ops(after)
    (old,), (new,) = (execute(m, {"x": rows}, optimized=False) for m in (before, after))
    assert old.shape == new.shape
    np.testing.assert_allclose(old, new, rtol=1e-6, equal_nan=True)


def test_a_nan_stays_one() -> None:
    after = reduction(18)
    graphfix.run(after, "logsumexp-shift")
    (got,) = execute(after, {"x": np.array([[np.nan, 1, 2, 3], [1, 2, 3, 4]], np.float32)})
    np.testing.assert_array_equal(np.isnan(got), [[True], [False]])


def test_half() -> None:
    after = reduction(18, kind="float16")
    graphfix.run(after, "logsumexp-shift")
    (got,) = execute(after, {"x": ROWS.astype(np.float16)})
    want = np.log(np.exp(ROWS.astype(np.float64) - 300).sum(1, keepdims=True)) + 300
    np.testing.assert_allclose(got[1], want[1], rtol=1e-3)
    assert np.isfinite(got).all()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("m (float[A, 4] x, int64[N] a) => (float[A, 1] y) { y = ReduceLogSumExp (x, a) }", "run"),
        ("m (float x, int64[N] a) => (float y) { s = Reshape (x, a) y = ReduceLogSumExp (s) }",
         "rank"),
    ],
)  # fmt: skip
def test_what_cannot_be_repaired_is_an_error(body: str, reason: str) -> None:
    m = model(body, 18)
    assert any(reason in why for why in refusals(m, "logsumexp-shift"))
    (finding,) = graphfix.check(m, "logsumexp-shift")
    assert (finding.severity, finding.fix) == ("error", None)
    assert {x.severity for x in graphfix.check(m, "logsumexp-shift", ep="cpu")} == {"note"}


def test_what_reduces_nothing_or_runs_on_the_cpu() -> None:
    nothing = "noop_with_empty_axes = 1"
    assert not graphfix.run(reduction(18, "", nothing), "logsumexp-shift").changed
    assert not graphfix.run(reduction(18, kind="double"), "logsumexp-shift").changed
