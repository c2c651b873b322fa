"""Clips into a container and out again: numpy only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphfix.errors import FeedError
from graphfix.ship.expression import shape_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from graphfix.ship.manifest import Container, Input, Manifest, Port

    Array = npt.NDArray[Any]
    Feeds = Mapping[str, Array]


def require_ranks(manifest: Manifest, feeds: Feeds) -> None:
    """Raise FeedError if an input has more or fewer dims than the model takes."""
    for item in manifest.inputs:
        array = feeds.get(item.name)
        if array is not None and array.ndim != len(item.dims):
            raise FeedError(
                f"the input {item.name!r} has shape {[*array.shape]}, and the model takes "
                f"[{', '.join(map(str, item.dims))}]"
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


def rows_of(manifest: Manifest, feeds: Feeds) -> int:
    """How many clips there are in a batch; 1 if the model has no batch."""
    for item in manifest.inputs:
        if item.rows is not None and isinstance(item.dims[item.rows], str) and item.name in feeds:
            return int(feeds[item.name].shape[item.rows])
    return 1


def together(manifest: Manifest, container: Container, clips: Sequence[Feeds]) -> dict[str, Array]:
    """The inputs of a container that holds these clips, one row each.

    Rows that are left are copies of the first clip: what a model accepts once it accepts again.

    Args:
        manifest: What is known of the model.
        container: The container.
        clips: The inputs of each clip, with one row; at most as many as the container has rows.

    Raises:
        FeedError: An input is missing, or does not fit what the manifest says of it.
    """
    rows = container.sizes.get(manifest.batch, 1) if manifest.batch else 1
    filled = [*clips, *[clips[0]] * (rows - len(clips))]
    lengths = [length_of(manifest, clip) for clip in filled]
    fed: dict[str, Array] = {}
    for item in manifest.inputs:
        parts = [
            _padded(manifest, item, container, clip, length)
            for clip, length in zip(filled, lengths, strict=True)
        ]
        fed[item.name] = parts[0] if len(parts) == 1 else _joined(item, parts)
    if manifest.lengths is not None:
        fed[manifest.lengths] = np.asarray(lengths, np.int64)
    return fed


def _padded(
    manifest: Manifest, item: Input, container: Container, clip: Feeds, length: int
) -> Array:
    if item.name not in clip:
        raise FeedError(f"the input {item.name!r} is missing")
    array = clip[item.name]
    axis = manifest.axis
    size = container.sizes[axis.dim]
    alone = {**container.sizes, axis.dim: length}
    if item.kind == "relative-lengths":  # a share of the longest, which is the container now
        array = (array * (length / size)).astype(array.dtype)
    shape = list(shape_of(item.dims, container.sizes))
    for place, wanted in enumerate(shape_of(item.dims, alone)):
        if place == item.rows:
            shape[place] = array.shape[place]
        elif array.shape[place] != wanted:
            raise FeedError(
                f"the input {item.name!r} has {array.shape[place]} along axis {place}, and "
                f"{wanted} is expected ({item.dims[place]}, with {axis.dim}={length})"
            )
    if array.shape == tuple(shape):
        return array
    whole = np.full(shape, item.pad, array.dtype)
    whole[tuple(slice(n) for n in array.shape)] = array
    return whole


def _joined(item: Input, parts: Sequence[Array]) -> Array:
    if item.rows is not None and isinstance(item.dims[item.rows], str):
        return np.concatenate(parts, item.rows)
    if all(np.array_equal(parts[0], other) for other in parts[1:]):
        return parts[0]
    raise FeedError(
        f"the input {item.name!r} has no rows, so clips in one batch cannot differ in it; "
        "run them one by one"
    )


def apart(
    manifest: Manifest, container: Container, port: Port, array: Array, lengths: Sequence[int]
) -> list[Array]:
    """What is valid of an output, for each clip in a container.

    Args:
        manifest: What is known of the model.
        container: The container.
        port: The output.
        array: What the container gave.
        lengths: The length of each clip.

    Raises:
        FeedError: The manifest says something else of the output's shape.
    """
    found = []
    many = port.rows is not None and isinstance(port.dims[port.rows], str)
    for row, length in enumerate(lengths):
        alone = {**container.sizes, manifest.axis.dim: length}
        where: list[slice] = []
        for place, size in enumerate(shape_of(port.dims, alone)):
            if many and place == port.rows:
                where.append(slice(row, row + 1))
                continue
            if place >= array.ndim or size > array.shape[place]:
                raise FeedError(
                    f"the output {port.name!r} has shape {[*array.shape]} in {container.file}, and "
                    f"{size} of axis {place} should be valid ({port.dims[place]}); "
                    "ship the model again"
                )
            where.append(slice(size))
        found.append(array[tuple(where)])
    return found


def split(manifest: Manifest, feeds: Feeds) -> list[dict[str, Array]]:
    """A batch as clips of one row each."""
    count = rows_of(manifest, feeds)
    if count == 1:
        return [dict(feeds)]
    rows = {
        x.name: x.rows
        for x in manifest.inputs
        if x.rows is not None and isinstance(x.dims[x.rows], str)
    }
    clips = []
    for row in range(count):
        clip: dict[str, Array] = {}
        for name, array in feeds.items():
            axis = rows.get(name)
            clip[name] = array if axis is None else array.take([row], axis)
        clips.append(clip)
    return clips
