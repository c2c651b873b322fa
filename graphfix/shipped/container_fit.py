"""Fits clips into a container, row by row, and cuts its outputs: numpy only."""

from collections.abc import Sequence

import numpy as np

from graphfix.errors import FeedError, ModelError
from graphfix.runtime.port import Array, Feeds
from graphfix.shipped.manifest import Container, InputPort, Manifest, Port

DTYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
    "tensor(uint8)": np.uint8,
    "tensor(int8)": np.int8,
}


class ClipFit:
    """How a clip of one length, with one row, fits into a container.

    Args:
        manifest: The manifest of the model.
        container: The container.
        length: The length of the clip.

    Raises:
        FeedError: The original runs no clip of that length.
        ModelError: A size of the manifest cannot be computed.
    """

    def __init__(self, manifest: Manifest, container: Container, length: int) -> None:
        dim = manifest.axis.dim
        container_sizes = dict(container.sizes)
        if manifest.batch is not None:
            container_sizes[manifest.batch] = 1
        self.length = length
        self._file, self._length_text = container.file, f"{dim}={length}"
        self._length_share = length / container_sizes[dim]
        clip_sizes = {**container_sizes, dim: length}
        try:
            container_sizes = manifest.with_derived(container_sizes)
            self._padded_shapes = {x.name: x.shape_at(container_sizes) for x in manifest.inputs}
        except ValueError as error:
            raise ModelError(f"{error}; ship the model again") from error
        try:
            clip_sizes = manifest.with_derived(clip_sizes)
            self._clip_shapes = {x.name: x.shape_at(clip_sizes) for x in manifest.inputs}
            self._valid_shapes = {x.name: x.shape_at(clip_sizes) for x in manifest.outputs}
        except ValueError as error:
            raise FeedError(
                f"a clip of {self._length_text} is none that the model takes: {error}"
            ) from error

    def pad_input(self, port: InputPort, clip: Feeds) -> Array:
        """Return an input of a clip, padded to one row of the container.

        Raises:
            FeedError: The clip has no such input, or one of another shape.
        """
        array = clip.get(port.name)
        if array is None:
            raise FeedError(f"the input {port.name!r} is missing")
        clip_shape, padded_shape = self._clip_shapes[port.name], self._padded_shapes[port.name]
        if array.shape != clip_shape:
            axis = next(i for i, n in enumerate(clip_shape) if array.shape[i] != n)
            raise FeedError(
                f"the input {port.name!r} has {array.shape[axis]} along axis {axis}, and "
                f"{clip_shape[axis]} is expected ({port.dims[axis]}, with {self._length_text})"
            )
        if port.kind == "relative-lengths":  # a share of the longest clip is one of the container
            array = (array * self._length_share).astype(array.dtype)
        if padded_shape == clip_shape:
            return array
        row: Array = np.full(padded_shape, port.pad, array.dtype)
        row[tuple(map(slice, clip_shape))] = array
        return row

    def cut_output(self, port: Port, array: Array, row: int) -> Array:
        """Return the valid part of a row of an output: a view.

        Raises:
            FeedError: The output does not have the shape that the manifest says.
        """
        shape = self._valid_shapes[port.name]
        if array.shape == shape:
            return array
        slices = [slice(n) for n in shape]
        if row and (axis := row_axis_of(port)) is not None:
            slices[axis] = slice(row, row + 1)
        valid = array[tuple(slices)] if array.ndim == len(slices) else array
        if valid.shape != shape:
            raise FeedError(
                f"the output {port.name!r} has shape {[*array.shape]} in {self._file}, and "
                f"{[*shape]} of it should be valid ([{', '.join(map(str, port.dims))}]); "
                "ship the model again"
            )
        return valid


def row_axis_of(port: Port) -> int | None:
    """Return the axis with one row per clip, or None."""
    return port.rows if port.rows is not None and isinstance(port.dims[port.rows], str) else None


def rows_in(manifest: Manifest, container: Container) -> int:
    """Return how many clips a container holds."""
    return container.sizes[manifest.batch] if manifest.batch else 1


def require_inputs(manifest: Manifest, feeds: Feeds) -> None:
    """Raise FeedError where an input is unknown, or has another rank or dtype."""
    ports = {port.name: port for port in manifest.inputs}
    for name, array in feeds.items():
        port = ports.get(name)
        if port is None:
            raise FeedError(f"the model has no input {name!r}; it has {', '.join(ports)}")
        if array.ndim != len(port.dims):
            raise FeedError(
                f"the input {name!r} has shape {[*array.shape]}, and the model takes "
                f"[{', '.join(map(str, port.dims))}]"
            )
        dtype = DTYPES.get(port.type)
        if dtype is not None and array.dtype != dtype:
            raise FeedError(
                f"the input {name!r} is {array.dtype}, and the model takes {np.dtype(dtype)}"
            )


def length_of(manifest: Manifest, feeds: Feeds) -> int:
    """Return the length of a clip, or of all clips in a batch.

    Raises:
        FeedError: The input that has the padded axis is missing.
    """
    axis = manifest.axis
    array = feeds.get(axis.input)
    if array is None:
        raise FeedError(f"the input {axis.input!r} is missing")
    return int(array.shape[axis.axis])


def join_clips(
    manifest: Manifest, rows: int, clips: Sequence[Feeds], fits: Sequence[ClipFit]
) -> Feeds:
    """Return the feeds of a container that holds these clips, one row each.

    Unused rows are copies of the first clip, which the model accepts.

    Args:
        manifest: What is known of the model.
        rows: How many rows the container has.
        clips: The inputs of each clip, with one row; at most as many as there are rows.
        fits: How each of them fits.

    Raises:
        FeedError: An input is missing, or does not fit what the manifest says of it.
    """
    pairs = [*zip(clips, fits, strict=True), *[(clips[0], fits[0])] * (rows - len(clips))]
    feeds = {
        x.name: _join_rows(x, [fit.pad_input(x, clip) for clip, fit in pairs])
        for x in manifest.inputs
    }
    if manifest.lengths is not None:
        feeds[manifest.lengths] = np.array([fit.length for _, fit in pairs], np.int64)
    return feeds


def _join_rows(port: InputPort, parts: Sequence[Array]) -> Array:
    axis = row_axis_of(port)
    if len(parts) > 1 and axis is not None:
        return np.concatenate(parts, axis)
    if all(np.array_equal(parts[0], part) for part in parts[1:]):
        return parts[0]
    raise FeedError(
        f"the input {port.name!r} has no rows, so clips in one batch cannot differ in it; "
        "run them one by one"
    )


def split_batch(manifest: Manifest, feeds: Feeds) -> list[Feeds]:
    """Split a batch into clips of one row; an input without rows goes into each clip.

    Raises:
        FeedError: The inputs have different numbers of rows, or none.
    """
    axes = {x.name: row_axis_of(x) for x in manifest.inputs}
    rows = {k: x.shape[axis] for k, x in feeds.items() if (axis := axes[k]) is not None}
    if len(set(rows.values())) > 1:
        raise FeedError(f"the inputs have different numbers of rows: {rows}")
    count = next(iter(rows.values()), 1)
    if count == 1:
        return [feeds]
    if count == 0:
        raise FeedError("a batch of no clips; there is nothing to run")
    return [
        {k: x.take([row], axes[k]) if k in rows else x for k, x in feeds.items()}
        for row in range(count)
    ]
