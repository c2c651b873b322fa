"""Weights of float32 as float16, converted on their way from one file to another.

A big weight is never held: it is looked at in pieces, and :class:`Narrowed` says of it where its
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

from graphfix.files.byte_ranges import PIECE, floats
from graphfix.files.external_files import Array, Weight
from graphfix.files.wire import BIG

HALF_MAX = 65504.0
HALF_NORMAL = 2.0**-14
# A number of half this rounds to 0.
HALF_LEAST = 2.0**-24
# What an external location is called whose bytes are to be halved; no file has such a name.
MARK = "|float16"

KEPT = "graphfix.float16"
"""The key in ``metadata_props`` of a node that was left in float32; its value says why."""


@dataclass(frozen=True)
class Extent:
    """How far the numbers of a constant reach.

    Attributes:
        largest: The largest magnitude of its finite elements.
        lost: How many elements are not 0 and would be.
        beyond: How many finite elements are more than float16 holds.
        size: How many elements there are.
    """

    largest: float
    lost: int
    beyond: int
    size: int


class Narrowed(ir.ExternalTensor):
    """A float16 tensor made of the float32 that lie in a file; nothing is read before it must.

    Args:
        wide: The tensor in the file.
    """

    __slots__ = ("wide",)

    def __init__(self, wide: ir.ExternalTensor) -> None:
        super().__init__(
            f"{wide.location}{MARK}",
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
        """The values, converted."""
        out = np.empty(math.prod(self.shape.numpy()), np.float16)
        at = 0
        for piece in pieces(self.wide):
            out[at : at + piece.size] = narrow(piece)
            at += piece.size
        return out.reshape(self.shape.numpy())

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        """The values, for numpy."""
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def tobytes(self) -> bytes:
        """The bytes of the values."""
        return self.numpy().astype("<f2", copy=False).tobytes()

    def tofile(self, file: BinaryIO) -> None:
        """Write the bytes, a piece at a time."""
        for piece in pieces(self.wide):
            file.write(narrow(piece).astype("<f2", copy=False).tobytes())

    def release(self) -> None:
        """Nothing is held."""


def narrowed(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """A float32 tensor as float16; one that lies in a file is converted when it is written."""
    if isinstance(tensor, ir.ExternalTensor) and tensor.nbytes >= BIG:
        return Narrowed(tensor)
    array = np.concatenate([narrow(x) for x in pieces(tensor)] or [np.empty(0, np.float16)])
    return ir.tensor(array.reshape(tensor.shape.numpy()), name=tensor.name)


def narrow(array: Array) -> Array:
    """float32 as float16, to the nearest; beyond 65504 it is infinite."""
    with np.errstate(over="ignore"):
        half: Array = array.astype(np.float16)
    return half


def extent_of(tensor: ir.TensorProtocol) -> Extent:
    """How far the numbers of a float32 tensor reach, looked at in pieces."""
    largest, lost, beyond = 0.0, 0, 0
    for piece in pieces(tensor):
        size = np.abs(piece)
        top = float(size.max(initial=0.0))
        if not math.isfinite(top):
            size = size[np.isfinite(size)]
            top = float(size.max(initial=0.0))
        largest = max(largest, top)
        beyond += int(np.count_nonzero(size > HALF_MAX)) if top > HALF_MAX else 0
        lost += int(np.count_nonzero((size > 0) & (size <= HALF_LEAST / 2)))
    return Extent(largest, lost, beyond, math.prod(tensor.shape.numpy()))


def file_of(tensor: ir.ExternalTensor) -> Path:
    """The file that a tensor lies in, links followed."""
    return tensor.file if isinstance(tensor, Weight) else Path(tensor.path).resolve()


def pieces(tensor: ir.TensorProtocol) -> Iterator[Array]:
    """The elements of a float32 tensor, flat and in order, a piece at a time.

    A piece of a file is gone when the next one comes: it lies in the same memory.
    """
    if not isinstance(tensor, ir.ExternalTensor):
        flat = np.ascontiguousarray(tensor.numpy(), np.float32).reshape(-1)
        yield from (flat[start : start + PIECE] for start in range(0, flat.size, PIECE))
        return
    short = OSError(f"{tensor.path}: has become shorter while it was read; copy it again")
    with file_of(tensor).open("rb", buffering=0) as file:
        file.seek(tensor.offset or 0)
        for piece in floats(file, math.prod(tensor.shape.numpy()), short):
            yield piece.astype(np.float32, copy=False)
