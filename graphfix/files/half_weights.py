"""Float32 weights converted to float16 on their way from one file to another.

A big weight is never held: it is looked at in pieces, and :class:`NarrowedTensor` says where its
float32 lies, so that saving converts it as it copies it.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from graphfix.files.byte_ranges import PIECE, read_float32
from graphfix.files.external_files import Array, Weight
from graphfix.files.wire import BIG

HALF_MAX = 65504.0
HALF_NORMAL = 2.0**-14
# A number of half this rounds to 0.
HALF_SMALLEST = 2.0**-24
# What an external location is called whose bytes are to be halved; no file has such a name.
FLOAT16_MARK = "|float16"

KEPT_IN_FLOAT32_KEY = "graphfix.float16"
"""The key in ``metadata_props`` of a node that was left in float32; its value says why."""


@dataclass(frozen=True)
class Float16Fit:
    """How well the numbers of a constant fit into float16.

    Attributes:
        largest: The largest magnitude of its finite elements.
        underflowing: How many elements are not 0 and would be.
        overflowing: How many finite elements are more than float16 holds.
        size: How many elements there are.
    """

    largest: float
    underflowing: int
    overflowing: int
    size: int


class NarrowedTensor(ir.ExternalTensor):
    """A float16 tensor converted from float32 values in a file, read as late as possible.

    Args:
        wide: The tensor in the file.
    """

    __slots__ = ("wide",)

    def __init__(self, wide: ir.ExternalTensor) -> None:
        super().__init__(
            f"{wide.location}{FLOAT16_MARK}",
            wide.offset,
            2 * math.prod(wide.shape.numpy()),
            ir.DataType.FLOAT16,
            shape=wide.shape,
            name=wide.name,
            doc_string=wide.doc_string,
            metadata_props=dict(wide.metadata_props),
            base_dir=wide.base_dir,
        )
        self.wide = wide

    def numpy(self) -> Array:
        """Return the values, converted."""
        values = np.empty(math.prod(self.shape.numpy()), np.float16)
        position = 0
        for piece in float32_pieces(self.wide):
            values[position : position + piece.size] = array_to_float16(piece)
            position += piece.size
        return values.reshape(self.shape.numpy())

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        """Return the values for numpy."""
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def tobytes(self) -> bytes:
        """Return the bytes of the values."""
        return self.numpy().astype("<f2", copy=False).tobytes()

    def tofile(self, file: BinaryIO) -> None:
        """Write the bytes, a piece at a time."""
        for piece in float32_pieces(self.wide):
            file.write(array_to_float16(piece).astype("<f2", copy=False).tobytes())

    def release(self) -> None:
        """Release nothing, since nothing is held."""


def tensor_to_float16(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """Return a float32 tensor as float16; one that lies in a file is converted when written."""
    if isinstance(tensor, ir.ExternalTensor) and tensor.nbytes >= BIG:
        return NarrowedTensor(tensor)
    array = np.concatenate(
        [array_to_float16(x) for x in float32_pieces(tensor)] or [np.empty(0, np.float16)]
    )
    return ir.tensor(array.reshape(tensor.shape.numpy()), name=tensor.name)


def array_to_float16(array: Array) -> Array:
    """Convert float32 to the nearest float16; beyond 65504 it becomes infinite."""
    with np.errstate(over="ignore"):
        half: Array = array.astype(np.float16)
    return half


def float16_fit(tensor: ir.TensorProtocol) -> Float16Fit:
    """Measure how well the numbers of a float32 tensor fit into float16, piece by piece."""
    largest, underflowing, overflowing = 0.0, 0, 0
    for piece in float32_pieces(tensor):
        magnitudes = np.abs(piece)
        maximum = float(magnitudes.max(initial=0.0))
        if not math.isfinite(maximum):
            magnitudes = magnitudes[np.isfinite(magnitudes)]
            maximum = float(magnitudes.max(initial=0.0))
        largest = max(largest, maximum)
        overflowing += int(np.count_nonzero(magnitudes > HALF_MAX)) if maximum > HALF_MAX else 0
        underflowing += int(np.count_nonzero((magnitudes > 0) & (magnitudes <= HALF_SMALLEST / 2)))
    return Float16Fit(largest, underflowing, overflowing, math.prod(tensor.shape.numpy()))


def file_of_tensor(tensor: ir.ExternalTensor) -> Path:
    """Return the file that a tensor lies in, links followed."""
    return tensor.file if isinstance(tensor, Weight) else Path(tensor.path).resolve()


def float32_pieces(tensor: ir.TensorProtocol) -> Iterator[Array]:
    """Yield the elements of a float32 tensor, flat and in order, a piece at a time.

    A piece of a file is gone when the next one comes: it lies in the same memory.
    """
    if not isinstance(tensor, ir.ExternalTensor):
        flat = np.ascontiguousarray(tensor.numpy(), np.float32).reshape(-1)
        yield from (flat[start : start + PIECE] for start in range(0, flat.size, PIECE))
        return
    short = OSError(f"{tensor.path}: has become shorter while it was read; copy it again")
    with file_of_tensor(tensor).open("rb", buffering=0) as file:
        file.seek(tensor.offset or 0)
        for piece in read_float32(file, math.prod(tensor.shape.numpy()), short):
            yield piece.astype(np.float32, copy=False)
