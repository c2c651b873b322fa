"""Shapes of windows that slide along an axis, of matrix products, and of a Resize."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.facts.shapes import shapes_of
from graphfix.facts.symbolic import windows
from tests.facts.symbolic.bodies import INPUTS, apply_rule, dims_of, keys, result_of

FLOATS = """float[B, S, T] p, float[T, B] q, float[N, 2, T] sig, float[2, 2, 3] k3,
    float[N, 9] audio, float[S, B, T, 5] batch, float[N, 5, 4] square, float[U, V] uv"""
FUSED = "com.microsoft.FusedMatMul"
POOL = "MaxPool <kernel_shape = [{}], strides = [{}], pads = [{}, {}], ceil_mode = {}> (sig)"


def dims(body: str, opset: int = 17) -> list[int | str | None] | None:
    return dims_of(body, opset, f"{INPUTS}, {FLOATS}")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = MatMul (p, x)", ["B", "S", 4]),
        ("y = MatMul (x, q)", ["B", "T", "B"]),
        ("y = MatMul (uv, x)", ["B", "U", 4]),
        ("y = MatMul (w, six)", [3]),
        (f"y = {FUSED} (p, x)", ["B", "S", 4]),
        (f"y = {FUSED} <transA = 1> (x, p)", ["B", 4, "T"]),
        (f"y = {FUSED} <transB = 1> (x, w)", ["B", "T", 3]),
        (f"y = {FUSED} <transB = 1> (x, square)", [None, "T", 5]),
        (f"y = {FUSED} <transBatchA = 1> (batch, square)", ["B", None, "S", 4]),
        (f"y = {FUSED} <transBatchB = 1> (square, batch)", ["B", None, 5, 5]),
        (f"y = {FUSED} <transBatchA = 1> (w, w)", [3, 4]),
        ("y = Gemm (w, uv)", [3, "V"]),
        ("y = Gemm <transB = 1> (w, uv)", [3, "U"]),
    ],
)
def test_a_product(body: str, expected: list[int | str | None]) -> None:
    assert dims(body) == keys(*expected)


@pytest.mark.parametrize(
    ("window", "length"),
    [
        ((3, 2, 0, 0, 0), "floor(T/2 + 1/2) - 1"),
        ((3, 2, 0, 0, 1), "floor(T/2)"),
        ((2, 3, 0, 1, 0), "floor(T/3 + 2/3)"),
        ((2, 3, 0, 1, 1), "floor(T/3 + 2/3)"),
        ((2, 3, 1, 0, 1), "floor(T/3) + 1"),
        ((2, 2, 0, 0, 1), "floor(T/2 + 1/2)"),
        ((3, 1, 1, 1, 1), "T"),
    ],
)
def test_a_pool(window: tuple[int, ...], length: str) -> None:
    assert dims(f"y = {POOL.format(*window)}") == keys("N", 2, length)
    assert dims(f"z, y = {POOL.format(*window)}".replace("z, y", "y, z")) == keys("N", 2, length)


@pytest.mark.parametrize(
    ("kernel", "stride", "more", "length"),
    [
        (2, 1, "", "T"),
        (3, 2, "", "floor(T/2 + 1/2)"),
        (2, 3, ", ceil_mode = 1", "floor(T/3 + 2/3)"),
        (3, 2, ", dilations = [2]", None),  # ONNX Runtime and ONNX disagree
    ],
)
@pytest.mark.parametrize("pad", ["SAME_UPPER", "SAME_LOWER"])
def test_a_pool_with_auto_pad_makes_a_window_for_each_stride(
    kernel: int, stride: int, more: str, length: str | None, pad: str
) -> None:
    attributes = f'kernel_shape = [{kernel}], strides = [{stride}], auto_pad = "{pad}"{more}'
    assert dims(f"y = MaxPool <{attributes}> (sig)") == keys("N", 2, length)


def test_a_window_that_begins_behind_the_end_is_dropped() -> None:
    for size, length in ((3, 1), (4, 2), (6, 2), (7, 3)):
        pool = POOL.format(2, 3, 0, 1, 1).replace("(sig)", f"(fixed{size})")
        inputs = f"float[N, 2, {size}] fixed{size}"
        assert dims_of(f"y = {pool}", inputs=inputs) == keys("N", 2, length)


def test_a_window_says_that_the_axis_is_not_empty() -> None:
    bodies = (
        ("y = Conv <pads = [1, 1]> (sig, k3)", True),
        (f"y = {POOL.format(3, 1, 1, 1, 0)}", False),
        ("y = Relu (sig)", False),
    )
    for body, positive in bodies:
        model, y = result_of(body, inputs=f"{INPUTS}, {FLOATS}")
        shapes = shapes_of(model)
        found = shapes.dims(y)
        assert found is not None
        assert shapes.is_never_empty(found[2]) is positive
        assert not shapes.is_never_empty(found[0])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Conv (sig, k3)", ["N", 2, "T - 2"]),
        ("y = Conv <pads = [1, 1], strides = [2]> (sig, k3)", ["N", 2, "floor(T/2 + 1/2)"]),
        ("y = ConvTranspose <strides = [2]> (sig, k3)", ["N", 2, "2*T + 1"]),
        ('y = ConvTranspose <strides = [2], auto_pad = "SAME_UPPER"> (sig, k3)', ["N", 2, None]),
        ('y = ConvTranspose <strides = [2], auto_pad = "VALID"> (sig, k3)', ["N", 2, "2*T + 1"]),
    ],
)
def test_a_convolution(body: str, expected: list[int | str | None]) -> None:
    assert dims(body) == keys(*expected)


@pytest.mark.parametrize(
    ("step", "length", "onesided", "expected"),
    [
        (2, 4, 1, [3, 3]),
        (2, 5, 1, [3, 3]),
        (2, 5, 0, [3, 5]),
        (1, 9, 1, [1, 5]),
        (3, 3, 1, [3, 2]),
        (1, 4, 1, [6, 3]),
    ],
)
def test_frames_of_a_signal(step: int, length: int, onesided: int, expected: list[int]) -> None:
    numbers = (
        f"h = Constant <value = int64 {{{step}}}> () n = Constant <value = int64 {{{length}}}> ()"
    )
    assert dims(f"{numbers} y = STFT <onesided = {onesided}> (audio, h, , n)") == keys(
        "N", *expected, 2
    )
    ones = ", ".join(["1.0"] * length)
    window = f"{numbers} v = Constant <value = float[{length}] {{{ones}}}> ()"
    assert dims(f"{window} y = STFT <onesided = {onesided}> (audio, h, v)") == keys(
        "N", *expected, 2
    )


def test_frames_of_a_signal_of_any_length() -> None:
    numbers = "h = Constant <value = int64 {2}> () n = Constant <value = int64 {4}> ()"
    assert dims(f"{numbers} y = STFT (uv, h, , n)") == keys("U", "floor(V/2) - 1", 3, 2)


def test_a_step_of_0_has_no_frames() -> None:
    numbers = "h = Constant <value = int64 {0}> () n = Constant <value = int64 {4}> ()"
    assert dims(f"{numbers} y = STFT (audio, h, , n)") is None


@pytest.mark.parametrize(
    ("scales", "expected"),
    [
        ((1.0, 1.0, 2.0), ["N", 2, "2*T"]),
        ((1.0, 1.5, 0.5), ["N", 3, "floor(T/2)"]),
        ((1.0, 1.3, 0.333333), ["N", 2, None]),
    ],
)
def test_a_resize(scales: tuple[float, ...], expected: list[int | str | None]) -> None:
    numbers = ", ".join(map(str, scales))
    body = f"""e = Constant <value = float[0] {{}}> ()
        s = Constant <value = float[3] {{{numbers}}}> ()"""
    for opset in (13, 17, 18):
        assert dims(f"{body} y = Resize (sig, e, s)", opset) == keys(*expected)
    assert dims(f"{body} y = Resize (sig, s)", 10) == keys(*expected)
    assert dims(f"{body} y = Upsample (sig, s)", 9) == keys(*expected)


def test_a_resize_of_some_axes() -> None:
    body = "e = Constant <value = float[0] {}> () s = Constant <value = float[1] {2.0}> ()"
    assert dims(f"{body} y = Resize <axes = [2]> (sig, e, s)", 18) == keys("N", 2, "2*T")


VECTORS = "float[T] t, float[S, T] st, float[T, V] tv, float[B, S, T] bst, float[] any, float[5] f"


@pytest.mark.parametrize(
    ("operands", "expected", "equal"),
    [
        ("st, tv", ["S", "V"], [("T", "T")]),
        ("st, st", ["S", "T"], [("T", "S")]),
        ("bst, tv", ["B", "S", "V"], [("T", "T")]),
        ("tv, bst", ["B", "T", "T"], [("V", "S")]),
        ("t, tv", None, []),  # with a vector it is left to the library
        ("st, t", None, []),
        ("any, tv", None, []),
        ("st, any", None, []),
    ],
)
def test_a_product_sums_over_equal_sizes(
    operands: str, expected: list[int | str] | None, equal: list[tuple[str, str]]
) -> None:
    dims, facts = apply_rule(windows.infer_matmul, f"y = MatMul ({operands})", VECTORS)
    assert (dims, facts.equal) == (None if expected is None else keys(*expected), equal)


@pytest.mark.parametrize(
    ("attributes", "operands", "expected"),
    [
        ("", "t, tv", None),
        ("", "st, t", None),
        ("", "any, tv", None),
        ("transA = 1", "st, st", ["T", "T"]),
        ("transB = 1", "bst, st", ["B", "S", "S"]),
        ("transBatchA = 1, transA = 1", "st, st", ["T", "T"]),
        ("transBatchB = 1", "tv, st", ["T", "T"]),
        ("transBatchA = 1", "bst, tv", ["S", "B", "V"]),
        ("transBatchB = 1", "tv, bst", ["S", "T", "T"]),
    ],
)
def test_a_fused_product(attributes: str, operands: str, expected: list[str] | None) -> None:
    body = f"y = {FUSED} <{attributes}> ({operands})" if attributes else f"y = {FUSED} ({operands})"
    dims, _ = apply_rule(windows.infer_fused_matmul, body, VECTORS)
    assert dims == (None if expected is None else keys(*expected))


@pytest.mark.parametrize(
    ("body", "equal"),
    [
        ("y = Gemm (st, tv)", [("T", "T")]),
        ("y = Gemm <transA = 1> (st, tv)", [("S", "T")]),
        ("y = Gemm <transB = 1> (st, tv)", [("T", "V")]),
        ("y = Gemm (any, tv)", []),
        ("y = Gemm (st, any)", []),
        ("y = Gemm (bst, tv)", []),
        ("y = Gemm (st, bst)", []),
    ],
)
def test_what_a_gemm_sums_over_is_equal(body: str, equal: list[tuple[str, str]]) -> None:
    _, facts = apply_rule(windows.infer_gemm, body, VECTORS)
    assert facts.equal == equal


@pytest.mark.parametrize(
    ("signal", "step", "frame", "expected"),
    [
        ("bst", "h", "w4", ["B", "floor(S/2) - 1", 3, 2]),
        ("bst", "h", "w1", ["B", "floor(S/2 + 1/2)", 1, 2]),
        ("bst", "one", "w4", ["B", "S - 3", 3, 2]),
        ("any", "h", "w4", None),
        ("bst", "u", "w4", None),
        ("bst", "h", "u", None),
        ("bst", "zero", "w4", None),
    ],
)
def test_an_stft_needs_its_numbers(
    signal: str, step: str, frame: str, expected: list[int | str] | None
) -> None:
    numbers = " ".join(
        f"{name} = Constant <value_int = {number}> ()"
        for name, number in (("h", 2), ("one", 1), ("zero", 0), ("w4", 4), ("w1", 1))
    )
    body = f"{numbers} y = STFT ({signal}, {step}, , {frame})"
    dims, _ = apply_rule(windows.infer_stft, body, f"{VECTORS}, int64 u")
    assert dims == (None if expected is None else keys(*expected))


@pytest.mark.parametrize(
    ("more", "bins"),
    [
        (", f", 3),
        (", any", None),
        ("", None),
        (", f, w8", 5),  # the length counts, not that of the window
        (", f, u", 3),
        (", , u", None),
    ],
)
def test_frames_are_as_long_as_the_window(more: str, bins: int | None) -> None:
    numbers = "h = Constant <value_int = 2> () w8 = Constant <value_int = 8> ()"
    body = f"{numbers} y = STFT (bst, h{more})"
    dims, _ = apply_rule(windows.infer_stft, body, f"{VECTORS}, int64 u")
    assert (dims and dims[2]) == bins


@pytest.mark.parametrize("data", ["any", "sig"])
def test_a_pool_of_unknown_rank_stays_unknown(data: str) -> None:
    body = f"y = {POOL.format(3, 1, 1, 1, 1)}".replace("(sig)", f"({data})")
    assert apply_rule(windows.infer_pool, body, f"float[] any, {FLOATS}")[0] is None


@pytest.mark.parametrize(("usual", "positive"), [(True, ["T - 2"]), (False, [])])
def test_only_usual_runs_have_a_window_in_each_pool(usual: bool, positive: list[str]) -> None:
    def rule(facts: windows.Facts, ctx: windows.Context, node: ir.Node) -> None:
        node.outputs[0].shape = ir.Shape(["N", 2, "T - 2"])
        windows.infer_pool(facts, ctx, node)

    body = f"y = {POOL.format(3, 1, 0, 0, 0)}"
    dims, facts = apply_rule(rule, body, FLOATS, usual=usual)
    assert (dims, facts.positive) == (keys("N", 2, "T - 2"), positive)


def test_a_convolution_notes_its_lengths_alone() -> None:
    def rule(facts: windows.Facts, ctx: windows.Context, node: ir.Node) -> None:
        node.outputs[0].shape = ir.Shape(["N", "C", "T - 2", "V"])
        windows.infer_conv(facts, ctx, node)

    assert apply_rule(rule, "y = Conv (sig, k3)", FLOATS)[1].positive == ["T - 2", "V"]
    assert apply_rule(windows.infer_conv, "y = Conv (sig, k3)", FLOATS)[1].positive == []
