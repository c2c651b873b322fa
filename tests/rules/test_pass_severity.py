"""How bad a site of a pass is, by provider."""

from __future__ import annotations

import pytest

from tests.rules.checking import graph, severities

RESHAPE = """(float[B, T, 64] x) => (float[P, Q] y) <int64[2] s = {%s}>
    { y = Reshape <allowzero = 1> (x, s) }"""


class TestPasses:
    @pytest.mark.parametrize(("shape", "severity"), [("-1, 64", "error"), ("21, 64", "note")])
    def test_allowzero_crashes_with_minus_one_alone(self, shape: str, severity: str) -> None:
        text = graph(RESHAPE % shape)
        assert severities(text, "reshape-allowzero") == [severity]
        assert severities(text, "reshape-allowzero", "cpu") == ["note"]

    def test_the_cpu_reads_a_minus_one_rightly(self) -> None:
        # Run: a Whisper encoder at opset 23, for which DirectML has no Reshape, runs as exported.
        assert severities(graph(RESHAPE % "-1, 64", 22), "reshape-allowzero") == ["error"]
        assert severities(graph(RESHAPE % "-1, 64", 23), "reshape-allowzero") == ["note"]

    @pytest.mark.parametrize(("part", "severity"), [("minus", "error"), ("rows", "note")])
    def test_the_minus_one_may_be_in_a_part(self, part: str, severity: str) -> None:
        text = graph(
            """(float[B, 8] x) => (float[P, Q] y) <int64[1] minus = {-1}, int64[1] four = {4}>
            { rows = Shape <start = 0, end = 1> (x)  s = Concat <axis = 0> (%s, four)
              y = Reshape <allowzero = 1> (x, s) }"""
        ).replace("%s", part)
        assert severities(text, "reshape-allowzero") == [severity]

    def test_a_folded_reshape_never_runs_there(self) -> None:
        text = graph(
            """(float[N] x) => (float[N] y) <float[2, 2] w = {1, 2, 3, 4}, int64[1] s = {-1}>
            { flat = Reshape <allowzero = 1> (w, s)  top = ReduceMax <keepdims = 0> (flat)
              y = Add (x, top) }"""
        )
        assert severities(text, "reshape-allowzero") == ["note"]

    def test_a_mask_of_zeros_and_ones_survives_a_cast_to_bool(self) -> None:
        given = graph(
            """(int64[B, T] mask, float[B, T] x) => (float[B, T] y)
            <float one = {1.0}, float low = {-1e4}>
            { m = Cast <to = 1> (mask)  h = Sub (one, m)  b = Cast <to = 9> (h)
              y = Where (b, low, x) }"""
        )
        assert severities(given, "bool-cast") == ["warning"]
        low = given.replace("Cast <to = 9> (h)", "Mul (h, low)  q = Cast <to = 9> (b)")
        assert severities(low.replace("Where (b", "Where (q"), "bool-cast") == ["error"]

    def test_a_stale_length_crashes_and_a_stale_width_does_not(self) -> None:
        text = """(float[B, T, 8] x) => (float[B, T, 8] y) <float[B, %s] r>
            { r = Relu (x)  y = Neg (r) }"""
        assert severities(graph(text % "100, 8"), "fresh-shapes") == ["error"]
        assert severities(graph(text % "T, 16"), "fresh-shapes") == ["warning"]

    def test_a_near_miss_is_a_note(self) -> None:
        text = graph("(float[N, 4] t, int32[M] i) => (float[M, 4] y) { y = Gather (t, i) }")
        assert severities(text, "gather-int64") == ["note"]

    @pytest.mark.parametrize(
        ("check", "node"),
        [
            ("matmul-vector", "MatMul (k, v)"),
            ("reverse-2d", "ReverseSequence (k3, n)"),
            ("matmul-4d", "MatMul (k5, k5)"),
        ],
    )
    def test_constants_are_computed_before_anything_runs(self, check: str, node: str) -> None:
        text = f"""(float[N] x) => (float[P] y, float[N] z) <float[1, 2] k = {{1, 2}},
            float[2] v = {{1, 2}}, float[1, 1, 2] k3 = {{1, 2}}, int64[1] n = {{1}},
            float[1, 1, 1, 1, 1] k5 = {{1}}> {{ y = {node}  z = Neg (x) }}"""
        assert severities(graph(text), check) == ["note"]
