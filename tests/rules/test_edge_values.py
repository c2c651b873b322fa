"""Rules for what DirectML computes wrong at the edges of a type: lost NaN, DFT of one element."""

from __future__ import annotations

import onnx_ir as ir
import pytest

import graphfix


def _severities(body: str, check: str, opset: int = 18) -> list[str]:
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> m {body}'
    return [x.severity for x in graphfix.check(ir.from_onnx_text(text), check)]


class TestLostNan:
    @pytest.mark.parametrize(
        "move",
        [
            "Reshape (top, shape)",
            "Flatten (top)",
            "Expand (top, shape)",
            "Slice (top, zero, two)",
            "Gather (top, zero)",
            "Cast <to = 10> (top)",
            "Identity (top)",
            "Tile (top, twice)",
        ],
    )
    def test_nan_is_lost_before_a_move_as_well(self, move: str) -> None:
        body = f"""(float[2, 4] x, float[2, 4] z) => (bool[P, Q] y) <int64[2] shape = {{2, 4}},
            int64[1] zero = {{0}}, int64[1] two = {{2}}, int64[2] twice = {{2, 1}}>
            {{ top = Max (x, z)  moved = {move}  y = IsNaN (moved) }}"""
        assert _severities(body, "lost-nan") == ["warning"]

    @pytest.mark.parametrize("node", ["Concat <axis = 0> (top, z)", "Add (top, z)"])
    def test_other_numbers_may_be_nan(self, node: str) -> None:
        body = f"""(float[2, 4] x, float[2, 4] z) => (bool[P, Q] y)
            {{ top = Max (x, z)  n = {node}  y = IsNaN (n) }}"""
        assert not _severities(body, "lost-nan")


class TestLoneDft:
    @pytest.mark.parametrize(
        ("opset", "node", "severities"),
        [
            (17, "DFT (x)", ["error"]),  # axis 1
            (17, "DFT <axis = 2> (x)", []),
            (20, "DFT (x)", []),  # axis -2
            (20, "DFT (x, , one)", ["error"]),
            (20, "DFT (x, , computed)", []),  # along which axis is not known
        ],
    )
    def test_its_axis(self, opset: int, node: str, severities: list[str]) -> None:
        body = f"""(float[B, 1, 4, 2] x, int64 computed) => (float[P, Q, R, S] y)
            <int64 one = {{1}}> {{ y = {node} }}"""
        assert _severities(body, "lone-dft", opset) == severities
