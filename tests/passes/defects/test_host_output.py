"""host-output: which outputs may be empty on the device, and that they are given back alike."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from tests.passes.models import data, execute, model, ops

NUMBERS = """<int64 zero = {0}, int64 one = {1}, int64 four = {4}, int64[1] i0 = {0},
    int64[1] i1 = {1}, int64[1] i2 = {2}, int64[1] far = {9223372036854775807},
    int64[2] none = {0, 4}, int64[2] rows = {-1, 4}, int64[1] flat = {-1},
    float[1] tiny = {1}, float tenth = {0.1}, float[4, 4, 3] k = {CUBE}>""".replace(
    "CUBE", ", ".join(["0.5"] * 48)
)
COUNT = "all = Shape (x) t = Slice (all, i1, i2, i0)"
WRAPPED, LOOPED = ["Optional", "OptionalGetElement"], ["Loop", "Identity", "Identity"]


def given(body: str, outputs: str, opset: int = 17, more: str = "") -> ir.Model:
    text = f"m (float[B, T, 4] x{more}) => ({outputs}) {NUMBERS} {{ y = Relu (x) {body} }}"
    made = model(text, opset)
    for value in [x for x in made.graph.initializers.values() if not x.uses()]:
        del made.graph.initializers[value.name]
    return made


Y, Z = "float[B, T, 4] y", "float[P, Q, R] z"
MAY_BE = {
    "nothing is found": ("z = NonZero (y)", f"{Y}, int64[3, N] z"),
    "durations": (
        """total = ReduceSum <keepdims = 0> (y) n = Cast <to = 7> (total)
        r = Range (zero, n, one) z = Neg (r)""",
        f"{Y}, int64[N] z",
    ),
    "frames that are left over": (
        f"""{COUNT} whole = Div (t, four) start = Mul (whole, four)
        z = Slice (y, start, far, i1)""",
        f"{Y}, {Z}",
    ),
    "cut where a number says": (
        """total = ReduceSum (y) whole = Cast <to = 7> (total) n = Reshape (whole, flat)
        z = Slice (y, i0, n, i1)""",
        f"{Y}, {Z}",
    ),
    "of as many dims as the numbers say": (
        """n = NonZero (y) row = Gather (n, one) some = Slice (row, i0, i2, i0)
        e = ConstantOfShape (some) z = Neg (e)""",
        f"{Y}, float[] z",
    ),
    "the first": ("z = NonZero (y)", f"int64[3, N] z, {Y}"),
    "the second of a branch": (
        """w, z = If (cached) <
            then_branch = t () => (float[B, T, 4] v, float[C, 4] a)
                { v = Neg (y) a = ConstantOfShape (none) },
            else_branch = e () => (float[B, T, 4] u, float[D, 4] b)
                { u = Abs (y) b = Reshape (y, rows) }>""",
        f"{Y}, float[B, T, 4] w, float[N, 4] z",
    ),
    "nothing is found in a branch": (
        """z = If (cached) <
            then_branch = t () => (int64[3, M] a) { a = NonZero (y) },
            else_branch = e () => (int64[3, K] b) { v = Neg (y) b = NonZero (v) }>""",
        f"{Y}, int64[3, N] z",
    ),
    "durations in a branch": (
        """total = ReduceSum <keepdims = 0> (y) n = Cast <to = 7> (total) z = If (cached) <
            then_branch = t () => (int64[M] a) { r = Range (zero, n, one) a = Neg (r) },
            else_branch = e () => (int64[K] b) { b = Neg (flat) }>""",
        f"{Y}, int64[N] z",
    ),
    "what was found outside of a branch": (
        """w = NonZero (y) z = If (cached) <
            then_branch = t () => (int64[3, M] a) { a = Identity (w) },
            else_branch = e () => (int64[3, K] b) { b = Neg (w) }>""",
        f"{Y}, int64[3, N] z",
    ),
    "made smaller by a number": (
        """top = ReduceMax (y) g = Sigmoid (top) s = Min (g, tenth) n = Reshape (s, i1)
        scales = Concat <axis = 0> (tiny, n, tiny) z = Resize <mode = "nearest"> (y, , scales)""",
        f"{Y}, {Z}",
    ),
    "a branch of a decoder": (
        """z = If (cached) <
            then_branch = t () => (float[C, 4] a) { a = ConstantOfShape (none) },
            else_branch = e () => (float[D, 4] b) { b = Reshape (y, rows) }>""",
        f"{Y}, float[N, 4] z",
    ),
}


def feeds(size: int, seed: int = 0) -> dict[str, np.ndarray]:
    x = np.random.default_rng(seed).uniform(-1, 1, (1, size, 4)).astype(np.float32)
    return {"x": -np.abs(x) if seed else x, "cached": np.array(bool(seed))}


@pytest.mark.parametrize(("opset", "through"), [(17, WRAPPED), (15, WRAPPED), (14, LOOPED)])
@pytest.mark.parametrize("case", MAY_BE)
def test_leaves_the_device_by_itself(case: str, opset: int, through: list[str]) -> None:
    more = ", bool cached" if "If (" in MAY_BE[case][0] else ""
    before, after = (given(*MAY_BE[case], opset, more) for _ in range(2))
    found = [(x.rule, x.severity, x.fix) for x in graphfix.check(before, "host-output")]
    assert found == [("host-output", "warning", "host-output")]
    report = graphfix.run(after, "host-output").passes[0]
    assert [x.tensor for x in report.changes] == ["z"]
    assert sorted(ops(after)) == sorted([*ops(before), *through])
    assert [(x.name, x.dtype) for x in after.graph.outputs] == [
        (x.name, x.dtype) for x in before.graph.outputs
    ]
    assert not graphfix.check(after, "host-output")
    assert not graphfix.run(after, "host-output").changed
    for feed in (feeds(8), feeds(7), feeds(3, 1)):
        for old, new in zip(execute(before, feed), execute(after, feed), strict=True):
            assert (old.dtype, old.shape) == (new.dtype, new.shape)
            np.testing.assert_array_equal(old, new)


LEFT = {
    "the only output": ("z = NonZero (y)", "int64[3, N] z"),
    "as long as the input": ("z = Neg (y)", f"{Y}, {Z}"),
    "frames of windows, none below one window": (
        "a = Transpose <perm = [0, 2, 1]> (y) z = Conv (a, k)",
        f"{Y}, {Z}",
    ),
    "made on the CPU": ("z, w, u, v = Unique (y)", f"{Y}, float[N] z"),
    "made on the CPU beside two of the device": (
        "c = Neg (y) z, w, u, v = Unique (y)",
        f"{Y}, float[B, T, 4] c, float[N] z",
    ),
    "the others are made on the CPU": (
        "z = NonZero (y) c, w, u, v = Unique (y)",
        "float[N] c, int64[3, M] z",
    ),
    "an input": ("", f"{Y}, float[B, T, 4] x"),
    # ONNX Runtime 1.24 loads no Optional of a constant, and one was seen to spoil nothing.
    "none, ever": ("e = ConstantOfShape (none) z = Sin (e)", f"{Y}, float[P, Q] z"),
    "of constants alone": ("z = Slice (k, i0, i0)", f"{Y}, {Z}"),
    "as long as one of two inputs is": ("z = Add (y, other)", f"{Y}, {Z}"),
    "cut by the size of another input": (
        "o = Shape (other) n = Slice (o, i1, i2, i0) z = Slice (y, i0, n, i1)",
        f"{Y}, {Z}",
    ),
    "behind the size of another input": (
        "o = Shape (other) n = Slice (o, i1, i2, i0) z = Slice (y, n, far, i1)",
        f"{Y}, {Z}",
    ),
    "of a size that inference does not know": (
        """s = Shape (x) f = Cast <to = 1> (s) r = Sqrt (f) n = Cast <to = 7> (r)
        e = Expand (tiny, n) z = Neg (e)""",
        f"{Y}, {Z}",
    ),
    "branches that are never empty": (
        """z = If (cached) <
            then_branch = t () => (float[B, T, 4] a) { a = Neg (y) },
            else_branch = e () => (float[B, T, 4] b) { b = Abs (y) }>""",
        f"{Y}, {Z}",
    ),
}


@pytest.mark.parametrize("case", LEFT)
def test_left_alone(case: str) -> None:
    body = LEFT[case][0]
    more = (
        ", bool cached" if "If (" in body else ", float[B, S, 4] other" if "other" in body else ""
    )
    after = given(*LEFT[case], more=more)
    before = data(after)
    assert not graphfix.check(after, "host-output")
    assert not graphfix.run(after, "host-output").changed
    assert data(after) == before


@pytest.mark.parametrize("opset", [13, 17])
def test_an_output_that_is_named_twice(opset: int) -> None:
    before, after = (
        given("z = NonZero (y)", f"{Y}, int64[3, N] z, int64[3, N] z", opset) for _ in "12"
    )
    assert graphfix.run(after, "host-output").changed
    assert [x.name for x in after.graph.outputs] == ["y", "z", "z"]
    assert not graphfix.run(after, "host-output").changed
    for old, new in zip(execute(before, feeds(7)), execute(after, feeds(7)), strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_local_function_is_looked_into() -> None:
    text = f"""m (float[B, T, 4] x) => ({Y}, int64[3, N] z) {{ y = Relu (x) z = own.find (y) }}
        <opset_import: ["" : 17], domain: "own"> find (a) => (b) {{ b = NonZero (a) }}"""
    before, after = (model(text, 17, ', "own" : 1') for _ in "12")
    assert [x.rule for x in graphfix.check(before, "host-output")] == ["host-output"]
    assert [x.tensor for x in graphfix.run(after, "host-output").passes[0].changes] == ["z"]
    assert "find" in ops(after)  # it stays one
    assert not graphfix.run(after, "host-output").changed
    for old, new in zip(execute(before, feeds(7)), execute(after, feeds(7)), strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_local_function_of_another_opset_is_not() -> None:
    """onnx-ir puts none in place that is written for another one."""
    text = f"""m (float[B, T, 4] x) => ({Y}, int64[3, N] z) {{ y = Relu (x) z = own.find (y) }}
        <opset_import: ["" : 13], domain: "own"> find (a) => (b) {{ b = NonZero (a) }}"""
    assert not graphfix.check(model(text, 17, ', "own" : 1'), "host-output")


def test_the_profile_has_it() -> None:
    after = given(*MAY_BE["durations"])
    graphfix.run(after, "directml")
    assert after.graph.outputs[1].producer().op_type == "OptionalGetElement"
    assert not graphfix.run(after, "directml").changed
