"""What the rules of fold know of shape tensors, also where a size is 0."""

import onnx_ir as ir
import pytest

from graphfix.facts.view import View
from graphfix.passes.common.fold_view import (
    FoldView,
    constant_of,
    exclusive_producer,
    forward_value,
    has_same_shape,
    keys_of,
    perm_of,
    root_of,
)
from tests.passes.models import model


@pytest.mark.parametrize(
    ("steps", "is_known"),
    [
        ("y = Identity (b)", True),
        ("y = Mul (b, two)", True),
        ("m = Mul (b, two) y = Div (m, two)", True),
        ("m = Mul (b, t) y = Div (m, t)", False),  # t may be 0
        ("y = Max (b, one)", False),  # b may be 0
        ("y = Mod (b, two)", True),
        ("y = Min (b, t)", True),
        ("d = Div (b, two) y = Sub (d, t)", True),
        ("c = Cast <to = 9> (b) y = Cast <to = 7> (c)", False),  # true, unless b is 0
        ("c = Cast <to = 9> (b) y = Where (c, two, one)", False),
        ("c = Cast <to = 6> (b) y = Cast <to = 7> (c)", True),
        ("m = Mul (b, nought) c = Cast <to = 9> (m) y = Where (c, one, two)", True),
        ("g = Gather (b, nought) y = Neg (g)", True),
        ("y = Identity (two)", True),
        ("y = Identity (fed)", False),
        ("y = Concat <axis = 0> (b, t)", True),
        ("s = Split <axis = 0, num_outputs = 1> (b) y = Identity (s)", True),
    ],
)
def test_contents_are_right_at_size_0(steps: str, *, is_known: bool) -> None:
    m = model(
        f"""m (float[B, T] x, int64[1] fed) => (int64[N] y) <int64[1] two = {{2}},
        int64[1] one = {{1}}, int64[1] nought = {{0}}> {{
        b = Shape <end = 1> (x) t = Shape <start = 1> (x) {steps} }}"""
    )
    assert (FoldView(View(m)).data(m.graph.outputs[0]) is not None) == is_known


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("Transpose <perm = [0, 2, 1]> (x)", (0, 2, 1)),
        ("Transpose (x)", (2, 1, 0)),
        ('Einsum <equation = "abc->acb"> (x)', (0, 2, 1)),
        ('Einsum <equation = "acb"> (x)', (0, 2, 1)),
        ('Einsum <equation = "abc->ac"> (x)', ()),
        ('Einsum <equation = "aac->aca"> (x)', ()),
    ],
)
def test_permutation(node: str, expected: tuple[int, ...]) -> None:
    m = model(f"m (float[2, 2, 4] x) => (float y) {{ y = {node} }}")
    assert perm_of(m.graph[0], FoldView(View(m))) == expected


def test_the_root_is_behind_views() -> None:
    m = model("""m (float[2, 3] x) => (float[6] y) <int64[1] flat = {-1}> {
        n = Neg (x) a = Identity (n) b = Flatten (a) y = Reshape (b, flat) }""")
    assert root_of(m.graph.outputs[0]) is m.graph[0].outputs[0]


@pytest.mark.parametrize(
    ("steps", "forwarded"),
    [
        ("n = Neg (x) a = Identity (n) y = Abs (a)", "the value"),
        ("n = Identity (x) a = Neg (n) y = Abs (a)", "the value"),
        ("n = Neg (x) y = Identity (n)", "a clone"),
        ("n = Neg (x) y = Identity (n) z = Abs (n)", None),  # n has another reader
        ("y = Identity (x)", None),  # the caller makes x
        ("n, o = Split <num_outputs = 2> (x) y = Identity (n)", None),
        (
            """n = If (c) <then_branch = g () => (t) { t = Neg (x) },
            else_branch = h () => (e) { e = Abs (x) }> y = Identity (n)""",
            None,
        ),
    ],
)
def test_a_value_that_a_node_only_passes_on(steps: str, forwarded: str | None) -> None:
    m = model(f"m (float[B, 4] x, bool c) => (float[B, 4] y) {{ {steps} }}")
    node = next(x for x in m.graph if x.op_type == "Identity")
    replacement = forward_value(node.inputs[0], node)
    assert (replacement is None) == (forwarded is None)
    if replacement is not None and forwarded == "the value":
        assert [*replacement.build(None)] == [node.inputs[0]]


@pytest.mark.parametrize(
    ("steps", "is_exclusive"),
    [
        ("n = Neg (x) y = Abs (n)", True),
        ("n = Neg (x) y = Add (n, n)", False),
        ("n = Neg (x) a = Abs (n) y = Add (n, a)", False),
        ("n = Neg (x) n2 = Sqrt (n) y = Abs (x)", True),
        ("n = Sqrt (x) y = Abs (n)", False),
    ],
)
def test_the_producer_for_a_single_reader(steps: str, *, is_exclusive: bool) -> None:
    m = model(f"m (float[4] x) => (float[4] y) {{ {steps} }}")
    value = m.graph[0].outputs[0]
    assert (exclusive_producer(value, "Neg", "Exp") is m.graph[0]) == is_exclusive
    assert exclusive_producer(m.graph.inputs[0], "Neg") is None
    assert exclusive_producer(None, "Neg") is None


def test_an_output_has_a_reader_more() -> None:
    m = model("m (float[4] x) => (float[4] n, float[4] y) { n = Neg (x) y = Abs (n) }")
    assert exclusive_producer(m.graph.outputs[0], "Neg") is None


def test_dims_and_contents_as_keys() -> None:
    m = model("""m (float[B, T] x) => (float[B, N] y) <int64[2] list = {3, 4}>
        { s = Shape (x) l = Identity (list) t = Transpose (x) n = Neg (x) y = Concat <axis = 1>
        (x, x) }""")
    look = FoldView(View(m))
    values = {x.name: x for node in m.graph for x in node.outputs}
    assert look.dims(m.graph.inputs[0]) == ("B", "T")
    assert look.dims(values["t"]) == ("T", "B")
    assert look.dims(m.graph.outputs[0]) == ("B", "2*T")
    assert look.dims(None) is None
    assert look.data(values["s"]) == ("B", "T")
    assert look.numbers(values["s"]) is None
    assert look.numbers(values["l"]) == (3, 4)
    assert look.data(None) is None
    assert has_same_shape(values["n"].producer(), m.graph.inputs[0], look)
    assert not has_same_shape(values["t"].producer(), m.graph.inputs[0], look)
    assert keys_of([]) == ()
    assert keys_of(None) is None
    assert keys_of([2, ir.SymbolicDim(None)]) is None


def test_what_is_in_scope() -> None:
    m = model("""m (float[4] x, bool c) => (float[4] y) { n = Neg (x)
        y = If (c) <then_branch = g () => (t) { a = Abs (n) t = Neg (a) },
        else_branch = h () => (e) { e = Identity (x) }> }""")
    look, (neg, branch) = FoldView(View(m)), [*m.graph]
    absolute, inner = branch.attributes["then_branch"].as_graph()
    (other,) = branch.attributes["else_branch"].as_graph()
    assert look.is_in_scope(inner, neg.outputs[0])
    assert look.is_in_scope(inner, absolute.outputs[0])
    assert look.is_in_scope(inner, m.graph.inputs[0])
    assert not look.is_in_scope(branch, absolute.outputs[0])
    assert not look.is_in_scope(other, absolute.outputs[0])
    assert not look.is_in_scope(other, ir.Value(name="nowhere"))


def test_equal_contents_have_one_number() -> None:
    m = model("""m (float[B, T] x, float[B, T] z) => (float[B, T] y) <int64[2] flat = {0, -1}> {
        s = Shape (x) r = Shape (z) n = Neg (x) a = Reshape (n, flat) b = Identity (n)
        y = Add (a, b) }""")
    number = FoldView(View(m)).numbering.number_of
    s, r, n, a, b = (node.outputs[0] for node in [*m.graph][:5])
    assert number(s) == number(r)
    assert number(a) == number(b)
    assert number(s) != number(n)


@pytest.mark.parametrize(("limit", "is_read"), [(3, True), (2, False)])
def test_constants_up_to_a_size(limit: int, *, is_read: bool) -> None:
    m = model("m (float[3] x) => (float[3] y) <float[3] w = {1, 2, 3}> { y = Add (x, w) }")
    assert (constant_of(m.graph.initializers["w"], limit) is not None) == is_read
    assert constant_of(m.graph.inputs[0]) is None


def test_float_weights_in_files_are_not_read() -> None:
    tensor = ir.ExternalTensor("none.data", 0, 12, ir.DataType.FLOAT, shape=ir.Shape([3]), name="w")
    assert constant_of(ir.Value(name="w", const_value=tensor)) is None
