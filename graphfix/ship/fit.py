"""How a clip of one length fits a container: computed once, used for every clip as long.

What is left for a run is a comparison of shapes, one copy of each input that is padded, and one
slice of each output. numpy only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from graphfix.errors import FeedError
from graphfix.ship.expression import shape_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from graphfix.ship.manifest import Container, Dim, Input, Manifest, Port

    Array = npt.NDArray[Any]
    Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Filling:
    """How one input of a clip becomes one row of a container.

    Attributes:
        name: The input.
        shape: The shape it has, with one row.
        whole: Its shape in the container.
        inner: Where the clip is in it.
        pad: What it holds where there is no content.
        scale: What its values are multiplied by: lengths that are a share of the longest clip are
            a share of the container; None for all others.
        dims: Its dims as the manifest has them, for who reads an error.
        said: The length of the clip, for the same reader.
    """

    name: str
    shape: Shape
    whole: Shape
    inner: tuple[slice, ...]
    pad: float
    scale: float | None
    dims: tuple[Dim, ...]
    said: str

    def __call__(self, clip: Mapping[str, Array]) -> Array:
        """The input in the container.

        Raises:
            FeedError: The clip has no such input, or one of another shape.
        """
        array = clip.get(self.name)
        if array is None:
            raise FeedError(f"the input {self.name!r} is missing")
        if array.shape != self.shape:
            raise self._misfit(array.shape)
        if self.scale is not None:
            array = (array * self.scale).astype(array.dtype)
        if self.whole == self.shape:
            return array
        if self.pad == 0:  # memory that is zero already costs nothing
            whole: Array = np.zeros(self.whole, array.dtype)
        else:
            whole = np.full(self.whole, self.pad, array.dtype)
        whole[self.inner] = array
        return whole

    def _misfit(self, shape: Shape) -> FeedError:
        place = next(i for i, n in enumerate(self.shape) if shape[i] != n)
        return FeedError(
            f"the input {self.name!r} has {shape[place]} along axis {place}, and "
            f"{self.shape[place]} is expected ({self.dims[place]}, with {self.said})"
        )


@dataclass(frozen=True, slots=True)
class Crop:
    """What is valid of an output.

    Attributes:
        name: The output.
        shape: The shape of what is valid, for one clip.
        inner: Where that is in the first row.
        rows: The axis of the rows of a container; None if the output has none.
        dims: Its dims as the manifest has them, for who reads an error.
        file: The container, for the same reader.
    """

    name: str
    shape: Shape
    inner: tuple[slice, ...]
    rows: int | None
    dims: tuple[Dim, ...]
    file: str

    def __call__(self, array: Array, row: int) -> Array:
        """The valid part of a row: a view.

        Raises:
            FeedError: The manifest says something else of the output's shape.
        """
        if array.shape == self.shape:
            return array
        where = self.inner
        if row and self.rows is not None:
            where = (*where[: self.rows], slice(row, row + 1), *where[self.rows + 1 :])
        cut = array[where] if array.ndim == len(where) else array
        if cut.shape != self.shape:
            raise FeedError(
                f"the output {self.name!r} has shape {[*array.shape]} in {self.file}, and "
                f"{[*self.shape]} of it should be valid ([{', '.join(map(str, self.dims))}]); "
                "ship the model again"
            )
        return cut


@dataclass(frozen=True, slots=True)
class Fit:
    """A clip of one length in a container.

    Attributes:
        length: The length.
        inputs: How each input is filled.
        outputs: What is valid of each output, by name.
        changing: Those of ``inputs`` that do not stay as they are.
        lengths: The input that takes the length; None if there is none.
    """

    length: int
    inputs: tuple[Filling, ...]
    outputs: Mapping[str, Crop]
    changing: tuple[Filling, ...]
    lengths: str | None

    def again(self, clip: Mapping[str, Array]) -> dict[str, Array]:
        """The inputs of a container with one row, for a clip of shapes that fitted before."""
        fed = dict(clip)
        for filling in self.changing:
            fed[filling.name] = filling(clip)
        if self.lengths is not None:
            fed[self.lengths] = np.array([self.length], np.int64)
        return fed


def fit(manifest: Manifest, container: Container, length: int) -> Fit:
    """How a clip of ``length``, with one row, fits a container.

    Raises:
        ValueError: A size of the manifest cannot be computed.
    """
    alone = {**container.sizes, manifest.axis.dim: length}
    if manifest.batch is not None:
        alone[manifest.batch] = 1
    inputs = tuple(_filling(manifest, item, container, alone) for item in manifest.inputs)
    return Fit(
        length,
        inputs,
        {port.name: _crop(port, container, alone) for port in manifest.outputs},
        tuple(x for x in inputs if x.shape != x.whole or x.scale is not None),
        manifest.lengths,
    )


def rows_axis(port: Port) -> int | None:
    """The axis along which an input or output has one row for each clip; None if it has none."""
    return port.rows if port.rows is not None and isinstance(port.dims[port.rows], str) else None


def _filling(
    manifest: Manifest, item: Input, container: Container, alone: Mapping[str, int]
) -> Filling:
    dim = manifest.axis.dim
    shape = shape_of(item.dims, alone)
    whole = shape_of(item.dims, {**alone, dim: container.sizes[dim]})
    relative = item.kind == "relative-lengths"
    return Filling(
        item.name,
        shape,
        whole,
        tuple(map(slice, shape)),
        item.pad,
        alone[dim] / container.sizes[dim] if relative else None,
        item.dims,
        f"{dim}={alone[dim]}",
    )


def _crop(port: Port, container: Container, alone: Mapping[str, int]) -> Crop:
    shape = shape_of(port.dims, alone)
    inner = tuple(map(slice, shape))
    return Crop(port.name, shape, inner, rows_axis(port), port.dims, container.file)
