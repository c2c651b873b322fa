"""Infinities in float16 and float32."""

from __future__ import annotations

from tests.rules.checking import graph, severities


class TestLostInfinity:
    def test_an_infinity_in_float32_is_not_lost(self) -> None:
        text = graph(
            """(float[N, 4] x, float[4, 4] w) => (bool[N, 4] y)
            { s = MatMul (x, w)  h = Cast <to = 10> (s)  y = IsInf (s) }"""
        )
        assert not severities(text, "lost-infinity")
