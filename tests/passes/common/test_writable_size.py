"""Which sizes can be written as integer nodes, and what the nodes compute."""

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.passes.common.writable_size import WritableSize, writable_size_of
from tests.passes.models import execute, model


def size_of(steps: str) -> tuple[ir.Model, WritableSize | str]:
    """How the last dim of y can be written from the inputs ``other`` and ``x``."""
    m = model(f"""m (float[B, T] x, float[2, U] other, float[V] far) => (float[B, N] y)
        <int64[2] pads = {{0, 3}}, int64[1] one = {{1}}, int64[1] last = {{9223372036854775807}},
        int64[1] two = {{2}}> {{ {steps} }}""")
    m.graph.outputs[0].shape = None
    shapes = View(m).shapes
    dims = shapes.dims(m.graph.outputs[0])
    assert dims is not None
    return m, writable_size_of(dims[-1], [m.graph.inputs[1], m.graph.inputs[0]], shapes)


@pytest.mark.parametrize(
    ("steps", "symbol", "axis"),
    [
        ("y = Neg (x)", "T", 1),
        ("y = Transpose (x)", "B", 0),
        ("y = Concat <axis = 1> (x, x)", "T", 1),
        ("y = Slice (x, one, last, one, two)", "T", 1),
        ("y = Neg (other)", "U", 1),
    ],
)
def test_a_function_of_one_length(steps: str, symbol: str, axis: int) -> None:
    _, size = size_of(steps)
    assert isinstance(size, WritableSize)
    assert (size.symbol, size.axis) == (symbol, axis)
    assert size.value is not None
    assert size.value.name == ("other" if symbol == "U" else "x")


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ("f = Flatten <axis = 0> (x) y = Neg (f)", "is no function of one length"),
        ("y = Neg (far)", "no tensor before it is of the length V"),
    ],
)
def test_why_a_size_cannot_be_written(steps: str, reason: str) -> None:
    _, size = size_of(steps)
    assert isinstance(size, str)
    assert reason in size


def test_a_number_is_a_constant() -> None:
    _, size = size_of("y = Transpose (other)")
    assert size == WritableSize(2)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("y = Concat <axis = 1> (x, x)", 10),
        ("y = Slice (x, one, last, one, two)", 2),
        ("y = Transpose (x)", 3),
        ("y = Transpose (other)", 2),
    ],
)
def test_nodes_compute_the_size(steps: str, expected: int) -> None:
    m, size = size_of(steps)
    assert isinstance(size, WritableSize)
    op = Builder("test", View(m))
    op.start_site(m.graph[0])
    value = size.build_node(op)
    # A length is read once for all sizes that are made of it.
    assert sum(node.op_type in ("Shape", "Size") for node in m.graph) <= 1
    output = op.Identity(value)
    output.type, output.shape = ir.TensorType(ir.DataType.INT64), ir.Shape([1])
    m.graph.outputs[:] = [output]
    feeds = {
        "x": np.zeros((3, 5), np.float32),
        "other": np.zeros((2, 4), np.float32),
        "far": np.zeros(6, np.float32),
    }
    (result,) = execute(m, feeds)
    assert result.tolist() == [expected]
