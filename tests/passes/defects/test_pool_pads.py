"""pool-pads: which pools get pads for ceil_mode=1, what is left and why, equal numbers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import graphfix
from graphfix.core import Skip
from tests.passes.models import data, execute, model, ops


def pool(attributes: str, op: str = "MaxPool", *, opset: int = 17, rank: int = 1) -> ir.Model:
    dims, made = ", ".join("TUV"[:rank]), ", ".join("IJK"[:rank])
    return model(
        f"m (float[B, 4, {dims}] x) => (float[B, 4, {made}] y) "
        f"{{ y = {op} <{attributes}, ceil_mode = 1> (x) }}",
        opset,
    )


def check_same(before: ir.Model, after: ir.Model, *sizes: int) -> None:
    x = np.random.default_rng(0).standard_normal((2, 4, *sizes)).astype(np.float32)
    old, new = execute(before, {"x": x}), execute(after, {"x": x})
    for a, b in zip(old, new, strict=True):
        np.testing.assert_array_equal(a, b)


LOST = {
    "a pad as long as half of it": "kernel_shape = [2], strides = [2], pads = [1, 1]",
    "every other": "kernel_shape = [1], strides = [2]",
    "every fourth of three": "kernel_shape = [3], strides = [4], pads = [0, 1]",
    "whole windows": 'kernel_shape = [2], strides = [3], auto_pad = "VALID"',
}


@pytest.mark.parametrize(("op", "opset"), [("MaxPool", 17), ("AveragePool", 17), ("LpPool", 18)])
@pytest.mark.parametrize("case", LOST)
def test_pads(case: str, op: str, opset: int) -> None:
    before, after = (pool(LOST[case], op, opset=opset) for _ in range(2))
    assert [x.rule for x in graphfix.check(before) if x.severity == "error"] == ["pool-pads"]
    assert len(graphfix.run(after, "pool-pads").passes[0].changes) == 1
    assert "ceil_mode" not in after.graph[0].attributes
    assert not graphfix.run(after, "pool-pads").changed
    for size in range(4, 14):
        check_same(before, after, size)


COUNTED = {
    "segments": "kernel_shape = [4], strides = [4], count_include_pad = 1",
    "with pads": "kernel_shape = [4], strides = [3], pads = [2, 1], count_include_pad = 1",
    "whole windows": 'kernel_shape = [4], strides = [4], auto_pad = "VALID", count_include_pad = 1',
}


@pytest.mark.parametrize("opset", [19, 21, 23])
@pytest.mark.parametrize("case", COUNTED)
def test_averages_that_count_the_padding(case: str, opset: int) -> None:
    before, after = (pool(COUNTED[case], "AveragePool", opset=opset) for _ in range(2))
    found = graphfix.check(before, "pool-pads", ep="dml")
    assert [x.severity for x in found] == ["error" if opset < 22 else "note"]
    graphfix.run(after, "pool-pads")
    assert ops(after) == (["Pad"] if "pads = [2" in COUNTED[case] else []) + ["AveragePool"]
    assert set(after.graph[-1].attributes) == {"kernel_shape", "strides", "pads"}
    assert not graphfix.run(after, "pool-pads").changed
    for size in range(4, 14):
        check_same(before, after, size)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    "window", ["kernel_shape = [3], strides = [2]", "kernel_shape = [4], strides = [3]"]
)
def test_an_input_that_may_be_shorter_than_a_window(op: str, window: str) -> None:
    """Of one element the original makes nothing; ONNX Runtime would make a window with pads."""
    after = pool(window, op, opset=22)
    (skip,) = graphfix.run(after, "pool-pads").passes[0].skips
    assert skip[1].startswith("of fewer than 2 elements it has no window")
    for size in (2, 9):
        before, fixed = (pool(window, op, opset=22) for _ in range(2))
        fixed.graph.inputs[0].shape = ir.Shape(["B", 4, size])
        assert graphfix.run(fixed, "pool-pads").changed
        check_same(before, fixed, size)


def test_a_case_with_less_than_a_window_is_run() -> None:
    """Verification drops no case that the original runs."""
    before = pool("kernel_shape = [4], strides = [3]", opset=22)
    verdict = graphfix.verify(before, before.clone())
    assert any("T=1" in name for name in verdict.cases)
    assert not verdict.dropped


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_a_newer_opset_goes_down(op: str) -> None:
    usual = "kernel_shape = [3], strides = [2], pads = [1, 1], dilations = [1]"
    before, after = (pool(usual, op, opset=23) for _ in range(2))
    assert not graphfix.run(after, "opset-ceiling").changed
    graphfix.run(after, "directml")
    assert after.graph.opset_imports[""] == 21
    for size in range(4, 14):
        check_same(before, after, size)


SHORT = {
    "segments": "kernel_shape = [5], strides = [5]",
    "pads before": "kernel_shape = [5], strides = [5], pads = [1, 0]",
    "an overlap": "kernel_shape = [4], strides = [3], pads = [1, 0]",
}


@pytest.mark.parametrize(("op", "opset"), [("MaxPool", 17), ("AveragePool", 19), ("LpPool", 18)])
@pytest.mark.parametrize("case", SHORT)
def test_a_window_that_may_be_longer_than_the_input(case: str, op: str, opset: int) -> None:
    before, after = (pool(SHORT[case], op, opset=opset) for _ in range(2))
    (found,) = graphfix.check(before, "pool-pads", ep="dml")
    assert found.severity == "warning"
    assert "80070057" in found.message
    assert graphfix.run(after, "pool-pads").changed
    assert "ceil_mode" not in after.graph[0].attributes
    for size in range(1, 14):
        check_same(before, after, size)
    for size, changes in ((4, True), (5, False)):
        m = pool(SHORT["segments"], op, opset=opset)
        m.graph.inputs[0].shape = ir.Shape(["B", 4, size])
        assert graphfix.run(m, "pool-pads").changed == changes


@pytest.mark.parametrize("used", ["output", "inside", "not"])
def test_indices_are_those_of_the_same_windows(used: str) -> None:
    outputs = ", int64[B, 4, I] i" if used == "output" else ", int64[B, 4, I] j"
    text = f"""m (float[B, 4, T] x) => (float[B, 4, I] y{outputs if used != "not" else ""})
        {{ y, i = MaxPool <kernel_shape = [2], strides = [2], pads = [1, 1], ceil_mode = 1> (x)
           {"j = Neg (i)" if used == "inside" else ""} }}"""
    before, after = model(text, 17), model(text, 17)
    assert len(graphfix.run(after, "pool-pads").passes[0].changes) == 1
    assert not graphfix.run(after, "pool-pads").changed
    assert [x.name for x in after.graph.outputs] == [x.name for x in before.graph.outputs]
    for size in range(2, 9):
        check_same(before, after, size)


@pytest.mark.parametrize(
    "attributes",
    [
        "kernel_shape = [3], strides = [2], pads = [1, 1]",
        "kernel_shape = [3], pads = [0, 2]",
        "kernel_shape = [5]",
        'kernel_shape = [1], strides = [2], auto_pad = "SAME_UPPER"',
        "kernel_shape = [4], pads = [2, 1], count_include_pad = 1",
    ],
)
def test_what_is_right_is_left_alone(attributes: str) -> None:
    m = pool(attributes, "AveragePool")
    before = data(m)
    assert not graphfix.check(m, "pool-pads")
    assert not graphfix.run(m, "pool-pads").changed
    assert data(m) == before


@pytest.mark.parametrize(
    ("op", "more", "why"),
    [
        ("MaxPool", "dilations = [2]", "dilations"),
        ("AveragePool", "count_include_pad = 1", "windows start in it"),
    ],
)
def test_refused_with_the_reason(op: str, more: str, why: str) -> None:
    m = pool(f"{LOST['a pad as long as half of it']}, {more}", op, opset=19)
    check_refused(m, why)


def test_averages_that_count_are_left_alone_where_cpus_differ() -> None:
    m = pool(COUNTED["segments"], "AveragePool", opset=18)
    check_refused(m, "at opset 19 or up (ceil_mode=1: DirectML ends in 80070057")
    m.graph.inputs[0].shape = ir.Shape(["B", 4, 9])
    check_refused(m, "at opset 19 or up")


def check_refused(m: ir.Model, why: str) -> None:
    (found,) = graphfix.get_pass("pool-pads").sites(m)
    assert isinstance(found, Skip)
    assert why in found.reason


def test_what_the_cpu_pools_or_nobody_is_no_error() -> None:
    newer = pool(LOST["every other"], opset=22)
    constant = model(
        """m (float[N] x) => (float[1, 1, 2] y, float[N] z) <float[1, 1, 4] k = {1, 2, 3, 4}>
        { y = MaxPool <kernel_shape = [1], strides = [2], ceil_mode = 1> (k)  z = Neg (x) }""",
        17,
    )
    for m in (newer, constant):
        assert [x.severity for x in graphfix.check(m, "pool-pads", ep="dml")] == ["note"]


def test_parameters_of_a_function_are_not_known() -> None:
    m = model(
        """m (float[B, 4, T] x) => (float[B, 4, I] y) { y = own.half <s = [2]> (x) }
        <opset_import: ["" : 17], domain: "own"> half <s> (a) => (b)
        { b = MaxPool <kernel_shape = [2], ceil_mode = 1, strides: ints = @s> (a) }""",
        17,
        ', "own" : 1',
    )
    (found,) = graphfix.get_pass("pool-pads").sites(m)
    assert isinstance(found, Skip)
    assert "parameters of the local function" in found.reason


@settings(max_examples=60, deadline=None)
@given(drawn=st.data(), op=st.sampled_from(("MaxPool", "AveragePool")), counts=st.booleans())
def test_any_pool(drawn: st.DataObject, op: str, counts: bool) -> None:
    rank = drawn.draw(st.integers(1, 2))
    axes = [drawn.draw(st.tuples(*[st.integers(1, 5)] * 2)) for _ in range(rank)]
    pads = [drawn.draw(st.integers(0, k - 1)) for _ in range(2) for k, _ in axes]
    kernel, strides = ([x[i] for x in axes] for i in (0, 1))
    attributes = f"kernel_shape = {kernel}, strides = {strides}, pads = {pads}"
    if counts and op == "AveragePool":
        attributes += ", count_include_pad = 1"
    before, after = (pool(attributes, op, rank=rank, opset=22) for _ in range(2))
    sizes = [drawn.draw(st.integers(1, 12)) for _ in range(rank)]
    ends = zip(sizes, pads[:rank], pads[rank:], kernel, strides, strict=True)
    assume(all((n + a + b - k) // s >= -1 for n, a, b, k, s in ends))  # or it does not run
    if drawn.draw(st.booleans()):
        after.graph.inputs[0].shape = ir.Shape(["B", 4, *sizes])
    if not graphfix.run(after, "pool-pads").changed:
        assert max(kernel) > 2 or ("count" in attributes and any(pads))
        return
    check_same(before, after, *sizes)


@pytest.mark.parametrize(
    ("attributes", "opset", "severity"),
    [
        ("count_include_pad = 1", 18, "note"),  # CPUs differ, too
        ("count_include_pad = 1", 19, "error"),
        ("count_include_pad = 1", 22, "note"),  # the CPU pools
        ("pads = [1, 1]", 18, "note"),
    ],
)
def test_what_stays_wrong_is_an_error(attributes: str, opset: int, severity: str) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : {opset}]>
    pool (float[B, 3, T] x) => (float[B, 3, U] y)
    {{ y = AveragePool <kernel_shape = [3], strides = [2], ceil_mode = 1, {attributes}> (x) }}"""
    for finding in graphfix.check(ir.from_onnx_text(text), "pool-pads"):
        assert finding.severity == severity
        assert ("DirectML counts" in finding.message) == (severity == "error")
