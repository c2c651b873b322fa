"""fold: arithmetic on integers that exporters write in many nodes, and dims of 1 in front."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import graphfix
from tests.passes.models import execute, ops

NUMBERS = """int64 zero = {{0}}, int64 k = {{{k}}}, int64 one = {{1}}, int64 two = {{2}},
    int64 other = {{{other}}}, int64 minus = {{-1}}"""
TORCHSCRIPT = """cut = Div (x, k) below = Less (x, zero) rest = Mod (x, k)
    none = Equal (rest, zero) some = Not (none) both = And (below, some) less = Sub (cut, one)
    y = Where (both, less, cut)"""
DYNAMO = """below = Less (x, zero) rest = Mod (x, k) some = Cast <to = 9> (rest)
    both = And (some, below) n = Cast <to = 7> (both) cut = Div (x, k) y = Sub (cut, n)"""


def model(body: str, *, k: int = 2, dims: str = "B", dtype: str = "int64", more: str = "",
          out: str = "") -> ir.Model:  # fmt: skip
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        m ({dtype}[{dims}] x) => ({out or f"{dtype}[{dims}] y"})
        <{NUMBERS.format(k=k, other=k + 1)}{more}> {{ {body} }}"""
    return ir.from_onnx_text(text)


def run(m: ir.Model, **feeds: np.ndarray) -> list[np.ndarray]:
    return execute(m, feeds)


def folded(m: ir.Model) -> ir.Model:
    after = m.clone()
    graphfix.run(after, "fold")
    assert not graphfix.run(after, "fold").changed
    return after


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("n = Add (x, one) y = Less (other, n)", ["LessOrEqual"]),
        ("n = Add (x, one) y = Greater (n, other)", ["LessOrEqual"]),
        ("n = Sub (x, minus) y = Less (x, n)", ["LessOrEqual"]),
        ("n = Add (one, x) y = Less (other, n)", ["LessOrEqual"]),
        ("n = Add (x, one) y = Less (n, other)", ["Add", "Less"]),
        ("n = Add (x, two) y = Less (other, n)", ["Add", "Less"]),
        ("n = Add (x, one) z = Neg (n) y = Less (other, n)", ["Add", "Neg", "Less"]),
        ("n = Sub (x, minus) z = Neg (n) y = Less (other, n)", ["Sub", "Neg", "Less"]),
    ],
)
def test_less_than_one_more(body: str, left: list[str]) -> None:
    before = model(body, out="bool[B] y" + (", int64[B] z" if "z =" in body else ""))
    after = folded(before)
    assert ops(after) == left
    x = np.arange(-4, 5)
    np.testing.assert_array_equal(run(after, x=x), run(before, x=x))


def test_floats_are_compared_as_they_are() -> None:
    text = """m (float[B] x, float[B] z) => (bool[B] y) <float one = {1}> {
        n = Add (x, one) y = Less (z, n) }"""
    m = ir.from_onnx_text(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    assert not graphfix.run(m, "fold").changed


def test_what_is_added_and_taken_off_again() -> None:
    """A length after one convolution goes into the next less the one that was added."""
    before = model("n = Add (x, one) z = Neg (n) m = Sub (n, one) y = Mul (m, two)",
                   out="int64[B] y, int64[B] z")  # fmt: skip
    assert ops(folded(before)) == ["Add", "Neg", "Mul"]
    # Two nodes are two nodes, if the first is needed.
    before = model("n = Add (x, one) z = Neg (n) m = Add (n, two) y = Mul (m, two)",
                   out="int64[B] y, int64[B] z")  # fmt: skip
    assert not graphfix.run(before, "fold").changed


@pytest.mark.parametrize("body", [TORCHSCRIPT, DYNAMO])
@settings(max_examples=20, deadline=None)
@given(
    k=st.integers(1, 12),
    numbers=st.lists(st.integers(-(2**63) + 12, 2**63 - 1), min_size=1, max_size=8),
)
@example(k=5, numbers=[-6, -5, -4, -1, 0, 1, 4, 5, 6])
def test_a_division_that_rounds_down(body: str, k: int, numbers: list[int]) -> None:
    before = model(body, k=k)
    after = folded(before)
    assert k == 1 or ops(after) == ["Less", "Where", "Add", "Div"]  # by 1, other rules come first
    x = np.array(numbers, np.int64)
    (got,), (want,) = run(after, x=x), run(before, x=x)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(got, x // k)


@pytest.mark.parametrize("body", [TORCHSCRIPT, DYNAMO])
def test_a_rest_that_is_needed_as_well_is_used(body: str) -> None:
    before = model(f"{body} z = Neg (rest)", k=3, out="int64[B] y, int64[B] z")
    after = folded(before)
    assert sorted(ops(after)) == ["Div", "Mod", "Neg", "Sub"]
    x = np.arange(-9, 9)
    for got, want in zip(run(after, x=x), run(before, x=x), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("body", [TORCHSCRIPT, DYNAMO])
@pytest.mark.parametrize(
    ("count", "left"),
    [
        ("ReduceSum <keepdims = 0> (held, last)", ["Div"]),
        ("Neg (ones)", ["Less", "Where", "Add", "Div"]),
    ],
)
def test_of_a_count_the_division_is_one_node(body: str, count: str, left: list[str]) -> None:
    """A length that is counted from a mask is not below 0."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]> m (bool[B, T] mask) => (int64[B] y)
        <{NUMBERS.format(k=3, other=4)}, int64[1] last = {{-1}}> {{
        held = Cast <to = 7> (mask) ones = ReduceSum <keepdims = 0> (held, last)
        x = {count} {body} }}"""
    before = ir.from_onnx_text(text)
    after = folded(before)
    assert [x for x in ops(after) if x not in ("Cast", "ReduceSum", "Neg")] == left
    mask = np.tri(9, 11, dtype=bool)
    np.testing.assert_array_equal(run(after, mask=mask)[0], run(before, mask=mask)[0])


@pytest.mark.parametrize(
    "body",
    [
        TORCHSCRIPT.replace("Mod (x, k)", "Mod (x, other)"),
        TORCHSCRIPT.replace("Less (x, zero)", "Less (x, one)"),
        TORCHSCRIPT.replace("Sub (cut, one)", "Sub (cut, two)"),
        TORCHSCRIPT.replace("Where (both, less, cut)", "Where (both, cut, less)"),
        TORCHSCRIPT.replace("Mod (x, k)", "Mod <fmod = 1> (x, k)"),
        TORCHSCRIPT.replace("Div (x, k)", "Div (x, other)"),
        DYNAMO.replace("And (some, below)", "Or (some, below)"),
        DYNAMO.replace("Div (x, k)", "Mul (x, k)"),
        f"{TORCHSCRIPT} z = Cast <to = 7> (both)",
        f"{TORCHSCRIPT} z = Neg (less)",
        f"{TORCHSCRIPT.replace('Sub (cut, one)', 'Add (cut, minus)')} z = Neg (less)",
        f"{DYNAMO} z = Neg (n)",
    ],
)
def test_what_only_looks_like_one(body: str) -> None:
    out = "int64[B] y, int64[B] z" if " z = " in body else ""
    before = model(body, k=3, out=out)
    after = folded(before)
    assert ops(after) == ops(before)
    x = np.arange(-9, 9)
    for got, want in zip(run(after, x=x), run(before, x=x), strict=True):
        np.testing.assert_array_equal(got, want)


def strided(steps: list[tuple[int, int]], floats: bool, dtype: str = "int64") -> str:
    """What is left of a length after convolutions: less c, divided by k and rounded down."""
    to = {"int64": 7, "int32": 6}[dtype]
    lines, given = [], "x"
    for i in range(len(steps)):
        name = "y" if i == len(steps) - 1 else f"n{i}"
        lines.append(f"c{i} = Cast <to = {to}> (number{i}) v{i} = Sub ({given}, c{i})")
        if floats:
            lines.append(f"f{i} = Cast <to = 1> (v{i}) q{i} = Div (f{i}, k{i})")
            lines.append(f"w{i} = Floor (q{i}) {name} = Cast <to = {to}> (w{i})")
        else:
            lines.append(f"by{i} = Cast <to = {to}> (k{i}) r{i} = Mod (v{i}, by{i})")
            lines.append(f"w{i} = Sub (v{i}, r{i}) {name} = Div (w{i}, by{i})")
        given = name
    numbers = [f"int64 number{i} = {{{c}}}, float k{i} = {{{k}}}" for i, (c, k) in enumerate(steps)]
    text = f"m ({dtype}[B] x) => ({dtype}[B] y) <{', '.join(numbers)}> {{ {' '.join(lines)} }}"
    return f'<ir_version: 8, opset_import: ["" : 17]> {text}'


@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize("floats", [True, False])
@settings(max_examples=20, deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(-9, 9), st.integers(2, 7)), min_size=2, max_size=5),
    numbers=st.lists(st.integers(-(2**23), 2**23), min_size=1, max_size=8),
)
@example(steps=[(10, 5), *[(3, 2)] * 4, *[(2, 2)] * 2], numbers=[-3, 0, 399, 400, 16000, 2**23])
def test_strides_one_after_the_other_are_one(
    dtype: str, floats: bool, steps: list[tuple[int, int]], numbers: list[int]
) -> None:
    """As wav2vec 2.0 takes seven of them off the length of a clip."""
    before = ir.from_onnx_text(strided(steps, floats, dtype))
    after = folded(before)
    rounding = "Floor" if floats else {"int64": "Less", "int32": "Mod"}[dtype]
    assert ops(after).count(rounding) == ops(after).count("Div") == 1
    x = np.array(numbers, dtype)
    np.testing.assert_array_equal(run(after, x=x)[0], run(before, x=x)[0])


@settings(max_examples=20, deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(-9, 9), st.integers(2, 7)), min_size=2, max_size=4),
    numbers=st.lists(st.integers(-(2**22), 2**22), min_size=1, max_size=8),
)
@example(steps=[(1, 2)] * 3, numbers=[0, 1, 7, 8, 9, 3000])
def test_strides_in_floats_are_one(steps: list[tuple[int, int]], numbers: list[int]) -> None:
    """As NeMo has them: ``floor((x - c) / k + 1)``, with no integer between."""
    lines, given_, held = ["v = Cast <to = 1> (x)"], "v", ["float one = {1}"]
    for i, (c, k) in enumerate(steps):
        held += [f"float c{i} = {{{c}}}", f"float k{i} = {{{k}}}"]
        lines.append(f"s{i} = Sub ({given_}, c{i}) q{i} = Div (s{i}, k{i})")
        lines.append(f"p{i} = Add (q{i}, one) f{i} = Floor (p{i})")
        given_ = f"f{i}"
    body = f"{' '.join(lines)} y = Identity ({given_})"
    before = ir.from_onnx_text(
        f'<ir_version: 8, opset_import: ["" : 17]> m (int64[B] x) => (float[B] y) '
        f"<{', '.join(held)}> {{ {body} }}"
    )
    after = folded(before)
    assert ops(after) == ["Add", "Cast", "Div", "Floor"] or ops(after)[:2] == ["Cast", "Div"]
    x = np.array(numbers, np.int64)
    np.testing.assert_array_equal(run(after, x=x)[0], run(before, x=x)[0])


@pytest.mark.parametrize(
    ("given", "start", "more"),
    [
        ("float[B] x", "v = Neg (x)", "1"),  # what is no whole number to begin with
        ("int64[B] x", "v = Cast <to = 1> (x)", "0.5"),
        ("int64[B] x", "v = Cast <to = 1> (x)", "inf"),
        ("int64[B] x", "v = Cast <to = 10> (x) w = Cast <to = 1> (v)", "1"),
        ("int64[B] x", "n = Cast <to = 6> (x) v = Cast <to = 1> (n)", "1"),
    ],
)
def test_floors_that_are_no_strides(given: str, start: str, more: str) -> None:
    last = "w" if " w =" in start else "v"
    text = f"""m ({given}) => (float[B] y) <float two = {{2}}, float more = {{{more}}}> {{
        {start} a = Div ({last}, two) b = Floor (a) c = Add (b, more) d = Div (c, two)
        y = Floor (d) }}"""
    m = ir.from_onnx_text(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    after = m.clone()
    graphfix.run(after, "fold")
    assert ops(after).count("Floor") == (1 if "to = 6" in start else 2)
    if "to = 6" in start:
        assert ops(after)[0] == "Cast"  # 2**32 is 0 in it, and stays so


@pytest.mark.parametrize("floats", [True, False])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("v1 = Sub (n0, c1)", "v1 = Mul (n0, c1)"),
        ("v1 = Sub (n0, c1)", "v1 = Sub (c1, n0)"),
        ("v1 = Sub (n0, c1)", "v1 = Sub (n0, x)"),
        ("v1 = Sub (n0, c1)", "v0a = Neg (n0) v1 = Sub (v0a, n0)"),
        ("float k1 = {3}", "float k1 = {-3}"),
        ("float k1 = {3}", "float k1 = {16777216}"),
    ],
)
def test_strides_that_are_not_one(old: str, new: str, floats: bool) -> None:
    text = strided([(1, 2), (2, 3)], floats)
    assert old in text
    before = ir.from_onnx_text(text.replace(old, new))
    after = folded(before)
    assert ops(after).count("Floor" if floats else "Mod") == 2
    x = np.arange(-50, 50)
    np.testing.assert_array_equal(run(after, x=x)[0], run(before, x=x)[0])


@pytest.mark.parametrize("floats", [True, False])
def test_a_length_between_two_strides_that_something_else_reads_stays(floats: bool) -> None:
    text = strided([(1, 2), (2, 3)], floats).replace("y)", "y, int64[B] n0)", 1)
    before = ir.from_onnx_text(text)
    after = folded(before)
    assert ops(after).count("Floor" if floats else "Mod") == 2


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("a = Add (x, one) y0 = Sub (a, one) y = Neg (y0)", ["Neg"]),
        ("a = Add (x, one) y = Sub (a, two)", ["Add"]),
        ("a = Sub (x, two) b = Sub (a, two) y = Add (b, two)", ["Add"]),
        ("a = Add (x, one) y0 = Sub (two, a) y = Neg (y0)", ["Add", "Sub", "Neg"]),
    ],
)
def test_numbers_added_one_after_the_other(body: str, left: list[str]) -> None:
    before = model(body)
    after = folded(before)
    assert ops(after) == left
    x = np.array([2**63 - 1, -(2**63), 0, 7], np.int64)  # they wrap around, and back
    np.testing.assert_array_equal(run(after, x=x)[0], run(before, x=x)[0])


def test_floats_are_added_as_they_were() -> None:
    body = "a = Add (x, tenth) y = Sub (a, tenth)"
    before = model(body, dtype="float", more=", float tenth = {0.1}")
    assert ops(folded(before)) == ["Add", "Sub"]


TURN = """int64[1] last = {-1}, int64[1] begin = {-9223372036854775807},
    int64[1] axis = {1}, int64 a = {1}"""
SUM = """t = Slice (x, last, begin, axis, last) s = CumSum (t, a)
    y = Slice (s, last, begin, axis, last)"""


@pytest.mark.parametrize("ways", ["", "<exclusive = 1>", "<reverse = 1>"])
def test_a_sum_from_the_end(ways: str) -> None:
    before = model(SUM.replace("CumSum", f"CumSum {ways}"), dims="B, T", more=f", {TURN}")
    after = folded(before)
    assert ops(after) == ["CumSum"]
    x = np.random.default_rng(0).integers(-5, 5, (3, 6))
    np.testing.assert_array_equal(run(after, x=x)[0], run(before, x=x)[0])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("CumSum (t, a)", "CumSum (t, zero)"),
        ("y = Slice (s, last, begin, axis, last)", "y = Identity (s)"),
        ("y = Slice (s,", "z = Identity (t) y = Slice (s,"),
        ("y = Slice (s,", "z = Neg (t) y = Slice (s,"),
        ("y = Slice (s,", "z = Neg (s) y = Slice (s,"),
    ],
)  # fmt: skip
def test_what_is_no_sum_from_the_end(old: str, new: str) -> None:
    out = "int64[B, T] y, int64[B, T] z" if " z = " in f" {new}" else ""
    before = model(SUM.replace(old, new), dims="B, T", more=f", {TURN}", out=out)
    after = folded(before)
    assert ops(after).count("Slice") == ops(before).count("Slice")
    x = np.random.default_rng(0).integers(-5, 5, (3, 6))
    for got, want in zip(run(after, x=x), run(before, x=x), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_sum_of_floats_from_the_end_stays() -> None:
    before = model(SUM, dims="B, T", dtype="float", more=f", {TURN}")
    assert ops(folded(before)) == ["Slice", "CumSum", "Slice"]


ROW = "float[B, T, 8] x, float[T, 8] row, bool[T] keep"
LEADING = {
    "a row that is added": ("r = Unsqueeze (row, first) y = Add (x, r)", ["Add"]),
    "two dims": (
        "r = Unsqueeze (row, two) s = Unsqueeze (x, first) y = Mul (r, s)",
        ["Unsqueeze", "Unsqueeze", "Mul"],
    ),
    "a mask": (
        "k = Unsqueeze (keep, last) r = Unsqueeze (k, first) y = Where (r, x, x)",
        ["Unsqueeze", "Where"],
    ),
    "one of two": (
        "r = Unsqueeze (row, first) s = Unsqueeze (row, first) y = Mul (r, s)",
        ["Unsqueeze", "Mul"],
    ),
    "an axis inside": ("r = Unsqueeze (keep, both) c = Cast <to = 1> (r) y = Mul (x, c)", None),
    "something else reads it": (
        "r = Unsqueeze (row, first) z = Relu (r) y0 = Add (x, r) y = Add (y0, z)",
        ["Unsqueeze", "Relu", "Add", "Add"],
    ),
}


@pytest.mark.parametrize("name", LEADING)
def test_dims_of_one_in_front_come_by_themselves(name: str) -> None:
    body, left = LEADING[name]
    before = ir.from_onnx_text(f"""<ir_version: 8, opset_import: ["" : 17]>
        m ({ROW}) => (float y) <int64[1] first = {{0}}, int64[2] two = {{0, 1}},
        int64[2] both = {{0, 2}}, int64[1] last = {{1}}, int64[1] end = {{3}}> {{ {body} }}""")
    after = folded(before)
    if left is not None:
        assert ops(after) == left
    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.standard_normal((2, 5, 8)).astype(np.float32),
        "row": rng.standard_normal((5, 8)).astype(np.float32),
        "keep": np.arange(5) < 3,
    }
    (got,), (want,) = (run(x, **feeds) for x in (after, before))
    assert got.shape == want.shape
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("op", "opset", "left"),
    [
        ("Max", 7, ["Unsqueeze", "Max"]),
        ("Sum", 7, ["Unsqueeze", "Sum"]),
        ("Max", 8, ["Max"]),
        ("Sum", 8, ["Sum"]),
        ("Add", 6, ["Unsqueeze", "Add"]),
        ("Add", 7, ["Add"]),
    ],
)
def test_dims_of_one_stay_where_an_opset_does_not_broadcast(
    op: str, opset: int, left: list[str]
) -> None:
    before = ir.from_onnx_text(f"""<ir_version: 4, opset_import: ["" : {opset}]>
        m (float[1, 3] x, float[3] row) => (float[1, 3] y)
        {{ r = Unsqueeze <axes = [0]> (row) y = {op} (x, r) }}""")
    assert ops(folded(before)) == left


def test_a_quotient_that_no_tensor_holds_is_left() -> None:
    """ONNX Runtime dies of it (SIGFPE), and Python's integers go on."""
    m = model("least = Constant <value_int = -9223372036854775808> () d = Div (least, minus) "
              "s = Mul (d, zero) y = Add (x, s)")  # fmt: skip
    graphfix.run(m, "fold")
    assert "Div" in ops(m)


LEAST, MOST = -(2**63), 2**63 - 1


@pytest.mark.parametrize("ends", [(-4, LEAST), (0, MOST), (2, MOST), (-1, LEAST), (9, 0), (9, -9)])
@pytest.mark.parametrize("kind", ["int64", "float"])
def test_a_slice_backwards_is_what_onnx_runtime_takes(ends: tuple[int, int], kind: str) -> None:
    before = ir.from_onnx_text(f"""<ir_version: 8, opset_import: ["" : 17]>
        m ({kind}[1] x) => ({kind}[N] y) <{kind}[3] c = {{5, 6, 7}}, int64[1] s = {{{ends[0]}}},
        int64[1] e = {{{ends[1]}}}, int64[1] a = {{0}}, int64[1] back = {{-1}}>
        {{ cut = Slice (c, s, e, a, back) y = Add (cut, x) }}""")
    feeds = {"x": np.ones(1, np.int64 if kind == "int64" else np.float32)}
    after = folded(before)
    assert ops(after) == ["Add"]
    np.testing.assert_array_equal(run(after, **feeds)[0], run(before, **feeds)[0])


def test_integers_beyond_their_type_start_again() -> None:
    """As ONNX Runtime has them; half of what was twice the least is not the least again."""
    before = model("u = Mul (c, two) h = Div (u, two) y = Add (x, h)",
                   more=f", int64[2] c = {{{LEAST}, 5}}", dims="2")  # fmt: skip
    after = folded(before)
    assert ops(after) == ["Add"]
    (got,), (want,) = (run(m, x=np.array([1, 1])) for m in (after, before))
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(got, [1, 6])


def test_a_name_in_branches_of_two_ifs() -> None:
    before = ir.from_onnx_text("""<ir_version: 8, opset_import: ["" : 17]>
        m (float[4] x, bool c) => (float[4] y, float[4] z) <bool yes = {1}> {
        y = If (yes) <then_branch = a () => (float[4] o) { m = Neg (x) o = Abs (m) },
            else_branch = b () => (float[4] p) { p = Abs (x) }>
        z = If (c) <then_branch = d () => (float[4] q) { m = Exp (x) q = Neg (m) },
            else_branch = e () => (float[4] r) { m = Sin (x) r = Neg (m) }> }""")
    after = folded(before)
    feeds = {"x": np.arange(4, dtype=np.float32), "c": np.array(False)}
    for old, new in zip(run(before, **feeds), run(after, **feeds), strict=True):
        np.testing.assert_array_equal(old, new)
    names = [x.name for node in after.graph.all_nodes() for x in node.outputs]
    assert names.count("m") == 2  # one for each branch of the If that stays


COMPARED = """<ir_version: 8, opset_import: ["" : 17]> m (int32[B, 1] x) => (bool[B, 3] y{more})
    <int64[3] places = {{0, 1, {last}}}> {{ {cast} y = {op} ({operands}) }}"""


@pytest.mark.parametrize("op", ["Less", "GreaterOrEqual"])
@pytest.mark.parametrize("operands", ["places, wide", "wide, places"])
@pytest.mark.parametrize(
    ("last", "cast", "more", "left"),
    [
        (2, "wide = Cast <to = 7> (x)", "", 1),
        (2**31 - 1, "wide = Cast <to = 7> (x)", "", 1),
        (2**31, "wide = Cast <to = 7> (x)", "", 2),  # no int32
        (2, "wide = Cast <to = 7> (x)", ", int64[B, 1] wide", 2),  # it is cast in any case
        (2, "f = Cast <to = 1> (x) wide = Cast <to = 7> (f)", "", 3),
    ],
)
def test_what_was_an_int32_is_compared_as_one(
    op: str, operands: str, last: int, cast: str, more: str, left: int
) -> None:
    text = COMPARED.format(op=op, operands=operands, last=last, cast=cast, more=more)
    before = ir.from_onnx_text(text)
    after = folded(before)
    assert len(ops(after)) == left
    x = np.array([[0], [1], [2], [-(2**31)], [2**31 - 1]], np.int32)
    np.testing.assert_array_equal(run(after, x=x)[0], run(before, x=x)[0])
