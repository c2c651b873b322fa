"""Shapes of windows that slide along an axis, of matrix products, and of a Resize."""

from __future__ import annotations

import pytest

from graphfix.facts.shapes import shapes_of
from tests.facts.symbolic.bodies import INPUTS, dims_of, keys, result_of

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
