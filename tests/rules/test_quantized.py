"""Four-bit weights."""

from __future__ import annotations

import pytest

from tests.rules.checking import severities


class TestFourBits:
    @pytest.mark.parametrize(
        ("opset", "body", "flagged"),
        [
            (21, "y = DequantizeLinear (w, s)", True),
            (21, "y = DequantizeLinear <axis = 1> (w, each)", True),
            (21, "y = DequantizeLinear <axis = 0, block_size = 2> (w, row)", False),
            (21, "q = QuantizeLinear (x, s, z) y = DequantizeLinear (q, s, z)", False),
            (23, "y = DequantizeLinear (w, s)", False),  # on the CPU
        ],
    )
    def test_constants_without_blocks(self, opset: int, body: str, flagged: bool) -> None:
        text = f"""(float[B, 2] x) => (float[P, Q] y) <uint4[2, 2] w = {{33, 67}}, float s = {{1}},
            float[2] each = {{1, 2}}, float[1, 2] row = {{1, 2}}, uint4 z = {{0}}> {{ {body} }}"""
        text = f'<ir_version: 10, opset_import: ["" : {opset}]> m {text}'
        assert severities(text, "four-bits") == ["error"] * flagged
