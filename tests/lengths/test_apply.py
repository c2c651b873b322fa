"""Writing the repairs of an analysis into the graph."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.errors import UsageError
from graphfix.lengths.analysis import analyse
from graphfix.lengths.apply import AppliedRepair, apply_repairs
from graphfix.lengths.length_input import LengthInput
from graphfix.lengths.length_source import find_length_source
from tests.lengths.rewritten import run

MEANS = """a = ReduceMean <axes = [1]> (x)  b = ReduceMax <axes = [1]> (x)
    y = Sub (a, b)"""


def model_of(body: str = MEANS, opset: int = 17, inputs: str = "float[B, T, 4] x") -> ir.Model:
    return ir.from_onnx_text(
        f'<ir_version: 8, opset_import: ["" : {opset}]> m ({inputs}) => (y) {{ {body} }}'
    )


def repairs_of(
    model: ir.Model, source: str = "", floor: float | None = None
) -> list[AppliedRepair]:
    analysis = analyse(model, find_length_source(model, "x.1", source))
    return list(apply_repairs(model, analysis, "ilens-mask", floor))


def test_every_repair_is_told_in_the_order_of_the_graph() -> None:
    model = model_of()
    records = repairs_of(model)
    assert [(tensor, words) for _, tensor, _, words in records] == [
        ("a", "poisoned input: whatever is in its padding becomes zero"),
        ("a", "mean pollution: it becomes the sum of the valid frames over their number"),
        ("b", "maximum pollution: a mask is added to its scores"),
    ]
    at, _, (removed, added), _ = records[1]
    assert at == "ReduceMean of a"
    assert [x.split()[2] for x in removed] == ["ReduceMean"]
    assert "Div" in [x.split()[2] for x in added]
    x = np.arange(40, dtype=np.float32).reshape(2, 5, 4)
    lengths = np.array([2, 5])
    result = run(model, x=x, ilens=lengths)
    for row, length in enumerate(lengths):
        alone = x[row : row + 1, :length]
        expected = alone.mean(1, keepdims=True) - alone.max(1, keepdims=True)
        np.testing.assert_allclose(result[row : row + 1], expected)


@pytest.mark.parametrize(("rows", "dim"), [("B", "B"), ("1", 1)])
def test_a_new_input_has_a_length_for_each_row(rows: str, dim: str | int) -> None:
    model = model_of(inputs=f"float[{rows}, T, 4] x")
    repairs_of(model)
    lengths = model.graph.inputs[-1]
    assert (lengths.name, lengths.dtype) == ("ilens", ir.DataType.INT64)
    assert lengths.shape == ir.Shape([dim])
    assert LengthInput.from_metadata(model) == LengthInput("ilens", "x.1", "lengths")


def test_lengths_that_the_model_has_are_taken() -> None:
    model = model_of(inputs="float[B, T, 4] x, int64[B, T] mask")
    repairs_of(model, source="mask")
    assert [x.name for x in model.graph.inputs] == ["x", "mask"]
    assert LengthInput.from_metadata(model) == LengthInput("mask", "x.1", "mask")


@pytest.mark.parametrize("opset", [10, 11])
def test_positions_need_opset_11(opset: int) -> None:
    model = model_of("y = ReduceMean <axes = [1]> (x)", opset)
    if opset == 11:
        assert repairs_of(model)
        return
    said = "ilens-mask: masks need opset 11, the model has 10; export it again"
    with pytest.raises(UsageError, match=said):
        repairs_of(model)


def test_a_name_that_is_taken_is_no_new_input() -> None:
    model = model_of(MEANS.replace("a =", "ilens =").replace("(a,", "(ilens,"))
    with pytest.raises(UsageError, match="take them from it: ilens-mask:from=ilens"):
        repairs_of(model)


def test_a_floor_hides_scores() -> None:
    body = "t = Softmax <axis = 1> (x)  y = ReduceSum <keepdims = 1> (t)"
    model = model_of(body)
    repairs_of(model, floor=-99.0)
    constants = [x.const_value for x in model.graph.initializers.values()]
    assert -99 in [x.numpy() for x in constants if x is not None and x.size == 1]
