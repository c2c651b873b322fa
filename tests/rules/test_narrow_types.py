"""Types that contradict each other, and those that need not agree."""

from __future__ import annotations

import pytest

from tests.rules.checking import findings, graph


class TestTypeConflict:
    def test_states_of_a_loop_may_differ_in_type(self) -> None:
        text = graph(
            """(float[N] x0) => (float[N] y) <int64 m = {5}, bool ok = {1}, int32 t0 = {0}>
            { t9, y = Loop (m, ok, t0, x0) <body = b (int64 i, bool c, int32 t, float[N] x)
                => (bool c1, int32 t1, float[N] x1)
                { t1 = Neg (t)  x1 = Neg (x)  c1 = Identity (c) }> }""",
            15,
        )
        assert not findings(text, "type-conflict")

    def test_what_an_if_returns_may_differ_in_type(self) -> None:
        text = graph(
            """(bool c, float[N] x) => (float[N] y, int64[P] z) { y, z = If (c) <
            then_branch = t () => (float[N] p, int64[P] q) { p = Relu (x)  q = Shape (x) },
            else_branch = e () => (float[N] r, int64[P] s) { r = Neg (x)  s = Shape (x) }> }"""
        )
        assert not findings(text, "type-conflict")

    @pytest.mark.parametrize("node", ["Concat <axis = 0> (x, i)", "Max (x, i)", "Add (x, i)"])
    def test_inputs_of_one_type_may_not(self, node: str) -> None:
        (hit,) = findings(
            graph(f"(float[N] x, int64[N] i) => (y) {{ y = {node} }}"), "type-conflict"
        )
        assert "float and int64" in hit.message
