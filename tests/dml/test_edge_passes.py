"""On the real DirectML: wrong in silence before a repair, and right after it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.errors import ModelError
from graphfix.runtime import process
from graphfix.runtime.local_session import Session
from graphfix.runtime.run_errors import RunError

Feeds = dict[str, np.ndarray]
_CLOSE = {"float32": 1e-5, "float16": 4e-3}


def model(body: str, opset: int = 18) -> ir.Model:
    return ir.from_onnx_text(f'<ir_version: 8, opset_import: ["" : {opset}]> m {body}')


def agrees(m: ir.Model, feeds: Feeds) -> bool:
    """Whether DirectML computes what the CPU does."""
    with Session(m) as cpu, Session(m, ep="dml") as dml:
        want, got = cpu.run(feeds), dml.run(feeds)
    return all(
        want[k].shape == got[k].shape
        and np.allclose(want[k], got[k], rtol=_CLOSE.get(want[k].dtype.name, 0), equal_nan=True)
        for k in want
    )


def repaired(m: ir.Model, name: str) -> ir.Model:
    after = ir.from_proto(ir.to_proto(m))
    assert graphfix.run(after, name).changed
    return after


X = {"x": np.arange(1, 9, dtype=np.float32).reshape(1, 8)}
WIDE = [0, 1, -1, 2**32, -(2**32), 2**32 + 1, 2**40, 2**62, -(2**63), 2**31, 5]
INTS = {"x": np.array(WIDE, np.int64)}

# Before and after, both with open sizes: a graph that is folded never runs there.
WRONG: dict[str, tuple[str, ir.Model, Feeds]] = {
    **{
        f"pads of {mode} at opset {opset}": (
            "pad-slice",
            model(
                "(float[A, B] x) => (float[C, D] y) <int64[4] pads = {0, -2, 1, 3}> "
                f'{{ y = Pad <mode = "{mode}"> (x, pads) }}',
                opset,
            ),
            {"x": np.arange(1, 25, dtype=np.float32).reshape(3, 8)},
        )
        for mode, opset in (
            ("constant", 11), ("constant", 18), ("constant", 21), ("edge", 13), ("wrap", 19),
        )
    },
    "pads that follow a size": (
        "pad-slice",
        model(
            "(float[A, B] x, float[C, D] table) => (float[E, F] y) <int64[1] less = {5}, "
            "int64[1] zero = {0}> { b = Shape <start = 1> (x) p = Sub (b, less) "
            "pads = Concat <axis = 0> (zero, p, zero, p) y = Pad (table, pads) }"
        ),
        {"x": np.zeros((1, 2), np.float32), "table": np.arange(1, 10, dtype=np.float32)[None]},
    ),
    "pads of integers, with a constant and axes": (
        "pad-slice",
        model(
            "(int64[A, B] x) => (int64[C, D] y) <int64[2] pads = {-3, 2}, int64 seven = {7}, "
            "int64[1] axes = {-1}> { y = Pad (x, pads, seven, axes) }"
        ),
        {"x": np.arange(1, 9).reshape(1, 8)},
    ),
    "pads of truths": (
        "pad-slice",
        model(
            "(bool[A, B] x) => (bool[C, D] y) <int64[4] pads = {0, -3, 0, -1}> "
            "{ y = Pad (x, pads) }"
        ),
        {"x": np.array([[1, 0, 1, 0, 0, 1, 1, 0]], bool)},
    ),
    "limits": (
        "clip-minmax",
        model(
            "(float[A, B] x) => (float[A, B] y) <float least = {3}, float most = {-2}> "
            "{ y = Clip (x, least, most) }"
        ),
        X,
    ),
    "limits of integers": (
        "clip-minmax",
        model(
            "(int64[A] x) => (int64[A] y) <int64 least = {3}, int64 most = {-2}> "
            "{ y = Clip (x, least, most) }"
        ),
        INTS,
    ),
    "a norm of large numbers in float16": (
        "float-norm",
        model("(float16[A, B] x, float16[B] s) => (float16[A, B] y) "
              "{ y = LayerNormalization (x, s) }"),
        {"x": np.array([[1, -7, 5000, 2, 0.5, -3, 4, 9]], np.float16), "s": np.ones(8, np.float16)},
    ),
    "a norm of small numbers in float16": (
        "float-norm",
        model("(float16[A, B] x, float16[B] s) => (float16[A, B] y) "
              "{ y = LayerNormalization <epsilon = 1e-12> (x, s) }"),
        {"x": np.array([[1, -7, 5, 2, 0.5, -3, 4, 9]], np.float16) * np.float16(1e-4),
         "s": np.ones(8, np.float16)},
    ),
    "exponentials beyond float32": (
        "logsumexp-shift",
        model(
            "(float[A, B] x) => (float[A, C] y) <int64[1] axes = {1}> "
            "{ y = ReduceLogSumExp (x, axes) }"
        ),
        {"x": np.array([[300, -1, 2, 5], [-200, -300, -100, -150]], np.float32)},
    ),
    "a truth beyond 32 bits": (
        "bool-cast",
        model(
            "(int64[A] x) => (bool[A] y) <int64 wide = {4294967296}> "
            "{ v = Mul (x, wide) y = Cast <to = 9> (v) }"
        ),
        INTS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_before_and_right_after(case: str) -> None:
    name, before, feeds = WRONG[case]
    assert not agrees(before, feeds)
    assert agrees(repaired(before, name), feeds)


WEIGHTS = """<float[4, 4] w = {1, -1, 0.5, 0, 1, 2, -2, 1, 0, 0.5, 1, 1, -1, 1, 1, 0},
    float[4] b = {1, -2, 0.5, 0}, float[1, 1, 3] k = {1, -1, 0.5}, float[1, 1, 1] one = {2}>"""
SUM, LINE = "float[4, 4]", "float[1, 1, 6]"
LOST = {
    "a sum": (SUM, "h = Add (x, w) y = Relu (h)"),
    "a sum of a symbolic dim": ("float[N, 4]", "h = Sum (x, w) y = LeakyRelu (h)"),
    "a product": (SUM, "h = MatMul (x, w) y = Sigmoid (h)"),
    "a bias that makes a Gemm": ("float[N, 4]", "p = MatMul (x, w) h = Add (p, b) y = Tanh (h)"),
    "a convolution": (LINE, "h = Conv (x, k) y = Relu (h)"),
    "a convolution and its bias": (LINE, "c = Conv (x, k) h = Add (c, one) y = Elu (h)"),
}


@pytest.mark.parametrize("case", LOST)
def test_a_lost_output_leaves_no_session(case: str) -> None:
    kind, body = LOST[case]
    dims = "D, E, F" if kind is LINE else "D, E"
    before = model(f"({kind} x) => (float[{dims}] h, float[{dims}] y) {WEIGHTS} {{ {body} }}", 17)
    shape = (1, 1, 6) if kind is LINE else (4, 4)
    feeds = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    with pytest.raises(ModelError, match=r"fell back|producing output"):
        agrees(before, feeds)
    assert agrees(repaired(before, "keep-output"), feeds)


BARE = {
    "Relu": "y = Relu (h)",
    "Sigmoid": "y = Sigmoid (h)",
    "a slope": "y = LeakyRelu (h)",
}


@pytest.mark.parametrize("case", BARE)
def test_a_gemm_without_a_bias_leaves_no_session(case: str) -> None:
    text = f"(float[N, 4] x) => (float[N, 4] y) {WEIGHTS} {{ h = Gemm (x, w) {BARE[case]} }}"
    before = model(text, 17)
    feeds = {"x": np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)}
    with pytest.raises(ModelError, match=r"DmlFusedGemm|fell back"):
        agrees(before, feeds)
    assert agrees(repaired(before, "gemm-bias"), feeds)


EMPTY = {
    "nothing is found": ("t = Greater (x, top) z = NonZero (t)", "int64[2, N] z"),
    "a branch of a decoder": (
        """k = ReduceMax <axes = [0, 1], keepdims = 0> (x) more = Greater (k, top)
        z = If (more) <
            then_branch = a () => (float[C, 4] u) { u = Neg (y) },
            else_branch = b () => (float[D, 4] v) { v = ConstantOfShape (none) }>""",
        "float[N, 4] z",
    ),
}


@pytest.mark.usefixtures("older_directml")
@pytest.mark.parametrize(("case", "opset"), [(x, y) for x in EMPTY for y in (13, 17)])
def test_an_empty_output_spoils_no_other(case: str, opset: int) -> None:
    body, output = EMPTY[case]
    before = model(
        f"(float[B, 4] x) => (float[B, 4] y, {output}) "
        f"<float top = {{50}}, int64[2] none = {{0, 4}}> {{ y = Sqrt (x) {body} }}",
        opset,
    )
    full = np.arange(100, 112, dtype=np.float32).reshape(3, 4)
    for m, right in ((before, False), (repaired(before, "host-output"), True)):
        with Session(m) as cpu, Session(m, ep="dml") as dml:
            # What lay in memory is then not what is computed now.
            for x in (full, full / 7, full, full / 11):
                want, got = cpu.run({"x": x}), dml.run({"x": x})
                assert [x.shape for x in got.values()] == [x.shape for x in want.values()]
                same = all(np.allclose(want[k], got[k], rtol=1e-5) for k in want)
                assert same == (right or bool(want["z"].size))


WIDE = {
    "windows": ((2, 3, 4, 8, 2), (2, 3, 4, 2, 8), "B, W, 4, 8, 2", "B, W, 4, 2, 8"),
    "all sizes known": ((2, 3, 4, 8, 2), (2, 3, 4, 2, 8), "2, 3, 4, 8, 2", "2, 3, 4, 2, 8"),
    "a weight": ((2, 3, 4, 8, 2), (2, 5), "A, B, C, M, K", "K, N"),
    "a weight of each head": ((2, 3, 4, 8, 2), (4, 2, 5), "A, B, 4, M, K", "4, K, N"),
}


@pytest.mark.parametrize("case", WIDE)
def test_a_product_of_five_dims(case: str) -> None:
    first, second, a, b = WIDE[case]
    before = model(
        f"(float[{a}] x, float[{b}] w) => (float[P, Q, R, S, U] y) {{ y = MatMul (x, w) }}"
    )
    random = np.random.default_rng(0)
    feeds = {
        k: random.standard_normal(d).astype(np.float32) for k, d in (("x", first), ("w", second))
    }
    with pytest.raises((ModelError, RunError), match="80070057"):
        agrees(before, feeds)
    assert agrees(repaired(before, "matmul-4d"), feeds)


REFUSED = {
    "a bias of few bits": (
        "nbits-inputs",
        "(float[A, 16] x) => (float[A, 1] y) <uint8[1, 1, 8] w = {1, 35, 69, 103, 137, 171, 205, "
        "239}, float[1] s = {0.5}, float[1] b = {1}> { y = com.microsoft.MatMulNBits "
        "<K = 16, N = 1, bits = 4, block_size = 16> (x, w, s, , , b) }",
        (3, 16),
    ),
    "a group index": (
        "nbits-inputs",
        "(float[A, 16] x) => (float[A, 1] y) <uint8[1, 1, 8] w = {1, 35, 69, 103, 137, 171, 205, "
        "239}, float[1] s = {0.5}, int32[16] g = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}> "
        "{ y = com.microsoft.MatMulNBits <K = 16, N = 1, bits = 4, block_size = 16> "
        "(x, w, s, , g) }",
        (3, 16),
    ),
    "a volume": (
        "resize-4d",
        "(float[B, C, D, H, W] x) => (float[P, Q, R, S, T] y) <float[5] s = {1, 1, 2, 2, 2}> "
        '{ y = Resize <mode = "nearest"> (x, , s) }',
        (2, 3, 2, 3, 4),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_and_right_after(case: str) -> None:
    name, body, shape = REFUSED[case]
    before = ir.from_onnx_text(
        f'<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> m {body}'
    )
    feeds = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    with pytest.raises((ModelError, RunError), match="80070057"):
        agrees(before, feeds)
    assert agrees(repaired(before, name), feeds)


@pytest.mark.parametrize("auto", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("kernel", [3, 4])
def test_as_long_as_the_stride_says(auto: str, kernel: int) -> None:
    before = model(
        f"(float[B, 1, T] x, float[1, 1, {kernel}] w) => (float[B, 1, U] y) "
        f'{{ y = ConvTranspose <auto_pad = "{auto}", strides = [2]> (x, w) }}'
    )
    feeds = {"x": np.ones((2, 1, 5), np.float32), "w": np.ones((1, 1, kernel), np.float32)}
    assert not agrees(before, feeds)
    assert agrees(repaired(before, "convtranspose-pads"), feeds)


MISREAD = {
    "a length that is small": (
        "lp-norm",
        "(float[A, B] x) => (float[A, B] y) { y = LpNormalization <axis = 1> (x) }",
        17,
        {"x": np.array([[1e-4, -2e-4, 3e-4]], np.float32)},
    ),
    "a length that is large in float16": (
        "lp-norm",
        "(float16[A, B] x) => (float16[A, B] y) { y = LpNormalization <axis = 1, p = 2> (x) }",
        17,
        {"x": np.array([[1000, -2000, 300]], np.float16)},
    ),
    "a region below a cell": (
        "roi-size",
        "(float[1, 1, 8, 8] x, float[N, 4] r, int64[N] i) => (float[N, 1, 2, 2] y) { y = RoiAlign "
        '<coordinate_transformation_mode = "output_half_pixel", output_height = 2, '
        "output_width = 2, sampling_ratio = 2> (x, r, i) }",
        16,
        {
            "x": np.arange(64, dtype=np.float32).reshape(1, 1, 8, 8),
            "r": np.array([[1, 1, 6, 6], [2, 2, 2.5, 2.5]], np.float32),
            "i": np.zeros(2, np.int64),
        },
    ),
    "a pad of nothing": (
        "pad-empty",
        "(float[N, 4] x, bool[N] k) => (float[U, 4] y) <int64[4] pads = {0, 0, 6, 0}, "
        "int64[1] zero = {0}> { a = NonZero (k) b = Squeeze (a, zero) c = Gather (x, b) "
        "y = Pad (c, pads) }",
        17,
        {"x": np.ones((3, 4), np.float32), "k": np.zeros(3, bool)},
    ),
}


@pytest.mark.parametrize("case", MISREAD)
def test_misread_before_and_right_after(case: str) -> None:
    name, body, opset, feeds = MISREAD[case]
    before = model(body, opset)
    if name != "pad-empty":  # what lay in memory may be right by chance
        assert not agrees(before, feeds)
    assert agrees(repaired(before, name), feeds)


BACKWARDS = {
    "rows beside each other": ((5, 3, 4), "T, B, 4", "time_axis = 0, batch_axis = 1"),
    "rows behind each other": ((3, 5, 4), "B, T, C", "time_axis = 1, batch_axis = 0"),
    "four dims": ((3, 5, 2, 4), "B, T, 2, 4", "time_axis = 1, batch_axis = 0"),
    "all sizes known": ((3, 5, 4), "3, 5, 4", "time_axis = 1, batch_axis = 0"),
}


@pytest.mark.parametrize("case", BACKWARDS)
def test_lengths_are_not_read_past_their_end(case: str) -> None:
    shape, dims, axes = BACKWARDS[case]
    before = model(
        f"(float[{dims}] x, int64[N] n) => (float[{dims}] y) "
        f"{{ y = ReverseSequence <{axes}> (x, n) }}"
    )
    random = np.random.default_rng(0)
    feeds = {"x": random.standard_normal(shape).astype(np.float32), "n": np.array([5, 1, 3])}
    try:
        assert not agrees(before, feeds)
    except RunError as error:
        assert "887A0005" in str(error)  # noqa: PT017  (one of the two)
        process.stop_all()  # the device is lost to all that runs there
    assert agrees(repaired(before, "reverse-2d"), feeds)


@pytest.mark.parametrize("dims", ["B, T, C", "3, 5, 4"])
def test_whole_rows_backwards(dims: str) -> None:
    x = np.random.default_rng(0).standard_normal((3, 5, 4)).astype(np.float32)
    before = model(
        f"""(float[{dims}] x) => (float[{dims}] y) <int64 one = {{1}}, int64[1] none = {{0}}> {{
        s = Shape (x) t = Gather (s, one) b = Gather (s, none) n = Expand (t, b)
        y = ReverseSequence <time_axis = 1, batch_axis = 0> (x, n) }}"""
    )
    after = repaired(before, "reverse-2d")
    assert "ReverseSequence" not in {node.op_type for node in after.graph}
    assert agrees(after, {"x": x})


@pytest.mark.parametrize("dims", ["B, T, 4", "2, 3, 4", "4"])
def test_a_vector_is_not_its_first_number(dims: str) -> None:
    before = model(f"(float[{dims}] h, float[4] u) => (float y) {{ y = MatMul (h, u) }}")
    before.graph.outputs[0].shape = None
    random = np.random.default_rng(0)
    shape = (2, 3, 4)[-(dims.count(",") + 1) :]
    feeds = {k: random.standard_normal(x).astype(np.float32) for k, x in (("h", shape), ("u", 4))}
    assert not agrees(before, feeds)
    assert agrees(repaired(before, "matmul-vector"), feeds)
    assert agrees(repaired(before, "directml"), feeds)


@pytest.mark.parametrize(
    "product",
    [
        "int32[B, T] y) { y = MatMulInteger (x, u) }",
        """uint8[B, T] y) <float s = {0.5}, uint8 z = {3}>
        { y = QLinearMatMul (x, s, z, u, s, z, s, z) }""",
    ],
)
def test_a_vector_of_integers(product: str) -> None:
    before = model(f"(uint8[B, T, 3] x, uint8[3] u) => ({product}")
    feeds = {"x": np.arange(24, dtype=np.uint8).reshape(2, 4, 3), "u": np.arange(6, 9, dtype="u1")}
    assert not agrees(before, feeds)
    assert agrees(repaired(before, "matmul-vector"), feeds)


@pytest.mark.usefixtures("older_directml")
@pytest.mark.parametrize("dims", ["A, 3, B", "2, 3, 4"])
@pytest.mark.parametrize("zero", ["", ", z"])
def test_scales_lie_along_their_own_axis(dims: str, zero: str) -> None:
    before = model(
        f"""(uint8[{dims}] x) => (float[{dims}] y)
        <float[3] s = {{0.5, 0.25, 0.125}}, uint8[3] z = {{1, 2, 3}}>
        {{ y = DequantizeLinear <axis = 1> (x, s{zero}) }}""",
        21,
    )
    feeds = {"x": np.arange(24, dtype=np.uint8).reshape(2, 3, 4)}
    with pytest.raises((ModelError, RunError), match="80070057"):
        agrees(before, feeds)
    assert agrees(repaired(before, "quantize-axis"), feeds)


@pytest.mark.usefixtures("older_directml")
def test_scales_of_a_square_lie_along_their_own_axis() -> None:
    before = model(
        """(int8[3, 3] x) => (float[3, 3] y) <float[3] s = {0.5, 0.25, 0.125}>
        { y = DequantizeLinear <axis = 0> (x, s) }""",
        21,
    )
    feeds = {"x": np.arange(9, dtype=np.int8).reshape(3, 3)}
    assert not agrees(before, feeds)
    assert agrees(repaired(before, "quantize-axis"), feeds)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("dims", ["B, 4, T", "1, 4, 7"])
def test_no_window_starts_behind_the_data(op: str, dims: str) -> None:
    before = model(
        f"""(float[{dims}] x) => (float[B, 4, U] y)
        {{ y = {op} <kernel_shape = [2], strides = [2], pads = [1, 1], ceil_mode = 1> (x) }}"""
    )
    before.graph.outputs[0].shape = None
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 4, 7)).astype(np.float32)}
    assert not agrees(before, feeds)
    assert agrees(repaired(before, "pool-pads"), feeds)


@pytest.mark.parametrize("product", ["Mul (a, g)", "Mul (g, a)"])
def test_a_gate_of_two_parts_is_no_swish(product: str) -> None:
    body = f"{{ a, b = Split <axis = 1, num_outputs = 2> (x) g = Sigmoid (b) y = {product} }}"
    fixed = model(f"(float[1, 8, 5] x) => (float[1, 4, 5] y) {body}")
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 8, 5)).astype(np.float32)}
    assert not agrees(fixed, feeds)
    assert agrees(repaired(fixed, "slice-gate"), feeds)
    assert agrees(model(f"(float[B, 8, T] x) => (float[B, 4, T] y) {body}"), feeds)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("size", [1, 4])
def test_an_input_may_be_shorter_than_the_window(op: str, size: int) -> None:
    before = model(
        f"""(float[B, 4, T] x) => (float[B, 4, U] y)
        {{ y = {op} <kernel_shape = [5], strides = [5], ceil_mode = 1> (x) }}"""
    )
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 4, size)).astype(np.float32)}
    with pytest.raises(RunError, match="80070057"):
        agrees(before, feeds)
    assert agrees(repaired(before, "pool-pads"), feeds)


@pytest.mark.parametrize(
    ("attributes", "size"), [("strides = [4]", 7), ("strides = [3], pads = [2, 1]", 8)]
)
def test_an_average_is_divided_by_what_lies_in_it(attributes: str, size: int) -> None:
    before = model(
        f"""(float[B, 4, T] x) => (float[B, 4, U] y) {{ y = AveragePool
        <kernel_shape = [4], {attributes}, ceil_mode = 1, count_include_pad = 1> (x) }}""",
        19,
    )
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 4, size)).astype(np.float32)}
    assert not agrees(before, feeds)
    assert agrees(repaired(before, "pool-pads"), feeds)
