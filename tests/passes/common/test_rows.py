"""Which inputs of an operator have its rows, so that it computes the same in another order."""

import pytest

from graphfix.facts.view import View
from graphfix.passes.common.rows import row_inputs_of
from tests.passes.models import model

CASES = [
    ("Softmax <axis = 3> (x)", 12, (0,)),
    ("Softmax <axis = 2> (x)", 12, (0,)),
    ("Softmax (x)", 12, None),
    ("Softmax (x)", 13, (0,)),
    ("Softmax <axis = 1> (x)", 13, None),
    ("Hardmax (x)", 13, (0,)),
    ("LayerNormalization <axis = 2> (x, z)", 17, (0,)),
    ("LayerNormalization <axis = 1> (x, z)", 17, None),
    ("LpNormalization (x)", 18, (0,)),
    ("LpNormalization <axis = 0> (x)", 18, None),
    ("InstanceNormalization (x, c, c)", 18, None),  # a scale for each place of axis 1
    ("ReduceLogSumExp (x, last)", 18, (0,)),
    ("ReduceL1 <axes = [3]> (x)", 13, (0,)),
    ("ReduceSum (x, second)", 18, None),
    ("ReduceSum (x)", 18, None),
    ("ReduceSum <noop_with_empty_axes = 1> (x)", 18, (0,)),
    ("PRelu (x, g)", 18, (0,)),
    ("Tan (x)", 18, (0,)),
    ("Add (x, z)", 18, (0, 1)),
    ("Add (g, x)", 18, (1,)),
    ("Add (x, z)", 6, None),  # it does not broadcast yet
    ("Dropout (x)", 18, None),
    ("com.microsoft.QuickGelu (x)", 18, (0,)),
    ("com.microsoft.SkipLayerNormalization (x, z, g)", 18, (0, 1)),
    ("com.microsoft.SkipLayerNormalization (x, thin, g)", 18, None),
    ("com.microsoft.SkipSimplifiedLayerNormalization (x, z, g)", 18, (0, 1)),
    ("Concat <axis = 2> (x, z)", 18, (0, 1)),
    ("Concat <axis = 1> (x, z)", 18, None),
    ("Split <axis = -1, num_outputs = 1> (x)", 18, (0,)),
    ("CumSum (x, last)", 18, None),
    ("MatMul (x, m)", 18, (0,)),
    ("MatMul (x, batch)", 18, None),
    ("MatMul (m, batch)", 18, None),
    ("com.microsoft.FusedMatMul <transB = 1> (x, m)", 18, (0,)),
    ("com.microsoft.FusedMatMul <transA = 1> (x, m)", 18, None),
    ("com.microsoft.FusedMatMul <transBatchA = 1> (x, m)", 18, None),
    ("Reshape (x, split)", 18, (0,)),
    ("Reshape (x, moved)", 18, None),
    ("Reshape (x, only)", 18, None),
    ("Reshape <allowzero = 1> (x, split)", 18, None),
    ("Add (x, c4)", 18, (0,)),
    ("Mul (x, short)", 18, (0,)),
    ("Mul (x, fed)", 18, None),  # its first axis is one of the rows
    ("Mul (x, table)", 18, (0,)),
    ("ReduceSum (x, axes2)", 18, (0,)),
    ("LayerNormalization (x, g)", 17, (0,)),
    ("Concat <axis = 3> (x, z)", 18, (0, 1)),
    ("Shape (x)", 18, None),
]


@pytest.mark.parametrize(("node", "opset", "expected"), CASES)
def test_row_inputs(node: str, opset: int, expected: tuple[int, ...] | None) -> None:
    m = model(
        f"""m (float[2, 3, 4, 5] x, float[2, 3, 4, 5] z, float[1, 3, 4, 5] thin, float[3] c,
        float[5] g, float[5, 5] m, float[2, 3, 5, 5] batch, float[4, 5] short,
        float[3, 4, 5] fed) => (float y)
        <int64[1] last = {{3}}, int64[1] second = {{1}}, int64[2] axes2 = {{2, 3}},
        int64[3] split = {{0, 0, 20}}, int64[3] moved = {{0, 12, 5}}, int64[2] only = {{0, 0}},
        float[1] c4 = {{1}}, float[5] table = {{1, 2, 3, 4, 5}}> {{
        y = {node} }}""",
        opset,
        ', "com.microsoft" : 1',
    )
    m.graph.outputs[0].shape = None
    assert row_inputs_of(m.graph[-1], 2, View(m)) == expected


def test_a_bias_of_the_last_axis_keeps_its_place() -> None:
    """Of two axes that both are rows, the last cannot move away from the bias."""
    m = model(
        """m (float[2, 5] x) => (float[2, 5] y) <float[5] g = {1, 2, 3, 4, 5}> {
        y = com.microsoft.BiasGelu (x, g) }""",
        more=', "com.microsoft" : 1',
    )
    assert row_inputs_of(m.graph[-1], 2, View(m)) is None
    assert row_inputs_of(m.graph[-1], 1, View(m)) == (0,)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("Gather (table, ids)", (1,)),
        ("Gather <axis = 1> (table, ids)", None),
        ("Gather <axis = -2> (table, deep)", (1,)),
        ("Gather <axis = -1> (table, deep)", None),
        ("Gather (fed, ids)", None),
    ],
)
def test_rows_of_indices_are_looked_up(node: str, expected: tuple[int, ...] | None) -> None:
    m = model(
        f"""m (int64[2, 3] ids, float[4, 4] fed, int64[2, 3, 4] deep) => (float y)
        <float[2, 2] table = {{1, 2, 3, 4}}> {{ y = {node} }}"""
    )
    m.graph.outputs[0].shape = None
    assert row_inputs_of(m.graph[-1], 2, View(m)) == expected
