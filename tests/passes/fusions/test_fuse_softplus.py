"""fuse-softplus: which logarithms are one Softplus, with equal numbers, and which are not."""

from __future__ import annotations

import numpy as np
import pytest

import graphfix
from tests.passes.models import execute, model, ops, refusals

LOG = "e = Exp (x) m = Add ({sum}) y = Log (m)"
SAFE = """z = {mirror} s = Abs (z) b = Neg (s) e = Exp (b) m = Add (e, one) r = Log (m)
    t = {top} y = Add ({sum})"""
CONSTANTS = "float one = {1}, float zero = {0}, float two = {2}, float[1, 1, 1, 1] wide = {0}"


def text(body: str, more: str = "", kind: str = "float") -> str:
    constants = CONSTANTS.replace("float", kind)
    if kind == "float16":  # ONNX text has it by its bits
        constants = constants.replace("{1}", "{15360}").replace("{2}", "{16384}")
    return f"m ({kind}[B, 3] x) => ({kind}[B, 3] y{more}) <{constants}> {{ {body} }}"


@pytest.mark.parametrize(
    "body",
    [
        LOG.format(sum="e, one"),
        LOG.format(sum="one, e"),
        *(
            SAFE.format(mirror=mirror, top=top, sum=total)
            for mirror, top, total in [
                ("Sub (zero, x)", "Max (zero, x)", "t, r"),
                ("Sub (x, zero)", "Max (x, zero)", "r, t"),
                ("Neg (x)", "Relu (x)", "t, r"),
                ("Identity (x)", "Relu (x)", "r, t"),
            ]
        ),
    ],
)
@pytest.mark.parametrize("kind", ["float", "float16"])
def test_a_logarithm_of_one_plus_an_exponential_is_a_softplus(body: str, kind: str) -> None:
    before, after = (model(text(body, kind=kind)) for _ in range(2))
    graphfix.run(after, "fold")
    graphfix.run(after, "fuse-softplus")
    assert ops(after) == ["Softplus"]
    assert not graphfix.run(after, "fuse-softplus").changed
    dtype, near = (np.float16, 2e-3) if kind == "float16" else (np.float32, 1e-6)
    x = np.array([[-50, -3, -0.1], [0, 0.1, 3], [10.5, 1e-4, 7]], dtype)
    (a,), (b,) = execute(before, {"x": x}), execute(after, {"x": x})
    np.testing.assert_allclose(a, b, rtol=near, atol=near / 2)


def test_it_does_not_overflow_any_more() -> None:
    after = model(text(LOG.format(sum="e, one")))
    graphfix.run(after, "fuse-softplus")
    (y,) = execute(after, {"x": np.array([[100, 1e4, 89]], np.float32)})
    np.testing.assert_array_equal(y, np.array([[100, 1e4, 89]], np.float32))


@pytest.mark.parametrize(
    ("body", "more"),
    [
        (LOG.format(sum="e, x"), ""),
        (LOG.format(sum="e, e"), ""),
        (LOG.format(sum="e, one"), ", float[B, 3] e"),
        (LOG.format(sum="e, one"), ", float[B, 3] m"),
        (LOG.replace("Exp", "Sin").format(sum="e, one"), ""),
    ],
)
def test_what_is_no_softplus_stays(body: str, more: str) -> None:
    assert refusals(model(text(body, more)), "fuse-softplus") == []


@pytest.mark.parametrize(
    ("mirror", "top"),
    [
        ("Sub (one, x)", "Max (zero, x)"),
        ("Add (x, x)", "Max (zero, x)"),
        ("Neg (x)", "Max (one, x)"),
        ("Neg (x)", "Max (zero, x, two)"),
        ("Neg (x)", "Max (x)"),
        ("Neg (x)", "Max (zero, wide)"),
        ("Neg (x)", "LeakyRelu (x)"),
    ],
)
def test_another_sum_with_a_logarithm_keeps_its_sum(mirror: str, top: str) -> None:
    after = model(text(SAFE.format(mirror=mirror, top=top, sum="t, r")))
    graphfix.run(after, "fuse-softplus")
    assert ops(after)[-3:] == ["Softplus", top.partition(" ")[0], "Add"]


def test_a_zero_that_makes_it_wider_keeps_its_sum() -> None:
    body = SAFE.format(mirror="Neg (x)", top="Max (wide, x)", sum="t, r")
    after = model(text(body).replace("(float[B, 3] y)", "(float[1, 1, B, 3] y)"))
    graphfix.run(after, "fuse-softplus")
    assert ops(after)[-3:] == ["Softplus", "Max", "Add"]


@pytest.mark.parametrize("top", ["Relu (x)", "Max (zero, x)"])
@pytest.mark.parametrize("part", ["s", "b", "r", "t"])
def test_a_part_that_something_else_reads_keeps_its_sum(part: str, top: str) -> None:
    body = SAFE.format(mirror="Neg (x)", top=top, sum="t, r")
    after = model(text(f"{body} other = Sin ({part})", ", float[B, 3] other"))
    graphfix.run(after, "fuse-softplus")
    assert "Add" in ops(after)
