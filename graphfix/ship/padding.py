"""Clips into a container, row by row, and batches apart into clips: numpy only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphfix.errors import FeedError
from graphfix.ship.fit import rows_axis

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from graphfix.ship.fit import Fit
    from graphfix.ship.manifest import Container, Input, Manifest

    Array = npt.NDArray[Any]
    Feeds = Mapping[str, Array]


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


def rows_of(manifest: Manifest, feeds: Feeds) -> int:
    """How many clips there are in a batch; 1 if the model has no batch.

    Raises:
        FeedError: The inputs have different numbers of rows.
    """
    counts = {
        item.name: int(feeds[item.name].shape[axis])
        for item in manifest.inputs
        if (axis := rows_axis(item)) is not None and item.name in feeds
    }
    if len(set(counts.values())) > 1:
        raise FeedError(f"the inputs have different numbers of rows: {counts}")
    return next(iter(counts.values()), 1)


def rows_in(manifest: Manifest, container: Container) -> int:
    """How many clips a container holds."""
    return container.sizes.get(manifest.batch, 1) if manifest.batch else 1


def together(
    manifest: Manifest, container: Container, clips: Sequence[Feeds], fits: Sequence[Fit]
) -> dict[str, Array]:
    """The inputs of a container that holds these clips, one row each.

    Rows that are left are copies of the first clip: what a model accepts once it accepts again.

    Args:
        manifest: What is known of the model.
        container: The container.
        clips: The inputs of each clip, with one row; at most as many as the container has rows.
        fits: How each of them fits.

    Raises:
        FeedError: An input is missing, or does not fit what the manifest says of it.
    """
    rows = rows_in(manifest, container)
    if rows == 1:
        fed = {filling.name: filling(clips[0]) for filling in fits[0].inputs}
    else:
        left = rows - len(clips)
        clips, fits = [*clips, *[clips[0]] * left], [*fits, *[fits[0]] * left]
        fed = {
            item.name: _joined(
                item,
                [one.inputs[i](clip) for clip, one in zip(clips, fits, strict=True)],
            )
            for i, item in enumerate(manifest.inputs)
        }
    if manifest.lengths is not None:
        fed[manifest.lengths] = np.array([x.length for x in fits], np.int64)
    return fed


def _joined(item: Input, parts: Sequence[Array]) -> Array:
    axis = rows_axis(item)
    if axis is not None:
        return np.concatenate(parts, axis)
    if all(np.array_equal(parts[0], other) for other in parts[1:]):
        return parts[0]
    raise FeedError(
        f"the input {item.name!r} has no rows, so clips in one batch cannot differ in it; "
        "run them one by one"
    )


def split(manifest: Manifest, feeds: Feeds) -> list[Feeds]:
    """A batch as clips of one row each.

    Raises:
        FeedError: The inputs have different numbers of rows, or none.
    """
    count = rows_of(manifest, feeds)
    if count == 1:
        return [feeds]
    if count == 0:
        raise FeedError("a batch of no clips; there is nothing to run")
    rows = {x.name: rows_axis(x) for x in manifest.inputs}
    clips: list[Feeds] = []
    for row in range(count):
        clip: dict[str, Array] = {}
        for name, array in feeds.items():
            axis = rows.get(name)
            clip[name] = array if axis is None else array.take([row], axis)
        clips.append(clip)
    return clips
