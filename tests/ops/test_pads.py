"""Pad, against what ONNX Runtime computes."""

import numpy as np
import pytest

from graphfix.graph.constants import ints_of
from graphfix.ops.pads import pad_fill, pad_mode, pads_by_axis
from tests.ops.nodes import node_of, nodes_in
from tests.ops.samples import Array, Sample, ints, labels

_PADS = [
    Sample("Pad", 9, (labels(2, 3),), {"pads": [1, 0, 0, 2], "value": 5.0}),
    Sample("Pad", 9, (labels(2, 3),), {"pads": [0, 1, 0, 1], "mode": "reflect"}),
    Sample("Pad", 11, (labels(2, 3), ints(1, 0, 0, 2))),
    Sample("Pad", 13, (labels(2, 3), ints(1, -1, 0, 2), np.array(4, np.float32))),
    Sample("Pad", 13, (labels(2, 3), ints(0, 1, 1, 0)), {"mode": "edge"}),
    Sample("Pad", 18, (labels(2, 3), ints(1, 2), None, ints(-1))),
    Sample("Pad", 19, (labels(2, 3), ints(1, 1, 0, 0), None, ints(1, 0)), {"mode": "wrap"}),
]


def _pad(x: Array, pads: dict[int, tuple[int, int]], mode: str, fill: float) -> Array:
    widths = [pads.get(axis, (0, 0)) for axis in range(x.ndim)]
    cut = x[tuple(slice(max(0, -a), x.shape[i] - max(0, -b)) for i, (a, b) in enumerate(widths))]
    grown = [(max(0, a), max(0, b)) for a, b in widths]
    if mode == "constant":
        return np.pad(cut, grown, constant_values=fill)
    return np.pad(cut, grown, mode=mode)  # type: ignore[call-overload]


@pytest.mark.parametrize("sample", _PADS, ids=str)
def test_a_pad_puts_this_around(sample: Sample) -> None:
    node = node_of(sample)
    pads, fill = pads_by_axis(node, 2, ints_of), pad_fill(node)
    assert pads is not None
    assert fill is not None
    padded = _pad(sample.inputs[0], pads, pad_mode(node), fill)
    np.testing.assert_array_equal(padded, sample.first())


def test_pads_that_are_computed_are_read_by_the_caller() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]>
    pad (float[2, 3] x, int64[4] pads, float fill, int64[2] axes) => (float[N, M] y) {
        a = Pad (x, pads, fill)
        y = Pad (x, pads, fill, axes)
    }"""
    node, other = nodes_in(text)
    assert pads_by_axis(node, 2, ints_of) is None
    assert pad_fill(node) is None
    assert pads_by_axis(node, 2, lambda _: ("a", 0, "b", 0)) == {0: ("a", "b"), 1: (0, 0)}
    assert pads_by_axis(node, 3, lambda _: ("a", 0, "b", 0)) is None
    assert pads_by_axis(other, 2, lambda _: ("a", 0, "b", 0)) is None
