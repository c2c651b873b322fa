"""Local functions: put in place, and counted."""

from __future__ import annotations

import onnx_ir as ir
import pytest
from onnx_ir.passes.common import inliner

from graphfix.editing.local_functions import count_inlined_nodes, inline_functions, inlined_copy
from graphfix.errors import ModelError

TEXT = """<ir_version: 9, opset_import: ["" : 17, "own" : 1]>
    m (float[N] x) => (float[N] y) { a = own.f (x) b = own.f (a) c = own.f (b) y = Neg (c) }
    <domain: "own", opset_import: ["" : 17, "own" : 1]> f (a) => (b) { t = own.g (a) b = Relu (t) }
    <domain: "own", opset_import: ["" : 17]> g (a) => (b) { t = Exp (a) b = Sin (t) }"""


def test_a_copy_has_the_bodies_and_the_model_its_calls() -> None:
    model = ir.from_onnx_text(TEXT)
    make_name = inliner._make_unique_name
    copy = inlined_copy(model)
    assert [x.op_type for x in copy.graph] == ["Exp", "Sin", "Relu"] * 3 + ["Neg"]
    assert [x.op_type for x in model.graph] == ["f", "f", "f", "Neg"]
    assert not copy.functions
    assert inliner._make_unique_name is make_name


def test_names_are_those_that_onnx_ir_gives() -> None:
    plain, ours = ir.from_onnx_text(TEXT), ir.from_onnx_text(TEXT)
    ir.passes.common.InlinePass()(plain)
    inline_functions(ours)

    def names(model: ir.Model) -> list[str | None]:
        return [x.name for node in model.graph for x in node.outputs]

    assert names(ours) == names(plain)
    assert len(set(names(ours))) == len(names(ours))


def test_a_function_of_another_opset_is_an_error() -> None:
    model = ir.from_onnx_text(TEXT.replace('["" : 17]> g', '["" : 13]> g'))
    make_name = inliner._make_unique_name
    with pytest.raises(ModelError, match="cannot be put in place"):
        inline_functions(model)
    assert inliner._make_unique_name is make_name


def test_a_copy_without_functions_is_a_copy() -> None:
    model = ir.from_onnx_text(
        """<ir_version: 9, opset_import: ["" : 17]> m (float[N] x) => (float[N] y)
        { y = Neg (x) }"""
    )
    assert inlined_copy(model).graph is not model.graph
    assert count_inlined_nodes(model) == 1


def test_nodes_are_counted_as_they_will_be() -> None:
    # The calls count as well: each of g is 2 and 1, each of f 3, 1 and 1.
    assert count_inlined_nodes(ir.from_onnx_text(TEXT)) == 3 * (1 + (1 + 2) + 1) + 1
