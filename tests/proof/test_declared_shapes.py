"""A declaration that a run contradicts is a failure, unless the original has it too."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.proof.declared_shapes import DeclaredShapes
from graphfix.proof.verify import verify

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'


def model(dims: str, inputs: str = "B, T") -> ir.Model:
    made = ir.from_onnx_text(f"""{HEAD} m (float[I, J] x) => (float[K, L] y)
        {{ y = Concat <axis = 1> (x, x) }}""")
    for value, text in ((made.graph.inputs[0], inputs), (made.graph.outputs[0], dims)):
        value.shape = ir.Shape([int(x) if x.isdigit() else x for x in text.split(", ")])
    return made


@pytest.mark.parametrize(
    ("dims", "says"),
    [
        ("B, T + 1", "axis 1 of output 'y' as T + 1, and it is"),
        ("B, T", "axis 1 of output 'y' as T, and it is"),
        ("B, 77", "axis 1 of output 'y' as 77, and it is"),
        ("T, N", "axis 0 of output 'y' as T, and it is"),
    ],
)
def test_a_false_declaration_is_a_failure(dims: str, says: str) -> None:
    verdict = verify(model("B, N"), model(dims))
    assert not verdict.ok
    assert says in verdict.reason


@pytest.mark.parametrize("dims", ["B, 2*T", "B, T + T", "B, N", "N, M"])
def test_a_right_one_or_a_name_is_none(dims: str) -> None:
    assert verify(model("B, N"), model(dims)).ok


def test_what_the_original_declares_as_well_is_no_failure() -> None:
    assert verify(model("B, T"), model("B, T")).ok


def test_names_that_are_no_symbols() -> None:
    x = np.zeros((2, 3), np.float32)
    shapes = DeclaredShapes(model("batch-size, seq len", "batch-size, seq len"))
    assert shapes.false_dims({"x": x}, {"y": np.zeros((2, 3))}) == {}
    assert list(shapes.false_dims({"x": x}, {"y": np.zeros((2, 6))})) == [("y", 1)]


def test_a_name_with_two_sizes_says_nothing() -> None:
    shapes = DeclaredShapes(model("B, B", "B, B"))
    assert not shapes.false_dims({"x": np.zeros((2, 3))}, {"y": np.zeros((2, 6))})


def test_a_false_number_of_dims_is_worse_than_a_false_dim() -> None:
    assert verify(model("B"), model("B, T")).ok
    assert "with 1 dims, and it has 2" in verify(model("B, N"), model("B")).reason
