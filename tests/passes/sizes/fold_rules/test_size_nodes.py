"""fold: the arithmetic of sizes with fewer nodes, at sizes of 0 and 1 too."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfix
from tests.passes.folding import fold
from tests.passes.models import execute, model, ops


def test_one_shape_for_equal_dims_of_different_tensors() -> None:
    after = fold(
        model("""m (float[B, T, 8] x, float[B, T] k) => (float[I, J] y, float[K, L] z)
            <int64 zero = {0}, int64 one = {1}, int64[1] axis = {0}> {
            s = Shape (x) b = Gather (s, zero) b1 = Unsqueeze (b, axis)
            r = Shape (k) t = Gather (r, one) t1 = Unsqueeze (t, axis)
            st = Concat <axis = 0> (b1, t1) y = ConstantOfShape (st)
            q = Shape (k) u = Gather (q, one) u1 = Unsqueeze (u, axis)
            c = Gather (q, zero) c1 = Unsqueeze (c, axis)
            su = Concat <axis = 0> (u1, c1) z = ConstantOfShape (su) }""")
    )
    assert sorted(ops(after)) == sorted(["ConstantOfShape"] * 2 + ["Shape"] * 3 + ["Concat"])


def test_no_shape_is_taken_between_a_convolution_and_its_activation() -> None:
    """DirectML computes both in one kernel, if nothing else reads what lies between."""
    after = model("""m (float[B, 1, T] x) => (float[B, 1, U] y, float[P, Q] z)
        <float[1, 1, 3] w = {1, 2, 3}, int64 zero = {0}, int64 two = {2}, int64[1] axis = {0}> {
        c = Conv (x, w) y = Relu (c)
        s = Shape (y) b = Gather (s, zero) b1 = Unsqueeze (b, axis)
        r = Shape (y) u = Gather (r, two) u1 = Unsqueeze (u, axis)
        shape = Concat <axis = 0> (b1, u1) z = ConstantOfShape (shape) }""")
    assert graphfix.run(after, "fold").changed
    read = {x.inputs[0].name for x in after.graph if x.op_type == "Shape"}
    assert "y" in read
    assert "c" not in read


@pytest.mark.parametrize("opset", [13, 14, 15, 18])
def test_sizes_at_every_opset(opset: int) -> None:
    longest = "<keepdims = 1, axes = [1]> (e)" if opset < 18 else "<keepdims = 1> (e, a)"
    after = fold(
        model(
            f"""m (float[B, T, 8] x, float[B, 1, U] k) => (float[B, 1, U] y)
            <int64 zero = {{0}}, int64 one = {{1}}, int64 two = {{2}}, int64[1] axis = {{0}}> {{
            s = Shape (x) b = Gather (s, zero) b1 = Unsqueeze (b, axis)
            r = Shape (k) u = Gather (r, two) u1 = Unsqueeze (u, axis)
            s2 = Shape (x) t = Gather (s2, one) t_less = Sub (t, one) t2 = Add (t_less, one)
            t3 = Unsqueeze (t2, axis)
            shape = Concat <axis = 0> (b1, t3, u1)
            e = Expand (k, shape) a = Identity (axis) y = ReduceMax {longest} }}""",
            opset=opset,
        )
    )
    assert len(ops(after)) <= (7 if opset >= 15 else 8)


@pytest.mark.parametrize("given", ["s", "s, s", "s, k, s", "k, s, one"])
@pytest.mark.parametrize("law", ["Max", "Min"])
def test_the_largest_of_any_number_of_sizes(law: str, given: str) -> None:
    """ONNX takes any number of tensors there, and one constant is known in whole."""
    fold(
        model(f"""m (float[B, T] x) => (float[P, Q] y, int64[2] z)
        <int64[2] k = {{2, 3}}, int64[2] one = {{4, 1}}> {{
            s = Shape (x) m = {law} ({given}) y = ConstantOfShape (m) z = {law} (k) }}""")
    )


@pytest.mark.parametrize(("opset", "asked"), [(14, {"k", "x"}), (18, {"i", "k"})])
def test_a_number_beside_a_size_is_a_constant(opset: int, asked: set[str]) -> None:
    """A Shape of scores would keep their attention from being fused; before opset 15 it is less."""
    after = fold(
        model(
            """m (float[B, T] i, float[B, 4] x, float[U] k) => (float[B, 4, U] y)
            <int64 zero = {0}, int64[1] axis = {0}, int64[1] heads = {4}> {
            s = Shape (x) b = Gather (s, zero) b1 = Unsqueeze (b, axis)
            u = Shape (k) sizes = Concat <axis = 0> (b1, heads, u) y = ConstantOfShape (sizes) }""",
            opset=opset,
        )
    )
    assert ops(after) == ["Shape", "Shape", "Concat", "ConstantOfShape"]
    assert {x.inputs[0].name for x in after.graph if x.op_type == "Shape"} == asked


def test_a_size_that_is_decided_only_where_it_is_not_zero() -> None:
    """``past == 0`` is False for every size that shape inference thinks of."""
    before = model("""m (float[P, 4] past) => (float[N, 4] y)
        <int64 zero = {0}, int64[1] axis = {0}, int64 one = {1}> {
        s = Shape <start = 0, end = 1> (past) p = Squeeze (s) none = Equal (p, zero)
        floor = Max (p, one)
        y = If (none) < then_branch = t () => (float[N, 4] a) {
                f1 = Unsqueeze (floor, axis) four = Constant <value_ints = [4]> ()
                sh = Concat <axis = 0> (f1, four) a = ConstantOfShape (sh) },
            else_branch = e () => (float[N, 4] b) { b = Neg (past) } > }""")
    after = fold(before, 0, 1, 3)
    assert "If" in ops(after)
    assert "Max" in ops(after)


def test_a_floor_division_at_size_zero() -> None:
    before = model("""m (float[T] x) => (float[N] y) <int64[1] one = {1}, int64[1] two = {2}> {
        s = Shape (x) a = Sub (s, one) h = Div (a, two) n = Add (h, one)
        s2 = Shape (x) a2 = Sub (s2, one) h2 = Div (a2, two) n2 = Add (h2, one)
        m1 = Max (n, n2) y = ConstantOfShape (m1) }""")
    after = fold(before, 0, 1, 2, 3)
    assert ops(after).count("Div") == 1


def test_a_size_that_is_an_output() -> None:
    after = fold(
        model("""m (float[B, T] x) => (int64[2] s, int64 t, float[I, J] y)
        <int64 one = {1}> { s = Shape (x) again = Shape (x) t = Gather (again, one)
          y = ConstantOfShape (again) }""")
    )
    assert ops(after).count("Shape") == 1


@pytest.mark.parametrize("more", ["", ", int64[1] same"])
def test_a_size_that_is_an_output_costs_nothing(more: str) -> None:
    """It was planned again without end: its nodes stay, so what took their place saved nothing."""
    after = fold(
        model(f"""m (float[B, T, 4] x) => (float[B, U, 4] y, int64[1] t{more})
        <int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] zero = {{0}}> {{
            turned = Transpose <perm = [0, 2, 1]> (x) back = Transpose <perm = [0, 2, 1]> (turned)
            s = Shape (back) t = Gather (s, one) same = Gather (s, one) half = Div (t, two)
            y = Slice (x, zero, half, one) }}""")
    )
    assert ops(after) == ["Shape", "Gather", *["Gather"] * bool(more), "Div", "Slice"]


def test_a_size_that_only_a_dead_node_reads_costs_nothing() -> None:
    after = fold(
        model("""m (float[B, T, 4] x) => (float[I, J] y)
        <int64[1] one = {1}, int64[1] two = {2}, int64[1] free = {-1}> {
            s = Shape (x) t = Gather (s, one) dead = Concat <axis = 0> (free, t)
            h = Concat <axis = 0> (two, t) y = ConstantOfShape (h) }""")
    )
    assert "Gather" in ops(after)


def test_a_long_chain_of_sizes_that_use_each_other_twice() -> None:
    """Each size is worked out from the two before it: tried one by one that takes for ever."""
    steps = " ".join(
        f"a{i} = Add (a{i - 1}, a{i - 2}) a{i}u = Unsqueeze (a{i}, axis)" for i in range(2, 40)
    )
    text = f"""m (float[B, T] x) => (float[N] y)
        <int64 zero = {{0}}, int64 one = {{1}}, int64[1] axis = {{0}}, int64[1] m = {{64}}> {{
        s = Shape (x) a0 = Gather (s, zero) r = Shape (x) a1 = Gather (r, one) {steps}
        k = Mod (a39u, m) y = ConstantOfShape (k) }}"""
    assert len(ops(fold(model(text)))) < 50


SIZE_STEPS = (
    "Shape <start = 0, end = 1> (x)",
    "Shape <start = -1> (x)",
    "Gather (whole, pick)",
    "Add ({0}, {1})",
    "Sub ({0}, {1})",
    "Mul ({0}, two)",
    "Div ({0}, two)",
    "Div ({0}, {1})",
    "Max ({0}, one)",
    "Min ({0}, {1})",
    "Mod ({0}, two)",
    "Cast <to = 7> ({0})",
    "Identity ({0})",
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(SIZE_STEPS), st.integers(0, 3), st.integers(0, 3)), max_size=10
    ),
    st.sampled_from([14, 18]),
)
def test_any_size_arithmetic_keeps_every_number(
    steps: list[tuple[str, int, int]], opset: int
) -> None:
    """Of a tensor [B, T], at sizes of which one or both are 0."""
    names = ["b", "t"]
    lines = ["whole = Shape (x)", "b = Gather (whole, pick0)", "t = Gather (whole, pick)"]
    for i, (step, first, second) in enumerate(steps):
        if "<start" in step and opset < 15:
            continue
        if "Div" in step and "{1}" in step:
            lines.append(f"d{i} = Max ({names[-1 - second % len(names)]}, one)")
            lines.append(f"v{i} = Div ({names[-1 - first % len(names)]}, d{i})")
        else:
            args = [names[-1 - k % len(names)] for k in (first, second)]
            lines.append(f"v{i} = {step.format(*args)}")
        names.append(f"v{i}")
    joined = ", ".join(names)
    before = model(
        f"""m (float[B, T] x) => (float[N] y)
        <int64[1] pick0 = {{0}}, int64[1] pick = {{1}}, int64[1] one = {{1}}, int64[1] two = {{2}}>
        {{ {" ".join(lines)} all = Concat <axis = 0> ({joined}) y = Cast <to = 1> (all) }}""",
        opset=opset,
    )
    after = fold(before, 4)
    for shape in ((0, 3), (3, 0), (0, 0), (1, 1), (5, 2)):
        feeds = {"x": np.zeros(shape, np.float32)}
        np.testing.assert_array_equal(execute(before, feeds)[0], execute(after, feeds)[0])


def test_a_division_by_a_size_that_may_be_0() -> None:
    """What fills half the heads of grouped attention: T // S, of which S may be 0."""
    m = model("""g (float[T, 4] x, float[S, 4] w) => (float[U, 4] y)
        <int64[1] zero = {0}, int64[1] one = {1}, int64[1] four = {4}> {
        t = Shape <start = 0, end = 1> (x) s = Shape <start = 0, end = 1> (w)
        q = Div (t, s) r = Mod (t, s) e = Equal (q, one) n = Equal (r, zero)
        b = And (e, n) i = Cast <to = 7> (b) u = Max (i, one) z = Concat <axis = 0> (u, four)
        first = Slice (x, zero, one, zero) y = Expand (first, z) }""")
    fold(m, 1, 3)


def test_a_size_that_is_asked_for_zero_by_a_cast() -> None:
    after = fold(
        model("""m (float[P, 4] past) => (float[N, 4] y) <int64 zero = {0}> {
            s = Shape (past) p = Gather (s, zero) some = Cast <to = 9> (p)
            y = If (some) < then_branch = t () => (float[N, 4] a) { a = Neg (past) },
                else_branch = e () => (float[N, 4] b) { b = Constant <value = float[1, 4]
                    {0, 1, 2, 3}> () } > }"""),
        0,
        1,
        3,
    )
    assert "If" in ops(after)


@pytest.mark.parametrize(
    ("end", "stays"), [("Add (t, p)", True), ("Mul (t, p)", True), ("Add (t, two)", False)]
)
def test_a_table_that_is_longer_than_what_is_taken_of_it(end: str, stays: bool) -> None:
    """Two sizes together are at least 2 only where none of them is 0."""
    before = model(f"""m (float[T, 4] x, float[P, 4] past) => (int64[N] y)
        <int64[2] table = {{7, 8}}, int64[1] zero = {{0}}, int64[1] two = {{2}}> {{
        t = Shape <start = 0, end = 1> (x) p = Shape <start = 0, end = 1> (past)
        end = {end} cut = Slice (table, zero, end, zero) y = Neg (cut) }}""")
    after = fold(before, 0, 1, 2)
    assert ("Slice" in ops(after)) == stays
    for t, p in ((1, 0), (0, 1), (1, 1)):
        feeds = {"x": np.zeros((t, 4), np.float32), "past": np.zeros((p, 4), np.float32)}
        np.testing.assert_array_equal(execute(after, feeds)[0], execute(before, feeds)[0])
