"""fold: what goes, what stays, and that no number changes, at sizes of 0 and 1 too."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfix
from graphfix.job import planning
from tests.passes.folding import fold
from tests.passes.models import data, execute, model, ops

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

HEAD = "m (float[B, T, 8] x) => (float[P, Q, R] y)"
INTS = """<int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[2] ends = {0, 3},
    int64[1] last = {-1}, int64[1] far = {9223372036854775807}, int64 first = {0},
    int64 second = {1}, float half = {0.5}, float unit = {1.0}>"""


@pytest.mark.parametrize(
    ("nodes", "left"),
    [
        ("a = Identity (x) y = Relu (a)", ["Relu"]),
        (
            "a = Transpose <perm = [0, 2, 1]> (x) b = Transpose <perm = [0, 2, 1]> (a)"
            " y = Relu (b)",
            ["Relu"],
        ),
        (
            "a = Transpose <perm = [0, 2, 1]> (x) y = Transpose <perm = [2, 0, 1]> (a)",
            ["Transpose"],
        ),
        ("a = Transpose <perm = [0, 1, 2]> (x) y = Relu (a)", ["Relu"]),
        # Dims of 1 go in after a Transpose, and out before it, as FSMN-VAD has them.
        ("a = Unsqueeze (x, one) b = Transpose <perm = [0, 2, 3, 1]> (a) y = Relu (b)",
         ["Unsqueeze", "Relu"]),
        ("a = Unsqueeze (x, one) b = Transpose <perm = [0, 3, 2, 1]> (a) y = Relu (b)",
         ["Transpose", "Unsqueeze", "Relu"]),
        ("a = Unsqueeze (x, one) b = Transpose <perm = [0, 3, 2, 1]> (a) c = Relu (b)"
         " d = Transpose <perm = [0, 3, 2, 1]> (c) y = Squeeze (d, one)",
         ["Unsqueeze", "Relu", "Squeeze"]),
        ("a = Unsqueeze (x, one) b = Relu (a) c = Transpose <perm = [1, 0, 2, 3]> (b)"
         " y = Squeeze (c, zero)", ["Unsqueeze", "Relu", "Squeeze"]),
        ("a = Unsqueeze (x, one) b = Squeeze (a, one) y = Relu (b)", ["Relu"]),
        ("a = Cast <to = 11> (x) b = Cast <to = 1> (a) y = Relu (b)", ["Relu"]),
        ("a = Cast <to = 1> (x) y = Relu (a)", ["Relu"]),
        ("a = Slice (x, zero, far, one) y = Relu (a)", ["Relu"]),
        ("a = Mul (x, unit) b = Div (a, unit) y = Relu (b)", ["Relu"]),
        ("s = Shape (x) a = Expand (x, s) y = Relu (a)", ["Relu"]),
        ("s = Shape (x) h = Expand (half, s) y = Mul (x, h)", ["Mul"]),
        ("a = Concat <axis = 1> (x) y = Relu (a)", ["Relu"]),
        ("r = Slice (x, far, far, two) a = Concat <axis = 2> (x, r) y = Relu (a)", ["Relu"]),
        ("n = Neg (x) r = Slice (x, far, far, two) a = Concat <axis = -1> (x, r, n) y = Relu (a)",
         ["Neg", "Concat", "Relu"]),
        ("a = Relu (x) b = Relu (x) y = Add (a, b)", ["Relu", "Add"]),
        ("a, b = Split <axis = 2, num_outputs = 2> (x) c, d = Split <axis = 2, num_outputs = 2> (x)"
         " e = Add (a, d) f = Add (c, b) y = Sub (e, f)", ["Split", "Add", "Sub"]),
    ],
)  # fmt: skip
def test_chains(nodes: str, left: list[str]) -> None:
    assert ops(fold(model(f"{HEAD} {INTS} {{ {nodes} }}"))) == left


@pytest.mark.parametrize(
    "nodes",
    [
        # float holds not all that double does, int64 not all that float does
        "a = Cast <to = 10> (x) b = Cast <to = 1> (a) y = Relu (b)",
        "a = Cast <to = 7> (x) b = Cast <to = 1> (a) y = Relu (b)",
        "a = Transpose <perm = [0, 2, 1]> (x) b = Relu (a) y = Transpose <perm = [2, 0, 1]> (b)",
        "a = Slice (x, zero, last, one) y = Relu (a)",
        "a = Slice (x, zero, two, two) b = Slice (a, zero, one, two) y = Relu (b)",
        "a = Mul (x, half) y = Relu (a)",
        "a = Unsqueeze (x, one) b = Transpose <perm = [2, 1, 0, 3]> (a) y = Relu (b)",
        # Something else reads it with its dims of 1.
        "a = Unsqueeze (x, one) b = Transpose <perm = [0, 3, 2, 1]> (a) c = ReduceMax (a)"
        " y = Add (b, c)",
        "a = Relu (x) y = Neg (x)",
        "y = Identity (x)",
    ],
)
def test_what_is_left_alone(nodes: str) -> None:
    before = model(f"{HEAD} {INTS} {{ {nodes} }}")
    assert data(fold(before)) == data(before)


TURNED = """m (float[B, T, 8] x, float[B, T] r, float[T, B] s) => (float[P, Q, R] y)
    <int64[1] zero = {0}, int64[1] two = {2}, float half = {0.5},
     float[8] list = {1, 2, 3, 4, 5, 6, 7, 8}, int64 three = {3}, float[1, 1, 1] zeros = {0}>"""


@pytest.mark.parametrize(
    ("nodes", "left"),
    [
        ("a = Transpose <perm = [1, 2, 0]> (x) b = Relu (a) y = Transpose <perm = [2, 0, 1]> (b)",
         ["Relu"]),
        ("a = Transpose <perm = [2, 1, 0]> (x) b = Transpose <perm = [1, 0]> (r)"
         " c = Unsqueeze (b, zero) d = Mul (half, c) e = Add (d, a)"
         " y = Transpose <perm = [2, 1, 0]> (e)", ["Unsqueeze", "Mul", "Add"]),
        # Something else reads what would be turned, or it takes another Transpose.
        ("a = Transpose <perm = [1, 2, 0]> (x) b = Relu (a) c = Transpose <perm = [2, 0, 1]> (b)"
         " d = ReduceMax (b) y = Add (c, d)", None),
        ("a = Transpose <perm = [2, 1, 0]> (x) b = Unsqueeze (s, zero) c = Add (a, b)"
         " y = Transpose <perm = [2, 1, 0]> (c)", ["Transpose", "Add", "Transpose"]),
        ("a = Transpose <perm = [1, 0, 2]> (x) b = Mul (a, list)"
         " y = Transpose <perm = [1, 0, 2]> (b)", None),
        ('y = Einsum <equation = "b t f -> tfb"> (x)', ["Transpose"]),
        ('a = Einsum <equation = "btf->ftb"> (x) b = Neg (a)'
         ' y = Einsum <equation = "abc->cba"> (b)', ["Neg"]),
        # A loop would do in each turn what is done once.
        ("a = Transpose <perm = [1, 2, 0]> (x) b = Relu (a) y = Loop (three, , zeros)"
         " < body = g (int64 i, bool go, float[P, Q, R] sum) => (bool on, float[P, Q, R] more)"
         " { on = Identity (go) c = Transpose <perm = [2, 0, 1]> (b) more = Add (sum, c) }>", None),
        ('y = Einsum <equation = "btf->bt"> (x)', None),
        ('a = Unsqueeze (r, two) y = Einsum <equation = "...f->f..."> (a)', None),
    ],
)  # fmt: skip
def test_transposes_that_need_not_be(nodes: str, left: list[str] | None) -> None:
    before = model(f"{TURNED} {{ {nodes} }}")
    assert ops(fold(before, 1, 2, 5)) == (left or ops(before))


def test_slices_before_opset_10_are_joined() -> None:
    after = fold(
        model(
            """m (float[4, 6] x) => (float[2, 3] y) {
            q = Slice <starts = [-5], ends = [4], axes = [1]> (x)
            y = Slice <starts = [0], ends = [2]> (q) }""",
            opset=9,
        )
    )
    assert ops(after) == ["Slice"]


CHOICE = "s = Softplus ({}) b = Greater ({}, {}) y = Where (b, {}, s)"


@pytest.mark.parametrize("limit", ["20.0", "15.0"])
def test_from_fifteen_on_a_number_is_its_softplus(limit: str) -> None:
    before = model(f"""m (float[B, 3] x) => (float[B, 3] y) {{
        t = Constant <value_float = {limit}> () {CHOICE.format("x", "x", "t", "x")} }}""")
    after = fold(before)
    assert ops(after) == ["Softplus"]
    x = np.array([[-50, -3, 14.99], [15, 16.6, 20], [20.1, 6e4, 3e38]], np.float32)
    np.testing.assert_array_equal(*(execute(m, {"x": x})[0] for m in (before, after)))


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (("x", "x", "low", "x"), "float"),
        (("x", "x", "h", "x"), "float"),
        (("h", "x", "t", "x"), "float"),
        (("x", "h", "t", "x"), "float"),
        (("x", "x", "t", "h"), "float"),
        (("x", "x", "row", "x"), "float"),
        (("x", "x", "half", "x"), "float16"),
    ],
)
def test_another_choice_is_one(given: tuple[str, ...], kind: str) -> None:
    """In float16 the CPU has a logarithm in pieces for a Softplus, which overflows."""
    before = model(f"""m ({kind}[B, 3] x) => ({kind}[B, 3] y)
        <float t = {{20}}, float low = {{14}}, float[1, 3] row = {{20, 20, 1}},
         float16 half = {{19712}}> {{ h = Relu (x) {CHOICE.format(*given)} }}""")
    assert "Where" in ops(fold(before))


@pytest.mark.parametrize(
    ("nodes", "left"),
    [
        ("n = Neg (r) y = Add (x, n)", ["Sub"]),
        ("n = Neg (r) y = Add (n, x)", ["Sub"]),
        ("n = Neg (r) y = Sub (x, n)", ["Add"]),
        ("n = Neg (r) y = Sub (n, x)", ["Neg", "Sub"]),
        ("n = Neg (r) a = Add (x, n) y = Add (a, n)", ["Neg", "Add", "Add"]),
        ("n = Neg (r) a = Sub (x, n) y = Mul (a, n)", ["Neg", "Sub", "Mul"]),
    ],
)
def test_what_is_negated_and_added_is_taken_off(nodes: str, left: list[str]) -> None:
    head = "m (float[B, T, 8] x, float[T, 1] r) => (float[P, Q, R] y)"
    assert ops(fold(model(f"{head} {{ {nodes} }}"))) == left


def test_a_repaired_tensor_keeps_its_name() -> None:
    after = fold(
        model(f"""{HEAD} {INTS} {{
            a = Transpose <perm = [0, 2, 1]> (x) kept = Transpose <perm = [2, 0, 1]> (a)
            y = Relu (kept) }}""")
    )
    assert [x.name for node in after.graph for x in node.outputs] == ["kept", "y"]


def test_an_output_that_equals_another_tensor_keeps_its_name() -> None:
    after = fold(
        model("""m (float[T] x) => (float[T] y, float[T] z, float[T] w)
            { y = Relu (x) z = Relu (x) w = Identity (x) }""")
    )
    assert ops(after) == ["Relu", "Relu", "Identity"]


def test_what_makes_a_tensor_makes_the_output_that_equals_it() -> None:
    """As float32 exports end, with a Cast to float32; others may read the output as well."""
    after = fold(
        model("""m (float[T] x) => (float[T] y, float[T] z, float[T] v)
            { a = Relu (x) y = Cast <to = 1> (a) z = Neg (y) b = Exp (x) v = Identity (b) }""")
    )
    assert [(x.op_type, x.outputs[0].name) for x in after.graph] == [
        ("Relu", "y"),
        ("Neg", "z"),
        ("Exp", "v"),
    ]
    kept = (
        "m (float[T] x) => (float[T] y, float[T] z) { a = Relu (x) y = Identity (a) z = Neg (a) }"
    )
    assert ops(fold(model(kept))) == ["Relu", "Identity", "Neg"]


def test_random_numbers_are_never_equal() -> None:
    text = """m (float[4] x) => (float[4] y) {
        a = RandomUniformLike (x) b = RandomUniformLike (x) c = Sub (a, b) d = Bernoulli (c)
        e = Bernoulli (c) y = Sub (d, e) }"""
    before = model(text)
    after = before.clone()
    assert not graphfix.run(after, "fold").changed


def test_other_domains_are_never_equal() -> None:
    before = model(
        """m (float[T] x) => (float[T] y)
        { a = com.microsoft.Gelu (x) b = com.microsoft.Gelu (x) y = Add (a, b) }""",
        more=', "com.microsoft" : 1',
    )
    assert ops(fold(before)) == ["Gelu", "Gelu", "Add"]


def test_parts_that_only_their_number_tells_apart() -> None:
    after = fold(
        model(
            """m (float[T, 6] x) => (float[T, 3] y, float[T, 2] z) {
                a, b = Split <axis = 1> (x) c, d, e = Split <axis = 1> (x)
                y = Add (a, b) z = Add (c, d) }""",
            opset=13,
        )
    )
    assert ops(after).count("Split") == 2


def test_an_overridable_initializer_is_no_constant() -> None:
    text = """m (float[T] x, float k) => (float[T] y) <float k = {2.0}, float two = {2.0}>
        { kk = Mul (k, two) y = Mul (x, kk) }"""
    before = model(text)
    after = before.clone()
    graphfix.run(after, "fold")
    assert ops(after) == ["Mul", "Mul"]
    feeds = {"x": np.ones(3, np.float32), "k": np.array(5, np.float32)}
    np.testing.assert_array_equal(execute(after, feeds)[0], execute(before, feeds)[0])


def test_constants_of_constants() -> None:
    after = fold(
        model(
            """m (float[T, 4] x) => (float[T, 4] y) {
                d = Constant <value_int = 16> () f = Cast <to = 1> (d) r = Sqrt (f)
                one = Constant <value_float = 1.0> () s = Div (one, r) y = Mul (x, s) }"""
        )
    )
    assert ops(after) == ["Mul"]


def test_large_results_stay_computed() -> None:
    text = """m (float[4097] x) => (float[4097] y) <int64 n = {4097}, int64 zero = {0},
        int64 one = {1}> { r = Range (zero, n, one) s = Mul (r, r) f = Cast <to = 1> (s)
          y = Mul (x, f) }"""
    assert ops(fold(model(text))) == [*("Range", "Mul", "Cast", "Mul")]


def test_what_lies_beside_the_model_is_not_read(tmp_path: Path) -> None:
    numbers = ", ".join("1.0" for _ in range(99))
    before = model(
        f"""m (float[T, 99] x) => (float[T, 99] y) <float[99] w = {{{numbers}}}>
        {{ two = Add (w, w) again = Add (w, w) d = Mul (two, again) y = Mul (x, d) }}"""
    )
    before.graph.initializers["w"].const_value = ir.ExternalTensor(
        "there.is.none",
        0,
        396,
        ir.DataType.FLOAT,
        shape=ir.Shape([99]),
        name="w",
        base_dir=tmp_path,
    )
    graphfix.run(before, "fold")
    assert ops(before) == ["Add", "Mul", "Mul"]


def test_token_types_that_lie_beside_the_model_are_all_one_row(tmp_path: Path) -> None:
    """torch writes every tensor of some size into a file of its own, also these zeros."""
    before = model("""m (int64[B, T] ids, float[B, T, 2] x) => (float[B, T, 2] y)
        <int64[1, 40] types = {0}, float[2, 2] rows = {1, 2, 3, 4}, int64[1] zero = {0},
         int64[1] one = {1}> {
            end = Shape <start = 1, end = 2> (ids) mine = Slice (types, zero, end, one)
            row = Gather (rows, mine) y = Add (x, row) }""")
    (tmp_path / "weights").write_bytes(bytes(320))
    before.graph.initializers["types"].const_value = ir.ExternalTensor(
        "weights",
        0,
        320,
        ir.DataType.INT64,
        shape=ir.Shape([1, 40]),
        name="types",
        base_dir=tmp_path,
    )
    graphfix.run(before, "fold")
    assert ops(before) == ["Add"]


@pytest.mark.parametrize(("given_", "kernels"), [("p, k, ", 1), ("p, k, zero", 1), ("p, k", 1)])
def test_a_pad_without_a_value_goes_into_its_conv(given_: str, kernels: int) -> None:
    """ONNX Runtime puts it there, but not one with an empty input at its end."""
    inner = given_.replace("p, k", "x, pads")
    after = fold(
        model(f"""m (float[B, 2, T] x) => (float[B, 2, T] y)
        <float[2, 2, 3] k = {{1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}}, float zero = {{0}},
         int64[6] pads = {{0, 0, 1, 0, 0, 1}}> {{ p = Pad ({inner}) y = Conv (p, k) }}""")
    )
    counted = planning.kernels_per_run(after)
    assert counted is not None
    assert counted["all"] == kernels


@pytest.mark.parametrize(
    ("ones", "to", "more", "left"),
    [
        ("value = int64[1] {1}", 1, "", ["ConstantOfShape", "CumSum", "Mul"]),
        ("value = int64[1] {2}", 1, "", ["ConstantOfShape", "CumSum", "Cast", "Mul"]),
        ("value = int64[1] {1}", 10, "", ["ConstantOfShape", "CumSum", "Cast", "Mul"]),
        ("value = int64[1] {1}", 1, "again = Add (n, n)", None),
    ],
)
def test_places_that_are_cast_are_counted_in_floats(
    ones: str, to: int, more: str, left: list[str] | None
) -> None:
    """Up to 2 ** 24 each place is a float32; not a float16."""
    kind = {1: "float", 10: "float16"}[to]
    extra = ", int64[T] again" if more else ""
    text = f"""m ({kind}[T] x) => ({kind}[T] y{extra}) <int64 axis = {{0}}> {{
        s = Shape (x) o = ConstantOfShape <{ones}> (s) n = CumSum <exclusive = 1> (o, axis)
        f = Cast <to = {to}> (n) {more} y = Mul (x, f) }}"""
    after = fold(model(text))
    assert ops(after)[1:] == left if left else "Cast" in ops(after)


@pytest.mark.parametrize(
    ("mask", "dims", "old", "new", "left"),
    [
        ("m", "B, T, 2", "", "", ["Where"]),
        ("m", "B, T", "Expand (zero, n)", "ConstantOfShape (rows)", ["Unsqueeze", "Where"]),
        # One row of a mask for all rows, and sizes that another input names.
        ("e", "1, T, 1", "", "", ["Where"]),
        ("e", "A, S, 1", "", "", ["Where"]),
        ("m", "B, T, 2", "Expand (zero, n)", "ConstantOfShape (n)", ["Where"]),
        ("m", "B, T, 2", "Expand (zero, n)", "Slice (many, start, n)", None),
        ("m", "B, T, 2", "perm = [1, 0]", "perm = [0, 1]", None),
        ("m", "B, T, 2", "ScatterND (", 'ScatterND <reduction = "add"> (', None),
        ("m", "A, S, 2", "", "", None),  # it may be smaller than what is written to
    ],
)
def test_one_number_where_a_mask_is_true_is_a_where(
    mask: str, dims: str, old: str, new: str, left: list[str] | None
) -> None:
    """As torch's dynamo exporter writes ``x[mask] = 0``."""
    text = f"""m (float[B, T, 2] x, bool[{dims}] m, float[400] many) => (float[B, T, 2] y)
        <float zero = {{0}}, int64[1] start = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}> {{
        {"s = Shape (x) e = Expand (m, s)" if mask == "e" else ""} places = NonZero ({mask})
        at = Transpose <perm = [1, 0]> (places) c = Shape (at) n = Slice (c, start, one)
        rows = Concat <axis = 0> (n, two) f = Expand (zero, n) y = ScatterND (x, at, f) }}"""
    m = model(text.replace(old, new) if old else text, 17)
    if "[0, 1]" in new or (left is None and dims == "A, S, 2"):
        graphfix.run(m, "fold")
        assert "ScatterND" in ops(m)
        return
    after = fold(m)
    assert [x for x in ops(after) if x in ("Where", "Unsqueeze", "ScatterND")] == (
        left or ["ScatterND"]
    )


@pytest.mark.parametrize(
    ("old", "new", "folded"),
    [
        ("", "", True),
        ("axis = -1>", "axis = 3>", True),
        ("inverse = 0", "inverse = 1", False),
        ("zero = {0}", "zero = {1}", False),
        ("(r, i)", "(i, r)", False),
        ("c = Concat <axis = -1> (r, i)", "h = Relu (r) c = Concat <axis = -1> (r, h)", False),
        ("Concat <axis = -1>", "Concat <axis = 2>", False),
    ],
)
def test_a_dft_of_real_numbers_takes_no_zeros(old: str, new: str, folded: bool) -> None:
    """As torch's dynamo exporter writes ``fft`` (FNet)."""
    text = """m (float[B, T, 4] x) => (float[B, T, F, 2] y)
        <int64[1] last = {-1}, float zero = {0}> {
        r = Unsqueeze (x, last) s = Shape (r) i = Expand (zero, s) c = Concat <axis = -1> (r, i)
        d = DFT <inverse = 0, axis = 2> (c) y = DFT <axis = 1> (d) }"""
    after = fold(model(text.replace(old, new) if old else text, 17), 2, 5)
    assert (ops(after) == ["Unsqueeze", "DFT", "DFT"]) == folded


# --- masks that hide nothing, and sizes that nobody needs ------------------------------------


def test_a_mask_that_is_true_everywhere() -> None:
    """transformers 5 asks of a bidirectional mask whether an index is at least 0."""
    after = fold(
        model("""m (float[B, 2, T, T] scores) => (float[B, 2, T, T] y)
            <int64 zero = {0}, int64 one = {1}, int64[3] axes = {0, 1, 3}, float nought = {0.0},
             float low = {-1e9}, int64[1] one1 = {1}> {
            b = Shape <start = 0, end = 1> (scores) t = Shape <start = 2, end = 3> (scores)
            n = Squeeze (t) index = Range (zero, n, one) column = Unsqueeze (index, axes)
            all = GreaterOrEqual (column, zero) size = Concat <axis = 0> (b, one1, t, t)
            large = Expand (all, size) addend = Where (large, nought, low)
            y = Add (scores, addend) r = Relu (y) }""")
    )
    assert "Range" not in ops(after)
    assert "Where" not in ops(after)


@pytest.mark.parametrize(
    ("body", "left"),
    [
        # Both operands of the sum come of the same Expand: with neither of them it is smaller.
        ("a = Abs (e) y = Add (e, a)", ["Shape", "Expand", "Abs", "Add"]),
        ("a = Abs (e) s = Add (e, a) y = Mul (s, o)", ["Abs", "Add", "Mul"]),
        ("a = Sin (e) y = Mul (a, o)", ["Sin", "Mul"]),
        ("t = Transpose <perm = [1, 0]> (e) y = Mul (t, r)", ["Transpose", "Mul"]),
        ("t = Transpose <perm = [1, 0]> (e) y = Mul (t, x)", None),  # [T, T], if B is 1
    ],
)
def test_what_broadcasting_makes_large_anyway(body: str, left: list[str] | None) -> None:
    dims = "T, B" if "perm = [1, 0]" in body else "B, T"
    text = f"""m (float[1, T] x, float[B, T] o, float[T, B] r) => (float[{dims}] y) {{
        so = Shape (o) e = Expand (x, so) {body} }}"""
    if left is None:
        m = model(text.replace("(float[T, B] y)", "(float[P, Q] y)"))
        graphfix.run(m, "fold")
        assert "Expand" in ops(m)
        return
    assert ops(fold(model(text))) == left


def test_ones_and_zeros_of_a_layer_norm_stay() -> None:
    """ONNX Runtime makes one kernel of the pieces, if none is missing."""
    text = """m (float[B, T, 4] x) => (float[B, T, 4] y)
        <float[4] w = {1.0, 1.0, 1.0, 1.0}, float[4] b = {0.0, 0.0, 0.0, 0.0}, float two = {2.0},
         float eps = {0.00001}> {
        c = ReduceMean <axes = [-1]> (x) d = Sub (x, c) p = Pow (d, two)
        v = ReduceMean <axes = [-1]> (p) e = Add (v, eps) s = Sqrt (e) n = Div (d, s)
        scaled = Mul (w, n) moved = Add (scaled, b) y = Relu (moved) }"""
    before = model(text, 14)
    counted = planning.kernels_per_run(before)
    assert counted is not None
    assert counted["all"] == 2
    assert planning.kernels_per_run(fold(before)) == counted
    # What is neither is not needed.
    other = model(text.replace("Div (d, s)", "Div (d, two)"), 14)
    assert "Mul" not in ops(fold(other))


@pytest.mark.parametrize(
    ("compare", "least", "decided"),
    [
        ("GreaterOrEqual (i, zero)", 0, True),
        ("Greater (i, zero)", 0, False),
        ("Greater (i, less)", 0, True),
        ("Less (i, zero)", 0, True),
        ("LessOrEqual (i, zero)", 0, False),
        ("LessOrEqual (zero, i)", 0, True),
        ("Less (zero, i)", 0, False),
        ("Less (zero, i)", 1, True),
        ("Less (i, one)", 1, True),
        ("Greater (one, i)", 1, True),
        ("Equal (i, less)", 0, False),
    ],
)
def test_what_is_known_of_an_index(compare: str, least: int, decided: bool) -> None:
    after = fold(
        model(f"""m (float[T] x) => (float[T] y) <int64 zero = {{0}}, int64 one = {{1}},
            int64 less = {{-1}}, int64 start = {{{least}}}> {{
            s = Shape (x) n0 = Squeeze (s) n = Add (n0, start) i = Range (start, n, one)
            c = {compare} k = Neg (x) w = Where (c, x, k) y = Relu (w) }}"""),
        *(1, 2, 5),
    )
    assert ("Where" not in ops(after)) == decided


def test_an_index_that_counts_down_is_not_at_least_its_start() -> None:
    before = model("""m (float[T] x) => (float[T] y) <int64 zero = {0}, int64 down = {-1}> {
        s = Shape (x) n0 = Squeeze (s) n = Neg (n0) i = Range (zero, n, down)
        c = GreaterOrEqual (i, zero) k = Neg (x) y = Where (c, x, k) }""")
    assert "Where" in ops(fold(before))


def test_a_mask_is_as_large_as_its_users_need() -> None:
    after = fold(
        model("""m (float[B, 2, T, T] scores, bool[B, 1, 1, T] mask) => (float[B, 2, T, T] y)
            <int64[1] one = {1}, float low = {-1e4}> {
            b = Shape <start = 0, end = 1> (mask) t = Shape <start = 3, end = 4> (mask)
            size = Concat <axis = 0> (b, one, t, t) large = Expand (mask, size)
            hidden = Not (large) f = Cast <to = 1> (hidden) addend = Mul (f, low)
            y = Add (scores, addend) }""")
    )
    assert ops(after) == ["Not", "Cast", "Mul", "Add"]


BY_SLICE = """s = Shape (ids) t = Shape <start = 1, end = 2> (ids)
    part = Slice (buffer, zero, t, one) large = Expand (part, s)"""
BY_POSITION = """b = Shape <end = 1> (ids) s = Concat <axis = 0> (b, one)
    wide = Expand (buffer, s) large = GatherElements <axis = 1> (wide, ids)"""


@pytest.mark.parametrize(
    ("large", "users", "eighth", "left"),
    [
        (BY_SLICE, "z = Add (x, row) y = Relu (z)", 1, ["Add", "Relu"]),
        (BY_POSITION, "z = Mul (row, x) y = Relu (z)", 1, ["Mul", "Relu"]),
        (BY_SLICE, "y = Relu (row)", 1, None),  # its size is seen
        (BY_SLICE, "z = Add (x, row) y = Relu (z)", 0, None),
    ],
)
def test_a_table_in_which_one_row_is_looked_up(
    large: str, users: str, eighth: int, left: list[str] | None
) -> None:
    """Token types that nobody gives: a buffer of zeros, as long as the ids."""
    before = model(f"""m (int64[B, T] ids, float[B, T, 2] x) => (float[B, T, 2] y)
        <float[2, 2] table = {{1, 2, 3, 4}}, int64[1] zero = {{0}}, int64[1] one = {{1}},
         int64[1, 9] buffer = {{1, 1, 1, 1, 1, 1, 1, {eighth}, 1}}>
        {{ {large} row = Gather (table, large) {users} }}""")
    after = fold(before)
    assert ops(after) == left if left else "Gather" in ops(after)


@pytest.mark.parametrize(
    "end",
    [
        "y = Not (large)",  # its size is seen
        "h = Not (large) f = Cast <to = 1> (h) y = ReduceSum (f)",
        "h = Not (large) y = And (h, mask)",  # nothing else has that size
    ],
)
def test_a_size_that_is_seen_stays(end: str) -> None:
    dtype = "float" if "Reduce" in end else "bool"
    before = model(f"""
        m (float[B, 1, T, T] scores, bool[B, 1, 1, T] mask) => ({dtype}[I, J, K, L] y)
        {{ size = Shape (scores) large = Expand (mask, size) {end} }}""")
    assert "Expand" in ops(fold(before))


@pytest.mark.parametrize(
    ("nodes", "left"),
    [
        ("h = Equal (m, zero) a = Cast <to = 1> (h)", ["Cast", "Sub"]),
        ("h = Equal (zero, m) n = Not (h) a = Cast <to = 1> (n)", ["Cast"]),
        ("h = Cast <to = 9> (m) a = Cast <to = 1> (h)", ["Cast"]),
        (
            "h = Equal (m, zero) n = Not (h) f = Cast <to = 1> (h) g = Cast <to = 1> (n)"
            " d = Mul (f, low) a = Sub (d, g)",
            ["Cast", "Sub", "Mul", "Sub"],
        ),
        (
            "n = Not (b) f = Cast <to = 1> (b) g = Cast <to = 1> (n) d = Mul (f, low)"
            " a = Sub (d, g)",
            ["Cast", "Sub", "Mul", "Sub"],
        ),
        # a mask of 0 and 1 in the caller's word only
        ("h = Equal (x, zero) a = Cast <to = 1> (h)", ["Cast", "Equal", "Cast"]),
        ("h = Equal (m, one) a = Cast <to = 1> (h)", ["Cast", "Equal", "Cast"]),
    ],
)
def test_masks_of_0_and_1(nodes: str, left: list[str]) -> None:
    after = fold(
        model(f"""m (float[B, T] x, bool[B, T] b) => (float[B, T] y)
            <float zero = {{0.0}}, float one = {{1.0}}, float low = {{-1e4}}>
            {{ m = Cast <to = 1> (b) {nodes} c = Cast <to = 1> (a) y = Mul (c, x) }}""")
    )
    assert ops(after)[: len(left)] == left


@pytest.mark.parametrize(
    ("nodes", "left"),
    [
        ("c = Equal (b, yes)", []),
        ("c = Equal (no, b)", ["Not"]),
        ("c = Xor (b, no)", []),
        ("c = Xor (b, yes)", ["Not"]),
        ("d = Less (x, zero) c = Not (d)", ["Less", "Not"]),  # neither holds of a NaN
        ("d = Less (x, zero) n = Not (d) c = Not (n)", ["Less"]),
        ("n = Not (b) c = Not (n)", []),
        ("i = Cast <to = 7> (x) d = Less (i, nought) c = Not (d)", ["Cast", "GreaterOrEqual"]),
    ],
)
def test_booleans(nodes: str, left: list[str]) -> None:
    after = fold(
        model(f"""m (float[B, T] x, bool[B, T] b) => (float[B, T] y)
            <bool yes = {{1}}, bool no = {{0}}, float zero = {{0.0}}, int64 nought = {{0}}>
            {{ {nodes} y = Where (c, x, zero) }}""")
    )
    assert ops(after) == [*left, "Where"]


@pytest.mark.parametrize(
    ("counted", "left"),
    [
        ("none, n, one", ["Slice"]),
        ("one, n, one", ["Range", "Gather"]),
        ("none, n, two", ["Range", "Gather"]),
        ("none, given, one", ["Range", "Gather"]),  # which may be below 0
    ],
)
def test_the_first_in_order_are_a_slice(counted: str, left: list[str]) -> None:
    before, after = (
        model(f"""m (float[B, 6] x, float[N] z, int64 given) => (float[B, M] y)
            <int64 none = {{0}}, int64 one = {{1}}, int64 two = {{2}}> {{ s = Shape (z)
            n = Gather (s, none) at = Range ({counted}) y = Gather <axis = 1> (x, at) }}""")
        for _ in range(2)
    )
    graphfix.run(after, "fold")
    assert ops(after)[-len(left) :] == left
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    for size in (4, 0):
        feeds = {"x": x, "z": np.zeros(size, np.float32), "given": np.array(3)}
        np.testing.assert_array_equal(*(execute(m, feeds)[0] for m in (before, after)))


def test_no_comparison_is_written_whose_shape_onnx_runtime_does_not_infer() -> None:
    """Below opset 16 a GreaterOrEqual is a function without shape inference."""
    text = "m (int64[B] x) => (bool[B] y) <int64 z = {0}> { d = Less (x, z) y = Not (d) }"
    assert ops(fold(model(text, 15))) == ["Less", "Not"]
    assert ops(fold(model(text, 16))) == ["GreaterOrEqual"]


@pytest.mark.parametrize(
    ("place", "left"),
    [
        ("places = Unsqueeze (index, last)", ["Gather"]),
        ("i = Unsqueeze (index, behind) places = Squeeze (i, middle)", ["Gather"]),
        ("places = Unsqueeze (index, first)", ["Unsqueeze", "GatherND"]),  # two numbers for one
        ("i = Unsqueeze (index, last) places = Add (i, one)", ["Unsqueeze", "Add", "GatherND"]),
    ],
)
def test_rows_by_one_number_each_are_gathered(place: str, left: list[str]) -> None:
    text = f"""m (float[5, 3] table, int64[B, 2] index) => (float[N, *] y)
        <int64[1] last = {{-1}}, int64[1] first = {{1}}, int64 one = {{1}}, int64[1] middle = {{2}},
         int64[2] behind = {{2, 3}}>
        {{ {place} y = GatherND (table, places) }}""".replace("float[N, *]", "float")
    before, after = model(text), fold(model(text))
    assert ops(after) == left
    feeds = {
        "table": np.arange(15, dtype=np.float32).reshape(5, 3),
        "index": np.array([[0, 2], [-1, 1], [1, 0]]),
    }
    np.testing.assert_array_equal(execute(after, feeds)[0], execute(before, feeds)[0])


@pytest.mark.parametrize("place", [0, 2, -1, -3])
@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("y = GatherND (x, place)", ["Slice"]),
        ("t = Transpose <perm = [2, 0, 1]> (x) y = GatherND (t, place)", ["Slice", "Transpose"]),
        # Falcon's one head of keys: x[..., [-2], :], and heads first.
        (
            "t = Transpose <perm = [1, 0, 2]> (x) g = GatherND (t, place) "
            "y = Transpose <perm = [1, 0, 2]> (g)",
            ["Slice"],
        ),
        ("t = Transpose (x) y = GatherND (t, place)", ["Slice", "Transpose"]),
        ("y = GatherND (x, pair)", ["GatherND"]),
        ("y = GatherND (x, deep)", ["GatherND"]),
        ("y = GatherND <batch_dims = 1> (x, each)", ["GatherND"]),
    ],
)
def test_one_row_is_sliced(place: int, body: str, left: list[str]) -> None:
    text = f"""m (float[3, 3, 3] x) => (float[N, M, K] y) <int64[1, 1] place = {{{place}}},
        int64[1, 2] pair = {{1, 2}}, int64[1, 1, 1] deep = {{1}}, int64[3, 1] each = {{0, 1, 2}}>
        {{ {body} }}""".replace("float[N, M, K] y", "float y")
    before, after = model(text), fold(model(text))
    assert ops(after) == left
    feeds = {"x": np.arange(27, dtype=np.float32).reshape(3, 3, 3)}
    np.testing.assert_array_equal(execute(after, feeds)[0], execute(before, feeds)[0])


# --- graphs inside ---------------------------------------------------------------------------

IF = """m (float[T] x, bool flag) => (float[T] y) <bool yes = {{1}}, bool no = {{0}}> {{
    a = Relu (x)
    y = If ({condition}) < then_branch = t () => (float[T] u) {{ b = Relu (x) u = Neg (b) }},
        else_branch = e () => (float[T] v) {{ c = Abs (x) v = Add (a, c) }} > }}"""


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        ("yes", ["Relu", "Neg"]),
        ("no", ["Relu", "Abs", "Add"]),
        ("flag", ["Relu", "If", "Neg", "Abs", "Add"]),
    ],
)
def test_an_if(condition: str, left: list[str]) -> None:
    after = fold(model(IF.format(condition=condition)))
    assert [x.name for x in after.graph.outputs] == ["y"]
    found = ops(after)
    assert sorted(found) == sorted(left)


def test_nothing_is_moved_out_of_a_branch() -> None:
    before = model("""m (float[T] x, bool flag) => (float[T] y, float[T] z) {
        y = If (flag) < then_branch = t () => (float[T] u) { b = Exp (x) u = Neg (b) },
            else_branch = e () => (float[T] v) { c = Exp (x) v = Abs (c) } >
        d = Exp (x) z = Sub (d, x) }""")
    assert data(fold(before)) == data(before)


def test_an_if_decided_by_static_sizes_with_names_that_are_taken() -> None:
    before = model("""m (float[1, T] x) => (float[N] y, float[M] z)
        <int64 one = {1}, int64 first = {0}> {
        s = Shape (x) n = Gather (s, first) is_one = Equal (n, one)
        y = If (is_one) < then_branch = t () => (float[N] u) {
                k = Constant <value_ints = [0]> () w = Squeeze (x, k) u = Neg (w) },
            else_branch = e () => (float[N, M] v) { v = Identity (x) } >
        z = If (is_one) < then_branch = t2 () => (float[N] u) {
                k = Constant <value_ints = [0]> () w = Squeeze (x, k) u = Abs (w) },
            else_branch = e2 () => (float[N, M] v) { v = Identity (x) } > }""")
    after = fold(before)
    assert sorted(ops(after)) == ["Abs", "Constant", "Neg", "Squeeze"]


def test_what_only_the_other_branch_used_goes_with_it() -> None:
    before = model("""m (float[T] x) => (float[T] y) <bool yes = {1}> {
        a = Exp (x) b = Neg (a)
        y = If (yes) < then_branch = t () => (float[T] u) { u = Neg (x) },
            else_branch = e () => (float[T] v) {
                v = If (yes) < then_branch = p () => (float[T] q) { r = Exp (x) q = Add (b, r) },
                    else_branch = n () => (float[T] o) { o = Abs (a) } > } > }""")
    after = before.clone()
    report = graphfix.run(after, "fold")
    assert ops(after) == ["Neg"]
    assert [x.tensor for x in report.passes[0].changes] == ["y"]


def test_an_if_in_a_function_with_a_constant_in_its_branch() -> None:
    before = ir.from_onnx_text("""<ir_version: 8, opset_import: ["" : 18, "f" : 1]>
        m (float[T] x) => (float[T] y) { y = f.pick (x) }
        <domain: "f", opset_import: ["" : 18]>
        pick (a) => (d) { yes = Constant <value = bool {1}> ()
            d = If (yes) < then_branch = t () => (float[T] u) <float k = {3.0}> { u = Mul (a, k) },
                else_branch = e () => (float[T] v) { v = Neg (a) } > }""")
    assert sorted(ops(fold(before))) == ["Constant", "Mul", "pick"]


def test_an_if_that_fix_dims_decides() -> None:
    before = model("""m (float[B, T] x) => (float[N] y) <int64 one = {1}, int64 first = {0}> {
        s = Shape (x) n = Gather (s, first) is_one = Equal (n, one)
        y = If (is_one) < then_branch = t () => (float[N] u) {
                k = Constant <value_ints = [0]> () w = Squeeze (x, k) u = Neg (w) },
            else_branch = e () => (float[N, M] v) { v = Identity (x) } > }""")
    after = before.clone()
    graphfix.run(after, "fix-dims:B=1:T=4,fold")
    assert "If" not in ops(after)
    feeds = {"x": np.ones((1, 4), np.float32)}
    np.testing.assert_array_equal(execute(before, feeds)[0], execute(after, feeds)[0])


def test_an_if_in_a_loop_in_a_branch() -> None:
    before = model("""m (float[T] x, bool flag) => (float[T] y) <int64 two = {2}, bool yes = {1}> {
        y = If (flag) < then_branch = t () => (float[T] u) {
                u = Loop (two, yes, x) < body = b (int64 i, bool c, float[T] s)
                    => (bool again, float[T] out) {
                    again = Identity (c)
                    out = If (yes) < then_branch = tt () => (float[T] p) { p = Add (s, x) },
                        else_branch = ee () => (float[T] q) { q = Neg (s) } > } > },
            else_branch = e () => (float[T] v) { v = Relu (x) } > }""")
    after = fold(before)
    assert ops(after).count("If") == 1


def test_a_branch_that_hands_on_what_it_was_given_and_holds_a_constant() -> None:
    before = model("""m (float[T] x) => (float[T] y, float[T] z) <bool yes = {1}> {
        y, q = If (yes) < then_branch = t () => (float[T] x2, float u)
                <float u = {3.0}> { x2 = Identity (x) },
            else_branch = e () => (float[T] v, float w) <float w = {4.0}> { v = Neg (x) } >
        z = Mul (x, q) }""")
    assert sorted(ops(fold(before))) == ["Identity", "Mul"]


def test_a_loop_takes_what_is_equal_outside() -> None:
    before = model("""m (float[T] x, float[T] h) => (float[T] y)
        <int64 count = {3}, bool yes = {1}> {
        a = Exp (x)
        y = Loop (count, yes, h) < body = b (int64 i, bool c, float[T] s)
            => (bool again, float[T] out) { e = Exp (x) again = Identity (c) out = Add (s, e) } >
        }""")
    before.graph.outputs.append(before.graph[0].outputs[0])
    assert ops(fold(before)).count("Exp") == 1


def test_a_function_is_folded_and_gets_no_initializer() -> None:
    before = ir.from_onnx_text("""<ir_version: 8, opset_import: ["" : 18, "f" : 1]>
        m (float[T] x) => (float[T] y) { y = f.twice (x) }
        <domain: "f", opset_import: ["" : 18]>
        twice (a) => (d) { b = Exp (a) c = Exp (a) e = Identity (c) d = Add (b, e) }""")
    after = fold(before)
    assert ops(after) == ["twice", "Exp", "Add"]


def test_raw_exports_are_seen_by_the_other_passes() -> None:
    """A mask as ``optimize=False`` leaves it: its floor and its zero are still computed."""
    raw = model(
        """m (float[B, 2, T, T] scores, int64[B, 1, 1, T] mask, float[B, 2, T, 4] v)
        => (float[B, 2, T, 4] y) {
        zero_i = Constant <value_int = 0> () c = Cast <to = 7> (zero_i) hidden = Equal (mask, c)
        low = Constant <value_float = -inf> () low1 = Identity (low) low2 = CastLike (low1, scores)
        masked = Where (hidden, low2, scores) weights = Softmax <axis = -1> (masked)
        y = MatMul (weights, v) }"""
    )
    alone, after = raw.clone(), raw.clone()
    graphfix.run(alone, "fold")
    graphfix.run(after, "fold,additive-mask,fold")
    assert [x for x in ops(alone) if x != "Constant"] == ["Equal", "Where", "Softmax", "MatMul"]
    assert "Where" not in ops(after)


@pytest.mark.parametrize(
    ("nodes", "left"),
    [
        ("z = CastLike (one, x) y = Mul (x, z)", ["Mul"]),
        ("z = CastLike (x, x) y = Relu (z)", ["Relu"]),
        ("s = Shape (x) z = CastLike (x, s) y = Relu (z)", ["Cast", "Relu"]),
    ],
)
def test_a_cast_like_something_is_a_cast(nodes: str, left: list[str]) -> None:
    kind = "int64" if "Shape" in nodes else "float"
    raw = model(f"m (float[B, T] x) => ({kind}[B, T] y) <int64 one = {{3}}> {{ {nodes} }}")
    assert ops(fold(raw, 2)) == left


# --- rows of views and Transposes ---------------------------------------------------------------


def _size(parts: Sequence[str | int], name: str) -> str:
    """A node that makes the product of these as a vector of one element."""
    number = math.prod(x for x in parts if isinstance(x, int))
    names = [x for x in parts if isinstance(x, str)]
    lines, last = [f"{name}_0 = Constant <value_ints = [{number}]> ()"], f"{name}_0"
    for i, one in enumerate(names, 1):
        lines.append(f"{name}_{i} = Mul ({last}, {one})")
        last = f"{name}_{i}"
    return " ".join([*lines, f"{name} = Identity ({last})"])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_row_of_views_and_transposes_keeps_every_element(data: st.DataObject) -> None:
    axes: list[list[str | int]] = [["sb"], [2, 3], ["st"], [5]]
    lines = ["sb = Shape <start = 0, end = 1> (x) st = Shape <start = 2, end = 3> (x)"]
    last = "x"
    for i in range(data.draw(st.integers(1, 5))):
        step = data.draw(st.sampled_from(["turn", "merge", "split", "one"]))
        if step == "turn":
            perm = data.draw(st.permutations(range(len(axes))))
            axes = [axes[x] for x in perm]
            lines.append(f"t{i} = Transpose <perm = {list(perm)}> ({last})")
        else:
            place = data.draw(st.integers(0, len(axes) - 1))
            if step == "merge" and place + 1 < len(axes):
                axes[place : place + 2] = [[*axes[place], *axes[place + 1]]]
            elif step == "split" and len(axes[place]) > 1 and len(axes) < 6:
                axes[place : place + 1] = [axes[place][:1], axes[place][1:]]
            elif step == "one" and len(axes) < 6:
                axes.insert(place, [])
            else:
                continue
            lines += [_size(axis, f"s{i}_{k}") for k, axis in enumerate(axes)]
            pieces = ", ".join(f"s{i}_{k}" for k in range(len(axes)))
            lines.append(f"s{i} = Concat <axis = 0> ({pieces}) t{i} = Reshape ({last}, s{i})")
        last = f"t{i}"
    dims = ", ".join("PQRSUV"[: len(axes)])
    text = f"m (float[B, 6, T, 5] x) => (float[{dims}] y) {{ {' '.join(lines)} y = Relu ({last}) }}"
    for spec in ("fold", "unflatten-heads,fold", "fold,unflatten-heads"):
        fold(model(text), 1, 2, 3, spec=spec)


# --- properties ------------------------------------------------------------------------------

STEPS = {
    "Relu": "Relu ({0})",
    "Neg": "Neg ({0})",
    "Identity": "Identity ({0})",
    "Turn": "Transpose <perm = [0, 2, 1]> ({0})",
    "Round": "Transpose <perm = [2, 0, 1]> ({0})",
    "Double": "Cast <to = 11> ({0})",
    "Float": "Cast <to = 1> ({0})",
    "Cut": "Slice ({0}, one, far, first)",
    "All": "Slice ({0}, nought, far, first)",
    "Flat": "Reshape ({0}, flat)",
    "Unit": "Unsqueeze ({0}, first)",
    "Drop": "Squeeze ({0}, first)",
    "Times": "Mul ({0}, {0})",
    "Sum": "Add ({0}, {0})",
    "One": "Concat <axis = 0> ({0})",
}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 3)), max_size=12))
def test_any_chain_keeps_every_bit(chain: list[tuple[str, int]]) -> None:
    """Each step takes one of the last few tensors; a step that does not fit is left out."""
    made = [("x", 3, "float")]
    lines = []
    for i, (step, back) in enumerate(chain):
        name, rank, dtype = made[max(0, len(made) - 1 - back)]
        if step in ("Turn", "Round", "Cut") and rank != 3:
            continue
        if step == "Drop" and rank != 4:
            continue
        if step == "Unit" and rank == 4:
            continue
        lines.append(f"v{i} = {STEPS[step].format(name)}")
        rank = {"Unit": rank + 1, "Drop": rank - 1, "Flat": 3}.get(step, rank)
        made.append((f"v{i}", rank, {"Double": "double", "Float": "float"}.get(step, dtype)))
    name, rank, dtype = made[-1]
    dims = ", ".join("PQRS"[:rank])
    fold(
        model(f"""m (float[B, T, 8] x) => ({dtype}[{dims}] y)
        <int64[1] one = {{1}}, int64[1] nought = {{0}}, int64[1] far = {{9223372036854775807}},
         int64[3] flat = {{1, -1, 1}}, int64[1] first = {{0}}>
        {{ {" ".join(lines)} y = Identity ({name}) }}"""),
        3,
        4,
    )


def test_an_if_that_hides_the_rank_of_what_a_range_takes_stays() -> None:
    """ONNX Runtime runs a Range of vectors, but loads none of what is seen to be one."""
    text = """g (float[T] x) => (int64[U] y) <bool yes = {1}, int64 begin = {0}, int64 step = {1}> {
        n = If (yes) <then_branch = a () => (p) { p = Shape (x) },
            else_branch = b () => (q) { q = Size (x) }>
        y = Range (begin, n, step) }"""
    folded = model(text)
    graphfix.run(folded, "fold")
    assert "If" in ops(folded)
    (found,) = execute(folded, {"x": np.zeros(3, np.float32)})
    assert found.tolist() == [0, 1, 2]
    scalar = model(text.replace("p = Shape (x)", "p = Size (x)"))
    graphfix.run(scalar, "fold")
    assert "If" not in ops(scalar)


@pytest.mark.parametrize(
    ("first", "second", "after"),
    [
        ("one, far, front", "two, far, back", 1),
        ("one, far, front", "last, far, back, two", 1),  # with a step
        ("one, far, front", "two, far, front", 2),  # along the same axis
        ("begin, far, front", "two, far, back", 2),  # computed
    ],
)
def test_slices_along_different_axes_are_one(first: str, second: str, after: int) -> None:
    folded = fold(
        model(f"""m (float[B, T, 8] x, int64[1] begin) => (float[P, Q, R] y)
        <int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] far = {{9223372036854775807}},
         int64[1] front = {{0}}, int64[1] back = {{-1}}, int64[1] last = {{-3}}>
        {{ a = Slice (x, {first}) y = Slice (a, {second}) }}"""),
        3,
        4,
    )
    assert ops(folded).count("Slice") == after
