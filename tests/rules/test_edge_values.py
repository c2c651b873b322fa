"""What DirectML computes wrong at the edges of a type."""

from __future__ import annotations

import pytest

from tests.rules.checking import findings, graph, severities


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
        assert severities(graph(body), "lost-nan") == ["warning"]

    @pytest.mark.parametrize("node", ["Concat <axis = 0> (top, z)", "Add (top, z)"])
    def test_other_numbers_may_be_nan(self, node: str) -> None:
        body = f"""(float[2, 4] x, float[2, 4] z) => (bool[P, Q] y)
            {{ top = Max (x, z)  n = {node}  y = IsNaN (n) }}"""
        assert not severities(graph(body), "lost-nan")


class TestLoneDft:
    @pytest.mark.parametrize(
        ("opset", "node", "wanted"),
        [
            (17, "DFT (x)", ["error"]),  # axis 1
            (17, "DFT <axis = 2> (x)", []),
            (20, "DFT (x)", []),  # axis -2
            (20, "DFT (x, , one)", ["error"]),
            (20, "DFT (x, , computed)", []),  # along which axis is not known
        ],
    )
    def test_its_axis(self, opset: int, node: str, wanted: list[str]) -> None:
        body = f"""(float[B, 1, 4, 2] x, int64 computed) => (float[P, Q, R, S] y)
            <int64 one = {{1}}> {{ y = {node} }}"""
        assert severities(graph(body, opset), "lone-dft") == wanted


class TestEmptyReduction:
    @pytest.mark.parametrize("kind", ["Max", "Min", "Prod", "Sum", "LogSum", "LogSumExp", "Mean"])
    def test_reductions_of_nothing(self, kind: str) -> None:
        text = f"(float[2, 0] x) => (float[2, 1] y) {{ y = Reduce{kind} <axes = [1]> (x) }}"
        # A mean of nothing is no number anywhere.
        assert severities(graph(text, 12), "empty-reduction") == ["error"] * (kind != "Mean")

    @pytest.mark.parametrize(
        ("kind", "dims", "made", "flagged"),
        [
            ("float", "0, 3", "1, 3", True),
            ("float", "0, 3, 0", "1, 3, 0", False),  # of nothing it makes nothing
            ("double", "0, 3", "1, 3", False),  # on the CPU
        ],
    )
    def test_what_comes_of_nothing(self, kind: str, dims: str, made: str, flagged: bool) -> None:
        text = f"({kind}[{dims}] x) => ({kind}[{made}] y) {{ y = ReduceSum <axes = [0]> (x) }}"
        assert severities(graph(text, 12), "empty-reduction") == ["error"] * flagged

    def test_a_constant_of_nothing_is_folded(self) -> None:
        text = """(float[N] x) => (float[1, 1] y, float[N] z) <int64[2] none = {0, 3}>
            { e = ConstantOfShape (none)  y = ReduceSum (e)  z = Neg (x) }"""
        assert not severities(graph(text, 12), "empty-reduction")


class TestNegativePads:
    def test_an_old_pad_runs_on_the_cpu(self) -> None:
        body = "(float[1, 8] x) => (float[1, 6] y) { y = Pad <pads = [0, -1, 0, -1]> (x) }"
        assert severities(graph(body, 10), "negative-pads") == ["warning"]

    def test_a_size_that_only_a_run_tells_has_no_name(self) -> None:
        """Shape inference has a symbol for it, which nobody has ever seen."""
        text = graph(
            """(float[N] x) => (float[M] y) <int64[1] five = {5}, int64[1] none = {0}>
            { u = NonZero (x)  s = Shape <start = 1> (u)  c = Sub (s, five)
              pads = Concat <axis = 0> (none, c)  y = Pad (x, pads) }"""
        )
        (hazard,) = findings(text, "negative-pads")
        assert "negative pads where a size known only at run time is below 0" in hazard.message
