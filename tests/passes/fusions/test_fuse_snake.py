"""fuse-snake: which Snakes are shortened, with equal numbers, and which are not."""

from __future__ import annotations

import numpy as np
import pytest

import graphfix
from tests.passes.models import execute, model, ops

HEAD = """m (float[B, 2, T] x{more}) => (float[B, {out}, U] y{outputs})
    <float[1, 2, 1] a = {{2, 0.5}}, float[1, 2, 1] inverse = {{0.5, 2}}, float two = {{2}},
     float[1, 2, 1] height = {{-3, 0.25}}, float[1, 2, 1] high = {{33, 1}}, float three = {{3}},
     float[1, 2, 1] small = {{0.0009, 1}}, float[1, 2, 1] large = {{1111.111, 1}},
     float[1, 1, 2] last = {{2, 0.5}}, float[1, 2, 1] near = {{0.50001, 2}}, float[2] b = {{1, 2}},
     float[2, 2, 3] w = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}, float[2, 1, 1] g = {{3, 4}}>"""
SNAKE = """angle = Mul ({angle}) sine = Sin (angle) wave = Pow (sine, {power})
    high_wave = Mul ({height}) s = Add ({sum})"""
CONV = "y = Conv <pads = [1, 1]> (s, w, b)"
DECONV = "y = ConvTranspose <strides = [2]> (s, w)"
IDLE = "y = Identity (s)"


def text(
    behind: str = CONV,
    *,
    angle: str = "a, x",
    height: str = "inverse, wave",
    power: str = "two",
    total: str = "x, high_wave",
    more: str = "",
    outputs: str = "",
) -> str:
    body = SNAKE.format(angle=angle, height=height, power=power, sum=total)
    return f"{HEAD.format(more=more, out=2, outputs=outputs)} {{ {body} {behind} }}"


def assert_same_numbers(source: str, near: float) -> list[str]:
    before, after = model(source), model(source)
    assert graphfix.run(after, "fuse-snake").changed
    assert not graphfix.run(after, "fuse-snake").changed
    x = 3 * np.random.default_rng(0).standard_normal((2, 2, 7)).astype(np.float32)
    expected, seen = execute(before, {"x": x}), execute(after, {"x": x})
    np.testing.assert_allclose(seen[0], expected[0], rtol=near, atol=near * 10)
    return ops(after)


@pytest.mark.parametrize("angle", ["a, x", "x, a"])
@pytest.mark.parametrize("height", ["inverse, wave", "wave, inverse"])
@pytest.mark.parametrize("behind", [CONV, DECONV])
def test_the_next_convolution_takes_the_frequency(angle: str, height: str, behind: str) -> None:
    source = text(behind, angle=angle, height=height, total="high_wave, x")
    after = assert_same_numbers(source, 1e-6)
    assert [x for x in after if x in ("Mul", "Sin", "Pow", "Add", "Cos")] == [
        *("Mul", "Sin", "Pow", "Add"),
    ]


def test_a_computed_height_is_read() -> None:
    body = "r = Reciprocal (a)" + SNAKE.format(
        angle="a, x", height="r, wave", power="two", sum="x, high_wave"
    )
    source = f"{HEAD.format(more='', out=2, outputs='')} {{ {body} {CONV} }}"
    assert "Sin" in assert_same_numbers(source, 1e-6)


@pytest.mark.parametrize(
    "source",
    [
        text(height="height, wave"),  # SnakeBeta
        text(IDLE),
        text(IDLE, height="height, wave"),
        text("y = Conv <group = 2> (s, g)"),
        text(f"{CONV} z = Neg (s)", outputs=", float[B, 2, T] z"),
        text("c = Conv <pads = [1, 1]> (s, w) d = Conv <pads = [1, 1]> (x, w) y = Add (c, d)"),
        text(height="near, wave"),
    ],
)
def test_else_a_cosine_takes_one_operator_less(source: str) -> None:
    after = assert_same_numbers(source, 2e-6)
    assert {"Cos", "BatchNormalization"} <= {*after}
    assert "Sin" not in after


@pytest.mark.parametrize(
    "source",
    [
        text(IDLE, height="high, wave"),
        text(angle="small, x", height="large, wave"),  # the weight would grow
        text(power="three"),
        text(angle="late, x", more=", float[1, 2, 1] late"),
        text(height="late, wave", more=", float[1, 2, 1] late"),
        text(angle="last, x", height="last, wave"),
        text(total="angle, high_wave"),
        text(outputs=", float[B, 2, T] sine"),
        text(IDLE).replace("float[B, 2, T] x", "float[B, 2, T, 1] x"),
        text(IDLE).replace("float", "double"),
    ],
)
def test_what_stays(source: str) -> None:
    assert not graphfix.run(model(source), "fuse-snake").changed


def test_a_large_height_stays_with_its_convolution_if_it_is_one_over_the_frequency() -> None:
    source = text(angle="high, x", height="low, wave").replace(
        "float two", "float[1, 2, 1] low = {0.030303031, 1}, float two"
    )
    assert "Sin" in assert_same_numbers(source, 1e-6)


def test_before_opset_9_there_is_no_such_batch_norm() -> None:
    source = text(IDLE, height="height, wave")
    assert graphfix.run(model(source, 9), "fuse-snake").changed
    assert not graphfix.run(model(source, 8), "fuse-snake").changed
