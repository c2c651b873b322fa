"""Small constants of a file, each decoded once."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from graphfix.graph.constants import MAX_CONSTANT_ELEMENTS
from graphfix.graph.small_constants import CachedTensor, cache_if_small


def tensor(*dims: int) -> ir.TensorProtoTensor:
    array = np.arange(np.prod(dims), dtype=np.float32).reshape(dims)
    return ir.TensorProtoTensor(numpy_helper.from_array(array, "w"))


def test_a_small_tensor_is_read_once() -> None:
    plain = tensor(2, 3)
    cached = cache_if_small(plain)
    assert isinstance(cached, CachedTensor)
    assert (cached.shape, cached.dtype, cached.size) == (ir.Shape([2, 3]), ir.DataType.FLOAT, 6)
    assert cached.name == "w"
    array = cached.numpy()
    assert array is cached.numpy()
    np.testing.assert_array_equal(array, plain.numpy())
    with pytest.raises(ValueError, match="read-only"):
        array[0, 0] = 1
    with pytest.raises((TypeError, ValueError)):
        cached.shape[0] = 4


def test_shapes_are_shared() -> None:
    assert cache_if_small(tensor(2)).shape is cache_if_small(tensor(2)).shape
    assert cache_if_small(tensor()).size == 1


def test_a_larger_tensor_stays_as_it_is() -> None:
    assert isinstance(cache_if_small(tensor(MAX_CONSTANT_ELEMENTS)), CachedTensor)
    larger = tensor(MAX_CONSTANT_ELEMENTS + 1)
    assert cache_if_small(larger) is larger
