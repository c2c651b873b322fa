"""Inputs that may be empty of nodes whose results are not."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.facts.view import View
from graphfix.providers.empty_inputs import find_empty_inputs


def found(
    body: str, inputs: str = "float[B, T] x, float[0, 3] none"
) -> list[tuple[str, tuple[int, ...], bool]]:
    model = ir.from_onnx_text(
        f"""<ir_version: 8, opset_import: ["" : 17]> m ({inputs}) => (y)
        <int64[1] z = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] five = {{5}},
         int64[4] pads = {{0, 1, 0, 0}}, int64[1] far = {{9223372036854775807}},
         float[0, 3] fixed = {{}}> {{ {body} }}"""
    )
    view = View(model)
    return [(x.node.op_type, x.axes, x.always) for x in find_empty_inputs(view)]


REST = "s = Shape <start = 1, end = 2> (x) r = Mod (s, five) c = Slice (x, z, r, one)"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = ReduceSum <keepdims = 1> (none, z)", [("ReduceSum", (0,), True)]),
        (f"{REST} y = ReduceSum <keepdims = 1> (c, one)", [("ReduceSum", (1,), False)]),
        ("y = ReduceSum <keepdims = 1> (x, one)", []),  # no usual size is 0
        ("n = NonZero (x) y = ReduceMax <axes = [1]> (n)", [("ReduceMax", (1,), False)]),
        ("y = ReduceSum (fixed, z)", []),  # a constant
        ("y = Relu (none)", []),
        (f"{REST} y = Relu (c)", []),
        ("y = ReduceSum (none, one)", []),  # the result is empty, too
    ],
)
def test_reductions_of_nothing(
    body: str, expected: list[tuple[str, tuple[int, ...], bool]]
) -> None:
    assert found(body) == expected


def test_only_the_nodes_that_are_asked_for() -> None:
    model = ir.from_onnx_text(
        """<ir_version: 8, opset_import: ["" : 17]> m (float[0, 3] x) => (y, w)
        <int64[1] z = {0}> { y = ReduceSum (x, z) w = ReduceSum (x, z) }"""
    )
    view = View(model)
    assert len([*find_empty_inputs(view)]) == 2
    assert len([*find_empty_inputs(view, [model.graph[0]])]) == 1
    assert [*find_empty_inputs(view, [])] == []
