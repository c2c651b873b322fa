"""A quantized model may differ as far as the original differs from itself, and no further."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.proof.compare import OutputDiff, Tolerance
from graphfix.proof.own_rounding import OwnRounding, measure_own_rounding
from graphfix.runtime.local_session import Session

_W, _G = (", ".join(map(str, x)) for x in ([37 * i % 23 - 11 for i in range(64)], [1.0] * 8))
INTEGERS = f"int8[8, 8] w = {{{_W}}}"
GAINS = f"float[8] g = {{{_G}}}"
RNG = np.random.default_rng(0)
# Their range is one of 255 whole numbers; every fiftieth lies in the middle between two.
PLACES = np.where(RNG.random((500, 8)) < 0.02, 0.5, 0.2) + RNG.integers(-100, 100, (500, 8))
PLACES[0, :2] = -127, 128
FEEDS = {"x": PLACES.astype(np.float32)}


def model(
    more: float = 0.0, *, name: str = "q", factor: float = 0.02, rounds: bool = True
) -> ir.Model:
    """Return a product of what is rounded; under another name nothing is fed between roundings."""
    rounded = f"{name}, s, z = DynamicQuantizeLinear (b) d = DequantizeLinear ({name}, s, z)"
    return ir.from_onnx_text(f"""<ir_version: 8, opset_import: ["" : 17]>
    m (float[B, 8] x) => (float[B, 8] y)
    <float more = {{{more}}}, float factor = {{{factor}}}, {GAINS}, {INTEGERS}>
    {{ a = Mul (x, g) b = Add (a, more) {rounded if rounds else "d = Identity (b)"}
       f = Cast <to = 1> (w) p = MatMul (d, f) y = Mul (p, factor) }}""")


def test_flipped_roundings_that_the_original_has_too_are_allowed() -> None:
    verdict = graphfix.verify(model(), model(1e-5, name="r"), feeds=FEEDS)
    assert verdict.ok
    assert verdict.allowance.startswith("the original rounds to integers, and differs from itself")
    assert [x.label for x in verdict.rows() if x.text == verdict.allowance] == ["allowed"]
    assert verdict.to_json()["allowance"] == verdict.allowance


@pytest.mark.parametrize(
    "after",
    [
        model(0.01, name="r"),
        model(name="r", factor=0.0202),
        model(name="q", factor=0.02005),
        model(1e-3, name="q"),
    ],
    ids=["before it", "behind it", "behind it, a little", "before it, a little"],
)
def test_a_fault_is_told(after: ir.Model) -> None:
    verdict = graphfix.verify(model(), after)
    assert not verdict.ok
    assert not verdict.allowance


def test_the_tolerance_of_the_user_holds() -> None:
    assert not graphfix.verify(model(), model(1e-5, name="r"), feeds=FEEDS, tolerance=Tolerance())


def test_a_model_that_does_not_round_is_given_nothing() -> None:
    verdict = graphfix.verify(model(rounds=False), model(3e-4, rounds=False, factor=0.0202))
    assert not verdict.ok
    assert "itself" not in str(verdict.to_json())


@pytest.mark.parametrize("optimize", [False, True])
def test_it_is_measured_in_both_kinds_of_sessions(optimize: bool) -> None:
    source = model()
    with Session(source, optimize=False) as session:
        runs = [(FEEDS, session.run(FEEDS))]
    own = measure_own_rounding(source, source, runs, Tolerance(), 60, optimize=optimize)
    assert own is not None
    assert own.runs == (3 if optimize else 2)
    assert "other last bits of its weights and inputs" in own.largest
    assert ("ONNX Runtime's optimizations" in own.largest) is optimize
    assert 0 < max(own.largest.values()) < 0.1
    late = measure_own_rounding(source, source, runs, Tolerance(), 0, optimize=False)
    assert late is not None
    assert not late.runs
    plain = model(rounds=False)
    assert measure_own_rounding(plain, plain, runs, Tolerance(), 60, optimize=False) is None


def test_what_is_allowed_has_an_end() -> None:
    own = OwnRounding()
    diff = OutputDiff("y", "", ok=False, max_abs=5.0, worst_abs=5.0, allowed=1e-4, rms=3.0)
    integers = OutputDiff("n", "", ok=False, differing=9, compared=10)
    own.add_run("that", [diff, integers], Tolerance())
    usual = Tolerance()
    wide = own.widen(usual)
    assert own.largest == {"that": 5.0}
    assert (wide.max_abs, wide.rms, wide.equal) == (0.1, 0.05, 0.9)
    assert wide.cosine == pytest.approx(1 - 0.05**2)
    assert OwnRounding().widen(usual) == dataclasses.replace(usual, rms=usual.max_abs)
