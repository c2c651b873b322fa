"""turn-back: which Transposes around what computes row by row go, with equal numbers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import graphfix
from graphfix.facts.view import View
from graphfix.passes.common.rows import row_inputs_of
from graphfix.passes.fusions import turn_back
from tests.passes.models import execute, model, ops

THERE, BACK = "t = Transpose <perm = [1, 0, 2]> (x)", "y = Transpose <perm = [1, 0, 2]> (h)"
MORE = "float[P, Q, M] z"


def rows(body: str, out: str = "float[B, T, N] y") -> ir.Model:
    out += f", {MORE}" * ("z =" in body)
    body = body.replace("TURN", "Transpose <perm = [1, 0, 2]>")
    return model(
        f"""m (float[B, T, 4] x, float[4, 2] given, float[T, B, 4] late, int64[B, T] ids) => ({out})
        <float[4, 2] w = {{1, 2, 3, 4, 5, -6, 7, 8}}, float[2] b = {{1, -2}}, float s = {{0.5}},
         float[4] g = {{1, -2, 3, 4}},
         float[4, 4] q = {{1, 2, 0, 1, -3, 1, 2, 2, 1, 0, 0, 1, 2, -1, 2, 1}},
         float[5, 4] table = {{1, 2, 3, 4, 5, 6, 7, 8, 7, 6, 5, 4, 3, 2, 1, 0, 1, 2, 1, 2}},
         float[1, 2, 2] two = {{1, 2, 3, 4}}, float[2, 4] pair = {{1, 2, 3, 4, 5, 6, 7, 8}},
         float[2, 2] bias = {{1, 2, 3, 5}}, int64[2] parts = {{1, 3}}, int64[1] last = {{2}},
         int64[4] heads = {{0, 0, 2, 2}}, int64[3] merged = {{0, 0, 4}}, int64[1] first = {{0}},
         float[5, 2, 2] cube = {{1, 2, 3, 4, 5, 6, 7, 8, 7, 6, 5, 4, 3, 2, 1, 0, 1, 2, 1, 2}},
         int64[1] one = {{1}},
         int64[3] flat = {{0, -1, 2}}> {{ {body} }}""",
    )


def alike(
    body: str, *, batch: tuple[int, ...] = (2, 1, 0), out: str = "float[B, T, N] y"
) -> ir.Model:
    """What the pass makes of it, which computes the same."""
    before, after = rows(body, out), rows(body, out)
    assert graphfix.run(after, "turn-back").changed
    rng = np.random.default_rng(0)
    for size, time in zip(batch, (5, 1, 3), strict=False):
        feeds = {
            "x": rng.standard_normal((size, time, 4), np.float32),
            "given": np.ones((4, 2), np.float32),
            "late": rng.standard_normal((time, size, 4), np.float32),
            "ids": rng.integers(0, 5, (size, time)),
        }
        for a, b in zip(execute(after, feeds), execute(before, feeds), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert not graphfix.run(after, "turn-back").changed
    return after


NORM = """m = ReduceMean <keepdims = 1> (a, last) d = Sub (a, m) dd = Mul (d, d)
    v = ReduceMean <keepdims = 1> (dd, last) e = Add (v, s) f = Sqrt (e) n = Div (d, f)"""


@pytest.mark.parametrize(
    ("body", "kinds"),
    [
        (f"{THERE} h = MatMul (t, w) {BACK}", ["MatMul"]),
        (f"{THERE} p = MatMul (t, w) h = Add (p, b) {BACK}", ["MatMul", "Add"]),
        (f"{THERE} p = MatMul (t, w) h = Add (b, p) {BACK}", ["MatMul", "Add"]),
        (f"{THERE} q0 = Add (t, s) h = MatMul (q0, w) {BACK}", ["Add", "MatMul"]),
        (f"{THERE} h = MatMul (t, w) {BACK} z = Softmax <axis = 0> (t)",
         ["MatMul", "Softmax", "Transpose"]),
        (f"n = Neg (w) {THERE} h = MatMul (t, n) {BACK}", ["MatMul", "Neg"]),
        (f"{THERE} h = MatMul (t, given) {BACK}", ["MatMul"]),
        # A residual sum around a norm in pieces, and what is read in between by others as well.
        (f"{THERE} a = MatMul (t, q) {NORM} p = Mul (n, g) h = Add (p, t) {BACK}",
         ["Add", "Add", "Div", "MatMul", "Mul", "Mul", "ReduceMean", "ReduceMean", "Sqrt", "Sub"]),
        (f"{THERE} h = LayerNormalization (t, g) {BACK}", ["LayerNormalization"]),
        (f"{THERE} h = Softmax (t) {BACK}", ["Softmax"]),
        (f"{THERE} h = com.microsoft.SkipLayerNormalization <epsilon = 0.1> (t, t, g) {BACK}",
         ["SkipLayerNormalization"]),
        (f"{THERE} h = com.microsoft.FusedMatMul <alpha = 0.5> (t, w) {BACK}", ["FusedMatMul"]),
        (f"{THERE} r, h = Split <axis = 2> (t, parts) {BACK} "
         "z = Transpose <perm = [1, 0, 2]> (r)", ["Split"]),
        (f"{THERE} c = Concat <axis = -1> (t, t) h = Tanh (c) {BACK}", ["Concat", "Tanh"]),
        # Heads, and what is added to each.
        (f"{THERE} r = Reshape (t, heads) k = Add (r, bias) h = Reshape (k, merged) {BACK}",
         ["Add", "Reshape", "Reshape"]),
        # One that is read as it was has a Transpose of its own; more go than come.
        (f"{THERE} h = MatMul (t, w) {BACK} z = Softmax <axis = 0> (h)",
         ["MatMul", "Softmax", "Transpose"]),
        (f"{THERE} p = Add (t, late) h = MatMul (p, w) {BACK}", ["Add", "MatMul", "Transpose"]),
        # A table is turned when the model is loaded.
        (f"{THERE} p = MatMul (t, w) k = Add (p, two) h = Mul (k, s) {BACK}",
         ["Add", "MatMul", "Mul", "Transpose"]),
        (f"{THERE} p = Add (t, pair) k = Neg (pair) l = Sub (p, pair) h = Mul (l, k) {BACK}",
         ["Add", "Mul", "Neg", "Sub", *["Transpose"] * 3, *["Unsqueeze"] * 3]),
        # Ids with time first, and their embeddings.
        ("i = Transpose <perm = [1, 0]> (ids) e = Gather (table, i) h = MatMul (e, w) " + BACK,
         ["Gather", "MatMul"]),
        (f"{THERE} p = MatMul (t, w) h = Add (p, two) {BACK} z = Softmax <axis = 0> (t)",
         ["Add", "MatMul", "Softmax", "Transpose", "Transpose"]),
        # Two outputs, each with a name to keep.
        (f"{THERE} h = MatMul (t, w) {BACK} z = Transpose <perm = [1, 0, 2]> (h)",
         ["MatMul", "Transpose", "Transpose"]),
        # What reads the same rows and is turned comes along, and what is not does not.
        ("h = Relu (late) k = Neg (h) c = TURN (h) d = TURN (k) y = Sub (c, d) e = Tanh (late) "
         "z = Softmax <axis = 0> (e)", ["Neg", "Relu", "Softmax", "Sub", "Tanh", "Transpose"]),
        ("h = Relu (late) e = Tanh (late) c = TURN (h) d = TURN (e) y = Sub (c, d)",
         ["Relu", "Sub", "Tanh", "Transpose"]),
        # Rows of a table that is no row of ids itself.
        ("i = ReduceMax <keepdims = 0> (ids, one) e = Gather (cube, i) h = Relu (e) k = Tanh (e) "
         "c = TURN (h) d = TURN (k) y = Sub (c, d)",
         ["Gather", "ReduceMax", "Relu", "Sub", "Tanh", "Transpose"]),
        # Two Transposes that undo the first: the other takes what is turned, and they are two.
        (f"{THERE} h = MatMul (t, q) {BACK} k = Relu (h) z = Transpose <perm = [1, 0, 2]> (k)",
         ["MatMul", "Relu"]),
    ],
)  # fmt: skip
def test_what_cancels_goes(body: str, kinds: list[str]) -> None:
    batch = (2, 2, 2) if "two" in body or "pair" in body else (2, 1, 0)
    assert sorted(ops(alike(body, batch=batch))) == sorted(kinds)


@pytest.mark.parametrize(
    ("body", "made"),
    [
        (f'{THERE} p = MatMul (t, q) z = Einsum <equation = "ibd, jbd -> bij"> (p, late) '
         f"h = MatMul (p, w) {BACK}", "bid,jbd->bij"),
        (f'{THERE} h = Mul (t, t) z = Einsum <equation = "ibd,ibd"> (h, h) {BACK}', "bid,bid"),
        (f'{THERE} h = MatMul (t, q) k = Tanh (h) z = Einsum <equation = "ibd,jbd->bij"> (h, k) '
         f"{BACK}", "bid,bjd->bij"),
        (f'{THERE} h = MatMul (t, q) z = Einsum <equation = "ibd,jbd->bij"> (h, t) {BACK}',
         "bid,bjd->bij"),
    ],
)  # fmt: skip
def test_an_einsum_names_the_axes_in_another_order(body: str, made: str) -> None:
    after = alike(body, batch=(2, 1))
    (node,) = (x for x in after.graph if x.op_type == "Einsum")
    assert node.attributes["equation"].as_string() == made
    assert "Transpose" not in ops(after)


@pytest.mark.parametrize(
    "body",
    [
        f"{THERE} p = MatMul (t, w) h = Softmax <axis = 1> (p) {BACK}",
        f"{THERE} r = ReduceSum <keepdims = 1> (t, first) h = Relu (r) {BACK}",
        f"{THERE} h = Concat <axis = 0> (t, t) {BACK}",
        f"{THERE} h = Reshape (t, flat) {BACK}",  # rows of two times become one
        f"o = Neg (given) {THERE} p = MatMul (t, w) h = Add (p, o) {BACK}",  # a number for each row
        f"h = MatMul (x, w) {BACK}",
        f"t = Transpose <perm = [0, 2, 1]> (x) u = Transpose <perm = [0, 2, 1]> (t) {BACK}".replace(
            "(h)", "(u)"
        ),
        f"{THERE} h = com.microsoft.FusedMatMul <transA = 1> (t, w) {BACK}",
        f"w3 = Unsqueeze (t, first) {THERE} h = MatMul (t, w3) {BACK}".replace(
            "(t, first)", "(w, first)"
        ),
        # As many come as go.
        f"{THERE} h = Add (t, late) {BACK} z = Softmax <axis = 0> (h)",
        f'{THERE} h = Relu (t) z = Einsum <equation = "...d,...d->..."> (h, t) {BACK}',
        f"h = Relu (late) {BACK} z = Softmax <axis = 0> (h)",
        f"h = Relu (late) {BACK}",
        f'h = Relu (late) z = Einsum <equation = "...d,...d->..."> (h, h) {BACK}',
    ],
)
def test_what_does_not_cancel_stays(body: str) -> None:
    assert not graphfix.run(rows(body), "turn-back").changed


def test_a_reshape_turns_a_batch_of_1() -> None:
    """Between an attention, which takes [1, T, D], and products of [T, 1, D]."""
    before, after = (
        model(
            """m (float[1, T, 4] x) => (float[1, T, 2] y) <int64[3] there = {-1, 1, 4},
            float[4, 2] w = {1, 2, 3, 4, 5, -6, 7, 8}, int64[3] back = {1, -1, 2}> {
            t = Reshape (x, there) h = MatMul (t, w) y = Reshape (h, back) }"""
        )
        for _ in range(2)
    )
    assert graphfix.run(after, "turn-back").changed
    assert ops(after) == ["MatMul"]
    feeds = {"x": np.arange(12, dtype=np.float32).reshape(1, 3, 4)}
    np.testing.assert_allclose(execute(after, feeds)[0], execute(before, feeds)[0])


def test_what_a_constant_node_holds_is_turned_when_the_model_is_loaded() -> None:
    numbers = ", ".join(map(str, range(24)))
    before, after = (
        model(
            f"""m (float[2, 3, 4] x) => (float[2, 3, 2] y)
            <float[4, 2] w = {{1, 2, 3, 4, 5, -6, 7, 8}}> {{
            c = Constant <value = float[3, 2, 4] {{{numbers}}}> ()
            t = Transpose <perm = [1, 0, 2]> (x) s = Add (t, c) h = MatMul (s, w)
            y = Transpose <perm = [1, 0, 2]> (h) }}"""
        )
        for _ in range(2)
    )
    assert graphfix.run(after, "turn-back").changed
    assert ops(after) == ["Constant", "Transpose", "Add", "MatMul"]
    feeds = {"x": np.arange(24, dtype=np.float32).reshape(2, 3, 4)}
    np.testing.assert_allclose(execute(after, feeds)[0], execute(before, feeds)[0])


def test_a_reshape_that_mixes_rows_stays() -> None:
    m = model(
        """m (float[2, 3, 4] x) => (float[2, 3, 2] y) <int64[3] there = {3, 2, 4},
        float[4, 2] w = {1, 2, 3, 4, 5, -6, 7, 8}, int64[3] back = {2, 3, 2}> {
        t = Reshape (x, there) h = MatMul (t, w) y = Reshape (h, back) }"""
    )
    assert not graphfix.run(m, "turn-back").changed


@pytest.mark.parametrize(
    ("dims", "turns"),
    [
        # Only between an axis of 1 and another a Reshape is a Transpose.
        (("1", "3", "4"), True),
        (("3", "1", "4"), True),
        (("2", "3", "1"), False),
        (("3", "3", "4"), False),
    ],
)
def test_a_reshape_is_a_transpose_of_an_axis_of_1(dims: tuple[str, ...], turns: bool) -> None:
    a, b, c = dims
    node = model(
        f"""m (float[{a}, {b}, {c}] x) => (float[{b}, {a}, {c}] y)
        <int64[3] there = {{{b}, {a}, {c}}}> {{ y = Reshape (x, there) }}"""
    )
    assert turn_back._leading_perm(node.graph[0], View(node)) == ((1, 0) if turns else ())


def test_what_is_added_to_heads_comes_before_their_transpose() -> None:
    text = """m (float[B, T, 2, 4] x, float[B, 2, T, 4] k) =>
        (float[B, 2, T, 4] y, float[B, 2, T, 4] z)
        <float[2, 4] u = {1, 2, 3, 4, 5, 6, 7, 8}, float[2, 4] v = {8, 7, 6, 5, 4, 3, 2, 1}> {
        a = Add (x, u) y = Transpose <perm = [0, 2, 1, 3]> (a)
        b = Add (v, x) c = Transpose <perm = [0, 2, 1, 3]> (b) z = Mul (c, k) }"""
    before, after = model(text), model(text)
    assert graphfix.run(after, "turn-back").changed
    turned = [x for x in after.graph if x.op_type == "Transpose"]
    assert [x.inputs[0] is after.graph.inputs[0] for x in turned].count(True) == 1
    assert len(turned) == 3  # those of u and v are turned when the model is loaded
    rng = np.random.default_rng(0)
    sizes = {"x": (3, 5, 2, 4), "k": (3, 2, 5, 4)}
    feeds = {name: rng.standard_normal(size, np.float32) for name, size in sizes.items()}
    for a, b in zip(*(execute(m, feeds) for m in (after, before)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_softmax_of_all_axes_but_the_first_stays() -> None:
    text = f"""m (float[B, T, 4] x) => (float[B, T, 4] y) {{
        {THERE} h = Softmax <axis = 1> (t) {BACK} }}"""
    assert not graphfix.run(model(text, opset=12), "turn-back").changed
    assert not graphfix.run(model(text, opset=13), "turn-back").changed
    along_last = text.replace("axis = 1", "axis = 2")  # before opset 13, too, no row is mixed
    assert graphfix.run(model(along_last, opset=12), "turn-back").changed
    assert graphfix.run(model(along_last, opset=13), "turn-back").changed


def test_a_transpose_between_two_steps_stays_one() -> None:
    text = f"""m (float[N, N, 4] x) => (float[N, N, 4] y) {{
        {THERE} h = Relu (t) k = Transpose <perm = [1, 0, 2]> (h) p = Sub (h, k) r = Tanh (p)
        {BACK.replace("(h)", "(r)")} }}"""
    after = model(text)
    assert graphfix.run(after, "turn-back").changed
    assert sorted(ops(after)) == ["Relu", "Sub", "Tanh", "Transpose"]
    x = np.random.default_rng(0).standard_normal((3, 3, 4), np.float32)
    np.testing.assert_array_equal(*(execute(m, {"x": x})[0] for m in (after, model(text))))


def test_three_axes_read_in_between_are_turned_back() -> None:
    text = """m (float[A, B, C, 2] x) =>
        (float[A, B, C, 2] y, float[B, C, A, 2] z, float[B, C, A] e)
        <float[2, 2] w = {1, 2, 3, 4}> {
        t = Transpose <perm = [1, 2, 0, 3]> (x) h = MatMul (t, w) z = Softmax <axis = 0> (h)
        e = Einsum <equation = "bcad, bcad -> bca"> (h, z)
        y = Transpose <perm = [2, 0, 1, 3]> (h) }"""
    before, after = model(text), model(text)
    assert graphfix.run(after, "turn-back").changed
    (node,) = (x for x in after.graph if x.op_type == "Einsum")
    assert node.attributes["equation"].as_string() == "abcd,bcad->bca"
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 2), np.float32)
    for a, b in zip(*(execute(m, {"x": x}) for m in (after, before)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_three_axes_that_go_round_are_undone_by_those_that_go_on() -> None:
    text = """m (float[A, B, C, 2] x) => (float[A, B, C, 2] y) <float[2, 2] w = {1, 2, 3, 4}> {
        t = Transpose <perm = [1, 2, 0, 3]> (x) h = MatMul (t, w)
        y = Transpose <perm = [2, 0, 1, 3]> (h) }"""
    after = model(text)
    assert graphfix.run(after, "turn-back").changed
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 2), np.float32)
    np.testing.assert_allclose(*(execute(m, {"x": x})[0] for m in (after, model(text))), rtol=1e-5)
    assert not graphfix.run(
        model(text.replace("[2, 0, 1, 3]", "[1, 2, 0, 3]")), "turn-back"
    ).changed


def test_steps_that_spare_nothing_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = """t{0} = TURN (h{0}) s{0} = Softmax <axis = 0> (t{0}) u{0} = TURN (s{0})
        r{0} = Relu (u{0}) k{0} = Softmax <axis = 1> (r{0}) h{1} = Add (h{0}, k{0})"""
    body = (
        "h0 = Relu (x) " + " ".join(layer.format(i, i + 1) for i in range(20)) + " y = Tanh (h20)"
    )
    asked = list[ir.Node]()

    def counted(node: ir.Node, lead: int, view: View) -> tuple[int, ...] | None:
        asked.append(node)
        return row_inputs_of(node, lead, view)

    monkeypatch.setattr(turn_back, "row_inputs_of", counted)
    assert not graphfix.run(rows(body), "turn-back").changed
    assert len(asked) < 500  # of 120 nodes; 20 times as many if each Transpose asked


_TURN = "Transpose <perm = [1, 0, 2]> ({0})"
STEPS = (
    *(
        "Relu ({0})",
        "MatMul ({0}, q)",
        "Add ({0}, g)",
        "Sub ({0}, {1})",
        "Softmax <axis = 0> ({0})",
    ),
    *("LayerNormalization ({0}, g)", "Mul (pair, {0})", "CumSum ({0}, one)", "Max ({0}, late)"),
    *("Reshape ({0}, merged)", "Softmax ({0})"),
    *(_TURN,) * 4,
    *('Einsum <equation = "abc,bad->abd"> ({0}, {1})',) * 2,
)


@example([(_TURN, 0, 0), ("Mul (pair, {0})", 0, 0), ("Mul (pair, {0})", 0, 0), (_TURN, 0, 0)])
@given(
    st.lists(st.tuples(st.sampled_from(STEPS), *[st.integers(0, 20)] * 2), min_size=3, max_size=16)
)
def test_any_steps_compute_the_same_and_no_transpose_comes(
    drawn: list[tuple[str, int, int]],
) -> None:
    made, body = ["x"], ""
    for i, (step, *which) in enumerate(drawn):
        # Mostly one of the last, so that they form chains.
        a, b = (made[-1 - min(x % 4, len(made) - 1)] if x < 15 else "x" for x in which)
        body += f" v{i} = {step.format(a, b)}"
        made.append(f"v{i}")
    body += f" y = Identity ({made[-1]}) z = Identity ({made[len(made) // 2]})"
    before, after = rows(body), rows(body)
    graphfix.run(after, "turn-back")

    def turned(m: ir.Model) -> int:
        fixed = View(m).constant_values  # what is turned when the model is loaded
        return sum(x.op_type == "Transpose" and x.inputs[0] not in fixed for x in m.graph)

    assert turned(after) <= turned(before)
    rng = np.random.default_rng(0)
    sizes = {"x": (2, 2, 4), "given": (4, 2), "late": (2, 2, 4)}
    feeds = {name: rng.standard_normal(size, np.float32) for name, size in sizes.items()}
    feeds["ids"] = np.ones((2, 2), np.int64)
    for a, b in zip(*(execute(m, feeds) for m in (after, before)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
