"""Shapes and lengths that DirectML gets wrong, or has to wait for."""

from __future__ import annotations

import pytest

from tests.rules.checking import findings, graph, severities


class TestKernelRank:
    @pytest.mark.parametrize(
        ("dims", "node", "flagged"),
        [
            ("A, B, C, D, E", "Trilu (x)", True),
            ("A, B, C, D", "Trilu (x)", False),
            ("A, B, C, D, E", "Relu (x)", False),
            ("1, 3, 2, 4, 5", 'Resize <mode = "nearest"> (x, , scales)', False),
            ("B, 3, 2, 4, 5", 'Resize <mode = "nearest"> (x, , scales)', True),
            ("1, 3, 2, 4, 5", 'Resize <mode = "nearest"> (x, , grown)', True),
            ("1, 2, 4, 4, 4", "Conv (x, deep)", False),
        ],
    )
    def test_dims(self, dims: str, node: str, flagged: bool) -> None:
        text = f"""(float[{dims}] x) => (float[V, W, X, Y, Z] y)
            <float[5] scales = {{1, 1, 1, 1, 2}}, float[5] grown = {{2, 1, 1, 1, 1}},
            float[1, 2, 1, 1, 1] deep = {{1, 2}}> {{ y = {node} }}"""
        if dims.count(",") == 3:
            text = text.replace("V, W", "V")
        assert severities(graph(text), "kernel-rank") == ["error"] * flagged

    @pytest.mark.parametrize(
        ("first", "node"),
        [
            ("uint8[A, B]", "QLinearMatMul (x, s, z, w, s, z, s, z)"),
            ("float[B]", "MatMul (x, w)"),  # of which comes one of four
        ],
    )
    def test_the_dims_of_either_factor(self, first: str, node: str) -> None:
        second = first.partition("[")[0] + "[C, D, E, B, F]"
        text = f"""({first} x, {second} w) => ({second.replace("E, B", "E, A")} y)
            <float s = {{1}}, uint8 z = {{0}}> {{ y = {node} }}"""
        if first == "float[B]":
            text = text.replace("E, A, F", "E, F")
        (hazard,) = findings(graph(text), "kernel-rank")
        assert "of 5 dims" in hazard.message

    def test_more_than_three_axes_of_a_picture(self) -> None:
        text = """(float[1, 1, A, B, C, D] x, float[1, 1, 1, 1, 1, 1] w)
            => (float[1, 1, A, B, C, D] y) { y = Conv (x, w) }"""
        (hazard,) = findings(graph(text), "kernel-rank")
        assert "Conv of 6 dims" in hazard.message

    def test_what_drops_dims_of_1_says_so(self) -> None:
        text = """(float[B, 3, 2, 4, 5] x) => (float[V, W, X, Y, Z] y)
            <float[5] scales = {1, 1, 1, 1, 2}> { y = Resize (x, , scales) }"""
        (hazard,) = findings(graph(text), "kernel-rank")
        assert "5 dims that are not 1" in hazard.message


class TestDataDependent:
    def test_a_slice_by_the_shape_is_no_matter_of_data(self) -> None:
        text = graph(
            """(float[B, T] x, int64[1] n) => (float[P] a, float[Q, R] b)
            <int64[1] z = {0}, int64[1] one = {1}>
            { t = Shape <start = 1, end = 2> (x)  r = Sub (t, one)  b = Slice (x, z, r, one)
              a = %s }"""
        )
        assert not findings(
            text.replace("float[P] a", "float[B, T] a") % "Neg (x)", "data-dependent"
        )
        cut = text.replace("float[P] a", "float[P, T] a") % "Slice (x, z, n, z)"
        assert len(findings(cut, "data-dependent")) == 1


class TestLostPast:
    @pytest.mark.parametrize(
        ("past", "wires", "wanted"),
        [
            ("2, P, 8", "pk, pv", ["error"]),
            ("2, 16, 8", "pk, pv", ["error"]),
            ("2, 0, 8", "pk, pv", []),
            ("2, 16, 8", ", ", []),
        ],
    )
    def test_a_past_with_elements(self, past: str, wires: str, wanted: list[str]) -> None:
        body = f"""(float[B, S, 32] q, float[B, S, 16] k, float[B, S, 16] v, float[B, {past}] pk,
            float[B, {past}] pv, int32[B] last, int32 total) => (float[B, S, 32] y)
            {{ y = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2>
            (q, k, v, {wires}, last, total) }}"""
        text = graph(body).replace('"" : ', '"com.microsoft" : 1, "" : ')
        assert severities(text, "lost-past") == wanted
