"""clip-minmax: limits in the wrong order, and that every number stays."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import graphfix
from tests.passes.models import opened, refusals

KINDS = {
    "float": np.float32,
    "float16": np.float16,
    "int64": np.int64,
    "int32": np.int32,
    "int8": np.int8,
    "uint8": np.uint8,
}


def model(
    kind: str = "float",
    least: float = 3,
    most: float = 1,
    *,
    opset: int = 17,
    body: str = "y = Clip (x, least, most)",
) -> ir.Model:
    limits = {"least": least, "most": most}
    constants = [
        ir.tensor(np.array(number).astype(KINDS[kind]), name=name)
        for name, number in limits.items()
        if name in body
    ]
    text = f"""<ir_version: 8, opset_import: ["" : {opset}, "my" : 1]>
    m ({kind}[N] x, {kind} given) => ({kind}[N] y) {{ {body} }}"""
    return ir.from_onnx_text(text, initializers=constants)


def run(m: ir.Model, x: np.ndarray) -> np.ndarray:
    session = opened(m)
    return session.run(None, {"x": x, "given": np.zeros((), x.dtype)})[0]


def same(before: ir.Model, after: ir.Model, x: np.ndarray, least: int, most: int) -> None:
    """Both give what ONNX says; what a Clip makes of NaN is up to the processor, so only after."""
    wanted = np.minimum(np.maximum(x, x.dtype.type(least)), x.dtype.type(most))
    np.testing.assert_array_equal(run(after, x), wanted)
    numbers = x == x
    np.testing.assert_array_equal(run(before, x)[numbers], wanted[numbers])


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_every_number_is_kept(kind: str, data: st.DataObject) -> None:
    # Max, Min and Clip of ONNX Runtime 1.31.1 get int64 beyond 32 bits wrong on some processors.
    elements = st.integers(-(2**30), 2**30) if kind == "int64" else None
    x = data.draw(hnp.arrays(KINDS[kind], st.integers(0, 9), elements=elements))
    low, high = (0, 100) if kind == "uint8" else (-100, 100)
    least, most = (data.draw(st.integers(low, high)) for _ in range(2))
    before, after = (model(kind, least, most) for _ in range(2))
    assert graphfix.run(after, "clip-minmax").changed == (least > most)
    assert not graphfix.run(after, "clip-minmax").changed
    same(before, after, x, least, most)


@pytest.mark.parametrize("opset", [11, 12, 13, 17, 21])
@pytest.mark.parametrize("kind", ["float", "float16"])
def test_each_opset(kind: str, opset: int) -> None:
    before, after = (model(kind, 3, -2, opset=opset) for _ in range(2))
    if kind == "float16" and opset == 11:
        pytest.skip("the CPU has none")
    report = graphfix.run(after, "clip-minmax")
    assert len(report.passes[0].changes) == 1
    assert [x.op_type for x in after.graph] == ["Max", "Min"]
    x = np.array([-np.inf, -3, -2, 0, 3, 9, np.inf, np.nan], KINDS[kind])
    same(before, after, x, 3, -2)


LEFT = {
    "in order": (model("float", -2, 3), None),
    "equal": (model("float", 3, 3), None),
    "no max": (model(body="y = Clip (x, least)"), None),
    "no min": (model(body="y = Clip (x, , most)"), None),
    "a limit that is given": (model(body="y = Clip (x, given, most)"), None),
    "integers that Clip does not take yet": (model("int32", opset=11), None),
    "another domain's Clip": (model(body="y = my.Clip (x, least, most)"), None),
    "limits beyond 32 bits": (model("int64", 2**31, 0), "beyond 32 bits"),
}


@pytest.mark.parametrize("case", LEFT)
def test_left_alone(case: str) -> None:
    after, reason = LEFT[case]
    reasons = refusals(after, "clip-minmax")
    assert len(reasons) == (reason is not None)
    assert reason is None or reason in reasons[0]


def test_check_says_it_once_and_names_the_repair() -> None:
    told = [x for x in graphfix.check(model()) if x.severity == "error"]
    assert [(x.rule, x.fix) for x in told] == [("clip-minmax", "clip-minmax")]
    assert [x.severity for x in graphfix.check(model(), "clip-minmax")] == ["error"]
