"""What keeps a graph from becoming one fused graph."""

from __future__ import annotations

import onnx_ir as ir
import pytest

import graphfix
from graphfix.job import checking, planning
from tests.rules.checking import findings, graph, severities


class TestFusion:
    def test_a_dim_is_told_with_its_inputs_and_how_much_follows_it(self) -> None:
        text = graph(
            """(float[B, T] x, float[B, 4] z) => (float[B, T] y, float[4, 4] c)
            <float[4, 4] w = {1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}>
            { y = Relu (x)  q = MatMul (z, w)  c = Neg (w) s = Neg (q) }"""
        )
        (told,) = findings(text, "dynamic-dims")
        assert told.at == "'B' of input 'x', 'z'; 'T' of input 'x'"
        assert "of 3 nodes, 3 follow 'B', 1 follow 'T'" in told.message
        assert "graphfix run -p fix-dims:B=SIZE,T=SIZE" in told.message
        spec = "fix-dims:B=SIZE,T=SIZE".replace("SIZE", "4")
        fixed = ir.from_onnx_text(text)
        graphfix.run(fixed, spec)
        assert not [*checking.check(fixed, "dynamic-dims")]

    def test_the_command_has_the_size_that_a_weight_dictates(self) -> None:
        text = graph(
            """(float[B, F] z) => (float[B, 4] y)
            <float[4, 4] w = {1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}> { y = MatMul (z, w) }"""
        )
        (told,) = findings(text, "dynamic-dims")
        assert "graphfix run -p fix-dims:B=SIZE,F=4" in told.message

    def test_control_flow_is_found_in_a_function(self) -> None:
        text = """<ir_version: 8, opset_import: ["" : 18, "f" : 1]>
            m (float[N] x, bool b) => (float[N] y) { y = f.pick (x, b) }
            <domain: "f", opset_import: ["" : 18]> pick (a, c) => (d)
            { d = If (c) < then_branch = t () => (float[N] p) { p = Neg (a) },
                           else_branch = e () => (float[N] q) { q = Relu (a) } > }"""
        assert severities(text, "control-flow") == ["warning"]

    def test_a_map_over_a_sequence_becomes_a_loop(self) -> None:
        text = graph(
            """(seq(float[N]) xs) => (seq(float[N]) ys) {
            ys = SequenceMap <body = each (float[N] x) => (float[N] y) { y = Neg (x) }> (xs) }"""
        )
        assert severities(text, "control-flow") == ["warning"]

    @pytest.mark.parametrize(
        ("condition", "severity", "fix"),
        [
            ("c = Constant <value = bool {1}> ()", "note", "fold"),
            # ONNX Runtime works out no Shape of which it knows one dim only
            ("s = Shape <end = 1> (x) n = Squeeze (s) c = Equal (n, one)", "warning", "fold"),
            ("s = Shape <start = 1> (x) n = Squeeze (s) c = Equal (n, one)", "warning", None),
            ("s = Shape (x) n = Size (s) c = Equal (n, one)", "warning", "fold"),
            ("c = Identity (b)", "warning", None),
        ],
    )
    def test_an_if_that_is_decided(self, condition: str, severity: str, fix: str | None) -> None:
        text = graph(
            f"""(float[1, N] x, bool b) => (float[1, N] y) <int64 one = {{1}}> {{
            {condition} y = If (c) <
                then_branch = t () => (float[1, N] p) {{ p = Neg (x) }},
                else_branch = e () => (float[1, N] q) {{ q = Relu (x) }} > }}"""
        )
        flagged = findings(text, "control-flow")
        assert [(x.severity, x.fix) for x in flagged] == [(severity, fix)]
        folded = ir.from_onnx_text(text)
        graphfix.run(folded, "fold")
        assert bool([*checking.check(folded, "control-flow")]) == (fix is None)
        steps = [x.name for x in planning.plan(ir.from_onnx_text(text)).steps]
        assert any(x.startswith("If") for x in steps) == (severity == "warning")
