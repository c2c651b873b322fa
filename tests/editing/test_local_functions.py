"""Local functions: put in place, and counted."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx_ir.passes.common import inliner

from graphfix.editing.local_functions import count_inlined_nodes, inline_functions, inlined_copy
from graphfix.errors import ModelError
from graphfix.graph.names import find_hiding_name
from tests.passes.models import execute

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


HEAD = '<ir_version: 9, opset_import: ["" : 17, "own" : 1]>'
FUNCTION = '<domain: "own", opset_import: ["" : 17, "own" : 1]>'
BRANCHES = f"""{HEAD} m (float[N] x, bool c) => (float[N] y) {{
        a = own.f (x)
        b = If (c) <then_branch = t () => (float[N] p) {{ q = Neg (a) p = own.f (q) }},
                    else_branch = e () => (float[N] p) {{ q = Abs (a) p = Exp (q) }}>
        y = Neg (b)
    }}
    {FUNCTION} f (a) => (b) {{ p = Relu (a) q = Exp (p) b = Sin (q) }}"""
LOOPS = f"""{HEAD} m (float[N] x, int64 n) => (float[N] y) {{
        i = Neg (x)
        a = own.f (i, n)
        y = own.f (a, n)
    }}
    {FUNCTION} f (a, n) => (b) {{
        b = Loop (n, , a) <body = l (int64 i, bool k, float[N] s) => (bool k2, float[N] s2)
            {{ k2 = Identity (k) s2 = Exp (s) }}>
    }}"""
OMITTED = f"""{HEAD} m (float[N] x) => (float[N] y, float[N] z) {{
        , y = own.f (x)
        z, w = own.f (y)
    }}
    {FUNCTION} f (a) => (b, c) {{ b = Relu (a) c = Exp (b) }}"""


@pytest.mark.parametrize("text", [BRANCHES, LOOPS, OMITTED])
def test_no_name_hides_another_and_those_of_the_graph_stay(text: str) -> None:
    model = ir.from_onnx_text(text)
    copy = inlined_copy(model)
    assert find_hiding_name(copy) is None
    ours = {x.name for node in model.graph.all_nodes() for x in node.outputs} - {""}
    assert ours <= {x.name for node in copy.graph.all_nodes() for x in node.outputs}
    feeds = {"x": np.array([0.5, 2], np.float32), "n": np.array(2), "c": np.array(True)}
    np.testing.assert_array_equal(
        execute(copy, feeds, optimized=False), execute(model, feeds, optimized=False)
    )


def test_an_output_that_a_function_omits_stays_omitted() -> None:
    model = ir.from_onnx_text(f"""{HEAD} m (float[N, 2] x) => (float[N, 2] y, float[N, 1] z)
        <float[2] s = {{1, 1}}> {{ y, z = own.f (x, s) w, v = own.f (y, s) }}
        {FUNCTION} f (a, s) => (b, c) {{ b, , c = LayerNormalization (a, s) }}""")
    norms = list(inlined_copy(model).graph)
    assert [[x.name for x in node.outputs] for node in norms] == [["y", "", "z"], ["w", "", "v"]]
