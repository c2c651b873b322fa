"""if-where: two small branches, computed both; and what has to stay an If."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import graphfix
from graphfix import registry
from graphfix.core import Skip
from tests.passes.models import execute, ops

KINDS = {"float": np.float32, "float16": np.float16, "double": np.float64}
KINDS |= {"int64": np.int64, "int32": np.int32, "uint8": np.uint8}


def model(
    then: str,
    other: str,
    *,
    dims: str = "B, T",
    kind: str = "float",
    opset: int = 17,
    asked: str = "bool flag",
    more: str = "",
    before: str = "",
) -> ir.Model:
    """An If between two branches, each the text of nodes that end in ``u`` and ``v``."""
    text = f"""<ir_version: 8, opset_import: ["" : {opset}, "my" : 1]>
        m ({kind}[{dims}] x, {kind}[{dims}] z, {asked}) => ({kind}[{dims}] y)
        <{kind} two = {{2}}, int64[1] none = {{0}}, int64 first = {{0}}{more}> {{ {before}
            y = If (flag) <then_branch = t () => ({kind}[{dims}] u) {{ {then} }},
                else_branch = e () => ({kind}[{dims}] v) {{ {other} }}> }}"""
    return ir.from_onnx_text(text)


def run(m: ir.Model, **feeds: np.ndarray) -> list[np.ndarray]:
    return execute(m, feeds, optimized=False)


def repaired(m: ir.Model) -> ir.Model:
    after = m.clone()
    graphfix.run(after, "if-where")
    assert not graphfix.run(after, "if-where").changed
    return after


def why(m: ir.Model) -> str:
    """The one near miss; the model stays as it is."""
    after = m.clone()
    report = graphfix.run(after, "if-where")
    assert not report.changed
    assert ir.to_proto(after) == ir.to_proto(m)
    (found,) = registry.make("if-where").sites(m)
    assert isinstance(found, Skip)
    assert [reason for _, reason in report.passes[0].skips] == [found.reason]
    return found.reason


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30, deadline=None)
@given(data=st.data(), flag=st.booleans())
def test_every_element_is_that_of_the_branch_that_is_taken(
    kind: str, data: st.DataObject, *, flag: bool
) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=4))
    x, z = (data.draw(hnp.arrays(KINDS[kind], shape)) for _ in range(2))
    before = model("u = Identity (x)", "v = Sub (x, z)", kind=kind)
    after = repaired(before)
    assert sorted(ops(after)) == ["Sub", "Where"]
    feeds = {"x": x, "z": z, "flag": np.array(flag)}
    (got,), (want,) = run(after, **feeds), run(before, **feeds)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("flag", [True, False])
def test_what_the_other_branch_makes_of_it_is_not_seen(*, flag: bool) -> None:
    before = model("u = Identity (x)", "v = Div (x, z)")
    x = np.array([[1, -1, 0, np.nan, np.inf]], np.float32)
    feeds = {"x": x, "z": np.zeros_like(x), "flag": np.array(flag)}
    (got,), (want,) = run(repaired(before), **feeds), run(before, **feeds)
    np.testing.assert_array_equal(got, want)
    assert np.isfinite(got).any() == flag


@pytest.mark.parametrize(
    ("then", "other", "left"),
    [
        ("u = Identity (x)", "v = Identity (z)", ["Where"]),
        ("u = Identity (z)", "v = Mul (x, two)", ["Mul", "Where"]),
        ("w = Identity (x) u = Identity (w)", "v = Neg (z)", ["Neg", "Where"]),
        ("w = Neg (x) u = Identity (w)", "w2 = Identity (x) v = Identity (w2)", ["Neg", "Where"]),
        ("w = Identity (x) u = Add (w, z)", "a = Neg (z) v = Identity (a)",
         ["Add", "Identity", "Neg", "Where"]),
    ],
)  # fmt: skip
def test_small_branches(then: str, other: str, left: list[str]) -> None:
    before = model(then, other)
    if left == ["Add", "Identity", "Neg", "Where"]:
        assert "both branches would take" in why(before)
        return
    after = repaired(before)
    assert sorted(ops(after)) == left
    x, z = np.array([[1, 2]], np.float32), np.array([[3, 5]], np.float32)
    for flag in (True, False):
        feeds = {"x": x, "z": z, "flag": np.array(flag)}
        np.testing.assert_array_equal(run(after, **feeds)[0], run(before, **feeds)[0])


def test_constants_of_branches() -> None:
    before = ir.from_onnx_text("""<ir_version: 8, opset_import: ["" : 17]>
        m (float[T] x, bool flag) => (float[T] y) {
            k = If (flag) <then_branch = t () => (float u) <float u = {3}> {},
                else_branch = e () => (float v) { v = Constant <value_float = 5.0> () }>
            y = Mul (x, k) }""")
    after = repaired(before)
    assert sorted(ops(after)) == ["Constant", "Mul", "Where"]
    for flag, number in ((True, 6), (False, 10)):
        (got,) = run(after, x=np.array([2], np.float32), flag=np.array(flag))
        np.testing.assert_array_equal(got, [number])


@pytest.mark.parametrize("flag", [True, False])
def test_several_outputs_of_which_one_is_not_needed(*, flag: bool) -> None:
    before = ir.from_onnx_text("""<ir_version: 8, opset_import: ["" : 17]>
        m (float[T] x, float[S] z, bool flag) => (float[T] p, float[S] q, float[T] s) {
            p, unused, q, r = If (flag) <
                then_branch = t () => (float[T] a, float[S] b, float[S] c, float[T] d) {
                    a = Identity (x) b = Identity (z) c = Identity (z) d = Identity (x) },
                else_branch = e () => (float[T] a, float[S] b, float[S] c, float[T] d) {
                    a = Identity (x) b = Identity (z) c = Neg (z) d = Neg (x) }>
            s = Abs (r) }""")
    after = repaired(before)
    assert sorted(ops(after)) == ["Abs", "Neg", "Neg", "Where", "Where", "Where"]
    feeds = {"x": np.array([1, -2], np.float32), "z": np.array([3], np.float32)}
    for got, want in zip(
        run(after, **feeds, flag=np.array(flag)), run(before, **feeds, flag=np.array(flag)),
        strict=True,
    ):  # fmt: skip
        np.testing.assert_array_equal(got, want)


def test_one_in_another() -> None:
    inner = """u = If (other) <then_branch = tt () => (float[B, T] p) { p = Identity (z) },
        else_branch = ee () => (float[B, T] q) { q = Identity (x) }>"""
    before = model(inner, "v = Identity (z)", asked="bool flag, bool other")
    after = repaired(before)
    assert ops(after) == ["Where", "Where"]
    x, z = np.array([[1, 2]], np.float32), np.array([[3, 5]], np.float32)
    for flag in (True, False):
        for other in (True, False):
            feeds = {"x": x, "z": z, "flag": np.array(flag), "other": np.array(other)}
            np.testing.assert_array_equal(run(after, **feeds)[0], run(before, **feeds)[0])


def test_a_graph_of_fixed_sizes_may_compute_more_since_then_it_fuses() -> None:
    then, other = "a = Relu (x) u = Neg (a)", "b = Abs (x) v = Sqrt (b)"
    assert "both branches would take" in why(model(then, other))
    assert sorted(ops(repaired(model(then, other, dims="2, 3")))) == [
        "Abs", "Neg", "Relu", "Sqrt", "Where"
    ]  # fmt: skip
    many = " ".join(f"a{i + 1} = Neg (a{i})" for i in range(7))
    assert "both branches would take" in why(
        model(f"a0 = Relu (x) {many} u = Neg (a7)", other, dims="2, 3")
    )


def test_a_graph_with_a_loop_does_not_fuse_anyway() -> None:
    loop = """w = Loop (first, yes, x) <body = b (int64 i, bool c, float[2, 3] s)
        => (bool again, float[2, 3] out) { again = Identity (c) out = Relu (s) }>"""
    before = model("u = Relu (x)", "v = Abs (w)", dims="2, 3", more=", bool yes = {1}", before=loop)
    assert "both branches would take" in why(before)


@pytest.mark.parametrize(
    ("then", "given", "reason"),
    [
        ("u = Div (x, z)", {"kind": "int64"}, "its then branch divides integers"),
        ("u = Gather (x, first)", {}, "holds a Gather"),
        ("u = RandomNormalLike (x)", {}, "holds a RandomNormalLike"),
        ("u = my.Op (x)", {}, "holds an Op"),
        ("u = Reshape (x, none)", {}, "holds a Reshape"),
        ("k = NonZero (x) u = Cast <to = 1> (k)", {}, "holds a NonZero"),
        ("u = Add (x, w)", {"asked": "bool flag, float[S] w"}, "not seen to fit"),
        ("u = Identity (w)", {"asked": "bool flag, float[B, S] w"}, "shapes that are not seen"),
        ("u = Identity (w)", {"asked": "bool flag, float[1, T] w"}, "shapes that are not seen"),
        ("u = Identity (x)", {"asked": "bool[1, 1, 1] flag"}, "not seen to be a scalar"),
        ("u = Identity (x)", {"asked": "bool[N] flag"}, "not seen to be a scalar"),
        ("u = Identity (x)", {"opset": 8}, "opset 8 has no Where"),
        ("u = Identity (x)", {"kind": "bool"}, "of bool, which"),
        ("u = Identity (x)", {"kind": "int8"}, "of int8, which"),
    ],
)
def test_a_near_miss(then: str, given: dict[str, str], reason: str) -> None:
    before = model(then, "v = Identity (x)", **given)  # type: ignore[arg-type]
    if given.get("kind") == "bool":
        for value in before.graph.initializers.values():
            if value.name == "two":
                value.const_value = ir.tensor(np.array(True), name="two")
    assert reason in why(before)


def test_a_loop_in_a_branch() -> None:
    loop = """u = Loop (first, yes, x) <body = b (int64 i, bool c, float[B, T] s)
        => (bool again, float[B, T] out) { again = Identity (c) out = Relu (s) }>"""
    before = model(loop, "v = Identity (x)", more=", bool yes = {1}")
    assert "its then branch holds a Loop" in why(before)


def test_what_a_constant_decides_is_left_to_fold() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        m (float[T] x) => (float[T] y) <bool flag = {1}> {
            y = If (flag) <then_branch = t () => (float[T] u) { u = Identity (x) },
                else_branch = e () => (float[T] v) { v = Neg (x) }> }"""
    m = ir.from_onnx_text(text)
    assert not list(registry.make("if-where").sites(m))
    graphfix.run(m, "directml")
    assert ops(m) == ["Identity"]


def test_a_condition_of_one_element() -> None:
    before = model("u = Identity (x)", "v = Neg (x)", asked="bool[1] flag")
    after = repaired(before)
    feeds = {"x": np.ones((2, 1), np.float32), "z": np.ones((2, 1), np.float32)}
    (got,) = run(after, **feeds, flag=np.array([False]))
    np.testing.assert_array_equal(got, -feeds["x"])


def test_in_a_loop_and_in_a_function() -> None:
    inside = """p = If (flag) <then_branch = t () => (float[T] u) { u = Identity (s) },
        else_branch = e () => (float[T] v) { v = Neg (s) }>"""
    looped = ir.from_onnx_text(f"""<ir_version: 8, opset_import: ["" : 17]>
        m (float[T] x, bool flag, int64 n) => (float[T] y) <bool yes = {{1}}> {{
            y = Loop (n, yes, x) <body = b (int64 i, bool c, float[T] s)
                => (bool again, float[T] out) {{ again = Identity (c) {inside} out = Add (p, x) }}>
        }}""")
    after = repaired(looped)
    assert "If" not in ops(after)
    feeds = {"x": np.array([1, 2], np.float32), "flag": np.array(False), "n": np.array(3)}
    np.testing.assert_array_equal(run(after, **feeds)[0], run(looped, **feeds)[0])
    function = ir.from_onnx_text(f"""<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
        m (float[T] x, bool flag) => (float[T] y) {{ y = f.pick (x, flag) }}
        <domain: "f", opset_import: ["" : 17]> pick (s, flag) => (p) {{ {inside} }}""")
    assert "local function" in why(function)


def test_names_that_both_branches_have() -> None:
    before = ir.from_onnx_text("""<ir_version: 8, opset_import: ["" : 17]>
        m (float[T] x, bool flag) => (float[T] y, float[T] again) {
            y = If (flag) <then_branch = t () => (float[T] a) { a = Neg (x) },
                else_branch = e () => (float[T] a) { k = Identity (x) a = Identity (k) }>
            again = If (flag) <then_branch = t () => (float[T] a) { a = Identity (x) },
                else_branch = e () => (float[T] a) { a = Abs (x) }> }""")
    after = repaired(before)
    names = [x.name for node in after.graph for x in node.outputs]
    assert len(set(names)) == len(names)
    for flag in (True, False):
        feeds = {"x": np.array([1, -2], np.float32), "flag": np.array(flag)}
        for got, want in zip(run(after, **feeds), run(before, **feeds), strict=True):
            np.testing.assert_array_equal(got, want)
