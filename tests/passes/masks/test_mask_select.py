"""mask-select: one Where of two constants for a mask, and what stays."""

from __future__ import annotations

import onnx_ir as ir
import pytest

import graphfix
from graphfix.proof.compare import Tolerance
from graphfix.proof.verify import verify
from tests.passes.models import ops, refusals

CONSTANTS = """<float floor = {-10000.0}, float endless = {-inf}, float16 low = {61666},
    int64[4] heads = {1, 4, 1, 1}, int64[4] many = {1, 4, 32, 32}>"""


def model(body: str, out: str = "", dtype: str = "float") -> ir.Model:
    inputs = f"{dtype}[B, 4, T, T] scores, bool[B, 1, T, T] seen"
    return ir.from_onnx_text(
        f'<ir_version: 8, opset_import: ["" : 17]> m ({inputs}) => ({dtype}[B, 4, T, T] y{out}) '
        f"{CONSTANTS} {{ {body} y = Add (scores, addend) }}"
    )


CAST = "n = Cast <to = 1> (seen)"
HIDDEN = "hidden = Not (seen) n = Cast <to = 1> (hidden)"
MADE = {
    "behind a Not": f"{HIDDEN} addend = Mul (n, floor)",
    "the other way round": f"{HIDDEN} addend = Mul (floor, n)",
    "of the boolean itself": f"{CAST} addend = Mul (n, floor)",
    "expanded over the heads": f"{HIDDEN} a = Mul (n, floor) addend = Expand (a, heads)",
}


@pytest.mark.parametrize("case", MADE)
def test_one_where_makes_the_addend(case: str) -> None:
    before, after = model(MADE[case]), model(MADE[case])
    assert graphfix.run(after, "mask-select").changed
    assert ops(after) == ["Where", "Add"]
    assert verify(before, after, tolerance=Tolerance(max_abs=0)).ok
    assert not graphfix.run(after, "additive-mask,mask-select").changed


def test_in_float16() -> None:
    body = "n = Cast <to = 10> (hidden) addend = Mul (n, low)"
    before, after = (model(f"hidden = Not (seen) {body}", dtype="float16") for _ in range(2))
    graphfix.run(after, "mask-select")
    assert ops(after) == ["Where", "Add"]
    assert verify(before, after).ok


STAYS = {
    "0 times infinity is NaN": (f"{CAST} addend = Mul (n, endless)", ""),
    "the Cast has another user": (
        f"{CAST} addend = Mul (n, floor) other = Identity (n)",
        ", float[B, 1, T, T] other",
    ),
    "what is cast is no boolean": ("n = Cast <to = 1> (scores) addend = Mul (n, floor)", ""),
    "the factor is no constant": (f"{CAST} addend = Mul (n, scores)", ""),
}


@pytest.mark.parametrize("case", STAYS)
def test_what_stays(case: str) -> None:
    assert not graphfix.run(model(*STAYS[case]), "mask-select").changed


def test_a_mask_is_not_expanded_to_all_places() -> None:
    after = model(f"{HIDDEN} a = Mul (n, floor) addend = Expand (a, many)")
    graphfix.run(after, "mask-select")
    assert ops(after) == ["Where", "Expand", "Add"]


def test_the_result_has_the_rank_of_the_constant() -> None:
    """An Expand may be given fewer sizes than its tensor has."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
        m (bool[T] seen) => (float[A, B, C, D] y)
        <float[1, 1, 1, 1] floor = {-10000.0}, float zero = {0.0}, int64[2] sizes = {4, 1}>
        { a = Where (seen, zero, floor) y = Expand (a, sizes) }"""
    for one in (text, text.replace("zero, floor", "floor, zero")):
        before, after = ir.from_onnx_text(one), ir.from_onnx_text(one)
        assert graphfix.run(after, "mask-select").changed
        assert ops(after) == ["Where"]
        assert verify(before, after, tolerance=Tolerance(max_abs=0)).ok


def test_a_where_of_the_floor_is_an_addend_already() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        m (float[B, 4, T, T] scores, bool[B, 1, T, T] hidden) => (float[B, 4, T, T] y)
        <float floor = {FLOOR}, float zero = {0.0}>
        { addend = Where (hidden, floor, zero) masked = Add (scores, addend)
          y = Softmax <axis = -1> (masked) }"""
    for floor, changed in (("-10000.0", False), ("-inf", True)):
        m = ir.from_onnx_text(text.replace("FLOOR", floor))
        assert graphfix.run(m, "additive-mask").changed is changed


def test_before_there_is_a_where_nothing_is_made_of_it() -> None:
    made = model(f"{CAST} addend = Mul (n, floor)")
    made.graph.opset_imports[""] = 8
    assert "convert the model" in refusals(made, "mask-select")[0]
