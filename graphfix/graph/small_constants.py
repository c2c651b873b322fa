"""Small constants of a file, each decoded once."""

import functools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from graphfix.graph.constants import MAX_CONSTANT_ELEMENTS


class CachedTensor(ir.TensorProtoTensor):
    """A small tensor of a file that caches what onnx-ir computes again on each access.

    Every pass asks each constant for its size and numbers: on a graph of 100,000 nodes, a quarter
    of which are constants, that was a twelfth of all the work. The numbers of a tensor of a file do
    not change, and nobody can write into the array.
    """

    __slots__ = ("_array", "_dtype", "_shape", "_size")

    def __init__(self, tensor: ir.TensorProtoTensor, dims: tuple[int, ...]) -> None:
        super().__init__(tensor.raw)
        self._shape, self._size = _shared_shape(dims), math.prod(dims)
        self._dtype = tensor.dtype
        self._array: npt.NDArray[np.generic] | None = None

    # To its protocol these are variables, which they are not in onnx-ir's own tensor of a file.
    @property
    def shape(self) -> ir.Shape:  # type: ignore[override]
        """The shape, which is frozen."""
        return self._shape

    @property
    def dtype(self) -> ir.DataType:  # type: ignore[override]
        """The type of an element."""
        return self._dtype

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._size

    def numpy(self) -> npt.NDArray[Any]:
        """Return the elements, read on first use."""
        if self._array is None:
            self._array = super().numpy()
            self._array.flags.writeable = False
        return self._array


def cache_if_small(tensor: ir.TensorProtoTensor) -> ir.TensorProtoTensor:
    """Return a small tensor of a file as a :class:`CachedTensor`; any other as it is."""
    dims = tuple(tensor.raw.dims)
    return CachedTensor(tensor, dims) if math.prod(dims) <= MAX_CONSTANT_ELEMENTS else tensor


@functools.cache
def _shared_shape(dims: tuple[int, ...]) -> ir.Shape:
    """Return the one shape object of all constants with these dims: thousands share a handful."""
    return ir.Shape(dims, frozen=True)
