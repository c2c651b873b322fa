"""Sizes that a weight dictates: each graph is text, and runs on ONNX Runtime where it is solved."""

from __future__ import annotations

import math

import onnx_ir as ir
import pytest

from graphfix.errors import FeedError
from graphfix.feeds.case import Case, Cases
from graphfix.feeds.case_search import make_cases, search_cases
from graphfix.feeds.signature import Signature
from graphfix.runtime.local_session import Session

HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>\n'


def weight(name: str, *dims: int, kind: str = "float") -> str:
    numbers = ", ".join(str(i % 7) for i in range(math.prod(dims)))
    return f'{kind}[{", ".join(map(str, dims))}] "{name}" = {{{numbers}}}'


def model(inputs: str, output: str, weights: tuple[str, ...], body: str) -> ir.Model:
    constants = f"<{', '.join(weights)}>" if weights else ""
    return ir.from_onnx_text(f"{HEAD}g ({inputs}) => ({output}) {constants} {{ {body} }}")


W = weight("w", 10, 8)
BRANCHES = (
    "y = If (c) <then_branch = t () => ({then}) {{ {a} }}, "
    "else_branch = e () => ({other}) {{ {b} }}>"
)
HALVES = ("float[3] scales = {1.0, 1.0, 2.0}",)
TWICE = 'u = Resize <mode = "nearest"> (%s, , scales)'
SURE = {
    "MatMul": (model("float[B, T, F] x", "float[B, T, 8] y", (W,), "y = MatMul (x, w)"), {"F": 10}),
    "Gemm": (
        model("float[B, F] x", "float[B, 10] y", (W,), "y = Gemm <transB = 1> (x, w)"),
        {"F": 8},
    ),
    "Conv": (
        model(
            "float[B, C, T] x",
            "float[B, 8, U] y",
            (weight("w", 8, 5, 3),),
            "y = Conv <group = 2> (x, w)",
        ),
        {"C": 10},
    ),
    "ConvTranspose": (
        model(
            "float[B, C, T] x",
            "float[B, 4, U] y",
            (weight("w", 6, 4, 3),),
            "y = ConvTranspose (x, w)",
        ),
        {"C": 6},
    ),
    "QLinearConv": (
        model(
            "uint8[B, C, H, W] x",
            "uint8[B, 4, I, J] y",
            (weight("w", 4, 3, 3, 3, kind="uint8"), "float s = {0.5}", "uint8 z = {3}"),
            "y = QLinearConv (x, s, z, w, s, z, s, z)",
        ),
        {"C": 3},
    ),
    "LSTM": (
        model(
            "float[T, B, F] x, float[1, B, H] h, float[1, B, H] c",
            "float[T, 1, B, 4] y",
            (weight("w", 1, 16, 6), weight("r", 1, 16, 4)),
            "y = LSTM <hidden_size = 4> (x, w, r, , , h, c)",
        ),
        {"F": 6, "H": 4},
    ),
    "GRU": (
        model(
            "float[T, B, F] x",
            "float[T, 1, B, 4] y",
            (weight("w", 1, 12, 6), weight("r", 1, 12, 4)),
            "y = GRU <hidden_size = 4> (x, w, r)",
        ),
        {"F": 6},
    ),
    "LayerNormalization": (
        model(
            "float[B, T, F] x",
            "float[B, T, F] y",
            (weight("w", 6),),
            "y = LayerNormalization (x, w)",
        ),
        {"F": 6},
    ),
    "InstanceNormalization": (
        model(
            "float[B, C, T] x",
            "float[B, C, T] y",
            (weight("w", 6), weight("b", 6)),
            "y = InstanceNormalization (x, w, b)",
        ),
        {"C": 6},
    ),
    "BatchNormalization": (
        model(
            "float[B, C, T] x",
            "float[B, C, T] y",
            (weight("w", 6),),
            "y = BatchNormalization (x, w, w, w, w)",
        ),
        {"C": 6},
    ),
    "SkipLayerNormalization": (
        model(
            "float[B, T, F] x",
            "float[B, T, F] y",
            (weight("w", 6),),
            "y = com.microsoft.SkipLayerNormalization (x, x, w)",
        ),
        {"F": 6},
    ),
    "Split sizes": (
        model(
            "float[B, T, F] x",
            "float[B, T, 8] b",
            ("int64[2] s = {4, 8}",),
            "a, b = Split <axis = 2> (x, s)",
        ),
        {"F": 12},
    ),
    "Reshape to heads": (
        model(
            "float[B, T, F] x",
            "float[B, T, 4, 8] y",
            ("int64[4] s = {0, 0, 4, 8}",),
            "y = Reshape (x, s)",
        ),
        {"F": 32},
    ),
    "Reshape with -1": (
        model(
            "float[B, F] x",
            "float[B, 4, 5] y",
            ("int64[3] s = {0, 4, -1}", weight("w", 16, 5)),
            "r = Reshape (x, s)  y = MatMul (r, w)",
        ),
        {"F": 64},
    ),
    "MatMulInteger": (
        model(
            "uint8[B, T, F] x",
            "int32[B, T, 8] y",
            (weight("w", 10, 8, kind="uint8"),),
            "y = MatMulInteger (x, w)",
        ),
        {"F": 10},
    ),
    "DynamicQuantizeMatMul": (
        model(
            "float[B, T, F] x",
            "float[B, T, 8] y",
            (weight("w", 10, 8, kind="uint8"), "float s = {0.5}", "uint8 z = {3}"),
            "y = com.microsoft.DynamicQuantizeMatMul (x, w, s, z)",
        ),
        {"F": 10},
    ),
    "a skip with a dim of its own": (
        model(
            "float[B, T, F] x, float[B, T, G] z",
            "float[B, T, F] y",
            (weight("w", 9),),
            "y = com.microsoft.SkipLayerNormalization (x, z, w)",
        ),
        {"F": 9, "G": 9},
    ),
    "RotaryEmbedding": (
        model(
            "float[B, T, F] x, int64[B, T] p",
            "float[B, T, F] y",
            (weight("c", 50, 4), weight("s", 50, 4)),
            "y = com.microsoft.RotaryEmbedding <num_heads = 2> (x, p, c, s)",
        ),
        {"F": 16},
    ),
    "MultiHeadAttention": (
        model(
            "float[B, T, F] q",
            "float[B, T, F] y",
            (weight("b", 24),),
            "y = com.microsoft.MultiHeadAttention <num_heads = 2> (q, q, q, b)",
        ),
        {"F": 8},
    ),
    "FastGelu": (
        model(
            "float[B, T, F] x",
            "float[B, T, F] y",
            (weight("b", 12),),
            "y = com.microsoft.FastGelu (x, b)",
        ),
        {"F": 12},
    ),
    "a quantized weight": (
        model(
            "float[B, F] x",
            "float[B, 8] y",
            (weight("w", 10, 8, kind="uint8"), "float s = {0.5}", "uint8 z = {3}"),
            "d = DequantizeLinear (w, s, z)  y = MatMul (x, d)",
        ),
        {"F": 10},
    ),
    "Flatten and Gemm": (
        model(
            "float[B, C, 4, 4] x",
            "float[B, 5] y",
            (weight("w", 48, 5),),
            "f = Flatten (x)  y = Gemm (f, w)",
        ),
        {"C": 3},
    ),
    "Concat in between": (
        model(
            "float[B, T, F] x",
            "float[B, T, 8] y",
            (weight("w", 20, 8),),
            "c = Concat <axis = 2> (x, x)  y = MatMul (c, w)",
        ),
        {"F": 10},
    ),
    "Pad in between": (
        model(
            "float[B, T, F] x",
            "float[B, T, 8] y",
            ("int64[6] p = {0, 0, 1, 0, 0, 2}", W),
            "c = Pad (x, p)  y = MatMul (c, w)",
        ),
        {"F": 7},
    ),
    "Transpose in between": (
        model(
            "float[B, F, T] x",
            "float[B, T, 8] y",
            (W,),
            "t = Transpose <perm = [0, 2, 1]> (x)  y = MatMul (t, w)",
        ),
        {"F": 10},
    ),
    "Squeeze": (
        model("float[B, C, T] x", "float[B, T] y", ("int64[1] a = {1}",), "y = Squeeze (x, a)"),
        {"C": 1},
    ),
    "PRelu": (
        model("float[B, C, T] x", "float[B, C, T] y", (weight("w", 6, 1),), "y = PRelu (x, w)"),
        {"C": 6},
    ),
    "two symbols of one weight": (
        model(
            "float[B, C, K] x",
            "float[B, 4, 1] y",
            (weight("w", 4, 6, 1), weight("v", 9, 1)),
            "c = Conv (x, w)  y = MatMul (c, v)",
        ),
        {"C": 6, "K": 9},
    ),
    "both branches": (
        model(
            "bool c, float[B, F] x",
            "float[B, 8] y",
            (W, weight("v", 10, 8)),
            BRANCHES.format(
                then="float[B, 8] a",
                a="a = MatMul (x, w)",
                other="float[B, 8] b",
                b="b = MatMul (x, v)",
            ),
        ),
        {"F": 10},
    ),
    "a baked batch": (
        model(
            "float[N, 4, 4] x", "float[N, 16] y", ("int64[2] s = {1, 16}",), "y = Reshape (x, s)"
        ),
        {"N": 1},
    ),
    "a Conv in a Loop": (
        model(
            "float[B, F] x, float[B, 3] s0",
            "float[B, 3] y",
            ("int64 n = {2}", "bool go = {1}", weight("w", 5, 3)),
            "y = Loop (n, go, s0) <body = body (int64 i, bool k, float[B, 3] s) => "
            "(bool k2, float[B, 3] s2) { k2 = Identity (k)  m = MatMul (x, w)  s2 = Add (s, m) }>",
        ),
        {"F": 5},
    ),
}
WISHES = {
    "a bias": (
        model("float[B, T, F] x", "float[B, T, F] y", (weight("w", 16),), "y = Add (x, w)"),
        {"F": 16},
        {"F": 1},
    ),
    "positions": (
        model("float[B, T, 8] x", "float[B, T, 8] y", (weight("w", 1, 30, 8),), "y = Add (x, w)"),
        {"T": 30},
        {"T": 1},
    ),
    "an Einsum": (
        model(
            "float[B, T, F] x",
            "float[B, T, 8] y",
            (W,),
            'y = Einsum <equation = "btf,fo->bto"> (x, w)',
        ),
        {"F": 10},
        {"F": 1},
    ),
    "an Einsum with dots": (
        model(
            "float[B, T, F] x",
            "float[B, T, 8] y",
            (W,),
            'y = Einsum <equation = "...f,fo->...o"> (x, w)',
        ),
        {"F": 10},
        {"F": 1},
    ),
    "a Loop that carries it": (
        model(
            "float[B, F] x",
            "float[B, F] y",
            ("int64 n = {2}", "bool go = {1}", weight("w", 10, 10)),
            "y = Loop (n, go, x) <body = body (int64 i, bool k, float[B, F] s) => "
            "(bool k2, float[B, F] s2) { k2 = Identity (k)  s2 = MatMul (s, w) }>",
        ),
        {"F": 10},
        None,
    ),
}


@pytest.mark.parametrize("name", SURE)
def test_the_one_size_is_solved_and_the_other_dims_vary(name: str) -> None:
    graph, expected = SURE[name]
    cases = make_cases(graph)
    assert {k: x.size for k, x in cases.signature.forced.items()} == expected
    assert all(x.sure for x in cases.signature.forced.values())
    assert all(case.dims.items() >= expected.items() for case in cases)
    assert len(cases) >= 3


@pytest.mark.parametrize("name", WISHES)
def test_a_size_that_broadcasting_or_a_branch_only_wishes_for(name: str) -> None:
    graph, expected, other = WISHES[name]
    with Session(graph, optimize=False) as session:
        cases = search_cases(graph, lambda case: session.run(case.feeds), cover=True)
    assert {k: x.size for k, x in cases.signature.forced.items()} == expected
    assert not any(x.sure for x in cases.signature.forced.values())
    usual = [case for case in cases if case.dims.items() >= expected.items()]
    assert len(usual) >= 3
    if other is not None:
        assert any(case.dims.items() >= other.items() for case in cases)


def test_a_size_that_one_branch_wants_is_tried_among_others():
    graph = model(
        "bool c, float[B, F] x",
        "float[B, K] y",
        (W,),
        BRANCHES.format(
            then="float[B, 8] a", a="a = MatMul (x, w)", other="float[B, F] b", b="b = Relu (x)"
        ),
    )
    with Session(graph, optimize=False) as session:
        cases = search_cases(graph, lambda case: session.run(case.feeds), cover=True)
    assert not cases.signature.forced
    sizes = {case.dims["F"] for case in cases}
    assert 10 in sizes
    assert len(sizes) >= 3


def test_a_branch_that_is_always_taken():
    graph = model(
        "float[B, F] x",
        "float[B, K] y",
        (W, "float least = {-1.0}"),
        "a = Abs (x)  m = ReduceMin <keepdims = 0> (a)  c = Greater (m, least) "
        + BRANCHES.format(
            then="float[B, 8] d", a="d = MatMul (x, w)", other="float[B, F] b", b="b = Relu (x)"
        ),
    )
    cases = make_cases(graph)
    assert {case.dims["F"] for case in cases} == {10}
    assert len(cases) >= 3


def test_the_weight_is_named():
    stem = model(
        "float[B, mels, T] x",
        "float[B, U, 2] y",
        (weight("conv1.weight", 2, 80, 3), weight("positions", 15, 2)),
        'c = Conv <pads = [1, 1], strides = [2]> (x, "conv1.weight")'
        " t = Transpose <perm = [0, 2, 1]> (c)  y = Add (t, positions)",
    )
    cases = make_cases(stem)
    assert str(cases.signature.forced["mels"]) == "80, from conv1.weight"
    assert {case.dims["T"] for case in cases} == {29, 30}  # what gives 15 positions


def test_a_weight_behind_a_function_or_a_constant_node():
    text = f"""{HEAD}g (float[B, F] x) => (float[B, 2] y) {{
        w = Constant <value = float[3, 2] {{1, 2, 3, 4, 5, 6}}> ()  y = MatMul (x, w) }}"""
    assert str(make_cases(ir.from_onnx_text(text)).signature.forced["F"]) == "3, from w"


def test_a_product_of_dims_is_tried_at_sizes_that_fit():
    graph = model(
        "float[B, T, H, D] x",
        "float[B, T, 8] y",
        ("int64[3] s = {0, 0, -1}", weight("w", 24, 8)),
        "r = Reshape (x, s)  y = MatMul (r, w)",
    )
    cases = make_cases(graph)
    assert not cases.signature.forced
    assert not cases.dropped
    sizes = {(case.dims["H"], case.dims["D"]) for case in cases}
    assert len(sizes) >= 3
    assert all(h * d == 24 for h, d in sizes)


def test_an_image_is_square_first():
    graph = model(
        "float[B, C, H, W] x",
        "float[B, P, 2] y",
        (weight("k", 2, 3, 4, 4), "int64[3] s = {0, 2, -1}", weight("positions", 1, 16, 2)),
        "c = Conv <strides = [4, 4]> (x, k)  r = Reshape (c, s)"
        "  t = Transpose <perm = [0, 2, 1]> (r)  y = Add (t, positions)",
    )
    cases = make_cases(graph)
    assert (cases[0].dims["H"], cases[0].dims["W"]) == (16, 16)
    assert all((c.dims["H"] // 4) * (c.dims["W"] // 4) == 16 for c in cases)


def test_lengths_that_are_halved_and_doubled_are_even():
    body = f"p = MaxPool <kernel_shape = [2], strides = [2]> (x)  {TWICE % 'p'}"
    graph = model(
        "float[B, 4, T] x", "float[B, 8, U] y", HALVES, f"{body}  y = Concat <axis = 1> (u, x)"
    )
    cases = make_cases(graph)
    assert not cases.dropped
    assert [case.dims["T"] for case in cases] == [8, 2, 2, 24, 40]


def test_a_second_input_twice_as_long():
    graph = model(
        "float[B, 4, T] x, float[B, 4, S] z",
        "float[B, 4, U] y",
        HALVES,
        f"{TWICE % 'x'}  y = Add (u, z)",
    )
    cases = make_cases(graph)
    assert {case.dims["S"] / case.dims["T"] for case in cases} == {2}
    assert len({case.dims["T"] for case in cases}) >= 3


def test_two_inputs_that_are_added_before_the_weight():
    graph = model(
        "float[B, C, T] x, float[N, D, U] z",
        "float[B, 4, V] y",
        (weight("w", 4, 6, 1),),
        "a = Add (x, z)  y = Conv (a, w)",
    )
    cases = make_cases(graph)
    assert {name: x.size for name, x in cases.signature.forced.items()} == {"C": 6, "D": 6}
    assert len(cases) >= 3


def test_a_size_that_no_length_gives():
    graph = model(
        "float[B, 1, T] x",
        "float[B, 1, 2] y",
        (weight("w", 3, 2), "int64[6] p = {0, 0, 4, 0, 0, 0}"),
        "a = Pad (x, p)  y = MatMul (a, w)",
    )
    with pytest.raises(FeedError, match="at no size of T: none suits w"):
        make_cases(graph)


def test_two_weights_that_want_different_sizes():
    graph = model(
        "float[B, F] x",
        "float[B, 8] y",
        (W, weight("v", 12, 8)),
        "a = MatMul (x, w)  b = MatMul (x, v)  y = Add (a, b)",
    )
    with pytest.raises(FeedError, match="no size of F: it has to be 10 for w, and 12 for v"):
        make_cases(graph)


def test_a_user_may_ask_for_the_size_and_for_no_other():
    graph, _ = SURE["MatMul"]
    assert {case.dims["F"] for case in make_cases(graph, dims={"F": [10]})} == {10}
    with pytest.raises(FeedError, match="F is 10, as w wants it: the model does not run at 5"):
        make_cases(graph, dims={"F": [5]})


def test_a_user_may_ask_for_a_size_that_broadcasts():
    graph, *_ = WISHES["a bias"]
    assert {case.dims["F"] for case in make_cases(graph, dims={"F": [1]})} == {1}


def test_a_size_that_nothing_dictates_stays_free():
    signature = Signature(model("float[B, T, 8] x", "float[B, T, 8] y", (), "y = Relu (x)"))
    assert not signature.forced
    assert signature.groups == ["B", "T"]


def _run_all(graph: ir.Model) -> Cases:
    def run(_: Case) -> None: ...

    return search_cases(graph, run)


def test_a_name_that_is_no_identifier():
    graph = model(
        'float["batch-size", T, "num features"] x', "float[B, T, 8] y", (W,), "y = MatMul (x, w)"
    )
    assert {k: x.size for k, x in _run_all(graph).signature.forced.items()} == {"num features": 10}
