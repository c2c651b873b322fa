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


class TestWideComparison:
    @pytest.mark.parametrize("op", ["Max", "Min"])
    @pytest.mark.parametrize(
        ("number", "wanted"), [(2**31, ["error"]), (2**31 - 1, []), (2**63 - 1, ["warning"])]
    )
    def test_what_chooses_by_a_comparison(self, op: str, number: int, wanted: list[str]) -> None:
        body = (
            f"""(int64[N] x) => (int64[N] y) <int64 far = {{{number}}}> {{ y = {op} (x, far) }}"""
        )
        assert severities(graph(body), "wide-comparison") == wanted


class TestNegativeAsinh:
    @pytest.mark.parametrize(
        ("maker", "wanted"), [("Neg (x)", ["warning"]), ("Abs (x)", []), ("Softplus (x)", [])]
    )
    def test_what_may_be_negative(self, maker: str, wanted: list[str]) -> None:
        body = f"(float[N] x) => (float[N] y) {{ z = {maker}  y = Asinh (z) }}"
        assert severities(graph(body), "negative-asinh") == wanted


class TestShortIndices:
    @pytest.mark.parametrize(
        ("indices", "axis", "wanted"),
        [
            ("N, 3, 4", 1, []),
            ("N, 9, 4", 1, []),
            ("N, 9, 2", 1, ["error"]),
            ("N, 9, 2", -1, ["error"]),  # 9 is no size of the data
            ("N, 3, 2", -1, []),
            ("M, 3, 4", 1, []),  # it may be N
        ],
    )
    def test_the_other_axes_are_compared(self, indices: str, axis: int, wanted: list[str]) -> None:
        body = f"""(float[N, 3, 4] x, int64[{indices}] at) => (float[P, Q, R] y)
            {{ y = GatherElements <axis = {axis}> (x, at) }}"""
        assert severities(graph(body), "short-indices") == wanted


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


class TestEmptyInput:
    @pytest.mark.parametrize("kind", ["Max", "Min", "Prod", "Sum", "LogSum", "LogSumExp", "Mean"])
    def test_reductions_of_nothing(self, kind: str) -> None:
        text = f"(float[2, 0] x) => (float[2, 1] y) {{ y = Reduce{kind} <axes = [1]> (x) }}"
        assert severities(graph(text, 12), "empty-input") == ["error"]

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
        assert severities(graph(text, 12), "empty-input") == ["error"] * flagged

    @pytest.mark.parametrize(
        ("node", "flagged"),
        [
            ("Pad (found, pads)", True),
            ("Pad (boxes, pads)", False),
            ("Concat <axis = 0> (found, rest)", False),
            ("ReduceMax <axes = [0]> (found)", True),
            ("ReduceMax <axes = [1]> (found)", False),
            ("Relu (found)", False),
        ],
    )
    def test_what_counts_data(self, node: str, *, flagged: bool) -> None:
        text = f"""(float[N, 4] boxes, bool[N] keep) => (float[P, Q] y)
            <int64[4] pads = {{0, 0, 6, 0}}, float[1, 4] rest = {{0, 0, 0, 0}}>
            {{ found = Compress <axis = 0> (boxes, keep)  y = {node} }}"""
        assert severities(graph(text), "empty-input") == ["warning"] * flagged

    def test_a_remainder_may_be_nothing(self) -> None:
        text = """(float[T, 4] x) => (float[P, 4] y) <int64[1] zero = {0}, int64[1] four = {4},
            int64[4] pads = {0, 0, 6, 0}> { t = Shape <end = 1> (x) whole = Div (t, four)
            used = Mul (whole, four) rest = Slice (x, used, t, zero) y = Pad (rest, pads) }"""
        assert severities(graph(text), "empty-input") == ["warning"]

    def test_odd_names_of_sizes(self) -> None:
        body = '(float["batch size", 4] x) => (float[P, 1] y) { y = ReduceMax <axes = [1]> (x) }'
        assert not severities(graph(body.replace('"batch size"', "N"), 12), "empty-input")

    def test_a_constant_of_nothing_is_folded(self) -> None:
        text = """(float[N] x) => (float[1, 1] y, float[N] z) <int64[2] none = {0, 3}>
            { e = ConstantOfShape (none)  y = ReduceSum (e)  z = Neg (x) }"""
        assert not severities(graph(text, 12), "empty-input")


class TestMovedRegions:
    @pytest.mark.parametrize(
        ("opset", "attributes", "wanted"),
        [
            (10, "sampling_ratio = 2", ["error"]),
            (16, "sampling_ratio = 2", []),
            (16, "sampling_ratio = 0", ["note"]),
            (16, 'mode = "max"', ["error"]),
            (16, 'coordinate_transformation_mode = "output_half_pixel"', ["warning"]),
            (22, "sampling_ratio = 0", []),  # on the CPU
        ],
    )
    def test_each_kind(self, opset: int, attributes: str, wanted: list[str]) -> None:
        body = f"""(float[1, 2, 8, 8] x, float[N, 4] r, int64[N] i) => (float[N, 2, 3, 3] y)
            {{ y = RoiAlign <output_height = 3, output_width = 3, {attributes}> (x, r, i) }}"""
        assert severities(graph(body, opset), "moved-regions") == wanted


class TestLargeEpsilon:
    @pytest.mark.parametrize(("kind", "flagged"), [("float", 1), ("float16", 1), ("double", 0)])
    def test_types(self, kind: str, flagged: int) -> None:
        body = f"""({kind}[A, B, C, D] x) => ({kind}[A, B, C, D] y)
            {{ y = MeanVarianceNormalization (x) }}"""
        assert severities(graph(body, 13), "large-epsilon") == ["warning"] * flagged


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
