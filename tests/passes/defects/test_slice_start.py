"""slice-start: which starts become 0, what is left alone, and that every number stays."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfix
from graphfix.graph.constants import ints_of
from tests.passes.models import execute

LOWEST, HIGHEST = -(2**63), 2**63 - 1
WORD = -(2**31)


def model(
    starts: list[int], ends: list[int], steps: list[int] | None = None, *, opset: int = 17
) -> ir.Model:
    given = {"s": starts, "e": ends, "a": list(range(len(starts)))}
    if steps is not None:
        given["st"] = steps
    inits = ", ".join(
        f"int64[{len(v)}] {k} = {{{', '.join(map(str, v))}}}" for k, v in given.items()
    )
    return ir.from_onnx_text(
        f'<ir_version: 8, opset_import: ["" : {opset}]> m (float[B, T] x) => (float[C, U] y) '
        f"<{inits}> {{ y = Slice (x, {', '.join(given)}) }}"
    )


def run(m: ir.Model, x: np.ndarray) -> np.ndarray:
    return execute(m, {"x": x})[0]


def starts_of(m: ir.Model) -> tuple[int, ...] | None:
    return ints_of(next(n for n in m.graph if n.op_type == "Slice").inputs[1])


@pytest.mark.parametrize(
    ("starts", "ends", "meant"),
    [
        ([LOWEST], [-2], (0,)),
        ([WORD], [-1], (0,)),
        ([LOWEST, LOWEST], [-1, 5], (0, LOWEST)),  # one of two
        ([1, LOWEST], [-1, -1], (1, 0)),
    ],
)
def test_it_starts_at_0(starts: list[int], ends: list[int], meant: tuple[int, ...]) -> None:
    m = model(starts, ends)
    assert graphfix.run(m, "slice-start").changed
    assert starts_of(m) == meant


@pytest.mark.parametrize(
    ("starts", "ends", "steps"),
    [
        ([WORD + 1], [-2], None),  # runs rightly
        ([LOWEST], [3], None),
        ([-2], [HIGHEST], None),
        ([HIGHEST], [LOWEST], [-1]),
        ([LOWEST], [-1], [-1]),
    ],
)
def test_what_directml_does_rightly_stays(
    starts: list[int], ends: list[int], steps: list[int] | None
) -> None:
    m = model(starts, ends, steps)
    before = ir.to_proto(m)
    assert not graphfix.run(m, "slice-start").changed
    assert ir.to_proto(m) == before


@pytest.mark.parametrize(("opset", "changed"), [(22, False), (23, True)])
def test_a_shape_is_cut_on_the_cpu_as_long_as_directml_has_shape(opset: int, changed: bool) -> None:
    m = ir.from_onnx_text(
        f'<ir_version: 10, opset_import: ["" : {opset}]> m (float[B, C, T] x) => (int64[N] y) '
        f"<int64[1] s = {{{LOWEST}}}, int64[1] e = {{-2}}> {{ h = Shape (x) y = Slice (h, s, e) }}"
    )
    severities = [x.severity for x in graphfix.check(m, "slice-start")]
    assert severities == ["error"] * changed
    assert graphfix.run(m, "slice-start").changed == changed


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.sampled_from([LOWEST, WORD - 1, WORD, WORD + 1, -3, 0, 2]), min_size=2, max_size=2),
    st.lists(st.sampled_from([LOWEST, WORD, -7, -2, -1, 0, 3, HIGHEST]), min_size=2, max_size=2),
    st.sampled_from([[1, 1], [1, -1], [2, 1]]),
)
def test_every_number_stays(starts: list[int], ends: list[int], steps: list[int]) -> None:
    before, after = model(starts, ends, steps), model(starts, ends, steps)
    graphfix.run(after, "slice-start")
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    np.testing.assert_array_equal(run(before, x), run(after, x))


def test_a_start_of_32_bits_stays_one() -> None:
    """All that says where a Slice cuts is of one type."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]> m (float[B, T] x) => (float[B, U] y)
        <int32[1] s = {{{WORD}}}, int32[1] e = {{-2}}, int32[1] a = {{1}}>
        {{ y = Slice (x, s, e, a) }}"""
    before, after = ir.from_onnx_text(text), ir.from_onnx_text(text)
    assert graphfix.run(after, "slice-start").changed
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    np.testing.assert_array_equal(run(after, x), run(before, x))


def test_a_slice_of_a_constant_is_left_to_folding() -> None:
    m = ir.from_onnx_text(
        f"""<ir_version: 8, opset_import: ["" : 17]> m (float[B, 2] x) => (float[B, 2] y)
        <float[4] c = {{1, 2, 3, 4}}, int64[1] s = {{{LOWEST}}}, int64[1] e = {{-2}}>
        {{ two = Slice (c, s, e) y = Add (x, two) }}"""
    )
    assert not graphfix.run(m, "slice-start").changed
