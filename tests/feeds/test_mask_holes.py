"""Holes in masks: what a repair that reads a mask as a length gets wrong."""

from __future__ import annotations

import onnx_ir as ir
import pytest

import graphfix
from graphfix.feeds.arrays import CaseMaker
from graphfix.feeds.case import Case
from graphfix.feeds.mask_holes import punch_holes
from graphfix.feeds.signature import Signature

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
CONSTANTS = """<int64[1] last = {-1}, int64[1] one = {1}, float low = {-10000},
    int64 along = {1}, float none = {0}>"""
# Attention over the data itself, with a mask of keys.
MODEL = f"""{HEAD} m (float[B, T, 4] x, int64[B, T] mask) => (float[B, T, 4] y)
    {CONSTANTS}
    {{ %s n = Not (m) u = Unsqueeze (n, one) t = Transpose <perm = [0, 2, 1]> (x)
       s = MatMul (x, t) h = Where (u, low, s) p = Softmax <axis = -1> (h) y = MatMul (p, x) }}"""
RIGHT = MODEL % "m = Cast <to = 9> (mask)"
# The mask as one stretch, from its first to its last element.
AS_STRETCH = MODEL % (
    "f = Cast <to = 1> (mask) c = CumSum (f, along) r = CumSum <reverse = 1> (f, along)"
    "a = Greater (c, none) b = Greater (r, none) m = And (a, b)"
)


def made(text: str, rows: int = 3, size: int = 12) -> tuple[Case, Signature]:
    signature = Signature(ir.from_onnx_text(text))
    groups = dict(zip(signature.groups, (rows, size), strict=True))
    return CaseMaker(signature, 0).make_case(0, groups), signature


def test_holes_are_inside_the_content_and_differ_by_row() -> None:
    case, signature = made(RIGHT)
    pair = punch_holes(case, signature)
    assert pair is not None
    holed, other = pair
    before, after = case.feeds["mask"], holed.feeds["mask"]
    for row, length in zip(range(3), case.valid["T"], strict=True):
        assert after[row, 0] == 1
        assert after[row, length - 1] == 1
        assert (after[row, length:] == 0).all()
    assert (after.sum(axis=1) < before.sum(axis=1)).all()
    assert not (after[0] == after[1]).all()
    changed = (holed.feeds["x"] != other.feeds["x"]).any(axis=-1)
    assert not changed[after == 1].any(), "the content stays"
    assert changed[(before == 1) & (after == 0)].all()
    assert other.poison == "other numbers"
    assert (holed.valid, other.base) == (case.valid, holed.name)


@pytest.mark.parametrize(
    "text",
    [
        f"{HEAD} m (float[B, T, 4] x) => (float[B, T, 4] y) {{ y = Tanh (x) }}",
        RIGHT.replace("int64[B, T] mask", "int64[B, 1, T, T] mask").replace(
            "u = Unsqueeze (n, one)", "u = Squeeze (n, one)"
        ),
    ],
    ids=["no mask", "a mask by query"],
)
def test_other_inputs_have_no_holes(text: str) -> None:
    assert punch_holes(*made(text)) is None


def test_content_of_three_has_no_inside() -> None:
    assert punch_holes(*made(RIGHT, 1, 3)) is None


def test_a_repair_that_reads_a_mask_as_one_stretch_is_told() -> None:
    right = graphfix.verify(ir.from_onnx_text(RIGHT), ir.from_onnx_text(RIGHT))
    assert right.ok
    assert "holes in the mask" in right.covered
    for safety in ("exact", "valid-rows"):
        wrong = graphfix.verify(
            ir.from_onnx_text(RIGHT), ir.from_onnx_text(AS_STRETCH), safety=safety
        )
        assert not wrong.ok
        assert all("holes in the mask" in name for name in wrong.failed)


def test_what_is_computed_from_holes_is_no_content() -> None:
    # A repair that is right where the mask is 1 and gives zeros elsewhere.
    zeros = MODEL % "m = Cast <to = 9> (mask)"
    zeros = zeros.replace(
        "y = MatMul (p, x)",
        "z = MatMul (p, x) c = Cast <to = 1> (m) w = Unsqueeze (c, last) y = Mul (z, w)",
    )
    pair = ir.from_onnx_text(RIGHT), ir.from_onnx_text(zeros)
    assert graphfix.verify(*pair, safety="valid-rows").ok
    assert not graphfix.verify(*pair).ok
