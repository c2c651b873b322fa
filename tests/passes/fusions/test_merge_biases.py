"""merge-biases: which constants become one, which do not, and that the numbers stay."""

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import graphfix
from graphfix.job import planning
from tests.passes.models import opened

HEAD = """(float[B, T, 4] x, float[B, T, 4] z, float[4] late, int64[B, T] ids) => (float[N, M, K] y)
    <float[4] b = {1, 2, 3, 4}, float[1, 4] c = {5, -6, 7, 8}, float half = {0.5},
     float[2, 2] u = {1, 0, 0, 1}, float[2, 1, 2] v = {3, 1, 2, 4}, float[2] pair = {2, 3},
     float[4] s = {3, 1, 2, 4}, float[1, 1, 1, 4] deep = {1, 2, 3, 4}, float[1] one = {5},
     int64[4] heads = {0, 0, 2, 2}, int64[3] back = {0, 0, 4}, int64[1] zero = {0},
     int64[2] flat = {0, -1}>"""
_WEIGHTS = "k = Transpose <perm = [0, 2, 1]> (x) s0 = MatMul (x, k)"
_WEIGHED = "v0 = Add (z, b) o = MatMul (p, v0) y = Add (o, c)"
_OF_HEADS = "t = Transpose <perm = [0, 2, 1, 3]> (h) a = Add (t, v)"
_BACK = "f = Transpose <perm = [0, 2, 1, 3]> (a) y = Reshape (f, back)"


def model(body: str, head: str = HEAD) -> ir.Model:
    return ir.from_onnx_text(f'<ir_version: 8, opset_import: ["" : 17]> m {head} {{ {body} }}')


def run(m: ir.Model) -> np.ndarray:
    random = np.random.default_rng(0)
    feeds = {x: random.standard_normal((2, 5, 4)).astype(np.float32) for x in ("x", "z")}
    session = opened(m)
    feeds |= {"late": np.ones(4, np.float32), "ids": np.tile(np.arange(5)[::-1], (2, 1))}
    return session.run(None, {i.name: feeds[i.name] for i in session.get_inputs()})[0]


def kernels(m: ir.Model) -> int:
    found = planning.kernels_per_run(m)
    assert found is not None
    return found["all"]


@pytest.mark.parametrize(
    "body",
    [
        "a = Add (x, b) y = Add (a, c)",
        "a = Add (b, x) m = Mul (half, a) y = Add (c, m)",
        "a = Add (x, b) m = Div (a, s) y = Add (m, c)",
        "a = Add (x, b) r = Add (z, a) m = Mul (r, s) y = Add (m, one)",
        f"r = Add (x, b) h = Reshape (r, heads) {_OF_HEADS} {_BACK}",
        "r = Add (x, c) h = Reshape (r, heads) a = Add (h, u) y = Reshape (a, back)",
        "r = Add (x, c) h = Unsqueeze (r, zero) a = Add (h, deep) y = Squeeze (a, zero)",
        "n = Shape <start = 1, end = 2> (x) r = Slice (table, zero, n, zero) a = Add (x, c) "
        "y = Add (a, r)",
        "a = Add (b, x) r = Gather (table, ids) y = Add (r, a)",
        "a = Add (x, b) r = Mul (a, s) p = Add (r, c) y = Sub (p, a)",
        "a = Add (x, b) r = Add (a, z) q = Add (r, z) y = Add (q, c)",
        "a = Add (x, b) m = Mul (a, s) t = Div (m, half) p = Add (t, c) y = Sub (p, m)",
        "a = Sub (x, b) r = Sub (z, a) p = Sub (r, c) y = Tanh (p)",
        "a = Sub (x, half) m = MatMul (a, square) y = Add (m, pair)",
        "a = Add (x, b) m = MatMul (a, square) y = Sub (m, half)",
        "a = Add (x, b) m = Add (z, c) y = Sub (a, m)",
        f"r = Add (x, b) n = Shape (r) h = Reshape (r, heads) {_OF_HEADS} m = Shape (t) "
        "f = Transpose <perm = [0, 2, 1, 3]> (a) e = Reshape (f, back) g = Expand (z, n) "
        "d = ReduceProd <keepdims = 0> (m) k = Cast <to = 1> (d) q = Mul (g, k) y = Add (e, q)",
        f"{_WEIGHTS} p = Softmax <axis = -1> (s0) {_WEIGHED}",
        "n = LayerNormalization (x, s) y = Add (n, c)",
        "n = LayerNormalization (x, s, b) y = Add (c, n)",
        "t = Transpose <perm = [0, 2, 1]> (x) n = InstanceNormalization (t, s, b) "
        "d = Unsqueeze (s, at) a = Add (n, d) y = Identity (a)",
    ],
)
def test_two_constants_are_one(body: str) -> None:
    more = ", ".join(str(x) for x in range(24))
    head = f"""{HEAD[:-1]}, int64[1] at = {{1}}, float[6, 4] table = {{{more}}},
        float[4, 2] square = {{1, 2, 3, -1, 2, 1, 1, 4}}>"""
    before, after = model(body, head), model(body, head)
    assert graphfix.run(after, "merge-biases").changed
    np.testing.assert_allclose(run(after), run(before), rtol=1e-5, atol=1e-5)
    assert kernels(after) == kernels(before) - 1
    assert not graphfix.run(after, "merge-biases").changed


def test_each_of_several_sums_has_it() -> None:
    body = """r = Add (x, b) h = Reshape (r, heads) p = Add (h, u) q = Add (h, half) m = Mul (p, q)
        y = Reshape (m, back)"""
    before, after = model(body), model(body)
    graphfix.run(after, "merge-biases,fold")
    np.testing.assert_allclose(run(after), run(before), rtol=1e-5, atol=1e-5)
    assert kernels(after) == kernels(before) - 1


def test_what_an_activation_or_a_caller_reads_has_its_sum() -> None:
    """A product and the activation right behind it are one kernel, and stay one."""
    body = """a = Add (x, b) p = Add (a, c) w = Add (p, b) m = MatMul (w, square) t = Tanh (m)
        q = Add (w, z) y = Mul (q, t)"""
    head = HEAD[:-1] + ", float[4, 4] square = {1, 2, 3, 4, 1, 2, -3, 4, 1, -2, 3, 4, -1, 2, 3, 4}>"
    before, after = model(body, head), model(body, head)
    graphfix.run(after, "merge-biases")
    assert kernels(after) == kernels(before) - 2
    np.testing.assert_allclose(run(after), run(before), rtol=1e-5, atol=1e-5)
    read = "y = Add (x, b) p = Add (y, c) o = Tanh (p)"
    both = HEAD.replace("float[N, M, K] y", "float[B, T, 4] y, float[B, T, 4] o")
    assert not graphfix.run(model(read, both), "merge-biases").changed


def test_a_sum_stays_where_it_was() -> None:
    """The last one, before what is no sum; and all of them are one place."""
    body = "r = Add (x, c) h = Reshape (r, heads) a = Add (h, u) y = Reshape (a, back)"
    after = model(body)
    assert len([*graphfix.get_pass("merge-biases").sites(after)]) == 1
    graphfix.run(after, "merge-biases")
    assert [x.op_type for x in after.graph][-2:] == ["Add", "Reshape"]


# icefall's SwooshL by torch's logaddexp, in a residual stream that no norm interrupts.
_SWOOSH = """p{0} = MatMul ({1}, square) a{0} = Add (p{0}, b) s{0} = Sub (a{0}, four)
    e{0} = Softplus (s{0}) k{0} = Mul (a{0}, half) d{0} = Sub (e{0}, k{0}) f{0} = Sub (d{0}, half)
    q{0} = MatMul (f{0}, square) g{0} = Add (q{0}, c) r{0} = Add ({1}, g{0})"""


def test_a_residual_stream_is_added_to_once() -> None:
    """Each block adds one list before its activation; all others are one, before the last."""
    blocks = " ".join(_SWOOSH.format(i, f"r{i - 1}" if i else "x") for i in range(3))
    more = """, float four = {4},
        float[4, 4] square = {1, 2, 3, 4, 1, 2, -3, 4, 1, -2, 3, 4, -1, 2, 3, 4}>"""
    before, after = (model(f"{blocks} y = Relu (r2)", HEAD[:-1] + more) for _ in range(2))
    assert graphfix.run(after, "merge-biases").changed
    np.testing.assert_allclose(run(after), run(before), rtol=1e-4, atol=1e-3)
    assert kernels(before) - kernels(after) == 3 * 4 - (3 + 1)
    assert not graphfix.run(after, "merge-biases").changed


def test_it_follows_a_constant_as_far_as_it_goes() -> None:
    """Through 900 nodes, of which only the first sum is asked for all of them."""
    chain = " ".join(
        f"a{i} = Add (m{i - 1}, b) t{i} = Transpose <perm = [0, 2, 1]> (a{i}) "
        f"m{i} = Transpose <perm = [0, 2, 1]> (t{i})"
        for i in range(1, 301)
    )
    body = f"m0 = Identity (x) {chain} y = Tanh (m300)"
    before, after = model(body), model(body)
    graphfix.run(after, "merge-biases")
    assert kernels(before) - kernels(after) == 299
    np.testing.assert_allclose(run(after), run(before), rtol=1e-4)


@pytest.mark.parametrize(
    "body",
    [
        "a = Add (x, b) m = Add (z, c) p = Sub (m, a) q = Add (a, m) y = Mul (p, q)",
        "a = Add (x, b) m = MatMul (a, square) r = Relu (m) y = Add (r, c)",
        "a = Add (x, b) m = MatMul (square, a) y = Add (m, c)",
        "h = Cast <to = 10> (x) a = Add (h, half_b) m = MatMul (a, half_w) p = Add (m, half_b) "
        "y = Cast <to = 1> (p)",  # float16 rounds the product of the list and the weights
        "a = Sub (b, x) y = Add (a, c)",
        "n = Tanh (x) g = Mul (n, s) a = Add (g, b) m = MatMul (a, square) y = Add (m, c)",
        """a = Add (x, b) k = Cast <to = 9> (one) y = If (k)
        < then_branch = yes () => (float[B, T, 4] p) { p = Add (a, c) },
          else_branch = no () => (float[B, T, 4] q) { q = Add (a, b) } >""",
        f"{_WEIGHTS} p = Softmax <axis = 1> (s0) {_WEIGHED}",
        f"{_WEIGHTS} p = LogSoftmax <axis = -1> (s0) {_WEIGHED}",
        "t = Transpose <perm = [0, 2, 1]> (x) s0 = MatMul (t, x) p = Softmax <axis = 2> (s0) "
        "v0 = Add (t, column) o = MatMul (p, v0) y = Add (o, column)",
        # A row without any weight is 0, not b.
        "l = Slice (z, zero, far, at) t = Transpose <perm = [0, 2, 1]> (l) s0 = MatMul (x, t) "
        "p = Softmax <axis = 2> (s0) v0 = Add (l, b) o = MatMul (p, v0) y = Add (o, c)",
        "a = Add (x, mask) m = Add (a, b) y = Add (m, c)",  # digits would be lost
        "a = Add (x, b) m = Mul (a, mask) y = Add (m, c)",
        "a = Add (x, b) m = Div (a, tiny) y = Add (m, c)",
        "a = Add (x, late) y = Add (a, b)",
        "a = Add (x, b) y = Add (a, late)",
        "a = Add (x, b) r = Relu (a) y = Add (r, c)",
        "a = Add (x, b) m = Div (half, a) y = Add (m, c)",
        "a = Add (x, b) m = Mul (a, z) y = Add (m, c)",
        "a = Add (x, b) p = Add (a, c) y = Mul (p, a)",
        "d = Add (x, deep) p = Add (d, c) y = Squeeze (p, zero)",  # more axes by the first
        "r = Add (x, pair) y = Add (r, c)",  # pair is for a last axis of 1 only, here a symbol
        "r = Add (x, pairs) h = Reshape (r, heads) a = Add (h, u) y = Reshape (a, back)",
        "m = Div (x, half) a = Add (m, one) q = Div (a, half) y = Add (q, half)",  # a length?
        "a = Add (x, b) r = Gather (late2, ids) y = Add (a, r)",
        "a = Add (x, c) r = Gather <axis = 1> (square, ids) p = Add (a, r) y = Identity (p)",
        "a = Add (x, c) r = Gather (square, ids) s0 = Add (a, r) y = MatMul (s0, square)",
        "a = Add (x, grid) r = Gather (square, ids) y = Add (a, r)",
        "a = Add (x, b) r = Gather (square, ids) p = Add (a, r) y = Mul (p, a)",
        "a = Add (x, b) p = Add (a, c) q = Add (a, z) y = Mul (p, q)",
        "a = Add (x, rows5) r = Gather (square, ids) y = Add (a, r)",
        "a = Add (x, c) r = Gather (square, ids) p = Add (a, r) y = Add (p, r)",
        "n, mean = LayerNormalization (x, s) a = Add (n, c) y = Add (a, mean)",
        "n = LayerNormalization (x, s) a = Add (n, c) y = Add (a, n)",
        "n = LayerNormalization (x, s) y = Add (n, one)",
        "n = LayerNormalization (x, late) y = Add (n, c)",
    ],
)
def test_what_stays(body: str) -> None:
    more = """, float[1, 5, 1] pairs = {1, 2, 3, 4, 5}, float[5, 1] rows5 = {1, 2, 3, 4, 5},
        float16[4] half_b = {1, 2, 3, 4},
        float16[4, 4] half_w = {1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4},
        float mask = {-10000}, float[4, 1] column = {1, 2, 3, 4},
        int64[1] far = {2}, int64[1] at = {1}, float tiny = {0.0001},
        float[2, 4] grid = {1, 2, 3, 4, 1, 2, 3, 4},
        float[4, 4] square = {1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4}>"""
    head = f"{HEAD[:-1]}{more}".replace("late,", "late, float[5, 4] late2,", 1)
    if "pair)" in body:
        head = head.replace("float[B, T, 4] x", "float[B, T, L] x")
    assert not graphfix.run(model(body, head), "merge-biases").changed


_STEPS = (
    "Mul ({}, half)",
    "Div ({}, half)",
    "Add ({}, z)",
    "Sub (z, {})",
    "Sub ({}, c)",
    "MatMul ({}, square)",
    "Mul ({}, s)",
    "Reshape ({}, heads)",
    "Reshape ({}, back)",
    "Transpose <perm = [1, 0, 2]> ({})",
    "Transpose <perm = [2, 0, 1, 3]> ({})",
    "Transpose ({})",
    "Unsqueeze ({}, zero)",
    "Squeeze ({}, zero)",
)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["b", "c", "half", "one"]),
    st.lists(st.sampled_from(_STEPS), max_size=4),
    st.sampled_from(["b", "half", "u", "v", "pair"]),
)
def test_whatever_lies_between(first: str, steps: list[str], last: str) -> None:
    """Any layout between two constants: what runs at all gives the same numbers."""
    body, value = f"v0 = Add (x, {first})", "v0"
    for i, step in enumerate(steps, 1):
        body, value = f"{body} v{i} = {step.format(value)}", f"v{i}"
    body = f"{body} y = Add ({value}, {last})"
    square = ", float[4, 4] square = {1, 2, 3, 4, 1, 2, -3, 4, 1, -2, 3, 4, -1, 2, 3, 4}>"
    head = HEAD.replace("float[N, M, K] y", "float y")[:-1] + square
    before = model(body, head)
    before.graph.outputs[0].shape = None
    after = before.clone()
    try:
        wanted = run(before)
    except Exception:
        return  # steps that do not fit each other
    graphfix.run(after, "merge-biases")
    np.testing.assert_allclose(run(after), wanted, rtol=1e-4, atol=1e-3)
    assert kernels(after) <= kernels(before)


_NODES = (
    *("Add ({0}, b)", "Sub ({0}, c)", "Add ({0}, half)", "Mul ({0}, s)", "Div ({0}, half)"),
    *("Add ({0}, {1})", "Sub ({0}, {1})", "MatMul ({0}, square)", "Tanh ({0})", "Mul ({0}, {1})"),
    *("Transpose <perm = [0, 2, 1]> ({0})", "Sub (c, {0})", "Add ({0}, deep)"),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(_NODES), *[st.integers(1, 4)] * 2), max_size=14))
# ONNX Runtime computes equal sums once, and what is added to them.
@example(
    [
        ("Add ({0}, b)", 2, 1),
        ("Add ({0}, b)", 3, 1),
        ("Mul ({0}, s)", 1, 1),
        ("Add ({0}, b)", 2, 1),
        ("Add ({0}, b)", 4, 1),
    ]
)
def test_whatever_reads_what_lies_between(nodes: list[tuple[str, int, int]]) -> None:
    """Graphs in which each value may be read several times."""
    values, body = ["x", "z"], ""
    for text, *back in nodes:
        made = f"v{len(values)}"
        read = [values[max(len(values) - i, 0)] for i in back]
        body += f" {made} = {text.format(*read)}"
        values.append(made)
    unread = [x for x in values if f"{x})" not in body and f"{x}," not in body]
    body += f" y0 = Tanh ({values[0]})"
    for i, value in enumerate(unread):
        body += f" t{i} = Tanh ({value}) y{i + 1} = Mul (y{i}, t{i})"
    square = ", float[4, 4] square = {1, 2, 3, 4, 1, 2, -3, 4, 1, -2, 3, 4, -1, 2, 3, 4}>"
    head = HEAD.replace("float[N, M, K] y", "float y")[:-1] + square
    before = model(f"{body} y = Identity (y{len(unread)})", head)
    before.graph.outputs[0].shape = None
    after = before.clone()
    try:
        wanted = run(before)
    except Exception:
        return  # a Transpose and a sum that do not fit each other
    graphfix.run(after, "merge-biases")
    # Of a difference that is 0, only the rounding of numbers around 1 is left.
    atol = max(1e-4 * np.abs(wanted).max(), 1e-6)
    np.testing.assert_allclose(run(after), wanted, rtol=1e-4, atol=atol)
    assert kernels(after) <= kernels(before)
    assert not graphfix.run(after, "merge-biases").changed
