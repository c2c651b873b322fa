"""slice-gate: which Splits are cut with Slices, which are left, and equal numbers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.facts.view import View
from graphfix.passes.defects.slice_gate import SliceGate
from tests.passes.models import execute, model, ops

HALVES = "a, b = Split <axis = 1> (x)"
GLU = "g = Sigmoid (b) y = Mul (a, g)"


def gate(body: str, more: str = "") -> ir.Model:
    return model(
        f"""m (float[B, 6, T] x) => (float[B, C, U] y{more})
        <int64[3] sizes = {{1, 2, 3}}, int64[3] even = {{2, 2, 2}}> {{ {body} }}""",
        opset=17,
    )


@pytest.mark.parametrize(
    "body",
    [
        f"{HALVES} {GLU}",
        f"{HALVES} g = Sigmoid (b) y = Mul (g, a)",
        f"{HALVES.replace('a, b', 'b, a')} {GLU}",
        f"{HALVES.replace('axis = 1', 'axis = -2')} {GLU}",
        f"{HALVES} {GLU.replace('y =', 'p =')} y = Add (p, b)",
        f"a, c, b = Split <axis = 1> (x, even) {GLU.replace('y =', 'p =')} y = Sub (c, p)",
        # one row is multiplied with three, so the parts may differ
        "a, c, b = Split <axis = 1> (x, sizes) g = Sigmoid (b) p = Mul (a, g) "
        "s = ReduceMax <axes = [1]> (c) y = Add (p, s)",
    ],
)
def test_parts_of_a_gate_are_slices(body: str) -> None:
    before, after = (gate(body) for _ in range(2))
    assert [x.severity for x in graphfix.check(before) if x.rule == "slice-gate"] == ["warning"]
    assert len(graphfix.run(after, "slice-gate").passes[0].changes) == 1
    assert not graphfix.run(after, "slice-gate").changed
    assert "Split" not in ops(after)
    for shape in ((2, 6, 5), (1, 6, 1), (0, 6, 2)):
        x = np.random.default_rng(0).standard_normal(shape, np.float32)
        (a,), (b,) = (execute(m, {"x": x}) for m in (before, after))
        np.testing.assert_array_equal(a, b)


def test_before_opset_10_a_slice_has_attributes() -> None:
    text = f"m (float[B, 6, T] x) => (float[B, C, U] y) {{ {HALVES} {GLU} }}"
    before, after = (model(text, opset=9) for _ in range(2))
    graphfix.run(after, "slice-gate")
    assert sorted(ops(after)) == ["Mul", "Sigmoid", "Slice", "Slice"]
    x = np.random.default_rng(0).standard_normal((2, 6, 5), np.float32)
    np.testing.assert_array_equal(*(execute(m, {"x": x})[0] for m in (before, after)))


def test_of_many_parts_each_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 200
    parts = ", ".join(f"p{i}" for i in range(count))
    sums = " ".join(f"s{i} = Add (s{i - 1}, p{i})" for i in range(1, count))
    m = model(
        f"m (float[B, {count}] x) => (float[B, 1] y) {{ {parts} = Split <axis = 1> (x) "
        f"s0 = Sigmoid (p0) {sums} y = Mul (s{count - 1}, p1) }}",
        opset=13,
    )
    asked = []
    uses = ir.Value.uses
    monkeypatch.setattr(ir.Value, "uses", lambda self: asked.append(self.name) or uses(self))
    assert SliceGate().match(m.graph[0], View(m)) is None
    assert len([x for x in asked if x and x.startswith("p")]) == count


def test_a_part_that_is_an_output_keeps_its_name() -> None:
    before, after = (gate(f"{HALVES} {GLU}", ", float[B, 3, T] b") for _ in range(2))
    assert graphfix.run(after, "slice-gate").changed
    x = np.random.default_rng(0).standard_normal((2, 6, 5), np.float32)
    for a, b in zip(execute(before, {"x": x}), execute(after, {"x": x}), strict=True):
        np.testing.assert_array_equal(a, b)


def test_with_sizes_that_are_fixed_it_is_an_error() -> None:
    fixed = gate(f"{HALVES} {GLU}")
    fixed.graph.inputs[0].shape = ir.Shape([1, 6, 4])
    found = [x for x in graphfix.check(fixed) if x.rule == "slice-gate"]
    assert [(x.severity, x.fix) for x in found] == [("error", "slice-gate")]


@pytest.mark.parametrize(
    "body",
    [
        f"{HALVES} t = Tanh (a) g = Sigmoid (b) y = Mul (t, g)",  # a WaveNet
        f"{HALVES} g = Sigmoid (b) s = Mul (b, g) y = Mul (a, s)",  # a Swish of one part
        f"{HALVES} g = Relu (b) y = Mul (a, g)",
        f"{HALVES} g = Sigmoid (b) y = Add (a, g)",
        f"a, b = Split <axis = 2> (x) {GLU}",  # how long it is, the input says
    ],
)
def test_others_stay(body: str) -> None:
    assert not graphfix.run(gate(body), "slice-gate").changed


@pytest.mark.parametrize(("turned", "is_cut"), [("a", False), ("b", True), ("c", True)])
def test_a_later_part_that_is_turned_is_a_slice(turned: str, is_cut: bool) -> None:
    table = "float[8, 8] t = {" + ", ".join(str(x / 64) for x in range(64)) + "}"
    text = f"""m (float[1, T, 96] x, int64[1, T] ids) => (float[1, T, 32] y, float[1, T, U] z)
        <{table}, int64[3] sizes = {{32, 32, 32}}> {{
        a, b, c = Split <axis = 2> (x, sizes) z = Concat <axis = 2> (a, b, c)
        y = com.microsoft.RotaryEmbedding <num_heads = 2> ({turned}, ids, t, t) }}"""
    before, after = (model(text, 17, ', "com.microsoft" : 1') for _ in range(2))
    findings = [x.message for x in graphfix.check(before) if x.rule == "slice-gate"]
    assert len(findings) == is_cut
    assert all(x.startswith("DirectML turns the first part of it") for x in findings)
    assert graphfix.run(after, "slice-gate").changed is is_cut
    assert ("Split" in ops(after)) is not is_cut
    feeds = {
        "x": np.random.default_rng(0).standard_normal((1, 3, 96)).astype(np.float32),
        "ids": np.array([[3, 4, 5]]),
    }
    for wanted, made in zip(execute(before, feeds), execute(after, feeds), strict=True):
        np.testing.assert_array_equal(made, wanted)
