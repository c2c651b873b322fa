"""Other libraries as passes: onnxscript's rewrite rules, graphsurgeon scripts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_graphsurgeon as gs
import onnx_ir as ir
import pytest
from onnxscript.rewriter.pattern import RewriteRule

import graphfix
from graphfix.adapters.rewrite_rules import RulesPass
from graphfix.adapters.surgeon import SurgeonPass
from graphfix.errors import GraphfixError
from graphfix.graph.text import node_text

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[N] x) => (float[N] y) { a = Relu (x) b = Relu (a) y = Neg (b) }"""
OTHER = TEXT.replace("b = Relu (a)", "b = Abs (a)")


class OneRelu(RulesPass):
    """Two Relus in a row become one."""

    name: ClassVar[str] = "one-relu"
    rules: ClassVar[tuple[RewriteRule, ...]] = (
        RewriteRule(lambda op, x: op.Relu(op.Relu(x)), lambda op, x: op.Relu(x)),
    )


@dataclass(frozen=True)
class NoRelu(SurgeonPass):
    """The second Relu goes."""

    name: ClassVar[str] = "no-relu"
    fail: bool = False

    def edit(self, graph: gs.Graph) -> None:
        if self.fail:
            raise KeyError("nothing here")
        for node in graph.nodes:
            if node.op == "Relu" and node.i().op == "Relu" if node.inputs[0].inputs else False:
                node.o().inputs = [node.inputs[0]]
                node.outputs.clear()


@pytest.mark.parametrize("made", [OneRelu(), NoRelu()], ids=lambda p: p.name)
class TestBoth:
    def test_it_repairs_and_says_what(self, made: graphfix.Pass) -> None:
        model = ir.from_onnx_text(TEXT)
        model.graph[2].metadata_props["namespace"] = "head"
        report = graphfix.run(model, made)
        assert [n.op_type for n in model.graph] == ["Relu", "Neg"]
        assert report.passes[0].changes[0].removed
        assert model.metadata_props["graphfix.pipeline"] == made.name
        assert graphfix.verify(ir.from_onnx_text(TEXT), model).ok

    def test_a_second_run_changes_nothing(self, made: graphfix.Pass) -> None:
        model = ir.from_onnx_text(TEXT)
        graphfix.run(model, made)
        assert not graphfix.run(model, made).changed

    def test_what_it_does_not_match_keeps_every_byte(self, made: graphfix.Pass) -> None:
        model = ir.from_onnx_text(OTHER)
        model.graph[0].metadata_props["namespace"] = "act"
        before = ir.to_proto(model)
        assert not graphfix.run(model, made).changed
        assert ir.to_proto(model) == before

    def test_looking_does_not_edit(self, made: graphfix.Pass) -> None:
        model = ir.from_onnx_text(TEXT)
        before, users = ir.to_proto(model), len(model.graph.inputs[0].uses())
        assert len(list(made.sites(model))) == 1
        assert ir.to_proto(model) == before
        assert len(model.graph.inputs[0].uses()) == users


def test_metadata_survives_the_surgeon() -> None:
    model = ir.from_onnx_text(TEXT)
    model.graph[0].metadata_props["namespace"] = "act"
    graphfix.run(model, NoRelu())
    assert model.graph[0].metadata_props["namespace"] == "act"
    assert node_text(model.graph[1]).startswith("y = Neg")
    assert model.graph[1].metadata_props == {"graphfix.pass": "no-relu"}


def test_a_script_that_fails_says_so_and_leaves_the_model() -> None:
    model = ir.from_onnx_text(TEXT)
    before = ir.to_proto(model)
    with pytest.raises(GraphfixError, match="no-relu: the surgeon script failed: KeyError"):
        graphfix.run(model, NoRelu(fail=True))
    assert ir.to_proto(model) == before
