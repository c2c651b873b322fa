"""convtranspose-pads: the pads that ONNX Runtime makes of auto_pad=SAME, and what is left."""

from __future__ import annotations

import itertools

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from tests.passes.models import execute, model, refusals


def upsampling(attributes: str, kernel: str, rank: int = 1, opset: int = 17) -> ir.Model:
    dims, out = ", ".join("DEF"[:rank]), ", ".join("UVW"[:rank])
    return model(
        f"m (float[B, 2, {dims}] x, float[2, 3, {kernel}] w) => (float[B, 3, {out}] y) "
        f"{{ y = ConvTranspose <{attributes}> (x, w) }}",
        opset,
    )


SIZES = [
    (kernel, stride, dilation, more)
    for kernel, stride, dilation, more in itertools.product(
        (2, 3, 4, 5), (2, 3), (1, 2), (0, 1)
    )
    if (kernel - 1) * dilation + 1 + more >= stride
]  # fmt: skip


@pytest.mark.parametrize("auto", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(("kernel", "stride", "dilation", "more"), SIZES)
def test_the_same_numbers(auto: str, kernel: int, stride: int, dilation: int, more: int) -> None:
    attributes = f'auto_pad = "{auto}", strides = [{stride}], dilations = [{dilation}]'
    attributes += f", output_padding = [{more}]" if more else ""
    before, after = (upsampling(attributes, str(kernel)) for _ in range(2))
    assert graphfix.run(after, "convtranspose-pads").changed
    assert not graphfix.run(after, "convtranspose-pads").changed
    random = np.random.default_rng(0)
    for length in (1, 2, 5):
        feeds = {
            "x": random.standard_normal((2, 2, length)).astype(np.float32),
            "w": random.standard_normal((2, 3, kernel)).astype(np.float32),
        }
        (old,), (new,) = execute(before, feeds), execute(after, feeds)
        assert old.shape == new.shape == (2, 3, length * stride)
        np.testing.assert_allclose(old, new, rtol=1e-5, atol=1e-6)


def test_two_dims_of_which_one_is_strided() -> None:
    before, after = (
        upsampling('auto_pad = "SAME_UPPER", strides = [1, 2]', "3, 4", 2) for _ in range(2)
    )
    graphfix.run(after, "directml")
    (node,) = after.graph
    assert list(node.attributes["pads"].as_ints()) == [1, 1, 1, 1]
    random = np.random.default_rng(0)
    feeds = {"x": random.standard_normal((1, 2, 3, 5)), "w": random.standard_normal((2, 3, 3, 4))}
    feeds = {name: x.astype(np.float32) for name, x in feeds.items()}
    np.testing.assert_allclose(execute(before, feeds)[0], execute(after, feeds)[0], rtol=1e-5)


@pytest.mark.parametrize(
    ("attributes", "kernel", "severity"),
    [
        ('auto_pad = "SAME_UPPER", strides = [3]', "2", "note"),  # DirectML is right
        ('auto_pad = "SAME_UPPER", strides = [2]', "K", "error"),
        ('auto_pad = "SAME_UPPER", strides = [1]', "4", None),
        ('auto_pad = "SAME_UPPER", strides = [2], output_shape = [10]', "4", None),
        ('auto_pad = "VALID", strides = [2]', "4", None),
        ("strides = [2]", "4", None),
    ],
)
def test_what_is_left_alone(attributes: str, kernel: str, severity: str | None) -> None:
    m = upsampling(attributes, kernel)
    assert bool(refusals(m, "convtranspose-pads")) == (severity is not None)
    found = [x.severity for x in graphfix.check(m, "convtranspose-pads")]
    assert found == ([] if severity is None else [severity])
