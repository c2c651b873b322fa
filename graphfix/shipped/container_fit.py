"""Clips into a container, row by row, and what is valid of its outputs: numpy only."""

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
    """A clip of one length, with one row, in a container.

    Args:
        manifest: What is known of the model.
        container: The container.
        length: The length of the clip.

    Raises:
        ModelError: A size of the manifest cannot be computed.
    """

    def __init__(self, manifest: Manifest, container: Container, length: int) -> None:
        dim = manifest.axis.dim
        whole = dict(container.sizes)
        if manifest.batch is not None:
            whole[manifest.batch] = 1
        alone = {**whole, dim: length}
        self.length = length
        self._file, self._said = container.file, f"{dim}={length}"
        self._share = length / whole[dim]
        try:
            self._padded = {x.name: x.shape(whole) for x in manifest.inputs}
            self._alone = {x.name: x.shape(alone) for x in manifest.inputs}
            self._valid = {x.name: x.shape(alone) for x in manifest.outputs}
        except ValueError as error:
            raise ModelError(f"{error}; ship the model again") from error

    def pad(self, item: InputPort, clip: Feeds) -> Array:
        """An input of a clip in one row of the container.

        Raises:
            FeedError: The clip has no such input, or one of another shape.
        """
        array = clip.get(item.name)
        if array is None:
            raise FeedError(f"the input {item.name!r} is missing")
        alone, padded = self._alone[item.name], self._padded[item.name]
        if array.shape != alone:
            at = next(i for i, n in enumerate(alone) if array.shape[i] != n)
            raise FeedError(
                f"the input {item.name!r} has {array.shape[at]} along axis {at}, and "
                f"{alone[at]} is expected ({item.dims[at]}, with {self._said})"
            )
        if item.kind == "relative-lengths":  # a share of the longest clip is one of the container
            array = (array * self._share).astype(array.dtype)
        if padded == alone:
            return array
        whole: Array = np.full(padded, item.pad, array.dtype)
        whole[tuple(map(slice, alone))] = array
        return whole

    def cut(self, port: Port, array: Array, row: int) -> Array:
        """The valid part of a row of an output: a view.

        Raises:
            FeedError: The manifest says something else of the output's shape.
        """
        shape = self._valid[port.name]
        if array.shape == shape:
            return array
        where = [slice(n) for n in shape]
        if row and (axis := rows_axis(port)) is not None:
            where[axis] = slice(row, row + 1)
        cut = array[tuple(where)] if array.ndim == len(where) else array
        if cut.shape != shape:
            raise FeedError(
                f"the output {port.name!r} has shape {[*array.shape]} in {self._file}, and "
                f"{[*shape]} of it should be valid ([{', '.join(map(str, port.dims))}]); "
                "ship the model again"
            )
        return cut


def rows_axis(port: Port) -> int | None:
    """The axis along which an input or output has one row for each clip; None if it has none."""
    return port.rows if port.rows is not None and isinstance(port.dims[port.rows], str) else None


def rows_in(manifest: Manifest, container: Container) -> int:
    """How many clips a container holds."""
    return container.sizes[manifest.batch] if manifest.batch else 1


def require_inputs(manifest: Manifest, feeds: Feeds) -> None:
    """Raise FeedError where an input is none of the model's, or has another rank or dtype."""
    known = {item.name: item for item in manifest.inputs}
    for name, array in feeds.items():
        item = known.get(name)
        if item is None:
            raise FeedError(f"the model has no input {name!r}; it has {', '.join(known)}")
        if array.ndim != len(item.dims):
            raise FeedError(
                f"the input {name!r} has shape {[*array.shape]}, and the model takes "
                f"[{', '.join(map(str, item.dims))}]"
            )
        dtype = DTYPES.get(item.type)
        if dtype is not None and array.dtype != dtype:
            raise FeedError(
                f"the input {name!r} is {array.dtype}, and the model takes {np.dtype(dtype)}"
            )


def length_of(manifest: Manifest, feeds: Feeds) -> int:
    """The length of a clip, or of all clips in a batch.

    Raises:
        FeedError: The input that tells it is missing.
    """
    axis = manifest.axis
    array = feeds.get(axis.input)
    if array is None:
        raise FeedError(f"the input {axis.input!r} is missing")
    return int(array.shape[axis.axis])


def together(
    manifest: Manifest, rows: int, clips: Sequence[Feeds], fits: Sequence[ClipFit]
) -> Feeds:
    """The inputs of a container that holds these clips, one row each.

    Rows that are left are copies of the first clip: what a model accepts once it accepts again.

    Args:
        manifest: What is known of the model.
        rows: How many rows the container has.
        clips: The inputs of each clip, with one row; at most as many as there are rows.
        fits: How each of them fits.

    Raises:
        FeedError: An input is missing, or does not fit what the manifest says of it.
    """
    pairs = [*zip(clips, fits, strict=True), *[(clips[0], fits[0])] * (rows - len(clips))]
    fed = {x.name: _joined(x, [one.pad(x, clip) for clip, one in pairs]) for x in manifest.inputs}
    if manifest.lengths is not None:
        fed[manifest.lengths] = np.array([one.length for _, one in pairs], np.int64)
    return fed


def _joined(item: InputPort, parts: Sequence[Array]) -> Array:
    axis = rows_axis(item)
    if len(parts) > 1 and axis is not None:
        return np.concatenate(parts, axis)
    if all(np.array_equal(parts[0], other) for other in parts[1:]):
        return parts[0]
    raise FeedError(
        f"the input {item.name!r} has no rows, so clips in one batch cannot differ in it; "
        "run them one by one"
    )


def split(manifest: Manifest, feeds: Feeds) -> list[Feeds]:
    """A batch as clips of one row each; what has no axis of rows is in each of them.

    Raises:
        FeedError: The inputs have different numbers of rows, or none.
    """
    axes = {x.name: rows_axis(x) for x in manifest.inputs}
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
