"""Convolutions and pools, against what ONNX Runtime computes."""

import numpy as np
import pytest

from graphfix.ops.windows import channel_axis_of_weight, window_of
from tests.ops.nodes import node_in_text, node_of, nodes_in
from tests.ops.samples import Sample, floats

_WINDOWS = [
    Sample("Conv", 11, (floats(1, 2, 9), floats(4, 1, 3)), {"group": 2, "pads": [1, 2]}),
    Sample("Conv", 11, (floats(1, 2, 9), floats(4, 2, 3)), {"dilations": [2], "strides": [2]}),
    Sample("Conv", 11, (floats(1, 1, 9, 8), floats(1, 1, 3, 2)), {"auto_pad": "SAME_UPPER"}),
    Sample("Conv", 11, (floats(1, 1, 9), floats(1, 1, 4)), {"auto_pad": "SAME_LOWER"}),
    Sample("Conv", 11, (floats(1, 1, 9), floats(1, 1, 4)), {"auto_pad": "VALID", "strides": [2]}),
    Sample("MaxPool", 12, (floats(1, 1, 9),), {"kernel_shape": [3], "strides": [2]}),
    Sample("AveragePool", 19, (floats(1, 1, 9),), {"kernel_shape": [2], "dilations": [3]}),
    Sample("LpPool", 18, (floats(1, 1, 9),), {"kernel_shape": [2], "pads": [1, 0]}),
]


@pytest.mark.parametrize("sample", _WINDOWS, ids=str)
def test_a_window_slides_like_this(sample: Sample) -> None:
    weight = sample.inputs[1] if len(sample.inputs) > 1 else None
    node = node_of(sample)
    window = window_of(node)
    assert window is not None
    spatial = sample.inputs[0].shape[2:]
    pads = window.pads_for(spatial)
    sizes = tuple(
        (size + sum(pad) - reach) // stride + 1
        for size, pad, reach, stride in zip(
            spatial, pads, window.reach, window.strides, strict=True
        )
    )
    assert sizes == sample.first().shape[2:]
    assert window.group == sample.attributes.get("group", 1)
    assert weight is None or window.kernel == weight.shape[2:]


def test_same_pads_lie_where_onnx_runtime_puts_them() -> None:
    ramp = np.arange(1, 6, dtype=np.float32).reshape(1, 1, 5)
    pick = np.array([[[1, 0, 0, 0]]], np.float32)
    for auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        sample = Sample("Conv", 11, (ramp, pick), {"auto_pad": auto_pad})
        window = window_of(node_of(sample))
        assert window is not None
        ((before, _),) = window.pads_for((5,))
        assert sample.first()[0, 0].tolist() == [*[0.0] * before, *ramp[0, 0, : 5 - before]]


def test_a_kernel_that_is_not_known_is_none() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    slide (float[1, 2, N] x, float[4, 2, K] w) => (float[1, 4, M] y) { y = Conv (x, w) }"""
    (node,) = nodes_in(text)
    assert window_of(node) is None
    window = window_of(node, (8, 4, 3, 5))
    assert window is not None
    assert window.kernel == (3, 5)


def test_a_transposed_convolution_is_read() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    slide (float[1, 2, 5] x, float[2, 4, 3] w) => (float[1, 4, M] y) {
        y = ConvTranspose <strides = [2], output_padding = [1], pads = [1, 0]> (x, w)
    }"""
    (node,) = nodes_in(text)
    window = window_of(node)
    assert window is not None
    assert (window.kernel, window.strides, window.output_padding) == ((3,), (2,), (1,))
    assert (window.before, window.after, window.output_shape) == ((1,), (0,), None)


def test_the_channels_of_a_weight() -> None:
    assert channel_axis_of_weight(node_in_text("Conv <group = 2> (x, w)")) == (1, 2)
    assert channel_axis_of_weight(node_in_text("ConvTranspose <group = 2> (x, w)")) == (0, 1)
