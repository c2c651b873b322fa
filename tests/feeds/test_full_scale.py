"""How large the numbers of a wave or a picture are, by what the graph does with them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.feeds.case_search import search_cases
from graphfix.feeds.coverage import measure_coverage
from graphfix.feeds.full_scale import FullScale, find_full_scale
from tests.feeds.small_models import model

PCM = FullScale(32768.0, 2048.0)
WHITE = FullScale(255.0, 255.0)
RAW = FullScale(32768.0, 1.0)

SCALED = "m (%s[%s] x) => (float[%s] y) <float[1] c = {%s}> { f = Cast <to = 1> (x) y = %s }"
SPECTRUM = """m (float[%s, T] x) => (float[B, 2, F] y)
    <float[4, 1, 3] w = {1,2,3, 4,5,6, 7,8,9, 1,2,1}, int64[1] one = {1}, int64[2] half = {2, 2},
     float floor = {1e-5}, float[2, 2, 1] k = {1, 2, 3, 4}>
    { u = Unsqueeze (x, one)  s = Conv <strides = [2]> (u, w)  a, b = Split <axis = 1> (s, half)
      p = Mul (a, a)  q = Mul (b, b)  e = Add (p, q)  %s }"""
LOG = "c = Max (e, floor)  y = Log (c)"


def full_scale(text: str) -> FullScale | None:
    return find_full_scale(model(text).graph.inputs[0])


@pytest.mark.parametrize(
    ("dtype", "dims", "constant", "body", "expected"),
    [
        pytest.param("int16", "B, T", "3", "Mul (f, c)", PCM, id="int16 is samples"),
        pytest.param("int16", "B, 2, T", "3", "Mul (f, c)", PCM, id="of two channels"),
        pytest.param("int16", "1, 512", "3", "Mul (f, c)", PCM, id="of a fixed window"),
        pytest.param("int16", "B, 8, T", "3", "Mul (f, c)", PCM, id="of many channels"),
        pytest.param("int16", "B, 9, T", "3", "Mul (f, c)", None, id="of too many"),
        pytest.param("int32", "B, T", "2147483648", "Div (f, c)", FullScale(2.0**31, 2.0**27)),
        pytest.param("int64", "B, T", "3", "Mul (f, c)", None, id="any whole number"),
        pytest.param("float", "B, T", "32768", "Div (f, c)", PCM, id="brought to 1"),
        pytest.param("float", "T", "3.0517578e-05", "Mul (f, c)", PCM, id="by a factor"),
        pytest.param("float", "B, T", "3.0517578e-05", "Mul (c, f)", PCM, id="first"),
        pytest.param("float", "B, T", "32768", "Mul (f, c)", FullScale(1.0, 1.0), id="from 1"),
        pytest.param("float", "B, T", "32768", "Div (c, f)", None, id="divides a number"),
        pytest.param("float", "B, T", "7", "Div (f, c)", None, id="another number"),
        pytest.param("float", "B, T, 80", "32768", "Div (f, c)", None, id="features, no wave"),
        pytest.param("uint8", "N, 1, H, W", "3", "Mul (f, c)", WHITE, id="uint8 is pixels"),
        pytest.param("uint8", "B, T", "3", "Mul (f, c)", None, id="of a picture"),
        pytest.param("float", "N, 1, H, W", "255", "Div (f, c)", WHITE, id="grey, to 1"),
        pytest.param("float", "N, 1, H, W", "3", "Div (f, c)", None, id="grey or a spectrogram"),
        pytest.param("float", "B, T", "255", "Div (f, c)", None, id="no picture"),
    ],
)
def test_type_and_first_divisor(
    dtype: str, dims: str, constant: str, body: str, expected: FullScale | None
) -> None:
    assert full_scale(SCALED % (dtype, dims, dims, constant, body)) == expected


@pytest.mark.parametrize(
    ("divisor", "largest"),
    [
        *((x, 255.0) for x in (127.5, 128, 255, 256)),
        *((x, 32768.0) for x in (32767, 32768)),
        *((x, 2.0**31) for x in (2**31 - 1, 2**31)),
        *((x, None) for x in (126.5, 129, 254, 257, 32766, 32769, 1 / 254, 1 / 32766)),
    ],
)
def test_what_brings_samples_to_1(divisor: float, largest: float | None) -> None:
    dims = "N, 1, H, W" if divisor < 1000 else "B, T"
    scale = full_scale(SCALED % ("float", dims, dims, divisor, "Div (f, c)"))
    assert (scale and scale.largest) == largest


@pytest.mark.parametrize("factor", [32767, 32768, 255])
def test_what_takes_samples_from_1(factor: float) -> None:
    scale = full_scale(SCALED % ("float", "B, T", "B, T", factor, "Mul (f, c)"))
    assert scale == FullScale(1.0, 1.0)


def test_a_mean_that_is_subtracted_changes_no_scale() -> None:
    text = """m (float[N, 1, H, W] x) => (float[N, 1, H, W] y) <float c = {127.5}>
        { d = Sub (x, c)  y = Div (d, c) }"""
    assert full_scale(text) == WHITE
    assert full_scale(text.replace("Sub (x, c)", "Tanh (x)")) is None


@pytest.mark.parametrize(
    ("batch", "tail", "expected"),
    [
        pytest.param("B", LOG, RAW, id="a logarithm"),
        pytest.param("B", "y = Sqrt (e)", RAW, id="an output"),
        pytest.param("B", "h = Conv (e, k)  y = Relu (h)", None, id="a layer"),
        pytest.param("B", "n = Identity (s)  y = Conv (u, w)", None, id="no spectrum"),
    ],
)
def test_a_wave_that_becomes_a_spectrum_as_it_is(
    batch: str, tail: str, expected: FullScale | None
) -> None:
    assert full_scale(SPECTRUM % (batch, tail)) == expected


def test_the_length_of_an_embedding_is_no_spectrum() -> None:
    text = """m (float[B, 256] x) => (float[B, 256] y) <int64[1] last = {-1}>
        { n = ReduceL2 <keepdims = 1> (x, last)  y = Div (x, n) }"""
    assert full_scale(text) is None


def loudest(text: str) -> tuple[dict[str, float], ir.Model]:
    made = model(text)
    cases = search_cases(made, lambda case: None, cover=True)
    return {x.name: float(np.abs(x.feeds["x"].astype(float)).max()) for x in cases}, made


def test_samples_are_fed_dense_and_as_loud_as_they_can_be() -> None:
    made = model(SCALED % ("int16", "B, T", "B, T", "3", "Mul (f, c)"))
    cases = search_cases(made, lambda case: None, cover=True)
    recordings = [x for x in cases if x.full_scale]
    assert recordings
    for case in recordings:
        wave = case.feeds["x"].astype(float)
        assert case.feeds["x"].dtype == np.int16
        assert 32_000 < np.abs(wave).max() <= 32_767
        assert np.mean(np.abs(wave) > 2_000) > 0.4  # no spike in silence
    usual = next(x for x in cases if x.dims["T"] == 40 and not x.full_scale).feeds["x"]
    assert 1_000 < np.abs(usual.astype(float)).mean() < 2_048
    assert any(not x.feeds["x"].any() for x in cases if x.feeds["x"].size > 1)


def test_a_wave_of_unknown_scale_is_fed_at_both() -> None:
    sizes, made = loudest(SPECTRUM % ("B", LOG))
    assert max(sizes.values()) == pytest.approx(32_768)
    assert sizes["B=1 T=7"] < 5
    cases = search_cases(made, lambda case: None, cover=True)
    assert "'x' at full scale (32,768)" in measure_coverage(cases, cases.signature).covered


def test_pictures_are_bright_in_every_case() -> None:
    for dtype, channels in (("uint8", 3), ("uint8", 1), ("float", 1)):
        dims = f"N, {channels}, H, W"
        sizes, made = loudest(SCALED % (dtype, dims, dims, "255", "Div (f, c)"))
        assert sizes["N=2 H=23 W=13"] > 250
        white = search_cases(made, lambda case: None, cover=True)
        pixels = next(x.feeds["x"] for x in white if x.full_scale)
        assert np.mean(pixels == 255) > 0.2
        assert np.mean(pixels < 128) > 0.2
