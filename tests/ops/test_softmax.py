"""Softmax and its relatives compute what ONNX Runtime computes, at several opsets."""

import numpy as np
import pytest

from graphfix.ops.axes import axis_of, written_axis
from graphfix.ops.softmax import is_along_last_axis, softmax_axes, softmax_axis
from tests.ops.nodes import node_of, nodes_in
from tests.ops.samples import Array, samples_of


def _softmax(x: Array, axes: tuple[int, ...], operator: str) -> Array:
    wide = x.astype(np.float64)
    powers = np.exp(wide - wide.max(axis=axes, keepdims=True))
    shares = powers / powers.sum(axis=axes, keepdims=True)
    if operator == "Hardmax":
        return (wide == wide.max(axis=axes, keepdims=True)).astype(np.float32)
    return np.log(shares) if operator == "LogSoftmax" else shares


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax", "Hardmax"])
def test_a_softmax_is_over_these_axes_at_every_opset(operator: str) -> None:
    opsets = set()
    for sample in samples_of(operator):
        x = sample.inputs[0]
        axes = softmax_axes(node_of(sample), x.ndim, sample.opset)
        assert axes is not None
        opsets.add(sample.opset < 13)
        expected = _softmax(x, axes, operator)
        np.testing.assert_allclose(sample.first(), expected, 1e-5, 1e-6, err_msg=str(sample))
    assert opsets == {True, False}


def _plain_softmax(opset: int, axis: str) -> str:
    return f"""<ir_version: 7, opset_import: ["" : {opset}]>
    weigh (float[2, 3, 4] x) => (float[2, 3, 4] y) {{ y = Softmax {axis} (x) }}"""


@pytest.mark.parametrize(
    ("opset", "axis", "axes", "single"),
    [
        (11, "", (1, 2), None),
        (13, "", (2,), 2),
        (11, "<axis = 2>", (2,), 2),
        (11, "<axis = -1>", (2,), 2),
        (11, "<axis = 1>", (1, 2), None),
        (13, "<axis = 1>", (1,), 1),
        (12, "<axis = 0>", (0, 1, 2), None),
    ],
)
def test_the_default_and_the_meaning_changed_at_13(
    opset: int, axis: str, axes: tuple[int, ...], single: int | None
) -> None:
    (node,) = nodes_in(_plain_softmax(opset, axis))
    assert softmax_axes(node, 3, opset) == axes
    assert softmax_axis(node, 3, opset) == single
    assert is_along_last_axis(node, 3, opset) == (single == 2)
    assert written_axis(node, opset) == (node.attributes.get_int("axis", 1 if opset < 13 else -1))


def test_an_axis_outside_of_the_rank_is_none() -> None:
    (node,) = nodes_in(_plain_softmax(13, "<axis = 3>"))
    assert axis_of(node, 3, 13) is None
    assert softmax_axes(node, 3, 13) is None
    assert softmax_axis(node, 3, 13) is None
    # What flattens may put all axes before its own.
    assert softmax_axes(node, 3, 12) == ()
