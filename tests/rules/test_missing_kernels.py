"""Nodes without a kernel on DirectML, and those that a kernel refuses."""

from __future__ import annotations

import pytest

from tests.rules.checking import findings, graph


class TestKernels:
    def test_the_opset_to_use_is_said(self) -> None:
        text = graph("(float[N] x) => (float[N] y) { y = Sin (x) }", 22)
        (hit,) = findings(text, "no-kernel")
        assert "the newest opset with one is 21" in hit.message
        assert hit.fix == "opset-ceiling"

    def test_an_operator_without_any(self) -> None:
        text = graph("(float[N] x) => (float[N] y) { y = HardSwish (x) }", 18)
        (hit,) = findings(text, "no-kernel")
        assert "in any version" in hit.message
        assert hit.fix is None

    def test_what_nobody_knows_is_not_said_to_run_on_the_cpu(self) -> None:
        custom = """<ir_version: 8, opset_import: ["" : 18, "my.ops" : 1]>
            m (float[N] x) => (float[N] y) { y = my.ops.Magic (x) }"""
        (hit,) = findings(custom, "no-kernel")
        assert "its library of custom operators runs it" in hit.message
        (hit,) = findings(custom.replace("my.ops.Magic", "Magic"), "no-kernel")
        assert "ONNX has no such operator" in hit.message
        (hit,) = findings(custom.replace("my.ops.Magic", "NonMaxSuppression"), "no-kernel")
        assert "it runs on the CPU" in hit.message

    def test_a_local_function_and_what_is_folded_need_none(self) -> None:
        text = """<ir_version: 8, opset_import: ["" : 18, "f" : 1]>
            m (float[N] x) => (float[N] y) <float[2] w = {1, 2}>
            { h = HardSwish (w)  s = ReduceMax <keepdims = 0> (h)  t = f.twice (x)
              y = Add (t, s) }
            <domain: "f", opset_import: ["" : 18]> twice (a) => (b) { b = Add (a, a) }"""
        assert not findings(text, "no-kernel")

    def test_integers_that_compute_shapes_are_left_out(self) -> None:
        text = graph(
            """(float[B, T] x) => (float[P] y) <int64[1] four = {4}>
            { t = Shape <start = 1, end = 2> (x)  r = Mod (t, four)  z = ConstantOfShape (r)
              y = Neg (z) }"""
        )
        assert not findings(text, "type-without-kernel")

    @pytest.mark.parametrize(
        ("node", "why"),
        [
            ("y = Resize <mode = \"cubic\"> (x, , s)", "mode=cubic"),
            ("y = ScatterElements <reduction = \"add\"> (x, i, x)", "reduction=add"),
        ],
    )  # fmt: skip
    def test_what_a_query_function_refuses(self, node: str, why: str) -> None:
        text = graph(
            f"""(float[1, 1, 4, 4] x, int64[1, 1, 4, 4] i) => (float[1, 1, H, W] y)
            <float[4] s = {{1, 1, 2, 2}}> {{ {node} }}""",
            16,
        )
        (hit,) = findings(text, "refused-by-kernel")
        assert why in hit.message


class TestTheCpu:
    """What DirectML leaves runs on the CPU only where that has a kernel."""

    @pytest.mark.parametrize(
        ("body", "rule"),
        [
            ("(int64[N] x) => (int64[N] y) { y = Relu (x) }", "type-without-kernel"),
            ("(bool[N] x) => (int64 y) { y = ArgMax <keepdims = 0> (x) }", "type-without-kernel"),
            ("(double[N, N] x) => (double y) { y = Det (x) }", "no-kernel"),
        ],
    )
    def test_nothing_runs_it(self, body: str, rule: str) -> None:
        hits = findings(graph(body, 17), f"{rule},no-cpu-kernel")
        assert [x.severity for x in hits if x.rule == rule] == ["error"]

    def test_the_types_that_it_takes_are_said(self) -> None:
        (hit,) = findings(
            graph("(int64[N] x) => (int64[N] y) { y = Relu (x) }", 17), "type-without-kernel"
        )
        assert "no provider runs it" in hit.message
        assert "it takes float, int8, int32, double" in hit.message

    def test_what_onnx_defines_by_others_is_not_judged(self) -> None:
        """From opset 18 on Relu is a Max with 0, which has a kernel for int64."""
        (hit,) = findings(
            graph("(int64[N] x) => (int64[N] y) { y = Relu (x) }", 18), "type-without-kernel"
        )
        assert (hit.severity, "it runs on the CPU" in hit.message) == ("warning", True)

    def test_float16_runs_in_float(self) -> None:
        assert not findings(
            graph("(float16[N] x) => (float16[N] y) { y = Erf (x) }"), "no-cpu-kernel", "cpu"
        )

    def test_what_directml_runs_is_an_error_on_the_cpu_alone(self) -> None:
        text = graph("(float[N, N] x) => (bool[N, N] y) { y = EyeLike <dtype = 9> (x) }", 17)
        assert not [x for x in findings(text) if x.severity == "error"]
        assert [x.severity for x in findings(text, "no-cpu-kernel", "cpu")] == ["error"]
